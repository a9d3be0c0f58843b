"""Matrices of probabilities: every row must be a distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, raise_first, row_error
from cordcal._numeric.arrays import UNIT_ROUNDOFF, dtype_name, namespace, to_numpy
from cordcal._numeric.types import Array
from cordcal._validation.warn import warn

DROP = "drop or fix such rows before calling"

# Fast path: arrays of these dtypes need no conversion.
_FLOAT_DTYPES = frozenset(map(np.dtype, ("float64", "float32", "float16")))

# Accepts probabilities rounded to three decimals that sum to 0.999 or 1.001; 2^-20 is more than
# the rounding of float32 sums in any order.
_SUM_TOLERANCE = 1e-3 + 2.0**-20


def as_matrix(values: Any, name: str, *, allow_row: bool = False) -> Array:
    """Return ``values`` as a floating-point (n, K) array; arrays are not copied.

    Parameters
    ----------
    values : array_like
        A float array, a list of rows, or a data frame whose columns are classes.
    name : str
        The argument's name, for messages.
    allow_row : bool
        Also accept a single 1-D row, which is returned 1-D.
    """
    array = (
        values
        if type(values) is np.ndarray and values.dtype in _FLOAT_DTYPES
        else _to_floats(values, name)
    )
    shape = array.shape
    if len(shape) == 2:
        if shape[0] == 0:
            raise InputError(name, "has no rows", "pass at least one")
    elif len(shape) != 1 or not allow_row:
        raise InputError(
            name, f"has {len(shape)} dimension(s)", "pass a 2-D array of shape (rows, classes)"
        )
    if shape[-1] < 2:
        raise InputError(name, f"has {shape[-1]} class(es)", "at least 2 columns are needed")
    return array


def _to_floats(values: Any, name: str) -> Array:
    """Return an array of a supported dtype, in the library of the values."""
    array = _numpy_matrix(values, name) if namespace(values) is np else values
    if dtype_name(array.dtype) not in UNIT_ROUNDOFF:
        raise InputError(
            name, f"has dtype {array.dtype}", "pass an array of floats, one column per class"
        )
    return array


def _numpy_matrix(values: Any, name: str) -> Array:
    array = to_numpy(values, name)
    if array.dtype.kind == "b":
        raise InputError(
            name, "holds truth values", "pass numbers, e.g. scores; .astype(float) for one-hot rows"
        )
    # Integers may be counts or votes; longdouble exceeds the precision of everything else.
    if array.dtype.kind in "iu" or (array.dtype.kind == "f" and array.dtype.itemsize > 8):
        return _round_to_float64(array)
    return array


def _round_to_float64(array: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Round to float64 with the same argmax, also where rounding ties the largest entries."""
    rounded = array.astype(np.float64)
    if array.ndim == 2 and array.size:
        top = array.argmax(axis=1)
        tied = np.flatnonzero(rounded.argmax(axis=1) != top)
        rounded[tied, top[tied]] = np.nextafter(rounded[tied].max(axis=1), np.inf)
    return rounded


def check_same_shape(first: Array, first_name: str, second: Array, second_name: str) -> None:
    """Refuse two matrices of different shapes."""
    if tuple(first.shape) != tuple(second.shape):
        raise InputError(
            first_name,
            f"has shape {tuple(first.shape)} but {second_name} has shape {tuple(second.shape)}",
            "both must hold the same rows and classes",
        )


def sum_tolerance(dtype: Any) -> float:
    """Return the deviation from one up to which a row sum is accepted (and normalised)."""
    # 8u is the error of a half-precision softmax.
    return max(_SUM_TOLERANCE, 8.0 * UNIT_ROUNDOFF[dtype_name(dtype)])


def sum_warning_level(dtype: Any, classes: int) -> float:
    """Return the deviation of a row sum from one that rounding cannot explain."""
    # K roundings of random sign add up to about u·√K; 32 allows for the softmax's own error.
    # float64 probabilities are often widened from float32, or come from exp of large
    # log-probabilities (naive Bayes), which loses more than one unit: so u is float32's at least.
    unit = max(UNIT_ROUNDOFF[dtype_name(dtype)], UNIT_ROUNDOFF["float32"])
    return 32.0 * unit * float(np.sqrt(classes))


def check_probabilities(probabilities: Array, sums: Array, name: str, dtype: Any) -> float:
    """Refuse rows that are not distributions; return the largest deviation of a row sum from one.

    Parameters
    ----------
    probabilities : array of shape (n, K)
        The rows.
    sums : array of shape (n,)
        The row sums as the caller computes them; not finite if an entry is not.
    name : str
        The argument's name.
    dtype : dtype
        The dtype of the argument as the caller passed it.
    """
    if not are_distributions(probabilities, sums, dtype):
        raise_first(*probability_errors(probabilities, sums, name, dtype))
    xp = namespace(sums)
    return float(to_numpy(xp.max(xp.abs(sums - 1.0))))


def are_distributions(probabilities: Array, sums: Array, dtype: Any, *, spare: float = 0.0) -> bool:
    """Whether all rows are distributions; ``sums`` must not be finite if an entry is not.

    ``spare`` is the possible error of the sums themselves.
    """
    xp = namespace(sums)
    near_one = bool(xp.all(xp.abs(sums - 1.0) <= sum_tolerance(dtype) - spare))
    return near_one and bool(xp.min(probabilities) >= 0.0)


def probability_errors(
    probabilities: Array, sums: Array, name: str, dtype: Any
) -> list[InputError]:
    """Return one error per reason why rows are not distributions, each with all its rows.

    Every invalid row is in exactly one error: that of NaN, infinities, negative numbers or the
    sum, whichever applies first.
    """
    xp, row_sums = namespace(probabilities), to_numpy(sums)
    flags = (xp.isnan(probabilities), xp.isinf(probabilities), probabilities < 0.0)
    nan, infinite, negative = (to_numpy(xp.any(entries, axis=1)) for entries in flags)
    bad_sum = ~(np.abs(row_sums - 1.0) <= sum_tolerance(dtype))
    not_finite = nan | infinite
    errors = (
        row_error(nan, name, "contains NaN", DROP),
        row_error(infinite & ~nan, name, "contains an infinite value", DROP),
        row_error(
            negative & ~not_finite,
            name,
            "contains a negative number",
            f"pass probabilities. If these are logits, apply a softmax first, e.g. "
            f"scipy.special.softmax({name}, axis=1)",
            detail=lambda row: (
                f"contains a negative number ({float(xp.min(probabilities[row, :])):.6g})"
            ),
        ),
        row_error(
            bad_sum & ~not_finite & ~negative,
            name,
            "does not sum to 1",
            "pass whole probability vectors (divide each row by its sum if they are "
            "unnormalised, or apply a softmax to logits)",
            detail=lambda row: f"sums to {float(row_sums[row]):.6g}, not 1",
        ),
    )
    return [error for error in errors if error is not None]


def nan_error(matrix: Array, name: str) -> InputError | None:
    """Return the error of all rows with a NaN, for callers that only need the order of entries."""
    xp = namespace(matrix)
    return row_error(to_numpy(xp.any(xp.isnan(matrix), axis=1)), name, "contains NaN", DROP)


def warn_about_sums(deviation: float, name: str, dtype: Any, classes: int) -> None:
    """Warn if row sums deviate from one by more than rounding explains."""
    if deviation > sum_warning_level(dtype, classes):
        warn(
            f"{name}: some rows sum to one only within {deviation:.2g}; they are normalised. "
            f"Divide each row by its sum to silence this warning"
        )


def warn_about_pair(deviations: Sequence[float], original: Array, direct: Array) -> None:
    """Warn about both inputs of a repair, by the largest deviation of each."""
    for deviation, name, matrix in zip(
        deviations, ("original", "direct"), (original, direct), strict=True
    ):
        warn_about_sums(deviation, name, matrix.dtype, matrix.shape[1])
