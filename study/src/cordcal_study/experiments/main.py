"""Main: direct against repaired on every set, all measures; Figures 1 and 2, and diagrams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cordcal.metrics import METRICS
from cordcal_study.cells import UNCALIBRATED, Cell, Fit, Request
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
from cordcal_study.plan import Plan
from cordcal_study.repairs import CORDS, DIRECT
from cordcal_study.tidy import (
    Bins,
    diagrams,
    mean_interval,
    means,
    over_splits,
    tidy_rows,
)

_CHANGES = ("gained", "lost", "neutral")
Values = Mapping[tuple[Any, ...], float]


def requests(plan: Plan) -> list[Request]:
    """Ask for the direct and the repaired report of every base, and for the original ones."""
    return [*plan.uncalibrated(), *plan.requests(plan.all_bases(), (DIRECT, CORDS))]


def chapter(plan: Plan, asked: Sequence[Request], cells: Mapping[Fit, Cell]) -> Chapter:
    """Tell the main experiment."""
    rows = tidy_rows(asked, cells)
    conditions = means(over_splits(rows), "group", "set", "calibrator", "repair", "measure")
    groups = means(over_splits(rows), "group", "calibrator", "repair", "measure")
    tables = [_summary(plan, groups)]
    figures = [_changes(plan, groups), _tradeoff(plan, groups)]
    bins = diagrams(asked, cells)
    for index, group in enumerate(plan.study.groups):
        tables.append(_complete(plan, group, conditions, f"complete-{index + 1}"))
        figures.append(_grid(plan, group, bins, conditions, f"reliability-{index + 1}"))
    return Chapter(
        key="main",
        title="Direct against repaired",
        paragraphs=(
            "Every calibrator is fitted on the calibration half and evaluated on the other half "
            "(or on the given evaluation file): once as it is (Base, the direct report) and once "
            "repaired by CORD. TPCR is the share of decisions that differ from the classifier's "
            "own; it is zero for every repaired report by construction, and measured here.",
        ),
        tables=tuple(tables),
        figures=tuple(figures),
        rows=rows,
    )


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
            tpcr = [groups[group, key, report, "tpcr"] for report in (DIRECT, CORDS)]
            entries.append(tuple(number(100 * value, 2) for value in tpcr))
            gained, lost = (groups[group, key, DIRECT, name] for name in _CHANGES[:2])
            entries.append((number(100 * (gained - lost), 2, signed=True),))
            for measure in MAIN:
                shown = shown_as(measure)
                before, after = (groups[group, key, report, measure] for report in (DIRECT, CORDS))
                entries.append(
                    (
                        number(shown.scale * before, shown.digits),
                        change(shown.scale * (before - after), shown.digits),
                    )
                )
            rows.append(tuple(entries))
    return Table(
        "summary",
        "Means over the sets of each group and their splits, the numbers behind Figure 2. TPCR: "
        "direct / repaired. Measures: direct / reduction by CORD; positive is better (▼).",
        ("Group", "Calibrator", "TPCR (%)", "ΔAcc (pp)", *(shown_as(name).name for name in MAIN)),
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
        f"Complete results, {group}. Uncal. reports absolute values. Within each pair, Acc. is "
        f"the change from Uncal. in percentage points, TPCR is absolute, and every other measure "
        f"is the direct value and its reduction by CORD; positive is better (▼).",
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
        "Accuracy hides how many decisions change. Shares of rows whose decision the direct "
        "report turns from wrong to right (C⁺), from right to wrong (C⁻) and from wrong to wrong "
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
        "ECE, NLL and Brier against TPCR. Dashed lines join each direct report to its repair, "
        "and the grey band marks TPCR = 0; means over the sets of a group and their splits. The "
        "cross is the uncalibrated classifier.",
        {"panels": panels, "columns": len(MAIN)},
    )


def _grid(plan: Plan, group: str, bins: Iterable[Bins], values: Values, name: str) -> Figure:
    keys = [UNCALIBRATED, *bases_of(plan, group)]
    found: dict[tuple[str, str, str], list[Bins]] = {}
    for each in bins:
        if each.group == group:
            found.setdefault((each.set, each.calibrator, each.repair), []).append(each)
    panels: list[list[dict[str, Any] | None]] = []
    for spec in plan.study.in_group(group):
        line: list[dict[str, Any] | None] = []
        for key in keys:
            if (spec.name, key, DIRECT) not in found:
                line.append(None)
                continue
            reports = [DIRECT] if key == UNCALIBRATED else [DIRECT, CORDS]
            errors = [f"{100 * values[group, spec.name, key, each, 'ece']:.2f}" for each in reports]
            line.append(
                {
                    "title": f"{table_name(key)} ({' → '.join(errors)})",
                    "curves": {
                        each: averaged_diagram([part.bins for part in found[spec.name, key, each]])
                        for each in reports
                    },
                }
            )
        panels.append(line)
    return Figure(
        name,
        "reliability",
        f"Reliability diagrams, {group}: accuracy against confidence, direct and repaired, "
        f"averaged over splits with pointwise 95 % intervals over them. In parentheses ECE in "
        f"percent, direct → repaired.",
        {"rows": [spec.name for spec in plan.study.in_group(group)], "panels": panels},
    )


def averaged_diagram(splits: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, list[float]]:
    """Average diagrams bin by bin over the splits whose bin holds rows.

    Examples
    --------
    >>> one = {"count": [0, 4], "confidence": [0.0, 0.8], "accuracy": [0.0, 0.5]}
    >>> averaged_diagram([one, one])
    {'confidence': [0.8], 'accuracy': [0.5], 'low': [0.5], 'high': [0.5]}
    """
    curve: dict[str, list[float]] = {"confidence": [], "accuracy": [], "low": [], "high": []}
    for place in range(len(splits[0]["count"])):
        filled = [split for split in splits if split["count"][place]]
        if not filled:
            continue
        mean, low, high = mean_interval([split["accuracy"][place] for split in filled])
        confidence, _, _ = mean_interval([split["confidence"][place] for split in filled])
        for name, value in (
            ("confidence", confidence),
            ("accuracy", mean),
            ("low", max(0.0, low)),
            ("high", min(1.0, high)),
        ):
            curve[name].append(value)
    return curve
