"""Paired effects: what CORD takes off each measure, with intervals that hold jointly."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cordcal.evaluate.statistics import simultaneous_intervals
from cordcal.study.cells import Cell, Fit, Request
from cordcal.study.chapters import COMPARED, MAIN, Chapter, Table, change, number, text
from cordcal.study.plan import Plan
from cordcal.study.repairs import CORDS, DIRECT
from cordcal.study.tidy import Row, means, over_splits, reductions, tidy_rows

# How reductions are printed: the paper's units.
REDUCTIONS = {
    "ece": ("ΔECE (pp)", 100.0, 3),
    "nll": ("ΔNLL", 1.0, 4),
    "brier": ("ΔBrier (×10⁻³)", 1000.0, 3),
}
# Shares of changed decisions that tell conditions apart; the last is open.
_TPCR_STEPS = (0.0, 0.005, 0.02, 0.05, 0.1, math.inf)


def requests(plan: Plan) -> list[Request]:
    """Ask for what the main experiment asks for, without the original reports."""
    return list(plan.requests(plan.all_bases(), (DIRECT, CORDS)))


def chapter(plan: Plan, asked: Sequence[Request], cells: Mapping[Fit, Cell]) -> Chapter:
    """Tell the paired effects."""
    rows = tidy_rows(asked, cells, COMPARED)
    conditions = over_splits(rows)
    reduced = reductions(conditions, base=DIRECT, repair=CORDS)
    return Chapter(
        key="paired",
        title="Paired effects",
        paragraphs=(
            "The reduction of a measure is its value for the direct report minus its value for "
            "the repaired one, averaged over the splits of a condition (set × calibrator). "
            "Intervals resample conditions within a group and hold jointly at 95 % (Bonferroni "
            "over groups × measures).",
        ),
        tables=(_effects(reduced), _by_tpcr(conditions, reduced)),
        rows=rows,
    )


def _effects(reduced: Sequence[Row]) -> Table:
    values = means(reduced, "group", "set", "calibrator", "measure")
    places = list(dict.fromkeys(key[:3] for key in values))
    differences = {measure: [values[*place, measure] for place in places] for measure in MAIN}
    effects = simultaneous_intervals(differences, [group for group, _, _ in places])
    found = {(effect.group, effect.measure): effect for effect in effects}
    rows = []
    for group in dict.fromkeys(effect.group for effect in effects):
        entries = [text(group), text(str(found[group, "ece"].n))]
        for measure in MAIN:
            _, scale, digits = REDUCTIONS[measure]
            effect = found[group, measure]
            low, high = (number(scale * bound, digits).text for bound in (effect.low, effect.high))
            clear = effect.low > 0 or effect.high < 0
            mean = change(scale * effect.mean, digits, strong=clear)
            entries.append((replace(mean, text=f"{mean.text} [{low}, {high}]"),))
        rows.append(tuple(entries))
    return Table(
        "effects",
        "Mean paired reductions with simultaneous 95 % bootstrap intervals; positive is better. "
        "Bold: the interval does not hold zero.",
        ("Group", "Conditions", *(REDUCTIONS[name][0] for name in MAIN)),
        tuple(rows),
    )


def _by_tpcr(conditions: Sequence[Row], reduced: Sequence[Row]) -> Table:
    changed = {
        (row.group, row.set, row.calibrator): row.value
        for row in conditions
        if row.measure == "tpcr" and row.repair == DIRECT
    }
    rows = []
    for low, high in itertools.pairwise(_TPCR_STEPS):
        inside = {place for place, value in changed.items() if low <= value < high}
        name = f"{100 * low:g} – {100 * high:g}" if high < math.inf else f"{100 * low:g} and more"
        entries = [text(name), text(str(len(inside)))]
        for measure in MAIN:
            _, scale, digits = REDUCTIONS[measure]
            values = [
                row.value
                for row in reduced
                if row.measure == measure and (row.group, row.set, row.calibrator) in inside
            ]
            if not values:
                entries += [text("–"), text("–")]
                continue
            mean = math.fsum(values) / len(values)
            share = sum(value > 0 for value in values) / len(values)
            entries += [(change(scale * mean, digits),), (number(100 * share, 0),)]
        rows.append(tuple(entries))
    header = ["TPCR of the direct report (%)", "Conditions"]
    for measure in MAIN:
        header += [REDUCTIONS[measure][0], "lower (%)"]
    return Table(
        "by-tpcr",
        "Do gains grow with the share of changed decisions? Mean reductions over all conditions, "
        "by the direct report's TPCR, and the share of conditions in which CORD lowers the "
        "measure.",
        tuple(header),
        tuple(rows),
    )
