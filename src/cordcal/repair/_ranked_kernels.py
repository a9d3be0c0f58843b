"""The nested rule of ``_ranking.py``, compiled: a row at a time, the same bits.

A row's levels form a chain (each one's bound is the mass of the next one inside), but
almost all arithmetic of a level does not depend on it: that part runs over all levels in
vector loops, for the kept and for the changed case, and the chain only chooses and clips.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numba import types
from numba.extending import overload

from cordcal.repair._array import DELTA, EPSILON, TINY_TAIL, TINY_TAIL_SCALE
from cordcal.repair._jit import (
    F64,
    KINDS,
    above,
    compile_for,
    compiled,
    input_array,
    output_array,
    rounded,
    write_row_scaled,
)
from cordcal.repair._simd import first_above, scan

_U = np.uintp

# Up to this many ranks are picked out in one pass over the row; more come from a sort.
PICKED_LEVELS = 32


@compiled
def _pick_top(p, i, keep, levels, values, chosen):
    """Find the first ranks of a row: the largest entries, earlier classes first on ties."""
    classes = _U(p.shape[1])
    fixed = _U(0)
    if keep < classes:
        chosen[0] = keep
        fixed = _U(1)
    for r in range(fixed, levels):
        values[r] = -1.0
    j = first_above(p, i, _U(0), values[levels - _U(1)])
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
def _read_order(p, i, keep, levels, ascending, chosen):
    """Turn an ascending argsort into the kept order: reversed, ties by class, decision first."""
    classes = _U(p.shape[1])
    count = _U(0)
    if keep < classes:
        chosen[0] = keep
        count = _U(1)
    fixed = count
    position = classes
    while position > _U(0) and count < levels:
        position -= _U(1)
        j = _U(ascending[position])
        if fixed > _U(0) and j == keep:
            continue
        chosen[count] = j
        r = count
        while r > fixed and chosen[r - _U(1)] > j and p[i, chosen[r - _U(1)]] == p[i, j]:
            chosen[r] = chosen[r - _U(1)]
            chosen[r - _U(1)] = j
            r -= _U(1)
        count += _U(1)
    # A run of equal entries may go on beyond the last rank: its smallest classes come first.
    if count < _U(1) or position == _U(0):
        return
    last = p[i, chosen[levels - _U(1)]]
    while position > _U(0):
        position -= _U(1)
        j = _U(ascending[position])
        if p[i, j] != last:
            return
        if fixed > _U(0) and j == keep:
            continue
        r = levels - _U(1)
        if chosen[r] > j and levels > fixed:
            chosen[r] = j
            while r > fixed and chosen[r - _U(1)] > j and p[i, chosen[r - _U(1)]] == last:
                chosen[r] = chosen[r - _U(1)]
                chosen[r - _U(1)] = j
                r -= _U(1)


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
    total, top, _ = scan(row, _U(0))
    tail = total
    r = levels
    while r > _U(0):
        r -= _U(1)
        left[r] = total
        total += entry[r]
    return top, tail


@compiled
def _tail_wins_tie(q, i, chosen, levels, seen):
    """Whether a class below the kept ranks beats the last of them in the supplied report.

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


# Levels go through the arithmetic in pieces of this many, each quantity in a stretch of one
# flat array, so that the loops are vectorised (see ``_tile.py``).
_PIECE = 64
(_G, _G_REST, _ETA, _MASS, _REST) = (_U(i * _PIECE) for i in range(5))


@compiled
def _respond_piece(tile, count, tame):
    """Evaluate the free response of some levels (see ``_array.response``).

    ``tame`` says that all scalars lie in [-1, 1], where one form serves.
    """
    for r in range(count):
        g, g_rest, eta = tile[_G + r], tile[_G_REST + r], tile[_ETA + r]
        shift = eta + (g - g_rest)
        radius = np.sqrt(shift * shift + 4.0 * (g * g_rest))
        mass = 2.0 * g / ((1.0 - eta) + radius)
        rest = 2.0 * g_rest / ((1.0 + eta) + radius)
        tile[_MASS + r] = g if eta == 0.0 else mass
        tile[_REST + r] = g_rest if eta == 0.0 else rest
    if not tame:
        for r in range(count):
            eta = tile[_ETA + r]
            if abs(eta) > 1.0:
                g, g_rest = tile[_G + r], tile[_G_REST + r]
                shift = eta + (g - g_rest)
                radius = np.sqrt(shift * shift + 4.0 * (g * g_rest))
                if eta > 1.0:
                    tile[_MASS + r] = ((eta - 1.0) + radius) / (2.0 * eta)
                else:
                    tile[_REST + r] = ((-eta - 1.0) + radius) / (-2.0 * eta)


@compiled
def _normalise_piece(tile, count):
    """Turn entries and what is left below them into shares of their sum."""
    for r in range(count):
        whole = tile[_G + r] + tile[_G_REST + r]
        tile[_MASS + r] = tile[_G + r] / whole
        tile[_REST + r] = tile[_G_REST + r] / whole


@compiled
def _normalise(entry, left, share, rest, tile):
    """Return each level's conditional mass and its complement, piece by piece."""
    levels = _U(entry.shape[0])
    start = _U(0)
    while start < levels:
        count = min(_U(_PIECE), levels - start)
        for r in range(count):
            tile[_G + r] = entry[start + r]
            tile[_G_REST + r] = left[start + r]
        _normalise_piece(tile, count)
        for r in range(count):
            share[start + r] = tile[_MASS + r]
            rest[start + r] = tile[_REST + r]
        start += count


@compiled
def _respond(etas, g, g_rest, mass, rest, tame, tile):
    """Evaluate the free response of all levels, piece by piece."""
    levels = _U(etas.shape[0])
    start = _U(0)
    while start < levels:
        count = min(_U(_PIECE), levels - start)
        for r in range(count):
            tile[_G + r] = g[start + r]
            tile[_G_REST + r] = g_rest[start + r]
            tile[_ETA + r] = etas[start + r]
        _respond_piece(tile, count, tame)
        for r in range(count):
            mass[start + r] = tile[_MASS + r]
            rest[start + r] = tile[_REST + r]
        start += count


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


def _repair(p, q, keep, ascending, etas, limits, out, sloppy):
    """Repair every row into ``out``; return the first refused row, or -1.

    ``ascending`` is an argsort of ``p``, or empty: then the ranks are picked out.
    """
    rows, classes, levels = _U(q.shape[0]), _U(q.shape[1]), _U(etas.shape[0])
    padded = (classes + _U(7)) & ~_U(7)
    row, p_row = np.zeros((1, padded)), np.zeros((1, padded))
    values = np.empty(levels)
    chosen = np.empty(levels, np.uintp)
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
    tile = np.empty(5 * _PIECE)
    all_zero = tame = True
    for r in range(levels):
        all_zero = all_zero and etas[r] == 0.0
        tame = tame and abs(etas[r]) <= 1.0
    picked = ascending.shape[0] == 0
    none = classes
    for i in range(rows):
        p_sum, _, p_least = scan(p, i)
        q_sum, _, least = scan(q, i)
        p_off, q_off = abs(p_sum - 1.0), abs(q_sum - 1.0)
        if not (p_off <= limits[0] and q_off <= limits[1] and p_least >= 0.0 and least >= 0.0):
            return np.int64(i)
        sloppy[0] += p_off > limits[2]
        sloppy[1] += q_off > limits[3]

        first = _U(keep[i]) if keep.shape[0] > 0 else none
        if picked:
            _pick_top(p, i, first, levels, values, chosen)
        else:
            _read_order(p, i, first, levels, ascending[i], chosen)
        scale, offset = _inner_scale(least, q_sum, classes)
        top, tail = _spread_row(q, i, scale, offset, chosen, levels, entry, left, row)
        _normalise(entry, left, b, b_rest, tile)
        _respond(etas, b, b_rest, kept_s, kept_rest, tame, tile)
        known = False

        same = all_zero and least > 0.0
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
                changed = rival > b[at] or (rival == b[at] and chosen[at + _U(1)] < chosen[at])
            same = same and b[at] >= lower and b_rest[at] >= EPSILON
            if changed and not known:
                # The original's conditional masses are needed only now.
                p_scale, p_offset = _inner_scale(p_least, p_sum, classes)
                _spread_row(p, i, p_scale, p_offset, chosen, levels, p_entry, p_left, p_row)
                _normalise(p_entry, p_left, g, g_rest, tile)
                for m in range(levels):
                    g[m] = 0.5 * b[m] + 0.5 * g[m]
                    g_rest[m] = 0.5 * b_rest[m] + 0.5 * g_rest[m]
                _respond(etas, g, g_rest, moved_s, moved_rest, tame, tile)
                known = True
            mass = moved_s[at] if changed else kept_s[at]
            rest = moved_rest[at] if changed else kept_rest[at]
            if mass < lower:
                mass, rest = lower, 1.0 - lower
            elif rest < EPSILON:
                mass, rest = 1.0 - EPSILON, EPSILON
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
def repair(input_dtype: str, output_dtype: str) -> Callable[..., int]:
    """Return the compiled nested repair."""
    kind = KINDS[input_dtype]
    signature = types.int64(
        input_array(kind, 2),
        input_array(kind, 2),
        input_array(types.intp, 1),
        input_array(types.intp, 2),
        input_array(F64, 1),
        input_array(F64, 1),
        output_array(KINDS[output_dtype], 2),
        output_array(types.int64, 1),
    )
    return compile_for(_repair, signature)
