"""Real Chromium, driven by Playwright, with the network cut off."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cordcal
from cordcal.report import write_html

CHROMIUM = shutil.which("chromium")
EVIL = "<script>alert(1)</script>\"'"
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def _missing(what: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing, and under CI the browser tests may not skip")
    pytest.skip(f"{what} is missing; apt-get install chromium, pip install playwright")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        _missing("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright")
    with sync_playwright() as playwright:
        result = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield result
        result.close()


@pytest.fixture(scope="session")
def comparison() -> cordcal.evaluate.comparison.Comparison:
    """A comparison with every kind of change, and a class name that attacks the page."""
    rng = np.random.default_rng(1)
    labels = rng.integers(4, size=1200)
    logits = 2.5 * np.eye(4)[labels] + 1.8 * rng.normal(size=(1200, 4)) + [0.6, 0.0, 0.0, -0.6]
    return cordcal.compare(
        logits, labels, ["ts", "vs", "irova"], class_names=["ant", EVIL, "cat & dog", "elk"]
    )


@pytest.fixture(scope="session")
def report(comparison: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_html(comparison, path, title=f"Title {EVIL}", source=f"{EVIL}.npz")
    return path


@pytest.fixture
def page(browser: Any, report: Path) -> Iterator[Any]:
    """The report, opened from its file; anything the page complains about fails the test."""
    with opened(browser, report) as page:
        yield page


class opened:
    """A page on ``path`` without a network; on leaving, nothing may have gone wrong."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        options = {"viewport": {"width": 1280, "height": 900}, "offline": True, **options}
        self.context = browser.new_context(**options)
        self.path = path
        self.trouble: list[str] = []

    def __enter__(self) -> Any:
        page = self.context.new_page()
        for event in ("console", "pageerror", "dialog"):
            page.on(event, self._note)
        page.on("request", lambda request: self._only_file(request.url))
        page.goto(self.path.as_uri())
        return page

    def _note(self, event: Any) -> None:
        self.trouble.append(str(getattr(event, "text", event)))

    def _only_file(self, url: str) -> None:
        if url != self.path.as_uri():
            self.trouble.append(f"request: {url}")

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.context.close()
        if kind is None:
            assert self.trouble == []
