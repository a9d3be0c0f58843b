"""Arrays of any library: namespaces, dtypes, conversion to NumPy, blocks and sums of rows."""

from __future__ import annotations

import functools
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import array_api_compat
import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.types import (
    Array,
    ArrayLike,
    DType,
    Matrix,
    Namespace,
    NumPyArray,
    NumPyDType,
    Vector,
)

# Unit roundoff of each supported dtype: half the gap between 1 and the next number.
UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def namespace(*arrays: Array) -> Namespace:
    """Return the common array namespace; NumPy for lists and data frames."""
    others = [array for array in arrays if not isinstance(array, (np.ndarray, np.generic))]
    if not others:
        return np
    others = [array for array in others if array_api_compat.is_array_api_obj(array)]
    if not others:
        return np
    try:
        return array_api_compat.array_namespace(*others)
    except TypeError as error:
        libraries = ", ".join(sorted({type(array).__module__.split(".")[0] for array in others}))
        raise TypeError(
            f"arrays of different libraries were mixed ({libraries}); pass one kind"
        ) from error


def is_count(value: object) -> bool:
    """Whether a value is a positive integer, of Python or of NumPy."""
    return isinstance(value, int | np.integer) and value is not True and bool(value >= 1)


def is_dask(*values: ArrayLike) -> bool:
    """Whether any of the values is a dask collection, without importing dask."""
    return any(type(value).__module__.split(".")[0] == "dask" for value in values)


def dtype_name(dtype: DType) -> str:
    """Return the name of a dtype of any library: ``float32`` for NumPy, torch and JAX."""
    if isinstance(dtype, np.dtype):
        return _numpy_name(dtype)
    if isinstance(dtype, str):
        return dtype
    try:
        return str(np.dtype(dtype).name)
    except TypeError:
        return str(dtype).rsplit(".", 1)[-1]


@functools.cache
def _numpy_name(dtype: NumPyDType) -> str:
    # Cached, because NumPy takes ten microseconds to build the name.
    return str(dtype.name)


def wide_dtype(xp: Namespace, like: Array | None = None) -> DType:
    """Return float64, or float32 if the library or the device has nothing wider."""
    if xp is np:
        return np.float64
    device = None if like is None else str(array_api_compat.device(like))
    if device is not None and device.startswith("mps"):
        return xp.float32
    # JAX without x64 mode returns float32 for float64, with a warning.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xp.asarray(0.0, dtype=xp.float64).dtype


def to_numpy(values: ArrayLike, name: str = "the array") -> NumPyArray:
    """Return any array as a NumPy array on the CPU; ``name`` is the argument's name in errors."""
    if type(values) is np.ndarray:
        return values
    refuse_masked(values, name)
    if array_api_compat.is_torch_array(values):
        values = values.detach().cpu()
        if dtype_name(values.dtype) == "bfloat16":  # NumPy has no bfloat16
            values = values.float()
        return np.asarray(values.numpy())
    if hasattr(values, "to_batches"):  # an Arrow table; missing entries become NaN
        array = np.column_stack([column.to_numpy() for column in values.columns])
    else:
        array = np.asarray(values)
    if array.dtype == object and hasattr(values, "to_numpy"):
        # pandas' nullable numbers become floats, missing ones NaN; text stays as it is.
        with suppress(TypeError, ValueError):
            return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
    return array


def array_like(values: NumPyArray, like: ArrayLike) -> Array:
    """Return a NumPy array as an array of the library, and on the device, of another one.

    Lists and data frames count as NumPy's.
    """
    xp = namespace(like)
    return values if xp is np else xp.asarray(values, device=array_api_compat.device(like))


def refuse_masked(values: ArrayLike, name: str) -> None:
    """Refuse a masked array with masked entries: their values must not be used.

    Examples
    --------
    >>> refuse_masked(np.ma.array([0, 1], mask=[False, True]), "labels")
    Traceback (most recent call last):
        ...
    cordcal.InputError: labels: row 1 is masked; drop such rows from every argument ...
    """
    # A masked array exists only once numpy.ma is loaded; another thread may be loading it now.
    masked: Any = sys.modules.get("numpy.ma")
    if type(values) is np.ndarray or not hasattr(masked, "is_masked"):
        return
    if isinstance(values, list | tuple):  # np.asarray drops the masks of single rows
        if not any(issubclass(kind, masked.MaskedArray) for kind in set(map(type, values))):
            return
        rows = [row for row, value in enumerate(values) if masked.is_masked(value)]
        is_vector = all(np.ndim(values[row]) == 0 for row in rows)
    elif masked.is_masked(values):
        flags = np.atleast_1d(masked.getmaskarray(values))
        rows = np.flatnonzero(flags.reshape(len(flags), -1).any(axis=1)).tolist()
        is_vector = flags.ndim == 1
    else:
        return
    if rows:
        raise InputError(
            name,
            "has masked entries",
            "drop such rows from every argument (numpy.ma.getmaskarray finds them), or "
            "fill them in",
            rows=rows,
            detail="is masked" if is_vector else None,
        )


def first_argmax(array: Array, *, xp: Namespace | None = None) -> Array:
    """Return the argmax per row, the smallest index on ties (the paper's rule).

    Examples
    --------
    >>> import numpy as np
    >>> first_argmax(np.array([[0.4, 0.4, 0.2], [0.1, 0.2, 0.7]]))
    array([0, 2])
    """
    xp = namespace(array) if xp is None else xp
    if xp is np:
        return np.argmax(array, axis=1)
    # Other libraries do not specify which index they return on ties.
    columns = xp.arange(array.shape[1], device=array.device)
    top = array == xp.max(array, axis=1, keepdims=True)
    return xp.min(xp.where(top, columns[None, :], array.shape[1]), axis=1)


# 2 MB of float64: a block and its buffer stay in the cache, and call overhead is negligible.
BLOCK_ENTRIES = 2**18


def row_blocks(
    rows: int,
    classes: int,
    *,
    least: int = 1,
    most: int = BLOCK_ENTRIES,
    entries: int = BLOCK_ENTRIES,
) -> list[slice]:
    """Return slices of rows with about 2 MB of float64 each, or this many entries.

    They have at least ``least`` and at most ``most`` rows, except for the last one.
    """
    size = min(max(least, entries // classes), most)
    if 0 < rows <= size:
        return [slice(0, rows)]
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def row_blocks_of(rows: slice, classes: int, least: int = 1) -> list[slice]:
    """Return the blocks of a slice of rows; see `row_blocks`."""
    start, stop = rows.start, rows.stop
    blocks = row_blocks(stop - start, classes, least=least)
    return [slice(start + block.start, start + block.stop) for block in blocks]


class _Scratch(threading.local):
    """Buffers that this thread is not using now."""

    def __init__(self) -> None:
        self.buffers: list[Vector] = []


_scratch = _Scratch()
_SCRATCH_ENTRIES = 2**18


@contextmanager
def scratch(entries: int) -> Iterator[Vector]:
    """Lend memory for this many numbers; its content is undefined.

    A thread reuses it in later calls: the system charges a page fault for every 4 kB of fresh
    memory, which costs more than to read and to write it.

    Examples
    --------
    >>> with scratch(3) as numbers:
    ...     numbers.shape
    (3,)
    """
    if entries > _SCRATCH_ENTRIES:
        yield np.empty(entries)
        return
    buffer = _scratch.buffers.pop() if _scratch.buffers else np.empty(_SCRATCH_ENTRIES)
    try:
        yield buffer[:entries]
    finally:
        _scratch.buffers.append(buffer)


def block_buffer(rows: int, classes: int) -> Matrix:
    """Return a buffer for one block; reusing it avoids page faults on fresh memory."""
    return np.empty((min(rows, max(1, BLOCK_ENTRIES // classes)), classes))


def softmax(scores: NumPyArray) -> npt.NDArray[np.float64]:
    """Return row-wise softmax in float64.

    Examples
    --------
    >>> import numpy as np
    >>> softmax(np.array([[0.0, np.log(3.0)]]))
    array([[0.25, 0.75]])
    """
    z: npt.NDArray[np.float64] = np.asarray(scores, dtype=np.float64)
    z = np.subtract(z, z.max(axis=1, keepdims=True))
    np.exp(z, out=z)
    z /= z.sum(axis=1, keepdims=True)
    return z


def row_digests(scores: NumPyArray, seed: int = 0) -> npt.NDArray[np.uint64]:
    """Return a pseudo-random number per row that depends only on its scores and the seed.

    Equal numbers have equal digests, whatever their dtype, and −0 is 0.

    Examples
    --------
    >>> digests = row_digests(np.array([[0.0, 1.0], [0.5, 0.5], [-0.0, 1.0]]))
    >>> bool(digests[0] == digests[2]), bool(digests[0] == digests[1])
    (True, False)
    """
    keys = np.random.SeedSequence(seed).generate_state(scores.shape[1], np.uint64) | np.uint64(1)
    digest = np.empty(len(scores), dtype=np.uint64)
    for at in row_blocks(*scores.shape):
        bits = (scores[at].astype(np.float64, order="C") + 0.0).view(np.uint64)
        # Short numbers end in zeros, and products never reach lower bits.
        bits ^= bits >> np.uint64(32)
        digest[at] = bits @ keys
    return digest
