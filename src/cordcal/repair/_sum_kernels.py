"""Exact sums inside the kernels: three doubles that never round, and integer bins.

The result goes to `ExactSum` (see ``_compiled.exact_sum``).
"""

from __future__ import annotations

from cordcal.repair._jit import compiled, inlined, reassociated
from cordcal.repair._simd import double_bits
from cordcal.repair._tile import GAP, LEFT, PART_1, PART_2, PART_3

# Each summand is split at these magnitudes (error-free extraction): with at most SUM_ROWS
# summands below 2 in absolute value, the parts of each level add up without rounding.
# Units are 2^-36, 2^-72 and 2^-108; what is below goes to the bins.
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


@inlined
def _extract(tile, at, rows):
    """Split each value into three parts on fixed grids and what is left, without error."""
    for r in range(rows):
        value = tile[at + r]
        part = (_LEVEL_1 + value) - _LEVEL_1
        value -= part
        tile[PART_1 + r] = part
        part = (_LEVEL_2 + value) - _LEVEL_2
        value -= part
        tile[PART_2 + r] = part
        part = (_LEVEL_3 + value) - _LEVEL_3
        tile[PART_3 + r] = part
        tile[LEFT + r] = value - part


@reassociated
def plain_sum(tile, at, rows):
    total = 0.0
    for r in range(rows):
        total += tile[at + r]
    return total


@compiled
def _add_parts(tile, rows, sums, bins):
    """Add the parts of a tile to an exact sum: three doubles that never round, and the bins."""
    # The parts add up without rounding in any order, so these sums may be reassociated.
    sums[0] += plain_sum(tile, PART_1, rows)
    sums[1] += plain_sum(tile, PART_2, rows)
    sums[2] += plain_sum(tile, PART_3, rows)
    left = 0
    for r in range(rows):
        left += tile[LEFT + r] != 0.0
    if left > 0:
        sums[3] = 1.0
        for r in range(rows):
            if tile[LEFT + r] != 0.0:
                _add_to_bins(tile[LEFT + r], bins)


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


@inlined
def accumulate(tile, at, weight, start, rows, sums, bins):
    """Add a stretch of the tile, weighted if there are weights, to an exact sum."""
    if weight.shape[0] == 0:
        _extract(tile, at, rows)
        _add_parts(tile, rows, sums, bins)
    else:
        sums[3] = 1.0
        for r in range(rows):
            _add_product(weight[start + r], tile[at + r], bins)


@inlined
def gap_tile(tile, mass, rest, reference, reference_rest, rows):
    """Store mass − reference, from the complements where those are the smaller numbers."""
    for r in range(rows):
        above = tile[mass + r] - tile[reference + r]
        below = tile[reference_rest + r] - tile[rest + r]
        tile[GAP + r] = below if tile[rest + r] < tile[mass + r] else above
