"""Vectors at the door: decisions, labels and weights, one entry a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._door.arrays import to_numpy
from cordcal._door.errors import Refusal, about_rows, refuse
from cordcal._door.types import Classes, Labels, Vector


def check_decisions(decision: Any, rows: int, classes: int, name: str = "decision") -> Classes:
    """Return class indices (decisions, labels) as an integer vector of length ``rows``."""
    array = np.atleast_1d(to_numpy(decision, name))
    if array.ndim != 1 or array.shape[0] != rows:
        raise Refusal(
            name,
            f"has shape {array.shape} but there are {rows} rows",
            "pass one class index for each row",
        )
    if array.dtype.kind not in "iu":
        if array.dtype.kind != "f" or not np.array_equal(array, np.round(array)):
            raise Refusal(name, f"has dtype {array.dtype}", f"pass class indices 0..{classes - 1}")
        array = array.astype(np.int64)
    _refuse_outside(array, classes, name, "pass column indices, not class names")
    # Kernels read decisions one after the other; a column of a table is not stored so.
    return np.ascontiguousarray(array, dtype=np.intp)


def check_labels(labels: Any, rows: int, classes: int) -> Labels:
    """Return the labels as an integer vector of length ``rows``.

    Examples
    --------
    >>> check_labels([0, 2, 1], rows=3, classes=3)
    array([0, 2, 1])
    """
    array = to_numpy(labels, "labels")
    if array.ndim != 1 or array.shape[0] != rows:
        raise Refusal(
            "labels",
            f"has shape {array.shape} but scores has {rows} rows",
            "pass one class index for each row",
        )
    if array.dtype.kind == "f":
        refuse(
            about_rows(
                ~(np.isfinite(array) & (array == np.round(array))),
                "labels",
                "is not a class index",
                f"pass integers 0..{classes - 1}",
                found=lambda row: f"is {array[row]}, not a class index",
            )
        )
    elif array.dtype.kind not in "iub":
        raise Refusal(
            "labels",
            f"has dtype {array.dtype}",
            f"pass class indices 0..{classes - 1} (the columns of scores), e.g. "
            f"[class_names.index(label) for label in labels]",
        )
    remedy = f"scores has {classes} columns, so pass the column index of the true class"
    remedy += counted_from_one(array, classes)
    _refuse_outside(array, classes, "labels", remedy)
    return np.ascontiguousarray(array, dtype=np.intp)


def counted_from_one(labels: npt.NDArray[Any], classes: int) -> str:
    """Return what to add to a remedy where labels are 1 … K.

    Examples
    --------
    >>> counted_from_one(np.array([1, 3, 2]), 3), counted_from_one(np.array([0, 3]), 3)
    ('; these count from 1, so subtract 1', '')
    """
    counted = labels.size and labels.min() >= 1 and labels.max() == classes
    return "; these count from 1, so subtract 1" if counted else ""


def _refuse_outside(array: npt.NDArray[Any], classes: int, name: str, remedy: str) -> None:
    range_of = f"0..{classes - 1}"
    refuse(
        about_rows(
            (array < 0) | (array >= classes),
            name,
            f"is outside {range_of}",
            remedy,
            found=lambda row: f"is {array[row]}, outside {range_of}",
        )
    )


def check_variety(labels: Labels, weight: Vector | None) -> None:
    """Refuse calibration rows that all carry one label."""
    counted = labels if weight is None else labels[weight > 0.0]
    if (counted == counted[0]).all():
        raise Refusal(
            "labels",
            f"are all {int(counted[0])}",
            "a calibrator needs rows of at least two classes, so pass a calibration set drawn "
            "like the evaluation data",
        )


def check_weights(sample_weight: Any, rows: int, *, some: bool = True) -> Vector:
    """Return the sample weights as a float64 vector of length ``rows``.

    With ``some`` at least one must be positive; a batch among others may have none.
    """
    array = np.asarray(to_numpy(sample_weight, "sample_weight"), dtype=np.float64)
    if array.shape != (rows,):
        raise Refusal(
            "sample_weight",
            f"has shape {array.shape} but there are {rows} rows",
            "pass one weight for each row",
        )
    refuse(
        about_rows(
            ~np.isfinite(array) | (array < 0),
            "sample_weight",
            "is no weight",
            "weights must be finite and not negative",
            found=lambda row: f"is {array[row]}",
        )
    )
    if some and not array.any():
        raise no_weight()
    return array


def no_weight() -> Refusal:
    """Return the refusal of weights that are all zero, for callers that see them in parts."""
    return Refusal("sample_weight", "is zero in every row", "give at least one row some weight")
