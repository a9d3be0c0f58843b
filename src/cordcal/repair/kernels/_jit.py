"""How functions are compiled: one decorator, the array types of the kernels, output rounding."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

from cordcal.repair import rule
from cordcal.repair.kernels import preparing
from cordcal.repair.kernels._simd import double_bits, write_scaled

# NumPy's error model: a division by zero gives an infinity, not a check and an exception,
# which would keep the loops from being vectorised.
# Functions called only by kernels need no wrappers, which take longer to compile than they do.
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


class Kernel:
    """A function for one signature, loaded or compiled on demand.

    Parameters
    ----------
    function : callable
        The function to compile.
    signature : numba signature
        Its argument types.

    Attributes
    ----------
    ready : callable or None
        The compiled function, once `get` has prepared it.
    cached : bool
        Whether `get` took it from numba's cache.
    folder : str or None
        The folder of the cache; None if it cannot be written.
    """

    def __init__(self, function: Callable[..., Any], signature: Any) -> None:
        self.function, self.signature = function, signature
        self.ready: Callable[..., Any] | None = None
        self.cached = False
        self.folder: str | None = None

    def get(self) -> Callable[..., Any]:
        """Return the compiled function, through numba's cache where that can be written."""
        if self.ready is None:
            with _lock, preparing():
                if self.ready is None:
                    self.ready = self._compiled()
        return self.ready

    def _compiled(self) -> Callable[..., Any]:
        dispatcher = self._dispatcher(cache=True)
        if dispatcher is not None:
            self.cached = _in_cache(dispatcher, self.signature)  # clears a damaged cache
            try:
                function = _compile(dispatcher, self.signature)
                self.folder = dispatcher.stats.cache_path
                return function
            except OSError:
                pass  # the disk is full, or the folder went away
        return _compile(self._dispatcher(cache=False), self.signature)

    def _dispatcher(self, *, cache: bool) -> Any:
        """Return what numba compiles with; None where no folder for a cache can be written."""
        # numba looks only at the file of the function itself to tell whether a cached kernel
        # is stale; the name carries a digest of everything it is built from.
        self.function.__qualname__ = f"{self.function.__name__}_{_digest()}"
        try:
            return njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True, cache=cache)(
                self.function
            )
        except (RuntimeError, OSError):
            return None


# Two threads that want a kernel at once must not both compile it.
_lock = threading.RLock()


def _in_cache(dispatcher: Any, signature: Any) -> bool:
    """Whether numba's cache has this kernel; a cache that cannot be read is emptied."""
    cache = dispatcher._cache
    try:
        return cache.load_overload(signature, dispatcher.targetctx) is not None
    except Exception:
        # A truncated file gives whatever error its first missing byte leads to.
        with contextlib.suppress(OSError):
            cache.flush()
        return False


def _compile(dispatcher: Any, signature: Any) -> Callable[..., Any]:
    dispatcher.compile(signature)
    dispatcher.disable_compile()
    function: Callable[..., Any] = dispatcher
    return function


@functools.cache
def _digest() -> str:
    """Return a short digest of the sources and the numbers that kernels are compiled from."""
    constants = sorted((name, value) for name, value in vars(rule).items() if name.isupper())
    digest = hashlib.sha256(repr(constants).encode())
    for path in sorted(Path(__file__).parent.glob("_*.py")):
        if path.name not in ("__init__.py", "_engine.py"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def rounded(value, out):
    """Round a double to the dtype of ``out``; half precision is stored as its bits."""


def above(value, out):
    """Return the next representable number above a non-negative one."""


def below(value, out):
    """Return the next representable number below a positive one."""


def widened(value, out):
    """Return a number of the dtype of ``out`` as a double."""


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


@overload(below, inline="always")
def _below_of(value, out):
    if out.dtype == types.uint16:
        return lambda value, out: np.uint16(value - 1)
    if out.dtype == types.float32:
        return lambda value, out: np.nextafter(value, np.float32(0.0))
    return lambda value, out: np.nextafter(value, 0.0)


@overload(widened, inline="always")
def _widened_from(value, out):
    if out.dtype != types.uint16:
        return lambda value, out: np.float64(value)

    def half(value, out):
        exponent, mantissa = np.int64(value) >> 10, np.int64(value) & 1023
        if exponent == 0:
            return mantissa * 2.0**-24
        return math.ldexp(1024.0 + mantissa, int(exponent - 25))

    return half
