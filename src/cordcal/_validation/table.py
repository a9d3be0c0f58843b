"""The boundary: what a user passes as a matrix, and the one place that matches rows and columns.

A `Table` is a matrix as a user passes it: values, the names of its classes, the index of its rows.
`match` brings any number of them, and vectors with one entry per row, into one order.  Every public
callable goes through it once; below it nobody looks at names or indices.

Columns are matched by name wherever both sides have names, and by position otherwise.  A data frame
whose columns are 0..K-1 was created without names.  Labels and predictions may be class names.
Column numbers count the columns of the first matrix.

Rows are matched by their pandas indices:

| indices | rows are matched |
|---|---|
| none, or only one side has one (NumPy, polars, torch, lists) | by position |
| equal, in the same order, with or without repeated entries | by position |
| 0..n−1 in order, and any but the same numbers in another order | by position |
| 0..n−1 in order, and the same numbers in another order | refused: ambiguous |
| two others with the same entries, each once | by entry |
| two others with different entries | refused |

An argument without an index, or with 0..n−1 in order, is matched to the first by position.
If the first is such an argument, the others must share one order: the first has no index that
decides between two.  ``train_test_split`` returns labels with the index of a larger frame, while
a model returns scores with a new index: those are matched by position.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.arrays import is_dask, refuse_masked, to_numpy
from cordcal._numeric.types import ArrayLike
from cordcal._validation.labels import names_to_indices
from cordcal._validation.names import (
    Name,
    are_default_names,
    check_class_names,
    class_order,
    nondefault_integers,
)

# Columns that hold something else than the scores of a class, unless class_names lists them.
_NOT_SCORES = {"label", "labels", "target", "targets", "y", "y_true", "y_pred", "pred"} | {
    *("predicted", "prediction", "predictions", "prediction_name", "confidence")
}

# The vectors that have a field of their own in `MatchedRows`.
_VECTORS = {"prediction", "sample_weight", "groups", "clusters", "ids"}

# What ignored labels become when the other labels are looked up: no column has this number.
_IGNORED = -1


@dataclass(frozen=True, eq=False)
class Table:
    """A matrix that a user passes: one row per input, one column per class.

    Attributes
    ----------
    argument : str
        The argument's name, for messages.
    values : array
        An array of the library it came in; data frames and Arrow tables become NumPy arrays.
        Lists stay lists, and dask collections stay lazy.
    class_names : tuple or None
        The columns of a data frame, as they are written; None for arrays.
    index : pandas.Index or None
        The index of the rows.

    Examples
    --------
    >>> import pandas as pd
    >>> table = Table.read(pd.DataFrame({"cat": [0.4], "dog": [0.6]}), "scores")
    >>> table.class_names, table.values.tolist()
    (('cat', 'dog'), [[0.4, 0.6]])
    """

    argument: str
    values: Any
    class_names: tuple[Name, ...] | None = None
    index: Any = None

    @classmethod
    def read(cls, values: ArrayLike, argument: str) -> Table:
        """Read a matrix, or a vector that stands for one, of any library."""
        if type(values) is np.ndarray:
            return cls(argument, values)
        refuse_masked(values, argument)
        _refuse_sparse(values, argument)
        columns = getattr(values, "column_names", getattr(values, "columns", None))
        if columns is None:
            return cls(argument, values, None, _pandas_index(values))
        names = tuple(columns)
        if len(set(names)) < len(names):
            repeated = next(name for name in names if names.count(name) > 1)
            raise InputError(
                argument, f"has two columns called {repeated!r}", "give each its own name"
            )
        if is_dask(values):
            return cls(argument, values, names)
        return cls(argument, _frame_values(values, names, argument), names, _pandas_index(values))

    @property
    def texts(self) -> list[str] | None:
        """The class names as text."""
        return None if self.class_names is None else [str(name) for name in self.class_names]

    @property
    def label_names(self) -> list[Name] | None:
        """The names that labels may use; None for arrays and for the default columns 0..K-1."""
        if self.class_names is None or self.class_names == tuple(range(len(self.class_names))):
            return None
        return list(self.class_names)

    @property
    def is_vector(self) -> bool:
        """Whether there is one entry per row: predictions instead of scores."""
        return self.class_names is None and np.ndim(self.values) == 1

    def in_order(self, names: Sequence[Name] | None, source: str) -> Table:
        """Return the table with its columns in the order of ``names``, which ``source`` has."""
        own = self.texts
        if own is None or names is None:
            return self
        expected = [str(name) for name in names]
        if are_default_names(own) != are_default_names(expected) and set(own) != set(expected):
            return self  # a frame created without names; the shape is checked later
        order = class_order(own, expected, self.argument, source)
        if order is None:
            return self
        assert self.class_names is not None
        columns = tuple(self.class_names[column] for column in order)
        values = self.values[list(columns)] if is_dask(self.values) else self.values[:, order]
        return replace(self, values=values, class_names=columns)

    def take(self, rows: Sequence[int]) -> Table:
        """Return the table with its rows in another order."""
        return replace(self, values=to_numpy(self.values, self.argument)[rows])


@dataclass(frozen=True, eq=False)
class MatchedRows:
    """Arguments whose rows and columns are in one order.

    Attributes
    ----------
    matrices : tuple of array
        The matrices, without names or indices.
    class_names : list or None
        The classes' names as they are written: those of the caller, of a fitted object, or of the
        first matrix that has any.
    labels, prediction : array_like or None
        Class names are column numbers now; other entries are unchecked.
    sample_weight, groups, clusters, ids : array_like or None
        As they were passed, with their rows in the order of the first matrix.
    others : mapping of str to array_like
        Other vectors with one entry per row, likewise.
    label_names : list or None
        The names that labels and predictions used; None if they were column numbers.
    ignore_index : int or None
        The label of rows without a true class, among these labels.
    columns : list of str or None
        The class names as text, with which later columns are matched; also 0..K-1 of a frame that
        was created without names.
    """

    matrices: tuple[Any, ...]
    class_names: list[Name] | None
    labels: Any = None
    prediction: Any = None
    sample_weight: Any = None
    groups: Any = None
    clusters: Any = None
    ids: Any = None
    others: Mapping[str, Any] = field(default_factory=dict)
    label_names: list[Name] | None = None
    ignore_index: int | None = None
    columns: list[str] | None = None


def match(
    matrices: Mapping[str, ArrayLike],
    *,
    class_names: Sequence[Name] | None = None,
    fitted_names: Sequence[Name] | None = None,
    fitted_source: str = "fit",
    labels: ArrayLike | None = None,
    prediction: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    ids: ArrayLike | None = None,
    others: Mapping[str, ArrayLike] | None = None,
    labels_argument: str = "labels",
    ignore_index: int | None = None,
    leader: str | None = None,
) -> MatchedRows:
    """Match the rows and columns of what a user passes to one public callable.

    Parameters
    ----------
    matrices : mapping of str to array_like
        The matrices by the names of their arguments, the first one first.  One that may also be a
        vector of predictions is passed here too.
    class_names : sequence, optional
        The caller's names, one per column of the first matrix; a data frame must agree.
    fitted_names : sequence, optional
        The names that a fitted object remembers: columns are brought into their order.
    fitted_source : str
        Where ``fitted_names`` come from, for messages.
    labels, prediction, sample_weight, groups, clusters, ids : array_like, optional
        One entry per row.
    others : mapping of str to array_like, optional
        Other vectors with one entry per row, by the names of their arguments.
    labels_argument : str
        The name of the argument with the labels, for messages.
    ignore_index : int, optional
        The label of rows without a true class.
    leader : str, optional
        The argument whose rows decide the order; by default the first matrix.

    Returns
    -------
    rows : MatchedRows
        The same in one order.

    Examples
    --------
    >>> import pandas as pd
    >>> original = pd.DataFrame({"cat": [0.9, 0.2], "dog": [0.1, 0.8]}, index=["a", "b"])
    >>> direct = pd.DataFrame({"dog": [0.7, 0.2], "cat": [0.3, 0.8]}, index=["b", "a"])
    >>> rows = match({"original": original, "direct": direct}, labels=["cat", "dog"])
    >>> rows.matrices[1].tolist(), rows.labels.tolist()
    ([[0.8, 0.2], [0.3, 0.7]], [0, 1])
    """
    vectors = {
        labels_argument: labels,
        "prediction": prediction,
        "sample_weight": sample_weight,
        "groups": groups,
        "clusters": clusters,
        "ids": ids,
        **(others or {}),
    }
    passed = (*matrices.values(), *vectors.values())
    if all(value is None or type(value) is np.ndarray for value in passed):
        # Nothing has names or an index, so everything is in one order already.
        names = None if class_names is None else list(class_names)
        if names is not None:
            check_class_names(names, _width(matrices.values(), len(names)))
        elif fitted_names is not None:
            names = list(fitted_names)
        return _with_vectors(
            tuple(matrices.values()), names, vectors, labels_argument, ignore_index
        )
    tables = [Table.read(values, name) for name, values in matrices.items()]
    if class_names is None and fitted_names is None:
        # The first names decide; other tables are compared with these.
        for table, values in zip(tables, matrices.values(), strict=True):
            if table.label_names is not None:
                _refuse_other_columns(table, values, labels)
                break
    tables, vectors = _match_rows(tables, vectors, leader or tables[0].argument)
    tables, names, reordered = _match_columns(tables, class_names, fitted_names, fitted_source)
    by_position = names is None or nondefault_integers(names) is None
    for argument in (labels_argument, "prediction"):
        if reordered and by_position and _is_numeric(vectors[argument]):
            raise InputError(
                argument,
                f"has column numbers, but the columns of {tables[0].argument} come in another "
                f"order than those of {fitted_source}",
                "pass class names, or bring the columns into the same order",
            )
    matched = []
    for table in tables:
        is_names = table.is_vector and names is not None
        matched.append(_look_up(table.values, names, table.argument) if is_names else table.values)
    rows = _with_vectors(tuple(matched), names, vectors, labels_argument, ignore_index)
    if names is None and tables[0].class_names is not None:
        return replace(rows, columns=tables[0].texts)
    return rows


class RememberedColumns:
    """The class names of the first block of a stream, with which later blocks are matched.

    Examples
    --------
    >>> import pandas as pd
    >>> columns = RememberedColumns()
    >>> for block in (pd.DataFrame({"cat": [0.9], "dog": [0.1]}), pd.DataFrame([[0.3, 0.7]])):
    ...     print(columns.match({"scores": block}, labels=["dog"]).labels)
    [1]
    [1]
    """

    def __init__(self) -> None:
        self.names: list[Name] | None = None

    def match(
        self,
        matrices: Mapping[str, ArrayLike],
        labels: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        prediction: ArrayLike | None = None,
    ) -> MatchedRows:
        """Match a block of rows; see `match`."""
        rows = match(
            matrices,
            fitted_names=self.names,
            fitted_source="the first block",
            labels=labels,
            prediction=prediction,
            sample_weight=sample_weight,
        )
        self.names = rows.class_names or rows.columns
        return rows


def _width(matrices: Iterable[Any], default: int) -> int:
    """Return the number of columns of the first matrix; the default if all are dense arrays."""
    return next((np.shape(values)[1] for values in matrices if np.ndim(values) == 2), default)


def _with_vectors(
    matrices: tuple[Any, ...],
    names: list[Name] | None,
    vectors: dict[str, Any],
    labels_argument: str,
    ignore_index: int | None,
) -> MatchedRows:
    """Look up labels and predictions that are class names."""
    labels = _look_up(vectors[labels_argument], names, labels_argument, ignore_index)
    prediction = _look_up(vectors["prediction"], names, "prediction")
    looked_up = labels is not vectors[labels_argument]
    by_name = looked_up or prediction is not vectors["prediction"]
    if not by_name and names is not None:
        by_name = nondefault_integers(names) is not None
    return MatchedRows(
        matrices,
        names,
        labels,
        prediction,
        vectors["sample_weight"],
        vectors["groups"],
        vectors["clusters"],
        vectors["ids"],
        {name: value for name, value in vectors.items() if name not in _VECTORS},
        names if by_name else None,
        _IGNORED if looked_up and ignore_index is not None else ignore_index,
        None if names is None else [str(name) for name in names],
    )


def _look_up(
    values: ArrayLike | None,
    names: list[Name] | None,
    argument: str,
    ignore_index: int | None = None,
) -> Any:
    """Return class names as column numbers, ignored labels as -1; other values unchanged."""
    if values is None or names is None or is_dask(values):
        return values
    array = to_numpy(values, argument)
    ignored = np.zeros(array.shape, dtype=bool) if ignore_index is None else array == ignore_index
    wanted = values if not ignored.any() and array.ndim == 1 else array[~ignored]
    try:
        indices = names_to_indices(wanted, (np.size(array[~ignored]), len(names)), names)
    except InputError as error:
        raise error.with_argument(argument) if error.argument == "labels" else error from None
    if indices is wanted:
        return values
    columns = np.full(array.shape, _IGNORED, dtype=np.intp)
    columns[~ignored] = indices
    return columns


def _is_numeric(values: ArrayLike | None) -> bool:
    return values is not None and to_numpy(values).dtype.kind in "iufb"


# Columns.


def _match_columns(
    tables: list[Table],
    class_names: Sequence[Name] | None,
    fitted_names: Sequence[Name] | None,
    fitted_source: str,
) -> tuple[list[Table], list[Name] | None, bool]:
    """Return tables with their columns in one order, the names, and whether the first moved."""
    first = tables[0]
    if class_names is not None:
        names: list[Name] | None = list(class_names)
        assert names is not None
        matrix = next((table for table in tables if not table.is_vector), first)
        if np.ndim(matrix.values) == 2:
            check_class_names(names, matrix.values.shape[1])
        source = "class_names"
    elif fitted_names is not None:
        names, source = list(fitted_names), fitted_source
    else:
        leader = next((table for table in tables if table.label_names is not None), None)
        names = None if leader is None else leader.label_names
        source = first.argument if leader is None else leader.argument
    expected: Sequence[Name] | None = names
    if expected is None and first.class_names is not None:
        expected = first.class_names  # default names still match a permutation of themselves
    ordered = [table.in_order(expected, source) for table in tables]
    if class_names is not None and ordered[0] is not first:
        _refuse_other_order(first, [str(name) for name in class_names])
    return ordered, names, ordered[0] is not first


def _refuse_other_order(table: Table, expected: list[str]) -> None:
    """Refuse a frame whose columns are in another order than class_names."""
    own = table.texts or []
    first = next(column for column, name in enumerate(own) if name != expected[column])
    raise InputError(
        table.argument,
        f"has the column {own[first]!r} where class_names has {expected[first]!r}",
        "pass the same classes in the same order",
    )


def _refuse_sparse(values: ArrayLike, argument: str) -> None:
    layout = getattr(values, "layout", None)
    if layout is not None and "sparse" in str(layout):
        raise InputError(argument, "is a sparse tensor", f"pass {argument}.to_dense()")


def _frame_values(values: Any, names: tuple[Name, ...], argument: str) -> Any:
    """Return a frame's values as an array; a column that does not hold numbers is refused."""
    array = to_numpy(values, argument)
    if array.dtype.kind in "fiu":
        return array
    for name in names:
        column = values.column(name) if hasattr(values, "column") else values[name]
        kind = to_numpy(column, argument).dtype.kind
        if kind not in "fiub":
            raise InputError(
                argument,
                f"has the column {name!r}, which does not hold numbers",
                _selection_hint(values, argument, [name]),
            )
    return array


def _refuse_other_columns(table: Table, values: Any, labels: ArrayLike | None) -> None:
    """Refuse a frame that still holds labels, predictions or other columns that are not scores."""
    names = table.class_names
    if names is None or is_dask(values) or len(names) < 3:
        return
    other = [name for name in names if str(name).lower() in _NOT_SCORES]
    reason = "is called like labels or predictions"
    if not other:
        other, reason = _columns_equal_to(table, labels), "holds the labels"
    if not other:
        other, reason = _columns_outside_pattern(names), "is not named like the others"
    if other:
        raise InputError(
            table.argument,
            f"has the column {other[0]!r}, which {reason}, not the scores of a class",
            _selection_hint(values, table.argument, other)
            + "; if it is a class, pass class_names=",
        )


def _selection_hint(values: Any, argument: str, names: Sequence[Name]) -> str:
    """Return how to leave columns out, in the words of the frame's library."""
    library = type(values).__module__.partition(".")[0]
    listed = list(names)
    if library == "pyarrow":
        return f"pass {argument}.drop_columns({listed!r})"
    return f"pass {argument}.drop({'' if library == 'polars' else 'columns='}{listed!r})"


def _columns_equal_to(table: Table, labels: ArrayLike | None) -> list[Name]:
    """Return the columns that hold the labels themselves."""
    if labels is None or table.class_names is None:
        return []
    truth = to_numpy(labels)
    if truth.ndim != 1 or truth.dtype.kind not in "iuf" or len(truth) != len(table.values):
        return []
    if len(truth) < 2 or (truth == truth[0]).all():
        return []
    same = (table.values == truth[:, None]).all(axis=0)
    return [name for name, is_same in zip(table.class_names, same, strict=True) if is_same]


def _columns_outside_pattern(names: Sequence[Name]) -> list[Name]:
    """Return the columns that are not numbered where the others are: p0, p1, p2, age.

    Examples
    --------
    >>> _columns_outside_pattern(["p0", "p1", "p2", "age"]), _columns_outside_pattern(["a1", "b"])
    (['age'], [])
    """
    numbered: dict[str, list[int]] = {}
    for name in names:
        parts = re.fullmatch(r"(.*?[^0-9])([0-9]+)", str(name))
        if parts:
            numbered.setdefault(parts[1], []).append(int(parts[2]))
    for prefix, numbers in numbered.items():
        is_range = sorted(numbers) == list(range(min(numbers), min(numbers) + len(numbers)))
        if len(numbers) >= 2 and min(numbers) in (0, 1) and is_range and len(numbers) < len(names):
            return [
                name for name in names if not re.fullmatch(re.escape(prefix) + "[0-9]+", str(name))
            ]
    return []


# Rows.


def _match_rows(
    tables: list[Table], vectors: dict[str, Any], leader: str
) -> tuple[list[Table], dict[str, Any]]:
    """Return tables and vectors with their rows in the order of one of them."""
    for argument, vector in vectors.items():
        refuse_masked(vector, argument)
    indices = {table.argument: table.index for table in tables if table.index is not None}
    for argument, vector in vectors.items():
        index = _pandas_index(vector)
        if index is not None:
            indices[argument] = index
    rows = next((len(index) for index in indices.values()), 0)
    # Other lengths are refused where the lengths are checked.
    indices = {argument: index for argument, index in indices.items() if len(index) == rows}
    if len(indices) < 2:
        return tables, vectors
    arguments = sorted([*(table.argument for table in tables), *vectors], key=leader.__ne__)
    indices = {argument: indices[argument] for argument in arguments if argument in indices}
    default = [argument for argument, index in indices.items() if _is_default(index)]
    meaningful = [argument for argument in indices if argument not in default]
    for argument in meaningful if default else ():
        if _is_shuffled_default(indices[argument]):
            raise _ambiguous_error(*sorted((argument, default[0]), key=arguments.index))
    orders: dict[str, list[int]] = {}
    for argument in meaningful[1:]:
        order = _matching_order(meaningful[0], argument, indices)
        if order is None:
            continue
        if meaningful[0] != arguments[0]:
            raise _no_order_error(arguments[0], meaningful[0], argument)
        orders[argument] = order
    tables = [
        table.take(orders[table.argument]) if table.argument in orders else table
        for table in tables
    ]
    vectors = {
        argument: vector.take(orders[argument]) if argument in orders else vector
        for argument, vector in vectors.items()
    }
    return tables, vectors


def _pandas_index(values: Any) -> Any:
    """Return the index of a pandas object; None for everything else."""
    # An index exists only once pandas is loaded; another thread may be loading it now.
    pandas: Any = sys.modules.get("pandas")
    if not (hasattr(pandas, "DataFrame") and hasattr(pandas, "Series")):
        return None
    return values.index if isinstance(values, (pandas.DataFrame, pandas.Series)) else None


def _is_default(index: Any) -> bool:
    """Whether an index is 0..n−1 in order, as pandas creates by default."""
    if isinstance(index, sys.modules["pandas"].RangeIndex):
        return bool(index.start == 0 and index.step == 1)
    return _is_numeric_index(index) and np.array_equal(index.to_numpy(), np.arange(len(index)))


def _is_shuffled_default(index: Any) -> bool:
    """Whether an index is a permutation of 0..n−1: a reordered frame of this size."""
    if not _is_numeric_index(index) or index.min() != 0 or index.max() != len(index) - 1:
        return False
    return np.array_equal(np.sort(index.to_numpy()), np.arange(len(index)))


def _is_numeric_index(index: Any) -> bool:
    return getattr(index.dtype, "kind", "O") in "iuf" and not index.hasnans


def _matching_order(first: str, second: str, indices: dict[str, Any]) -> list[int] | None:
    """Return the rows of the second index in the order of the first; None if they are equal."""
    if indices[first] is indices[second] or indices[first].equals(indices[second]):
        return None
    for name, other in ((first, second), (second, first)):
        if not indices[name].is_unique:
            raise _repeated_error(name, indices[name], other)
    # A dictionary, because pandas' own lookup raises for some pairs of index types.
    entries = indices[first].tolist()
    rows = {entry: row for row, entry in enumerate(indices[second].tolist())}
    if rows.keys() != set(entries):
        raise _unmatched_error(first, set(entries), second, indices[second].tolist())
    return [rows[entry] for entry in entries]


def _ambiguous_error(first: str, second: str) -> InputError:
    return InputError(
        second,
        f"and {first} have the same numbers as index, 0..n−1, but in different orders, one of "
        f"them the default order",
        f"pass {second}.loc[{first}.index] to match rows by index, or {second}.to_numpy() to "
        f"match them by position",
    )


def _no_order_error(unordered: str, first: str, second: str) -> InputError:
    return InputError(
        second,
        f"and {first} have the same index in different orders, and {unordered} has no index to "
        f"choose between them",
        f"pass {second}.loc[{first}.index] if {unordered} is in the order of {first}, or give "
        f"{unordered} the index too",
    )


def _repeated_error(name: str, index: Any, other: str) -> InputError:
    rows = np.flatnonzero(index.duplicated())
    entry = index[rows[:1]].tolist()[0]
    return InputError(
        name,
        "repeats an index entry",
        f"the index of {other} differs, so rows can only be matched by entries that occur once: "
        f"make the index unique, or pass {name}.to_numpy() to match rows by position",
        rows=rows,
        detail=f"repeats the index entry {entry!r}",
    )


def _unmatched_error(
    first: str, first_entries: set[Any], second: str, entries: list[Any]
) -> InputError:
    rows = [row for row, entry in enumerate(entries) if entry not in first_entries]
    entry = next((entries[row] for row in rows), None)
    return InputError(
        second,
        f"has an index entry that {first} does not have",
        f"pass the same rows in both, or {second}.to_numpy() to match rows by position",
        rows=rows,
        detail=f"has the index entry {entry!r}, which {first} does not have",
    )
