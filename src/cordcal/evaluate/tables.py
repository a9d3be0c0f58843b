"""The table of a comparison, as records and data frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cordcal._errors import InputError
from cordcal.evaluate.statistics import ORIGINAL, Output, percentile_interval
from cordcal.metrics import METRICS, DecisionChanges
from cordcal.metrics.registry import leading_metrics
from cordcal.report.tables import Part, Table

if TYPE_CHECKING:
    from cordcal.evaluate.comparison import Comparison


def outputs_of(comparison: Comparison) -> Iterator[tuple[Output, DecisionChanges | None]]:
    """Yield every output with the changes it makes, None if it keeps every prediction.

    A calibrator that needs no repair has one output.
    """
    yield ORIGINAL, None
    for entry in comparison:
        yield (entry.key, "direct"), None if entry.keeps_decisions else entry.changes
        if not entry.keeps_decisions:
            yield (entry.key, "repaired"), None
        if entry.lift is not None:
            yield (entry.key, "lift"), None


def frame_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Return one mapping per output: its metrics, their intervals, and its changes."""
    rows = []
    for (key, report), changes in outputs_of(comparison):
        row: dict[str, Any] = {"calibrator": key, "report": report}
        for measure, value in comparison.measures(key, report).items():
            row[measure] = value
            interval = _interval(comparison, (key, report), measure)
            if interval is not None:
                row[f"{measure}_low"], row[f"{measure}_high"] = interval
        for name in ("tpcr", "gained", "lost", "neutral"):
            row[name] = 0.0 if changes is None else getattr(changes, name)
        rows.append(row)
    return rows


def table_of(comparison: Comparison, measures: Sequence[str] | None, intervals: bool) -> Table:
    """Return the comparison as a table, the best prediction-preserving values in bold."""
    shown = _check_measures(comparison, measures)
    headings = (METRICS[name].axis for name in shown)
    header = ("Calibrator", "Output", "Predictions changed (%)", *headings)
    best = {name: (record.key, record.report) for name, record in comparison.best.items()}
    rows = []
    for output, changes in outputs_of(comparison):
        cells = [Part(f"{0.0 if changes is None else 100.0 * changes.tpcr:.2f}")]
        for name in shown:
            write = METRICS[name].write
            text = write(comparison.measures(*output)[name])
            interval = _interval(comparison, output, name) if intervals else None
            if interval is not None:
                text = f"{text} [{', '.join(map(write, interval))}]"
            cells.append(Part(text, strong=best.get(name) == output))
        rows.append(tuple((cell,) for cell in (*map(Part, output), *cells)))
    caption = (
        f"{comparison.n_evaluation:,} evaluation rows, {comparison.n_classes} classes"
        f"{'; 95 % bootstrap intervals' if intervals else ''}. Bold: the best that changes no "
        "prediction."
    )
    return Table("comparison", caption, header, tuple(rows))


def _check_measures(comparison: Comparison, measures: Sequence[str] | None) -> Sequence[str]:
    known = list(comparison.uncalibrated)
    if measures is None:
        return ["accuracy", *leading_metrics()]
    names = [measures] if isinstance(measures, str) else list(measures)
    for name in names:
        if name not in known:
            raise InputError("measures", f"has {name!r}", f"use some of {', '.join(known)}")
    return names


def _interval(comparison: Comparison, output: Output, measure: str) -> tuple[float, float] | None:
    """Return the 95 % interval of a metric; None if it is not resampled."""
    drawn = comparison.replicates(*output, measure)
    if drawn is None:
        return None
    # Resamples repeat rows, which inflates binned errors.  Without this shift by the bias, an ECE
    # would lie below its own interval.
    value = comparison.measures(*output)[measure]
    low, high = map(float, percentile_interval(drawn - drawn.mean() + value))
    # The shifted interval must stay in the metric's range: no accuracy above one, and no negative
    # value of a non-negative metric.
    low = max(low, 0.0) if drawn.min() >= 0.0 else low
    return low, min(high, max(float(drawn.max()), value))
