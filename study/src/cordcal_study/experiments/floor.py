"""Clipping: how much of each NLL gain comes from the repair, how much from stabilisation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cordcal_study.cells import Request
from cordcal_study.chapters import Chapter, Entry, Table, change, text
from cordcal_study.data import CLEAN
from cordcal_study.plan import Plan
from cordcal_study.repairs import CORDS, DIRECT, FLOORS, STABILISED
from cordcal_study.tidy import Row, means, over_splits, reductions

_DIGITS = 5
MEASURES = ("nll", *FLOORS)


def requests(plan: Plan) -> list[Request]:
    """Request direct, stabilised and repaired outputs, on clean rows and under shift."""
    evaluations = {
        (spec.group, spec.name): [CLEAN, *(each.name for each in spec.shifted)]
        for spec in plan.study.sets
    }
    repairs = (DIRECT, STABILISED, CORDS)
    return list(plan.requests(plan.all_bases(), repairs, evaluations=evaluations))


def chapter(plan: Plan, rows: Sequence[Row]) -> Chapter:
    """Return the chapter on what is left of NLL gains if zeros are replaced in both outputs."""
    rows = over_splits(rows)
    return Chapter(
        key="floor",
        title="How clipping affects NLL",
        paragraphs=(
            "Isotonic calibrators give exact zeros. A true class with probability zero has an "
            "infinite loss, which is clipped: at 1e-12 to 27.6 nats, at 1e-6 to 13.8. CORD mixes "
            "rows with a zero with 1e-10 of the uniform distribution before it repairs them, so "
            "part of its NLL gain comes from that and not from the repair. The paper does not "
            "state where it clips.",
        ),
        tables=(_table(plan, rows),),
        data={"data": rows},
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
        "itself does. Last: direct minus repaired, clipped elsewhere.",
        (
            "Group",
            "Rows",
            "ΔNLL",
            "stabilised alone",
            "both stabilised",
            *(f"clipped at {floor:g}" for floor in FLOORS.values()),
        ),
        tuple(lines),
    )


def _families(plan: Plan, rows: Sequence[Row]) -> Iterator[tuple[tuple[str, str], list[Row]]]:
    for group in plan.study.groups:
        inside = [row for row in rows if row.group == group]
        for evaluation in dict.fromkeys(row.evaluation for row in inside):
            yield (group, evaluation), [row for row in inside if row.evaluation == evaluation]
