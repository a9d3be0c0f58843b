"""What a `cordcal.Monitor` reports: its status, the record of each batch, and a page of both."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from markupsafe import Markup

from cordcal._numeric.types import Record
from cordcal.files.disk import write_text
from cordcal.report.charts import Axis, Drawing, panel
from cordcal.report.html import render_page

VerdictName = Literal["holds", "alarm", "cannot tell"]


@dataclass(frozen=True)
class Alarm(Record):
    """When a test's evidence crossed its limit.

    Attributes
    ----------
    test : {"calibration", "inputs"}
        Which promise is broken: that confidence is honest, or that inputs are as in the baseline.
    batch : str
        The batch in which it happened.
    rows : int
        How many rows the test had seen then.
    evidence : float
        The evidence, as a factor: 40 means that the bets have multiplied their capital by 40.
    """

    test: Literal["calibration", "inputs"]
    batch: str
    rows: int
    evidence: float


@dataclass(frozen=True)
class Source(Record):
    """A part of the rows from which evidence comes.

    Attributes
    ----------
    name : str
        All predictions, a band of confidence, a predicted class or a group.
    share : float
        Its share of the evidence.
    direction : {"too high", "too low"}
        Whether the confidence is too high or too low there.
    since : int
        The labelled row from which the evidence grew, in steps of 250.
    """

    name: str
    share: float
    direction: Literal["too high", "too low"]
    since: int


@dataclass(frozen=True)
class Period:
    """One batch: what was added, and where the tests stood afterwards.

    Attributes
    ----------
    name : str
        The batch's name.
    rows, labelled, repeated : int
        New rows, rows whose label was counted, and rows left out because they were known.
    confidence : float
        Mean confidence of the new rows: the accuracy they imply.
    changed : int or None
        Predictions that the direct probabilities would have changed, if they were passed.
    band_rows, band_confidence, band_correct : tuple
        By band of confidence: labelled rows, their summed confidence and how many were right.
    predicted : tuple of int
        New rows by predicted class.
    calibration_evidence, input_evidence : float
        The evidence of both tests after the batch, as natural logarithms.
    gap : tuple of float
        The interval for mean confidence minus accuracy after the batch.
    """

    name: str
    rows: int
    labelled: int
    repeated: int
    confidence: float
    changed: int | None
    band_rows: tuple[int, ...]
    band_confidence: tuple[float, ...]
    band_correct: tuple[int, ...]
    predicted: tuple[int, ...]
    calibration_evidence: float
    input_evidence: float
    gap: tuple[float, float]


@dataclass(frozen=True)
class MonitorStatus(Record):
    """What a monitor knows now.

    Attributes
    ----------
    verdict : {"holds", "alarm", "cannot tell"}
        ``"alarm"`` from the first alarm until it is acknowledged; ``"cannot tell"`` before the
        first row, and before the first after an acknowledgement.
    rows, labelled, waiting : int
        Rows seen and rows whose label was counted since the tests began, and rows that wait for
        a label.
    calibration_evidence, input_evidence : float
        The evidence of both tests as a factor.
    limit : float
        The evidence at which a test raises an alarm, 2/α.
    gap : float or None
        Mean confidence minus accuracy of the labelled rows.
    gap_interval : tuple of float
        An interval for it that holds at every look together, with probability 1 − α.
    confidence : float or None
        Mean confidence of the latest batch with new rows: the accuracy it implies.
    changed : int or None
        Predictions of that batch that the direct probabilities would have changed.
    sources : tuple of Source
        Where evidence against calibration comes from, if there is an alarm.
    alarms : tuple of Alarm
        Alarms that were not acknowledged.
    """

    verdict: VerdictName
    rows: int
    labelled: int
    waiting: int
    calibration_evidence: float
    input_evidence: float
    limit: float
    gap: float | None
    gap_interval: tuple[float, float]
    confidence: float | None
    changed: int | None
    sources: tuple[Source, ...]
    alarms: tuple[Alarm, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return the status in sentences, the verdict first."""
        if self.verdict == "cannot tell":
            return ["Cannot tell: no rows were added since the tests started."]
        lines = []
        raised = {alarm.test: alarm for alarm in self.alarms}
        if "calibration" in raised:
            alarm = raised["calibration"]
            lines.append(
                f"ALARM: the confidence no longer holds, since {alarm.batch} "
                f"(evidence {alarm.evidence:.3g}, limit {self.limit:g})."
            )
            lines += [
                f"  {100 * source.share:.0f} % of this evidence comes from {source.name}: "
                f"confidence {source.direction} since about labelled row {source.since:,}."
                for source in self.sources
            ]
        elif self.labelled:
            lines.append(
                f"The confidence holds: evidence against it {self.calibration_evidence:.2g}, "
                f"an alarm needs {self.limit:g}."
            )
        else:
            lines.append("No labels yet, so nothing is known about the confidence.")
        if "inputs" in raised:
            alarm = raised["inputs"]
            lines.append(
                f"ALARM: the inputs have changed, since {alarm.batch} (evidence "
                f"{alarm.evidence:.3g}, limit {self.limit:g}). That does not mean that the "
                f"confidence is wrong: get labels for some of the new rows."
            )
        else:
            lines.append(
                f"The inputs look as before: evidence of a change {self.input_evidence:.2g}."
            )
        if self.gap is not None:
            low, high = map(points, self.gap_interval)
            lines.append(
                f"Confidence minus accuracy: {points(self.gap)} points, between {low} "
                f"and {high} however often you look ({self.labelled:,} labelled rows)."
            )
        if self.confidence is not None:
            lines.append(f"The latest batch implies an accuracy of {100 * self.confidence:.1f} %.")
        if self.changed is not None:
            lines.append(
                f"Without the repair {self.changed:,} of its predictions would have changed."
            )
        if self.waiting:
            lines.append(f"{self.waiting:,} rows wait for their labels.")
        return lines


# Bounds between bands of confidence: finer towards one, where most classifiers report.
BAND_EDGES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
# Small diagrams on a page, classes in its table, and rows that a point of a diagram needs.
_PERIODS, _CLASSES, _MIN_BAND_ROWS = 6, 12, 20
# Evidence far beyond the limit is drawn at this power of ten, so that the limit stays visible.
_MAX_POWER = 6.0


def points(share: float) -> str:
    """Return a difference of shares in points with its sign; zero is never negative.

    Examples
    --------
    >>> points(0.0123), points(-0.0004)
    ('+1.2', '+0.0')
    """
    return f"{round(100.0 * share, 1) + 0.0:+.1f}"


def band_names() -> list[str]:
    """Return the bands of confidence in percent.

    Examples
    --------
    >>> band_names()[0], band_names()[-1]
    ('below 50 %', '99 % or more')
    """
    edges = [f"{100 * edge:.0f} %" for edge in BAND_EDGES]
    between = [f"{low} to {high}" for low, high in itertools.pairwise(edges)]
    return [f"below {edges[0]}", *between, f"{edges[-1]} or more"]


@dataclass(frozen=True)
class MonitorHistory:
    """Everything that the page of a monitor shows.

    Attributes
    ----------
    status : MonitorStatus
        What is known now.
    periods : tuple of Period
        The batches in their order.
    class_names : tuple of str
        Names of the classes.
    baseline_shares : tuple of float
        The share of each predicted class in the baseline.
    baseline_rows : int
        Rows of the baseline.
    alpha, tolerance : float
        Settings of the monitor.
    """

    status: MonitorStatus
    periods: tuple[Period, ...]
    class_names: tuple[str, ...]
    baseline_shares: tuple[float, ...]
    baseline_rows: int
    alpha: float
    tolerance: float


def render_monitor(history: MonitorHistory, *, source: str | None = None) -> str:
    """Return the page of a monitor as HTML.

    Parameters
    ----------
    history : MonitorHistory
        What to show.
    source : str, optional
        The name of the state file.
    """
    status = history.status
    facts = [
        *([source] if source else []),
        f"{len(history.periods):,} batches",
        f"{status.rows:,} rows, {status.labelled:,} with labels",
    ]
    return render_page(
        "monitor.html",
        title="Does it still hold?",
        facts=facts,
        topics=("theme", "scroll", "tips"),
        history=history,
        lines=status.lines(),
        evidence_chart=_evidence_chart(history),
        gap_chart=_gap_chart(history),
        reliability=_reliability(history.periods),
        classes=_class_rows(history),
        percent=lambda value: "–" if value is None else f"{100.0 * value:.1f} %",
        factor=_factor_text,
    )


def write_monitor_html(
    history: MonitorHistory,
    path: str | os.PathLike[str],
    *,
    source: str | None = None,
    overwrite: bool = True,
) -> None:
    """Write the page of a monitor to ``path``, completely or not at all.

    Parameters
    ----------
    history : MonitorHistory
        What to show.
    path : path
        Where to.
    source : str, optional
        The name of the state file.
    overwrite : bool
        Whether a file of that name may be replaced.
    """
    write_text(path, render_monitor(history, source=source), overwrite=overwrite)


def _factor_text(evidence: float) -> str:
    """Return the evidence, stored as a natural logarithm, as a factor."""
    return f"{math.exp(evidence):.2g}" if evidence < 20.0 else f"10^{evidence / math.log(10.0):.0f}"


def _evidence_chart(history: MonitorHistory) -> Markup:
    """Draw the evidence of both tests by batch, as powers of ten, with the limit."""
    limit = math.log10(history.status.limit)
    top = max(_MAX_POWER, limit + 1.0)
    lines = {
        "direct": [period.calibration_evidence / math.log(10.0) for period in history.periods],
        "repaired": [period.input_evidence / math.log(10.0) for period in history.periods],
    }
    values = [min(value, top) for line in lines.values() for value in line]
    y = Axis.around("evidence, powers of ten", [*values, limit, -1.0])
    drawing = Drawing(_batch_axis(history.periods), y, width=560)
    drawing.line((drawing.x.low, limit), (drawing.x.high, limit), "diagonal")
    names = {"direct": "confidence", "repaired": "inputs"}
    for kind, line in lines.items():
        drawing.path([(at, min(value, top)) for at, value in enumerate(line, 1)], f"line {kind}")
        for number, (period, value) in enumerate(zip(history.periods, line, strict=True), start=1):
            tip = f"{period.name}, {names[kind]}: 10^{value:.1f}"
            drawing.point(number, min(value, top), f"{kind} small", tip)
    return drawing.markup("Evidence by batch, on a scale of powers of ten")


def _gap_chart(history: MonitorHistory) -> Markup:
    """Draw the interval of confidence minus accuracy by batch, with the tolerance."""
    ends = [100.0 * end for period in history.periods for end in period.gap if abs(end) < 1.0]
    tolerance = 100.0 * history.tolerance
    y = Axis.robust("confidence minus accuracy, points", [*ends, -tolerance, tolerance])
    drawing = Drawing(_batch_axis(history.periods), y, width=560)
    for level in (-tolerance, 0.0, tolerance):
        drawing.line((drawing.x.low, level), (drawing.x.high, level), "diagonal")
    gaps = [tuple(y.pinned(100.0 * end) for end in period.gap) for period in history.periods]
    low = [(number, gap[0]) for number, gap in enumerate(gaps, start=1)]
    high = [(number, gap[1]) for number, gap in enumerate(gaps, start=1)]
    drawing.area(low, high, "interval direct")
    for number, (period, gap) in enumerate(zip(history.periods, gaps, strict=True), start=1):
        tip = f"{period.name}: between {gap[0]:+.1f} and {gap[1]:+.1f} points"
        drawing.point(number, sum(gap) / 2.0, "direct small", tip)
    return drawing.markup("Interval of confidence minus accuracy by batch")


def _batch_axis(periods: Sequence[Period]) -> Axis:
    return Axis("batch", 0.5, max(len(periods), 1) + 0.5)


class _Panel(NamedTuple):
    """A small reliability diagram of some batches, and its numbers.

    ``bands`` has the name, the number of rows, the mean confidence and the accuracy of each band.
    """

    name: str
    rows: int
    chart: Markup
    bands: list[tuple[str, int, float, float]]


def _reliability(periods: Sequence[Period]) -> list[_Panel]:
    """Draw accuracy by band of confidence for stretches of batches of equal length."""
    labelled = [period for period in periods if period.labelled]
    panels = []
    for part in np.array_split(np.arange(len(labelled)), min(_PERIODS, len(labelled)) or 1):
        chosen = [labelled[index] for index in part]
        if not chosen:
            continue
        sums = (
            np.sum([getattr(period, f"band_{name}") for period in chosen], axis=0).tolist()
            for name in ("rows", "confidence", "correct")
        )
        bands = [
            (band, rows, confidence / rows, correct / rows)
            for band, rows, confidence, correct in zip(band_names(), *sums, strict=True)
            if rows
        ]
        first, last = chosen[0].name, chosen[-1].name
        name = first if first == last else f"{first} to {last}"
        line = [(x, y) for _, rows, x, y in bands if rows >= _MIN_BAND_ROWS]
        chart = panel({"direct": line}, f"Accuracy against confidence, {name}")
        panels.append(_Panel(name, sum(rows for _, rows, _, _ in bands), chart, bands))
    return panels


class _ClassRow(NamedTuple):
    """A predicted class: its share in the baseline, in all batches and in the latest."""

    name: str
    baseline: float
    all: float
    latest: float | None


def _class_rows(history: MonitorHistory) -> list[_ClassRow]:
    """Return the classes whose share of predictions has changed most."""
    counts = np.array([period.predicted for period in history.periods]).reshape(
        len(history.periods), len(history.class_names)
    )
    total = counts.sum(axis=0)
    if not total.sum():
        return []
    shares = total / total.sum()
    latest = next((row for row in counts[::-1] if row.sum()), total)
    baseline = np.array(history.baseline_shares)
    order = np.argsort(-np.abs(latest / latest.sum() - baseline), kind="stable")[:_CLASSES]
    return [
        _ClassRow(
            history.class_names[index],
            float(baseline[index]),
            float(shares[index]),
            float(latest[index] / latest.sum()),
        )
        for index in order.tolist()
    ]
