"""A confidence becomes a whole report that keeps the decision."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._door import arrays
from cordcal._door.blocks import row_blocks
from cordcal._door.errors import Refusal
from cordcal._door.reports import as_matrix
from cordcal._door.rows import same_rows
from cordcal._door.types import Decisions, Vector
from cordcal._door.vectors import check_decisions
from cordcal._door.warned import warn
from cordcal._numeric.rows import lane_sum
from cordcal.repair import _array
from cordcal.repair import _lift_rule as rule
from cordcal.repair._arguments import wanted_dtype
from cordcal.repair._lift import check_mode
from cordcal.repair._lift_rule import Mode


def lift(
    confidence: Any, decision: Any, rest: Any, mode: Mode = "raise", *, dtype: Any = None
) -> npt.NDArray[Any]:
    """Turn confidences in decisions into whole reports whose argmax is the decision.

    Any scalar calibrator (of the largest probability, of "the decision is right") gives a
    report over all classes this way.

    Parameters
    ----------
    confidence : array_like of shape (n,)
        The probability that each decision is right, between 0 and 1.
    decision : array_like of int of shape (n,)
        The class that is to be on top of each row.
    rest : array_like of shape (n, K)
        How to share out what the confidence leaves, such as the classifier's probabilities:
        not negative, the entry at the decision is ignored, rows need not sum to one, and a
        row of zeros means evenly.
    mode : {"raise", "cap"}
        What happens where the confidence is too small to be on top.  ``"raise"`` raises it to
        the smallest that is; ``"cap"`` keeps it and lowers the other classes to just below
        it, filling up the smaller ones.
    dtype : dtype, optional
        float64, float32 or float16; by default that of ``rest``.  The decision is strictly
        the largest entry in this dtype.

    Returns
    -------
    report : ndarray of shape (n, K)
        Probabilities.

    Warns
    -----
    UserWarning
        With ``mode="cap"``, of rows whose confidence is so near to 1/K that even K equal
        shares would not do; it is raised just enough.

    Examples
    --------
    >>> lift([0.9, 0.4], [0, 2], [[0.5, 0.3, 0.2], [0.7, 0.1, 0.2]]).round(3)
    array([[0.9  , 0.06 , 0.04 ],
           [0.467, 0.067, 0.467]])
    >>> lift([0.9, 0.4], [0, 2], [[0.5, 0.3, 0.2], [0.7, 0.1, 0.2]], mode="cap").round(3)
    array([[0.9 , 0.06, 0.04],
           [0.4 , 0.2 , 0.4 ]])
    """
    check_mode(mode)
    confidence, decision, rest = same_rows(confidence=confidence, decision=decision, rest=rest)
    shares = arrays.to_numpy(as_matrix(rest, "rest", allow_row=True))
    given = np.atleast_2d(shares)
    rows, classes = given.shape
    keep = check_decisions(decision, rows, classes)
    mass = _checked_confidence(confidence, rows)
    served = given.dtype if dtype is None else wanted_dtype(given, dtype)
    report = np.empty(given.shape, served)
    for at in row_blocks(rows, classes):
        report[at] = _lifted(mass[at], keep[at], _checked_rest(given[at], at.start), served, mode)
    if mode == "cap":
        _warn_about_room(mass, classes, served)
    return report if shares.ndim == 2 else report[0]


def _lifted(
    mass: Vector, decision: Decisions, rest: Vector, dtype: Any, mode: Mode
) -> npt.NDArray[Any]:
    """Lift some rows, seen as reports with half of their mass on the decision."""
    chosen = _array.chosen_entries(rest, decision, xp=np)
    others = np.where(chosen, 0.0, rest)
    # Scaled by the largest entry first, so that no sum of many large numbers overflows.
    largest = others.max(axis=1, keepdims=True)
    empty = largest == 0.0
    others = np.where(empty, ~chosen, others / np.where(empty, 1.0, largest))
    total = lane_sum(others)[:, None]
    seen = np.where(chosen, 0.5, 0.5 * (others / total))
    state, part = _array.row_state(seen, seen, decision, np.zeros(len(mass), dtype=bool))
    return np.asarray(rule.keep_decision(seen, state, part, mass, 1.0 - mass, dtype, mode))


def _checked_confidence(confidence: Any, rows: int) -> Vector:
    array = np.atleast_1d(arrays.to_numpy(confidence, "confidence")).astype(np.float64)
    if array.shape != (rows,):
        raise Refusal(
            "confidence",
            f"has shape {array.shape} but rest has {rows} rows",
            "pass one probability for each row",
        )
    bad = ~((array >= 0.0) & (array <= 1.0))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise Refusal(
            "confidence",
            "is no probability",
            "pass numbers between 0 and 1",
            rows=np.flatnonzero(bad),
            found=f"is {array[row]:.6g}, not a probability",
        )
    return array


def _checked_rest(rest: npt.NDArray[Any], first: int) -> Vector:
    bad = ~((rest >= 0.0) & np.isfinite(rest)).all(axis=1)
    if bad.any():
        raise Refusal(
            "rest",
            "contains a number that is negative, infinite or NaN",
            "pass shares, such as the classifier's probabilities",
            rows=first + np.flatnonzero(bad),
        )
    return rest.astype(np.float64)


def _warn_about_room(mass: Vector, classes: int, dtype: Any) -> None:
    least = rule.least_room(classes, dtype)
    cramped = int(np.count_nonzero(mass < least))
    if cramped:
        warn(
            f"confidence is below {least:.6g} in {cramped:,} of {len(mass):,} rows, too little to "
            f"be on top of {classes} classes; it was raised to that"
        )
