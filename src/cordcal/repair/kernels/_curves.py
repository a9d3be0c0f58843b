"""Piecewise linear curves, compiled; `cordcal.calibrators._curves` explains them."""

from __future__ import annotations

import functools

import numpy as np
from numba import types

from cordcal.repair.kernels._jit import F64, Kernel, compiled, input_array, output_array
from cordcal.repair.kernels._simd import double_bits

_U = np.uintp
# Entries whose half-lines are counted at a time.
_CHUNK = 64


@compiled
def _by_table(x, begin_x, begin_y, slope, origin, table, low, high, shift):
    """Start each entry's search from a table of its leading bits."""
    next_curve = _U(origin.size > 1)
    for i in range(_U(x.shape[0])):
        for j in range(_U(x.shape[1])):
            value = x[i, j]
            bits = double_bits(min(max(value, low), high))
            at = _U(table[_U(origin[j * next_curve] + (bits >> shift))])
            while begin_x[at + _U(1)] <= value:
                at += _U(1)
            x[i, j] = slope[at] * (value - begin_x[at]) + begin_y[at]


@compiled
def _by_count(x, begin_x, begin_y, slope):
    """Compare all entries with every half-line of one curve, which LLVM vectorises."""
    entries, at = x.reshape(x.size), np.empty(_CHUNK, dtype=np.int64)
    for start in range(0, entries.size, _CHUNK):
        part = entries[start : start + _CHUNK]
        size = _U(part.size)
        for j in range(size):
            at[j] = 0
        for k in range(1, begin_x.size):
            for j in range(size):
                at[j] += part[j] >= begin_x[k]
        for j in range(size):
            k = at[j]
            part[j] = slope[k] * (part[j] - begin_x[k]) + begin_y[k]


@functools.cache
def evaluate() -> Kernel:
    """Return the kernel that evaluates curves in place; an empty table means one short curve."""

    def evaluate_curves(x, begin_x, begin_y, slope, origin, table, low, high, shift):
        if table.size:
            _by_table(x, begin_x, begin_y, slope, origin, table, low, high, shift)
        else:
            _by_count(x, begin_x, begin_y, slope)

    numbers, places = input_array(F64, 1), input_array(types.int64, 1)
    curves = (numbers, numbers, numbers, places, places, F64, F64, types.int64)
    return Kernel(evaluate_curves, types.void(output_array(F64, 2), *curves))
