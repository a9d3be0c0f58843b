"""The compiled kernels: the row rule of CORD without (n, K) temporaries, and the search.

Rows are processed in tiles, and each tile in phases, with the same bits as ``rule.py``: each of
the first functions does one phase for all rows of a tile, whose numbers lie in the scratch space
of ``_scan.py``.  The scalar arithmetic of many rows is one vector loop this way.  Kernels never
raise: at an invalid row they return the first row of its tile, and the array engine raises the
error.

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
    above,
    below,
    compiled,
    input_array,
    output_array,
    reassociated,
    rounded,
    widened,
    write_row_scaled,
)
from cordcal.repair.kernels._scan import (
    B_REST,
    FACTOR,
    FOUR,
    G_REST,
    HEAVIEST,
    INVERSE,
    LEAST,
    LOWER,
    MARGIN,
    MASS,
    NARROW,
    OFFSET,
    OWN,
    P_LEAST,
    P_MASS,
    P_REST,
    P_SUM,
    REST,
    RIVAL,
    S_REST,
    SCALE,
    SIZE,
    SLACK,
    SLOPE,
    TILE,
    TOP,
    WEIGHTS,
    B,
    G,
    S,
    scan_four_predictions,
    scan_four_without,
    scan_pair,
    scan_prediction,
    scan_unweighted,
    scan_without,
)
from cordcal.repair.kernels._simd import first_equal
from cordcal.repair.kernels._sums import plain_sum
from cordcal.repair.rule import DELTA, EPSILON, RAISED_STEPS, TINY_TAIL, TINY_TAIL_SCALE

_U = np.uintp
_W, _INVERSE, _NARROW = _U(WEIGHTS), _U(INVERSE), _U(NARROW)

# A tile of both inputs (16 bytes an entry) stays in the second-level cache, where rows that
# were reduced are read again to be rebuilt.
_TILE_ENTRIES = 2**14

# Up to this many classes four rows at a time are faster than one (AVX2, both dtypes).
_SHORT_CLASSES = 48


@compiled
def tile_rows(classes):
    return min(_U(TILE), max(_U(2), _U(_TILE_ENTRIES) // classes))


@compiled
def reduce_tile(p, q, keep, weights, start, stop, tile, prediction):
    """Phase 1: one pass over each row of both inputs."""
    reduced = start
    if _U(q.shape[1]) <= _U(_SHORT_CLASSES):
        reduced = _reduce_by_four(p, q, keep, weights, start, stop, tile, prediction)
    if reduced < stop:
        _reduce_one_by_one(p, q, keep, weights, start, reduced, stop, tile, prediction)


@compiled
def _reduce_by_four(p, q, keep, weights, start, stop, tile, prediction):
    """Reduce short rows four at a time; return the first of the remaining rows."""
    has_prediction = keep.shape[0] > 0
    i = start
    while i + _U(FOUR) <= stop:
        r = i - start
        scan_four_predictions(p, i, tile, r, prediction)
        if has_prediction:
            for lane in range(_U(FOUR)):
                prediction[r + lane] = _U(keep[i + lane])
        scan_four_without(q, i, tile, r, prediction, weights)
        for lane in range(_U(FOUR)):
            tile[MASS + r + lane] = np.float64(q[i + lane, prediction[r + lane]])
        i += _U(FOUR)
    return i


@compiled
def _reduce_one_by_one(p, q, keep, weights, start, first, stop, tile, prediction):
    """Reduce the rows from ``first`` on: each direct row together with the next original one."""
    has_prediction = keep.shape[0] > 0
    p_sum, a, p_least = scan_prediction(p, first)
    for i in range(first, stop):
        r = i - start
        if has_prediction:
            a = _U(keep[i])
        prediction[r] = a
        tile[P_SUM + r] = p_sum
        tile[P_LEAST + r] = p_least
        tile[MASS + r] = np.float64(q[i, a])
        if i + _U(1) < stop:
            rest, top, least, p_sum, a, p_least = scan_pair(q, i, a, weights, p, i + _U(1))
        else:
            rest, top, least = scan_without(q, i, a, weights)
        tile[REST + r] = rest
        tile[TOP + r] = top
        tile[LEAST + r] = least


@compiled
def check_tile(tile, rows, limits, worst):
    """Phase 2: return how many rows are invalid; record the largest deviations to warn about.

    ``limits`` holds the tolerated deviations of a sum from one, for the original and for the
    direct rows, and those that need no warning.
    """
    invalid = inexact_p = inexact_q = 0
    tol_p, tol_q, fair_p, fair_q = limits[0], limits[1], limits[2], limits[3]
    for r in range(rows):
        p_off = abs(tile[P_SUM + r] - 1.0)
        q_off = abs(tile[MASS + r] + tile[REST + r] - 1.0)
        # Written so that a NaN or an infinity, which spoils the sum, fails the comparison.
        fine = (p_off <= tol_p) & (q_off <= tol_q)
        fine &= (tile[P_LEAST + r] >= 0.0) & (tile[LEAST + r] >= 0.0)
        invalid += not fine
        inexact_p += p_off > fair_p
        inexact_q += q_off > fair_q
    if inexact_p + inexact_q > 0:  # a maximum does not vectorise, so it runs only if needed
        for r in range(rows):
            worst[0] = max(worst[0], abs(tile[P_SUM + r] - 1.0))
            worst[1] = max(worst[1], abs(tile[MASS + r] + tile[REST + r] - 1.0))
    return invalid


@compiled
def mark_changed(p, q, weights, start, rows, tile, prediction):
    """Phase 3: find the rows whose direct prediction is another class; return how many.

    P_MASS is the original's normalised mass on the prediction there, and -1 in the other rows.
    """
    classes = _U(q.shape[1])
    changed = 0
    for r in range(rows):
        tile[P_MASS + r] = -1.0
        i, a = start + r, prediction[r]
        own = tile[MASS + r] if weights is None else tile[MASS + r] * tile[OWN + r]
        if tile[TOP + r] < own:
            continue
        if tile[TOP + r] == own and _first_largest(q, i, own, weights) == a:
            continue
        changed += 1
        p_mass, p_least = np.float64(p[i, a]), tile[P_LEAST + r]
        if weights is None:
            p_rest, _, _ = scan_without(p, i, a, None)
        else:
            p_rest, _, p_least = scan_unweighted(p, i, a, weights)
            p_mass = p_mass * weights[_INVERSE, a]
        scale, offset = 1.0, 0.0
        if p_least == 0.0:
            scale, offset = (1.0 - DELTA) / (p_mass + p_rest), DELTA / classes
        elif p_rest < TINY_TAIL:
            scale = TINY_TAIL_SCALE
        p_mass = scale * p_mass + offset
        p_rest = scale * p_rest + offset * (classes - _U(1))
        tile[P_MASS + r] = p_mass / (p_mass + p_rest)
        tile[P_REST + r] = p_rest / (p_mass + p_rest)
    return changed


@compiled
def _first_largest(q, i, value, weights):
    """Return the first class whose entry, times its weight if there are weights, is ``value``."""
    if weights is None:
        return first_equal(q, i, _U(0), value)
    for j in range(_U(q.shape[1])):
        if np.float64(q[i, j]) * weights[_W, j] == value:
            return j
    return _U(q.shape[1])


@compiled
def look_up_weights(weights, rows, tile, prediction):
    """Store the class weights of the predictions."""
    for r in range(rows):
        tile[OWN + r] = weights[_W, prediction[r]]


@compiled
def weigh_tiny_tails(q, weights, start, rows, tile, prediction):
    """Multiply tiny tails by the class weights again, after scaling them."""
    tiny = 0
    for r in range(rows):  # without branches, because there is hardly ever such a row
        tiny += (tile[REST + r] < TINY_TAIL) & (tile[LEAST + r] > 0.0)
    if tiny == 0:
        return
    for r in range(rows):
        if tile[REST + r] < TINY_TAIL and tile[LEAST + r] > 0.0:
            tile[TOP + r] = 0.0
            for j in range(_U(q.shape[1])):
                if j != prediction[r]:
                    product = (np.float64(q[start + r, j]) * TINY_TAIL_SCALE) * weights[_W, j]
                    tile[TOP + r] = max(tile[TOP + r], product)


@compiled
def describe_tile(tile, rows, classes, limits, weights):
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
        if weights is None:
            top, bottom = scale * top + offset, rest
        else:
            top = (scale if boundary else 1.0) * top + offset * limits[HEAVIEST]
            tile[RIVAL + r], bottom = top, tile[OWN + r] * rest
        total = mass + rest
        b, b_rest = mass / total, rest / total
        same = tile[P_MASS + r] < 0.0
        tile[G + r] = b if same else 0.5 * b + 0.5 * tile[P_MASS + r]
        tile[G_REST + r] = b_rest if same else 0.5 * b_rest + 0.5 * tile[P_REST + r]
        tile[LOWER + r] = top / (top + bottom) + EPSILON
        tile[B + r] = b
        tile[B_REST + r] = b_rest
        tile[SCALE + r] = scale
        tile[OFFSET + r] = offset
        tile[REST + r] = rest


@compiled
def response_tile(eta, tile, rows, sloped):
    """Phase 5: the clipped response and, if ``sloped``, its slope (see `rule.response`)."""
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
        if sloped:
            rise = mass * rest / tile[SLOPE + r]
            tile[SLOPE + r] = 0.0 if under | over else rise
        mass = 1.0 - EPSILON if over else mass
        rest = EPSILON if over else rest
        tile[S + r] = lower if under else mass
        tile[S_REST + r] = 1.0 - lower if under else rest


@compiled
def factor_tile(eta, tile, rows, limits):
    """Compute the factor from the tail of the stabilised copy to the repaired one."""
    fair = limits[3]
    for r in range(rows):
        factor = tile[S_REST + r] / tile[REST + r]
        tile[FACTOR + r] = factor
        tile[OFFSET + r] *= factor
    if eta == 0.0:
        for r in range(rows):
            inside = tile[B + r] >= tile[LOWER + r] and tile[B_REST + r] >= EPSILON
            whole = abs(tile[MASS + r] + tile[REST + r] - 1.0) <= fair
            if inside and whole and tile[LEAST + r] > 0.0:  # bit for bit
                tile[SCALE + r], tile[FACTOR + r] = 1.0, 1.0
                tile[S + r] = tile[MASS + r]


@compiled
def mark_close(tile, rows, limits):
    """Mark the rows in which rounding could make another class first under the class weights."""
    for r in range(rows):
        bound = (tile[RIVAL + r] * tile[FACTOR + r]) * limits[MARGIN] + limits[SLACK]
        tile[SLOPE + r] = 0.0 if tile[OWN + r] * tile[S + r] > bound else 1.0


@compiled
def enforce_rule(out, i, a, weights):
    """Do what `rule.enforce_rule` does, to one row."""
    mass, top, narrow_top = out[i, a], -1.0, rounded(0.0, out)
    for j in range(_U(out.shape[1])):
        if j != a:
            value = widened(out[i, j], out)
            top = max(top, weights[_W, j] * value)
            narrow_top = max(narrow_top, rounded(weights[_NARROW, j] * value, out))
    for step in range(RAISED_STEPS + 1):
        value = widened(mass, out)
        own, narrow = weights[_W, a] * value, rounded(weights[_NARROW, a] * value, out)
        if own > top and narrow > narrow_top:
            out[i, a] = mass
            return
        if step == 0 and value > 0.5:
            break
        mass = above(mass, out)
    value = widened(out[i, a], out)
    own, narrow = weights[_W, a] * value, rounded(weights[_NARROW, a] * value, out)
    for j in range(_U(out.shape[1])):
        entry = out[i, j]
        while j != a and entry > 0:
            value = widened(entry, out)
            if weights[_W, j] * value < own and rounded(weights[_NARROW, j] * value, out) < narrow:
                break
            entry = below(entry, out)
        out[i, j] = entry


@compiled
def write_row(q, i, scale, factor, offset, mass, top, a, out, weights):
    """Phase 6: rebuild one row in the output dtype, the prediction strictly the largest.

    With class weights `enforce_rule` makes it the first afterwards.
    The arguments are numbers, not the tile, which LLVM would reload after each store to ``out``.
    """
    write_row_scaled(q, i, scale, factor, offset, out, i)
    decided = rounded(mass, out)
    if weights is None:
        # Rounding preserves order, so the largest rival is the rounded largest entry.
        rival = rounded((top * scale) * factor + offset, out)
        decided = decided if decided > rival else above(rival, out)
    out[i, a] = decided


# Whole passes over the rows, and the search.

# Halley's error is the third power of the last step: below this it is finer than the grid.
_CLOSE = 2.0**-17
# Two or three steps suffice on most data; more than this is not worth the time.
_STEPS = 8


def _pass(p, q, keep, weights, eta, limits, out, g, g_rest, lower, summed, worst, changed):
    """Go through all rows once: repair them into ``out``, or describe them if it has no rows.

    A description is the vectors of a construction and, in ``summed``, the summands b, lower and
    g − b.  ``worst`` receives the largest deviations of original and direct sums that need a
    warning, ``changed`` how many predictions changed.  ``weights`` are the class weights of a
    prediction rule in the rows of `_scan`, or None, which removes their branches.  Returns the
    first row of a tile with an invalid row, or -1.
    """
    rows, classes = _U(q.shape[0]), _U(q.shape[1])
    size = tile_rows(classes)
    tile = np.empty(SIZE)
    prediction = np.empty(TILE, np.uintp)
    start = _U(0)
    while start < rows:
        stop = min(start + size, rows)
        count = stop - start
        reduce_tile(p, q, keep, weights, start, stop, tile, prediction)
        if check_tile(tile, count, limits, worst) > 0:
            return np.int64(start)
        if weights is not None:
            look_up_weights(weights, count, tile, prediction)
        changed[0] += mark_changed(p, q, weights, start, count, tile, prediction)
        if weights is not None:
            weigh_tiny_tails(q, weights, start, count, tile, prediction)
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
                    prediction[r],
                    out,
                    weights,
                )
            if weights is not None:
                mark_close(tile, count, limits)
                for r in range(count):
                    if tile[SLOPE + r] > 0.0:
                        enforce_rule(out, start + r, prediction[r], weights)
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
