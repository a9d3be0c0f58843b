"""The nested rule: CORD at every preserved rank, written against the array API.

Order the classes of a row by the original probabilities: a₁ … a_K.  Level l splits the mass of
the classes {a_l, …, a_K} between a_l and the later ones.  With the later ones already
repaired, that is a one-dimensional repair like that of ``rule.py``, with the same interval,
reference and response.  So the levels are computed from the last preserved rank to the first.
One level is CORD itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cordcal._numeric.arrays import dtype_name, first_argmax, namespace
from cordcal._numeric.types import Array, DType, Flags, Floats, Namespace
from cordcal.repair import rule
from cordcal.repair.rule import TIED


@dataclass(frozen=True, slots=True)
class RankedRows:
    """Rows in the original order of their classes, for the first ``k`` ranks.

    Attributes
    ----------
    order : array of int of shape (n, K)
        The classes from the first to the last rank.
    rank : array of int of shape (n, K)
        The rank of each class, its inverse.
    entry : array of shape (n, k)
        The direct mass of each preserved rank (in the stabilised copy).
    left : array of shape (n, k)
        The direct mass of all later ranks together: suffix sums from the last rank.
    original, original_rest : array of shape (n, k)
        The original's conditional mass of each preserved rank, and its complement.
    tail : array of shape (n, K)
        The direct masses of the classes below rank k, by class, zero elsewhere.
    tail_top : array of shape (n,)
        The largest of them.
    tail_ahead : array of bool of shape (n,)
        Whether that largest beats the entry at rank k in the supplied probabilities.
    inner : array of bool of shape (n,)
        Rows without an exact zero.
    total : array of shape (n,)
        The sum of the direct row, as supplied.
    """

    order: Array
    rank: Array
    entry: Array
    left: Array
    original: Array
    original_rest: Array
    tail: Array
    tail_top: Array
    tail_ahead: Array
    inner: Array
    total: Array


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the nested rule, with the fields of `rule.RowState`."""

    direct_mass: Array
    direct_rest: Array
    reference: Array
    reference_rest: Array
    lower: Array
    changed: Array


def kept_order(original: Array, prediction: Array | None, *, xp: Namespace | None = None) -> Array:
    """Return the classes of each row from first to last, ties to the smallest index.

    With ``prediction``, that class comes first and the others follow in original order.
    """
    xp = namespace(original) if xp is None else xp
    keys = original
    if prediction is not None:
        chosen = rule.chosen_entries(original, prediction, xp=xp)
        # Two is larger than any probability.
        keys = xp.where(chosen, xp.ones_like(original) * 2, original)
    if xp is np:  # NumPy has no descending sort, and negation is exact
        return np.argsort(-keys, axis=1, kind="stable")
    return xp.argsort(keys, axis=1, descending=True, stable=True)


def rank_rows(
    original: Array,
    direct: Array,
    order: Array,
    levels: int,
    *,
    xp: Namespace | None = None,
) -> RankedRows:
    """Arrange wide copies of both probabilities in the original order."""
    xp = namespace(direct) if xp is None else xp
    rank = _inverse(order, xp)
    below = rank >= levels
    q, inner, total = _inner_copy(direct, xp)
    p, _, _ = _inner_copy(original, xp)

    tail = xp.where(below, q, xp.zeros_like(q))
    q_entry = xp.take_along_axis(q, order[:, :levels], axis=1)
    q_left = _suffix_sums(q_entry, xp.sum(tail, axis=1), xp)

    p_entry = xp.take_along_axis(p, order[:, :levels], axis=1)
    p_left = _suffix_sums(p_entry, xp.sum(xp.where(below, p, xp.zeros_like(p)), axis=1), xp)

    # At rank k the supplied entries themselves are compared: isotonic outputs tie exactly.
    supplied = xp.where(below, direct, xp.zeros_like(direct) - 1.0)
    last = order[:, levels - 1]
    entry = xp.take_along_axis(direct, last[:, None], axis=1)[:, 0]
    rival = xp.max(supplied, axis=1)
    ahead = (rival > entry) | ((rival == entry) & (first_argmax(supplied, xp=xp) < last))
    return RankedRows(
        order=order,
        rank=rank,
        entry=q_entry,
        left=q_left,
        original=p_entry / (p_entry + p_left),
        original_rest=p_left / (p_entry + p_left),
        tail=tail,
        tail_top=xp.max(tail, axis=1),
        tail_ahead=ahead,
        inner=inner,
        total=total,
    )


def _inverse(order: Array, xp: Namespace) -> Array:
    """Return the inverse of each row's permutation."""
    if xp is not np:
        return xp.argsort(order, axis=1)
    rank = np.empty_like(order)  # a scatter is several times faster than a second sort
    np.put_along_axis(rank, order, np.arange(order.shape[1])[None, :], axis=1)
    return rank


def _inner_copy(values: Array, xp: Namespace) -> tuple[Array, Array, Array]:
    """Return stabilised rows, which of them have no zero entry, and the sums as supplied."""
    inner = xp.all(values != 0, axis=1)
    total = xp.sum(values, axis=1)
    scale, offset = rule.stabilisation(total, values.shape[1], xp=xp)
    mixed = values * scale[:, None] + offset
    return xp.where(inner[:, None], values, mixed), inner, total


def _suffix_sums(entries: Array, last: Array, xp: Namespace) -> Array:
    """Return, for each preserved rank, the sum of all later ranks, added from the last one."""
    sums = [last]
    for level in range(entries.shape[1] - 1, 0, -1):
        sums.append(sums[-1] + entries[:, level])
    return xp.stack(sums[::-1], axis=1)


def level_state(
    rows: RankedRows, level: int, inside: tuple[Array, Array] | None, *, xp: Namespace | None = None
) -> Level:
    """Compute interval and reference of one level, counted from 0.

    ``inside`` holds the repaired masses of the next level and their complements; it is None
    at the last level, whose tail is the direct one.
    """
    xp = namespace(rows.entry) if xp is None else xp
    entry, left = rows.entry[:, level], rows.left[:, level]
    whole = entry + left
    b, b_rest = entry / whole, left / whole
    if inside is None:
        lower = rule.lower_bound(rows.tail_top, left)
        changed = rows.tail_ahead
    else:
        top = inside[0]
        lower = rule.lower_bound(top, 1.0)
        rival = b_rest * top
        # Both are rounded products: equal entries may come out larger on either side, and
        # other libraries add in another order.
        behind = rows.order[:, level + 1] < rows.order[:, level]
        changed = (rival > b + TIED * b) | ((rival >= b - TIED * b) & behind)
    g = rule.mix(b, rows.original[:, level])
    g_rest = rule.mix(b_rest, rows.original_rest[:, level])
    return Level(
        direct_mass=b,
        direct_rest=b_rest,
        reference=xp.where(changed, g, b),
        reference_rest=xp.where(changed, g_rest, b_rest),
        lower=lower,
        changed=changed,
    )


def level_weight(rows: RankedRows, level: int) -> Array:
    """Return the share of the direct mass at a level: of its rank and all later ones."""
    whole = rows.entry[:, level] + rows.left[:, level]
    return whole / (rows.entry[:, 0] + rows.left[:, 0])


def respond_levels(
    rows: RankedRows, etas: Sequence[float], *, xp: Namespace | None = None
) -> Iterator[tuple[int, Level, Array, Array]]:
    """Yield each level, from the last to the first, with its repaired mass and complement."""
    inside = None
    for level in range(len(etas) - 1, -1, -1):
        state = level_state(rows, level, inside, xp=xp)
        inside = rule.repaired_mass(etas[level], state, xp=xp)
        yield level, state, *inside


def repair_rows(
    direct: Array,
    rows: RankedRows,
    etas: Sequence[float],
    level: float,
    *,
    xp: Namespace | None = None,
) -> Array:
    """Return the repaired rows in the wide dtype, before they are rounded.

    As `rule.repair_rows`, with one shared scalar per preserved rank.
    """
    masses: list[Array] = []
    rests: list[Array] = []
    same = rows.inner & rule.sums_to_one(rows.total, level)
    is_zero = not any(etas)
    for _, state, mass, rest in respond_levels(rows, etas, xp=xp):
        if is_zero:
            same = same & rule.inside_interval(state.direct_mass, state.direct_rest, state.lower)
        masses.insert(0, mass)
        rests.insert(0, rest)
    repaired = rebuild(rows, masses, rests, xp=xp)
    if is_zero:
        xp = namespace(direct) if xp is None else xp
        repaired = xp.where(same[:, None], direct, repaired)
    return repaired


def rebuild(
    rows: RankedRows, masses: list[Array], rests: list[Array], *, xp: Namespace | None = None
) -> Array:
    """Multiply the levels; return the rows by class, in the wide dtype."""
    xp = namespace(rows.entry) if xp is None else xp
    levels = len(masses)
    remaining = xp.ones_like(masses[0])
    ranked = []
    for mass, rest in zip(masses, rests, strict=True):
        ranked.append(remaining * mass)
        remaining = remaining * rest
    left = rows.left[:, levels - 1]
    scale = rule.tail_scale(left, xp=xp)
    factor = remaining / (left * scale)
    tail = (rows.tail * scale[:, None]) * factor[:, None]
    head = xp.stack(ranked, axis=1)
    position = xp.where(rows.rank < levels, rows.rank, xp.zeros_like(rows.rank))
    return xp.where(rows.rank < levels, xp.take_along_axis(head, position, axis=1), tail)


def raise_order(rounded: Array, rows: RankedRows, levels: int) -> Array:
    """Restore the order after rounding: strictly for all preserved ranks, if the dtype allows.

    In half precision only the first rank is strict.  A rank that is not larger than the next
    takes the next representable number above it, or the smallest normal number where that is
    larger.
    """
    xp = namespace(rounded)
    strict = strict_dtype(rounded.dtype)
    smallest = xp.asarray(xp.finfo(rounded.dtype).smallest_normal, dtype=rounded.dtype)
    ranked = xp.take_along_axis(rounded, rows.order[:, :levels], axis=1)
    below = rows.rank >= levels
    bound = xp.max(xp.where(below, rounded, xp.zeros_like(rounded)), axis=1)
    raised: list[Array] = []
    for level in range(levels - 1, -1, -1):
        value = ranked[:, level]
        if strict or level == 0:
            above = rule.next_above(bound)
            above = xp.where(above < smallest, xp.zeros_like(above) + smallest, above)
            value = xp.where(value > bound, value, above)
        else:
            value = xp.where(value > bound, value, bound)
        raised.insert(0, value)
        bound = value
    head = xp.stack(raised, axis=1)
    position = xp.where(below, xp.zeros_like(rows.rank), rows.rank)
    return xp.where(below, rounded, xp.take_along_axis(head, position, axis=1))


def in_order(rounded: Floats, rows: RankedRows, levels: int) -> Flags:
    """Return which rows `raise_order` leaves as they are; for NumPy arrays."""
    ranked = np.take_along_axis(rounded, rows.order[:, :levels], axis=1)
    bound = np.where(rows.rank >= levels, rounded, 0.0).max(axis=1)
    ordered: Flags = (ranked[:, :-1] > ranked[:, 1:]).all(axis=1) & (ranked[:, -1] > bound)
    return ordered


def strict_dtype(dtype: DType) -> bool:
    """Whether a dtype has enough numbers for a strict order of all ranks."""
    return dtype_name(dtype) in ("float64", "float32")
