"""The repair as an array expression, with margins that survive rounding to any dtype.

NumPy's reports are rounded first and lifted after; a trace cannot look at what it rounds
to, so here the decision is raised by enough beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cordcal._numeric.arrays import UNIT_ROUNDOFF
from cordcal._numeric.expressions import maximum
from cordcal._numeric.types import Array
from cordcal._validation.probabilities import sum_warning_level
from cordcal.repair import lift_rule, ranking, rule
from cordcal.repair.lift_rule import SMALLEST, Curve, Mode
from cordcal.repair.ranking import RankedRows
from cordcal.repair.rule import Split

# Where numbers of full precision begin.
_SMALLEST_NORMAL = {
    "float64": 2.0**-1022,
    "float32": 2.0**-126,
    "float16": 2.0**-14,
    "bfloat16": 2.0**-126,
}


def repair(
    original: Array, direct: Array, decision: Array, etas: Sequence[float], dtype: str, *, xp: Any
) -> Array:
    """Return the repaired report in float64, the decision strictly on top once rounded.

    With more than one scalar the first ranks are kept in order as well.
    """

    def row_sum(rows: Array) -> Array:
        return xp.sum(rows, axis=1)

    level = sum_warning_level(dtype, direct.shape[1])
    if len(etas) > 1:
        order = ranking.kept_order(original, decision, xp=xp)
        rows = ranking.rank_rows(original, direct, order, len(etas), xp=xp, row_sum=row_sum)
        repaired = ranking.repair_rows(direct, rows, etas, level, xp=xp)
        return strictly_ordered(repaired, rows, len(etas), dtype, xp=xp)
    (eta,) = etas
    moved = xp.argmax(direct, axis=1) != decision
    state, part = rule.row_state(original, direct, decision, moved, xp=xp, row_sum=row_sum)
    repaired = rule.repair_rows(direct, state, part, eta, level, xp=xp)
    return strictly_top(repaired, decision, dtype, xp=xp)


def lift(direct: Array, decision: Array, curve: Curve, mode: Mode, dtype: str, *, xp: Any) -> Array:
    """Return the report of a Lift in float64, the decision strictly on top once rounded."""

    def row_sum(rows: Array) -> Array:
        return xp.sum(rows, axis=1)

    part = rule.split(direct, decision, xp=xp, row_sum=row_sum)
    mass, rest = lift_rule.confidence(curve, *rule.normalised(part), xp=xp)
    inside, left, low, _ = rule.clip_to_interval(mass, rest, rule.lower_of(part), xp=xp)
    raised = strictly_top(
        rule.rebuild(direct, decision, part, inside, left, xp=xp), decision, dtype, xp=xp
    )
    if mode == "raise":
        return raised
    capped = capped_rows(direct, decision, part, mass, dtype, xp=xp)
    return xp.where(low[:, None], capped, raised)


def capped_rows(
    direct: Array, decision: Array, part: Split, mass: Array, dtype: str, *, xp: Any
) -> Array:
    """Return rows with the other classes safely below the mass; see `_lift_rule.cap_row`."""
    # Twice the least: the margin below takes a gap of the dtype more than the next number.
    unit = 2.0 * UNIT_ROUNDOFF[dtype]
    least = lift_rule.min_mass(direct.shape[1], dtype) + unit / direct.shape[1]
    mass = maximum(mass * 1.0, least, xp)
    # No factor near one: onnxruntime takes that for one, and drops it.
    below = mass - mass * (unit * (1.0 + 2.0 * unit)) - 1.25 * SMALLEST[dtype]
    others = rule.rebuild(direct, decision, part, 0.0 * mass, 1.0 - mass, xp=xp)
    water_filled = lift_rule.water_fill(others, below, 1.0 - mass, xp=xp)
    return xp.where(rule.chosen_entries(direct, decision, xp=xp), mass[:, None], water_filled)


def strictly_top(repaired: Array, decision: Array, dtype: str, *, xp: Any) -> Array:
    """Raise the decision until rounding to ``dtype`` cannot tie it with a rival."""
    chosen = rule.chosen_entries(repaired, decision, xp=xp)
    zeros = xp.zeros_like(repaired)
    rival = xp.max(xp.where(chosen, zeros, repaired), axis=1)
    mass = xp.max(xp.where(chosen, repaired, zeros), axis=1)
    mass = safely_above(mass, rival, dtype, xp)
    return xp.where(chosen, mass[:, None], repaired)


def strictly_ordered(
    repaired: Array, rows: RankedRows, levels: int, dtype: str, *, xp: Any
) -> Array:
    """Raise the kept ranks until rounding to ``dtype`` cannot tie them.

    Half precision has no room for that: only the first rank is strict there, and rounding
    may tie the others but not invert them.
    """
    strict = ranking.strict_dtype(dtype)
    below = rows.rank >= levels
    zeros = xp.zeros_like(repaired)
    ranked = xp.take_along_axis(repaired, rows.order[:, :levels], axis=1)
    bound = xp.max(xp.where(below, repaired, zeros), axis=1)
    lifted: list[Array] = []
    for level in range(levels - 1, -1, -1):
        mass = maximum(ranked[:, level], bound, xp)
        if strict or level == 0:
            mass = safely_above(mass, bound, dtype, xp)
            # A chain of subnormal numbers would be flushed to zero by many a device.
            mass = maximum(mass, _SMALLEST_NORMAL[dtype], xp)
        lifted.insert(0, mass)
        bound = mass
    head = xp.stack(lifted, axis=1)
    position = xp.where(below, xp.zeros_like(rows.rank), rows.rank)
    return xp.where(below, repaired, xp.take_along_axis(head, position, axis=1))


def safely_above(mass: Array, rival: Array, dtype: str, xp: Any) -> Array:
    """Return ``mass``, or a little more, such that it rounds to a larger number than ``rival``.

    Two numbers further apart than the gap of the larger one's binade round apart, and
    that gap is at most 2u times the larger.  The margin is applied before the rounding,
    because compilers and graph optimisers may drop a rounding in the middle.
    """
    # The factor 1 + 4u pays for "larger" and for a first rounding to float32 on the way.
    unit = UNIT_ROUNDOFF[dtype]
    apart = rival + rival * (2.0 * unit * (1.0 + 4.0 * unit))  # onnxruntime drops factors near one
    return maximum(maximum(mass, apart, xp), rival + 1.25 * SMALLEST[dtype], xp)
