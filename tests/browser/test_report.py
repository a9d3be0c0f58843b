"""The report in Chromium: it loads alone, sorts, filters, shows its numbers, stays safe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cordcal.metrics import METRICS
from cordcal.metrics.registry import leading_metrics
from cordcal.report import write_html
from cordcal.report.charts import number
from cordcal.report.tables import option_name

from .conftest import EVIL, opened


def column(page: Any, table: str, index: int) -> list[str]:
    return page.locator(f"{table} tbody tr:not(.base)").evaluate_all(
        "(rows, at) => rows.map((row) => row.cells[at].dataset.sort ?? row.cells[at].textContent)",
        index,
    )


def test_loads_alone_and_says_the_reading(page: Any, comparison: Any, report: Path) -> None:
    text = page.inner_text("main")
    assert comparison.recommendation.name in text
    assert comparison.recommendation.reason in text
    # The long prose is folded until it is asked for.
    assert comparison.report_data().reading[0] not in text
    page.locator("summary", has_text="What else the rows show").click()
    text = page.inner_text("main")
    for sentence in comparison.report_data().reading:
        assert sentence in text
    assert report.stat().st_size < 7e5


def test_sorting_by_numbers_and_by_names(page: Any, comparison: Any) -> None:
    heads = page.locator("#calibrators thead button")
    nll = 1  # NLL and ECE come first, so that a narrow screen shows them
    assert [heads.nth(place).inner_text() for place in (1, 2)] == ["NLL", "ECE, %"]
    # Sorted from the start, the recommended calibrator pinned to the top in any order.
    best = {
        entry.key: min(entry.measures(output)["nll"] for output in entry.preserving)
        for entry in comparison
    }
    pinned = best.pop(comparison.recommendation.key)
    assert page.locator("#calibrators th").nth(nll).get_attribute("aria-sort") == "ascending"
    values = [float(value) for value in column(page, "#calibrators", nll)]
    assert values == [pinned, *sorted(best.values())]
    heads.nth(nll).press("Enter")
    values = [float(value) for value in column(page, "#calibrators", nll)]
    assert values == [pinned, *sorted(best.values(), reverse=True)]
    heads.nth(0).click()
    names = column(page, "#calibrators", 0)
    assert names == [comparison.recommendation.key, *sorted(best)]
    assert page.locator("#calibrators tbody tr").first.get_attribute("class") == "base"
    assert page.locator("#calibrators tr.pinned .badge").inner_text().startswith("recommended")


def test_the_table_tells_the_result_objects_numbers(page: Any, comparison: Any) -> None:
    for entry in comparison:
        row = page.locator(
            "#calibrators tbody tr", has=page.locator(f"th[data-sort='{entry.key}']")
        )
        cells = row.locator("td")
        shown = ["nll", "ece", None, *(name for name in METRICS if name not in ("nll", "ece"))]
        for index, measure in enumerate(shown):
            if measure is None:
                continue
            written = cells.nth(index).inner_text()
            assert number(measure, entry.repaired[measure]).split(" ")[0] in written
            if not entry.keeps_predictions:
                assert number(measure, entry.direct[measure]).split(" ")[0] in written
            if entry.lift is not None:
                assert number(measure, entry.lift[measure]).split(" ")[0] in written


def test_choosing_a_calibrator_and_filtering_its_rows(page: Any, comparison: Any) -> None:
    index = comparison.keys().index("irova")
    page.select_option("#picker", str(index))
    assert page.locator(".detail:visible").count() == 1
    detail = page.locator(".detail:visible")
    rows = comparison["irova"].pictures.rows
    shown = detail.locator("table.rows tbody tr:visible")
    assert shown.count() == len(rows)
    detail.locator("select.kind").select_option("gained")
    gained = [row for row in rows if row.label == row.direct_prediction]
    assert shown.count() == len(gained) > 0
    detail.locator(".find").fill("ELK")
    both = [row for row in gained if "elk" in (row.label, row.prediction, row.direct_prediction)]
    assert shown.count() == len(both) < len(gained)
    assert detail.locator(".shown").inner_text() == f"{len(both)} of {len(rows)} rows"
    detail.locator("select.kind").select_option("")
    detail.locator(".find").fill(str(rows[0].row))
    assert shown.count() == 1
    detail.locator(".find").fill("no such class")
    assert shown.count() == 0


def test_hover_shows_the_numbers_of_the_result(page: Any, comparison: Any) -> None:
    page.select_option("#picker", str(comparison.keys().index("irova")))
    bins = comparison["irova"].pictures.reliability["repaired"]
    last = max(index for index, count in enumerate(bins.count) if count)
    marks = page.locator(".detail:visible figure").first.locator(".mark.repaired")
    marks.last.hover(force=True)  # marks that lie on each other are shown together
    tip = page.inner_text("#tip")
    assert f"confidence {bins.confidence[last]:.3f}, accuracy {bins.accuracy[last]:.3f}" in tip
    assert f"{bins.accuracy_low[last]:.3f}–{bins.accuracy_high[last]:.3f}" in tip
    assert f"rows {bins.count[last]:,}" in tip
    bar = page.locator("#changes .bar-row", has_text="irova").locator("i.lost")
    bar.hover()
    changes = comparison["irova"].changes
    assert f"{changes.n_lost:,} of {changes.n:,} rows" in page.inner_text("#tip")
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()


def test_arrow_keys_walk_through_a_picture(page: Any) -> None:
    picture = page.locator(".detail:visible svg").first
    picture.focus()
    picture.press("ArrowRight")
    first = page.inner_text("#tip")
    picture.press("ArrowRight")
    second = page.inner_text("#tip")
    assert first.startswith("direct: confidence")
    assert second != first
    picture.press("ArrowLeft")
    assert page.inner_text("#tip") == first


def test_an_injected_name_stays_text(page: Any) -> None:
    assert EVIL in page.inner_text("main")
    assert EVIL in page.inner_text("h1")
    assert EVIL in page.title()
    assert page.locator("script").count() == 1
    assert page.evaluate("document.body.innerHTML.includes('<script>alert')") is False


def test_every_control_and_picture_has_a_name(page: Any) -> None:
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('button, select, input, svg, [role=region]')].filter(
            (each) => !(each.getAttribute('aria-label') || each.textContent.trim()
                || each.closest('label') || each.getAttribute('aria-labelledby')))
            .map((each) => each.outerHTML.slice(0, 80))"""
    )
    assert unnamed == []


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fits_the_screen_in_both_themes(
    browser: Any, report: Path, width: int, scheme: str
) -> None:
    size = {"width": width, "height": 900}
    with opened(browser, report, viewport=size, color_scheme=scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        ink = page.evaluate("getComputedStyle(document.body).color")
        brightness = [sum(map(int, text[4:-1].split(","))) for text in (paper, ink)]
        assert (brightness[0] < brightness[1]) == (scheme == "dark")
        page.click("#theme")
        turned = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert turned != paper


def test_without_scripts_everything_is_there(browser: Any, report: Path, comparison: Any) -> None:
    with opened(browser, report, java_script_enabled=False) as page:
        assert page.locator(".detail:visible").count() == len(comparison)


def test_prints(browser: Any, report: Path) -> None:
    with opened(browser, report, color_scheme="dark") as page:
        page.emulate_media(media="print")
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == "rgb(255, 255, 255)"
        assert page.locator("#theme").is_hidden()
        assert page.pdf()[:4] == b"%PDF"


def test_commands_are_copied_and_say_so(browser: Any, report: Path, comparison: Any) -> None:
    permissions = ["clipboard-read", "clipboard-write"]
    with opened(browser, report, permissions=permissions) as page:
        page.locator("button.copy").first.click()
        page.locator("button.copy", has_text="Copied").first.wait_for()  # writing is asynchronous
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied.splitlines() == list(comparison.next_step().shell)


def test_settings_have_the_date_and_versions(page: Any) -> None:
    text = page.inner_text(".settings")
    for name in ("date", "data fingerprint", "cordcal", "Python", "numpy", "scikit-learn"):
        assert name in text


def test_long_tables_are_folded(browser: Any, comparison: Any, tmp_path: Path) -> None:
    data = comparison.report_data()
    worst = max(data.calibrators, key=lambda entry: entry.repaired["nll"])
    others = tuple(replace(worst, key=f"more {place}") for place in range(12))
    path = tmp_path / "long.html"
    write_html(replace(data, calibrators=data.calibrators + others), path)
    with opened(browser, path) as page:
        rows = page.locator("#calibrators tbody tr:visible")
        assert rows.count() == 1 + 10
        assert page.locator("#calibrators tr.pinned").is_visible()
        button = page.locator("button.unfold")
        assert button.get_attribute("aria-expanded") == "false"
        button.click()
        assert rows.count() == 1 + len(data.calibrators) + 12
        button.click()
        # However the table is sorted, the first rows are shown.
        page.locator("#calibrators thead button").first.click()
        assert rows.count() == 1 + 10
    with opened(browser, path, java_script_enabled=False) as page:
        assert (
            page.locator("#calibrators tbody tr:visible").count() == 1 + len(data.calibrators) + 12
        )


def test_the_best_are_named_in_the_scatter_plots(page: Any, comparison: Any) -> None:
    for place, measure in enumerate(leading_metrics()):
        figure = page.locator("[aria-labelledby=tradeoff-title] figure").nth(place)
        labels = figure.locator("text.label").all_text_contents()
        assert 0 < len(labels) <= 8
        rows = sorted(
            comparison.report_data().rows(),
            key=lambda row: row.measures[measure],
            reverse=not METRICS[measure].lower_is_better,
        )
        best = {option_name(row.key, row.output) for row in rows[:8]}
        assert all(any(label.startswith(name) for name in best) for label in labels)
        assert figure.locator("[data-tip]").count() == len(rows)


def test_the_histogram_has_every_output(page: Any, comparison: Any) -> None:
    page.select_option("#picker", str(comparison.keys().index("irova")))
    figure = page.locator(".detail:visible .panels.two figure").nth(1)
    assert figure.locator(".key").all_inner_texts() == ["original", "direct", "repaired", "lift"]
    assert figure.locator("path.line.lift").count() == 1
    counts = comparison["irova"].pictures.histogram.counts
    assert all(sum(rows) == comparison.n_evaluation for rows in counts.values())
