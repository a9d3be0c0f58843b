"""Exact sums of vectors, compiled: three doubles that never round, and integer bins.

The result goes to `ExactSum` (see ``_engine.exact_sums``).
"""

from __future__ import annotations

import functools

import numpy as np
from numba import types

from cordcal.repair.kernels._jit import (
    F64,
    Kernel,
    compiled,
    input_array,
    output_array,
    reassociated,
)
from cordcal.repair.kernels._scan import TILE
from cordcal.repair.kernels._simd import double_bits

_U = np.uintp

# A tile's parts, one stretch for each level and one for what is left.
_PART_1, _PART_2, _PART_3, _LEFT = (_U(i * TILE) for i in range(4))

# Each summand is split at these magnitudes (error-free extraction): with at most SUM_ROWS
# summands below 2 in absolute value, the parts of each level add up without rounding.
# Units are 2^-36, 2^-72 and 2^-108 (see `ExactSum.of_levels`); what is below goes to the bins.
_LEVEL_1 = 1.5 * 2.0**16
_LEVEL_2 = 1.5 * 2.0**-20
_LEVEL_3 = 1.5 * 2.0**-56


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


@compiled
def _parts(value):
    """Split a value into three parts on fixed grids and what is left, without error."""
    part_1 = (_LEVEL_1 + value) - _LEVEL_1
    value -= part_1
    part_2 = (_LEVEL_2 + value) - _LEVEL_2
    value -= part_2
    part_3 = (_LEVEL_3 + value) - _LEVEL_3
    return part_1, part_2, part_3, value - part_3


@compiled
def _extract(values, start, rows, tile):
    """Split the values of a tile."""
    for r in range(rows):
        part_1, part_2, part_3, left = _parts(values[start + r])
        tile[_PART_1 + r] = part_1
        tile[_PART_2 + r] = part_2
        tile[_PART_3 + r] = part_3
        tile[_LEFT + r] = left


@reassociated
def plain_sum(tile, at, rows):
    total = 0.0
    for r in range(rows):
        total += tile[at + r]
    return total


@compiled
def _add_vector(values, levels):
    """Add up the values on three levels, as integers; return how many have more below."""
    rows = _U(values.shape[0])
    tile = np.empty(4 * TILE)
    sum_1 = sum_2 = sum_3 = 0.0
    left = 0
    start = _U(0)
    while start < rows:
        count = min(_U(TILE), rows - start)
        _extract(values, start, count, tile)
        # The parts add up without rounding in any order, so these sums may be reassociated.
        sum_1 += plain_sum(tile, _PART_1, count)
        sum_2 += plain_sum(tile, _PART_2, count)
        sum_3 += plain_sum(tile, _PART_3, count)
        for r in range(count):
            left += tile[_LEFT + r] != 0.0
        start += count
    levels[0] = np.int64(sum_1 * 2.0**36)
    levels[1] = np.int64(sum_2 * 2.0**72)
    levels[2] = np.int64(sum_3 * 2.0**108)
    return left


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


def _add_levels(vectors, levels):
    """Add up each vector on three levels; return how many of all entries have more below."""
    left = 0
    for k in range(vectors.shape[0]):
        left += _add_vector(vectors[k], levels[k])
    return left


def _add_bins(vectors, weight, bins):
    """Add up each vector times the weights in bins; without weights, what the levels left."""
    for k in range(vectors.shape[0]):
        for r in range(vectors.shape[1]):
            if weight.shape[0] > 0:
                _add_product(weight[r], vectors[k, r], bins[k])
            else:
                left = _parts(vectors[k, r])[3]
                if left != 0.0:
                    _add_to_bins(left, bins[k])


@functools.cache
def add_levels() -> Kernel:
    """Return the compiled sum of entries down to 2^-108, below which few have digits."""
    return Kernel(_add_levels, types.int64(input_array(F64, 2), output_array(types.int64, 2)))


@functools.cache
def add_bins() -> Kernel:
    """Return the compiled sum of weighted entries, or of what ends below 2^-108."""
    signature = types.void(input_array(F64, 2), input_array(F64, 1), output_array(types.int64, 3))
    return Kernel(_add_bins, signature)
