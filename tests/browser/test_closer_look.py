"""What a reader chooses: a calibrator in the table, a move, a class, a point, in Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

import cordcal
from cordcal.report import write_html

from .conftest import opened

# Names in many scripts, right to left among them, with marks that combine and with markup.
NAMES = [
    "кот",
    "犬",
    "قطة",
    "कुत्ता",
    "Ελάφι",
    "חתול",
    "ตัวต่อ",
    "e\u0301lan",
    "<b>&amp;",
    "🦉 owl",
    "노루",
]

# Words whose colour is too near to what lies behind them: WCAG's contrast for body text.
UNREADABLE = """() => {
  const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const light = (colour) => colour.match(/[\\d.]+/g).slice(0, 3)
    .map((part, at) => linear(part / 255) * [0.2126, 0.7152, 0.0722][at])
    .reduce((one, other) => one + other);
  const behind = (each) => {
    for (let place = each; place; place = place.parentElement) {
      const ground = getComputedStyle(place).backgroundColor;
      if (!/, 0\\)$/.test(ground)) return ground;
    }
  };
  const texts = "h1, h2, h3, h4, p, td, th, dt, dd, figcaption, summary, button, .key, text";
  const shown = (each) => each.getClientRects().length && each.textContent.trim();
  return [...document.querySelectorAll(texts)].filter(shown).filter((each) => {
    const style = getComputedStyle(each);
    const ink = each.tagName === "text" ? style.fill : style.color;
    const [dark, bright] = [ink, behind(each)].map(light).sort((one, other) => one - other);
    return (bright + 0.05) / (dark + 0.05) < 4.5;
  }).map((each) => each.outerHTML.slice(0, 90));
}"""


def written(folder: Path, comparison: Any, name: str) -> Path:
    path = folder / f"{name}.html"
    write_html(comparison, path, title=f"Report {name}", source="scores.npz")
    return path


def scores(classes: int, rows: int, *, sharp: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(classes)
    labels = rng.integers(classes, size=rows)
    slope = np.linspace(-0.7, 0.7, classes)
    return sharp * np.eye(classes)[labels] + 1.8 * rng.normal(size=(rows, classes)) + slope, labels


def shifted(fit_scores: np.ndarray, fit_labels: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Take back most of the slope, which changes some predictions at once."""
    return softmax(0.9 * logits - np.linspace(-0.5, 0.5, logits.shape[1]), axis=1)


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    logits, labels = scores(len(NAMES), 1400)
    groups = np.array(["Nord", "南", "جنوب"])[np.arange(1400) % 3]
    blend = cordcal.calibrators.make("blend", members=("ts", "irova"))
    maps = {"ts": "ts", "irova": "irova", "blend": blend}
    result = cordcal.compare(logits, labels, maps, class_names=NAMES, groups=groups)
    return result, written(tmp_path_factory.mktemp("named"), result, "named")


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[Any, Path]]:
    folder = tmp_path_factory.mktemp("sizes")
    made = {}
    for classes, rows, sharp in ((1, 600, 2.0), (2, 600, 2.0), (100, 1500, 6.0), (1000, 1200, 8.0)):
        logits, labels = scores(max(classes, 2), rows, sharp=sharp)
        # Fewer than two columns are refused, but rows to evaluate may all be of one class.
        one = labels == 0
        evaluation = (logits[one], labels[one]) if classes == 1 else 0.5
        maps = {"ts": "ts", "shift": shifted}
        result = cordcal.compare(logits, labels, maps, evaluation=evaluation)
        made[classes] = result, written(folder, result, str(classes))
    return made


@pytest.fixture
def page(browser: Any, named: tuple[Any, Path]) -> Iterator[Any]:
    with opened(browser, named[1]) as page:
        yield page


def test_opens_on_the_advised_report_with_before_and_after(page: Any, named: Any) -> None:
    result = named[0]
    advised = result.recommendation
    assert page.locator(".detail:visible").get_attribute("aria-label") == result[advised.key].name
    before, after = page.locator("#pair figure").all()
    assert f"ECE {100 * result.uncalibrated['ece']:.2f} %" in before.inner_text()
    measures = result.measures(advised.key, advised.output)
    assert f"ECE {100 * measures['ece']:.2f} %" in after.inner_text()
    after.locator("circle").last.hover()
    assert page.inner_text("#tip").startswith(f"{advised.output}: confidence")


def test_the_detail_follows_the_choice_in_the_table(page: Any, named: Any) -> None:
    for place, key in enumerate(named[0].keys()):
        page.locator("#calibrators a.look", has_text=key).first.click()
        detail = page.locator(".detail:visible")
        assert detail.count() == 1
        assert detail.get_attribute("data-entry") == str(place)
        assert page.locator("#picker").input_value() == str(place)
        assert page.locator("#calibrators tr.looked a.look").inner_text() == key
        assert (
            page.evaluate("document.querySelector('#detail-title').getBoundingClientRect().top")
            < 200
        )
    page.select_option("#picker", "0")
    assert page.locator("#calibrators tr.looked a.look").inner_text() == named[0].keys()[0]


def test_a_move_leads_to_its_rows(page: Any, named: Any) -> None:
    page.select_option("#picker", str(named[0].keys().index("irova")))
    detail = page.locator(".detail:visible")
    pictures = named[0]["irova"].pictures
    moves = pictures.moves
    assert detail.locator("svg.heat .move").count() == len(moves)
    shown = detail.locator("table.rows tbody tr:visible")
    all_rows = shown.count()
    for move in (moves[0], moves[-1]):
        rows = [
            r
            for r in pictures.rows
            if (r.prediction, r.direct_prediction) == (move.source, move.target)
        ]
        square = detail.locator(f'.move[data-from="{move.source}"][data-to="{move.target}"]')
        square.hover()
        tip = page.inner_text("#tip")
        assert tip.startswith(f"{move.source} → {move.target}: {move.count} row")
        assert f"{move.gained} become right, {move.lost} wrong" in tip
        square.click()
        assert shown.count() == len(rows) > 0
        assert detail.locator(".move-chosen").inner_text() == f"{move.source} → {move.target} ✕"
    detail.locator(".move-chosen").click()
    assert shown.count() == all_rows
    heat = detail.locator("svg.heat")
    heat.focus()
    heat.press("ArrowRight")
    heat.press("Enter")
    assert detail.locator(".move-chosen").is_visible()


def test_every_class_has_its_diagram_and_counts(page: Any, named: Any) -> None:
    page.select_option("#picker", str(named[0].keys().index("irova")))
    panels = page.locator(".detail:visible .multiples figure")
    classes = named[0]["irova"].pictures.classes.to_list(every_class=True)
    assert panels.count() == len(NAMES)
    for panel, record in zip(panels.all(), classes, strict=True):
        text = panel.locator("figcaption").inner_text()
        assert record.name in text
        assert f"{record.rows:,} rows, {record.decided:,} predicted" in text
        assert panel.locator("path.line").count() == len(record.bins)
    panels.first.locator("svg").focus()
    assert "ECE of the class: original" in page.inner_text("#tip")


def test_abstention_groups_and_shares_tell_the_results_numbers(page: Any, named: Any) -> None:
    result = named[0]
    page.select_option("#picker", str(result.keys().index("blend")))
    detail = page.locator(".detail:visible")
    for report, curve in result["blend"].pictures.selection.outputs.items():
        row = detail.locator(".areas tbody tr", has_text=report).first.inner_text()
        assert f"{curve.aurc:.4f}" in row
        assert f"{curve.low:.4f}–{curve.high:.4f}" in row
    confidence, coverage, accuracy = result["blend"].pictures.selection.outputs["original"].at[0]
    first = detail.locator(".thresholds tbody tr").first.inner_text()
    assert f"{100 * accuracy:.2f} %" in first
    assert f"{100 * coverage:.1f} % kept" in first
    assert first.startswith(f"{confidence}")
    groups = detail.locator(".groups tbody tr")
    assert [row.locator("th").inner_text() for row in groups.all()] == [
        group.name for group in result["blend"].pictures.groups
    ]
    shares = detail.locator(".shares i")
    assert shares.count() == len(result["blend"].shares)
    shares.first.hover()
    member, part = next(iter(result["blend"].shares.items()))
    assert page.inner_text("#tip") == f"{member}: {100 * part:.1f} % of the mixture"


def test_the_reading_asks_whether_calibration_is_needed(page: Any, named: Any) -> None:
    text = page.inner_text(".lead")
    sentences = [named[0].report_data().need]
    assert sentences
    for sentence in sentences:
        assert sentence in text


def test_every_point_of_a_scatter_plot_has_a_label(page: Any, named: Any) -> None:
    result = named[0]
    picture = page.locator("section[aria-labelledby=tradeoff-title] svg").first
    picture.focus()
    shown_text = set()
    for _ in range(picture.locator(".mark").count()):
        picture.press("ArrowRight")
        shown_text.add(page.inner_text("#tip"))
    for entry in result:
        reports = ["direct"] if entry.keeps_predictions else ["direct", "repaired", "lift"]
        for report in reports:
            value = f"NLL {result.measures(entry.key, report)['nll']:.4f}"
            assert any(entry.name in tip and value in tip for tip in shown_text)
    marks = picture.locator(".mark")
    for mark in marks.all():
        own = mark.get_attribute("data-tip")
        mark.hover(force=True)
        assert own in page.inner_text("#tip")


@pytest.mark.parametrize("classes", [1, 2, 100, 1000])
def test_any_number_of_classes_fits(browser: Any, sizes: Any, classes: int) -> None:
    result, path = sizes[classes]
    assert path.stat().st_size < 7e5
    with opened(browser, path) as page:
        for width, scheme in product((1280, 390), ("light", "dark")):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(UNREADABLE) == []
            if classes > 2:
                # The first has its classes as rows, the other as numbers that the script takes.
                key = result.keys()[("light", "dark").index(scheme)]
                page.select_option("#picker", str(result.keys().index(key)))
                find_and_draw(page.locator(".detail:visible"), classes)


def find_and_draw(detail: Any, classes: int) -> None:
    """Find the eighth of many classes by its name, and choose it."""
    rows = detail.locator("table.classes tbody tr")
    assert rows.count() == classes
    expected = rows.nth(7).locator("th").inner_text()
    detail.locator(".find-class").fill(expected)
    shown = detail.locator("table.classes tbody tr:visible")
    names = shown.locator("th").all_inner_texts()
    assert names
    assert all(expected in name for name in names)
    assert detail.locator(".classes-shown").inner_text() == f"{len(names)} of {classes} classes"
    shown.locator("button", has_text=expected).first.click()
    assert expected in detail.locator(".class-name").inner_text()
    assert detail.locator(".class-chosen path.line").count() >= 2
    detail.locator(".find-class").fill("")


def test_every_calibrator_tells_its_classes(browser: Any, sizes: Any) -> None:
    result, path = sizes[100]
    assert result.to_dict()["focus"] == "ts"
    classes = result["shift"].pictures.classes.to_list(every_class=True)
    with opened(browser, path) as page:
        page.select_option("#picker", str(result.keys().index("shift")))
        detail = page.locator(".detail:visible")
        rows = detail.locator("table.classes tbody tr").evaluate_all(
            "(rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
        )
        assert rows == [
            [record.name, *map(str, (record.rows, record.decided, record.left, record.joined))]
            + [f"{100 * gap:.3f}" for gap in record.ece.values()]
            for record in classes
        ]
        assert "only for" not in detail.inner_text()
        for report, bins in classes[0].bins.items():
            marks = detail.locator(f".class-chosen .mark.{report}")
            assert marks.count() == len(bins)
            share, frequency, count = bins[0]
            tip = marks.first.get_attribute("data-tip")
            assert tip == (
                f"{report}: probability {share:.3f}, frequency {frequency:.3f}, {count:,.0f} rows"
            )


def test_a_narrow_screen_shows_nll_and_ece_first_and_says_that_it_scrolls(
    browser: Any, named: Any
) -> None:
    with opened(browser, named[1], viewport={"width": 390, "height": 900}) as page:
        heads = page.locator("#calibrators thead th")
        for place in (1, 2):
            box = heads.nth(place).bounding_box()
            assert box["x"] + box["width"] <= 390
        assert page.locator(".sideways").is_visible()
        scroll = page.locator("#calibrators").locator("xpath=..")
        assert "more" in scroll.get_attribute("class")
        scroll.evaluate("(place) => { place.scrollLeft = 9999; }")
        page.locator(".scroll:not(.more) > #calibrators").wait_for()
        # The first column stays, with its lines.
        first = page.locator("#calibrators tbody th").nth(2)
        assert first.bounding_box()["x"] >= 0
        assert first.evaluate("(cell) => getComputedStyle(cell).borderBottomWidth") == "1px"


def test_no_table_is_cut_on_paper(browser: Any, named: Any, sizes: Any) -> None:
    for path in (named[1], sizes[100][1]):
        # A4 without its margins, in CSS pixels.
        with opened(browser, path, viewport={"width": 718, "height": 1000}) as page:
            page.emulate_media(media="print")
            cut = page.evaluate(
                """() => [...document.querySelectorAll('table, svg, pre')]
                    .filter((each) => each.getClientRects().length)
                    .filter((each) => each.getBoundingClientRect().right > 719)
                    .map((each) => each.className.baseVal ?? each.className)"""
            )
            assert cut == []
