"""The row rule of CORD, compiled: the same bits as ``_array.py`` without (n, K) temporaries.

Rows go through in tiles.  Each tile runs in phases, so that the scalar arithmetic of
many rows is one vector loop: reduce the rows, find the repaired masses, rebuild.
Nothing here raises: a kernel that meets a row it must refuse returns its index, and
the caller lets the array version say what is wrong.

Kernels are single-threaded and release the GIL.  They are compiled for the dtypes that
are used, once, and kept in numba's cache where that can be written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numba import types

from cordcal.repair._array import DELTA, EPSILON, TINY_TAIL, TINY_TAIL_SCALE
from cordcal.repair._jit import (
    F64,
    KINDS,
    above,
    compile_for,
    compiled,
    input_array,
    output_array,
    reassociated,
    rounded,
    write_row_scaled,
)
from cordcal.repair._scan import scan_decision, scan_pair, scan_without
from cordcal.repair._scan_short import FOUR, scan_four_decisions, scan_four_without
from cordcal.repair._simd import first_equal
from cordcal.repair._sum_kernels import add_all, add_levels, plain_sum
from cordcal.repair._tile import (
    B_REST,
    FACTOR,
    G_REST,
    LEAST,
    LOWER,
    MASS,
    OFFSET,
    P_LEAST,
    P_MASS,
    P_REST,
    P_SUM,
    REST,
    S_REST,
    SCALE,
    SIZE,
    SLOPE,
    TILE,
    TOP,
    B,
    G,
    S,
)

__all__ = ["add_all", "add_levels", "probe", "row_pass", "seek"]

_U = np.uintp

# A tile of both inputs (16 bytes an entry) stays in the second-level cache, where rows that
# were reduced are read again to be rebuilt.
_TILE_ENTRIES = 2**14

# Up to here four rows at a time are faster than one (measured with AVX2, both dtypes).
_SHORT_CLASSES = 48

# Halley's error is the third power of the last step: from here on it is below the grid's.
_CLOSE = 2.0**-17
# Two or three steps suffice on most data; more than this would not pay.
_STEPS = 8


@compiled
def _tile_rows(classes):
    return min(_U(TILE), max(_U(2), _U(_TILE_ENTRIES) // classes))


@compiled
def _reduce_tile(p, q, keep, start, stop, tile, decision):
    """Phase 1: one pass over each row of both inputs."""
    reduced = start
    if _U(q.shape[1]) <= _U(_SHORT_CLASSES):
        reduced = _reduce_by_four(p, q, keep, start, stop, tile, decision)
    if reduced < stop:
        _reduce_one_by_one(p, q, keep, start, reduced, stop, tile, decision)


@compiled
def _reduce_by_four(p, q, keep, start, stop, tile, decision):
    """Reduce as many short rows as there are whole fours of; return the first one left."""
    given = keep.shape[0] > 0
    i = start
    while i + _U(FOUR) <= stop:
        r = i - start
        scan_four_decisions(p, i, tile, r, decision)
        if given:
            for each in range(_U(FOUR)):
                decision[r + each] = _U(keep[i + each])
        scan_four_without(q, i, tile, r, decision)
        for each in range(_U(FOUR)):
            tile[MASS + r + each] = np.float64(q[i + each, decision[r + each]])
        i += _U(FOUR)
    return i


@compiled
def _reduce_one_by_one(p, q, keep, start, first, stop, tile, decision):
    """Reduce the rows from ``first`` on: each direct row beside the next original one."""
    given = keep.shape[0] > 0
    p_sum, a, p_least = scan_decision(p, first)
    for i in range(first, stop):
        r = i - start
        if given:
            a = _U(keep[i])
        decision[r] = a
        tile[P_SUM + r] = p_sum
        tile[P_LEAST + r] = p_least
        tile[MASS + r] = np.float64(q[i, a])
        if i + _U(1) < stop:
            rest, top, least, p_sum, a, p_least = scan_pair(q, i, a, p, i + _U(1))
        else:
            rest, top, least = scan_without(q, i, a)
        tile[REST + r] = rest
        tile[TOP + r] = top
        tile[LEAST + r] = least


@compiled
def _check_tile(tile, rows, limits, counts):
    """Phase 2: return how many rows must be refused; count those worth a warning.

    ``limits`` holds the tolerated and the unremarkable deviation of a sum from one, for
    the original and for the direct rows.
    """
    refused = sloppy_p = sloppy_q = 0
    tol_p, tol_q, fair_p, fair_q = limits[0], limits[1], limits[2], limits[3]
    for r in range(rows):
        p_off = abs(tile[P_SUM + r] - 1.0)
        q_off = abs(tile[MASS + r] + tile[REST + r] - 1.0)
        # Written so that a NaN or an infinity, which spoils the sum, fails the comparison.
        fine = (p_off <= tol_p) & (q_off <= tol_q)
        fine &= (tile[P_LEAST + r] >= 0.0) & (tile[LEAST + r] >= 0.0)
        refused += not fine
        sloppy_p += p_off > fair_p
        sloppy_q += q_off > fair_q
    counts[0] += sloppy_p
    counts[1] += sloppy_q
    return refused


@compiled
def _mark_changed(p, q, start, rows, tile, decision):
    """Phase 3: find the rows whose direct report decides otherwise; return how many.

    They get the original's normalised mass on the decision; the others a mark of -1.
    """
    classes = _U(q.shape[1])
    changed = 0
    for r in range(rows):
        tile[P_MASS + r] = -1.0
        if tile[TOP + r] < tile[MASS + r]:
            continue
        i, a = start + r, decision[r]
        if tile[TOP + r] == tile[MASS + r] and first_equal(q, i, _U(0), tile[TOP + r]) == a:
            continue
        changed += 1
        p_rest, _, _ = scan_without(p, i, a)
        p_mass = np.float64(p[i, a])
        scale, offset = 1.0, 0.0
        if tile[P_LEAST + r] == 0.0:
            scale, offset = (1.0 - DELTA) / (p_mass + p_rest), DELTA / classes
        elif p_rest < TINY_TAIL:
            scale = TINY_TAIL_SCALE
        p_mass = scale * p_mass + offset
        p_rest = scale * p_rest + offset * (classes - _U(1))
        tile[P_MASS + r] = p_mass / (p_mass + p_rest)
        tile[P_REST + r] = p_rest / (p_mass + p_rest)
    return changed


@compiled
def _describe_tile(tile, rows, classes):
    """Phase 4: normalise, stabilise, and form the interval and the reference (Eqs. 4, 5)."""
    uniform = DELTA / classes
    others = float(classes - _U(1))
    for r in range(rows):
        mass, rest, top = tile[MASS + r], tile[REST + r], tile[TOP + r]
        boundary = tile[LEAST + r] == 0.0
        scale = TINY_TAIL_SCALE if rest < TINY_TAIL else 1.0
        scale = (1.0 - DELTA) / (mass + rest) if boundary else scale
        offset = uniform if boundary else 0.0
        mass = scale * mass + offset
        rest = scale * rest + offset * others
        top = scale * top + offset
        total = mass + rest
        b, b_rest = mass / total, rest / total
        kept = tile[P_MASS + r] < 0.0
        tile[G + r] = b if kept else 0.5 * b + 0.5 * tile[P_MASS + r]
        tile[G_REST + r] = b_rest if kept else 0.5 * b_rest + 0.5 * tile[P_REST + r]
        tile[LOWER + r] = top / (top + rest) + EPSILON
        tile[B + r] = b
        tile[B_REST + r] = b_rest
        tile[SCALE + r] = scale
        tile[OFFSET + r] = offset
        tile[REST + r] = rest


@compiled
def _response_tile(eta, tile, rows):
    """Phase 5: the clipped response (see ``_array.response``)."""
    if eta == 0.0:
        for r in range(rows):
            tile[S + r] = tile[G + r]
            tile[S_REST + r] = tile[G_REST + r]
            tile[SLOPE + r] = 1.0
    else:
        for r in range(rows):
            g, g_rest = tile[G + r], tile[G_REST + r]
            shift = eta + (g - g_rest)
            radius = np.sqrt(shift * shift + 4.0 * (g * g_rest))
            tile[SLOPE + r] = radius
            tile[S + r] = (
                2.0 * g / ((1.0 - eta) + radius)
                if eta <= 1.0
                else ((eta - 1.0) + radius) / (2.0 * eta)
            )
            tile[S_REST + r] = (
                2.0 * g_rest / ((1.0 + eta) + radius)
                if eta >= -1.0
                else ((-eta - 1.0) + radius) / (-2.0 * eta)
            )
    for r in range(rows):
        mass, rest, lower = tile[S + r], tile[S_REST + r], tile[LOWER + r]
        under, over = mass < lower, rest < EPSILON
        rise = mass * rest / tile[SLOPE + r]
        tile[SLOPE + r] = 0.0 if under | over else rise
        mass = 1.0 - EPSILON if over else mass
        rest = EPSILON if over else rest
        tile[S + r] = lower if under else mass
        tile[S_REST + r] = 1.0 - lower if under else rest


@compiled
def _factor_tile(eta, tile, rows):
    """Find the factor that turns the internal copy's tail into the repaired one."""
    for r in range(rows):
        factor = tile[S_REST + r] / tile[REST + r]
        tile[FACTOR + r] = factor
        tile[OFFSET + r] *= factor
    if eta == 0.0:
        for r in range(rows):
            inside = tile[B + r] >= tile[LOWER + r] and tile[B_REST + r] >= EPSILON
            if inside and tile[LEAST + r] > 0.0:  # bit for bit
                tile[SCALE + r], tile[FACTOR + r] = 1.0, 1.0
                tile[S + r] = tile[MASS + r]


@compiled
def _write_row(q, i, scale, factor, offset, mass, top, a, out):
    """Phase 6: rebuild one row in the output dtype, the decision strictly on top.

    Takes numbers, not the tile, which LLVM would read again after each store to ``out``.
    """
    write_row_scaled(q, i, scale, factor, offset, out, i)
    # Rounding keeps order, so the largest rival is the rounded largest entry.
    rival = rounded((top * scale) * factor + offset, out)
    kept = rounded(mass, out)
    out[i, a] = kept if kept > rival else above(rival, out)


def _pass(p, q, keep, eta, limits, out, g, g_rest, lower, summed, counts):
    """Go through all rows once: repair them into ``out``, or describe them if it has no rows.

    A description is the vectors of a construction and, in ``summed``, what is to be summed
    up: b, lower and g − b.  ``counts`` receives how many original and direct rows are worth
    a warning, and how many decisions changed.  Returns the first row of a tile with a
    refused one, or -1.
    """
    rows, classes = _U(q.shape[0]), _U(q.shape[1])
    size = _tile_rows(classes)
    tile = np.empty(SIZE)
    decision = np.empty(TILE, np.uintp)
    start = _U(0)
    while start < rows:
        stop = min(start + size, rows)
        count = stop - start
        _reduce_tile(p, q, keep, start, stop, tile, decision)
        if _check_tile(tile, count, limits, counts) > 0:
            return np.int64(start)
        counts[2] += _mark_changed(p, q, start, count, tile, decision)
        _describe_tile(tile, count, classes)
        if out.shape[0] > 0:
            _response_tile(eta, tile, count)
            _factor_tile(eta, tile, count)
            for r in range(count):
                _write_row(
                    q,
                    start + r,
                    tile[SCALE + r],
                    tile[FACTOR + r],
                    tile[OFFSET + r],
                    tile[S + r],
                    tile[TOP + r],
                    decision[r],
                    out,
                )
        else:
            for r in range(count):
                g[start + r] = tile[G + r]
                g_rest[start + r] = tile[G_REST + r]
                lower[start + r] = tile[LOWER + r]
            for r in range(count):
                summed[_U(0), start + r] = tile[B + r]
                summed[_U(1), start + r] = tile[LOWER + r]
                summed[_U(2), start + r] = _gap(
                    tile[G + r], tile[G_REST + r], tile[B + r], tile[B_REST + r]
                )
        start = stop
    return np.int64(-1)


@compiled
def _gap(mass, rest, reference, reference_rest):
    """Return mass − reference, from the complements where those are the smaller numbers."""
    return reference_rest - rest if rest < mass else mass - reference


def _probe(etas, g, g_rest, lower, weight, gaps, slopes, counts):
    """Evaluate the constraint at several candidates: s(η) − g, Σ w ds/dη, rows at each bound."""
    rows = _U(g.shape[0])
    tile = np.empty(SIZE)
    for k in range(_U(etas.shape[0])):
        start = _U(0)
        while start < rows:
            count = min(_U(TILE), rows - start)
            for r in range(count):
                tile[G + r] = g[start + r]
                tile[G_REST + r] = g_rest[start + r]
                tile[LOWER + r] = lower[start + r]
            _response_tile(etas[k], tile, count)
            clipped = high = 0
            for r in range(count):
                clipped += tile[SLOPE + r] == 0.0
                high += (tile[SLOPE + r] == 0.0) & (tile[S_REST + r] == EPSILON)
                gaps[k, start + r] = _gap(
                    tile[S + r], tile[S_REST + r], tile[G + r], tile[G_REST + r]
                )
            counts[k, 0] += clipped - high
            counts[k, 1] += high
            if weight.shape[0] > 0:
                for r in range(count):
                    tile[SLOPE + r] *= weight[start + r]
            slopes[k] += plain_sum(tile, SLOPE, count)
            start += count


def _seek(shift, g, g_rest, lower, weight):
    """Return about where Σ w (s(η) − g) + shift vanishes, or zero if steps lead nowhere.

    The sums are rounded, so this says where to look, not what is there.
    """
    eta = 0.0
    for _ in range(_STEPS):
        excess, slope, bend = _estimate(eta, g, g_rest, lower, weight)
        newton = (excess + shift) / slope
        # Halley's step, unless it is more than twice Newton's.
        step = newton / max(0.5, 1.0 - 0.5 * newton * bend / slope)
        eta -= step
        if not abs(eta) < np.inf:
            return 0.0
        if abs(step) <= _CLOSE * max(1.0, abs(eta)):
            return eta
    return 0.0


@reassociated
def _estimate(eta, g, g_rest, lower, weight):
    """Return Σ w (s(η) − g) and its first two derivatives."""
    # The two closed forms of the response (see ``_array.response``) as one.
    near = eta <= 1.0
    up_0, up_g, up_radius = (0.0, 2.0, 0.0) if near else (eta - 1.0, 0.0, 1.0)
    down_0, down_radius = (1.0 - eta, 1.0) if near else (2.0 * eta, 0.0)
    weighted = weight.shape[0] > 0
    excess = slope = bend = 0.0
    for r in range(_U(g.shape[0])):
        shift = eta + (g[r] - g_rest[r])
        radius = np.sqrt(shift * shift + 4.0 * (g[r] * g_rest[r]))
        # One quotient for two: divisions are what this loop waits for.
        below = down_0 + down_radius * radius
        quotient = 1.0 / (radius * below)
        inverse = below * quotient
        s = (up_0 + up_g * g[r] + up_radius * radius) * (radius * quotient)
        under, over = s < lower[r], s > 1.0 - EPSILON
        w = weight[r] if weighted else 1.0
        rise = 0.0 if under | over else w * s * (1.0 - s) * inverse
        s = lower[r] if under else (1.0 - EPSILON if over else s)
        excess += w * (s - g[r])
        slope += rise
        bend += rise * inverse * ((1.0 - 2.0 * s) - shift * inverse)
    return excess, slope, bend


@functools.cache
def row_pass(input_dtype: str, output_dtype: str) -> Callable[..., int]:
    """Return the compiled pass over rows of float64 or float32, for any served output."""
    kind, vector = KINDS[input_dtype], output_array(F64, 1)
    signature = types.int64(
        input_array(kind, 2),
        input_array(kind, 2),
        input_array(types.intp, 1),
        F64,
        input_array(F64, 1),
        output_array(KINDS[output_dtype], 2),
        vector,
        vector,
        vector,
        output_array(F64, 2),
        output_array(types.int64, 1),
    )
    return compile_for(_pass, signature)


@functools.cache
def probe() -> Callable[..., None]:
    """Return the compiled evaluation of the mean constraint."""
    vector = input_array(F64, 1)
    signature = types.void(
        vector,
        vector,
        vector,
        vector,
        vector,
        output_array(F64, 2),
        output_array(F64, 1),
        output_array(types.int64, 2),
    )
    return compile_for(_probe, signature)


@functools.cache
def seek() -> Callable[..., float]:
    """Return the compiled search for about the shared scalar."""
    vector = input_array(F64, 1)
    return compile_for(_seek, F64(F64, vector, vector, vector, vector))
