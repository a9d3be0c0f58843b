"""Other repairs: minimal repair, other mean targets, other weights, and longer rankings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cordcal_study.cells import Plan, Request
from cordcal_study.chapters import (
    MAIN,
    Chapter,
    Entry,
    Figure,
    Part,
    Table,
    change,
    number,
    shown_finely,
    text,
)
from cordcal_study.experiments.effects import REDUCTIONS
from cordcal_study.repairs import (
    CORDS,
    DIRECT,
    MINIMAL,
    PROJECTION,
    RANKING,
    RANKS,
    STABLE_MINIMAL,
    TARGETS,
    weighted,
)
from cordcal_study.statistics import Test, wilcoxon_table
from cordcal_study.tidy import Row, means, over_splits, reductions

WEIGHTS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
_NAMES = {
    MINIMAL: "Minimal repair",
    STABLE_MINIMAL: "Minimal repair, stabilised",
    TARGETS["none"]: "None (independent)",
    TARGETS["reference"]: "Local-reference",
    TARGETS["projected"]: "Pointwise-projected Base",
    CORDS: "CORD",
}
_MINIMAL = (MINIMAL, STABLE_MINIMAL, CORDS)
_TESTED = (
    "Asterisks mark a significant reduction by CORD (two-sided Wilcoxon signed-rank test over "
    "conditions, Holm-adjusted over the table: * p < 0.05, ** p < 0.01, *** p < 0.001), daggers "
    "a significant increase. Bold: the lowest of the group."
)


def minimal_requests(plan: Plan) -> list[Request]:
    """Request CORD and minimal repair."""
    return list(plan.requests(plan.all_bases(), _MINIMAL))


def minimal_chapter(plan: Plan, rows: Sequence[Row]) -> Chapter:
    """Return the chapter on minimal repair."""
    return Chapter(
        key="minimal",
        title="CORD against minimal repair",
        paragraphs=(
            "Minimal repair leaves a row alone unless its prediction changed, and moves it just "
            "far enough otherwise. Both keep every prediction and the direct output's proportions "
            "among the other classes. CORD replaces exact zeros first; stabilised, minimal repair "
            "does so too, and that is the comparison of the two rules.",
        ),
        tables=(_table(plan, rows, _MINIMAL, MAIN, "minimal", "Repair", _TESTED),),
        data={"data": rows},
    )


def target_requests(plan: Plan) -> list[Request]:
    """Request CORD and the other mean targets."""
    return list(plan.requests(plan.all_bases(), (*TARGETS.values(), CORDS)))


def target_chapter(plan: Plan, rows: Sequence[Row]) -> Chapter:
    """Return the chapter on mean targets."""
    caption = (
        "|s̄ − b̄| is the distance, on evaluation rows, between the mean repaired and the mean "
        f"direct probability of the predictions, in percentage points. {_TESTED}"
    )
    table = _table(
        plan, rows, (*TARGETS.values(), CORDS), (*MAIN, "mean_gap"), "targets", "Target", caption
    )
    return Chapter(
        key="targets",
        title="The inherited mean against other targets",
        paragraphs=(
            "CORD keeps the mean probability that the direct output gives to the predictions. The "
            "variants keep no mean, the mean of the local references, or that of the probabilities "
            "projected row by row; everything else is the same.",
        ),
        tables=(table,),
        data={"data": rows},
    )


def _table(
    plan: Plan,
    rows: Sequence[Row],
    repairs: Sequence[str],
    measures: Sequence[str],
    name: str,
    heading: str,
    caption: str,
) -> Table:
    conditions = over_splits(rows)
    groups = means(conditions, "group", "repair", "measure")
    tests = _tests(conditions, [repair for repair in repairs if repair != CORDS], measures)
    lines: list[tuple[Entry, ...]] = []
    for group in plan.study.groups:
        if (group, CORDS, "ece") not in groups:
            continue
        for repair in repairs:
            entries = [text(group), text(_NAMES[repair])]
            for measure in measures:
                shown = shown_finely(measure)
                scale, digits = shown.scale, shown.digits
                lowest = min(groups[group, repair, measure] for repair in repairs)
                value = groups[group, repair, measure]
                best = f"{scale * value:.{digits}f}" == f"{scale * lowest:.{digits}f}"
                stars = _stars(tests.get((group, repair, measure)))
                entries.append((number(scale * value, digits, strong=best, stars=stars),))
            lines.append(tuple(entries))
    header = ("Group", heading, *(shown_finely(measure).name for measure in measures))
    return Table(name, f"Means over conditions and splits. {caption}", header, tuple(lines))


def _tests(
    conditions: Sequence[Row], variants: Sequence[str], measures: Sequence[str]
) -> dict[tuple[str, ...], Test]:
    """Test every variant against CORD in every group, adjusted over the whole table."""
    differences: dict[tuple[str, str, str], list[float]] = {}
    for variant in variants:
        for row in reductions(conditions, base=variant, repair=CORDS):
            if row.measure in measures:
                differences.setdefault((row.group, variant, row.measure), []).append(row.value)
    if not differences:
        return {}
    names = {f"{index}": place for index, place in enumerate(differences)}
    tests = wilcoxon_table({name: differences[place] for name, place in names.items()})
    return {names[test.cell]: test for test in tests}


def _stars(test: Test | None) -> str:
    if test is None:
        return ""
    return test.stars if test.mean > 0 else "†" * len(test.stars)


def lambda_requests(plan: Plan) -> list[Request]:
    """Request CORD with every weight."""
    repairs = (DIRECT, *(weighted(weight) for weight in WEIGHTS))
    return list(plan.requests(plan.all_bases(), repairs))


def lambda_chapter(plan: Plan, rows: Sequence[Row]) -> Chapter:
    """Return the chapter on λ."""
    conditions = over_splits(rows)
    reduced: dict[tuple[float, str], float] = {}
    for weight in WEIGHTS:
        mean_values = means(reductions(conditions, base=DIRECT, repair=weighted(weight)), "measure")
        reduced |= {(weight, measure): mean_values[measure,] for measure in MAIN}
    lines = []
    for weight in WEIGHTS:
        parts: list[Part] = []
        for measure in MAIN:
            _, scale, digits = REDUCTIONS[measure]
            parts.append(change(scale * reduced[weight, measure], digits, strong=weight == 0.5))
        entries: list[Entry] = [text(f"{weight:.1f}", strong=weight == 0.5)]
        lines.append((*entries, *((part,) for part in parts)))
    table = Table(
        "lambda",
        "Mean reductions over all conditions, splits averaged first. λ weights the direct "
        "probability in a changed row's reference; CORD takes 0.5 (bold).",
        ("λ", *(REDUCTIONS[measure][0] for measure in MAIN)),
        tuple(lines),
    )
    panels: list[dict[str, Any]] = []
    for measure in MAIN:
        name, scale, _ = REDUCTIONS[measure]
        line = [scale * reduced[weight, measure] for weight in WEIGHTS]
        panels.append(
            {"title": "", "x": list(WEIGHTS), "y": name, "lines": {"reduction": {"mean": line}}}
        )
    return Chapter(
        key="lambda",
        title="Sensitivity to λ",
        paragraphs=("Everything else is CORD; only the weight in the local reference changes.",),
        tables=(table,),
        figures=(
            Figure(
                "lambda",
                "curves",
                "Mean reductions over all conditions against λ.",
                {"label": "λ", "panels": panels, "columns": len(MAIN)},
            ),
        ),
        data={"data": rows},
    )


_RANKINGS = {
    DIRECT: "direct",
    CORDS: "CORD, k = 1",
    RANKS[2]: "CORD, k = 2",
    RANKS[5]: "CORD, k = 5",
    RANKING: "CORD, all ranks",
    PROJECTION: "KL projection, all ranks",
}
_CHANGED = {"tpcr": "prediction", "top2_changed": "top 2", "top5_changed": "top 5"}
_CHANGED["ranking_changed"] = "ranking"
RANKING_MEASURES = (*_CHANGED, *MAIN)


def ranking_requests(plan: Plan) -> list[Request]:
    """Request every depth of the ranking and the projection."""
    return list(plan.requests(plan.all_bases(), tuple(_RANKINGS)))


def ranking_chapter(plan: Plan, rows: Sequence[Row]) -> Chapter:
    """Return the chapter on rankings."""
    values = means(over_splits(rows), "group", "repair", "measure")
    lines: list[tuple[Entry, ...]] = []
    for group in plan.study.groups:
        if (group, CORDS, "ece") not in values:
            continue
        for repair, name in _RANKINGS.items():
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
