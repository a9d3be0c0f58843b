"""The row rule of CORD, written against the array API: the readable specification.

Section 3 of the paper, one function a step.  Any array library can run it; for
NumPy arrays the compiled kernel in ``kernels/`` computes the same bits.
Names ending in ``_rest`` are complements (``1 - x``) carried on their own, because
confident rows would lose them to cancellation.

What traces instead of computing (compiled torch modules, ONNX graphs) runs the same
functions: it names its namespace, since it cannot be asked, and its own row sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np

from cordcal._numeric.arrays import namespace
from cordcal._numeric.rows import lane_sum
from cordcal._numeric.types import Array

# ε_num of Eq. (4): how far inside its interval the repaired mass stays.
EPSILON = 1e-12
# Masses that come from equal entries differ by a few roundings: nearer ones are tied.
TIED = 2.0**-50
# δ_stab of Appendix A: how much uniform mass a row with an exact zero is mixed with.
DELTA = 1e-10

# A tail below this is scaled up by a power of two before it is divided by, since
# (1 - s) / tail would overflow; (1e-12 / 2^-900) is still far from the largest double.
TINY_TAIL = 2.0**-900
TINY_TAIL_SCALE = 2.0**900
# The same for libraries whose widest float is float32.
TINY_TAIL_32 = 2.0**-80
TINY_TAIL_SCALE_32 = 2.0**100


RowSum = Callable[[Array], Array]
"""Adds up each row of a matrix."""


@dataclass(frozen=True, slots=True)
class Split:
    """A distribution seen from one class: its entry there, and the tail of all other entries.

    ``tail`` is the row with zero in that place, ``top`` its largest entry and ``total`` the
    sum of both parts, as supplied.
    The copy that serves arithmetic is ``scale * entry + offset``, of which ``mass`` and
    ``rest`` are the two parts; only ratios of its entries are ever used, so it need not sum
    to one.
    """

    entry: Array
    tail: Array
    top: Array
    total: Array
    mass: Array
    rest: Array
    scale: Array
    offset: Array
    boundary: Array


@dataclass(frozen=True, slots=True)
class RowState:
    """What the shared scalar and the repair need to know of each row.

    ``reference`` and ``reference_rest`` are g and 1 − g of Eq. (5), ``lower`` the left
    end of the interval in Eq. (4), ``direct_mass`` b, ``changed`` whether the direct
    report moved the decision.
    """

    decision: Array
    direct_mass: Array
    direct_rest: Array
    reference: Array
    reference_rest: Array
    lower: Array
    changed: Array


def tiny_tail(values: Array, *, xp: Any = None) -> tuple[float, float]:
    """Return below which size a tail needs scaling in this dtype, and by how much."""
    xp = namespace(values) if xp is None else xp
    if values.dtype == xp.float32:
        return TINY_TAIL_32, TINY_TAIL_SCALE_32
    return TINY_TAIL, TINY_TAIL_SCALE


def chosen_entries(values: Array, decision: Array, *, xp: Any) -> Array:
    """Return where each row's decision is."""
    columns = xp.arange(values.shape[1], device=values.device)
    return columns[None, :] == decision[:, None]


def take_out(values: Array, decision: Array, *, xp: Any) -> tuple[Array, Array]:
    """Return each row's entry at its decision, and the row with zero in that place."""
    if xp is np:  # NumPy picks entries faster than it compares all places
        at, tail = np.arange(len(values)), values.copy()
        entry = tail[at, decision]
        tail[at, decision] = 0.0
        return entry, tail
    chosen = chosen_entries(values, decision, xp=xp)
    tail = xp.where(chosen, xp.zeros_like(values), values)
    # Exactly one entry of each row is chosen, so this sum reads it without rounding.
    return xp.sum(xp.where(chosen, values, xp.zeros_like(values)), axis=1), tail


def split(values: Array, decision: Array, *, xp: Any = None, row_sum: RowSum = lane_sum) -> Split:
    """Split each row between its decision and the rest."""
    xp = namespace(values) if xp is None else xp
    entry, tail = take_out(values, decision, xp=xp)
    mass, rest = entry, row_sum(tail)
    total = mass + rest
    boundary = xp.min(values, axis=1) == 0

    tiny, lift = tiny_tail(values, xp=xp)
    one, zero = xp.ones_like(mass), xp.zeros_like(mass)
    scale = xp.where(rest < tiny, one * lift, one)
    # The order-preserving stabilisation of Appendix A, on the normalised row.
    scale = xp.where(boundary, one * (1.0 - DELTA) / total, scale)
    offset = xp.where(boundary, zero + DELTA / values.shape[1], zero)
    mass = scale * mass + offset
    rest = scale * rest + offset * (values.shape[1] - 1)
    return Split(entry, tail, xp.max(tail, axis=1), total, mass, rest, scale, offset, boundary)


def row_state(
    original: Array,
    direct: Array,
    decision: Array,
    moved: Array,
    *,
    reference_weight: float = 0.5,
    xp: Any = None,
    row_sum: RowSum = lane_sum,
) -> tuple[RowState, Split]:
    """Compute each row's interval and local reference (Eqs. 4 and 5).

    Parameters
    ----------
    original, direct : array
        Wide copies (float64 where the library has it) of the supplied reports.
    decision : array of int
        The class to keep in each row.
    moved : array of bool
        Whether the direct report, read as supplied, decides otherwise.
    reference_weight : float
        λ of Appendix B, the weight of the direct mass in a changed row's reference.
    xp, row_sum
        The namespace and the row sum of what traces.
    """
    xp = namespace(direct) if xp is None else xp
    here = split(direct, decision, xp=xp, row_sum=row_sum)
    own = normalised(here)
    if xp is np:  # the original's masses are needed in changed rows only, and those are few
        some = np.flatnonzero(moved)
        there = split(original[some], decision[some], xp=xp, row_sum=row_sum)
        reference, reference_rest = own[0].copy(), own[1].copy()
        for mixed, b, p in zip((reference, reference_rest), own, normalised(there), strict=True):
            mixed[some] = _between(reference_weight, b[some], p)
    else:
        there = split(original, decision, xp=xp, row_sum=row_sum)
        reference, reference_rest = (
            xp.where(moved, _between(reference_weight, b, p), b)
            for b, p in zip(own, normalised(there), strict=True)
        )
    largest = here.scale * here.top + here.offset
    state = RowState(
        decision=decision,
        direct_mass=own[0],
        direct_rest=own[1],
        reference=reference,
        reference_rest=reference_rest,
        lower=largest / (largest + here.rest) + EPSILON,
        changed=moved,
    )
    return state, here


def _between(weight: float, direct: Array, original: Array) -> Array:
    return weight * direct + (1.0 - weight) * original


def normalised(part: Split) -> tuple[Array, Array]:
    """Return the mass and the rest as shares of their sum."""
    total = part.mass + part.rest
    return part.mass / total, part.rest / total


def response(
    eta: float, reference: Array, reference_rest: Array, lower: Array, *, xp: Any = None
) -> tuple[Array, Array, Array]:
    """Return the repaired mass s, its complement 1 − s, and the derivative ds/dη.

    The closed form of Appendix A, in the shape that never subtracts close numbers, with
    the complement from the mirror ``1 − H(g, η) = H(1 − g, −η)``, clipped to the interval
    of Eq. (4).
    """
    # What traces has row sums of its own, and no use for the last bit.
    root = _root if xp is None else xp.sqrt
    xp = namespace(reference) if xp is None else xp
    g, g_rest = reference, reference_rest
    if eta == 0.0:  # H(g, 0) = g, to the bit
        mass, rest = g, g_rest
        radius = xp.ones_like(g)
    else:
        # Quotients of arrays only: torch turns those with a number into products with its
        # reciprocal, which round differently.
        one = xp.ones_like(g)
        shift = eta + (g - g_rest)
        radius = root(shift * shift + 4.0 * (g * g_rest))
        mass = (
            2.0 * g / ((1.0 - eta) + radius)
            if eta <= 1.0
            else ((eta - 1.0) + radius) / (one * (2.0 * eta))
        )
        rest = (
            2.0 * g_rest / ((1.0 + eta) + radius)
            if eta >= -1.0
            else ((-eta - 1.0) + radius) / (one * (-2.0 * eta))
        )
    low, high = mass < lower, rest < EPSILON
    slope = xp.where(low | high, xp.zeros_like(mass), mass * rest / radius)
    mass = xp.where(low, lower, xp.where(high, xp.ones_like(mass) * (1.0 - EPSILON), mass))
    rest = xp.where(low, 1.0 - lower, xp.where(high, xp.ones_like(rest) * EPSILON, rest))
    return mass, rest, slope


def _root(square: Array) -> Array:
    """Return the square root, rounded to nearest also by torch.

    On CPUs torch's own is off by one unit in the last place in one of a hundred numbers, and
    each rank that is kept multiplies that into the next.
    """
    xp = namespace(square)
    root = xp.sqrt(square)
    if not array_api_compat.is_torch_namespace(xp):
        return root
    # Newton's step with the exact remainder: the root in two halves, whose products are exact.
    bits = 27 if square.dtype == xp.float64 else 12
    split = root * (2.0**bits + 1.0)
    high = split - (split - root)
    low = root - high
    remainder = ((square - high * high) - 2.0 * (high * low)) - low * low
    return root + remainder / (2.0 * root + xp.astype(root == 0.0, root.dtype))


def multiplier(mass: Array, rest: Array, reference: Array) -> Array:
    """Return h_g(s) = (s − g) / (s (1 − s)), the scalar at which the response is ``mass``."""
    return (mass - reference) / (mass * rest)


def gap(mass: Array, rest: Array, reference: Array, reference_rest: Array) -> Array:
    """Return s − g, from the complements where those are the smaller numbers."""
    xp = namespace(mass)
    return xp.where(rest < mass, reference_rest - rest, mass - reference)


def rebuild(
    direct: Array, decision: Array, part: Split, mass: Array, rest: Array, *, xp: Any = None
) -> Array:
    """Put the repaired mass on the decision, share the rest as the direct report does (Eq. 2)."""
    xp = namespace(direct) if xp is None else xp
    factor = rest / part.rest
    chosen = chosen_entries(direct, decision, xp=xp)
    # Two products: scale times factor alone would overflow for a tiny tail.
    others = (part.tail * part.scale[:, None]) * factor[:, None] + (part.offset * factor)[:, None]
    return xp.where(chosen, mass[:, None], others)


def unchanged(eta: float, part: Split, state: RowState, level: float) -> Any:
    """Return which rows come back bit for bit: η* = 0, an inner row, b inside its interval.

    ``level`` is how far from one a sum may be by rounding; other rows are normalised.
    """
    inside = (state.direct_mass >= state.lower) & (state.direct_rest >= EPSILON)
    return inside & ~part.boundary & sums_to_one(part.total, level) & (eta == 0.0)


def sums_to_one(total: Array, level: float) -> Array:
    """Return which sums are one but for rounding."""
    return (total - 1.0 <= level) & (1.0 - total <= level)


def raise_decision(rounded: Array, decision: Array) -> Array:
    """Make the decision strictly the largest entry after rounding to a narrow dtype.

    Rounding keeps order but may create a tie; the decision then takes the next
    representable number.
    """
    xp = namespace(rounded)
    chosen = chosen_entries(rounded, decision, xp=xp)
    rival = xp.max(xp.where(chosen, xp.zeros_like(rounded), rounded), axis=1)
    mass = xp.max(xp.where(chosen, rounded, xp.zeros_like(rounded)), axis=1)
    tied = mass <= rival
    if not bool(xp.any(tied)):
        return rounded
    lifted = xp.where(tied, next_above(rival), mass)
    return xp.where(chosen, lifted[:, None], rounded)


def next_above(values: Array) -> Array:
    """Return the next representable number above each non-negative entry."""
    xp = namespace(values)
    if array_api_compat.is_torch_array(values) and values.element_size() == 2:
        # torch has no nextafter for half precision; the bits of non-negative floats count up.
        return (values.view(xp.int16) + 1).view(values.dtype)
    return xp.nextafter(values, xp.ones_like(values))
