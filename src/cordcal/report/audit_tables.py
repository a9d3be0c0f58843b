"""The tables of an audit: metrics before and after the repair, and changes by group."""

from __future__ import annotations

from collections.abc import Sequence

from cordcal.metrics import METRICS
from cordcal.report.columns import CHANGE_KINDS
from cordcal.report.data import GroupChanges, MeasureComparison
from cordcal.report.tables import Part, Table


def measures_table(measures: Sequence[MeasureComparison], level: float, caption: str) -> Table:
    """Return every metric of the original, direct and repaired probabilities.

    Parameters
    ----------
    measures : sequence of MeasureComparison
        The metrics.
    level : float
        Level of the intervals.
    caption : str
        Text below the table.
    """
    rows = []
    for values in measures:
        metric = METRICS[values.measure]
        interval = "–"
        if values.low is not None and values.high is not None:
            low, high = (metric.write(end, signed=True) for end in (values.low, values.high))
            interval = f"[{low}, {high}]"
        outputs = (values.original, values.direct, values.repaired)
        change = metric.write(values.difference, signed=True)
        rows.append(_row(metric.axis, *map(metric.write, outputs), change, interval))
    header = ("metric", "original", "direct", "repaired", "repaired − direct")
    return Table("metrics", caption, (*header, f"{level:.0%} interval"), tuple(rows))


def changes_table(heading: str, groups: Sequence[GroupChanges]) -> Table:
    """Return how many predictions change in each group, and with labels of which kind.

    Parameters
    ----------
    heading : str
        What the groups are, such as ``"original prediction"``.
    groups : sequence of GroupChanges
        The groups.
    """
    labelled = groups[0].changes.delta_accuracy is not None
    kinds = CHANGE_KINDS if labelled else ()
    rows = []
    for group in groups:
        changes = group.changes
        total, changed = f"{changes.n:,}", f"{changes.n_changed:,}"
        counts = [f"{getattr(changes, f'n_{kind}'):,}" for kind, _, _ in kinds]
        rows.append(_row(group.group, changed, f"{100 * changes.tpcr:.2f}", total, *counts))
    header = (heading, "changed", "changed, %", "rows", *(sign for _, sign, _ in kinds))
    caption = ", ".join(f"{sign}: {words}" for _, sign, words in kinds)
    return Table("changes", caption, header, tuple(rows))


def _row(*cells: str) -> tuple[tuple[Part, ...], ...]:
    return tuple((Part(cell),) for cell in cells)
