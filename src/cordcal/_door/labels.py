"""Labels as people store them, words or numbers, as column indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._door.arrays import to_numpy
from cordcal._door.errors import Refusal
from cordcal._door.vectors import counted_from_one

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
        raise Refusal(
            where,
            f"has {labels.shape[0]} labels for {rows} rows of scores",
            "pass one label for each row",
        )
    words = labels.dtype.kind not in "iufb"
    if words and names is None:
        raise Refusal(
            where,
            f"has words for labels ({str(labels[0])!r}) but the scores have no class names",
            f"name the columns, or pass labels 0..{classes - 1}",
        )
    if names is None or not (words or _are_other_numbers(names)):
        return _checked(labels, classes, where)
    # Columns headed 1..K: the labels are headings, not positions.
    told = labels if words else np.array([f"{value:g}" for value in labels])
    return _looked_up(told, names, where)


def as_columns(labels: Any, shape: tuple[int, ...], names: Sequence[Any] | None) -> Any:
    """Return labels that are class names as column indices; others, and none, as they are.

    Examples
    --------
    >>> as_columns(["cat", "dog"], (2, 2), ["dog", "cat"])
    array([1, 0])
    """
    if labels is None or names is None or to_numpy(labels).dtype.kind in "iufb":
        return labels
    words = tuple(str(name) for name in names)
    return as_indices(to_numpy(labels), shape, words, "labels")


def _looked_up(labels: npt.NDArray[Any], names: Names, where: str) -> npt.NDArray[np.int64]:
    place = {name: index for index, name in enumerate(names)}
    found = np.array([place.get(str(label), -1) for label in labels], dtype=np.int64)
    wrong = np.flatnonzero(found < 0)
    if wrong.size:
        first = ", ".join(map(repr, names[:3]))
        raise Refusal(
            where,
            "has a label that is no class name",
            f"labels must be class names or 0..{len(names) - 1}",
            rows=wrong,
            found=f"has the label {str(labels[wrong[0]])!r}, which is no class name (the first "
            f"are {first})",
        )
    return found


def _checked(labels: npt.NDArray[Any], classes: int, where: str) -> npt.NDArray[np.int64]:
    # NaN fails every comparison, so it is told apart by what holds, not by what fails.
    fits = (labels >= 0) & (labels < classes) & (labels == np.floor(labels))
    wrong = np.flatnonzero(~fits)
    if wrong.size:
        raise Refusal(
            where,
            "has a label that is no column",
            f"with {classes} columns, labels are the integers 0..{classes - 1}"
            f"{counted_from_one(labels, classes)}",
            rows=wrong,
            found=f"has the label {labels[wrong[0]]:g}",
        )
    return labels.astype(np.int64)


def _are_other_numbers(names: Names) -> bool:
    """Whether the class names are integers that differ from the columns' positions."""
    digits = all(name.lstrip("-").isdigit() for name in names)
    return digits and list(names) != [str(index) for index in range(len(names))]
