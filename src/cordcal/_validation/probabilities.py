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

# What nearly every call passes: an array that needs none of the questions below.
_PLAIN = frozenset(map(np.dtype, ("float64", "float32", "float16")))

# Accepts probabilities that were written with three decimals and sum to 0.999 or 1.001;
# 2^-20 is more than float32 and any order of additions take away or add.
_SUM_TOLERANCE = 1e-3 + 2.0**-20


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
    array = (
        values if type(values) is np.ndarray and values.dtype in _PLAIN else _floats(values, name)
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


def _floats(values: Any, name: str) -> Array:
    """Return an array of a dtype that is served, in the library of the values."""
    array = _numpy_matrix(values, name) if namespace(values) is np else values
    if dtype_name(array.dtype) not in UNIT_ROUNDOFF:
        raise InputError(
            name, f"has dtype {array.dtype}", "pass an array of floats, one column a class"
        )
    return array


def _numpy_matrix(values: Any, name: str) -> Array:
    array = to_numpy(values, name)
    if array.dtype.kind == "b":
        raise InputError(
            name, "holds truth values", "pass numbers, e.g. scores; .astype(float) for one-hot rows"
        )
    # Integers are whole numbers of something; longdouble is more than anything here keeps.
    if array.dtype.kind in "iu" or (array.dtype.kind == "f" and array.dtype.itemsize > 8):
        return _rounded(array)
    return array


def _rounded(array: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return float64 with the same decisions: rounding may tie the largest entries of a row."""
    rounded = array.astype(np.float64)
    if array.ndim == 2 and array.size:
        decision = array.argmax(axis=1)
        tied = np.flatnonzero(rounded.argmax(axis=1) != decision)
        rounded[tied, decision[tied]] = np.nextafter(rounded[tied].max(axis=1), np.inf)
    return rounded


def check_same_shape(first: Array, first_name: str, second: Array, second_name: str) -> None:
    """Refuse two matrices that do not describe the same rows and classes."""
    if tuple(first.shape) != tuple(second.shape):
        raise InputError(
            first_name,
            f"has shape {tuple(first.shape)} but {second_name} has shape {tuple(second.shape)}",
            "both must hold the same rows and classes",
        )


def sum_tolerance(dtype: Any) -> float:
    """Return how far from one a row of this dtype may sum and still be normalised."""
    # 8u is what a half-precision softmax needs.
    return max(_SUM_TOLERANCE, 8.0 * UNIT_ROUNDOFF[dtype_name(dtype)])


def sum_warning_level(dtype: Any, classes: int) -> float:
    """Return the deviation from one above which rounding alone no longer explains it."""
    # K roundings of random sign add up to about u·√K; 32 leaves room for a softmax's own error.
    # Wide reports are often float32 ones that were stored so, and exp of large log-probabilities,
    # as naive Bayes takes it, loses more than one unit: float32's is the finest that is reproached.
    unit = max(UNIT_ROUNDOFF[dtype_name(dtype)], UNIT_ROUNDOFF["float32"])
    return 32.0 * unit * float(np.sqrt(classes))


def check_probabilities(report: Array, totals: Array, name: str, dtype: Any) -> float:
    """Refuse rows that are no distributions; return the largest accepted deviation of a sum.

    Parameters
    ----------
    report : array of shape (n, K)
        The rows.
    totals : array of shape (n,)
        Their sums, as the caller adds them up; not finite where an entry is not.
    name : str
        The argument's name.
    dtype : dtype
        The dtype in which the caller was given the report.
    """
    if not are_distributions(report, totals, dtype):
        raise_first(*probability_errors(report, totals, name, dtype))
    xp = namespace(totals)
    return float(to_numpy(xp.max(xp.abs(totals - 1.0))))


def are_distributions(report: Array, totals: Array, dtype: Any, *, spare: float = 0.0) -> bool:
    """Whether no row of a block is refused; ``totals`` are not finite where an entry is not.

    ``spare`` is how far the totals themselves may be off.
    """
    xp = namespace(totals)
    near_one = bool(xp.all(xp.abs(totals - 1.0) <= sum_tolerance(dtype) - spare))
    return near_one and bool(xp.min(report) >= 0.0)


def probability_errors(report: Array, totals: Array, name: str, dtype: Any) -> list[InputError]:
    """Return a refusal for each way in which rows are no distributions, with all such rows.

    A row is refused once, for the first of: NaN, infinities, negative numbers, its sum.
    """
    xp, sums = namespace(report), to_numpy(totals)
    flags = (xp.isnan(report), xp.isinf(report), report < 0.0)
    nan, infinite, negative = (to_numpy(xp.any(each, axis=1)) for each in flags)
    off = ~(np.abs(sums - 1.0) <= sum_tolerance(dtype))
    bad_entries = nan | infinite
    kinds = (
        row_error(nan, name, "contains NaN", DROP),
        row_error(infinite & ~nan, name, "contains an infinite value", DROP),
        row_error(
            negative & ~bad_entries,
            name,
            "contains a negative number",
            f"pass probabilities. If these are logits, apply a softmax first, e.g. "
            f"scipy.special.softmax({name}, axis=1)",
            detail=lambda row: f"contains a negative number ({float(xp.min(report[row, :])):.6g})",
        ),
        row_error(
            off & ~bad_entries & ~negative,
            name,
            "does not sum to 1",
            "pass whole probability vectors (divide each row by its sum if they are "
            "unnormalised, or apply a softmax to logits)",
            detail=lambda row: f"sums to {float(sums[row]):.6g}, not 1",
        ),
    )
    return [kind for kind in kinds if kind is not None]


def nan_error(report: Array, name: str) -> InputError | None:
    """Return the refusal of all rows with a NaN, for readers of the order alone."""
    xp = namespace(report)
    return row_error(to_numpy(xp.any(xp.isnan(report), axis=1)), name, "contains NaN", DROP)


def warn_about_sums(deviation: float, name: str, dtype: Any, classes: int) -> None:
    """Warn once when rows deviate from one by more than their dtype explains."""
    if deviation > sum_warning_level(dtype, classes):
        warn(
            f"{name}: some rows sum to one only within {deviation:.2g}; they are normalised. "
            f"Divide each row by its sum to silence this warning"
        )


def warn_about_pair(worst: Sequence[float], original: Array, direct: Array) -> None:
    """Warn about both reports of a repair, given the worst deviation of each."""
    for deviation, name, report in zip(
        worst, ("original", "direct"), (original, direct), strict=True
    ):
        warn_about_sums(deviation, name, report.dtype, report.shape[1])
