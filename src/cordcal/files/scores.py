"""Find the scores, the labels, the features and the class names in a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, raise_first, renumber_rows, row_error
from cordcal._numeric.types import Kind
from cordcal._validation.labels import as_indices
from cordcal._validation.names import class_order
from cordcal._validation.scores import as_matrix
from cordcal.files._kinds import check_whole_vectors, looks_like
from cordcal.files.columns import FEATURE_NAMES, LABEL_NAMES, ColumnSpec, list_names
from cordcal.files.contents import Contents
from cordcal.files.formats import FORMATS, open_contents, open_source
from cordcal.files.output import file_identity
from cordcal.files.parts import parts_of
from cordcal.files.passthrough import Passthrough, PassthroughSchema, concat
from cordcal.files.sources import SAMPLE_ROWS, Source, Span

_LOGIT_NAMES = ("logits", "logit")
_PROBABILITY_NAMES = ("probabilities", "probs", "probas", "proba", "prob", "y_prob")
# Fields of lines that are a language model's answers.
_ANSWERS = frozenset(("choices", "logprobs", "option_logprobs", "resps", "response"))
_SCORE_NAMES = ("scores", *_LOGIT_NAMES, *_PROBABILITY_NAMES, "array")


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
    """Read the scores that a `ColumnSpec` describes; see `read_scores`."""
    source = open_source(os.fspath(path), spec)
    key = choose(source.sample(), spec.key, role, input)
    return _read_whole(source.contents(), key, spec, input)


def _read_whole(contents: Contents, key: str, spec: ColumnSpec, input: Kind | None) -> Scores:
    name = f"{contents.path} ({key})"
    values = as_matrix(contents.matrices[key], name)
    check_values(values, name)
    names = names_of(contents, key, values.shape[1], spec)
    values = in_order(values, contents, key, names, spec)
    labels = _vector_of(contents, label_key(contents, key, spec), spec, "labels")
    weights = _vector_of(contents, weight_key(contents, spec), spec, "weights")
    if weights is not None:
        check_length(len(weights), spec.weights or contents.path, "weights", len(values))
    if labels is not None:
        if spec.labels is not None:
            check_length(len(labels), spec.labels, "labels", len(values))
        _check_label_numbers(labels, contents, key, names, spec)
        labels = as_indices(labels, values.shape, names, spec.labels or contents.path)
    return Scores(
        path=contents.path,
        key=key,
        values=values,
        kind=input or kind_of(key, values),
        labels=labels,
        class_names=names,
        features=_features(contents, spec, len(values)),
        weights=weights,
        columns=wide_columns(contents, key),
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


def check_values(values: npt.NDArray[Any], name: str) -> None:
    """Refuse rows that are not whole vectors of finite numbers."""
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
    suffixes = {".txt", *(suffix for each in FORMATS for suffix in each.suffixes)}
    return text == "-" or Path(text).exists() or Path(text).suffix.lower() in suffixes


@dataclass(frozen=True, eq=False)
class Batch:
    """Some rows of a file, in order.

    Attributes
    ----------
    first : int
        The number of the first row in the file, or that from which on rows are left out.
    values : ndarray of shape (rows, K)
        The scores as stored.
    labels : ndarray of int or None
        The labels as column indices.
    features : ndarray or None
        Penultimate features, where the file has them.
    kept : ndarray of int or None
        The numbers of the rows in the file, where some between them are left out.
    weights : ndarray or None
        One weight a row, where they were asked for.
    rest : Passthrough or None
        The other columns of a table, where they were asked for.
    """

    first: int
    values: npt.NDArray[Any]
    labels: npt.NDArray[np.int64] | None = None
    features: npt.NDArray[Any] | None = None
    kept: npt.NDArray[np.intp] | None = None
    weights: npt.NDArray[Any] | None = None
    rest: Passthrough | None = None

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def rows(self, start: int, stop: int) -> Batch:
        """Return some of the rows, counted within the batch."""
        batch = self._picked(slice(start, stop))
        return replace(batch, first=self.first + start)

    def where(self, keep: npt.NDArray[np.bool_]) -> Batch:
        """Return the rows that are flagged."""
        return replace(self._picked(keep), kept=self.numbers[keep])

    @property
    def numbers(self) -> npt.NDArray[np.intp]:
        """The number of each row in the file."""
        return np.arange(self.first, self.first + len(self)) if self.kept is None else self.kept

    def _picked(self, rows: slice | npt.NDArray[np.bool_]) -> Batch:
        columns = (self.values, self.labels, self.features, self.kept, self.weights)
        picked = (None if column is None else column[rows] for column in columns)
        rest = None if self.rest is None else self.rest.take(_numbers(rows))
        return Batch(self.first, *picked, rest)  # type: ignore[arg-type, call-arg]


def _numbers(rows: slice | npt.NDArray[np.bool_]) -> slice | npt.NDArray[np.intp]:
    return rows if isinstance(rows, slice) else np.flatnonzero(rows)


class ScoreFile:
    """An open score file: what it holds, and its rows in batches.

    Made by `open_scores`; iterate over it as often as you like.

    Attributes
    ----------
    path, key : str
        The file, and the key or column of the scores.
    kind : str
        ``"logits"`` or ``"probabilities"``.
    rows, classes : int
        The shape of the scores.
    dtype : dtype
        Their dtype.
    class_names : tuple of str or None
        One name a column.
    spans : tuple of (int, int)
        First and last-plus-one row of every batch.
    columns : tuple of str
        The columns of a table that the scores were gathered from; none where they are one array.
    consumed : tuple of str
        The columns of a table that hold the scores.
    with_rest : bool
        Whether batches have the other columns of a table too.
    numbers : ndarray of int or None
        The number of each row in the file, where a reader has left some out.
    opener : callable
        Opens other files as this one was opened, here or on another machine; files of labels
        or weights belong to the rows of this one, and are left out.
    """

    def __init__(
        self,
        source: Source,
        sample: Contents,
        key: str,
        kind: Kind,
        spec: ColumnSpec = ColumnSpec(),  # noqa: B008 - it is frozen
        numbers: npt.NDArray[np.intp] | None = None,
    ) -> None:
        values = sample.matrices[key]
        dtype = source.dtype_of(key)
        self.path, self.key, self.kind, self.numbers = sample.path, key, kind, numbers
        self.opener: Callable[[str], ScoreFile] = open_scores
        self.class_names = names_of(sample, key, values.shape[1], spec)
        self.columns = wide_columns(sample, key)
        self.consumed = tuple(sample.columns.get(key, ()))
        self.with_rest = spec.rest and bool(sample.columns)
        self.spans = source.spans_of(key)
        self.rows, self.classes = self.spans[-1][1], int(values.shape[1])
        self.dtype = dtype if dtype.kind == "f" else np.dtype(np.float64)
        self._schema: PassthroughSchema | None = None
        self._own_names = sample.own_names_of(key) or spec.class_names
        self._source, self._spec = source, spec
        self._labels = label_key(sample, key, spec)
        self._weights = weight_key(sample, spec)
        self._features = feature_key(sample, spec)
        self._label_file, self._weight_file = (
            self._apart("labels"),
            self._apart("weights"),
        )

    def unify_parts(self, suffix: str) -> None:
        """Settle the passthrough columns of several parts for one file with such a suffix."""
        parts = self._source.part_columns(self.key) if self.with_rest else []
        if len(parts) > 1:
            self._schema = PassthroughSchema(parts, suffix)

    @property
    def identity(self) -> list[list[int | str]]:
        """What changes if a file that is read does: the parts of the scores, and the features."""
        path, features = self.path, self._spec.features
        if not Path(path).exists() and parts_of(path) is None:
            return []  # stdin
        paths = [*(parts_of(path) or [path]), *([] if features is None else [features])]
        return [[os.path.basename(each), *file_identity(each)] for each in paths]

    @property
    def own_names(self) -> tuple[str, ...] | None:
        """One name per column in the order of the file, which may be another than that in use."""
        return self._own_names if self.class_names is not None else None

    def use_order(self, names: tuple[str, ...], than: str) -> None:
        """Bring the columns into the order of these classes, which ``than`` has.

        Other classes are refused.
        """
        if self.class_names is not None:
            class_order(self.class_names, names, self.path, than)
            self.class_names = names
            if isinstance(self.opener, partial):
                spec = replace(self.opener.keywords["spec"], classes=None, expected=names)
                self.opener = partial(open_with_spec, **{**self.opener.keywords, "spec": spec})

    @property
    def name(self) -> str:
        """The file and the key, for messages."""
        return f"{self.path} ({self.key})"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and classes."""
        return self.rows, self.classes

    def __len__(self) -> int:
        return self.rows

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Yield the batches, from a row on."""
        first = next((at for at, span in enumerate(self.spans) if span[1] > start), len(self.spans))
        found = (self._labels, self._weights, self._features)
        wanted = [self.key, *(name for name in found if name is not None)]
        pieces = self._source.pieces(first, wanted, passthrough=self._spec.rest)
        apart = self._features_apart(self.spans[first:])
        for begin, stop in self.spans[first:]:
            features = None if apart is None else next(apart).values
            # Nothing here may hold on to a batch while the next one is read.
            if begin >= start:
                yield self._batch(next(pieces), begin, stop, features)
            else:
                batch = self._batch(next(pieces), begin, stop, features)
                yield batch.rows(start - begin, stop - begin)

    def along(self, spans: Sequence[Span]) -> Iterator[Batch]:
        """Yield batches of other spans of rows than the file's own."""
        batches = self.batches(spans[0][0])
        held: list[Batch] = []
        for start, stop in spans:
            while not held or held[-1].first + len(held[-1]) < stop:
                held.append(next(batches))
            parts = [
                batch.rows(max(start - batch.first, 0), min(stop - batch.first, len(batch)))
                for batch in held
            ]
            yield concat_batches(parts)
            held = [batch for batch in held if batch.first + len(batch) > stop]

    def vectors_apart(self) -> list[dict[str, npt.NDArray[Any]]]:
        """Return labels and weights that lie in files of their own, part by part."""
        found: dict[str, npt.NDArray[Any]] = {}
        if self._label_file is not None:
            where = self._spec.labels or self.path
            as_indices(self._label_file, self.shape, self.class_names, where)  # refuses bad ones
            found["labels"] = self._label_file
        if self._weight_file is not None:
            found["weights"] = self._weight_file
        edges = np.cumsum(self._source.part_rows(self.key))[:-1]
        parts = {name: np.split(vector, edges) for name, vector in found.items()}
        return [{name: each[at] for name, each in parts.items()} for at in range(len(edges) + 1)]

    def attach(self, vectors: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take labels and weights that somebody else has read for those of the file."""
        self._label_file = vectors.get("labels", self._label_file)
        self._weight_file = vectors.get("weights", self._weight_file)

    def without_labels(self) -> ScoreFile:
        """Return the file without its labels, for work that does not need them.

        Examples
        --------
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/scores.npz"
        >>> np.savez(path, logits=np.zeros((5, 4)), labels=np.arange(5))  # 4 is not a class
        >>> [batch.labels for batch in open_scores(path).without_labels()]
        [None]
        """
        found = copy(self)
        found._labels = found._label_file = None
        return found

    def _batch(
        self, contents: Contents, start: int, stop: int, features: npt.NDArray[Any] | None
    ) -> Batch:
        with renumber_rows(start):
            values = as_matrix(contents.matrices[self.key], self.name)
            truth = self._vector(contents, self._labels, self._label_file, start, stop)
            weights = self._vector(contents, self._weights, self._weight_file, start, stop)
            labels = None
            if truth is not None:
                where = self._spec.labels or self.path
                self._check_label_numbers(truth, contents)
                labels = as_indices(truth, values.shape, self.class_names, where)
            if self._features is not None:
                features = contents.matrices[self._features]
        if values.shape != (stop - start, self.classes):
            raise InputError(
                self.name,
                f"has {values.shape[1]} entries, the first row {self.classes}",
                "pass whole vectors, one entry for each class in every row",
                rows=[start],
            )
        values = in_order(values, contents, self.key, self.class_names, self._spec)
        values = values.astype(self.dtype, copy=False)
        kept = None if self.numbers is None else self.numbers[start:stop]
        rest = contents.passthrough
        if rest is not None and self._schema is not None:
            rest = self._schema.conform(rest, stop - start)
        return Batch(start, values, labels, features, kept, weights, rest)

    def _check_label_numbers(self, truth: npt.NDArray[Any], contents: Contents) -> None:
        own = contents.own_names_of(self.key) or self._spec.class_names
        if self._label_file is not None:  # they count the columns of the first part
            own = self._own_names
        check_label_numbers(truth, own, self.class_names, contents.path)

    def _vector(
        self, contents: Contents, key: str | None, apart: Any, start: int, stop: int
    ) -> npt.NDArray[Any] | None:
        if apart is not None:
            found: npt.NDArray[Any] = apart[start:stop]
            return found
        return None if key is None else contents.vectors[key]

    def _apart(self, what: str) -> npt.NDArray[Any] | None:
        """Return the labels or weights that a file of their own holds."""
        found = vector_apart(self._spec, what)
        if found is not None:
            check_length(len(found), getattr(self._spec, what), what, self.rows)
        return found

    def _features_apart(self, spans: Sequence[Span]) -> Iterator[Batch] | None:
        """Yield the features that a file of their own holds, along the scores' batches."""
        path, told = self._spec.features, self._spec.features_columns
        if path is None:
            return None
        source = open_source(path, apart_places(told, self._spec.header))
        sample = source.sample()
        key = feature_matrix(sample, told)
        features = ScoreFile(source, sample, key, "logits")
        check_length(features.rows, path, "rows of features", self.rows)
        return features.along(spans)


def open_scores(
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
    rest: bool = False,
    header: bool | None = None,
) -> ScoreFile:
    """Open a score file for reading in batches of at most 16 MiB.

    Parameters
    ----------
    path : path or "-"
        A Parquet, Feather, JSONL, HDF5 or npy file of any size, another file that fits in
        memory, or a folder or a pattern of files; ``-`` reads stdin.
    key, columns, role
        Where the scores are, as for `read_scores`.
    labels, labels_column, features, features_columns, weights, weights_column, class_names
        Where these are, as for `read_scores`.
    input : {"logits", "probabilities"}, optional
        The kind, where the file's name for the scores or its first rows do not make it plain.
    classes : sequence of str, optional
        The classes of a model: columns of these names are the scores, in this order.
    rest : bool
        Whether batches have the other columns of a table too, to be passed on.
    header : bool, optional
        Whether the first line of CSV files is a header, as for `read_scores`.

    Returns
    -------
    file : ScoreFile
        Iterate over it for `Batch` objects.  Values come as stored, not checked.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/scores.npy"
    >>> np.save(path, np.full((5, 4), 0.25))
    >>> scores = open_scores(path)
    >>> scores.shape, scores.kind, [len(batch) for batch in scores]
    ((5, 4), 'probabilities', [5])
    """
    spec = ColumnSpec.of(
        key, columns, labels, labels_column, features, features_columns, weights, weights_column
    ).named(class_names, classes, rest=rest, header=header)
    return open_with_spec(path, spec, role=role, input=input)


def open_with_spec(
    path: str | os.PathLike[str],
    spec: ColumnSpec,
    *,
    role: str = "scores",
    input: Kind | None = None,
) -> ScoreFile:
    """Open the scores that a `ColumnSpec` describes; see `open_scores`."""
    source = open_source(os.fspath(path), spec)
    sample = source.sample()
    chosen = choose(sample, spec.key, role, input)
    values = as_matrix(sample.matrices[chosen], f"{sample.path} ({chosen})")
    sound = _sound(values)
    if not len(sound):
        sound = _first_sound(source, chosen, values)
    if len(sound):
        check_whole_vectors(sound, f"{sample.path} ({chosen})")
    kind = input or (kind_of(chosen, sound) if len(sound) else "logits")
    file = ScoreFile(source, sample, chosen, kind, spec)
    apart = [name for name in ("labels", "weights") if getattr(spec, name) is not None]
    # Files of labels and weights belong to this file alone; its classes are those of the others.
    own: dict[str, Any] = dict.fromkeys((*apart, *(f"{name}_column" for name in apart)))
    others = replace(spec, expected=file.class_names, **own)
    file.opener = partial(open_with_spec, spec=others, role=role, input=kind)
    return file


def _sound(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the rows without a NaN; the others must not decide what a file holds."""
    found: npt.NDArray[Any] = values[np.isfinite(values).all(axis=1)]
    return found


def _first_sound(source: Source, key: str, none: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return sound rows of the first piece that has any, where the first rows of a file do not."""
    for piece in source.pieces(0, [key]):
        found = _sound(as_matrix(piece.matrices[key], f"{piece.path} ({key})"))
        if len(found):
            return found[:SAMPLE_ROWS]
    return none[:0]


def concat_batches(parts: list[Batch]) -> Batch:
    """Return consecutive batches as one."""
    if len(parts) == 1:
        return parts[0]

    def together(name: str) -> Any:
        columns = [getattr(part, name) for part in parts]
        return None if columns[0] is None else np.concatenate(columns)

    values, labels, features, weights = map(together, ("values", "labels", "features", "weights"))
    rest = concat([part.rest for part in parts])
    return Batch(parts[0].first, values, labels, features, None, weights, rest)
