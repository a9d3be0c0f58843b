"""The nested rule: CORD at every rank, from the inside out, written against the array API.

Order the classes of a row by the original report: a₁ … a_K.  Level l splits the mass of
the classes not yet placed, {a_l, …, a_K}, between a_l and the rest; with the rest already
repaired, that is a one-dimensional repair like CORD's own, with the same interval, the
same reference and the same response.  One level is CORD itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cordcal._numeric.arrays import dtype_name, first_argmax, namespace
from cordcal._numeric.rows import lane_sum
from cordcal._numeric.types import Array
from cordcal.repair import rule
from cordcal.repair.rule import DELTA, EPSILON, TIED, RowSum


@dataclass(frozen=True, slots=True)
class RankedRows:
    """Rows seen along the kept order, for the first ``k`` ranks.

    Attributes
    ----------
    order : array of int of shape (n, K)
        The classes from the first to the last rank.
    rank : array of int of shape (n, K)
        The rank of each class, its inverse.
    entry : array of shape (n, k)
        The direct mass of each kept rank (in the stabilised copy).
    left : array of shape (n, k)
        The direct mass of all later ranks together: suffix sums from the last rank.
    original, original_rest : array of shape (n, k)
        The original's conditional mass of each kept rank, and its complement.
    tail : array of shape (n, K)
        The direct masses of the classes below rank k, by class, zero elsewhere.
    tail_top : array of shape (n,)
        The largest of them.
    tail_ahead : array of bool of shape (n,)
        Whether that largest beats the entry at rank k in the supplied report.
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
    """One level of the nested rule, ready for a construction or a response.

    ``weight`` is the mass the calibrator itself leaves to the level.
    """

    direct_mass: Array
    direct_rest: Array
    reference: Array
    reference_rest: Array
    lower: Array
    changed: Array
    weight: Array


def kept_order(original: Array, decision: Array | None, *, xp: Any = None) -> Array:
    """Return the classes of each row from first to last, ties to the smallest index.

    A given decision comes first, the rest follow the original report.
    """
    xp = namespace(original) if xp is None else xp
    keys = original
    if decision is not None:
        chosen = rule.chosen_entries(original, decision, xp=xp)
        # Two is above any probability.
        keys = xp.where(chosen, xp.ones_like(original) * 2, original)
    if xp is np:  # NumPy has no descending sort; negation is exact
        return np.argsort(-keys, axis=1, kind="stable")
    return xp.argsort(keys, axis=1, descending=True, stable=True)


def rank_rows(
    original: Array,
    direct: Array,
    order: Array,
    levels: int,
    *,
    xp: Any = None,
    row_sum: RowSum = lane_sum,
) -> RankedRows:
    """Look at wide copies of both reports along the kept order."""
    xp = namespace(direct) if xp is None else xp
    rank = xp.argsort(order, axis=1)
    below = rank >= levels
    q, inner, total = _inner_copy(direct, xp, row_sum)
    p, _, _ = _inner_copy(original, xp, row_sum)

    tail = xp.where(below, q, xp.zeros_like(q))
    kept = xp.take_along_axis(q, order[:, :levels], axis=1)
    left = _suffix_sums(kept, row_sum(tail), xp)

    p_kept = xp.take_along_axis(p, order[:, :levels], axis=1)
    p_left = _suffix_sums(p_kept, row_sum(xp.where(below, p, xp.zeros_like(p))), xp)

    # At rank k the supplied entries themselves are compared: isotonic reports tie exactly.
    supplied = xp.where(below, direct, xp.zeros_like(direct) - 1.0)
    last = order[:, levels - 1]
    entry = xp.take_along_axis(direct, last[:, None], axis=1)[:, 0]
    rival = xp.max(supplied, axis=1)
    ahead = (rival > entry) | ((rival == entry) & (first_argmax(supplied, xp=xp) < last))
    return RankedRows(
        order=order,
        rank=rank,
        entry=kept,
        left=left,
        original=p_kept / (p_kept + p_left),
        original_rest=p_left / (p_kept + p_left),
        tail=tail,
        tail_top=xp.max(tail, axis=1),
        tail_ahead=ahead,
        inner=inner,
        total=total,
    )


def _inner_copy(values: Array, xp: Any, row_sum: RowSum) -> tuple[Array, Array, Array]:
    """Return the rows in the interior of the simplex, which were there, and all their sums."""
    inner = xp.all(values != 0, axis=1)
    total = row_sum(values)
    scale = xp.ones_like(total) * (1.0 - DELTA) / total
    mixed = values * scale[:, None] + DELTA / values.shape[1]
    return xp.where(inner[:, None], values, mixed), inner, total


def _suffix_sums(kept: Array, last: Array, xp: Any) -> Array:
    """Return, for each kept rank, the sum of all later ranks, from the last one up."""
    sums = [last]
    for level in range(kept.shape[1] - 1, 0, -1):
        sums.append(sums[-1] + kept[:, level])
    return xp.stack(sums[::-1], axis=1)


def level_state(
    rows: RankedRows, level: int, inside: tuple[Array, Array] | None, *, xp: Any = None
) -> Level:
    """Describe one level, counted from 0, given the repaired masses of the next one inside.

    ``inside`` is None at the innermost level, whose tail is the direct one.
    """
    xp = namespace(rows.entry) if xp is None else xp
    entry, left = rows.entry[:, level], rows.left[:, level]
    whole = entry + left
    b, b_rest = entry / whole, left / whole
    if inside is None:
        lower = rows.tail_top / (rows.tail_top + left) + EPSILON
        changed = rows.tail_ahead
    else:
        top = inside[0]
        lower = top / (top + 1.0) + EPSILON
        rival = b_rest * top
        # Two products of rounded numbers: in which of them equal entries come out larger is
        # chance, and other libraries add in another order.
        behind = rows.order[:, level + 1] < rows.order[:, level]
        changed = (rival > b + TIED * b) | ((rival >= b - TIED * b) & behind)
    g = 0.5 * b + 0.5 * rows.original[:, level]
    g_rest = 0.5 * b_rest + 0.5 * rows.original_rest[:, level]
    everything = rows.entry[:, 0] + rows.left[:, 0]
    return Level(
        direct_mass=b,
        direct_rest=b_rest,
        reference=xp.where(changed, g, b),
        reference_rest=xp.where(changed, g_rest, b_rest),
        lower=lower,
        changed=changed,
        weight=whole / everything,
    )


def respond_levels(
    rows: RankedRows, etas: Sequence[float], *, xp: Any = None
) -> Iterator[tuple[int, Level, tuple[Array, Array, Array]]]:
    """Yield each level, from the inside out, with its repaired mass, complement and slope."""
    inside = None
    for level in range(len(etas) - 1, -1, -1):
        state = level_state(rows, level, inside, xp=xp)
        found = rule.response(
            etas[level], state.reference, state.reference_rest, state.lower, xp=xp
        )
        yield level, state, found
        inside = found[:2]


def respond(
    rows: RankedRows, etas: Sequence[float], level: float, *, xp: Any = None
) -> tuple[list[Array], list[Array], Array]:
    """Return each level's repaired mass and complement, and which rows come back unchanged.

    ``level`` is that of `_array.unchanged`.
    """
    levels = respond_levels(rows, etas, xp=xp)
    xp = namespace(rows.entry) if xp is None else xp
    masses: list[Array] = []
    rests: list[Array] = []
    same = rows.inner & rule.sums_to_one(rows.total, level)
    same = same & (xp.ones_like(rows.inner) if not any(etas) else xp.zeros_like(rows.inner))
    for _, state, (mass, rest, _) in levels:
        same = same & (state.direct_mass >= state.lower) & (state.direct_rest >= EPSILON)
        masses.insert(0, mass)
        rests.insert(0, rest)
    return masses, rests, same


def rebuild(rows: RankedRows, masses: list[Array], rests: list[Array], *, xp: Any = None) -> Array:
    """Multiply the levels out; return the rows by class, in the wide dtype."""
    xp = namespace(rows.entry) if xp is None else xp
    levels = len(masses)
    remaining = xp.ones_like(masses[0])
    ranked = []
    for mass, rest in zip(masses, rests, strict=True):
        ranked.append(remaining * mass)
        remaining = remaining * rest
    # A tiny tail is scaled up before it is divided by: its inverse would overflow.
    left = rows.left[:, levels - 1]
    ones = xp.ones_like(left)
    tiny, lift = rule.tiny_tail(left, xp=xp)
    scale = xp.where(left < tiny, ones * lift, ones)
    factor = remaining / (left * scale)
    tail = (rows.tail * scale[:, None]) * factor[:, None]
    head = xp.stack(ranked, axis=1)
    position = xp.where(rows.rank < levels, rows.rank, xp.zeros_like(rows.rank))
    return xp.where(rows.rank < levels, xp.take_along_axis(head, position, axis=1), tail)


def lift_order(rounded: Array, rows: RankedRows, levels: int, *, strict: bool) -> Array:
    """Restore the order after rounding: strictly, or only the first rank strictly.

    Each kept rank that does not lie above the next takes the next representable number,
    or the smallest normal one where that is larger.
    """
    xp = namespace(rounded)
    smallest = xp.asarray(xp.finfo(rounded.dtype).smallest_normal, dtype=rounded.dtype)
    ranked = xp.take_along_axis(rounded, rows.order[:, :levels], axis=1)
    below = rows.rank >= levels
    bound = xp.max(xp.where(below, rounded, xp.zeros_like(rounded)), axis=1)
    lifted: list[Array] = []
    for level in range(levels - 1, -1, -1):
        value = ranked[:, level]
        if strict or level == 0:
            floor = rule.next_above(bound)
            floor = xp.where(floor < smallest, xp.zeros_like(floor) + smallest, floor)
            value = xp.where(value > bound, value, floor)
        else:
            value = xp.where(value > bound, value, bound)
        lifted.insert(0, value)
        bound = value
    head = xp.stack(lifted, axis=1)
    position = xp.where(below, xp.zeros_like(rows.rank), rows.rank)
    return xp.where(below, rounded, xp.take_along_axis(head, position, axis=1))


def strict_dtype(dtype: Any) -> bool:
    """Whether a dtype has room for a strict order of all ranks."""
    return dtype_name(dtype) in ("float64", "float32")
