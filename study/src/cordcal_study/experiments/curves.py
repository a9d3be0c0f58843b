"""Curves: fewer calibration rows, and evaluation rows under shift."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cordcal_study.cells import Plan, Request, SetKey
from cordcal_study.chapters import (
    MAIN,
    Chapter,
    Figure,
    Table,
    number,
    shown_as,
    text,
)
from cordcal_study.data import CLEAN
from cordcal_study.experiments.effects import REDUCTIONS
from cordcal_study.repairs import CORDS, DIRECT
from cordcal_study.tidy import Row, mean_interval, means, reductions

_MEASURES = ("tpcr", *MAIN)
_INTERVALS = (
    "Lines are means over the sets and calibrators, bands pointwise 95 % intervals over splits."
)
Place = Callable[[Row], float]
"""Where on the horizontal axis a row belongs."""


def size_requests(plan: Plan) -> list[Request]:
    """Request every base of the chosen groups, fitted on nested subsets."""
    study = plan.study
    groups = study.groups if study.size_groups is None else study.size_groups
    keys = {
        (spec.group, spec.name): [
            key
            for key in plan.bases(spec)
            if study.size_calibrators is None or key in study.size_calibrators
        ]
        for spec in study.sets
        if spec.group in groups
    }
    return list(plan.requests(keys, (DIRECT, CORDS), fractions=study.fractions))


def size_chapter(plan: Plan, rows: Sequence[Row]) -> Chapter:
    """Return the chapter on calibration size."""
    families = {
        group: [row for row in rows if row.group == group]
        for group in dict.fromkeys(row.group for row in rows)
    }

    def place(row: Row) -> float:
        return 100.0 * row.fraction

    limits = plan.study.size_calibrators
    which = "" if limits is None else f" Calibrators: {', '.join(limits)}."
    return _chapter(
        "size",
        "Calibration size",
        "At each fraction the calibrators and CORD are fitted again on nested subsets of the "
        f"calibration rows; the evaluation rows stay the same.{which}",
        families,
        place,
        "calibration rows used (%)",
        rows,
    )


def shift_requests(plan: Plan) -> list[Request]:
    """Request every base of the sets with shifted files: fitted clean, evaluated shifted."""
    evaluations: dict[SetKey, list[str]] = {
        (spec.group, spec.name): [CLEAN, *(shift.name for shift in spec.shifted)]
        for spec in plan.study.sets
        if spec.shifted
    }
    return list(plan.requests(plan.all_bases(), (DIRECT, CORDS), evaluations=evaluations))


def shift_chapter(plan: Plan, rows: Sequence[Row]) -> Chapter:
    """Return the chapter on shift."""
    known = {shift.name: shift for spec in plan.study.sets for shift in spec.shifted}
    kinds = list(dict.fromkeys(shift.kind for shift in known.values()))
    severities = {
        kind: {shift.severity for shift in known.values() if shift.kind == kind} for kind in kinds
    }
    # Kinds are averaged where each has every severity; else a step would mix kinds.
    balanced = len(kinds) > 1 and len({frozenset(levels) for levels in severities.values()}) == 1
    families: dict[str, list[Row]] = {}
    for group in dict.fromkeys(row.group for row in rows):
        # Each kind has its own curve as well; their mean hides which of them gains.
        for kind in [*([None] if balanced else []), *kinds]:
            inside = [
                row
                for row in rows
                if row.group == group
                and (row.evaluation == CLEAN or kind in (None, known[row.evaluation].kind))
            ]
            families[group if kind is None else f"{group}, {kind}"] = inside

    def place(row: Row) -> float:
        return 0.0 if row.evaluation == CLEAN else float(known[row.evaluation].severity)

    return _chapter(
        "shift",
        "Shift",
        "Calibrators and CORD are fitted on clean calibration rows and then fixed; the evaluation "
        "rows are the same rows under a shift (severity 0 is clean). Shifts: "
        f"{', '.join(known) or 'none in this study'}.",
        families,
        place,
        "severity",
        rows,
    )


def _chapter(
    key: str,
    title: str,
    words: str,
    families: Mapping[str, Sequence[Row]],
    place: Place,
    label: str,
    rows: Sequence[Row],
) -> Chapter:
    absolute: list[dict[str, Any]] = []
    paired: list[dict[str, Any]] = []
    lines = []
    for name, inside in families.items():
        places = sorted({place(row) for row in inside})
        reduced = reductions(inside, base=DIRECT, repair=CORDS)
        values: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
        for measure in _MEASURES:
            for repair in (DIRECT, CORDS):
                chosen = [row for row in inside if (row.measure, row.repair) == (measure, repair)]
                values[measure, repair] = _curve(chosen, place, places)
            chosen = [row for row in reduced if row.measure == measure]
            values[measure, "reduction"] = _curve(chosen, place, places)
        absolute += [_absolute(name, places, measure, values) for measure in _MEASURES]
        paired.append(_line(name, places, "predictions changed (%)", values["tpcr", DIRECT], 100.0))
        for measure in MAIN:
            heading, scale, _ = REDUCTIONS[measure]
            paired.append(_line(name, places, heading, values[measure, "reduction"], scale))
        for index, x in enumerate(places):
            entries = [text(name), text(f"{x:g}")]
            entries.append((number(100 * values["tpcr", DIRECT][index][0], 2),))
            for measure in MAIN:
                shown = shown_as(measure)
                entries.append(
                    tuple(
                        number(shown.scale * values[measure, repair][index][0], shown.digits)
                        for repair in (DIRECT, CORDS)
                    )
                )
            lines.append(tuple(entries))
    table = Table(
        key,
        "Means over sets, calibrators and splits. Metrics: direct / repaired.",
        (
            "Group",
            label,
            "Predictions changed, direct (%)",
            *(shown_as(measure).name for measure in MAIN),
        ),
        tuple(lines),
    )
    columns = len(_MEASURES)
    figures = (
        Figure(
            f"{key}-paired",
            "curves",
            f"Predictions changed by the direct outputs, and reductions by CORD. {_INTERVALS}",
            {"label": label, "panels": paired, "columns": columns},
        ),
        Figure(
            f"{key}-absolute",
            "curves",
            f"The metrics themselves, direct and repaired. {_INTERVALS}",
            {"label": label, "panels": absolute, "columns": columns},
        ),
    )
    return Chapter(key, title, (words,), (table,), figures if lines else (), {"data": rows})


def _curve(
    rows: Sequence[Row], place: Place, places: Sequence[float]
) -> list[tuple[float, float, float]]:
    """Return mean and interval at each place: conditions averaged within splits first."""
    at: dict[float, list[Row]] = {x: [] for x in places}
    for row in rows:
        at[place(row)].append(row)
    return [mean_interval(list(means(at[x], "seed").values())) for x in places]


def _line(
    title: str,
    places: Sequence[float],
    heading: str,
    values: Sequence[tuple[float, float, float]],
    scale: float,
) -> dict[str, Any]:
    return {
        "title": title,
        "x": list(places),
        "y": heading,
        "lines": {"reduction": _band(values, scale)},
    }


def _absolute(
    title: str,
    places: Sequence[float],
    measure: str,
    values: Mapping[tuple[str, str], Sequence[tuple[float, float, float]]],
) -> dict[str, Any]:
    shown = shown_as(measure)
    return {
        "title": title,
        "x": list(places),
        "y": shown.name,
        "lines": {
            "direct": _band(values[measure, DIRECT], shown.scale),
            "repaired": _band(values[measure, CORDS], shown.scale),
        },
    }


def _band(values: Sequence[tuple[float, float, float]], scale: float) -> dict[str, list[float]]:
    return {
        name: [scale * value[index] for value in values]
        for index, name in enumerate(("mean", "low", "high"))
    }
