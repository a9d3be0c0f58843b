"""Labels, predictions and weights: one column index or one number per row."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, raise_first, row_error
from cordcal._numeric.arrays import refuse_masked, to_numpy
from cordcal._numeric.types import ArrayLike, Classes, Flags, Labels, NumPyArray, Vector
from cordcal._validation.names import Name, check_class_names, common_pattern, nondefault_integers

NO_LABEL = "has no label"
"""The reason of an `InputError` about rows whose label is missing."""


def check_predictions(
    prediction: ArrayLike | None, rows: int, classes: int, name: str = "prediction"
) -> Classes:
    """Return class indices (predictions, labels) as an integer vector of length ``rows``."""
    array = np.atleast_1d(to_numpy(prediction, name))
    if array.ndim != 1 or array.shape[0] != rows:
        raise InputError(
            name, f"has shape {array.shape} but there are {rows} rows", _shape_hint(array, name)
        )
    if array.dtype.kind not in ("iub" if classes == 2 else "iu"):  # scores > threshold is bool
        if array.dtype.kind in "OSU" and array.size:
            raise _text_error(array, name, classes, "a data frame")
        if array.dtype.kind == "f" and np.isnan(array).any():
            what = NO_LABEL if name == "labels" else "has no value"
            raise InputError(
                name, what, "leave such rows out", rows=np.flatnonzero(np.isnan(array))
            )
        if array.dtype.kind != "f" or not np.array_equal(array, np.round(array)):
            raise InputError(
                name, f"has dtype {array.dtype}", f"pass class indices 0..{classes - 1}"
            )
        array = array.astype(np.int64)
    _refuse_outside(array, classes, name, "pass column indices, not class names")
    # A column of a table is not contiguous, and every later pass over it would be slower.
    return np.ascontiguousarray(array, dtype=np.intp)


def check_labels(labels: ArrayLike, rows: int, classes: int) -> Labels:
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
            _shape_hint(array, "labels"),
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
        raise _text_error(array, "labels", classes, "class_names= or a data frame")
    hint = f"scores has {classes} columns, so pass the column index of the true class"
    hint += _one_based_hint(array, classes)
    _refuse_outside(array, classes, "labels", hint)
    return np.ascontiguousarray(array, dtype=np.intp)


def _shape_hint(array: NumPyArray, name: str) -> str:
    """Return how to make labels or predictions of another shape one class index per row."""
    if array.ndim == 2 and array.shape[1] == 1:
        return f"pass one class index for each row: {name}.ravel()"
    if array.ndim == 2 and np.isin(array, (0, 1)).all() and (array.sum(axis=1) == 1).all():
        return f"these are one-hot rows, so pass {name}.argmax(axis=1)"
    if array.ndim == 2 and array.dtype.kind == "f":
        return f"these look like scores: the order is (scores, {name})"
    return "pass one class index for each row"


def _text_error(labels: NumPyArray, name: str, classes: int, namer: str) -> InputError:
    """Return the error for class names where the names of the columns are unknown."""
    return InputError(
        name,
        f"has words ({str(labels[0])!r}), but the names of the columns are not known",
        f"name the columns with {namer}, or pass column indices 0..{classes - 1}",
    )


def _one_based_hint(labels: NumPyArray, classes: int) -> str:
    """Return an addition to a hint if the labels are 1..K."""
    one_based = labels.size and labels.min() >= 1 and labels.max() == classes
    return "; these count from 1, so subtract 1" if one_based else ""


def _refuse_outside(array: NumPyArray, classes: int, name: str, hint: str) -> None:
    allowed = f"0..{classes - 1}"
    raise_first(
        row_error(
            (array < 0) | (array >= classes),
            name,
            f"is outside {allowed}",
            hint,
            detail=lambda row: f"is {array[row]}, outside {allowed}",
        )
    )


def check_two_classes(labels: Labels, weight: Vector | None) -> None:
    """Refuse calibration rows that all have the same label."""
    counted = labels if weight is None else labels[weight > 0.0]
    if not counted.size:
        raise InputError("labels", "are those of no row to fit on", "pass more rows")
    if (counted == counted[0]).all():
        raise InputError(
            "labels",
            f"are all {int(counted[0])}",
            "a calibrator needs rows of at least two classes, so pass a calibration set drawn "
            "like the evaluation data",
        )


def check_weights(sample_weight: ArrayLike | None, rows: int, *, some: bool = True) -> Vector:
    """Return the sample weights as a float64 vector of length ``rows``.

    With ``some`` at least one must be positive; one batch of many may have only zeros.
    """
    weight = to_numpy(sample_weight, "sample_weight")
    try:
        array = np.asarray(weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            "sample_weight", f"has dtype {weight.dtype}", "pass one number for each row"
        ) from None
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
            "is not a weight",
            "weights must be finite and not negative",
            detail=lambda row: f"is {array[row]}",
        )
    )
    if some and not array.any():
        raise zero_weight_error()
    return array


def zero_weight_error() -> InputError:
    """Return the error for weights that are all zero, for callers that read them in batches."""
    return InputError("sample_weight", "is zero in every row", "give at least one row some weight")


Names = tuple[str, ...]


def as_indices(
    labels: NumPyArray, shape: tuple[int, ...], names: Names | None, where: str
) -> npt.NDArray[np.int64]:
    """Return labels as column indices; text is looked up in the class names.

    Parameters
    ----------
    labels : ndarray of shape (n,)
        Class names, or numbers.
    shape : tuple of int
        The scores' rows and classes.
    names : tuple of str or None
        One name per column.
    where : str
        The argument or file of the labels, for messages.

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
    if labels.dtype.kind not in "iufb":
        if names is None:
            raise InputError(
                where,
                f"has words for labels ({str(labels[0])!r}) but the scores have no class names",
                f"name the columns, or pass labels 0..{classes - 1}",
            )
        return _look_up_text(labels, names, where)
    # With columns named 1..K, numeric labels are names, not positions.
    integers = None if names is None else nondefault_integers(_parse_integers(names))
    if integers is None:
        return _check_indices(labels, classes, where)
    return _look_up_integers(labels, integers, where)


def names_to_indices(
    labels: ArrayLike, shape: tuple[int, ...], names: Sequence[Name] | None
) -> ArrayLike:
    """Return labels that are class names as column indices; others, and None, unchanged.

    Numeric labels are looked up if the names are integers other than 0..K-1 in order.  If the
    names are text, numeric labels are column indices.

    Examples
    --------
    >>> names_to_indices(["cat", "dog"], (2, 2), ["dog", "cat"])
    array([1, 0])
    >>> names_to_indices([20, 10, 20], (3, 2), [10, 20])
    array([1, 0, 1])
    """
    if labels is None or names is None:
        return labels
    array = _text_or_numbers(labels)
    if array.dtype.kind not in "iufb":
        return as_indices(array, shape, tuple(str(name) for name in names), "labels")
    integers = nondefault_integers(names)
    return labels if integers is None else _look_up_integers(array, integers, "labels")


def _text_or_numbers(labels: ArrayLike) -> NumPyArray:
    """Return labels as an array; unlike with `to_numpy`, text of digits stays text."""
    array = to_numpy(labels, "labels")
    raw = np.asarray(labels) if hasattr(labels, "to_numpy") else array
    is_text = raw.dtype == object and any(issubclass(kind, str) for kind in set(map(type, raw)))
    return raw if is_text else array


def _look_up_text(labels: NumPyArray, names: Names, where: str) -> npt.NDArray[np.int64]:
    """Return the column of each label, compared as text."""
    columns = {name: index for index, name in enumerate(names)}
    if len(columns) < len(names):
        check_class_names(names, len(names))  # refuses the name that occurs twice
    indices = np.array([columns.get(str(label), -1) for label in labels], dtype=np.int64)
    unknown = np.flatnonzero(indices < 0)
    if unknown.size:
        first = ", ".join(map(repr, names[:3]))
        label = str(labels[unknown[0]])
        if not label.strip():
            raise _no_label(where, unknown)
        pattern = common_pattern(names, [label])
        hint = f"labels must be class names or 0..{len(names) - 1}"
        option = None if pattern is None or where == "labels" else ("columns", pattern)
        if pattern is not None:
            remedy = "rename them to the class names" if option is None else "pass {option}"
            hint = f"the columns are called {pattern!r}, so {remedy}"
        raise InputError(
            where,
            "has a label that is not a class name",
            hint,
            rows=unknown,
            detail=f"has the label {label!r}, which is not a class name (the first are {first})",
            option=option,
        )
    return indices


def _look_up_integers(labels: NumPyArray, names: list[int], where: str) -> npt.NDArray[np.int64]:
    """Return the column of each label, compared as numbers."""
    columns = {name: index for index, name in enumerate(names)}
    values, inverse = np.unique(labels, return_inverse=True)
    # 2.5 and NaN equal no integer, so they are unknown.
    value_columns = np.array([columns.get(value, -1) for value in values.tolist()], dtype=np.int64)
    indices = value_columns[inverse].reshape(labels.shape)
    unknown = np.flatnonzero(indices < 0)
    if unknown.size:
        first = ", ".join(map(str, names[:3]))
        raise InputError(
            where,
            "has a label that is not a class name",
            "where class names or headings are numbers other than 0..K-1 in order, labels must be "
            "among them",
            rows=unknown,
            detail=f"has the label {labels.flat[unknown[0]]}, which is not a class name (the "
            f"first are {first})",
        )
    return indices


def _no_label(where: str, rows: Classes) -> InputError:
    return InputError(where, NO_LABEL, "leave out rows without a label", rows=rows)


def _check_indices(labels: NumPyArray, classes: int, where: str) -> npt.NDArray[np.int64]:
    # NaN fails every comparison, so test what is valid and negate.
    valid = (labels >= 0) & (labels < classes) & (labels == np.floor(labels))
    invalid = np.flatnonzero(~valid)
    if invalid.size:
        if np.isnan(labels[invalid[0]]):
            raise _no_label(where, invalid)
        raise InputError(
            where,
            "has a label that is not a column",
            f"with {classes} columns, labels are the integers 0..{classes - 1}"
            f"{_one_based_hint(labels, classes)}",
            rows=invalid,
            detail=f"has the label {labels[invalid[0]]:g}",
        )
    return labels.astype(np.int64)


def _parse_integers(names: Names) -> list[Name]:
    """Return names of digits as integers, as a label column with such names is read."""
    return [int(name) if re.fullmatch("-?[0-9]+", name) else name for name in names]


Groups = npt.NDArray[np.str_]

# A column with more values identifies rows, not groups, and does not fit a table.
MAX_GROUPS = 200

NO_GROUP = "(no group)"
"""What results call the rows whose group is null or empty."""


def as_groups(groups: ArrayLike, rows: int, argument: str = "groups") -> NumPyArray:
    """Return one group per row, checked.

    Examples
    --------
    >>> as_groups(["north", "south"], 2).tolist()
    ['north', 'south']
    """
    refuse_masked(groups, argument)
    values = np.asarray(groups)
    if values.dtype.kind == "U" and not hasattr(groups, "dtype"):
        values = np.asarray(groups, dtype=object)  # in a list with text NaN would become "nan"
    if values.shape != (rows,):
        raise InputError(
            argument,
            f"has shape {values.shape} but there are {rows} rows",
            f"pass one of the {argument} for each row",
        )
    if values.dtype.kind == "f" and np.all(values == np.rint(values)):
        values = values.astype(np.int64)  # integers read as floats: region 1, not 1.0
    return values


def group_names(groups: ArrayLike, rows: int, missing: str = "") -> Groups:
    """Return the name of each row's group, ``missing`` where it is null or empty.

    Examples
    --------
    >>> group_names([1.0, 2.5, np.nan], 3).tolist()
    ['1', '2.5', '']
    >>> group_names(["north", None], 2, NO_GROUP).tolist()
    ['north', '(no group)']
    """
    values = as_groups(groups, rows)
    return np.where(is_missing(values), missing, as_texts(values))


def is_missing(values: NumPyArray) -> Flags:
    """Return which values are null or empty.

    Examples
    --------
    >>> is_missing(np.array(["a", "", " ", None, float("nan"), 0], dtype=object)).tolist()
    [False, True, True, True, True, False]
    """
    if values.dtype.kind in "iub":
        return np.zeros(len(values), dtype=np.bool_)
    return np.array([_is_missing_entry(value) for value in values.tolist()], dtype=np.bool_)


def _is_missing_entry(value: object) -> bool:
    if isinstance(value, str):
        return not value.strip()
    try:
        return value is None or bool(value != value)  # NaN and NaT differ from themselves
    except TypeError:  # and pandas' NA cannot be compared
        return True


def cluster_numbers(clusters: ArrayLike, rows: int) -> Classes:
    """Return the cluster of each row as a number from 0, checked.

    Examples
    --------
    >>> cluster_numbers(["b", "a", "b"], 3).tolist()
    [1, 0, 1]
    """
    values = as_clusters(clusters, rows)
    if values.dtype.kind == "O":  # text and numbers cannot be sorted together
        values = values.astype(str)
    return np.asarray(np.unique(values, return_inverse=True)[1])


def as_clusters(clusters: ArrayLike, rows: int) -> NumPyArray:
    """Return the cluster of each row, which must have one."""
    values = as_groups(clusters, rows, "clusters")
    raise_first(
        row_error(
            is_missing(values),
            "clusters",
            "has no value",
            "give each row without one a cluster of its own",
        )
    )
    return values


def as_texts(values: NumPyArray) -> Groups:
    """Return values as text; whole numbers are written alike in every dtype.

    Examples
    --------
    >>> as_texts(np.array([7.0, 0.5])).tolist(), as_texts(np.array(["007", 7.0], object)).tolist()
    (['7', '0.5'], ['007', '7'])
    """
    if values.dtype.kind not in "fO":
        return values.astype(str)
    texts = (
        str(int(value))
        if isinstance(value, float | np.floating) and value.is_integer()
        else str(value)
        for value in values
    )
    return np.array([*texts], dtype=np.str_)


def few_groups(groups: ArrayLike, rows: int) -> Groups:
    """Return the group names, one per row; raise if there are too many for a table."""
    names = group_names(groups, rows, NO_GROUP)
    count = len(np.unique(names))
    if count > MAX_GROUPS:
        raise InputError(
            "groups",
            f"has {count:,} different values",
            f"pass a column of at most {MAX_GROUPS}, such as a region or a source",
        )
    return names


def rows_by_group(groups: NumPyArray) -> Iterator[tuple[str, Classes]]:
    """Yield each group's name and rows."""
    names, number = np.unique(groups, return_inverse=True)
    ends = np.cumsum(np.bincount(number))
    parts = np.split(np.argsort(number, kind="stable"), ends[:-1])
    yield from zip(map(str, names.tolist()), parts, strict=True)
