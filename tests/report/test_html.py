"""The page as text: escaped, self-contained, small, and made from either result."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import cordcal
from cordcal._numeric.rows import softmax
from cordcal.evaluate._pictures import Pictures
from cordcal.preserved import Reports
from cordcal.report import audit_data, render

EVIL = "<script>alert(1)</script>\"'"


class Page(HTMLParser):
    """Collects tags, and fails on an element that is never closed."""

    VOID = frozenset(["meta", "input", "br", "link", "img", "hr"])

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def logits_and_labels() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    labels = rng.integers(3, size=600)
    return 2.0 * np.eye(3)[labels] + 1.5 * rng.normal(size=(600, 3)), labels


@pytest.fixture(scope="module")
def comparison(logits_and_labels) -> dict:
    found = cordcal.compare(*logits_and_labels, ["ts", "irova"], class_names=["a", EVIL, "c"])
    return found.to_dict()


@pytest.fixture(params=["labelled", "unlabelled", "unchanged"])
def audited(request, logits_and_labels) -> dict:
    logits, labels = logits_and_labels
    truth = None if request.param == "unlabelled" else labels
    original = softmax(logits)
    shift = [0.0, 0.0, 0.0] if request.param == "unchanged" else [0.5, 0.0, -0.5]
    direct = softmax(0.6 * logits + shift)
    audit = cordcal.audit(original, direct, truth, resamples=20)
    repaired = cordcal.CORD().fit(original, direct).transform(original, direct)
    reports = Reports(direct, repaired, original.argmax(axis=1))
    bins = {name: audit.reliability[name] for name in ("direct", "repaired") if truth is not None}
    pictures = Pictures.of(original, reports, ["a", EVIL, "c"], bins, labels=truth)
    return audit_data(audit, pictures, name=EVIL, fingerprint="600:0")


def check(text: str) -> Page:
    page = Page(text)
    assert page.open == []
    assert "<script>alert" not in text
    # Nothing is loaded: no address, no source, no import.
    assert not [value for _, name, value in page.attributes if name in ("src", "srcset", "action")]
    assert [value for tag, name, value in page.attributes if name == "href"] == ["#main"]
    assert not re.search(r"https?://|@import|url\(", text)
    assert len(text.encode()) < 1.5e6
    return page


def test_a_comparison(comparison: dict) -> None:
    page = check(render(comparison, title=EVIL, source=EVIL))
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    named = [value for _, name, value in page.attributes if name == "aria-labelledby"]
    assert set(named) <= set(ids)


def test_an_audit(audited: dict) -> None:
    text = render(audited, title="Audit", source="p.npz against q.npz")
    check(text)
    assert ("Every calibrator, direct and repaired" in text) == audited["has_labels"]


def test_many_classes_and_calibrators_stay_small(comparison: dict) -> None:
    entry = comparison["calibrators"][1]
    row = {**entry["rows"][0], "label": "x" * 60, "decision": "y" * 60}
    crowd = [
        {**entry, "key": f"map {place}", "rows": [row] * 100, "classes": entry["classes"] * 13}
        for place in range(14)
    ]
    check(render({**comparison, "calibrators": crowd}, title="Many"))


def test_one_rendering_is_as_the_next(comparison: dict) -> None:
    assert render(comparison, title="t") == render(comparison, title="t")
