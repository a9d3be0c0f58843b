"""The page as text: escaped, self-contained, small, and made from either result."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import ClassVar

import numpy as np
import pytest
from scipy.special import softmax

import cordcal
from cordcal.evaluate.audit import AuditStream
from cordcal.evaluate.results.monitor import factor
from cordcal.evaluate.results.report import ReportData
from cordcal.metrics.binned import ClassBins
from cordcal.report import render
from cordcal.report.charts import Axis, Drawing, number
from cordcal.report.monitor import render_monitor

EVIL = "<script>alert(1)</script>\"'"


class Page(HTMLParser):
    """Collects tags, and fails on an element that is never closed, except cells and rows."""

    VOID = frozenset(["meta", "input", "br", "link", "img", "hr"])
    # What a start or an end tag closes where the end tag was left out.
    IMPLIED: ClassVar = {
        "td": ("td", "th"),
        "th": ("td", "th"),
        "tr": ("td", "th", "tr"),
        "/tr": ("td", "th"),
        "/tbody": ("td", "th", "tr"),
        "/thead": ("td", "th", "tr"),
    }

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]
        self._imply(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        self._imply(f"/{tag}")
        assert self.open.pop() == tag

    def _imply(self, tag: str) -> None:
        while self.open and self.open[-1] in self.IMPLIED.get(tag, ()):
            self.open.pop()


@pytest.fixture(scope="module")
def logits_and_labels() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    labels = rng.integers(3, size=600)
    return 2.0 * np.eye(3)[labels] + 1.5 * rng.normal(size=(600, 3)), labels


@pytest.fixture(scope="module")
def comparison(logits_and_labels) -> ReportData:
    result = cordcal.compare(*logits_and_labels, ["ts", "irova"], class_names=["a", EVIL, "c"])
    return result.report_data()


@pytest.fixture(params=["labelled", "unlabelled", "unchanged"])
def audited(request, logits_and_labels) -> ReportData:
    logits, labels = logits_and_labels
    truth = None if request.param == "unlabelled" else labels
    original = softmax(logits, axis=1)
    shift = [0.0, 0.0, 0.0] if request.param == "unchanged" else [0.5, 0.0, -0.5]
    direct = softmax(0.6 * logits + shift, axis=1)
    stream = AuditStream(cordcal.CORD().fit(original, direct)).update(original, direct, truth)
    names = ["a", EVIL, "c"]
    audit = stream.result(class_names=names, fitted_here=True, level=0.95, resamples=20, seed=0)
    pictures = stream.pictures(names)
    return audit.report_data_with(
        pictures, name=EVIL, fingerprint="600:0", class_names=tuple(names)
    )


def check(text: str) -> Page:
    page = Page(text)
    assert page.open == []
    assert "<script>alert" not in text
    # Nothing is loaded: no address, no source, no import.
    assert not [value for _, name, value in page.attributes if name in ("src", "srcset", "action")]
    links = [value for _, name, value in page.attributes if name == "href"]
    assert all(value is not None and value.startswith("#") for value in links)
    assert not re.search(r"https?://(?!www.w3.org/2000/svg)|@import|url\(", text)
    assert len(text.encode()) < 7e5
    return page


def test_a_comparison(comparison: ReportData) -> None:
    page = check(render(comparison, title=EVIL, source=EVIL))
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    named = [value for _, name, value in page.attributes if name == "aria-labelledby"]
    assert set(named) <= set(ids)


def test_an_audit(audited: ReportData) -> None:
    text = render(audited, title="Audit", source="p.npz against q.npz")
    check(text)
    assert ("Direct and repaired, in numbers" in text) == audited.has_labels
    # One pair is not "every calibrator", and there is nothing to sort or to choose.
    assert "Every calibrator" not in text
    assert "Choose a heading" not in text
    changed = bool(audited.calibrators[0].changes.n_changed)
    assert ("needs no repair" in text) == (audited.has_labels and not changed)
    if audited.has_labels and changed:
        assert re.search(r"before:\u00a0\d+\.\d+\u00a0%", text)


def test_many_classes_and_calibrators_stay_small(comparison: ReportData) -> None:
    keeps, moves = comparison.calibrators
    pictures = moves.pictures
    names = [f"{index:020d}" for index in range(100)]
    table = pictures.classes
    wide = replace(
        table,
        names=names,
        rows=np.resize(table.rows, 100),
        decided=np.resize(table.decided, 100),
        left=np.resize(table.left, 100),
        joined=np.resize(table.joined, 100),
        bins={
            output: ClassBins(*(np.resize(sums, (len(sums), 100)) for sums in vars_of(bins)))
            for output, bins in table.bins.items()
        },
    )
    row = replace(pictures.rows[0], label="x" * 20, prediction="y" * 20)
    move = replace(pictures.moves[0], source="x" * 20, target="y" * 20)
    many = replace(pictures, rows=(row,) * 100, moves=(move,) * 40, classes=wide)
    # As many as there are calibrators, half of which keep predictions by themselves.
    crowd = [replace(keeps, key=f"keeps {place}") for place in range(14)]
    crowd += [replace(moves, pictures=many, key=f"moves {place}") for place in range(13)]
    crowd.append(replace(moves, pictures=many, key="focus"))
    crowd = [replace(entry, pictures=replace(entry.pictures, classes=wide)) for entry in crowd]
    data = replace(
        comparison,
        calibrators=tuple(crowd),
        n_classes=100,
        focus="focus",
        listed=frozenset(["focus"]),
    )
    text = render(data, title="Many")
    check(text)
    # Where a reader looks for the classes of the others, the page says why they are not there.
    sentence = "every class with its diagram is shown only for focus."
    assert text.count(sentence) == len(crowd) - 1


def vars_of(bins: ClassBins) -> tuple[np.ndarray, ...]:
    return bins.weight, bins.mass, bins.hits


def test_one_rendering_is_as_the_next(comparison: ReportData) -> None:
    moment = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    first, second = (render(comparison, title="t", created=moment) for _ in range(2))
    assert first == second
    assert "2026-01-02 03:04 UTC" in first


def test_text_and_table_round_alike(comparison: ReportData) -> None:
    text = render(comparison, title="t")
    for measure, digits in (("accuracy", 2), ("ece", 2)):
        written = f"{100 * comparison.uncalibrated[measure]:.{digits}f}"
        assert any(written in sentence for sentence in comparison.reading)
        assert f"<span>{written}</span>" in text


@pytest.mark.parametrize(
    ("classes", "written"), [(10, "0.214 %"), (100, "0.2137 %"), (1000, "0.21366 %")]
)
def test_classwise_ece_has_digits_that_differ(classes: int, written: str) -> None:
    assert number("classwise_ece", 0.0021366, classes=classes) == written


def test_changes_of_percentages_are_in_points() -> None:
    assert number("accuracy", -0.0012, signed=True) == "−0.12 points"
    assert number("nll", -0.0012, signed=True) == "−0.0012"


def test_one_far_value_does_not_stretch_an_axis() -> None:
    near = [1.0, 1.1, 1.2, 1.25, 1.3]
    axis = Axis.robust("NLL", [*near, 40.0])
    assert axis.high < 3.0
    assert axis.pinned(40.0) == axis.high
    assert axis.pinned(1.1) == 1.1
    # One that is merely larger stays inside.
    assert Axis.robust("NLL", [*near, 1.5]).high > 1.5


def test_labels_lie_neither_on_each_other_nor_on_marks() -> None:
    drawing = Drawing(Axis("x", 0.0, 1.0), Axis("y", 0.0, 1.0))
    texts = [(0.5 + 0.001 * place, 0.5, f"map {place}") for place in range(120)]
    for x, y, text in texts:
        drawing.point(x, y, "direct", text)
    drawing.labels(texts)
    result = re.findall(
        r'class="label" x="([\d.]+)" y="([\d.]+)">([^<]+)<', str(drawing.markup("crowd"))
    )
    assert 5 < len(result) < 120
    boxes = [(float(x), float(y), float(x) + 6.5 * len(text)) for x, y, text in result]
    for place, (left, height, right) in enumerate(boxes):
        for other_left, other_height, other_right in boxes[place + 1 :]:
            apart = abs(height - other_height) >= 11.9
            assert apart or right <= other_left + 0.1 or other_right <= left + 0.1


def test_the_page_of_a_monitor_tells_one_story() -> None:
    """Text and chart show the same evidence; accuracy and confidence stand side by side."""
    rng = np.random.default_rng(0)

    def night(rows: int, off: float) -> tuple[np.ndarray, np.ndarray]:
        top = rng.uniform(0.5, 1.0, rows)
        wrong = rng.random(rows) >= top - off
        return np.column_stack([top, 1.0 - top]), wrong.astype(int)

    monitor = cordcal.Monitor(night(1000, 0.0)[0])
    monitor.add(*night(300, 0.0), name="2026-11-01.csv")
    monitor.add(*night(900, 0.3), name="2026-11-02.csv")
    page = render_monitor(monitor.history, source="my state.monitor")
    (alarm,) = monitor.alarms
    now = factor(monitor.status.calibration_evidence)
    assert f"evidence {factor(alarm.evidence)} then, {now} now" in page
    assert f"2026-11-02.csv, confidence: {now}" in page
    latest = monitor.status.latest
    cells = re.findall(r"<td[^>]*>([^<]*)", page)
    at = cells.index("2026-11-02.csv")
    assert cells[at + 2 : at + 4] == [
        f"{100 * latest.accuracy:.1f} %",
        f"{100 * latest.confidence:.1f} %",
    ]
    assert "implies" not in page
    assert ">2026-11-01</text>" in page
    assert "0.5</text>" not in page.split("Evidence over time")[1].split("</svg>")[0]
    assert "cordcal monitor acknowledge &#39;my state.monitor&#39;" in page
    assert "acted rows" not in page
    baseline, truth = night(2000, 0.0)
    certificate = cordcal.certify(baseline, truth, 0.1)
    monitor = cordcal.Monitor(baseline, certificate=certificate)
    monitor.add(*night(900, 0.3), name="2026-11-02.csv")
    now = factor(monitor.status.act_evidence)
    page = render_monitor(monitor.history, source="a state")
    assert f"2026-11-02.csv, acted rows: {now}" in page
