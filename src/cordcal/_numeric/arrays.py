"""Arrays of any library: namespace, dtype, tie rule, the way to NumPy, and blocks of rows."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import array_api_compat
import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.types import Array, Matrix

# Unit roundoff of each dtype we serve: half the gap between 1 and its successor.
UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def namespace(*arrays: Array) -> Any:
    """Return the array namespace the arrays share; NumPy for lists and data frames."""
    foreign = [x for x in arrays if not isinstance(x, (np.ndarray, np.generic))]
    if not foreign:
        return np
    foreign = [x for x in foreign if array_api_compat.is_array_api_obj(x)]
    if not foreign:
        return np
    try:
        return array_api_compat.array_namespace(*foreign)
    except TypeError as error:
        kinds = ", ".join(sorted({type(x).__module__.split(".")[0] for x in foreign}))
        raise TypeError(f"arrays of different libraries were mixed ({kinds}); pass one kind") from (
            error
        )


def is_count(value: Any) -> bool:
    """Whether a value is a positive integer, of Python or of NumPy."""
    return isinstance(value, int | np.integer) and value is not True and bool(value >= 1)


def is_dask(*values: Any) -> bool:
    """Whether any of the values is a dask collection, told without importing dask."""
    return any(type(value).__module__.split(".")[0] == "dask" for value in values)


def dtype_name(dtype: Any) -> str:
    """Return the bare name of a dtype: ``float32`` for NumPy's, torch's and JAX's alike."""
    if isinstance(dtype, np.dtype):
        return _numpy_name(dtype)
    if isinstance(dtype, str):
        return dtype
    try:
        return str(np.dtype(dtype).name)
    except TypeError:
        return str(dtype).rsplit(".", 1)[-1]


@functools.cache
def _numpy_name(dtype: np.dtype[Any]) -> str:
    # NumPy makes the name up anew each time it is asked for, in ten microseconds.
    return str(dtype.name)


def wide_dtype(xp: Any, like: Array | None = None) -> Any:
    """Return float64, or float32 where the library or the device has nothing wider."""
    if xp is np:
        return np.float64
    device = None if like is None else str(array_api_compat.device(like))
    if device is not None and device.startswith("mps"):
        return xp.float32
    # JAX without its x64 mode answers a request for float64 with float32 and a warning.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xp.asarray(0.0, dtype=xp.float64).dtype


def to_numpy(values: Any, name: str = "the array") -> npt.NDArray[Any]:
    """Return any array as a NumPy array on the CPU; ``name`` is what a refusal calls it."""
    if type(values) is np.ndarray:
        return values
    refuse_masked(values, name)
    if array_api_compat.is_torch_array(values):
        values = values.detach().cpu()
        if dtype_name(values.dtype) == "bfloat16":  # NumPy has no bfloat16
            values = values.float()
        return np.asarray(values.numpy())
    array = _from_arrow(values) if hasattr(values, "to_batches") else np.asarray(values)
    if array.dtype == object and hasattr(values, "to_numpy"):
        return _without_missing(values, array)
    return array


def refuse_masked(values: Any, name: str) -> None:
    """Refuse a masked array with masked entries, whose values are not to be used.

    Examples
    --------
    >>> refuse_masked(np.ma.array([0, 1], mask=[False, True]), "labels")
    Traceback (most recent call last):
        ...
    cordcal.InputError: labels: row 1 is masked; drop such rows from every argument ...
    """
    masked = sys.modules.get("numpy.ma")  # whoever has a masked array has loaded it
    if masked is None or type(values) is np.ndarray:
        return
    if isinstance(values, list | tuple):  # np.asarray forgets the masks of single rows
        if not any(issubclass(kind, masked.MaskedArray) for kind in set(map(type, values))):
            return
        rows = [row for row, each in enumerate(values) if masked.is_masked(each)]
        vector = all(np.ndim(values[row]) == 0 for row in rows)
    elif masked.is_masked(values):
        flags = np.atleast_1d(masked.getmaskarray(values))
        rows = np.flatnonzero(flags.reshape(len(flags), -1).any(axis=1)).tolist()
        vector = flags.ndim == 1
    else:
        return
    if rows:
        raise InputError(
            name,
            "has masked entries",
            "drop such rows from every argument (numpy.ma.getmaskarray tells which they are), or "
            "fill them in",
            rows=rows,
            detail="is masked" if vector else None,
        )


def _from_arrow(table: Any) -> npt.NDArray[Any]:
    """Return an Arrow table's columns side by side; what is missing is NaN."""
    return np.column_stack([column.to_numpy() for column in table.columns])


def _without_missing(values: Any, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return pandas' nullable numbers as floats, missing ones as NaN; words as they are."""
    try:
        return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
    except (TypeError, ValueError):
        return array


def first_argmax(array: Array, *, xp: Any = None) -> Array:
    """Return each row's largest entry's index, the smallest index on ties (the paper's rule).

    Examples
    --------
    >>> import numpy as np
    >>> first_argmax(np.array([[0.4, 0.4, 0.2], [0.1, 0.2, 0.7]]))
    array([0, 2])
    """
    xp = namespace(array) if xp is None else xp
    if xp is np:
        return np.argmax(array, axis=1)
    # Other libraries leave the choice among ties open, so it is spelled out.
    columns = xp.arange(array.shape[1], device=array.device)
    top = array == xp.max(array, axis=1, keepdims=True)
    return xp.min(xp.where(top, columns[None, :], array.shape[1]), axis=1)


def stacklevel_outside_package() -> int:
    """Return the stacklevel that points a warning at the caller's own line."""
    frame, level = sys._getframe(1), 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith("cordcal"):
        frame, level = frame.f_back, level + 1  # type: ignore[assignment]
    return level


# 2 MB of float64: a block and its buffer stay in the cache, and NumPy's calls cost nothing.
BLOCK_ENTRIES = 2**18


def row_blocks(rows: int, classes: int, *, least: int = 1) -> Iterator[slice]:
    """Yield slices of rows that hold about 2 MB of float64 each, and ``least`` rows or more."""
    size = max(least, BLOCK_ENTRIES // classes)
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


def block_buffer(rows: int, classes: int) -> Matrix:
    """Return room for one block: reusing it spares the system a fresh page for every entry."""
    return np.empty((min(rows, max(1, BLOCK_ENTRIES // classes)), classes))
