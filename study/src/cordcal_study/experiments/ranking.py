"""Rankings: keeping more than the prediction, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence

from cordcal_study.cells import Request
from cordcal_study.chapters import MAIN, Chapter, Entry, Table, number, shown_finely, text
from cordcal_study.plan import Plan
from cordcal_study.repairs import CORDS, DIRECT, PROJECTION, RANKING, RANKS
from cordcal_study.tidy import Row, means, over_splits

_REPAIRS = {
    DIRECT: "direct",
    CORDS: "CORD, k = 1",
    RANKS[2]: "CORD, k = 2",
    RANKS[5]: "CORD, k = 5",
    RANKING: "CORD, all ranks",
    PROJECTION: "KL projection, all ranks",
}
_CHANGED = {"tpcr": "prediction", "top2_changed": "top 2", "top5_changed": "top 5"}
_CHANGED["ranking_changed"] = "ranking"
MEASURES = (*_CHANGED, *MAIN)


def requests(plan: Plan) -> list[Request]:
    """Request every depth of the ranking and the projection."""
    return list(plan.requests(plan.all_bases(), tuple(_REPAIRS)))


def chapter(plan: Plan, rows: Sequence[Row]) -> Chapter:
    """Return the chapter on rankings."""
    values = means(over_splits(rows), "group", "repair", "measure")
    lines: list[tuple[Entry, ...]] = []
    for group in plan.study.groups:
        if (group, CORDS, "ece") not in values:
            continue
        for repair, name in _REPAIRS.items():
            entries = [text(group), text(name)]
            entries += [(number(100 * values[group, repair, measure], 2),) for measure in _CHANGED]
            for measure in MAIN:
                shown = shown_finely(measure)
                value = shown.scale * values[group, repair, measure]
                entries.append((number(value, shown.digits),))
            lines.append(tuple(entries))
    table = Table(
        "ranking",
        "Means over conditions and splits. The first four columns are the shares of rows, in "
        "percent, whose prediction, first two, first five or whole ranking differs from the "
        "classifier's; then the metrics.",
        ("Group", "Output", *_CHANGED.values(), *(shown_finely(name).name for name in MAIN)),
        tuple(lines),
    )
    return Chapter(
        key="ranking",
        title="Keeping more of the ranking",
        paragraphs=(
            "CORD with k > 1 keeps the first k ranks; the projection moves each row as little as "
            "its ranking allows, without looking at any mean.",
        ),
        tables=(table,),
        data={"data": rows},
    )
