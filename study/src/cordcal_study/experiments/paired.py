"""Paired effects: what CORD takes off each measure, with intervals that hold jointly."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cordcal_study.cells import Cell, Fit, Request
from cordcal_study.chapters import COMPARED, MAIN, Chapter, Part, Table, change, number, text
from cordcal_study.plan import Plan
from cordcal_study.repairs import CORDS, DIRECT, STABILISED
from cordcal_study.statistics import FEW, Effect, effects
from cordcal_study.tidy import Row, over_splits, reductions, tidy_rows

# How reductions are printed: the paper's units.
REDUCTIONS = {
    "ece": ("ΔECE (pp)", 100.0, 3),
    "nll": ("ΔNLL", 1.0, 4),
    "brier": ("ΔBrier (×10⁻³)", 1000.0, 3),
}
# Shares of changed decisions that tell conditions apart; the last is open.
_TPCR_STEPS = (0.0, 0.005, 0.02, 0.05, 0.1, math.inf)


# NLL with both reports stabilised: what is left when exact zeros are lifted in both.
BEYOND = "nll_beyond"
_TOLD = {**REDUCTIONS, BEYOND: ("ΔNLL, both stabilised", 1.0, 4)}


def requests(plan: Plan) -> list[Request]:
    """Ask for what the main experiment asks for, without the original reports."""
    return list(plan.requests(plan.all_bases(), (DIRECT, STABILISED, CORDS)))


def chapter(plan: Plan, asked: Sequence[Request], cells: Mapping[Fit, Cell]) -> Chapter:
    """Tell the paired effects."""
    rows = tidy_rows(asked, cells, COMPARED)
    conditions = over_splits(rows)
    reduced = reductions(conditions, base=DIRECT, repair=CORDS)
    found = effects(_told(rows), tuple(_TOLD), plan.study.resample)
    return Chapter(
        key="paired",
        title="Paired effects",
        paragraphs=(
            "The reduction of a measure is its value for the direct report minus its value for "
            "the repaired one. CORD first lifts exact zeros off the floor of the NLL, which "
            "helps isotonic maps without any repair; the last column therefore compares "
            "stabilised direct reports with repaired ones, and is the one to rest on.",
            f"Intervals resample {plan.study.resample} within a group, and splits within each; "
            "they hold jointly at 95 % (Bonferroni over groups × measures). Of fewer than "
            f"{FEW} {plan.study.resample} a bootstrap is too narrow: below, each one's value and "
            "a t interval.",
        ),
        tables=(_effects(found), _by_unit(found), _by_tpcr(conditions, reduced)),
        rows=rows,
    )


def _told(rows: Sequence[Row]) -> list[Row]:
    """Return the reductions of every split, with NLL's beyond stabilisation among them."""
    plain = reductions(rows, base=DIRECT, repair=CORDS)
    beyond = [
        row._replace(measure=BEYOND)
        for row in reductions(rows, base=STABILISED, repair=CORDS)
        if row.measure == "nll"
    ]
    return [*plain, *beyond]


def _effects(found: Sequence[Effect]) -> Table:
    rows = []
    for group, here in _by_group(found).items():
        first = next(iter(here.values()))
        entries = [text(group), text(f"{first.n_conditions} ({first.n_units})")]
        entries += [(_with_interval(here[measure]),) for measure in _TOLD]
        rows.append(tuple(entries))
    return Table(
        "effects",
        "Mean paired reductions with simultaneous 95 % bootstrap intervals; positive is better. "
        "In parentheses the units that are resampled. Bold: the interval does not hold zero.",
        ("Group", "Conditions", *(name for name, _, _ in _TOLD.values())),
        tuple(rows),
    )


def _by_unit(found: Sequence[Effect]) -> Table:
    """Show each unit of the groups that have few."""
    rows = []
    for group, here in _by_group(found).items():
        first = next(iter(here.values()))
        if first.n_units >= FEW:
            continue
        for name in first.units:
            entries = [text(group), text(name)]
            for measure, (_, scale, digits) in _TOLD.items():
                entries.append((change(scale * here[measure].units[name], digits),))
            rows.append(tuple(entries))
        entries = [text(group), text("mean, t interval", strong=True)]
        entries += [(_with_interval(here[measure], student=True),) for measure in _TOLD]
        rows.append(tuple(entries))
    return Table(
        "by-unit",
        f"Groups of fewer than {FEW} units, unit by unit: mean reductions over calibrators and "
        "splits, and below them the mean with a simultaneous t interval over the units.",
        ("Group", "Unit", *(name for name, _, _ in _TOLD.values())),
        tuple(rows),
    )


def _by_group(found: Sequence[Effect]) -> dict[str, dict[str, Effect]]:
    groups: dict[str, dict[str, Effect]] = {}
    for effect in found:
        groups.setdefault(effect.group, {})[effect.measure] = effect
    return groups


def _with_interval(effect: Effect, *, student: bool = False) -> Part:
    _, scale, digits = _TOLD[effect.measure]
    low, high = (effect.t_low, effect.t_high) if student else (effect.low, effect.high)
    mean = change(scale * effect.mean, digits, strong=low > 0 or high < 0)
    ends = (
        "–"
        if math.isnan(low)
        else ", ".join(number(scale * bound, digits).text for bound in (low, high))
    )
    return replace(mean, text=f"{mean.text} [{ends}]")


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
