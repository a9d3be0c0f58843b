"""How functions are compiled: one decorator, the array types of the kernels, output rounding."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

from cordcal.repair._simd import double_bits, write_scaled

# NumPy's error model: a division by zero gives an infinity, not a check and an exception,
# which would keep the loops from being vectorised.
# What only other kernels call needs no wrappers, whose compilation takes longer than its own.
compiled = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
# For sums whose order does not matter: LLVM may then vectorise them.
reassociated = njit(
    nogil=True,
    error_model="numpy",
    no_cpython_wrapper=True,
    no_cfunc_wrapper=True,
    fastmath={"reassoc"},
)

F64, _F32, _U16 = types.float64, types.float32, types.uint16
KINDS = {"float64": F64, "float32": _F32, "float16": _U16}


def input_array(kind: Any, ndim: int) -> Any:
    """Return a read-only C array type; writeable arrays convert, so one compilation serves."""
    return types.Array(kind, ndim, "C", readonly=True)


def output_array(kind: Any, ndim: int) -> Any:
    return types.Array(kind, ndim, "C")


def compile_for(function: Callable[..., Any], signature: Any) -> Callable[..., Any]:
    """Compile a kernel for one signature, through numba's cache where that can be written."""
    # numba looks only at the file of the function itself to tell whether a cached kernel is
    # stale; the name carries a digest of everything it is built from.
    function.__qualname__ = f"{function.__name__}_{_digest()}"
    options = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    try:
        return njit(signature, cache=True, **options)(function)
    except (RuntimeError, OSError):
        # No folder for the cache can be written: compile for this process only.
        return njit(signature, **options)(function)


@functools.cache
def _digest() -> str:
    """Return a short digest of the sources that kernels are compiled from."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("_*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def rounded(value, out):
    """Round a double to the dtype of ``out``; half precision is held as its bits."""


def above(value, out):
    """Return the next representable number above a non-negative one."""


def write_row_scaled(q, r, scale, factor, offset, out, i):
    """Store ``(q[r] * scale) * factor + offset`` to ``out[i]``, rounded to its dtype."""


@overload(write_row_scaled, inline="always")
def _write_scaled_to(q, r, scale, factor, offset, out, i):
    if out.dtype != types.uint16:
        return lambda q, r, scale, factor, offset, out, i: write_scaled(
            q, r, scale, factor, offset, out, i
        )

    def halves(q, r, scale, factor, offset, out, i):
        for j in range(np.uintp(out.shape[1])):
            out[i, j] = rounded((np.float64(q[r, j]) * scale) * factor + offset, out)

    return halves


@overload(rounded, inline="always")
def _rounded_in(value, out):
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


@overload(above, inline="always")
def _above_of(value, out):
    if out.dtype == types.uint16:
        return lambda value, out: np.uint16(value + 1)
    if out.dtype == types.float32:
        return lambda value, out: np.nextafter(value, np.float32(2.0))
    return lambda value, out: np.nextafter(value, 2.0)
