"""Tell logits from probabilities, and reject top-k lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.types import Kind
from cordcal._validation.scores import sum_tolerance, sum_warning_level

# With fewer rows, all may be sorted by chance.
ROWS_THAT_TELL = 8


def looks_like(scores: npt.NDArray[Any]) -> Kind:
    """Return what kind of scores these rows are, judging by their values.

    Rows of numbers in [0, 1] that sum to one are probabilities; everything else,
    log-probabilities included, is logits.

    Examples
    --------
    >>> import numpy as np
    >>> looks_like(np.array([[0.2, 0.8]]))
    'probabilities'
    >>> looks_like(np.array([[0.2, 1.8]]))
    'logits'
    """
    if scores.min() < 0.0 or scores.max() > 1.0 + sum_tolerance(scores.dtype):
        return "logits"
    return "probabilities" if sum_deviation(scores) <= sum_tolerance(scores.dtype) else "logits"


def sum_deviation(scores: npt.NDArray[Any]) -> float:
    """Return how far from one the rows of non-negative scores sum, at most.

    Small deviations may include the rounding of this sum itself.
    """
    if scores.dtype.kind == "f" and scores.dtype.itemsize >= 4:
        # In any order of additions a sum near one is wrong by less than K units in the last place.
        quick = float(np.abs(scores @ np.ones(scores.shape[1], scores.dtype) - 1.0).max())
        if quick <= 0.5 * sum_warning_level(scores.dtype, scores.shape[1]):
            return quick
    return float(np.abs(scores.sum(axis=1, dtype=np.float64) - 1.0).max())


def _are_sorted(scores: npt.NDArray[Any]) -> bool:
    """Whether every row is in descending order; the first rows settle most files."""
    first_rows = (np.diff(scores[:ROWS_THAT_TELL], axis=1) <= 0).all()
    return bool(first_rows and (np.diff(scores, axis=1) <= 0).all())


def check_whole_vectors(scores: npt.NDArray[Any], name: str) -> None:
    """Refuse top-k lists: rows in descending order that sum to less than one.

    Language-model APIs return the k best log-probabilities in order.  Their columns are
    ranks, not classes, so they cannot be calibrated.
    """
    rows, width = scores.shape
    if rows < ROWS_THAT_TELL or not _are_sorted(scores):
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
