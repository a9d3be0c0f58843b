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
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

from cordcal.repair._array import DELTA, EPSILON, TINY_TAIL, TINY_TAIL_SCALE
from cordcal.repair._simd import double_bits, first_equal, scan, scan_without, write_scaled

_U = np.uintp

# NumPy's error model: a division by zero gives an infinity, not a check and an exception,
# which would keep the loops from being vectorised.
compiled = njit(nogil=True, error_model="numpy")

# Rows of a tile: 64 amortise the phases; wide rows take fewer, so that a tile of both
# inputs (16 bytes an entry) stays in the first-level cache.
TILE = 64
_TILE_ENTRIES = 1024

# Exact sums split each summand at these magnitudes (error-free extraction): with at most
# 2^15 summands below 2 in absolute value, the parts of each level add up without
# rounding.  Units are 2^-36, 2^-72 and 2^-108; what is below goes to integer bins.
SUM_ROWS = 2**15
_LEVEL_1 = 1.5 * 2.0**16
_LEVEL_2 = 1.5 * 2.0**-20
_LEVEL_3 = 1.5 * 2.0**-56

# A tile's scratch space is one flat array with a stretch of TILE doubles for each
# quantity: LLVM vectorises loops over stretches a constant distance apart, and gives up
# on that many separate arrays, which might overlap.
_NAMES = 24
(_MASS, _REST, _TOP, _LEAST, _P_SUM, _P_LEAST, _P_MASS, _P_REST) = (_U(i * TILE) for i in range(8))
(_B, _B_REST, _G, _G_REST, _LOWER) = (_U(i * TILE) for i in range(8, 13))
(_SCALE, _FACTOR, _OFFSET, _S, _S_REST, _SLOPE, _GAP) = (_U(i * TILE) for i in range(13, 20))
(_PART_1, _PART_2, _PART_3, _LEFT) = (_U(i * TILE) for i in range(20, 24))


@compiled
def _tile_rows(classes):
    return min(_U(TILE), max(_U(1), _U(_TILE_ENTRIES) // classes))


@compiled
def _reduce_tile(p, q, keep, start, stop, tile, decision):
    """Phase 1: one pass over each row of both inputs."""
    given = keep.shape[0] > 0
    last = _U(p.shape[1] - 1)
    for i in range(start, stop):
        r = i - start
        p_sum, p_top, p_least = scan(p, i)
        a = _U(keep[i]) if given else min(first_equal(p, i, _U(0), p_top), last)
        rest, top, least = scan_without(q, i, a)
        decision[r] = a
        tile[_P_SUM + r] = p_sum
        tile[_P_LEAST + r] = p_least
        tile[_MASS + r] = np.float64(q[i, a])
        tile[_REST + r] = rest
        tile[_TOP + r] = top
        tile[_LEAST + r] = least


@compiled
def _check_tile(tile, rows, limits, sloppy):
    """Phase 2: return how many rows must be refused; count those worth a warning.

    ``limits`` holds the tolerated and the unremarkable deviation of a sum from one, for
    the original and for the direct rows.
    """
    refused = sloppy_p = sloppy_q = 0
    tol_p, tol_q, fair_p, fair_q = limits[0], limits[1], limits[2], limits[3]
    for r in range(rows):
        p_off = abs(tile[_P_SUM + r] - 1.0)
        q_off = abs(tile[_MASS + r] + tile[_REST + r] - 1.0)
        # Written so that a NaN or an infinity, which spoils the sum, fails the comparison.
        fine = (p_off <= tol_p) & (q_off <= tol_q)
        fine &= (tile[_P_LEAST + r] >= 0.0) & (tile[_LEAST + r] >= 0.0)
        refused += not fine
        sloppy_p += p_off > fair_p
        sloppy_q += q_off > fair_q
    sloppy[0] += sloppy_p
    sloppy[1] += sloppy_q
    return refused


@compiled
def _mark_changed(p, q, start, rows, tile, decision):
    """Phase 3: find the rows whose direct report decides otherwise; return how many.

    They get the original's normalised mass on the decision; the others a mark of -1.
    """
    classes = _U(q.shape[1])
    changed = 0
    for r in range(rows):
        tile[_P_MASS + r] = -1.0
        if tile[_TOP + r] < tile[_MASS + r]:
            continue
        i, a = start + r, decision[r]
        if tile[_TOP + r] == tile[_MASS + r] and first_equal(q, i, _U(0), tile[_TOP + r]) == a:
            continue
        changed += 1
        p_rest, _, _ = scan_without(p, i, a)
        p_mass = np.float64(p[i, a])
        scale, offset = 1.0, 0.0
        if tile[_P_LEAST + r] == 0.0:
            scale, offset = (1.0 - DELTA) / (p_mass + p_rest), DELTA / classes
        elif p_rest < TINY_TAIL:
            scale = TINY_TAIL_SCALE
        p_mass = scale * p_mass + offset
        p_rest = scale * p_rest + offset * (classes - _U(1))
        tile[_P_MASS + r] = p_mass / (p_mass + p_rest)
        tile[_P_REST + r] = p_rest / (p_mass + p_rest)
    return changed


@compiled
def _describe_tile(tile, rows, classes):
    """Phase 4: normalise, stabilise, and form the interval and the reference (Eqs. 4, 5)."""
    uniform = DELTA / classes
    others = float(classes - _U(1))
    for r in range(rows):
        mass, rest, top = tile[_MASS + r], tile[_REST + r], tile[_TOP + r]
        boundary = tile[_LEAST + r] == 0.0
        scale = TINY_TAIL_SCALE if rest < TINY_TAIL else 1.0
        scale = (1.0 - DELTA) / (mass + rest) if boundary else scale
        offset = uniform if boundary else 0.0
        mass = scale * mass + offset
        rest = scale * rest + offset * others
        top = scale * top + offset
        total = mass + rest
        b, b_rest = mass / total, rest / total
        kept = tile[_P_MASS + r] < 0.0
        tile[_G + r] = b if kept else 0.5 * b + 0.5 * tile[_P_MASS + r]
        tile[_G_REST + r] = b_rest if kept else 0.5 * b_rest + 0.5 * tile[_P_REST + r]
        tile[_LOWER + r] = top / (top + rest) + EPSILON
        tile[_B + r] = b
        tile[_B_REST + r] = b_rest
        tile[_SCALE + r] = scale
        tile[_OFFSET + r] = offset
        tile[_REST + r] = rest


@compiled
def _response_tile(eta, tile, rows):
    """Phase 5: the clipped response (see ``_array.response``)."""
    if eta == 0.0:
        for r in range(rows):
            tile[_S + r] = tile[_G + r]
            tile[_S_REST + r] = tile[_G_REST + r]
            tile[_SLOPE + r] = 1.0
    else:
        for r in range(rows):
            g, g_rest = tile[_G + r], tile[_G_REST + r]
            shift = eta + (g - g_rest)
            radius = np.sqrt(shift * shift + 4.0 * (g * g_rest))
            tile[_SLOPE + r] = radius
            tile[_S + r] = (
                2.0 * g / ((1.0 - eta) + radius)
                if eta <= 1.0
                else ((eta - 1.0) + radius) / (2.0 * eta)
            )
            tile[_S_REST + r] = (
                2.0 * g_rest / ((1.0 + eta) + radius)
                if eta >= -1.0
                else ((-eta - 1.0) + radius) / (-2.0 * eta)
            )
    for r in range(rows):
        mass, rest, lower = tile[_S + r], tile[_S_REST + r], tile[_LOWER + r]
        under, over = mass < lower, rest < EPSILON
        rise = mass * rest / tile[_SLOPE + r]
        tile[_SLOPE + r] = 0.0 if under | over else rise
        mass = 1.0 - EPSILON if over else mass
        rest = EPSILON if over else rest
        tile[_S + r] = lower if under else mass
        tile[_S_REST + r] = 1.0 - lower if under else rest


@compiled
def _factor_tile(eta, tile, rows):
    """Find the factor that turns the internal copy's tail into the repaired one."""
    for r in range(rows):
        factor = tile[_S_REST + r] / tile[_REST + r]
        tile[_FACTOR + r] = factor
        tile[_OFFSET + r] *= factor
    if eta == 0.0:
        for r in range(rows):
            inside = tile[_B + r] >= tile[_LOWER + r] and tile[_B_REST + r] >= EPSILON
            if inside and tile[_LEAST + r] > 0.0:  # bit for bit
                tile[_SCALE + r], tile[_FACTOR + r] = 1.0, 1.0
                tile[_S + r] = tile[_MASS + r]


def _rounded(value, out):
    """Round a double to the dtype of ``out``; half precision is held as its bits."""


def _above(value, out):
    """Return the next representable number above a non-negative one."""


def _write_scaled(q, r, scale, factor, offset, out, i):
    """Store ``(q[r] * scale) * factor + offset`` to ``out[i]``, rounded to its dtype."""


@overload(_write_scaled, inline="always")
def _write_scaled_to(q, r, scale, factor, offset, out, i):
    if out.dtype != types.uint16:
        return lambda q, r, scale, factor, offset, out, i: write_scaled(
            q, r, scale, factor, offset, out, i
        )

    def halves(q, r, scale, factor, offset, out, i):
        for j in range(_U(out.shape[1])):
            out[i, j] = _rounded((np.float64(q[r, j]) * scale) * factor + offset, out)

    return halves


@overload(_rounded, inline="always")
def _rounded_of(value, out):
    if out.dtype == types.float64:
        return lambda value, out: value
    if out.dtype == types.float32:
        return lambda value, out: np.float32(value)

    def half(value, out):
        if value < 2.0**-14:  # subnormal halves are multiples of 2^-24
            return np.uint16(np.rint(value * 2.0**24))
        bits = double_bits(value)
        # Round the 52-bit mantissa to 10 bits, ties to even, and rebase the exponent.
        bits = (bits + ((bits >> 42) & 1) + ((1 << 41) - 1)) >> 42
        return np.uint16(bits - ((1023 - 15) << 10))

    return half


@overload(_above, inline="always")
def _above_of(value, out):
    if out.dtype == types.uint16:
        return lambda value, out: np.uint16(value + 1)
    if out.dtype == types.float32:
        return lambda value, out: np.nextafter(value, np.float32(2.0))
    return lambda value, out: np.nextafter(value, 2.0)


@compiled
def _write_row(q, i, scale, factor, offset, mass, top, a, out):
    """Phase 6: rebuild one row in the output dtype, the decision strictly on top."""
    _write_scaled(q, i, scale, factor, offset, out, i)
    # Rounding keeps order, so the largest rival is the rounded largest entry.
    rival = _rounded((top * scale) * factor + offset, out)
    rounded = _rounded(mass, out)
    out[i, a] = rounded if rounded > rival else _above(rival, out)


def _repair(p, q, keep, eta, limits, out, sloppy):
    """Repair every row into ``out``; return the first row of a tile with a refused one, or -1."""
    rows, classes = _U(q.shape[0]), _U(q.shape[1])
    size = _tile_rows(classes)
    tile = np.empty(_NAMES * TILE)
    decision = np.empty(TILE, np.uintp)
    start = _U(0)
    while start < rows:
        stop = min(start + size, rows)
        count = stop - start
        _reduce_tile(p, q, keep, start, stop, tile, decision)
        if _check_tile(tile, count, limits, sloppy) > 0:
            return np.int64(start)
        _mark_changed(p, q, start, count, tile, decision)
        _describe_tile(tile, count, classes)
        _response_tile(eta, tile, count)
        _factor_tile(eta, tile, count)
        for r in range(count):
            _write_row(
                q,
                start + r,
                tile[_SCALE + r],
                tile[_FACTOR + r],
                tile[_OFFSET + r],
                tile[_S + r],
                tile[_TOP + r],
                decision[r],
                out,
            )
        start = stop
    return np.int64(-1)


@compiled
def _add_to_bins(value, bins):
    """Add a double exactly to integers indexed by its exponent, in halves of 32 and 21 bits."""
    bits = double_bits(value)
    exponent = (bits >> 52) & 0x7FF
    mantissa = bits & ((1 << 52) - 1)
    if exponent == 0:
        exponent = 1
    else:
        mantissa |= 1 << 52
    sign = -1 if bits < 0 else 1
    bins[exponent, 0] += sign * (mantissa & 0xFFFFFFFF)
    bins[exponent, 1] += sign * (mantissa >> 32)


@njit(nogil=True, error_model="numpy", inline="always")
def _extract(tile, at, rows):
    """Split each value into three parts on fixed grids and what is left, without error."""
    for r in range(rows):
        value = tile[at + r]
        part = (_LEVEL_1 + value) - _LEVEL_1
        value -= part
        tile[_PART_1 + r] = part
        part = (_LEVEL_2 + value) - _LEVEL_2
        value -= part
        tile[_PART_2 + r] = part
        part = (_LEVEL_3 + value) - _LEVEL_3
        tile[_PART_3 + r] = part
        tile[_LEFT + r] = value - part


@njit(nogil=True, error_model="numpy", fastmath={"reassoc"})
def _plain_sum(tile, at, rows):
    total = 0.0
    for r in range(rows):
        total += tile[at + r]
    return total


@compiled
def _add_parts(tile, rows, sums, bins):
    """Add the parts of a tile to an exact sum: three doubles that never round, and the bins."""
    # The parts add up without rounding in any order, so these sums may be reassociated.
    sums[0] += _plain_sum(tile, _PART_1, rows)
    sums[1] += _plain_sum(tile, _PART_2, rows)
    sums[2] += _plain_sum(tile, _PART_3, rows)
    left = 0
    for r in range(rows):
        left += tile[_LEFT + r] != 0.0
    if left > 0:
        sums[3] = 1.0
        for r in range(rows):
            if tile[_LEFT + r] != 0.0:
                _add_to_bins(tile[_LEFT + r], bins)


@compiled
def _add_product(weight, value, bins):
    """Add ``weight * value`` exactly: the product and its rounding error (Dekker)."""
    product = weight * value
    scaled = weight * 134217729.0  # 2^27 + 1, Veltkamp's splitting constant
    w_high = scaled - (scaled - weight)
    scaled = value * 134217729.0
    v_high = scaled - (scaled - value)
    w_low, v_low = weight - w_high, value - v_high
    error = ((w_high * v_high - product) + w_high * v_low + w_low * v_high) + w_low * v_low
    _add_to_bins(product, bins)
    _add_to_bins(error, bins)


@njit(nogil=True, error_model="numpy", inline="always")
def _accumulate(tile, at, weight, start, rows, sums, bins):
    """Add a stretch of the tile, weighted if there are weights, to an exact sum."""
    if weight.shape[0] == 0:
        _extract(tile, at, rows)
        _add_parts(tile, rows, sums, bins)
    else:
        sums[3] = 1.0
        for r in range(rows):
            _add_product(weight[start + r], tile[at + r], bins)


@njit(nogil=True, error_model="numpy", inline="always")
def _gap_tile(tile, mass, rest, reference, reference_rest, rows):
    """Store mass − reference, from the complements where those are the smaller numbers."""
    for r in range(rows):
        above = tile[mass + r] - tile[reference + r]
        below = tile[reference_rest + r] - tile[rest + r]
        tile[_GAP + r] = below if tile[rest + r] < tile[mass + r] else above


def _describe(p, q, keep, weight, limits, g, g_rest, lower, sums, bins, sloppy, changed):
    """Fill the three vectors of a construction; return a tile with a refused row, or -1.

    ``sums`` and ``bins`` receive Σ w b, Σ w lower and Σ w (g − b).
    """
    rows, classes = _U(q.shape[0]), _U(q.shape[1])
    size = _tile_rows(classes)
    tile = np.empty(_NAMES * TILE)
    decision = np.empty(TILE, np.uintp)
    start = _U(0)
    while start < rows:
        stop = min(start + size, rows)
        count = stop - start
        _reduce_tile(p, q, keep, start, stop, tile, decision)
        if _check_tile(tile, count, limits, sloppy) > 0:
            return np.int64(start)
        some = _mark_changed(p, q, start, count, tile, decision)
        changed[0] += some
        _describe_tile(tile, count, classes)
        for r in range(count):
            g[start + r] = tile[_G + r]
            g_rest[start + r] = tile[_G_REST + r]
            lower[start + r] = tile[_LOWER + r]
        _accumulate(tile, _B, weight, start, count, sums[0], bins[0])
        _accumulate(tile, _LOWER, weight, start, count, sums[1], bins[1])
        if some > 0:
            _gap_tile(tile, _G, _G_REST, _B, _B_REST, count)
            _accumulate(tile, _GAP, weight, start, count, sums[2], bins[2])
        start = stop
    return np.int64(-1)


def _probe(eta, g, g_rest, lower, weight, sums, bins, counts):
    """Add Σ w (s(η) − g) to an exact sum and count the rows at each bound; return Σ w ds/dη."""
    rows = _U(g.shape[0])
    tile = np.empty(_NAMES * TILE)
    slope = 0.0
    start = _U(0)
    while start < rows:
        stop = min(start + _U(TILE), rows)
        count = stop - start
        for r in range(count):
            tile[_G + r] = g[start + r]
            tile[_G_REST + r] = g_rest[start + r]
            tile[_LOWER + r] = lower[start + r]
        _response_tile(eta, tile, count)
        if weight.shape[0] > 0:
            for r in range(count):
                slope += weight[start + r] * tile[_SLOPE + r]
        else:
            slope += _plain_sum(tile, _SLOPE, count)
        clipped = high = 0
        for r in range(count):
            clipped += tile[_SLOPE + r] == 0.0
            high += (tile[_SLOPE + r] == 0.0) & (tile[_S_REST + r] == EPSILON)
        counts[0] += clipped - high
        counts[1] += high
        _gap_tile(tile, _S, _S_REST, _G, _G_REST, count)
        _accumulate(tile, _GAP, weight, start, count, sums, bins)
        start = stop
    return slope


_F64, _F32, _U16 = types.float64, types.float32, types.uint16
_OUTPUTS = {"float64": _F64, "float32": _F32, "float16": _U16}


def _input(kind: Any, ndim: int) -> Any:
    """Return a read-only C array type; writeable arrays convert, so one compilation serves."""
    return types.Array(kind, ndim, "C", readonly=True)


def _output(kind: Any, ndim: int) -> Any:
    return types.Array(kind, ndim, "C")


def _compile(function: Callable[..., Any], signature: Any) -> Callable[..., Any]:
    try:
        return njit(signature, nogil=True, error_model="numpy", cache=True)(function)
    except (RuntimeError, OSError):
        # No folder for the cache can be written: compile for this process only.
        return njit(signature, nogil=True, error_model="numpy")(function)


@functools.cache
def repair(input_dtype: str, output_dtype: str) -> Callable[..., int]:
    """Return the compiled repair for inputs of float64 or float32 and any served output."""
    kind = _OUTPUTS[input_dtype]
    signature = types.int64(
        _input(kind, 2),
        _input(kind, 2),
        _input(types.intp, 1),
        types.float64,
        _input(_F64, 1),
        _output(_OUTPUTS[output_dtype], 2),
        _output(types.int64, 1),
    )
    return _compile(_repair, signature)


@functools.cache
def describe(input_dtype: str) -> Callable[..., int]:
    """Return the compiled description of calibration rows."""
    kind = _OUTPUTS[input_dtype]
    vector = _output(_F64, 1)
    signature = types.int64(
        _input(kind, 2),
        _input(kind, 2),
        _input(types.intp, 1),
        _input(_F64, 1),
        _input(_F64, 1),
        vector,
        vector,
        vector,
        _output(_F64, 2),
        _output(types.int64, 3),
        _output(types.int64, 1),
        _output(types.int64, 1),
    )
    return _compile(_describe, signature)


@functools.cache
def probe() -> Callable[..., float]:
    """Return the compiled evaluation of the mean constraint."""
    vector = _input(_F64, 1)
    signature = types.float64(
        types.float64,
        vector,
        vector,
        vector,
        vector,
        _output(_F64, 1),
        _output(types.int64, 2),
        _output(types.int64, 1),
    )
    return _compile(_probe, signature)
