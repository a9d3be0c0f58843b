"""What comes through the door: arrays, their dtype, simplex checks, the tie rule, softmax.

Every public function turns its arguments into arrays here, so that an error
about an argument reads the same everywhere: it names the argument, the first
offending row, and what to do.  The checks are written against the array API,
so that NumPy, torch and JAX arrays share them.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Sequence
from typing import Any

import array_api_compat
import numpy as np
import numpy.typing as npt

Array = Any
"""An array of any array-API library: NumPy's, torch's, JAX's."""

Matrix = npt.NDArray[np.floating[Any]]

_FLOAT_DTYPES = ("float64", "float32", "float16", "bfloat16")

# Unit roundoff of each dtype we serve: half the gap between 1 and its successor.
UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}

_SUM_LANES = 8
# Up to here NumPy adds up rows faster chunk by chunk than column by column.
_FEW_ROWS = 16

ROW = re.compile(r"\brow (\d+)\b")
"""How every message names a row."""


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


def column_names(values: Any) -> list[str] | None:
    """Return the columns' names of a data frame, or None for what has none.

    Examples
    --------
    >>> import pandas as pd
    >>> column_names(pd.DataFrame({"cat": [0.4], "dog": [0.6]}))
    ['cat', 'dog']
    """
    columns = getattr(values, "columns", None)
    return None if columns is None else [str(name) for name in columns]


def check_same_columns(
    one: list[str] | None, name: str, other: list[str] | None, than: str
) -> None:
    """Refuse columns of other names, or in another order, where both sides have names."""
    if one is None or other is None or one == other:
        return
    if len(one) != len(other):
        return  # the shapes will be refused, in words of their own
    numbers = [str(at) for at in range(len(one))]
    if numbers in (one, other) and set(one) != set(other):
        return  # a frame made without names
    at = next(at for at in range(len(one)) if one[at] != other[at])
    raise ValueError(
        f"{name} has the column {one[at]!r} where {than} has {other[at]!r}; pass the same classes "
        f"in the same order"
    )


def is_dask(*values: Any) -> bool:
    """Whether any of the values is a dask collection, told without importing dask."""
    return any(type(value).__module__.split(".")[0] == "dask" for value in values)


def dtype_name(dtype: Any) -> str:
    """Return the bare name of a dtype: ``float32`` for NumPy's, torch's and JAX's alike."""
    if isinstance(dtype, np.dtype):
        return _numpy_name(dtype)
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


def as_matrix(values: Any, name: str, *, allow_row: bool = False) -> Array:
    """Return ``values`` as a floating (n, K) array without changing or copying an array.

    Parameters
    ----------
    values : array_like
        A float array, a list of rows, or a data frame whose columns are classes.
    name : str
        The argument's name, for error messages.
    allow_row : bool
        Accept one 1-D row as well; it is returned 1-D.
    """
    xp = namespace(values)
    if xp is np:
        if np.ma.is_masked(values):
            raise ValueError(f"{name} has masked entries; drop these rows, or fill them in")
        array = np.asarray(values)
        if array.dtype.kind in "iub":
            array = array.astype(np.float64)
        if array.dtype.kind != "f":
            raise ValueError(
                f"{name} has dtype {array.dtype}; pass an array of floats, one column a class"
            )
        if array.dtype.itemsize > 8:
            array = array.astype(np.float64)
    else:
        array = values
        if dtype_name(array.dtype) not in _FLOAT_DTYPES:
            raise ValueError(
                f"{name} has dtype {array.dtype}; pass an array of floats, one column a class"
            )
    if array.ndim == 1 and allow_row:
        classes = array.shape[0]
    elif array.ndim == 2:
        classes = array.shape[1]
        if array.shape[0] == 0:
            raise ValueError(f"{name} has no rows; pass at least one")
    else:
        raise ValueError(
            f"{name} has {array.ndim} dimension(s); pass a 2-D array of shape (rows, classes)"
        )
    if classes < 2:
        raise ValueError(f"{name} has {classes} class(es); at least 2 columns are needed")
    return array


def check_same_shape(first: Array, first_name: str, second: Array, second_name: str) -> None:
    """Refuse two matrices that do not describe the same rows and classes."""
    if tuple(first.shape) != tuple(second.shape):
        raise ValueError(
            f"{first_name} has shape {tuple(first.shape)} but {second_name} has shape "
            f"{tuple(second.shape)}; both must hold the same rows and classes"
        )


def first_row(flags: Array) -> int:
    """Return the index of the first true entry of a 1-D boolean array."""
    return int(np.argmax(np.asarray(flags)))


def renumbered(message: str, rows: int | Sequence[int], name: str | None = None) -> str:
    """Return a message about a row of a block, with the row's number in the whole.

    ``rows`` is the number of the block's first row, or the numbers of all its rows; ``name``,
    if given, replaces the argument's name at the head of the message.

    Examples
    --------
    >>> renumbered("scores: row 3 contains NaN; fix it", 1000, "big.parquet (logits)")
    'big.parquet (logits): row 1003 contains NaN; fix it'
    """
    found = ROW.search(message)
    if found is None:
        return message
    start, end = found.span()
    head = message[:start]
    if name is not None:
        head = f"{name}: "
    row = int(found[1])
    return f"{head}row {rows + row if isinstance(rows, int) else rows[row]}{message[end:]}"


def check_entries(array: Array, name: str, *, first: int = 0) -> None:
    """Refuse NaN, infinities and negative numbers, naming the first row that has one.

    ``first`` is the number of the block's first row in the caller's array.
    """
    xp = namespace(array)
    bad = xp.any(~xp.isfinite(array), axis=1)
    if bool(xp.any(bad)):
        row = first_row(bad)
        what = "NaN" if bool(xp.any(xp.isnan(array[row, :]))) else "an infinite value"
        raise ValueError(
            f"{name}: row {first + row} contains {what}; drop or fix such rows before calling"
        )
    negative = xp.any(array < 0, axis=1)
    if bool(xp.any(negative)):
        raise ValueError(negative_message(array, name, first_row(negative), first))


def negative_message(array: Array, name: str, row: int, first: int = 0) -> str:
    """Say which row holds a negative number, and what logits need first."""
    return (
        f"{name}: row {first + row} contains a negative number "
        f"({float(namespace(array).min(array[row, :])):.6g}); pass probabilities. If these are "
        f"logits, apply a softmax first, e.g. scipy.special.softmax({name}, axis=1)"
    )


def sum_tolerance(dtype: Any) -> float:
    """Return how far from one a row of this dtype may sum and still be normalised."""
    # 1e-3 accepts probabilities that were written with three decimals; 8u is what a
    # half-precision softmax needs.
    return max(1e-3, 8.0 * UNIT_ROUNDOFF[dtype_name(dtype)])


def sum_warning_level(dtype: Any, classes: int) -> float:
    """Return the deviation from one above which rounding alone no longer explains it."""
    # K roundings of random sign add up to about u·√K; 32 leaves room for a softmax's own error.
    return 32.0 * UNIT_ROUNDOFF[dtype_name(dtype)] * float(np.sqrt(classes))


def sum_message(name: str, row: int, total: float) -> str:
    """Say which row is not a distribution, and what to do."""
    return (
        f"{name}: row {row} sums to {total:.6g}, not 1; pass whole probability vectors "
        f"(divide each row by its sum if they are unnormalised, or apply a softmax to logits)"
    )


def check_sums(totals: Array, name: str, dtype: Any, *, first: int = 0) -> float:
    """Refuse rows that do not sum to one; return the largest deviation that was accepted."""
    xp = namespace(totals)
    deviation = xp.abs(totals - 1.0)
    bad = deviation > sum_tolerance(dtype)
    if bool(xp.any(bad)):
        row = first_row(bad)
        raise ValueError(sum_message(name, first + row, float(to_numpy(totals[row]))))
    return float(to_numpy(xp.max(deviation)))


def warn_about_sums(deviation: float, name: str, dtype: Any, classes: int) -> None:
    """Warn once when rows deviate from one by more than their dtype explains."""
    if deviation > sum_warning_level(dtype, classes):
        warnings.warn(
            f"{name}: some rows sum to one only within {deviation:.2g}; they are normalised. "
            f"Divide each row by its sum to silence this warning",
            UserWarning,
            stacklevel=_stacklevel_outside_package(),
        )


def _stacklevel_outside_package() -> int:
    """Return the stacklevel that points a warning at the caller's own line."""
    import sys

    frame, level = sys._getframe(1), 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith("cordcal"):
        frame, level = frame.f_back, level + 1  # type: ignore[assignment]
    return level


def check_decisions(
    decision: Any, rows: int, classes: int, name: str = "decision"
) -> npt.NDArray[np.intp]:
    """Return class indices (decisions, labels) as an integer vector of length ``rows``."""
    array = np.atleast_1d(to_numpy(decision))
    if array.ndim != 1 or array.shape[0] != rows:
        raise ValueError(
            f"{name} has shape {array.shape} but there are {rows} rows; "
            f"pass one class index for each row"
        )
    if array.dtype.kind not in "iu":
        if array.dtype.kind != "f" or not np.array_equal(array, np.round(array)):
            raise ValueError(f"{name} has dtype {array.dtype}; pass class indices 0..{classes - 1}")
        array = array.astype(np.int64)
    outside = (array < 0) | (array >= classes)
    if outside.any():
        row = first_row(outside)
        raise ValueError(
            f"{name}: row {row} is {array[row]}, outside 0..{classes - 1}; "
            f"pass column indices, not class names"
        )
    return array.astype(np.intp, copy=False)


def check_weights(sample_weight: Any, rows: int, *, some: bool = True) -> npt.NDArray[np.float64]:
    """Return the sample weights as a float64 vector of length ``rows``.

    With ``some`` at least one must be positive; a batch among others may have none.
    """
    array = np.asarray(to_numpy(sample_weight), dtype=np.float64)
    if array.shape != (rows,):
        raise ValueError(
            f"sample_weight has shape {array.shape} but there are {rows} rows; "
            f"pass one weight for each row"
        )
    bad = ~np.isfinite(array) | (array < 0)
    if bad.any():
        row = first_row(bad)
        raise ValueError(
            f"sample_weight: row {row} is {array[row]}; weights must be finite and not negative"
        )
    if some and not array.any():
        raise ValueError("sample_weight is zero in every row; give at least one row some weight")
    return array


def to_numpy(values: Any) -> npt.NDArray[Any]:
    """Return any array as a NumPy array on the CPU."""
    if array_api_compat.is_torch_array(values):
        values = values.detach().cpu()
        if dtype_name(values.dtype) == "bfloat16":  # NumPy has no bfloat16
            values = values.float()
        return np.asarray(values.numpy())
    return np.asarray(values)


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


def lane_sum(array: Array) -> Array:
    """Sum each row in eight interleaved lanes, then the lanes by halving.

    The order of additions is part of the definition: the compiled kernel adds in
    the same order, so both give the same bits, and the lanes are what a vector
    unit adds fastest.

    Examples
    --------
    >>> import numpy as np
    >>> lane_sum(np.full((1, 10), 0.1))
    array([1.])
    """
    xp = namespace(array)
    rows, columns = array.shape
    if xp is np:
        return _lane_sum_of_many(array) if rows > _FEW_ROWS else _lane_sum_of_few(array)
    missing = -columns % _SUM_LANES
    if missing:
        zeros = xp.zeros((rows, missing), dtype=array.dtype, device=array_api_compat.device(array))
        array = xp.concat([array, zeros], axis=1)
    lanes = array[:, :_SUM_LANES]
    for start in range(_SUM_LANES, columns, _SUM_LANES):
        lanes = lanes + array[:, start : start + _SUM_LANES]
    for half in (4, 2, 1):
        lanes = lanes[:, :half] + lanes[:, half : 2 * half]
    return lanes[:, 0]


def _lane_sum_of_many(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Add up columns, each one vector of all rows."""
    columns = np.ascontiguousarray(array.T)
    lanes = np.zeros((_SUM_LANES, len(array)), dtype=array.dtype)
    for start in range(0, len(columns), _SUM_LANES):
        chunk = columns[start : start + _SUM_LANES]
        lanes[: len(chunk)] += chunk
    return _folded(lanes)


def _lane_sum_of_few(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Add up all chunks of eight in one reduction, which NumPy runs from first to last."""
    rows, columns = array.shape
    whole = columns - columns % _SUM_LANES
    lanes = np.add.reduce(array[:, :whole].reshape(rows, whole // _SUM_LANES, _SUM_LANES), axis=1)
    lanes[:, : columns - whole] += array[:, whole:]
    return _folded(np.ascontiguousarray(lanes.T))


def _folded(lanes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Add the lanes by halving."""
    for half in (4, 2, 1):
        lanes = lanes[:half] + lanes[half:]
    return np.asarray(lanes[0])


def log_softmax(scores: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return row-wise log-softmax in float64; −inf (a masked class) stays −inf.

    Examples
    --------
    >>> import numpy as np
    >>> log_softmax(np.zeros((1, 2)))
    array([[-0.69314718, -0.69314718]])
    """
    z: npt.NDArray[np.float64] = np.asarray(scores, dtype=np.float64)
    z = np.subtract(z, z.max(axis=1, keepdims=True))
    z -= np.log(np.exp(z).sum(axis=1, keepdims=True))
    return z


def softmax(scores: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
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
