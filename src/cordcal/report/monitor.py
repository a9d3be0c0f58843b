"""The page of a `cordcal.Monitor`: its status and the record of each batch."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from cordcal.evaluate.results.monitor import MonitorHistory, Period, band_names, factor
from cordcal.files.disk import write_text
from cordcal.report.charts import Axis, Drawing, panel
from cordcal.report.html import render_page

# Small diagrams on a page, classes in its table, and rows that a point of a diagram needs.
_PERIODS, _CLASSES, _MIN_BAND_ROWS = 6, 12, 20


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
        steps=_next_steps(history, source),
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
    return factor(math.exp(min(evidence, _MAX_LOG)))


# The logarithm of the largest double: a status does not tell larger evidence apart.
_MAX_LOG = 709.0


def _evidence_chart(history: MonitorHistory) -> Markup:
    """Draw the evidence of each test by batch, as powers of ten, with the limit."""
    limit = math.log10(history.status.limit)
    lines = {
        "direct": [period.calibration_evidence for period in history.periods],
        "repaired": [period.input_evidence for period in history.periods],
    }
    if history.status.act_evidence is not None:
        lines["lift"] = [period.act_evidence or 0.0 for period in history.periods]
    heights = {kind: [_height(value) for value in line] for kind, line in lines.items()}
    values = [value for line in heights.values() for value in line]
    y = Axis.around("evidence, powers of ten", [*values, limit, -1.0])
    drawing = Drawing(_batch_axis(history.periods), y, width=560)
    drawing.line((drawing.x.low, limit), (drawing.x.high, limit), "diagonal")
    names = {"direct": "confidence", "repaired": "inputs", "lift": "acted rows"}
    for kind, line in heights.items():
        drawing.path(list(enumerate(line, start=1)), f"line {kind}")
        for number, (period, height) in enumerate(zip(history.periods, line, strict=True), start=1):
            tip = f"{period.name}, {names[kind]}: {_factor_text(lines[kind][number - 1])}"
            drawing.point(number, height, f"{kind} small", tip)
    return drawing.markup("Evidence by batch, on a scale of powers of ten")


def _height(evidence: float) -> float:
    """Return where evidence is drawn: its power of ten."""
    return min(evidence, _MAX_LOG) / math.log(10.0)


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
    # Without the suffix of a file name.
    names = tuple(PurePath(period.name).stem for period in periods)
    return Axis("batch", 0.5, max(len(periods), 1) + 0.5, names=names)


def _next_steps(history: MonitorHistory, source: str | None) -> list[tuple[str, str]]:
    """Return what to do next, and the command for it."""
    state = shlex.quote(source or "state.monitor")
    status = history.status
    tests = {alarm.test for alarm in status.alarms}
    label = f"cordcal monitor label {state} LABELS --id-column ID"
    steps = []
    if "calibration" in tests:
        steps.append(
            (
                "Calibrate again with recent labelled rows, and begin a new monitor",
                "cordcal fit RECENT --output NEW_MODEL",
            )
        )
    if "inputs" in tests and "calibration" not in tests:
        steps.append(("Get labels for some of the new rows", label))
    if status.alarms:
        steps.append(
            (
                "If the alarm is explained, start the tests again",
                f"cordcal monitor acknowledge {state}",
            )
        )
        if "inputs" in tests:
            steps.append(
                (
                    "If the changed inputs are the new state",
                    f"cordcal monitor acknowledge {state} --baseline newest",
                )
            )
    elif status.waiting:
        steps.append(("Add labels when they arrive", label))
    steps.append(("Add the next batch", f"cordcal monitor add {state} NEW_FILE"))
    return steps


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
