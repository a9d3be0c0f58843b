"""Effects of CORD on each metric, with joint intervals, and the part that clipping has in them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from cordcal_study.cells import Plan, Request
from cordcal_study.chapters import MAIN, Chapter, Entry, Part, Table, change, number, text
from cordcal_study.data import CLEAN
from cordcal_study.repairs import CORDS, DIRECT, FLOORS, STABILISED
from cordcal_study.statistics import FEW, Effect, effects
from cordcal_study.tidy import Row, means, over_splits, reductions

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


def paired_requests(plan: Plan) -> list[Request]:
    """Request what the main experiment requests, without the original outputs."""
    return list(plan.requests(plan.all_bases(), (DIRECT, STABILISED, CORDS)))


def paired_chapter(plan: Plan, rows: Sequence[Row]) -> Chapter:
    """Return the chapter of paired effects."""
    conditions = over_splits(rows)
    reduced = reductions(conditions, base=DIRECT, repair=CORDS)
    all_effects = effects(_with_stabilised(rows), tuple(_SHOWN), plan.study.resample)
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
        tables=(_effects(all_effects), _by_unit(all_effects), _by_tpcr(conditions, reduced)),
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


def _effects(all_effects: Sequence[Effect]) -> Table:
    rows = []
    for group, group_effects in _by_group(all_effects).items():
        first = next(iter(group_effects.values()))
        entries = [text(group), text(f"{first.n_conditions} ({first.n_units})")]
        entries += [(_with_interval(group_effects[measure]),) for measure in _SHOWN]
        rows.append(tuple(entries))
    return Table(
        "effects",
        "Mean paired reductions with simultaneous 95 % bootstrap intervals; positive is better. "
        "In parentheses the units that are resampled. Bold: the interval does not hold zero.",
        ("Group", "Conditions", *(name for name, _, _ in _SHOWN.values())),
        tuple(rows),
    )


def _by_unit(all_effects: Sequence[Effect]) -> Table:
    """Show each unit of the groups that have few."""
    rows = []
    for group, group_effects in _by_group(all_effects).items():
        first = next(iter(group_effects.values()))
        if first.n_units >= FEW:
            continue
        for name in first.units:
            entries = [text(group), text(name)]
            for measure, (_, scale, digits) in _SHOWN.items():
                entries.append((change(scale * group_effects[measure].units[name], digits),))
            rows.append(tuple(entries))
        entries = [text(group), text("mean, t interval", strong=True)]
        entries += [(_with_interval(group_effects[measure], student=True),) for measure in _SHOWN]
        rows.append(tuple(entries))
    return Table(
        "by-unit",
        f"Groups of fewer than {FEW} units, unit by unit: mean reductions over calibrators and "
        "splits, and below them the mean with a simultaneous t interval over the units.",
        ("Group", "Unit", *(name for name, _, _ in _SHOWN.values())),
        tuple(rows),
    )


def _by_group(all_effects: Sequence[Effect]) -> dict[str, dict[str, Effect]]:
    groups: dict[str, dict[str, Effect]] = {}
    for effect in all_effects:
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


_FLOOR_DIGITS = 5
FLOOR_MEASURES = ("nll", *FLOORS)


def floor_requests(plan: Plan) -> list[Request]:
    """Request direct, stabilised and repaired outputs, on clean rows and under shift."""
    evaluations = {
        (spec.group, spec.name): [CLEAN, *(shift.name for shift in spec.shifted)]
        for spec in plan.study.sets
    }
    repairs = (DIRECT, STABILISED, CORDS)
    return list(plan.requests(plan.all_bases(), repairs, evaluations=evaluations))


def floor_chapter(plan: Plan, rows: Sequence[Row]) -> Chapter:
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
        tables=(_floor_table(plan, rows),),
        data={"data": rows},
    )


def _floor_table(plan: Plan, rows: Sequence[Row]) -> Table:
    lines: list[tuple[Entry, ...]] = []
    for place, inside in _families(plan, rows):
        whole, alone, beyond = (
            means(reductions(inside, base=base, repair=repair), "measure")
            for base, repair in ((DIRECT, CORDS), (DIRECT, STABILISED), (STABILISED, CORDS))
        )
        gains = [whole["nll",], alone["nll",], beyond["nll",], *(whole[name,] for name in FLOORS)]
        lines.append((*map(text, place), *((change(gain, _FLOOR_DIGITS),) for gain in gains)))
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
