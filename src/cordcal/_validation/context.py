"""What a user passes as context: columns next to the scores, by name.

A column holds one number or one category per row, or a second opinion: the scores of another
model for the same classes.  `split_context` names them for `match`, which brings their rows and
classes into the order of the scores; `check_context` then returns plain arrays.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cordcal._errors import InputError, option_text
from cordcal._numeric.types import ArrayLike, Flags, Kind, NumPyArray, Vector
from cordcal._validation.labels import is_missing
from cordcal._validation.names import Name
from cordcal._validation.scores import CheckedScores
from cordcal._validation.table import MatchedRows, match


@dataclass(frozen=True, eq=False)
class ContextValues:
    """Checked columns by name, with the rows of the scores.

    Attributes
    ----------
    columns : mapping of str to ndarray
        Numbers are a float vector with NaN where one is missing, categories a vector of text with
        None, and a second opinion is a matrix of probabilities with rows of NaN.
    """

    columns: Mapping[str, NumPyArray]

    def take(self, rows: Any) -> ContextValues:
        """Return some of the rows."""
        return ContextValues({name: values[rows] for name, values in self.columns.items()})

    @classmethod
    def concatenated(cls, parts: Sequence[ContextValues]) -> ContextValues:
        """Return the rows of several contexts of the same columns."""
        return cls(
            {
                name: np.concatenate([part.columns[name] for part in parts])
                for name in parts[0].columns
            }
        )


def split_context(context: ArrayLike | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the vectors and the matrices of a context, by the arguments that messages name.

    Examples
    --------
    >>> vectors, matrices = split_context({"month": [1, 2], "other": [[0.2, 0.8], [0.7, 0.3]]})
    >>> list(vectors), list(matrices)
    (["context['month']"], ["context['other']"])
    """
    if context is None:
        return {}, {}
    names = _names(context)
    if names is None:
        raise InputError(
            "context",
            f"is of type {type(context).__name__}",
            "pass a data frame, or a dictionary of columns by name",
        )
    vectors: dict[str, Any] = {}
    matrices: dict[str, Any] = {}
    for name in names:
        if not isinstance(name, str):
            raise InputError("context", f"has the column {name!r}", "name every column by a text")
        column = context[name]
        is_matrix = len(np.shape(column)) == 2 or hasattr(column, "columns")
        (matrices if is_matrix else vectors)[context_argument(name)] = column
    return vectors, matrices


def _names(context: ArrayLike) -> list[Any] | None:
    """Return the names of the columns; None if it is neither a frame nor a mapping."""
    if isinstance(context, Mapping):
        return list(context)
    names = getattr(context, "column_names", getattr(context, "columns", None))
    return None if names is None else list(names)


def context_argument(name: str) -> str:
    """Return how messages call a column of the context, in the caller's language."""
    return option_text("context", name)


def check_context(matched: MatchedRows, context: ArrayLike, kind: Kind) -> ContextValues:
    """Return the checked columns of a context whose rows and classes are matched.

    Parameters
    ----------
    matched : MatchedRows
        What `match` returned for the scores, the vectors and the matrices of `split_context`.
    context : array_like
        What the user passed, for the order of its columns.
    kind : {"logits", "probabilities"}
        What the scores are, and so those of a second opinion.
    """
    _, matrices = split_context(context)
    opinions = dict(zip(matrices, matched.matrices[1 : 1 + len(matrices)], strict=True))
    rows, classes = np.shape(matched.matrices[0])
    columns = {}
    for name in _names(context) or ():
        argument = context_argument(name)
        is_opinion = argument in opinions
        values = opinions[argument] if is_opinion else matched.others[argument]
        if len(values) != rows:
            raise InputError(
                argument,
                f"has {len(values):,} rows but the scores have {rows:,}",
                "pass one entry per row, None where it is unknown",
            )
        columns[name] = (
            _opinion(values, argument, classes, kind) if is_opinion else _column(values, argument)
        )
    return ContextValues(columns)


def is_present(values: NumPyArray) -> Flags:
    """Return which rows of a checked column have a value.

    Examples
    --------
    >>> is_present(np.array([1.0, np.nan])).tolist()
    [True, False]
    """
    if values.dtype == object:
        return np.array([value is not None for value in values], dtype=bool)
    return ~np.isnan(values if values.ndim == 1 else values[:, 0])


def check_context_by_position(
    context: ArrayLike, shape: tuple[int, ...], classes: Sequence[Name]
) -> ContextValues:
    """Return the checked columns of a context whose rows are those of scores of a shape.

    Second opinions are probabilities, whose columns are matched with the classes by name.
    """
    vectors, matrices = split_context(context)
    ordered = [
        match({name: matrix}, fitted_names=classes).matrices[0] for name, matrix in matrices.items()
    ]
    matched = MatchedRows((np.broadcast_to(0.0, shape), *ordered), None, others=vectors)
    return check_context(matched, context, "probabilities")


def _column(values: ArrayLike, argument: str) -> NumPyArray:
    """Return numbers as floats with NaN, and anything else as text with None."""
    array = np.asarray(values)
    if array.dtype.kind in "Mm":
        raise InputError(argument, "holds times", "pass a number, such as days, or a category")
    if array.dtype.kind in "iuf":
        return _finite(array.astype(np.float64), argument)
    entries, missing = array.astype(object), is_missing(array)
    present = entries[~missing]
    if present.size and all(
        isinstance(entry, numbers.Real) and not isinstance(entry, bool | np.bool_)
        for entry in present
    ):
        column = np.full(len(entries), np.nan)
        column[~missing] = present.astype(np.float64)
        return _finite(column, argument)
    text = np.full(len(entries), None, dtype=object)
    text[~missing] = [str(entry) for entry in present]
    return text


def _finite(column: Vector, argument: str) -> Vector:
    infinite = np.flatnonzero(np.isinf(column))
    if infinite.size:
        raise InputError(
            argument, "holds an infinite number", "pass NaN where it is unknown", rows=infinite
        )
    return column


def _opinion(values: ArrayLike, argument: str, classes: int, kind: Kind) -> NumPyArray:
    """Return another model's probabilities; rows with a NaN are missing."""
    scores = np.asarray(values)
    if scores.ndim != 2 or scores.shape[1] != classes:
        raise InputError(
            argument,
            f"has shape {scores.shape} but there are {classes} classes",
            "pass the other model's scores of the same classes",
        )
    if scores.dtype == object:
        missing = is_missing(scores.ravel()).reshape(scores.shape)
        scores = np.where(missing, np.nan, scores)
    scores = scores.astype(np.float64) if scores.dtype.kind in "iuO" else scores
    present = np.flatnonzero(~np.isnan(scores).any(axis=1))
    probabilities = np.full(scores.shape, np.nan)
    if present.size:
        try:
            checked = CheckedScores.from_scores(scores[present], kind)
        except InputError as error:
            raise error.with_argument(argument).select_rows(present) from None
        probabilities[present] = checked.probabilities
    return probabilities
