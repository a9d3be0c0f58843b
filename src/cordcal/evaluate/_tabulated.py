"""A comparison as a data frame, and as a table for a paper or a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cordcal._door.errors import Refusal
from cordcal.evaluate.bootstrap import percentile_interval
from cordcal.evaluate.evidence import ORIGINAL, Report
from cordcal.evaluate.tables import Part, Table
from cordcal.metrics import MEASURES, DecisionChanges
from cordcal.metrics._registry import leading

if TYPE_CHECKING:
    from cordcal.evaluate.comparison import Comparison


def reports_of(comparison: Comparison) -> Iterator[tuple[Report, DecisionChanges | None]]:
    """Yield every report with the changes it makes, None for those that keep decisions.

    A map that keeps decisions by itself has one report.
    """
    yield ORIGINAL, None
    for entry in comparison:
        yield (entry.key, "direct"), None if entry.keeps_decisions else entry.changes
        if not entry.keeps_decisions:
            yield (entry.key, "repaired"), None
        if entry.lift is not None:
            yield (entry.key, "lift"), None


def frame_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Return one mapping a report: its measures, their intervals, and what it changes."""
    rows = []
    for (key, report), changes in reports_of(comparison):
        row: dict[str, Any] = {"calibrator": key, "report": report}
        for measure, value in comparison.measures(key, report).items():
            row[measure] = value
            ends = _ends(comparison, key, report, measure)
            if ends is not None:
                row[f"{measure}_low"], row[f"{measure}_high"] = ends
        for name in ("tpcr", "gained", "lost", "neutral"):
            row[name] = 0.0 if changes is None else getattr(changes, name)
        rows.append(row)
    return rows


def table_of(comparison: Comparison, measures: Sequence[str] | None, intervals: bool) -> Table:
    """Return the comparison as a table; in bold the best of the reports that keep decisions."""
    chosen = _checked(comparison, measures)
    header = ["Calibrator", "Report", "TPCR (%)", *(MEASURES[name].axis for name in chosen)]
    best = {name: (found.key, found.report) for name, found in comparison.best.items()}
    rows = []
    for (key, report), changes in reports_of(comparison):
        cells = [Part(f"{0.0 if changes is None else 100.0 * changes.tpcr:.2f}")]
        for name in chosen:
            write = MEASURES[name].write
            shown = write(comparison.measures(key, report)[name])
            ends = _ends(comparison, key, report, name) if intervals else None
            if ends is not None:
                shown = f"{shown} [{', '.join(map(write, ends))}]"
            cells.append(Part(shown, strong=best.get(name) == (key, report)))
        rows.append(((Part(key),), (Part(report),), *((cell,) for cell in cells)))
    caption = (
        f"{comparison.n_evaluation:,} evaluation rows, {comparison.n_classes} classes"
        f"{'; 95 % bootstrap intervals' if intervals else ''}. TPCR: decisions changed. Bold: the "
        "best report that keeps every decision."
    )
    return Table("comparison", caption, tuple(header), tuple(rows))


def _checked(comparison: Comparison, measures: Sequence[str] | None) -> Sequence[str]:
    known = list(comparison.uncalibrated)
    if measures is None:
        return ["accuracy", *leading()]
    names = [measures] if isinstance(measures, str) else list(measures)
    for name in names:
        if name not in known:
            raise Refusal("measures", f"has {name!r}", f"use some of {', '.join(known)}")
    return names


def _ends(
    comparison: Comparison, key: str, report: str, measure: str
) -> tuple[float, float] | None:
    """Return the ends of a measure's interval; None where it is not resampled."""
    drawn = comparison.replicates(key, report, measure)
    if drawn is None:
        return None
    # Binned errors of resamples are larger than the sample's, whose rows they draw twice: the
    # replicates are moved by that bias, or an ECE would lie below its own interval.
    value = comparison.measures(key, report)[measure]
    low, high = map(float, percentile_interval(drawn - drawn.mean() + value))
    # Moved, an interval must not leave the measure's range: no accuracy above one, and nothing
    # below zero that never is.
    low = max(low, 0.0) if drawn.min() >= 0.0 else low
    return low, min(high, max(float(drawn.max()), value))
