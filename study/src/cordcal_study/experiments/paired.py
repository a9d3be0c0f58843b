"""Paired effects: how much CORD reduces each metric, with intervals that hold jointly."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from cordcal_study.cells import Request
from cordcal_study.chapters import MAIN, Chapter, Part, Table, change, number, text
from cordcal_study.plan import Plan
from cordcal_study.repairs import CORDS, DIRECT, STABILISED
from cordcal_study.statistics import FEW, Effect, effects
from cordcal_study.tidy import Row, over_splits, reductions

# How reductions are printed: the paper's units.
REDUCTIONS = {
    "ece": ("ΔECE (pp)", 100.0, 3),
    "nll": ("ΔNLL", 1.0, 4),
    "brier": ("ΔBrier (×10⁻³)", 1000.0, 3),
}
# Shares of predictions changed that divide conditions; the last is open.
_TPCR_STEPS = (0.0, 0.005, 0.02, 0.05, 0.1, math.inf)


# NLL with both outputs stabilised: what is left when exact zeros are replaced in both.
BEYOND = "nll_beyond"
_SHOWN = {**REDUCTIONS, BEYOND: ("ΔNLL, both stabilised", 1.0, 4)}


def requests(plan: Plan) -> list[Request]:
    """Request what the main experiment requests, without the original outputs."""
    return list(plan.requests(plan.all_bases(), (DIRECT, STABILISED, CORDS)))


def chapter(plan: Plan, rows: Sequence[Row]) -> Chapter:
    """Return the chapter of paired effects."""
    conditions = over_splits(rows)
    reduced = reductions(conditions, base=DIRECT, repair=CORDS)
    found = effects(_with_stabilised(rows), tuple(_SHOWN), plan.study.resample)
    return Chapter(
        key="paired",
        title="Paired effects",
        paragraphs=(
            "The reduction of a metric is its value for the direct output minus its value for the "
            "repaired one. CORD first replaces exact zeros, which lowers the NLL of isotonic "
            "calibrators without any repair; the last column therefore compares stabilised direct "
            "outputs with repaired ones, and is the one to rely on.",
            f"Intervals resample {plan.study.resample} within a group, and splits within each; "
            "they hold jointly at 95 % (Bonferroni over groups × metrics). With fewer than "
            f"{FEW} {plan.study.resample} a bootstrap is too narrow: see each one's value and a t "
            "interval below.",
        ),
        tables=(_effects(found), _by_unit(found), _by_tpcr(conditions, reduced)),
        data={"data": rows},
    )


def _with_stabilised(rows: Sequence[Row]) -> list[Row]:
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
        entries += [(_with_interval(here[measure]),) for measure in _SHOWN]
        rows.append(tuple(entries))
    return Table(
        "effects",
        "Mean paired reductions with simultaneous 95 % bootstrap intervals; positive is better. "
        "In parentheses the units that are resampled. Bold: the interval does not hold zero.",
        ("Group", "Conditions", *(name for name, _, _ in _SHOWN.values())),
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
            for measure, (_, scale, digits) in _SHOWN.items():
                entries.append((change(scale * here[measure].units[name], digits),))
            rows.append(tuple(entries))
        entries = [text(group), text("mean, t interval", strong=True)]
        entries += [(_with_interval(here[measure], student=True),) for measure in _SHOWN]
        rows.append(tuple(entries))
    return Table(
        "by-unit",
        f"Groups of fewer than {FEW} units, unit by unit: mean reductions over calibrators and "
        "splits, and below them the mean with a simultaneous t interval over the units.",
        ("Group", "Unit", *(name for name, _, _ in _SHOWN.values())),
        tuple(rows),
    )


def _by_group(found: Sequence[Effect]) -> dict[str, dict[str, Effect]]:
    groups: dict[str, dict[str, Effect]] = {}
    for effect in found:
        groups.setdefault(effect.group, {})[effect.measure] = effect
    return groups


def _with_interval(effect: Effect, *, student: bool = False) -> Part:
    _, scale, digits = _SHOWN[effect.measure]
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
    header = ["Predictions changed, direct (%)", "Conditions"]
    for measure in MAIN:
        header += [REDUCTIONS[measure][0], "lower (%)"]
    return Table(
        "by-tpcr",
        "Do gains grow with the share of predictions changed? Mean reductions over all conditions, "
        "by the share that the direct output changes, and the share of conditions in which CORD "
        "lowers the metric.",
        tuple(header),
        tuple(rows),
    )
