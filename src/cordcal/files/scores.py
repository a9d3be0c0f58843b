"""Find the scores, the labels, the features and the class names in a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, raise_first, row_error
from cordcal._numeric.types import Kind
from cordcal._validation.labels import as_indices
from cordcal._validation.names import class_order
from cordcal._validation.scores import as_matrix
from cordcal.files._kinds import check_whole_vectors, looks_like
from cordcal.files.columns import FEATURE_NAMES, LABEL_NAMES, ColumnSpec, list_names
from cordcal.files.contents import Contents
from cordcal.files.formats import open_contents

_LOGIT_NAMES = ("logits", "logit")
_PROBABILITY_NAMES = ("probabilities", "probs", "probas", "proba", "prob", "y_prob")
# Fields of lines that are a language model's answers.
_ANSWERS = frozenset(("choices", "logprobs", "option_logprobs", "resps", "response"))
_SCORE_NAMES = ("scores", *_LOGIT_NAMES, *_PROBABILITY_NAMES, "array")
_LABEL_SUFFIXES = (".npy", ".npz", ".csv", ".parquet", ".txt", ".feather", ".jsonl", ".h5", ".pt")


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of a file, with what the file says about them.

    Attributes
    ----------
    path : str
        Where they came from.
    key : str
        The key or column they were stored under.
    values : ndarray of shape (n, K)
        The scores as stored, in their dtype.
    kind : str
        ``"logits"`` or ``"probabilities"``: what the name says, else what the values say.
    labels : ndarray of int or None
        The labels as column indices.
    class_names : tuple of str or None
        One name a column.
    features : ndarray or None
        Penultimate features, for the calibrators that need them.
    weights : ndarray or None
        One weight a row, where they were asked for.
    columns : tuple of str
        The columns of a table that the scores were gathered from; none where they are one array.
    """

    path: str
    key: str
    values: npt.NDArray[Any]
    kind: Kind
    labels: npt.NDArray[np.int64] | None = None
    class_names: tuple[str, ...] | None = None
    features: npt.NDArray[Any] | None = None
    weights: npt.NDArray[Any] | None = None
    columns: tuple[str, ...] = ()


def read_scores(
    path: str | os.PathLike[str],
    *,
    key: str | None = None,
    columns: str | Sequence[str] | None = None,
    role: str = "scores",
    labels: str | None = None,
    labels_column: str | None = None,
    features: str | None = None,
    features_columns: str | Sequence[str] | None = None,
    weights: str | None = None,
    weights_column: str | None = None,
    class_names: Sequence[str] | None = None,
    input: Kind | None = None,
    classes: Sequence[str] | None = None,
    header: bool | None = None,
) -> Scores:
    r"""Read the scores of a file.

    Parameters
    ----------
    path : path or "-"
        A npz, npy, CSV, JSONL, Parquet, Feather, HDF5 or torch file, a folder or a pattern of
        such files; ``-`` reads stdin.
    key : str, optional
        The key or the list column of the scores; found by name where left out.
    columns : str or sequence of str, optional
        The columns of a table that are scores, one a class: names, or patterns such as
        ``"score_*"``.
    role : str
        A name to prefer: ``"original"`` or ``"direct"``.
    labels, features, weights : str, optional
        Files that hold them, where they do not lie in the file of the scores.
    labels_column, weights_column : str, optional
        The key or column of that file; labels are found by name where it is left out.
    features_columns : str or sequence of str, optional
        The key or the columns of that file.
    class_names : sequence of str, optional
        One name a column, for a file that has none.
    input : {"logits", "probabilities"}, optional
        The kind, where the file does not make it plain.
    classes : sequence of str, optional
        The classes of a model: columns of these names are the scores, in this order.
    header : bool, optional
        Whether the first line of CSV files is a header.  By default a line with a word above
        numbers is one, and so are distinct whole numbers above numbers with fractions; a line
        that may be either is refused.

    Returns
    -------
    scores : Scores
        Checked to be whole vectors of finite numbers.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp(), "probabilities.csv")
    >>> _ = path.write_text("0,1\n0.25,0.75\n0.5,0.5\n")
    >>> read_scores(path, header=True).values.shape, read_scores(path, header=False).values.shape
    ((2, 2), (3, 2))
    """
    spec = ColumnSpec.of(
        key, columns, labels, labels_column, features, features_columns, weights, weights_column
    ).named(class_names, classes, header=header)
    return read_with_spec(path, spec, role=role, input=input)


def read_with_spec(
    path: str | os.PathLike[str],
    spec: ColumnSpec,
    *,
    role: str = "scores",
    input: Kind | None = None,
) -> Scores:
    """Read scores of which all that is known is in one record; see `read_scores`."""
    labels, weights = spec.labels, spec.weights
    contents = open_contents(path, spec)
    chosen = choose(contents, spec.key, role, input)
    values = as_matrix(contents.matrices[chosen], f"{contents.path} ({chosen})")
    _check_values(values, f"{contents.path} ({chosen})")
    names = names_of(contents, chosen, values.shape[1], spec)
    values = in_order(values, contents, chosen, names, spec)
    truth = _vector_of(contents, label_key(contents, chosen, spec), spec, "labels")
    weight = _vector_of(contents, weight_key(contents, spec), spec, "weights")
    if weight is not None:
        check_length(len(weight), weights or contents.path, "weights", len(values))
    if truth is not None:
        if labels is not None:
            check_length(len(truth), labels, "labels", len(values))
        _check_label_numbers(truth, contents, chosen, names, spec)
        truth = as_indices(truth, values.shape, names, labels or contents.path)
    return Scores(
        path=contents.path,
        key=chosen,
        values=values,
        kind=input or kind_of(chosen, values),
        labels=truth,
        class_names=names,
        features=_features(contents, spec, len(values)),
        weights=weight,
        columns=wide_columns(contents, chosen),
    )


def _check_label_numbers(
    truth: npt.NDArray[Any],
    contents: Contents,
    key: str,
    names: tuple[str, ...] | None,
    spec: ColumnSpec,
) -> None:
    # Labels in a file of their own count the columns of the first part.
    apart = spec.labels is not None
    for part in contents.parts[: 1 if apart else None] or (contents,):
        own = part.own_names_of(key) or spec.class_names
        check_label_numbers(truth, own, names, part.path)


def read_labels(path: str, scores: Scores) -> npt.NDArray[np.int64]:
    """Read labels from a file of their own, as column indices of ``scores``."""
    found = read_vector(path)
    return as_indices(found, scores.values.shape, scores.class_names, path)


def wide_columns(contents: Contents, key: str) -> tuple[str, ...]:
    """Return the columns that a matrix was gathered from; none where it is one array."""
    columns = contents.columns.get(key, ())
    return () if columns == (key,) else columns


def names_of(
    contents: Contents, key: str, classes: int, spec: ColumnSpec
) -> tuple[str, ...] | None:
    """Return one name per column, in the order that is used: a model's, the caller's, the file's.

    Columns are matched by name, so other classes than the required ones are refused.
    """
    own, given, required = contents.names_of(key), spec.class_names, spec.required
    names = own if given is None else given
    if names is not None and len(names) != classes:
        where = contents.path if given is None else "class_names"
        raise InputError(
            where,
            f"has {len(names)} class names but {key} has {classes} columns",
            "give each column one name",
        )
    if given is not None and own is not None:
        class_order(own, given, contents.path, "class_names")  # refuses other classes
    if names is not None and required is not None:
        class_order(names, required, contents.path, spec.classes_in)
        return required
    numbers = spec.classes
    if names is not None and numbers is not None and set(names) == set(numbers):
        return numbers
    return names


def in_order(
    values: npt.NDArray[Any],
    contents: Contents,
    key: str,
    names: tuple[str, ...] | None,
    spec: ColumnSpec,
) -> npt.NDArray[Any]:
    """Return scores with their columns in the order of the classes, matched by name."""
    own = contents.names_of(key) or spec.class_names
    if own is None or names is None:
        return values
    order = class_order(own, names, contents.path, spec.classes_in)
    # Not values[:, order], whose rows do not lie in one piece: sums would round otherwise.
    return values if order is None else values.take(order, axis=1)


def check_label_numbers(
    labels: npt.NDArray[Any],
    own: tuple[str, ...] | None,
    names: tuple[str, ...] | None,
    where: str,
) -> None:
    """Refuse numbers as labels where the columns they count were brought into another order.

    Parameters
    ----------
    labels : ndarray of shape (n,)
        Class names, or numbers.
    own, names : tuple of str or None
        The columns in the order of the file, and in the order that is used.
    where : str
        The file.
    """
    if own is None or names is None or own == names or labels.dtype.kind not in "iufb":
        return
    if all(name.lstrip("-").isdigit() for name in names):
        return  # the labels are the columns' names themselves
    raise InputError(
        where,
        f"has numbers for labels, but its columns come in another order ({list_names(own)}) than "
        f"the classes ({list_names(names)})",
        "write class names as labels, or bring the columns into this order",
    )


def feature_key(contents: Contents, spec: ColumnSpec) -> str | None:
    """Return the matrix of the penultimate features, where a file has them."""
    wanted = spec.own_features
    if spec.features is not None:
        return None
    if wanted is not None and len(wanted) == 1 and wanted[0] in contents.matrices:
        return wanted[0]
    if wanted is not None and not contents.columns:
        raise InputError(
            contents.path, f"has no matrix called {wanted[0]!r}", f"it has {_listed(contents)}"
        )
    return next((name for name in FEATURE_NAMES if name in contents.matrices), None)


def _features(contents: Contents, spec: ColumnSpec, rows: int) -> npt.NDArray[Any] | None:
    if spec.features is None:
        key = feature_key(contents, spec)
        return None if key is None else contents.matrices[key]
    columns = spec.features_columns
    apart = open_contents(spec.features, apart_places(columns, spec.header))
    found = apart.matrices[feature_matrix(apart, columns)]
    check_length(len(found), spec.features, "rows of features", rows)
    return found


def apart_places(columns: tuple[str, ...] | None, header: bool | None = None) -> ColumnSpec:
    """Return where the features are in a file of their own."""
    if columns is not None and len(columns) == 1 and "*" not in columns[0]:
        return ColumnSpec(key=columns[0], header=header)
    return ColumnSpec(columns=columns, header=header)


def feature_matrix(contents: Contents, columns: tuple[str, ...] | None) -> str:
    """Return which matrix of a file of their own the features are."""
    if columns is None:
        named = [name for name in FEATURE_NAMES if name in contents.matrices]
        names = named or list(contents.matrices)
        if names:
            return names[0]
    return choose(contents, apart_places(columns).key, "features", None)


def weight_key(contents: Contents, spec: ColumnSpec) -> str | None:
    """Return the vector of the weights; only one that is named is used."""
    if spec.weights is not None or spec.weights_column is None:
        return None
    return _vector(contents, spec.weights_column, "weights")


def _vector_of(
    contents: Contents, key: str | None, spec: ColumnSpec, what: str
) -> npt.NDArray[Any] | None:
    """Return the labels or the weights of this file, or of a file of their own."""
    apart = vector_apart(spec, what)
    if apart is not None:
        return apart
    return None if key is None else contents.vectors[key]


def vector_apart(spec: ColumnSpec, what: str) -> npt.NDArray[Any] | None:
    """Return the labels or the weights where they lie in a file of their own."""
    file, column = getattr(spec, what), getattr(spec, f"{what}_column")
    if file is None:
        return None
    names = LABEL_NAMES if what == "labels" else ()
    return read_vector(file, column, names, header=spec.header)


def check_length(found: int, where: str, what: str, rows: int) -> None:
    """Refuse a file of its own that has not one entry a row."""
    if found != rows:
        error = InputError(
            where,
            f"has {found} {what} but there are {rows} rows of scores",
            f"pass as many {what} as rows",
        )
        is_text = Path(where).suffix.lower() in (".csv", ".tsv", ".txt")
        # A first line may be a heading, such as pandas' 0, or not.
        raise error.with_option_hint("header", str(found > rows)) if is_text else error


def choose(contents: Contents, key: str | None, role: str, input: Kind | None) -> str:
    """Return the name of the matrix that holds the scores."""
    matrices = contents.matrices
    if key is not None:
        if key in matrices:
            return key
        raise InputError(
            contents.path, f"has no matrix called {key!r}", f"it has {_listed(contents)}"
        )
    if not matrices:
        hint = f"it has {_listed(contents)}"
        if contents.format == "jsonl" and not _ANSWERS.isdisjoint(contents.vectors):
            hint += (
                "; a language model's answers are read with cordcal.llm.read_answers, or --answers"
            )
        raise InputError(contents.path, "holds no matrix of scores (rows × classes)", hint)
    first: tuple[str, ...] = _PROBABILITY_NAMES if input == "probabilities" else _LOGIT_NAMES
    for name in (role, *first, *_SCORE_NAMES):
        if name in matrices:
            return name
    candidates = [name for name in matrices if name not in FEATURE_NAMES]
    if len(candidates) == 1:
        return candidates[0]
    # The original and the direct reports have no key of their own to be chosen by.
    hint = "choose one, as in {option}" if role == "scores" else f"call the one to read {role!r}"
    raise InputError(
        contents.path,
        f"holds several matrices ({', '.join(candidates)})",
        hint,
        option=("key", candidates[0]),
    )


def _listed(contents: Contents) -> str:
    parts = [f"{name} {shape}" for name, shape in contents.shapes.items()]
    return list_names(parts) if parts else "nothing that can be read as an array of numbers"


def _check_values(values: npt.NDArray[Any], name: str) -> None:
    bad = np.isnan(values).any(axis=1) | np.isposinf(values).any(axis=1)
    raise_first(
        row_error(
            bad,
            name,
            "contains NaN or an infinite value",
            "drop such rows, or, if these are top-k scores, pass whole vectors with one column "
            "a class",
        )
    )
    check_whole_vectors(values, name)


def kind_of(key: str, values: npt.NDArray[Any]) -> Kind:
    """Return what the scores are: what their name says, else what they look like."""
    if any(name in key.lower() for name in _LOGIT_NAMES):
        return "logits"
    return looks_like(values)


def label_key(contents: Contents, key: str, spec: ColumnSpec) -> str | None:
    """Return the vector that was named for the labels, or that which goes with ``key``.

    These are cal_labels with cal_logits, labels_cal with probas_cal, labels with scores.
    """
    if spec.labels is not None:
        return None
    if spec.labels_column is not None:
        return _vector(contents, spec.labels_column, "labels")
    group, slash, own = key.rpartition("/")
    around = [own.split(name, 1) for name in _SCORE_NAMES if name in own]
    # In a file of folders, labels that lie elsewhere are another classifier's.
    for before, behind in (*around, ("", "")):
        for name in LABEL_NAMES:
            found = f"{group}{slash}{before}{name}{behind}"
            if found in contents.vectors:
                return found
    return None


def _vector(contents: Contents, name: str, what: str) -> str:
    if name in contents.vectors:
        return name
    raise InputError(
        contents.path,
        f"has no key or column called {name!r} for the {what}",
        f"it has {_listed(contents)}",
    )


def read_vector(
    path: str,
    column: str | None = None,
    names: Sequence[str] = LABEL_NAMES,
    *,
    header: bool | None = None,
) -> npt.NDArray[Any]:
    """Return the labels, or another vector, of a file that holds them."""
    if not is_file(path):
        what = "labels_column" if names else "weights_column"
        hint = "a key or column of the scores' own file is named with {option}"
        raise InputError(path, "is no file", hint, option=(what, path))
    contents = open_contents(path, ColumnSpec(labels_column=column, words=True, header=header))
    for name in names if column is None else (column,):
        if name in contents.vectors:
            return contents.vectors[name]
    # pandas writes its index below an empty heading.
    headed = [name for name in contents.vectors if name] or list(contents.vectors)
    if column is None and len(headed) == 1:
        return contents.vectors[headed[0]]
    what = "vector of labels" if column is None else f"key or column called {column!r}"
    raise InputError(contents.path, f"holds no {what}", f"it has {_listed(contents)}")


def is_file(text: str) -> bool:
    """Whether what names labels is a file rather than a key or column."""
    return text == "-" or Path(text).exists() or Path(text).suffix.lower() in _LABEL_SUFFIXES
