"""What kind of scores rows of numbers are: logits, probabilities, or neither."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cordcal._errors import InputError, raise_first, row_error
from cordcal._numeric.types import Flags, Kind, NumPyArray
from cordcal._validation.scores import (
    are_plainly_probabilities,
    sum_tolerance,
    sum_warning_level,
)
from cordcal.files.columns import LOGIT_NAMES

# With fewer rows, all may be sorted by chance.
MIN_ROWS_TO_JUDGE = 8


def looks_like(scores: NumPyArray) -> Kind:
    """Return what kind of scores these rows are, judging by their values.

    Rows of numbers in [0, 1] that sum to one are probabilities; everything else,
    log-probabilities included, is logits.

    Examples
    --------
    >>> looks_like(np.array([[0.2, 0.8]])), looks_like(np.array([[0.2, 1.8]]))
    ('probabilities', 'logits')
    """
    if scores.min() < 0.0 or scores.max() > 1.0 + sum_tolerance(scores.dtype):
        return "logits"
    return "probabilities" if sum_deviation(scores) <= sum_tolerance(scores.dtype) else "logits"


def sum_deviation(scores: NumPyArray) -> float:
    """Return how far from one the rows of non-negative scores sum, at most.

    Small deviations may include the rounding of this sum itself.
    """
    if scores.dtype.kind == "f" and scores.dtype.itemsize >= 4:
        # In any order of additions a sum near one is wrong by less than K units in the last place.
        quick = float(np.abs(scores @ np.ones(scores.shape[1], scores.dtype) - 1.0).max())
        if quick <= 0.5 * sum_warning_level(scores.dtype, scores.shape[1]):
            return quick
    return float(np.abs(scores.sum(axis=1, dtype=np.float64) - 1.0).max())


def kind_of(key: str, values: NumPyArray, expected: Kind | None = None) -> Kind:
    """Return the kind of scores, from their name or else from their values.

    A few rows with few decimals may be both: then they are what is expected.
    """
    if any(name in key.lower() for name in LOGIT_NAMES):
        return "logits"
    kind = looks_like(values)
    if expected == "logits" and kind == "probabilities" and not are_plainly_probabilities(values):
        return expected
    return kind


def _are_sorted(scores: NumPyArray) -> bool:
    """Whether every row is in descending order; the first rows settle most files."""
    first = scores[:MIN_ROWS_TO_JUDGE]
    first_rows = (first[:, 1:] <= first[:, :-1]).all()
    return bool(first_rows and (scores[:, 1:] <= scores[:, :-1]).all())


def check_whole_vectors(scores: NumPyArray, name: str) -> None:
    """Refuse top-k lists: rows in descending order that sum to less than one.

    Language-model APIs return the k best log-probabilities in order.  Their columns are
    ranks, not classes, so they cannot be calibrated.
    """
    rows, width = scores.shape
    if rows < MIN_ROWS_TO_JUDGE or not _are_sorted(scores):
        return
    if scores.max() <= 0.0:
        mass, what = np.exp(scores.astype(np.float64)).sum(axis=1), "log-probabilities"
    elif scores.min() >= 0.0 and scores.max() <= 1.0:
        mass, what = scores.sum(axis=1, dtype=np.float64), "probabilities"
    else:
        return
    if (mass < 1.0 - sum_tolerance(scores.dtype)).any() and mass.max() < 1.01:
        raise InputError(
            name,
            f"looks like top-{width} {what}: every row is sorted and some sum to "
            f"{mass.min():.3g}, so the columns are ranks, not classes",
            "pass whole vectors with one column for each class",
        )


def may_be_ranks(class_names: Sequence[str] | None) -> bool:
    """Whether columns may be ranks: they have no names, or only numbers.

    Examples
    --------
    >>> may_be_ranks(None), may_be_ranks(["1", "2"]), may_be_ranks(["yes", "no"])
    (True, True, False)
    """
    return class_names is None or all(name.isdecimal() for name in class_names)


def check_values(values: NumPyArray, name: str, class_names: Sequence[str] | None = None) -> None:
    """Refuse rows that are not whole vectors of finite numbers."""
    bad: Flags = np.isnan(values).any(axis=1) | (values == np.inf).any(axis=1)
    raise_first(
        row_error(
            bad,
            name,
            "contains NaN or an infinite value",
            "drop such rows, or, if these are top-k scores, pass whole vectors with one column "
            "per class",
        )
    )
    if may_be_ranks(class_names):
        check_whole_vectors(values, name)
