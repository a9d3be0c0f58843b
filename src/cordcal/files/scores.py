"""Read score files, at once or in batches of rows."""

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

from cordcal._errors import InputError, renumber_rows
from cordcal._numeric.types import Kind, NumPyArray
from cordcal._validation.labels import as_indices
from cordcal._validation.names import class_order
from cordcal._validation.scores import as_matrix
from cordcal.files.columns import ColumnSpec
from cordcal.files.formats import open_source
from cordcal.files.output import file_identity
from cordcal.files.parts import parts_of
from cordcal.files.passthrough import Passthrough, PassthroughSchema, concat
from cordcal.files.selection import (
    check_label_numbers,
    check_length,
    check_values,
    check_whole_vectors,
    choose_matrix,
    in_order,
    kind_of,
    label_key,
    names_of,
    read_separate_vector,
    read_vector,
    vector_of,
    weight_key,
    wide_columns,
)
from cordcal.files.sources import SAMPLE_ROWS, Contents, Source, Span


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of a file, with their labels and names.

    Attributes
    ----------
    path : str
        Where they came from.
    key : str
        The key or column they were stored under.
    values : ndarray of shape (n, K)
        The scores as stored, in their dtype.
    kind : str
        ``"logits"`` or ``"probabilities"``, from the name or else from the values.
    labels : ndarray of int or None
        The labels as column indices.
    class_names : tuple of str or None
        One name per column.
    weights : ndarray or None
        One weight per row, if the caller asked for them.
    columns : tuple of str
        The table columns of the scores; empty if they are one array.
    """

    path: str
    key: str
    values: NumPyArray
    kind: Kind
    labels: npt.NDArray[np.int64] | None = None
    class_names: tuple[str, ...] | None = None
    weights: NumPyArray | None = None
    columns: tuple[str, ...] = ()


def read_scores(
    path: str | os.PathLike[str],
    *,
    key: str | None = None,
    columns: str | Sequence[str] | None = None,
    role: str = "scores",
    labels: str | None = None,
    labels_column: str | None = None,
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
        An npz, npy, CSV, JSONL, Parquet, Feather, HDF5 or torch file, a folder or a pattern of
        such files; ``-`` reads stdin.
    key : str, optional
        The key or the list column of the scores; found by name by default.
    columns : str or sequence of str, optional
        The columns of a table that are scores, one per class: names, or patterns such as
        ``"score_*"``.
    role : str
        A name to prefer: ``"original"`` or ``"direct"``.
    labels, weights : str, optional
        Separate files; by default they are in the file of the scores.
    labels_column, weights_column : str, optional
        The key or column in that file; labels are found by name by default.
    class_names : sequence of str, optional
        One name per column, for a file that has none.
    input : {"logits", "probabilities"}, optional
        The kind; detected by default.
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
    spec = ColumnSpec.of(key, columns, labels, labels_column, weights, weights_column).named(
        class_names, classes, header=header
    )
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
    key = choose_matrix(source.sample(), spec.key, role, input)
    return _read_whole(source.contents(), key, spec, input)


def _read_whole(contents: Contents, key: str, spec: ColumnSpec, input: Kind | None) -> Scores:
    name = f"{contents.path} ({key})"
    values = as_matrix(contents.matrices[key], name)
    check_values(values, name)
    names = names_of(contents, key, values.shape[1], spec)
    values = in_order(values, contents, key, names, spec)
    labels = vector_of(contents, label_key(contents, key, spec), spec, "labels")
    weights = vector_of(contents, weight_key(contents, spec), spec, "weights")
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
        weights=weights,
        columns=wide_columns(contents, key),
    )


def _check_label_numbers(
    truth: NumPyArray,
    contents: Contents,
    key: str,
    names: tuple[str, ...] | None,
    spec: ColumnSpec,
) -> None:
    # Labels in a separate file count the columns of the first part.
    separate = spec.labels is not None
    for part in contents.parts[: 1 if separate else None] or (contents,):
        own = part.own_names_of(key) or spec.class_names
        check_label_numbers(truth, own, names, part.path)


def read_labels(path: str, scores: Scores) -> npt.NDArray[np.int64]:
    """Read labels from a separate file, as column indices of ``scores``."""
    labels = read_vector(path)
    return as_indices(labels, scores.values.shape, scores.class_names, path)


@dataclass(frozen=True, eq=False)
class Batch:
    """Some rows of a file, in order.

    Attributes
    ----------
    first : int
        The number of the first row in the file.
    values : ndarray of shape (rows, K)
        The scores as stored.
    labels : ndarray of int or None
        The labels as column indices.
    row_numbers : ndarray of int or None
        The numbers of the rows in the file, if some in between are omitted.
    weights : ndarray or None
        One weight per row, if the caller asked for them.
    passthrough : Passthrough or None
        The other columns of a table, if the caller asked for them.
    """

    first: int
    values: NumPyArray
    labels: npt.NDArray[np.int64] | None = None
    row_numbers: npt.NDArray[np.intp] | None = None
    weights: NumPyArray | None = None
    passthrough: Passthrough | None = None

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def rows(self, start: int, stop: int) -> Batch:
        """Return some of the rows, counted within the batch."""
        batch = self._select(slice(start, stop))
        return replace(batch, first=self.first + start)

    def where(self, keep: npt.NDArray[np.bool_]) -> Batch:
        """Return the rows for which ``keep`` is true."""
        return replace(self._select(keep), row_numbers=self.numbers[keep])

    @property
    def numbers(self) -> npt.NDArray[np.intp]:
        """The number of each row in the file."""
        return (
            np.arange(self.first, self.first + len(self))
            if self.row_numbers is None
            else self.row_numbers
        )

    def _select(self, rows: slice | npt.NDArray[np.bool_]) -> Batch:
        columns = (self.values, self.labels, self.row_numbers, self.weights)
        picked = (None if column is None else column[rows] for column in columns)
        passthrough = None if self.passthrough is None else self.passthrough.take(_numbers(rows))
        return Batch(self.first, *picked, passthrough)  # type: ignore[arg-type, call-arg]


def _numbers(rows: slice | npt.NDArray[np.bool_]) -> slice | npt.NDArray[np.intp]:
    return rows if isinstance(rows, slice) else np.flatnonzero(rows)


class ScoreFile:
    """An open score file, read in batches of rows.

    Made by `open_scores`; it can be iterated over several times.

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
        One name per column.
    spans : tuple of (int, int)
        First and last-plus-one row of every batch.
    columns : tuple of str
        The table columns of the scores; empty if they are one array.
    consumed : tuple of str
        The columns of a table that hold the scores.
    with_passthrough : bool
        Whether batches have the other columns of a table too.
    numbers : ndarray of int or None
        The number of each row in the file, if a reader has omitted some.
    opener : callable
        Opens other files with the same settings, here or on another machine; separate files of
        labels or weights belong to this file only, and are not used.
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
        self.with_passthrough = spec.passthrough and bool(sample.columns)
        self.spans = source.spans_of(key)
        self.rows, self.classes = self.spans[-1][1], int(values.shape[1])
        self.dtype = dtype if dtype.kind == "f" else np.dtype(np.float64)
        self._schema: PassthroughSchema | None = None
        self._own_names = sample.own_names_of(key) or spec.class_names
        self._source, self._spec = source, spec
        self._labels = label_key(sample, key, spec)
        self._weights = weight_key(sample, spec)
        self._label_file, self._weight_file = (
            self._separate_vector("labels"),
            self._separate_vector("weights"),
        )

    def unify_parts(self, suffix: str) -> None:
        """Unify the passthrough columns of several parts for an output with this suffix."""
        parts = self._source.part_columns(self.key) if self.with_passthrough else []
        if len(parts) > 1:
            self._schema = PassthroughSchema(parts, suffix)

    @property
    def identity(self) -> list[list[int | str]]:
        """Values that change if one of the files does: the parts of the scores."""
        path = self.path
        if not Path(path).exists() and parts_of(path) is None:
            return []  # stdin
        paths = parts_of(path) or [path]
        return [[os.path.basename(file), *file_identity(file)] for file in paths]

    @property
    def own_names(self) -> tuple[str, ...] | None:
        """One name per column in the order of the file, which may differ from the order in use."""
        return self._own_names if self.class_names is not None else None

    def use_order(self, names: tuple[str, ...], than: str) -> None:
        """Reorder the columns to these classes, which come from ``than``.

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
        own_keys = (self._labels, self._weights)
        keys = [self.key, *(name for name in own_keys if name is not None)]
        pieces = self._source.pieces(first, keys, passthrough=self._spec.passthrough)
        for begin, stop in self.spans[first:]:
            # No reference to a batch may remain while the next one is read.
            if begin >= start:
                yield self._batch(next(pieces), begin, stop)
            else:
                batch = self._batch(next(pieces), begin, stop)
                yield batch.rows(start - begin, stop - begin)

    def along(self, spans: Sequence[Span]) -> Iterator[Batch]:
        """Yield batches of other spans of rows than the file's own."""
        batches = self.batches(spans[0][0])
        pending: list[Batch] = []
        for start, stop in spans:
            while not pending or pending[-1].first + len(pending[-1]) < stop:
                pending.append(next(batches))
            parts = [
                batch.rows(max(start - batch.first, 0), min(stop - batch.first, len(batch)))
                for batch in pending
            ]
            yield concat_batches(parts)
            pending = [batch for batch in pending if batch.first + len(batch) > stop]

    def separate_vectors(self) -> list[dict[str, NumPyArray]]:
        """Return labels and weights from separate files, part by part."""
        vectors: dict[str, NumPyArray] = {}
        if self._label_file is not None:
            where = self._spec.labels or self.path
            as_indices(self._label_file, self.shape, self.class_names, where)  # refuses bad ones
            vectors["labels"] = self._label_file
        if self._weight_file is not None:
            vectors["weights"] = self._weight_file
        edges = np.cumsum(self._source.part_rows(self.key))[:-1]
        parts = {name: np.split(vector, edges) for name, vector in vectors.items()}
        return [
            {name: arrays[at] for name, arrays in parts.items()} for at in range(len(edges) + 1)
        ]

    def attach(self, vectors: Mapping[str, NumPyArray]) -> None:
        """Use labels and weights that the caller has read already."""
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
        unlabelled = copy(self)
        unlabelled._labels = unlabelled._label_file = None
        return unlabelled

    def _batch(self, contents: Contents, start: int, stop: int) -> Batch:
        with renumber_rows(start):
            values = as_matrix(contents.matrices[self.key], self.name)
            truth = self._vector(contents, self._labels, self._label_file, start, stop)
            weights = self._vector(contents, self._weights, self._weight_file, start, stop)
            labels = None
            if truth is not None:
                where = self._spec.labels or self.path
                self._check_label_numbers(truth, contents)
                labels = as_indices(truth, values.shape, self.class_names, where)
        if values.shape != (stop - start, self.classes):
            raise InputError(
                self.name,
                f"has {values.shape[1]} entries, the first row {self.classes}",
                "pass whole vectors, one entry for each class in every row",
                rows=[start],
            )
        values = in_order(values, contents, self.key, self.class_names, self._spec)
        values = values.astype(self.dtype, copy=False)
        numbers = None if self.numbers is None else self.numbers[start:stop]
        passthrough = contents.passthrough
        if passthrough is not None and self._schema is not None:
            passthrough = self._schema.conform(passthrough, stop - start)
        return Batch(start, values, labels, numbers, weights, passthrough)

    def _check_label_numbers(self, truth: NumPyArray, contents: Contents) -> None:
        own = contents.own_names_of(self.key) or self._spec.class_names
        if self._label_file is not None:  # they count the columns of the first part
            own = self._own_names
        check_label_numbers(truth, own, self.class_names, contents.path)

    def _vector(
        self, contents: Contents, key: str | None, separate: Any, start: int, stop: int
    ) -> NumPyArray | None:
        if separate is not None:
            rows: NumPyArray = separate[start:stop]
            return rows
        return None if key is None else contents.vectors[key]

    def _separate_vector(self, what: str) -> NumPyArray | None:
        """Return the labels or weights of a separate file."""
        vector = read_separate_vector(self._spec, what)
        if vector is not None:
            check_length(len(vector), getattr(self._spec, what), what, self.rows)
        return vector


def open_scores(
    path: str | os.PathLike[str],
    *,
    key: str | None = None,
    columns: str | Sequence[str] | None = None,
    role: str = "scores",
    labels: str | None = None,
    labels_column: str | None = None,
    weights: str | None = None,
    weights_column: str | None = None,
    class_names: Sequence[str] | None = None,
    input: Kind | None = None,
    classes: Sequence[str] | None = None,
    passthrough: bool = False,
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
    labels, labels_column, weights, weights_column, class_names
        Where these are, as for `read_scores`.
    input : {"logits", "probabilities"}, optional
        The kind; by default detected from the name of the scores or the first rows.
    classes : sequence of str, optional
        The classes of a model: columns of these names are the scores, in this order.
    passthrough : bool
        Whether batches have the other columns of a table, too.
    header : bool, optional
        Whether the first line of CSV files is a header, as for `read_scores`.

    Returns
    -------
    file : ScoreFile
        Iterating over it gives `Batch` objects, with values as stored, not checked.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/scores.npy"
    >>> np.save(path, np.full((5, 4), 0.25))
    >>> scores = open_scores(path)
    >>> scores.shape, scores.kind, [len(batch) for batch in scores]
    ((5, 4), 'probabilities', [5])
    """
    spec = ColumnSpec.of(key, columns, labels, labels_column, weights, weights_column).named(
        class_names, classes, passthrough=passthrough, header=header
    )
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
    chosen = choose_matrix(sample, spec.key, role, input)
    values = as_matrix(sample.matrices[chosen], f"{sample.path} ({chosen})")
    finite = _finite_rows(values)
    if not len(finite):
        finite = _first_finite_rows(source, chosen, values)
    if len(finite):
        check_whole_vectors(finite, f"{sample.path} ({chosen})")
    kind = input or (kind_of(chosen, finite) if len(finite) else "logits")
    file = ScoreFile(source, sample, chosen, kind, spec)
    separate = [name for name in ("labels", "weights") if getattr(spec, name) is not None]
    # Separate labels and weights belong to this file only; its classes apply to the others.
    own: dict[str, Any] = dict.fromkeys((*separate, *(f"{name}_column" for name in separate)))
    others = replace(spec, expected=file.class_names, **own)
    file.opener = partial(open_with_spec, spec=others, role=role, input=kind)
    return file


def _finite_rows(values: NumPyArray) -> NumPyArray:
    """Return the finite rows, by which the kind of scores is detected."""
    finite: NumPyArray = values[np.isfinite(values).all(axis=1)]
    return finite


def _first_finite_rows(source: Source, key: str, none: NumPyArray) -> NumPyArray:
    """Return finite rows of the first piece that has any."""
    for piece in source.pieces(0, [key]):
        finite = _finite_rows(as_matrix(piece.matrices[key], f"{piece.path} ({key})"))
        if len(finite):
            return finite[:SAMPLE_ROWS]
    return none[:0]


def concat_batches(parts: list[Batch]) -> Batch:
    """Return consecutive batches as one."""
    if len(parts) == 1:
        return parts[0]

    def concat_column(name: str) -> Any:
        columns = [getattr(part, name) for part in parts]
        return None if columns[0] is None else np.concatenate(columns)

    values, labels, weights = map(concat_column, ("values", "labels", "weights"))
    passthrough = concat([part.passthrough for part in parts])
    return Batch(parts[0].first, values, labels, None, weights, passthrough)
