"""Main: direct against repaired on every set, all metrics; Figures 1 and 2, and diagrams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cordcal.metrics import METRICS
from cordcal_study.cells import UNCALIBRATED, Plan, Request
from cordcal_study.chapters import (
    MAIN,
    Chapter,
    Entry,
    Figure,
    Table,
    change,
    number,
    shown_as,
    table_name,
    text,
)
from cordcal_study.repairs import CORDS, DIRECT
from cordcal_study.tidy import (
    Bin,
    Row,
    mean_interval,
    means,
    over_splits,
)

_CHANGES = ("gained", "lost", "neutral")
Values = Mapping[tuple[Any, ...], float]


def requests(plan: Plan) -> list[Request]:
    """Request the direct and the repaired output of every base, and the original ones."""
    return [*plan.uncalibrated(), *plan.requests(plan.all_bases(), (DIRECT, CORDS))]


def chapter(plan: Plan, rows: Sequence[Row]) -> Chapter:
    """Return the chapter of the main experiment."""
    conditions = means(over_splits(rows), "group", "set", "calibrator", "repair", "measure")
    groups = means(over_splits(rows), "group", "calibrator", "repair", "measure")
    tables = [_summary(plan, groups)]
    figures = [_changes(plan, groups), _tradeoff(plan, groups)]
    for index, group in enumerate(plan.study.groups):
        tables.append(_complete(plan, group, conditions, f"complete-{index + 1}"))
        figures.append(_diagrams(group, f"reliability-{index + 1}"))
    return Chapter(
        key="main",
        title="Direct against repaired",
        paragraphs=(
            "Every calibrator is fitted on the calibration half and evaluated on the other half "
            "(or on the given evaluation file): once as it is (Base, the direct output) and once "
            "repaired by CORD. The share of predictions changed (TPCR) is that of the rows whose "
            "prediction differs from the classifier's own; it is zero for every repaired output by "
            "construction, and measured here.",
        ),
        tables=tuple(tables),
        figures=tuple(figures),
        data={"data": rows},
    )


def with_diagrams(chapter: Chapter, plan: Plan, bins: Sequence[Bin]) -> Chapter:
    """Return the chapter with its reliability diagrams drawn from their bins."""
    rows = [row for row in chapter.data["data"] if isinstance(row, Row)]
    errors = means(
        over_splits([row for row in rows if row.measure == "ece"]),
        "group",
        "set",
        "calibrator",
        "repair",
    )
    groups = {f"reliability-{index + 1}": group for index, group in enumerate(plan.study.groups)}
    figures = tuple(
        replace(figure, data=_grid(plan, groups[figure.name], bins, errors))
        if figure.name in groups
        else figure
        for figure in chapter.figures
    )
    return replace(chapter, figures=figures, data={**chapter.data, "diagrams": bins})


def bases_of(plan: Plan, group: str) -> list[str]:
    """Return the bases that ran on at least one set of a group, in the study's order."""
    ran = [key for spec in plan.study.in_group(group) for key in plan.bases(spec)]
    order = dict.fromkeys((*plan.study.calibrators, *ran))
    return [key for key in order if key in ran]


def _summary(plan: Plan, groups: Values) -> Table:
    rows: list[tuple[Entry, ...]] = []
    for group in plan.study.groups:
        for key in bases_of(plan, group):
            if (group, key, DIRECT, "ece") not in groups:
                continue
            entries = [text(group), text(table_name(key))]
            tpcr = [groups[group, key, output, "tpcr"] for output in (DIRECT, CORDS)]
            entries.append(tuple(number(100 * value, 2) for value in tpcr))
            gained, lost = (groups[group, key, DIRECT, name] for name in _CHANGES[:2])
            entries.append((number(100 * (gained - lost), 2, signed=True),))
            for measure in MAIN:
                shown = shown_as(measure)
                before, after = (groups[group, key, output, measure] for output in (DIRECT, CORDS))
                entries.append(
                    (
                        number(shown.scale * before, shown.digits),
                        change(shown.scale * (before - after), shown.digits),
                    )
                )
            rows.append(tuple(entries))
    return Table(
        "summary",
        "Means over the sets of each group and their splits, the numbers behind Figure 2. "
        "Predictions changed: direct / repaired. Metrics: direct / reduction by CORD; positive is "
        "better (▼).",
        (
            "Group",
            "Calibrator",
            "Predictions changed (%)",
            "ΔAcc (pp)",
            *(shown_as(name).name for name in MAIN),
        ),
        tuple(rows),
    )


def _complete(plan: Plan, group: str, values: Values, name: str) -> Table:
    keys = bases_of(plan, group)
    header = ["Classifier", "Measure", "Uncal."]
    for key in keys:
        header += [table_name(key), "+ CORD"]
    rows = []
    for spec in plan.study.in_group(group):
        place = (group, spec.name)
        for measure in dict.fromkeys(("accuracy", "tpcr", *MAIN, *METRICS)):
            shown = shown_as(measure)
            original = values.get((*place, UNCALIBRATED, DIRECT, measure))
            if original is None:  # registered since the cells were computed
                continue
            entries = [text(spec.name), text(shown.name)]
            entries.append((number(shown.scale * original, shown.digits),))
            for key in keys:
                before = values.get((*place, key, DIRECT, measure))
                after = values.get((*place, key, CORDS, measure))
                entries += _pair(measure, before, after, original)
            rows.append(tuple(entries))
    return Table(
        name,
        f"Complete results, {group}. Uncal.: absolute values. Within each pair, Acc. is the "
        f"change from Uncal. in percentage points, predictions changed are absolute, and every "
        f"other metric is the direct value and its reduction by CORD; positive is better (▼).",
        tuple(header),
        tuple(rows),
    )


def _pair(measure: str, before: float | None, after: float | None, original: float) -> list[Entry]:
    if before is None or after is None:
        return [text("–"), text("–")]
    shown = shown_as(measure)
    if measure == "accuracy":
        return [
            (number(shown.scale * (value - original), shown.digits, signed=True),)
            for value in (before, after)
        ]
    if measure == "tpcr":
        return [(number(shown.scale * value, shown.digits),) for value in (before, after)]
    better = 1.0 if METRICS[measure].lower_is_better else -1.0
    reduction = change(better * shown.scale * (before - after), shown.digits)
    return [(number(shown.scale * before, shown.digits),), (reduction,)]


def _changes(plan: Plan, groups: Values) -> Figure:
    panels = []
    for group in plan.study.groups:
        keys = [key for key in bases_of(plan, group) if (group, key, DIRECT, "tpcr") in groups]
        bars = {name: [100 * groups[group, key, DIRECT, name] for key in keys] for name in _CHANGES}
        panels.append({"title": group, "labels": [table_name(key) for key in keys], **bars})
    return Figure(
        "figure-1",
        "changes",
        "Accuracy hides how many predictions change. Shares of rows whose prediction the direct "
        "output turns from wrong to right (C⁺), from right to wrong (C⁻) and from wrong to wrong "
        "(C⁰), in percent of the evaluated rows; the diamond is the change in accuracy.",
        {"panels": panels},
    )


def _tradeoff(plan: Plan, groups: Values) -> Figure:
    panels = []
    for group in plan.study.groups:
        for measure in MAIN:
            shown = shown_as(measure)
            points = [
                {
                    "label": table_name(key),
                    "tpcr": 100 * groups[group, key, DIRECT, "tpcr"],
                    "direct": shown.scale * groups[group, key, DIRECT, measure],
                    "repaired": shown.scale * groups[group, key, CORDS, measure],
                }
                for key in bases_of(plan, group)
                if (group, key, DIRECT, measure) in groups
            ]
            panels.append(
                {
                    "title": group,
                    "measure": shown.name,
                    "points": points,
                    "original": shown.scale * groups[group, UNCALIBRATED, DIRECT, measure],
                }
            )
    return Figure(
        "figure-2",
        "tradeoff",
        "ECE, NLL and Brier against the share of predictions changed (TPCR). Dashed lines join "
        "each direct output to its repair, and the grey band marks TPCR = 0; means over the sets "
        "of a group and their splits. The cross is the uncalibrated classifier.",
        {"panels": panels, "columns": len(MAIN)},
    )


def _diagrams(group: str, name: str) -> Figure:
    return Figure(
        name,
        "reliability",
        f"Reliability diagrams, {group}: accuracy against confidence, direct and repaired, "
        f"averaged over splits with pointwise 95 % intervals over them. In parentheses ECE in "
        f"percent, direct → repaired.",
        None,
    )


def _grid(plan: Plan, group: str, bins: Iterable[Bin], errors: Values) -> dict[str, Any]:
    keys = [UNCALIBRATED, *bases_of(plan, group)]
    inside: dict[tuple[str, str, str], dict[int, list[Bin]]] = {}
    for row in bins:
        if row.group == group:
            splits = inside.setdefault((row.set, row.calibrator, row.repair), {})
            splits.setdefault(row.seed, []).append(row)
    panels: list[list[dict[str, Any] | None]] = []
    for spec in plan.study.in_group(group):
        line: list[dict[str, Any] | None] = []
        for key in keys:
            if (spec.name, key, DIRECT) not in inside:
                line.append(None)
                continue
            outputs = [DIRECT] if key == UNCALIBRATED else [DIRECT, CORDS]
            shown = [f"{100 * errors[group, spec.name, key, output]:.2f}" for output in outputs]
            line.append(
                {
                    "title": f"{table_name(key)} ({' → '.join(shown)})",
                    "curves": {
                        output: averaged_diagram(list(inside[spec.name, key, output].values()))
                        for output in outputs
                    },
                }
            )
        panels.append(line)
    return {"rows": [spec.name for spec in plan.study.in_group(group)], "panels": panels}


def averaged_diagram(splits: Sequence[Sequence[Bin]]) -> dict[str, list[float]]:
    """Average diagrams bin by bin over the splits whose bin contains rows.

    Examples
    --------
    >>> empty = Bin("g", "s", "vs", 0, "cord", 0, 0, 0.0, 0.0)
    >>> averaged_diagram([[empty, empty._replace(bin=1, rows=4, accuracy=0.5, confidence=0.8)]])
    {'confidence': [0.8], 'accuracy': [0.5], 'low': [0.5], 'high': [0.5]}
    """
    curve: dict[str, list[float]] = {"confidence": [], "accuracy": [], "low": [], "high": []}
    for bins in zip(*splits, strict=True):
        filled = [row for row in bins if row.rows]
        if not filled:
            continue
        mean, low, high = mean_interval([row.accuracy for row in filled])
        confidence, _, _ = mean_interval([row.confidence for row in filled])
        for name, value in (
            ("confidence", confidence),
            ("accuracy", mean),
            ("low", max(0.0, low)),
            ("high", min(1.0, high)),
        ):
            curve[name].append(value)
    return curve
