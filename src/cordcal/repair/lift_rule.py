"""The row rule of Lift, written against the array API as ``rule.py`` is for CORD.

A map of three numbers turns the direct mass b on the decision into a confidence s; the
rest of the row is then shared out as the direct report does (``raise``), or so that no
other class reaches s (``cap``).  ``mass`` and ``rest`` are s and 1 − s, carried apart.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from cordcal._numeric.arrays import UNIT_ROUNDOFF, dtype_name, namespace
from cordcal._numeric.types import Array
from cordcal.repair.rule import (
    EPSILON,
    RowState,
    Split,
    chosen_entries,
    raise_decision,
    rebuild,
    tiny_tail,
)

Mode = Literal["raise", "cap"]

# The gap between zero and the next number of each dtype, where a relative step vanishes.
SMALLEST = {
    "float64": 2.0**-1074,
    "float32": 2.0**-149,
    "float16": 2.0**-24,
    "bfloat16": 2.0**-133,
}


class Curve(NamedTuple):
    """The three numbers of s = σ(α·log b − β·log(1 − b) + γ); the first two at least zero."""

    alpha: float
    beta: float
    gamma: float


IDENTITY = Curve(1.0, 1.0, 0.0)
"""The curve that leaves the direct mass as it is."""


def confidence(curve: Curve, mass: Array, rest: Array, *, xp: Any = None) -> tuple[Array, Array]:
    """Return s and 1 − s of the curve for masses b and their complements, before any bound."""
    xp = namespace(mass) if xp is None else xp
    z = curve.alpha * xp.log(mass) - curve.beta * xp.log(rest) + curve.gamma
    up = z < 0.0
    # Powers of negative numbers only: neither side can overflow or lose the smaller one.
    small = xp.exp(xp.where(up, z, -1.0 * z))
    one = xp.ones_like(z)
    large, less = one / (1.0 + small), small / (1.0 + small)
    return xp.where(up, less, large), xp.where(up, large, less)


def into_interval(
    mass: Array, rest: Array, lower: Array, *, xp: Any = None
) -> tuple[Array, Array, Array, Array]:
    """Move s into the interval of Eq. (4); return s, 1 − s and which rows met either end."""
    xp = namespace(mass) if xp is None else xp
    low, high = mass < lower, rest < EPSILON
    one = xp.ones_like(mass)
    mass = xp.where(low, lower, xp.where(high, one * (1.0 - EPSILON), mass))
    rest = xp.where(low, 1.0 - lower, xp.where(high, one * EPSILON, rest))
    return mass, rest, low, high


def min_mass(classes: int, dtype: Any) -> float:
    """Return the smallest confidence to cap at: K − 1 classes just below it can hold the rest.

    With u the unit roundoff, s and K − 1 times the number below it add up to one from
    (1 + 2u)/K on; the factor 6 pays for rounding s itself, the summand for subnormal numbers.
    """
    name = dtype_name(dtype)
    return (1.0 + 6.0 * UNIT_ROUNDOFF[name]) / classes + 2.0 * SMALLEST[name]


def water_fill(others: Array, cap: Array, total: Array, *, xp: Any = None) -> Array:
    """Return ``min(c·others, cap)`` of each row, with c such that the row adds up to ``total``.

    With the j largest entries at the cap, the rest of them leaves c_j = (total − j·cap)/tail_j.
    No c_j is larger than the true one, since min is below either argument; so the largest is c.
    """
    xp = namespace(others) if xp is None else xp
    # Entries too small to divide by count as the smallest that is not; none shows in a report.
    tiny, _ = tiny_tail(others, xp=xp)
    zeros = xp.zeros_like(others)
    others = xp.where((others > 0.0) & (others < tiny), zeros + tiny, others)
    ordered = xp.take_along_axis(others, xp.argsort(others, axis=1), axis=1)
    # Column i adds up the i + 1 smallest entries; the first is the decision's own, a zero.
    tails = xp.cumulative_sum(ordered, axis=1)
    count = others.shape[1]
    capped = xp.arange(count - 1, -1, -1, dtype=others.dtype, device=others.device)
    left = total[:, None] - capped[None, :] * cap[:, None]
    some = tails > 0.0
    levels = xp.where(some & (left > 0.0), left, zeros) / xp.where(some, tails, zeros + 1.0)
    water_filled = others * xp.max(levels, axis=1, keepdims=True)
    return xp.where(water_filled > cap[:, None], zeros + cap[:, None], water_filled)


def keep_decision(
    direct: Array, state: RowState, part: Split, mass: Array, rest: Array, dtype: Any, mode: Mode
) -> Array:
    """Return rows in ``dtype`` with s on the decision, which is strictly on top of each."""
    xp = namespace(direct)
    inside = into_interval(mass, rest, state.lower)
    report = rebuild(direct, state.decision, part, *inside[:2])
    report = raise_decision(xp.astype(report, dtype), state.decision)
    low = inside[2]
    if mode == "raise" or not bool(xp.any(low)):
        return report
    capped = cap_row(direct, state.decision, part, mass, rest, dtype)
    return xp.where(low[:, None], capped, report)


def cap_row(
    direct: Array, decision: Array, part: Split, mass: Array, rest: Array, dtype: Any
) -> Array:
    """Return rows in ``dtype`` with s on the decision and every other class just below it.

    Where even that leaves no room for the rest, s is raised just enough.
    """
    xp = namespace(direct)
    least = min_mass(direct.shape[1], dtype)
    infeasible = mass < least
    served = xp.astype(xp.where(infeasible, xp.ones_like(mass) * least, mass), dtype)
    wide = xp.astype(served, direct.dtype)
    others = rebuild(direct, decision, part, xp.zeros_like(mass), 1.0 - wide)
    below = xp.astype(just_below(served), direct.dtype)
    water_filled = xp.astype(water_fill(others, below, 1.0 - wide), dtype)
    return xp.where(chosen_entries(direct, decision, xp=xp), served[:, None], water_filled)


def just_below(values: Array) -> Array:
    """Return the representable number below each positive entry."""
    xp = namespace(values)
    if hasattr(values, "element_size") and values.element_size() == 2:
        # torch has no nextafter for half precision; the bits of positive floats count up.
        return (values.view(xp.int16) - 1).view(values.dtype)
    return xp.nextafter(values, xp.zeros_like(values))
