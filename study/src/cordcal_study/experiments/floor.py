"""The floor: how much of each NLL gain is the repair's, and how much its stabilisation's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cordcal_study.cells import Cell, Fit, Request
from cordcal_study.chapters import Chapter, Entry, Table, change, text
from cordcal_study.data import CLEAN
from cordcal_study.plan import Plan
from cordcal_study.repairs import CORDS, DIRECT, FLOORS, STABILISED
from cordcal_study.tidy import Row, means, over_splits, reductions, tidy_rows

_DIGITS = 5
_MEASURES = ("nll", *FLOORS)


def requests(plan: Plan) -> list[Request]:
    """Ask for direct, stabilised and repaired reports, on clean rows and under shift."""
    evaluations = {
        (spec.group, spec.name): [CLEAN, *(each.name for each in spec.shifted)]
        for spec in plan.study.sets
    }
    repairs = (DIRECT, STABILISED, CORDS)
    return list(plan.requests(plan.all_bases(), repairs, evaluations=evaluations))


def chapter(plan: Plan, asked: Sequence[Request], cells: Mapping[Fit, Cell]) -> Chapter:
    """Tell what of the NLL gains is left when exact zeros are lifted in both reports."""
    rows = over_splits(tidy_rows(asked, cells, _MEASURES))
    return Chapter(
        key="floor",
        title="What the floor makes of NLL",
        paragraphs=(
            "Isotonic maps report exact zeros, and one true class at zero costs as much as the "
            "floor says: 27.6 at 1e-12, 13.8 at 1e-6. CORD mixes rows that hold a zero with "
            "1e-10 of uniform mass before it repairs them, so part of its NLL gain is that "
            "lift and not the repair. The floor itself is inferred: the paper prints none.",
        ),
        tables=(_table(plan, rows),),
        rows=rows,
    )


def _table(plan: Plan, rows: Sequence[Row]) -> Table:
    lines: list[tuple[Entry, ...]] = []
    for place, inside in _families(plan, rows):
        whole, alone, beyond = (
            means(reductions(inside, base=base, repair=repair), "measure")
            for base, repair in ((DIRECT, CORDS), (DIRECT, STABILISED), (STABILISED, CORDS))
        )
        gains = [whole["nll",], alone["nll",], beyond["nll",], *(whole[name,] for name in FLOORS)]
        lines.append((*map(text, place), *((change(gain, _DIGITS),) for gain in gains)))
    return Table(
        "floor",
        "Mean NLL reductions over conditions and splits. Stabilised alone: direct minus "
        "stabilised, no repair. Both stabilised: stabilised minus repaired, what the repair "
        "itself does. Last: direct minus repaired with other floors.",
        (
            "Group",
            "Rows",
            "ΔNLL",
            "stabilised alone",
            "both stabilised",
            *(f"floor {floor:g}" for floor in FLOORS.values()),
        ),
        tuple(lines),
    )


def _families(plan: Plan, rows: Sequence[Row]) -> Iterator[tuple[tuple[str, str], list[Row]]]:
    for group in plan.study.groups:
        inside = [row for row in rows if row.group == group]
        for evaluation in dict.fromkeys(row.evaluation for row in inside):
            yield (group, evaluation), [row for row in inside if row.evaluation == evaluation]
