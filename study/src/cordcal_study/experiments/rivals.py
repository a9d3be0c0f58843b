"""Rivals: calibrators that keep predictions by construction, against the best repaired base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cordcal_study.cells import UNCALIBRATED, Plan, Request
from cordcal_study.chapters import (
    Chapter,
    Entry,
    Part,
    Table,
    change,
    number,
    shown_as,
    table_name,
    text,
)
from cordcal_study.experiments.main import bases_of
from cordcal_study.repairs import CORDS, DIRECT
from cordcal_study.tidy import Row, means, over_splits

_ERRORS = ("ece", "ece_equal_mass", "smooth_ece")
_SCORES = ("ece", "nll", "brier")
MEASURES = (*_ERRORS, *_SCORES, "tpcr", "accuracy")
Values = Mapping[tuple[Any, ...], float]

_MARKS = (
    "Bold: the lowest value among those that changed no prediction here. ▼ and ▲: CORD "
    "lowers or raises the value of its Base†."
)


def requests(plan: Plan) -> list[Request]:
    """Request the original outputs, those of the rivals, and every base direct and repaired."""
    groups = plan.study.rival_groups or plan.study.groups
    sets = [spec for spec in plan.study.sets if spec.group in groups]
    rivals = {(spec.group, spec.name): [UNCALIBRATED, *plan.rivals(spec)] for spec in sets}
    bases = {(spec.group, spec.name): plan.bases(spec) for spec in sets}
    return [*plan.requests(rivals, (DIRECT,)), *plan.requests(bases, (DIRECT, CORDS))]


def chapter(plan: Plan, rows: Sequence[Row]) -> Chapter:
    """Return the chapter on rivals."""
    values = means(over_splits(rows), "group", "set", "calibrator", "repair", "measure")
    tables = []
    for index, group in enumerate(plan.study.groups):
        if not any(key[0] == group for key in values):
            continue
        tables += [
            _chosen(plan, group, values, _ERRORS, f"rivals-{index + 1}", per_measure=True),
            _chosen(plan, group, values, _SCORES, f"rivals-scores-{index + 1}", per_measure=False),
            _complete(plan, group, values, f"rivals-bases-{index + 1}"),
        ]
    return Chapter(
        key="rivals",
        title="Calibrators that keep predictions by construction",
        paragraphs=(
            "Base† is the base with the lowest direct value for the classifier. It is chosen by "
            "its value on the evaluation rows themselves: that is optimistic, for Base† and for "
            "Base† + CORD alike, and not something that can be done in use. The rivals are not "
            "chosen: each has its own column.",
        ),
        tables=tuple(tables),
        data={"data": rows},
    )


def _chosen(
    plan: Plan, group: str, values: Values, measures: Sequence[str], name: str, *, per_measure: bool
) -> Table:
    there = {key for _, _, key, _, _ in values}
    keys = [key for key in (UNCALIBRATED, *plan.study.rivals) if key in there]
    lines: list[tuple[Entry, ...]] = []
    for spec in plan.study.in_group(group):
        place = (group, spec.name)
        bases = [key for key in bases_of(plan, group) if (*place, key, DIRECT, "ece") in values]
        if not bases:
            continue
        best = {
            measure: _best(values, place, bases, measure if per_measure else "ece")
            for measure in measures
        }
        shown = {
            key: [values[*place, key, DIRECT, measure] for measure in measures]
            for key in keys
            if (*place, key, DIRECT, "ece") in values
        }
        base = [values[*place, best[measure], DIRECT, measure] for measure in measures]
        repaired = [values[*place, best[measure], CORDS, measure] for measure in measures]
        preserving = {
            key: line for key, line in shown.items() if values[*place, key, DIRECT, "tpcr"] == 0.0
        }
        lowest = [
            min(line[index] for line in (repaired, *preserving.values()))
            for index in range(len(measures))
        ]
        entries = [text(spec.name)]
        for key in keys:
            bold = lowest if key in preserving else [None] * len(measures)
            entries.append(_entry(measures, shown.get(key), bold))
        chosen = dict.fromkeys(table_name(best[measure]) for measure in measures)
        entries.append(text(" / ".join(chosen)))
        entries.append(_entry(measures, base, [None] * len(measures)))
        entries.append(
            tuple(
                Part(part.text, part.strong, _mark(measure, before, after))
                for part, measure, before, after in zip(
                    _entry(measures, repaired, lowest), measures, base, repaired, strict=True
                )
            )
        )
        lines.append(tuple(entries))
    titles = " / ".join(shown_as(measure).name for measure in measures)
    rule = "for each metric by its own direct value" if per_measure else "by its direct ECE"
    return Table(
        name,
        f"{group}: {titles}. Base† is chosen {rule} on the evaluation rows. {_MARKS}",
        ("Classifier", *(table_name(key) for key in keys), "Base†", "direct", "+ CORD"),
        tuple(lines),
    )


def _best(values: Values, place: tuple[str, str], bases: Sequence[str], measure: str) -> str:
    return min(bases, key=lambda key: values[*place, key, DIRECT, measure])


def _entry(
    measures: Sequence[str], values: Sequence[float] | None, lowest: Sequence[float | None]
) -> Entry:
    if values is None:
        return text("–")
    parts = []
    for measure, value, least in zip(measures, values, lowest, strict=True):
        shown = shown_as(measure)
        same = least is not None and value <= least
        parts.append(number(shown.scale * value, shown.digits, strong=same))
    return tuple(parts)


def _mark(measure: str, before: float, after: float) -> Any:
    shown = shown_as(measure)
    return change(shown.scale * (before - after), shown.digits).mark


def _complete(plan: Plan, group: str, values: Values, name: str) -> Table:
    keys = bases_of(plan, group)
    header = ["Classifier", "Measure"]
    for key in keys:
        header += [table_name(key), "+ CORD"]
    lines: list[tuple[Entry, ...]] = []
    for spec in plan.study.in_group(group):
        place = (group, spec.name)
        bases = [key for key in keys if (*place, key, DIRECT, "ece") in values]
        if not bases:
            continue
        for measure in _ERRORS:
            shown = shown_as(measure)
            best = _best(values, place, bases, measure)
            entries = [text(spec.name), text(shown.name)]
            for key in keys:
                if key not in bases:
                    entries += [text("–"), text("–")]
                    continue
                before, after = (values[*place, key, output, measure] for output in (DIRECT, CORDS))
                entries.append((number(shown.scale * before, shown.digits, strong=key == best),))
                part = number(shown.scale * after, shown.digits, strong=key == best)
                entries.append((Part(part.text, part.strong, _mark(measure, before, after)),))
            lines.append(tuple(entries))
    return Table(
        name,
        f"{group}: every base, direct and repaired, in percent. Bold: Base† of the metric.",
        tuple(header),
        tuple(lines),
    )
