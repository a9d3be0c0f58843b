"""Row sums in the order of additions that both engines share, and softmax."""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np
import numpy.typing as npt

from cordcal._numeric.arrays import namespace
from cordcal._numeric.types import Array

_SUM_LANES = 8
# Up to this many rows NumPy sums chunks of columns faster than single columns.
_FEW_ROWS = 16


def lane_sum(array: Array) -> Array:
    """Sum each row in eight interleaved lanes, then the lanes by halving.

    The order of additions is part of the definition: the compiled kernel adds in the same
    order, so both return the same bits.  Lanes are the fastest order for vector units.

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
    """Add whole columns, each a vector over all rows."""
    columns = np.ascontiguousarray(array.T)
    lanes = np.zeros((_SUM_LANES, len(array)), dtype=array.dtype)
    for start in range(0, len(columns), _SUM_LANES):
        chunk = columns[start : start + _SUM_LANES]
        lanes[: len(chunk)] += chunk
    return _fold(lanes)


def _lane_sum_of_few(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Add all chunks of eight columns in one reduction, which NumPy runs from first to last."""
    rows, columns = array.shape
    full = columns - columns % _SUM_LANES
    lanes = np.add.reduce(array[:, :full].reshape(rows, full // _SUM_LANES, _SUM_LANES), axis=1)
    lanes[:, : columns - full] += array[:, full:]
    return _fold(np.ascontiguousarray(lanes.T))


def _fold(lanes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Add the lanes by halving."""
    for half in (4, 2, 1):
        lanes = lanes[:half] + lanes[half:]
    return np.asarray(lanes[0])


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
