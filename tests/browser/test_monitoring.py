"""The pages of a monitor and of a check: alone, safe, readable at both widths and on paper."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cordcal
from browser.conftest import EVIL, opened
from cordcal.cli import main


@pytest.fixture(scope="module")
def pages(tmp_path_factory: Any) -> dict[str, Path]:
    """A monitor with an alarm, and a check with a failed gate; names that attack the page."""
    folder = tmp_path_factory.mktemp("pages")
    rng = np.random.default_rng(0)
    names = ["ant", EVIL, "cat & dog"]
    probabilities = rng.dirichlet(np.full(3, 0.4), 4000)
    labels = np.array([rng.choice(3, p=row) for row in probabilities])
    monitor = cordcal.Monitor(probabilities[:1000], class_names=names)
    monitor.add(probabilities[1000:2000], labels[1000:2000], name=EVIL)
    monitor.add(probabilities[2000:], rng.permutation(labels[2000:]), name="shuffled")
    assert monitor.status.verdict == "alarm"
    monitor.save(folder / "state")
    np.savez(folder / "scores.npz", probabilities=probabilities, labels=labels)
    monitor_page, check_page = folder / "monitor.html", folder / "check.html"
    assert main(["monitor", "show", str(folder / "state"), "--report", str(monitor_page)]) == 1
    scores = str(folder / "scores.npz")
    gates = ("--max", "tpcr=0", "--max", "nll=0.01", "--max", "ece.class=1%", "--min",
             "accuracy=9%", "--max", "brier=3", "--error", "20%")  # fmt: skip
    code = main(["check", scores, "--original", scores, *gates, "--report", str(check_page)])
    assert code == 1
    return {"monitor": monitor_page, "check": check_page}


@pytest.mark.parametrize("name", ["monitor", "check"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_loads_alone_and_fits(browser: Any, pages: Any, name: str, width: int, scheme: str) -> None:
    size = {"width": width, "height": 900}
    with opened(browser, pages[name], viewport=size, color_scheme=scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_monitor_page_has_the_verdict_the_batches_and_the_classes(
    browser: Any, pages: Any
) -> None:
    with opened(browser, pages["monitor"]) as page:
        assert page.locator("#verdict-title").inner_text() == "Alarm"
        for region in ("Batches in numbers", "Reliability in numbers"):
            table = page.get_by_role("region", name=region, include_hidden=True)
            assert table.locator("tbody tr", has_text="shuffled").count() >= 1
            assert table.locator("tbody td", has_text=EVIL).count() >= 1
        assert page.locator("section:last-of-type tbody td", has_text=EVIL).count() == 1  # a class
        assert page.locator("svg[role=img]").count() == 2 + 2


def test_the_certificate_fits_one_sheet_of_paper(browser: Any, pages: Any) -> None:
    with opened(browser, pages["check"]) as page:
        assert page.locator("#outcome-title").inner_text() == "A gate fails"
        assert "0 of 4,000" in page.locator("main").inner_text()
        assert len(page.locator(".digest").first.inner_text()) == 64
        sheets = re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))
        assert len(sheets) == 1
