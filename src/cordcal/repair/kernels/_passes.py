"""The compiled kernels: the row rule of CORD without (n, K) temporaries, and the search.

Rows are processed in tiles, and each tile in phases (``_phases.py``).  Kernels never raise: at
an invalid row they return the first row of its tile, and the array engine raises the error.

Kernels are single-threaded and release the GIL.  They are compiled once for the dtypes in use
and stored in numba's cache if that is writeable.
"""

from __future__ import annotations

import functools

import numpy as np
from numba import types

from cordcal.repair.kernels._jit import (
    F64,
    KINDS,
    Kernel,
    compiled,
    input_array,
    output_array,
    reassociated,
)
from cordcal.repair.kernels._phases import (
    check_tile,
    describe_tile,
    enforce_rule,
    factor_tile,
    look_up_weights,
    mark_changed,
    mark_close,
    reduce_tile,
    response_tile,
    tile_rows,
    weigh_tiny_tails,
    write_row,
)
from cordcal.repair.kernels._sums import add_bins, add_levels, plain_sum
from cordcal.repair.kernels._tile import (
    B_REST,
    FACTOR,
    G_REST,
    LOWER,
    OFFSET,
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
from cordcal.repair.rule import EPSILON

__all__ = ["add_bins", "add_levels", "probe", "row_pass", "search"]

_U = np.uintp

# Halley's error is the third power of the last step: below this it is finer than the grid.
_CLOSE = 2.0**-17
# Two or three steps suffice on most data; more than this is not worth the time.
_STEPS = 8


def _pass(p, q, keep, weights, eta, limits, out, g, g_rest, lower, summed, worst, changed):
    """Go through all rows once: repair them into ``out``, or describe them if it has no rows.

    A description is the vectors of a construction and, in ``summed``, the summands b, lower and
    g − b.  ``worst`` receives the largest deviations of original and direct sums that need a
    warning, ``changed`` how many decisions changed.  ``weights`` are the class weights of a
    prediction rule in the rows of `_scan`, or None, which removes their branches.  Returns the
    first row of a tile with an invalid row, or -1.
    """
    rows, classes = _U(q.shape[0]), _U(q.shape[1])
    size = tile_rows(classes)
    tile = np.empty(SIZE)
    decision = np.empty(TILE, np.uintp)
    start = _U(0)
    while start < rows:
        stop = min(start + size, rows)
        count = stop - start
        reduce_tile(p, q, keep, weights, start, stop, tile, decision)
        if check_tile(tile, count, limits, worst) > 0:
            return np.int64(start)
        if weights is not None:
            look_up_weights(weights, count, tile, decision)
        changed[0] += mark_changed(p, q, weights, start, count, tile, decision)
        if weights is not None:
            weigh_tiny_tails(q, weights, start, count, tile, decision)
        describe_tile(tile, count, classes, limits, weights)
        if out.shape[0] > 0:
            response_tile(eta, tile, count, False)
            factor_tile(eta, tile, count, limits)
            for r in range(count):
                write_row(
                    q,
                    start + r,
                    tile[SCALE + r],
                    tile[FACTOR + r],
                    tile[OFFSET + r],
                    tile[S + r],
                    tile[TOP + r],
                    decision[r],
                    out,
                    weights,
                )
            if weights is not None:
                mark_close(tile, count, limits)
                for r in range(count):
                    if tile[SLOPE + r] > 0.0:
                        enforce_rule(out, start + r, decision[r], weights)
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
            response_tile(etas[k], tile, count, True)
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


def _search(shift, g, g_rest, lower, weight):
    """Return an approximate root of Σ w (s(η) − g) + shift, or zero if there is none nearby.

    The sums are rounded, so the result is a starting point only.
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
    # The two closed forms of the response (see `rule.response`) as one.
    near = eta <= 1.0
    up_0, up_g, up_radius = (0.0, 2.0, 0.0) if near else (eta - 1.0, 0.0, 1.0)
    down_0, down_radius = (1.0 - eta, 1.0) if near else (2.0 * eta, 0.0)
    weighted = weight.shape[0] > 0
    excess = slope = bend = 0.0
    for r in range(_U(g.shape[0])):
        shift = eta + (g[r] - g_rest[r])
        radius = np.sqrt(shift * shift + 4.0 * (g[r] * g_rest[r]))
        # One division instead of two: divisions limit this loop.
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
def row_pass(input_dtype: str, output_dtype: str, weighted: bool = False) -> Kernel:
    """Return the compiled pass over rows of float64 or float32, for any served output."""
    kind, vector = KINDS[input_dtype], output_array(F64, 1)
    signature = types.int64(
        input_array(kind, 2),
        input_array(kind, 2),
        input_array(types.intp, 1),
        input_array(F64, 2) if weighted else types.none,
        F64,
        input_array(F64, 1),
        output_array(KINDS[output_dtype], 2),
        vector,
        vector,
        vector,
        output_array(F64, 2),
        vector,
        output_array(types.int64, 1),
    )
    return Kernel(_pass, signature)


@functools.cache
def probe() -> Kernel:
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
    return Kernel(_probe, signature)


@functools.cache
def search() -> Kernel:
    """Return the compiled search for about the shared scalar."""
    vector = input_array(F64, 1)
    return Kernel(_search, F64(F64, vector, vector, vector, vector))
