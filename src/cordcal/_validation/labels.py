"""Labels, decisions and weights, one entry per row, as indices of columns and as floats."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, raise_first, row_error
from cordcal._numeric.arrays import to_numpy
from cordcal._numeric.types import Classes, Labels, Vector
from cordcal._validation.names import nondefault_integers


def check_decisions(decision: Any, rows: int, classes: int, name: str = "decision") -> Classes:
    """Return class indices (decisions, labels) as an integer vector of length ``rows``."""
    array = np.atleast_1d(to_numpy(decision, name))
    if array.ndim != 1 or array.shape[0] != rows:
        raise InputError(
            name,
            f"has shape {array.shape} but there are {rows} rows",
            "pass one class index for each row",
        )
    if array.dtype.kind not in "iu":
        if array.dtype.kind != "f" or not np.array_equal(array, np.round(array)):
            raise InputError(
                name, f"has dtype {array.dtype}", f"pass class indices 0..{classes - 1}"
            )
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
        raise InputError(
            "labels",
            f"has shape {array.shape} but scores has {rows} rows",
            "pass one class index for each row",
        )
    if array.dtype.kind == "f":
        raise_first(
            row_error(
                ~(np.isfinite(array) & (array == np.round(array))),
                "labels",
                "is not a class index",
                f"pass integers 0..{classes - 1}",
                detail=lambda row: f"is {array[row]}, not a class index",
            )
        )
    elif array.dtype.kind not in "iub":
        raise InputError(
            "labels",
            f"has dtype {array.dtype}",
            f"pass class indices 0..{classes - 1} (the columns of scores), e.g. "
            f"[class_names.index(label) for label in labels]",
        )
    hint = f"scores has {classes} columns, so pass the column index of the true class"
    hint += counted_from_one(array, classes)
    _refuse_outside(array, classes, "labels", hint)
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


def _refuse_outside(array: npt.NDArray[Any], classes: int, name: str, hint: str) -> None:
    range_of = f"0..{classes - 1}"
    raise_first(
        row_error(
            (array < 0) | (array >= classes),
            name,
            f"is outside {range_of}",
            hint,
            detail=lambda row: f"is {array[row]}, outside {range_of}",
        )
    )


def check_two_classes(labels: Labels, weight: Vector | None) -> None:
    """Refuse calibration rows that all carry one label."""
    counted = labels if weight is None else labels[weight > 0.0]
    if (counted == counted[0]).all():
        raise InputError(
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
        raise InputError(
            "sample_weight",
            f"has shape {array.shape} but there are {rows} rows",
            "pass one weight for each row",
        )
    raise_first(
        row_error(
            ~np.isfinite(array) | (array < 0),
            "sample_weight",
            "is no weight",
            "weights must be finite and not negative",
            detail=lambda row: f"is {array[row]}",
        )
    )
    if some and not array.any():
        raise zero_weight_error()
    return array


def zero_weight_error() -> InputError:
    """Return the refusal of weights that are all zero, for callers that see them in parts."""
    return InputError("sample_weight", "is zero in every row", "give at least one row some weight")


Names = tuple[str, ...]


def as_indices(
    labels: npt.NDArray[Any], shape: tuple[int, ...], names: Names | None, where: str
) -> npt.NDArray[np.int64]:
    """Return labels as column indices, matching words with the class names.

    Parameters
    ----------
    labels : ndarray of shape (n,)
        Class names, or numbers.
    shape : tuple of int
        The scores' rows and classes.
    names : tuple of str or None
        One name a column.
    where : str
        What messages call the labels: an argument or a file.

    Examples
    --------
    >>> as_indices(np.array(["cat", "dog"]), (2, 2), ("dog", "cat"), "scores.csv")
    array([1, 0])
    """
    rows, classes = shape
    if labels.shape[0] != rows:
        raise InputError(
            where,
            f"has {labels.shape[0]} labels for {rows} rows of scores",
            "pass one label for each row",
        )
    words = labels.dtype.kind not in "iufb"
    if words and names is None:
        raise InputError(
            where,
            f"has words for labels ({str(labels[0])!r}) but the scores have no class names",
            f"name the columns, or pass labels 0..{classes - 1}",
        )
    if words and names is not None:
        return _looked_up(labels, names, where)
    # Columns headed 1..K: the labels are headings, not positions.
    numbers = None if names is None else nondefault_integers(_as_numbers(names))
    if numbers is None:
        return _checked(labels, classes, where)
    return _looked_up_numbers(labels, numbers, where)


def names_to_indices(labels: Any, shape: tuple[int, ...], names: Sequence[Any] | None) -> Any:
    """Return labels that are class names as column indices; others, and none, as they are.

    Numbers are looked up among names that are whole numbers other than 0..K-1 in order; among
    names that are text they are column indices.

    Examples
    --------
    >>> names_to_indices(["cat", "dog"], (2, 2), ["dog", "cat"])
    array([1, 0])
    >>> names_to_indices([20, 10, 20], (3, 2), [10, 20])
    array([1, 0, 1])
    """
    if labels is None or names is None:
        return labels
    array = _as_written(labels)
    if array.dtype.kind not in "iufb":
        return as_indices(array, shape, tuple(str(name) for name in names), "labels")
    numbers = nondefault_integers(names)
    return labels if numbers is None else _looked_up_numbers(array, numbers, "labels")


def _as_written(labels: Any) -> npt.NDArray[Any]:
    """Return labels as an array; text of digits stays text, whose numbers `to_numpy` reads."""
    array = to_numpy(labels, "labels")
    text = np.asarray(labels) if hasattr(labels, "to_numpy") else array
    is_text = text.dtype == object and any(issubclass(each, str) for each in set(map(type, text)))
    return text if is_text else array


def _looked_up(labels: npt.NDArray[Any], names: Names, where: str) -> npt.NDArray[np.int64]:
    place = {name: index for index, name in enumerate(names)}
    found = np.array([place.get(str(label), -1) for label in labels], dtype=np.int64)
    wrong = np.flatnonzero(found < 0)
    if wrong.size:
        first = ", ".join(map(repr, names[:3]))
        raise InputError(
            where,
            "has a label that is no class name",
            f"labels must be class names or 0..{len(names) - 1}",
            rows=wrong,
            detail=f"has the label {str(labels[wrong[0]])!r}, which is no class name (the first "
            f"are {first})",
        )
    return found


def _looked_up_numbers(
    labels: npt.NDArray[Any], numbers: list[int], where: str
) -> npt.NDArray[np.int64]:
    """Return the places of numbers among the names, compared as numbers and not as text."""
    place = {number: index for index, number in enumerate(numbers)}
    values, inverse = np.unique(labels, return_inverse=True)
    # A label of 2.5 or NaN is equal to no integer, so it has no place.
    places = np.array([place.get(value, -1) for value in values.tolist()], dtype=np.int64)
    columns = places[inverse].reshape(labels.shape)
    wrong = np.flatnonzero(columns < 0)
    if wrong.size:
        first = ", ".join(map(str, numbers[:3]))
        raise InputError(
            where,
            "has a label that is not a class name",
            "where class names or headings are numbers other than 0..K-1 in order, labels must be "
            "among them",
            rows=wrong,
            detail=f"has the label {labels.flat[wrong[0]]}, which is not a class name (the first "
            f"are {first})",
        )
    return columns


def _checked(labels: npt.NDArray[Any], classes: int, where: str) -> npt.NDArray[np.int64]:
    # NaN fails every comparison, so it is told apart by what holds, not by what fails.
    fits = (labels >= 0) & (labels < classes) & (labels == np.floor(labels))
    wrong = np.flatnonzero(~fits)
    if wrong.size:
        raise InputError(
            where,
            "has a label that is no column",
            f"with {classes} columns, labels are the integers 0..{classes - 1}"
            f"{counted_from_one(labels, classes)}",
            rows=wrong,
            detail=f"has the label {labels[wrong[0]]:g}",
        )
    return labels.astype(np.int64)


def _as_numbers(names: Names) -> list[Any]:
    """Return names of digits as integers, as a label column of such headings is read."""
    return [int(name) if re.fullmatch("-?[0-9]+", name) else name for name in names]
