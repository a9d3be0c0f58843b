"""The nested rule of ``ranking.py``, compiled: one row at a time, the same bits.

A row's levels form a chain (the bound of a level is the mass of the next one), but almost all
arithmetic of a level does not depend on it.  That part runs over all levels in vector loops, for
the unchanged and for the changed case; the chain only selects and clips.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import overload

from cordcal.repair.kernels._jit import (
    F64,
    KINDS,
    Kernel,
    above,
    compiled,
    input_array,
    output_array,
    rounded,
    write_row_scaled,
)
from cordcal.repair.kernels._scan import scan_alone, scan_both
from cordcal.repair.kernels._simd import LANES, first_above
from cordcal.repair.rule import DELTA, EPSILON, TIED, TINY_TAIL, TINY_TAIL_SCALE

_U = np.uintp

# Up to this many ranks are picked out in one pass over the row; more come from a sort.
PICKED_LEVELS = 32


def class_bits(classes: int) -> int:
    """Return how many bits a class index takes."""
    return (classes - 1).bit_length()


def sort_keys(p: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return each row's entries as ascending integers that end in the class, counted backwards.

    The bits of non-negative doubles sort like the doubles.  Giving up the last few for the
    class makes a plain sort, several times faster than an argsort, carry the classes along,
    earlier ones behind later ones on ties.
    """
    classes = p.shape[1]
    # Adding zero turns -0.0 into 0.0, whose bits sort among the others.
    keys: npt.NDArray[np.int64] = np.add(p, 0.0, dtype=np.float64).view(np.int64)
    keys &= -(1 << class_bits(classes))
    keys |= np.arange(classes - 1, -1, -1)
    keys.sort(axis=1)
    return keys


@compiled
def _lower_limit(maxima, levels):
    """Return a number just below which none of a row's first ranks lies.

    ``maxima`` are those of eight parts of the row: k of them are at least the k-th largest.
    """
    limit = -1.0
    for lane in range(_U(maxima.shape[0])):
        above_it = _U(0)
        for other in range(_U(maxima.shape[0])):
            ahead = maxima[other] > maxima[lane]
            above_it += ahead | ((maxima[other] == maxima[lane]) & (other < lane))
        limit = maxima[lane] if above_it + _U(1) == levels else limit
    return np.nextafter(limit, -1.0)


@compiled
def _pick_top(p, i, keep, levels, limit, values, chosen):
    """Find the first ranks of a row: the largest entries, earlier classes first on ties.

    At least as many entries as there are ranks must lie above ``limit``.
    """
    classes = _U(p.shape[1])
    fixed = _U(0)
    if keep < classes:
        chosen[0] = keep
        fixed = _U(1)
    for r in range(fixed, levels):
        values[r] = limit
    j = first_above(p, i, _U(0), limit)
    while j < classes:
        value = np.float64(p[i, j])
        if not (fixed > _U(0) and j == keep):
            r = levels - _U(1)
            # Strictly larger entries move up; an equal one found later stays behind.
            while r > fixed and values[r - _U(1)] < value:
                values[r] = values[r - _U(1)]
                chosen[r] = chosen[r - _U(1)]
                r -= _U(1)
            values[r] = value
            chosen[r] = j
        j = first_above(p, i, j + _U(1), values[levels - _U(1)])


@compiled
def _read_order(p, i, keep, keys, bits, chosen):
    """Read the order from a row's sorted keys (see `sort_keys`), with a prediction first."""
    classes = _U(p.shape[1])
    last = classes - _U(1)
    mask = (np.int64(1) << bits) - np.int64(1)
    alike = 0
    for step in range(last):
        alike += (keys[i, step] ^ keys[i, step + _U(1)]) <= mask
    if alike == 0 and keep == classes:
        for step in range(classes):
            chosen[step] = last - _U(keys[i, last - step] & mask)
        return
    # Keys that differ in the class alone stand for entries whose last bits they have lost.
    count = _U(0)
    if keep < classes:
        chosen[0] = keep
        count = _U(1)
    fixed = count
    for step in range(classes):
        j = last - _U(keys[i, last - step] & mask)
        if j == keep:
            continue
        r = count
        while r > fixed and p[i, chosen[r - _U(1)]] < p[i, j]:
            chosen[r] = chosen[r - _U(1)]
            r -= _U(1)
        while r > fixed and p[i, chosen[r - _U(1)]] == p[i, j] and chosen[r - _U(1)] > j:
            chosen[r] = chosen[r - _U(1)]
            r -= _U(1)
        chosen[r] = j
        count += _U(1)


@compiled
def _inner_scale(least, total, classes):
    """Return scale and offset of the stabilised copy of a row."""
    if least == 0.0:
        return (1.0 - DELTA) / total, DELTA / classes
    return 1.0, 0.0


@compiled
def _spread_row(values, i, scale, offset, chosen, levels, entry, left, row):
    """Copy a row to ``row`` without its first ranks, which go to ``entry``; return the tail.

    ``left`` receives the suffix sums.  Returned are the tail's largest entry and its sum.
    """
    if offset == 0.0:
        for j in range(_U(values.shape[1])):
            row[0, j] = values[i, j]
    else:
        for j in range(_U(values.shape[1])):
            row[0, j] = np.float64(values[i, j]) * scale + offset
    for r in range(levels):
        entry[r] = row[0, chosen[r]]
        row[0, chosen[r]] = 0.0
    total, top, _ = scan_alone(row, _U(0))
    tail = total
    r = levels
    while r > _U(0):
        r -= _U(1)
        left[r] = total
        total += entry[r]
    return top, tail


@compiled
def _tail_wins_tie(q, i, chosen, levels, seen):
    """Whether a class below the preserved ranks beats the last of them, as supplied.

    Asked only where the stabilised copies tie: the supplied entries decide, then the index.
    """
    last = chosen[levels - _U(1)]
    entry = q[i, last]
    for r in range(levels):
        seen[chosen[r]] = 1
    ahead = False
    for j in range(_U(q.shape[1])):
        if q[i, j] >= entry and seen[j] == 0 and (q[i, j] > entry or j < last):
            ahead = True
            break
    for r in range(levels):
        seen[chosen[r]] = 0
    return ahead


@compiled
def _normalise(entry, left, share, rest):
    """Turn each level's entry and what is left below it into shares of their sum."""
    for r in range(_U(entry.shape[0])):
        whole = entry[r] + left[r]
        share[r] = entry[r] / whole
        rest[r] = left[r] / whole


@compiled
def _respond(etas, g, g_rest, mass, rest, tame):
    """Evaluate the response of all levels before clipping (see `rule.response`).

    ``tame`` is whether all scalars lie in [-1, 1], where one closed form suffices.
    """
    for r in range(_U(etas.shape[0])):
        eta = etas[r]
        shift = eta + (g[r] - g_rest[r])
        radius = np.sqrt(shift * shift + 4.0 * (g[r] * g_rest[r]))
        free = 2.0 * g[r] / ((1.0 - eta) + radius)
        free_rest = 2.0 * g_rest[r] / ((1.0 + eta) + radius)
        mass[r] = g[r] if eta == 0.0 else free
        rest[r] = g_rest[r] if eta == 0.0 else free_rest
    if not tame:
        for r in range(_U(etas.shape[0])):
            eta = etas[r]
            if abs(eta) > 1.0:
                shift = eta + (g[r] - g_rest[r])
                radius = np.sqrt(shift * shift + 4.0 * (g[r] * g_rest[r]))
                if eta > 1.0:
                    mass[r] = ((eta - 1.0) + radius) / (2.0 * eta)
                else:
                    rest[r] = ((-eta - 1.0) + radius) / (-2.0 * eta)


def _ordered(value, bound, out, smallest, strict):
    """Return ``value``, lifted above ``bound`` (or to it, where the order is not strict)."""


@overload(_ordered, inline="always")
def _ordered_in(value, bound, out, smallest, strict):
    def lifted(value, bound, out, smallest, strict):
        if value > bound:
            return value
        if not strict:
            return bound
        higher = above(bound, out)
        return higher if higher > smallest else smallest

    return lifted


@compiled
def _move(p, i, least, total, chosen, b, b_rest, entry, left, row, g, g_rest):
    """Form the references of changed levels, halfway to the original's conditional masses."""
    levels = _U(b.shape[0])
    scale, offset = _inner_scale(least, total, _U(p.shape[1]))
    _spread_row(p, i, scale, offset, chosen, levels, entry, left, row)
    _normalise(entry, left, g, g_rest)
    for m in range(levels):
        g[m] = 0.5 * b[m] + 0.5 * g[m]
        g_rest[m] = 0.5 * b_rest[m] + 0.5 * g_rest[m]


def _repair(p, q, keep, keys, bits, etas, limits, out, worst):
    """Repair every row into ``out``; return the first invalid row, or -1.

    ``keys`` are those of `sort_keys`, or empty: then the ranks are picked out.  ``worst``
    receives the largest deviations of sums that are worth a warning.
    """
    rows, classes, levels = _U(q.shape[0]), _U(q.shape[1]), _U(etas.shape[0])
    padded = (classes + _U(7)) & ~_U(7)
    row, p_row = np.zeros((1, padded)), np.zeros((1, padded))
    values, maxima = np.empty(levels), np.empty(LANES)
    picked = keys.shape[0] == 0
    chosen = np.empty(levels if picked else classes, np.uintp)
    seen = np.zeros(classes, np.uint8)
    entry, left, p_entry, p_left = (
        np.empty(levels),
        np.empty(levels),
        np.empty(levels),
        np.empty(levels),
    )
    b, b_rest, g, g_rest = np.empty(levels), np.empty(levels), np.empty(levels), np.empty(levels)
    kept_s, kept_rest = np.empty(levels), np.empty(levels)
    moved_s, moved_rest = np.empty(levels), np.empty(levels)
    s, s_rest = np.empty(levels), np.empty(levels)
    all_zero = tame = True
    for r in range(levels):
        all_zero = all_zero and etas[r] == 0.0
        tame = tame and abs(etas[r]) <= 1.0
    none = classes
    for i in range(rows):
        p_sum, _, p_least, q_sum, _, least = scan_both(p, i, maxima, q, i)
        p_off, q_off = abs(p_sum - 1.0), abs(q_sum - 1.0)
        if not (p_off <= limits[0] and q_off <= limits[1] and p_least >= 0.0 and least >= 0.0):
            return np.int64(i)
        if p_off > limits[2] or q_off > limits[3]:
            worst[0], worst[1] = max(worst[0], p_off), max(worst[1], q_off)

        first = _U(keep[i]) if keep.shape[0] > 0 else none
        if picked:
            _pick_top(p, i, first, levels, _lower_limit(maxima, levels), values, chosen)
        else:
            _read_order(p, i, first, keys, bits, chosen)
        scale, offset = _inner_scale(least, q_sum, classes)
        top, tail = _spread_row(q, i, scale, offset, chosen, levels, entry, left, row)
        _normalise(entry, left, b, b_rest)
        _respond(etas, b, b_rest, kept_s, kept_rest, tame)
        # Among many levels some row nearly always changes; among few the original's
        # conditional masses are looked at only when one does.
        known = not picked
        if known:
            _move(p, i, p_least, p_sum, chosen, b, b_rest, p_entry, p_left, p_row, g, g_rest)
            _respond(etas, g, g_rest, moved_s, moved_rest, tame)

        same = all_zero and least > 0.0 and q_off <= limits[3]
        inside = 0.0
        for step in range(levels):
            at = levels - _U(1) - step
            if step == _U(0):
                lower = top / (top + left[at]) + EPSILON
                changed = top > entry[at] or (
                    top == entry[at] and _tail_wins_tie(q, i, chosen, levels, seen)
                )
            else:
                lower = inside / (inside + 1.0) + EPSILON
                rival = b_rest[at] * inside
                ahead = chosen[at + _U(1)] < chosen[at]
                near = TIED * b[at]
                changed = (rival > b[at] + near) | ((rival >= b[at] - near) & ahead)
            same &= (b[at] >= lower) & (b_rest[at] >= EPSILON)
            if not known and changed:
                _move(p, i, p_least, p_sum, chosen, b, b_rest, p_entry, p_left, p_row, g, g_rest)
                _respond(etas, g, g_rest, moved_s, moved_rest, tame)
                known = True
            # No branches from here on: which levels are clipped cannot be predicted.
            kept_mass, kept_left = kept_s[at], kept_rest[at]
            moved, moved_left = moved_s[at], moved_rest[at]
            mass = moved if changed else kept_mass
            rest = moved_left if changed else kept_left
            under, over = mass < lower, rest < EPSILON
            mass = 1.0 - EPSILON if over else mass
            rest = EPSILON if over else rest
            mass = lower if under else mass
            rest = 1.0 - lower if under else rest
            s[at], s_rest[at] = mass, rest
            inside = mass

        _write(q, i, row, chosen, levels, s, s_rest, tail, top, same, out)
    return np.int64(-1)


@compiled
def _write(q, i, row, chosen, levels, s, s_rest, tail, top, same, out):
    """Multiply the levels out into row ``i`` of ``out``, in order after rounding."""
    remaining = 1.0
    for r in range(levels):
        s[r] = remaining * s[r]
        remaining = remaining * s_rest[r]
    scale = TINY_TAIL_SCALE if tail < TINY_TAIL else 1.0
    factor = remaining / (tail * scale)
    if same:
        scale, factor = 1.0, 1.0
        for r in range(levels):
            s[r] = np.float64(q[i, chosen[r]])
    write_row_scaled(row, _U(0), scale, factor, 0.0, out, i)
    smallest, strict = _smallest_normal(out)
    bound = rounded((top * scale) * factor, out)
    r = levels
    while r > _U(0):
        r -= _U(1)
        value = rounded(s[r], out)
        bound = _ordered(value, bound, out, smallest, strict or r == _U(0))
        out[i, chosen[r]] = bound


def _smallest_normal(out):
    """Return the smallest normal number of a dtype, and whether all ranks fit strictly in it."""


@overload(_smallest_normal, inline="always")
def _smallest_normal_of(out):
    if out.dtype == types.float64:
        return lambda out: (2.0**-1022, True)
    if out.dtype == types.float32:
        return lambda out: (np.float32(2.0**-126), True)
    return lambda out: (np.uint16(0x0400), False)


@functools.cache
def repair(input_dtype: str, output_dtype: str) -> Kernel:
    """Return the compiled nested repair."""
    kind = KINDS[input_dtype]
    signature = types.int64(
        input_array(kind, 2),
        input_array(kind, 2),
        input_array(types.intp, 1),
        input_array(types.int64, 2),
        types.int64,
        input_array(F64, 1),
        input_array(F64, 1),
        output_array(KINDS[output_dtype], 2),
        output_array(F64, 1),
    )
    return Kernel(_repair, signature)
