"""Read score files of every format, at once or in batches of rows."""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, raise_first, renumber_rows, row_error
from cordcal._numeric.types import Flags, Kind, NumPyArray, NumPyDType
from cordcal._validation.labels import as_indices
from cordcal._validation.names import are_default_names, class_order
from cordcal._validation.scores import as_matrix, sum_tolerance, sum_warning_level
from cordcal.files.arrays import ArrayFile, open_arrays
from cordcal.files.columns import (
    LABEL_NAMES,
    LOGIT_NAMES,
    PROBABILITY_NAMES,
    SCORE_NAMES,
    ColumnSpec,
    ScoreColumns,
    TextOptions,
    as_patterns,
    choose_columns,
    list_names,
)
from cordcal.files.disk import (
    InputFile,
    NoRows,
    check_size,
    large_empty,
    no_rows,
    parts_of,
    root_of,
)

if TYPE_CHECKING:
    import pyarrow

    from cordcal.files.tables import Table

# A batch is at most 16 MiB of scores: far more than a cache, and small enough that a dozen
# batches in flight take less memory than the imports.
BATCH_BYTES = 2**24
# Rows that are read to detect the kind of scores.
_SAMPLE_ROWS = 4096
# With fewer rows, all may be sorted by chance.
MIN_ROWS_TO_JUDGE = 8


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
    weights : ndarray or None
        One weight per row, if the caller asked for them.
    row_numbers : ndarray of int or None
        The numbers of the rows in the file, if some in between are omitted.
    others : pyarrow.Table or None
        The other columns of a table, if the caller asked for them.
    """

    first: int
    values: NumPyArray
    labels: npt.NDArray[np.int64] | None = None
    weights: NumPyArray | None = None
    row_numbers: npt.NDArray[np.intp] | None = None
    others: pyarrow.Table | None = None

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def rows(self, start: int, stop: int) -> Batch:
        """Return some of the rows, counted within the batch, without the other columns."""
        rows = slice(start, stop)
        return replace(self._select(rows), first=self.first + start)

    def where(self, keep: npt.NDArray[np.bool_]) -> Batch:
        """Return the rows for which ``keep`` is true, without the other columns."""
        return replace(self._select(keep), row_numbers=self.numbers[keep])

    @property
    def numbers(self) -> npt.NDArray[np.intp]:
        """The number of each row in the file."""
        if self.row_numbers is not None:
            return self.row_numbers
        return np.arange(self.first, self.first + len(self))

    def _select(self, rows: slice | npt.NDArray[np.bool_]) -> Batch:
        columns = (self.values, self.labels, self.weights, self.row_numbers)
        values, labels, weights, numbers = (
            None if column is None else column[rows] for column in columns
        )
        assert values is not None
        return Batch(self.first, values, labels, weights, numbers)


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
    decimal: str = ".",
    encoding: str | None = None,
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
        ``"score_*"``.  By default columns named like the classes or the labels, one column of
        lists, or columns that share a prefix; other tables are refused.
    role : str
        A name to prefer: ``"original"``, ``"direct"`` or ``"repaired"``.
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
        Whether the first line of CSV files names the columns.  By default it does; a line that
        may be a row is refused.
    decimal : {".", ","}
        The decimal separator of text files.
    encoding : str, optional
        The encoding of text files, by default UTF-8.

    Returns
    -------
    scores : Scores
        Checked to be whole vectors of finite numbers.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp(), "probabilities.csv")
    >>> _ = path.write_text("p_cat,p_dog,label\n0.25,0.75,dog\n0.5,0.5,cat\n")
    >>> scores = read_scores(path)
    >>> scores.values.shape, scores.class_names, scores.labels
    ((2, 2), ('cat', 'dog'), array([1, 0]))
    """
    spec = ColumnSpec(
        key=key,
        columns=as_patterns(columns),
        labels=labels,
        labels_column=labels_column,
        weights=weights,
        weights_column=weights_column,
        class_names=None if class_names is None else tuple(class_names),
        classes=None if classes is None else tuple(classes),
        text=TextOptions(header, decimal, encoding),
    )
    return open_with_spec(path, spec, role=role, input=input).read()


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
    header: bool | None = None,
    decimal: str = ".",
    encoding: str | None = None,
) -> ScoreFile:
    """Open a score file for reading in batches of at most 16 MiB.

    Parameters
    ----------
    path : path or "-"
        A file, folder or pattern as for `read_scores`; npz and torch files are read whole.
    key, columns, role, labels, labels_column, weights, weights_column, class_names, classes
        Where these are, as for `read_scores`.
    input : {"logits", "probabilities"}, optional
        The kind; by default detected from the name of the scores or the first rows.
    header, decimal, encoding
        How text files are read, as for `read_scores`.

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
    >>> scores.classes, scores.kind, [len(batch) for batch in scores.batches(rows=3)]
    (4, 'probabilities', [3, 2])
    """
    spec = ColumnSpec(
        key=key,
        columns=as_patterns(columns),
        labels=labels,
        labels_column=labels_column,
        weights=weights,
        weights_column=weights_column,
        class_names=None if class_names is None else tuple(class_names),
        classes=None if classes is None else tuple(classes),
        text=TextOptions(header, decimal, encoding),
    )
    return open_with_spec(path, spec, role=role, input=input)


def open_with_spec(
    path: str | os.PathLike[str],
    spec: ColumnSpec,
    *,
    role: str = "scores",
    input: Kind | None = None,
    allow_empty: bool = False,
) -> ScoreFile:
    """Open the scores that a `ColumnSpec` describes; see `open_scores`.

    With ``allow_empty``, a file without rows is opened, too.
    """
    source = open_source(os.fspath(path), spec.text)
    layout = source.layout(spec, role, input)
    if allow_empty and not source.names and spec.classes is not None:  # not even a header
        layout = ScoreColumns("scores", spec.classes, spec.classes)
    if isinstance(layout, InputError):
        raise layout
    return ScoreFile(source, layout, spec, role=role, input=input, allow_empty=allow_empty)


def open_pair(
    original: tuple[str, ColumnSpec],
    direct: tuple[str, ColumnSpec],
    *,
    input: Kind | None = None,
) -> tuple[ScoreFile, ScoreFile]:
    """Open the original scores and the direct probabilities of the same rows.

    Columns are matched by name, in the order of the original; if one of the files does not show
    which of its columns are scores, they are those named like the classes of the other.
    """
    kinds: tuple[Kind | None, Kind | None] = (input, "probabilities")
    roles = ("original", "direct")
    pairs = (original, direct)
    specs = [spec for _, spec in pairs]
    sources = [open_source(path, spec.text) for path, spec in pairs]
    layouts = [
        source.layout(spec, role, kind)
        for source, spec, role, kind in zip(sources, specs, roles, kinds, strict=True)
    ]
    for at, other in ((0, 1), (1, 0)):
        names = _names(layouts[other])
        own = _names(layouts[at])
        if names is None or (own is not None and set(own) == set(names)):
            continue
        if own is not None and at == 0 and _names_of_classes(sources[1], own):
            continue  # the second file has the classes of the first
        wanted = replace(specs[at], columns=None, classes=names, classes_in=sources[other].path)
        again = sources[at].layout(wanted, roles[at], kinds[at])
        if not isinstance(again, InputError) and _names(again) is not None:
            layouts[at] = again
    for layout in layouts:
        if isinstance(layout, InputError):
            raise layout
    for at, other in ((0, 1), (1, 0)):
        # Columns without names are numbered, so columns headed 2,1,0 are those numbers.
        names = _names(layouts[at])
        positions = tuple(map(str, range(len(names or ()))))
        if _names(layouts[other]) is None and set(names or ()) == set(positions) and names:
            specs[at] = replace(specs[at], classes=positions, classes_in=sources[other].path)
    first = ScoreFile(sources[0], layouts[0], specs[0], role=roles[0], input=kinds[0])  # type: ignore[arg-type]
    names = first.class_names
    second_spec = specs[1]
    if names is not None and _names(layouts[1]) is not None:
        second_spec = replace(specs[1], classes=names, classes_in=first.path)
    second = ScoreFile(sources[1], layouts[1], second_spec, role=roles[1], input=kinds[1])  # type: ignore[arg-type]
    return first, second


def _names(layout: ScoreColumns | InputError) -> tuple[str, ...] | None:
    return None if isinstance(layout, InputError) else layout.class_names


def _names_of_classes(source: Source, names: tuple[str, ...]) -> bool:
    """Whether a table has columns named like all of some classes."""
    return set(names) <= set(source.names)


class Source:
    """An input: the files of a table, or files of arrays.

    Attributes
    ----------
    path : str
        The file, folder or pattern.
    paths : list of str
        Its files.
    """

    path: str
    paths: list[str]
    format: str

    @property
    def names(self) -> Sequence[str]:
        """The columns or keys."""
        raise NotImplementedError

    def layout(self, spec: ColumnSpec, role: str, input: Kind | None) -> ScoreColumns | InputError:
        """Return where the scores are, or the error that they cannot be told."""
        raise NotImplementedError

    def vector(self, name: str) -> NumPyArray:
        """Return a column or key of all rows."""
        raise NotImplementedError


def open_source(path: str, text: TextOptions = TextOptions()) -> Source:  # noqa: B008 - frozen
    """Open a file, or the files of a folder or a pattern."""
    parts = parts_of(path)
    files = [InputFile.from_path(part) for part in ([path] if parts is None else parts)]
    arrays = [open_arrays(file) for file in files]
    if all(opened is not None for opened in arrays):
        name = files[0].name if parts is None else path
        return ArraySource(name, [opened for opened in arrays if opened is not None])
    from cordcal.files.tables import Table, open_file, partition_columns

    for file, opened in zip(files, arrays, strict=True):
        if opened is not None:
            raise InputError(
                file.name,
                f"is a {opened.format} file, unlike other parts",
                "pass files of one kind",
            )
    partitions: list[dict[str, str | None]] = [{} for _ in files]
    if parts is not None:
        partitions = [partition_columns(root_of(path), part) for part in parts]
    name = files[0].name if parts is None else path
    return TableSource(Table(name, [open_file(file, text) for file in files], partitions), text)


class TableSource(Source):
    """A table of one or more files."""

    def __init__(self, table: Table, text: TextOptions) -> None:
        self.table, self.text = table, text
        self.path, self.format = table.path, table.format
        self.paths = [file.path for file in table.files]

    @property
    def names(self) -> Sequence[str]:
        """The columns."""
        return self.table.names

    def layout(self, spec: ColumnSpec, role: str, input: Kind | None) -> ScoreColumns | InputError:
        """Return the columns of the scores, or the error that they cannot be told."""
        if spec.chosen is not None:
            return spec.chosen

        def label_values() -> set[str]:
            name = self.label_column(spec)
            if name is None or kinds.get(name) != "text":
                return set()
            labels = parse_labels(self.vector(name))
            return set() if labels.dtype.kind in "iufb" else set(labels.tolist())

        kinds = self.table.column_types()
        types = dict(kinds)
        for claimed in (spec.labels_column, spec.weights_column):
            types.pop(claimed or "", None)
        chosen = choose_columns(
            types,
            spec,
            self.path,
            role=role,
            has_header=self.table.has_header,
            label_values=label_values,
        )
        if isinstance(chosen, InputError):  # a column of one part alone may be the reason
            numeric = [name for name, kind in types.items() if kind in ("float", "integer")]
            return self.table.difference(numeric) or chosen
        return self.table.difference(chosen.columns) or chosen

    def label_column(self, spec: ColumnSpec) -> str | None:
        """Return the column of the labels in this table."""
        if spec.labels is not None:
            return None
        if spec.labels_column is not None:
            return self.check_column(spec.labels_column, "labels")
        return next((name for name in LABEL_NAMES if name in self.names), None)

    def check_column(self, name: str, what: str) -> str:
        """Return the name of a column, or refuse one that the table does not have."""
        if name not in self.names:
            raise InputError(
                self.path,
                f"has no key or column called {name!r} for the {what}",
                f"it has {list_names(list(self.names))}",
            )
        return name

    def vector(self, name: str) -> NumPyArray:
        """Return a column of all rows: of text, what is written there."""
        from cordcal.files.tables import concat_columns, text_vector

        self.check_column(name, "rows")
        vectors = [text_vector(table, name) for _, table in self.table.slices([name])]
        return concat_columns(vectors) if vectors else np.empty(0)


class ArraySource(Source):
    """Files of arrays, one after the other."""

    def __init__(self, path: str, files: Sequence[ArrayFile]) -> None:
        self.path, self.files, self.format = path, files, files[0].format
        self.paths = [file.path for file in files]

    @property
    def names(self) -> Sequence[str]:
        """The keys of the first file."""
        return list(self.files[0].shapes)

    def layout(self, spec: ColumnSpec, role: str, input: Kind | None) -> ScoreColumns | InputError:
        """Return the key of the scores, or the error that it cannot be told."""
        first = self.files[0]
        chosen = _choose_matrix(first, spec.key, role, input)
        if isinstance(chosen, InputError):
            return chosen
        for file in self.files[1:]:
            if chosen not in file.matrices:
                return InputError(
                    file.path,
                    f"has no {chosen!r}, as the parts before it have",
                    "pass parts of one kind",
                )
        names = first.class_names
        if names is not None and len(names) != first.shapes[chosen][1]:
            return InputError(
                first.path,
                f"has {len(names)} class names but {chosen} has {first.shapes[chosen][1]} columns",
                "give each column one name",
            )
        return ScoreColumns(chosen, (chosen,), names)

    def label_key(self, key: str, spec: ColumnSpec) -> str | None:
        """Return the key of the labels: the one that the caller names, or that which matches.

        cal_labels matches cal_logits, labels_cal matches probas_cal, labels matches scores.
        """
        vectors = self.files[0].vectors
        if spec.labels is not None:
            return None
        if spec.labels_column is not None:
            return self.check_key(spec.labels_column, "labels")
        group, slash, own = key.rpartition("/")
        around = [own.split(name, 1) for name in SCORE_NAMES if name in own]
        # In a file with groups, labels in another group belong to another classifier.
        for before, behind in (*around, ("", "")):
            for name in LABEL_NAMES:
                candidate = f"{group}{slash}{before}{name}{behind}"
                if candidate in vectors:
                    return candidate
        return None

    def check_key(self, name: str, what: str) -> str:
        """Return the name of a vector, or refuse one that a file does not have."""
        for file in self.files:
            if name not in file.vectors:
                raise InputError(
                    file.path,
                    f"has no key or column called {name!r} for the {what}",
                    f"it has {file.listed()}",
                )
        return name

    def vector(self, name: str) -> NumPyArray:
        """Return a vector of all rows."""
        self.check_key(name, "rows")
        return np.concatenate([file.read(name) for file in self.files])


def _choose_matrix(
    file: ArrayFile, key: str | None, role: str, input: Kind | None
) -> str | InputError:
    """Return the name of the matrix that holds the scores."""
    matrices = file.matrices
    if key is not None:
        if key in matrices:
            return key
        return InputError(file.path, f"has no matrix called {key!r}", f"it has {file.listed()}")
    if not matrices:
        return InputError(
            file.path, "holds no matrix of scores (rows × classes)", f"it has {file.listed()}"
        )
    first: tuple[str, ...] = PROBABILITY_NAMES if input == "probabilities" else LOGIT_NAMES
    for name in (role, *first, *SCORE_NAMES):
        if name in matrices:
            return name
    if len(matrices) == 1:
        return matrices[0]
    # `key` selects scores only, not original or direct probabilities.
    hint = "choose one, as in {option}" if role == "scores" else f"call the one to read {role!r}"
    return InputError(
        file.path,
        f"holds several matrices ({', '.join(matrices)})",
        hint,
        option=("key", matrices[0]),
    )


@dataclass(frozen=True, eq=False)
class _Slice:
    """Some rows of one file: scores, and labels, weights and other columns if needed."""

    file: int
    values: NumPyArray
    labels: NumPyArray | None
    weights: NumPyArray | None
    others: pyarrow.Table | None

    def __len__(self) -> int:
        return len(self.values)

    def rows(self, start: int, stop: int) -> _Slice:
        if start == 0 and stop >= len(self):
            return self
        labels, weights = (
            None if vector is None else vector[start:stop] for vector in (self.labels, self.weights)
        )
        others = None if self.others is None else self.others.slice(start, stop - start)
        return _Slice(self.file, self.values[start:stop], labels, weights, others)


class ScoreFile:
    """An open score file, read in batches of rows.

    Made by `open_scores`; it can be iterated over several times.

    Attributes
    ----------
    path, key : str
        The file, and the key or column of the scores.
    kind : str
        ``"logits"`` or ``"probabilities"``.
    classes : int
        The number of classes.
    rows : int or None
        The number of rows; None for text files, whose rows are counted when they are read.
    dtype : dtype
        The dtype of the scores.
    class_names : tuple of str or None
        One name per column.
    columns : tuple of str
        The table columns of the scores; empty if they are one array.
    """

    def __init__(
        self,
        source: Source,
        layout: ScoreColumns,
        spec: ColumnSpec,
        *,
        role: str = "scores",
        input: Kind | None = None,
        allow_empty: bool = False,
    ) -> None:
        self._source, self._layout, self._spec = source, layout, spec
        self.path, self.key = source.path, layout.key
        self.columns = () if layout.are_lists else layout.columns
        self._own_names = _known_names(layout, spec, source.path)
        self.class_names = _used_names(self._own_names, spec, source.path)
        self._use_labels, self.passthrough = True, False
        self._rows: _TableRows | _ArrayRows
        if isinstance(source, TableSource):
            self._rows = _TableRows(source, layout, self._own_names, self.class_names)
        else:
            assert isinstance(source, ArraySource)
            self._rows = _ArrayRows(source, layout, self._own_names, self.class_names, spec)
        self.rows = self._rows.rows
        self._labels = self._rows.label_key(spec)
        self._weights = None
        if spec.weights is None and spec.weights_column is not None:
            self._weights = self._rows.check_key(spec.weights_column, "weights")
        self._label_file, self._weight_file = (
            _read_separate(spec, "labels"),
            _read_separate(spec, "weights"),
        )
        self._starts: list[tuple[int, int]] = []
        sample = self._sample()
        self.classes = sample.shape[1]
        if not self.classes and len(sample):
            raise InputError(self.name, "has no columns", "pass at least two classes")
        if self.rows is not None:
            self._check_lengths(self.rows)
        self.is_empty = not len(sample)
        if self.is_empty and not allow_empty:
            raise no_rows(self.path)
        self.dtype = self._rows.dtype if self._rows.dtype.kind == "f" else np.dtype(np.float64)
        sample = sample.astype(self.dtype, copy=False)
        finite = sample[np.isfinite(sample).all(axis=1)]
        if len(finite):
            check_whole_vectors(finite, self.name)
        self.kind: Kind = input or (kind_of(self.key, finite) if len(finite) else "logits")
        if self.key == "repaired" and self.columns and input is None:
            self.kind = "probabilities"
        pinned = replace(
            spec, chosen=layout, labels=None, weights=None, classes=self.class_names or spec.classes
        )
        if spec.labels is not None:
            pinned = replace(pinned, labels_column=None)
        if spec.weights is not None:
            pinned = replace(pinned, weights_column=None)
        if isinstance(source, ArraySource):
            pinned = replace(pinned, chosen=None, key=layout.key)
        self.opener = partial(
            open_with_spec, spec=pinned, role=role, input=self.kind, allow_empty=True
        )
        """Opens another part of the same input, here or on another machine."""

    @property
    def name(self) -> str:
        """The file and the key, for messages."""
        return f"{self.path} ({self.key})"

    @property
    def paths(self) -> list[str]:
        """The files."""
        return self._source.paths

    @property
    def format(self) -> str:
        """The format of the files."""
        return self._source.format

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

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

    def with_others(self, *, unify: bool, keep_scores: bool = False) -> ScoreFile:
        """Return the file with the other columns of a table in its batches.

        Parameters
        ----------
        unify : bool
            Settle names and types over all files and rows, for an output of one type per column.
        keep_scores : bool
            Whether the scores are among the columns.
        """
        if not isinstance(self._rows, _TableRows):
            return self
        file = copy(self)
        file._rows = self._rows.with_others(unify=unify, keep_scores=keep_scores)
        file.passthrough = True
        return file

    def empty_others(self) -> pyarrow.Table | None:
        """Return the other columns of a table without rows."""
        return self._rows.empty_others() if isinstance(self._rows, _TableRows) else None

    @property
    def batch_rows(self) -> int:
        """How many rows a batch has, except the last."""
        row_bytes = max(int(self.classes * self.dtype.itemsize), self._rows.row_bytes)
        return max(1, BATCH_BYTES // row_bytes)

    def batches(self, rows: int | None = None) -> Iterator[Batch]:
        """Yield batches of a number of rows, by default at most 16 MiB of scores."""
        size, first = rows or self.batch_rows, 0
        pending: list[_Slice] = []
        count = 0
        self._starts = []
        seen = 0
        for part in self._rows.slices(self._labels, self._weights):
            if not self._starts or self._starts[-1][1] != part.file:
                self._starts.append((seen, part.file))
            seen += len(part)
            pending.append(part)
            count += len(part)
            del part
            while count >= size:
                taken, pending = _take(pending, size)
                count -= size
                yield self._batch(taken, first)
                del taken
                first += size
        if count:
            yield self._batch(pending, first)
            first += count
        self._check_lengths(first)

    def _check_lengths(self, rows: int) -> None:
        """Refuse separate labels or weights of another number of rows."""
        for what, vector in (("labels", self._label_file), ("weights", self._weight_file)):
            if vector is not None:
                check_length(len(vector), getattr(self._spec, what) or self.path, what, rows)

    def place(self, row: int) -> tuple[str, int]:
        """Return the file of a row that was read, and the row's number in it."""
        starts = [start for start, _ in self._starts]
        at = max(0, bisect.bisect_right(starts, row) - 1)
        if not starts or len(self.paths) == 1:
            return self.path, row
        start, file = self._starts[at]
        return self._source.paths[file], row - start

    def _batch(self, parts: list[_Slice], first: int) -> Batch:
        rows = sum(map(len, parts))
        stop = first + rows
        values = parts[0].values
        if len(parts) > 1 or values.dtype != self.dtype:
            values = large_empty((rows, self.classes), self.dtype)
            done = 0
            for part in parts:
                if part.values.shape[1] != self.classes:
                    raise self._width_error(part.values.shape[1], first + done)
                values[done : done + len(part)] = part.values
                done += len(part)
        elif values.shape[1] != self.classes:
            raise self._width_error(values.shape[1], first)
        labels = None
        raw = _join([part.labels for part in parts])
        if self._label_file is not None:
            raw = self._label_file[first:stop]
        if raw is not None and len(raw) == rows:
            with renumber_rows(first):
                self._check_label_numbers(raw, parts)
                where = self._spec.labels or self.path
                labels = as_indices(raw, (rows, self.classes), self.class_names, where)
        weights = _join([part.weights for part in parts])
        if self._weight_file is not None:
            weights = self._weight_file[first:stop]
        others = None
        if parts[0].others is not None:
            import pyarrow as pa

            others = pa.concat_tables([part.others for part in parts], promote_options="default")
        return Batch(first, values, labels, weights, None, others)

    def _width_error(self, width: int, row: int) -> InputError:
        return InputError(
            self.name,
            f"has {width} entries, the first row {self.classes}",
            "pass whole vectors, one entry for each class in every row",
            rows=[row],
        )

    def _check_label_numbers(self, labels: NumPyArray, parts: list[_Slice]) -> None:
        if self.class_names is None:
            return
        for part in {part.file: part for part in parts}.values():
            file = 0 if self._label_file is not None else part.file
            own = self._rows.own_names(file)
            check_label_numbers(labels, own, self.class_names, self._source.paths[file])

    def _sample(self) -> NumPyArray:
        """Return the first rows with a finite one among them."""
        first: NumPyArray | None = None
        for part in self._rows.slices(None, None):
            for start in range(0, len(part), _SAMPLE_ROWS):
                rows = part.values[start : start + _SAMPLE_ROWS]
                if first is None:
                    first = rows
                if np.isfinite(rows).all(axis=1).any():
                    return rows
        if first is not None:
            return first
        return np.empty((0, self._rows.width or len(self._spec.classes or ())))

    def read(self) -> Scores:
        """Read all rows; rows that are not whole vectors of finite numbers are refused."""
        row_bytes = self.classes * self.dtype.itemsize
        check_size(self.name, row_bytes * (self.rows or 0))
        parts, count = [], 0
        for part in self._rows.slices(self._labels, self._weights):
            count += len(part)
            check_size(self.name, row_bytes * count)
            parts.append(part)
        self._check_lengths(count)
        batch = self._batch(parts, 0)
        check_values(batch.values, self.name)
        values = as_matrix(batch.values, self.name)
        kind = self.kind
        return Scores(
            path=self.path,
            key=self.key,
            values=values,
            kind=kind,
            labels=batch.labels,
            class_names=self.class_names,
            weights=batch.weights,
            columns=self.columns,
        )

    def separate_vectors(self) -> list[dict[str, NumPyArray]]:
        """Return labels and weights of separate files, part by part."""
        vectors: dict[str, NumPyArray] = {}
        if self._label_file is not None:
            vectors["labels"] = self._label_file
        if self._weight_file is not None:
            vectors["weights"] = self._weight_file
        if not vectors:
            return [{} for _ in self.paths]
        counts = self._rows.part_rows()
        for what, vector in vectors.items():
            check_length(len(vector), getattr(self._spec, what), what, sum(counts))
        edges = np.cumsum(counts)[:-1]
        parts = {name: np.split(vector, edges) for name, vector in vectors.items()}
        return [{name: arrays[at] for name, arrays in parts.items()} for at in range(len(counts))]

    def attach(self, vectors: Mapping[str, NumPyArray]) -> None:
        """Use labels and weights that the caller has read already."""
        self._label_file = vectors.get("labels", self._label_file)
        self._weight_file = vectors.get("weights", self._weight_file)


def _take(pending: list[_Slice], size: int) -> tuple[list[_Slice], list[_Slice]]:
    """Split slices after a number of rows."""
    taken, rest, count = [], [], 0
    for part in pending:
        room = size - count
        if room <= 0:
            rest.append(part)
        elif len(part) <= room:
            taken.append(part)
        else:
            taken.append(part.rows(0, room))
            rest.append(part.rows(room, len(part)))
        count += len(part)
    return taken, rest


def _join(vectors: Sequence[NumPyArray | None]) -> NumPyArray | None:
    arrays = [vector for vector in vectors if vector is not None]
    if not arrays:
        return None
    if len({array.dtype.kind in "OUS" for array in arrays}) > 1:
        arrays = [array.astype(str) for array in arrays]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _known_names(layout: ScoreColumns, spec: ColumnSpec, path: str) -> tuple[str, ...] | None:
    """Return the names of the columns in the order of the file: its own, or the caller's."""
    names = layout.class_names
    if spec.class_names is None:
        return names
    if names is None:
        if not layout.are_lists and len(spec.class_names) != len(layout.columns):
            raise InputError(
                "class_names",
                f"has {len(spec.class_names)} names but {path} has {len(layout.columns)} columns",
                "give each column one name",
            )
        return spec.class_names
    class_order(names, spec.class_names, path, "class_names")  # refuses other classes
    return names


def _used_names(own: tuple[str, ...] | None, spec: ColumnSpec, path: str) -> tuple[str, ...] | None:
    """Return the names in the order that is used: a model's, the caller's, the file's."""
    if own is None:
        return None
    classes = spec.classes
    if classes is not None and (not are_default_names(classes) or set(own) == set(classes)):
        class_order(own, classes, path, spec.classes_in)
        return classes
    if spec.class_names is not None:
        return spec.class_names
    return own


class _TableRows:
    """The rows of a table, in slices."""

    def __init__(
        self,
        source: TableSource,
        layout: ScoreColumns,
        own: tuple[str, ...] | None,
        names: tuple[str, ...] | None,
    ) -> None:
        self.source, self.table, self.layout = source, source.table, layout
        self.table.check_scores(layout.columns)
        self.columns, self.order = list(layout.columns), None
        self._classes = dict(zip(layout.columns, own or (), strict=False))
        if own is not None and names is not None:
            order = class_order(own, names, source.path, "the classes")
            if layout.are_lists:
                self.order = order
            elif order is not None:
                self.columns = [layout.columns[at] for at in order]
        self.rows = self.table.rows
        self.width = None if layout.are_lists else len(layout.columns)
        self._others: list[str] | None = None
        self._keep_scores = False
        self.row_bytes = 1
        self.dtype = self._dtype()

    def _dtype(self) -> NumPyDType:
        import pyarrow as pa

        if self.table.is_text:
            return np.dtype(np.float64)
        dtypes = set()
        for file in self.table.files:
            for name in self.layout.columns:
                if name in file.schema.names:
                    kind = file.schema.field(name).type
                    kind = getattr(kind, "value_type", kind)
                    is_plain = pa.types.is_floating(kind) or pa.types.is_integer(kind)
                    dtypes.add(np.dtype(kind.to_pandas_dtype() if is_plain else np.float64))
        return np.result_type(*dtypes)

    def own_names(self, file: int) -> tuple[str, ...] | None:
        """Return the class names in the order of a file's columns."""
        if not self._classes:
            return None
        in_file = [name for name in self.table.files[file].schema.names if name in self._classes]
        return tuple(self._classes[name] for name in in_file)

    def part_rows(self) -> list[int]:
        """Return the number of rows of each file; those of text are read to be counted."""
        return [
            sum(map(len, file.slices(()))) if file.rows is None else file.rows
            for file in self.table.files
        ]

    def label_key(self, spec: ColumnSpec) -> str | None:
        return self.source.label_column(spec)

    def check_key(self, name: str, what: str) -> str:
        return self.source.check_column(name, what)

    def with_others(self, *, unify: bool, keep_scores: bool) -> _TableRows:
        rows = copy(self)
        scores = () if keep_scores else self.layout.columns
        if unify:
            names = [name for name in self.table.names if name not in self.layout.columns]
            self.table.unify(names, scan=True)
        rows._keep_scores = keep_scores
        rows._others = [name for name in self.table.names if name not in scores]
        sample = next((table for _, table in self.table.slices(None)), None)
        if sample is not None and len(sample):
            rows.row_bytes = max(1, sample.nbytes // len(sample))
        return rows

    def empty_others(self) -> pyarrow.Table:
        import pyarrow as pa

        fields = [
            file.schema.field(name)
            for name in self._others or ()
            for file in self.table.files
            if name in file.schema.names
        ]
        return pa.schema(list({field.name: field for field in fields}.values())).empty_table()

    def slices(self, labels: str | None, weights: str | None) -> Iterator[_Slice]:
        from cordcal.files.tables import number_matrix, number_vector, text_vector

        decimal = self.source.text.decimal
        wanted = None
        if self._others is None:
            keys = [*self.columns, *filter(None, (labels, weights))]
            wanted = list(dict.fromkeys(keys))
        done: dict[int, int] = {}
        for file, table in self.table.slices(wanted):
            path, first = self.source.paths[file], done.get(file, 0)
            done[file] = first + len(table)
            if not len(table):
                continue
            with renumber_rows(first):
                values = number_matrix(table, self.columns, path, decimal)
                truth = None if labels is None else parse_labels(text_vector(table, labels))
                weight = None if weights is None else number_vector(table, weights, path, decimal)
            if self.order is not None:
                values = values.take(self.order, axis=1)
            others = None
            if self._others is not None:
                scores = () if self._keep_scores else self.layout.columns
                others = table.select([name for name in table.column_names if name not in scores])
            yield _Slice(file, values, truth, weight, others)


class _ArrayRows:
    """The rows of files of arrays, in slices."""

    def __init__(
        self,
        source: ArraySource,
        layout: ScoreColumns,
        own: tuple[str, ...] | None,
        names: tuple[str, ...] | None,
        spec: ColumnSpec,
    ) -> None:
        self.source, self.key, self.names = source, layout.key, names
        self.row_bytes = 1
        self._own = [file.class_names or spec.class_names for file in source.files]
        self._orders: list[list[int] | None] = []
        for file, own_names in zip(source.files, self._own, strict=True):
            if (own_names is None) != (names is None):
                raise InputError(
                    file.path,
                    f"{'names' if names is None else 'does not name'} its classes, unlike "
                    f"{source.files[0].path}",
                    "name the classes in every part",
                )
            order = None
            if own_names is not None and names is not None:
                order = class_order(own_names, names, file.path, spec.classes_in)
            self._orders.append(order)
        shapes = [file.shapes[self.key] for file in source.files]
        self.rows: int | None = sum(shape[0] for shape in shapes)
        self.width = shapes[0][1]
        for file, shape in zip(source.files, shapes, strict=True):
            if shape[1] != self.width and shape[0]:
                raise InputError(
                    file.path,
                    f"has {shape[1]} columns of {self.key} but {source.files[0].path} has "
                    f"{self.width}",
                    "pass parts with the same classes",
                )

    @property
    def dtype(self) -> NumPyDType:
        return np.result_type(*(file.stored[self.key][1] for file in self.source.files))

    def own_names(self, file: int) -> tuple[str, ...] | None:
        """Return the class names in the order of a file's columns."""
        return self._own[file]

    def part_rows(self) -> list[int]:
        """Return the number of rows of each file."""
        return [file.shapes[self.key][0] for file in self.source.files]

    def label_key(self, spec: ColumnSpec) -> str | None:
        return self.source.label_key(self.key, spec)

    def check_key(self, name: str, what: str) -> str:
        return self.source.check_key(name, what)

    def slices(self, labels: str | None, weights: str | None) -> Iterator[_Slice]:
        for at, file in enumerate(self.source.files):
            (rows, width), dtype = file.stored[self.key]
            in_memory = file.format in ("npz", "torch")
            size = rows if in_memory else max(1, BATCH_BYTES // max(1, width * dtype.itemsize))
            for key, what in ((labels, "labels"), (weights, "weights")):
                if key is not None:
                    check_length(file.shapes[key][0], file.path, what, rows)
            for start in range(0, rows, max(size, 1)):
                stop = min(start + size, rows)
                values = as_matrix(file.read(self.key, start, stop), f"{file.path} ({self.key})")
                order = self._orders[at]
                if order is not None:
                    # Not values[:, order], whose rows are not contiguous: sums round differently.
                    values = values.take(order, axis=1)
                truth, weight = (
                    None if key is None else file.read(key, start, stop)
                    for key in (labels, weights)
                )
                yield _Slice(at, values, truth, weight, None)


# Labels and other vectors.


def parse_labels(labels: NumPyArray) -> NumPyArray:
    """Return labels as numbers if all of them are, else as text.

    Examples
    --------
    >>> parse_labels(np.array(["0", "2", "1"], dtype=object))
    array([0., 2., 1.])
    >>> parse_labels(np.array(["cat", "2"], dtype=object))
    array(['cat', '2'], dtype='<U3')
    """
    if labels.dtype.kind in "iufb":
        return labels
    texts = ["" if label is None else str(label) for label in labels.tolist()]
    if set(texts) <= {"true", "false"}:  # truth values in JSON
        return np.array([text == "true" for text in texts])
    try:
        values = np.array([float(text) if text.strip() else np.nan for text in texts])
    except ValueError:
        return np.array(texts, dtype=np.str_)
    is_plain = all("_" not in text and text.isascii() for text in texts)
    if not is_plain or not np.isfinite(values).any():
        return np.array(texts, dtype=np.str_)
    return values


def read_vector(
    path: str,
    column: str | None = None,
    names: Sequence[str] = LABEL_NAMES,
    *,
    text: TextOptions = TextOptions(),  # noqa: B008 - it is frozen
) -> NumPyArray:
    """Return the labels, or another vector, of a file: words and numbers as they are written."""
    if not is_file(path):
        what = "labels_column" if names else "weights_column"
        hint = "a key or column of the scores' own file is named with {option}"
        raise InputError(path, "is not a file", hint, option=(what, path))
    source = open_source(path, text)
    if isinstance(source, ArraySource):
        vectors: Sequence[str] = source.files[0].vectors
        listed = source.files[0].listed()
    else:
        vectors, listed = source.names, list_names(list(source.names))
    for name in names if column is None else (column,):
        if name in vectors:
            return source.vector(name)
    # pandas writes its index below an empty heading.
    headed = [name for name in vectors if name] or list(vectors)
    if column is None and len(headed) == 1:
        return source.vector(headed[0])
    what = "vector of labels" if column is None else f"key or column called {column!r}"
    raise InputError(source.path, f"holds no {what}", f"it has {listed}")


def _read_separate(spec: ColumnSpec, what: str) -> NumPyArray | None:
    """Return the labels or the weights of a separate file, if there is one."""
    file, column = getattr(spec, what), getattr(spec, f"{what}_column")
    if file is None:
        return None
    names = LABEL_NAMES if what == "labels" else ()
    vector = parse_labels(read_vector(file, column, names, text=spec.text))
    if what == "weights" and vector.dtype.kind not in "iufb":
        raise InputError(file, "has words where weights should be", "pass one number per row")
    return vector


def check_length(length: int, where: str, what: str, rows: int) -> None:
    """Refuse a separate file that does not have one entry per row."""
    if length != rows:
        error = InputError(
            where,
            f"has {length} {what} but there are {rows} rows of scores",
            f"pass as many {what} as rows",
        )
        is_text = Path(where).suffix.lower() in (".csv", ".tsv", ".txt")
        # The first line may be a header, such as the 0 that pandas writes.
        raise error.with_option_hint("header", str(length > rows)) if is_text else error


def check_label_numbers(
    labels: NumPyArray,
    own: tuple[str, ...] | None,
    names: tuple[str, ...] | None,
    where: str,
) -> None:
    """Refuse numeric labels if the columns that they count have been reordered.

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


def is_file(text: str) -> bool:
    """Whether a name of labels is that of a file rather than a key or column."""
    suffixes = (".txt", ".tsv", ".npz", ".npy", ".csv", ".jsonl", ".parquet", ".feather", ".arrow")
    more = (".h5", ".hdf5", ".pt", ".pth", ".gz", ".bz2", ".zst")
    return text == "-" or Path(text).exists() or Path(text).suffix.lower() in (*suffixes, *more)


# The kind of scores.


def looks_like(scores: NumPyArray) -> Kind:
    """Return what kind of scores these rows are, judging by their values.

    Rows of numbers in [0, 1] that sum to one are probabilities; everything else,
    log-probabilities included, is logits.

    Examples
    --------
    >>> looks_like(np.array([[0.2, 0.8]])), looks_like(np.array([[0.2, 1.8]]))
    ('probabilities', 'logits')
    """
    if scores.min() < 0.0 or scores.max() > 1.0 + sum_tolerance(scores.dtype):
        return "logits"
    return "probabilities" if sum_deviation(scores) <= sum_tolerance(scores.dtype) else "logits"


def sum_deviation(scores: NumPyArray) -> float:
    """Return how far from one the rows of non-negative scores sum, at most.

    Small deviations may include the rounding of this sum itself.
    """
    if scores.dtype.kind == "f" and scores.dtype.itemsize >= 4:
        # In any order of additions a sum near one is wrong by less than K units in the last place.
        quick = float(np.abs(scores @ np.ones(scores.shape[1], scores.dtype) - 1.0).max())
        if quick <= 0.5 * sum_warning_level(scores.dtype, scores.shape[1]):
            return quick
    return float(np.abs(scores.sum(axis=1, dtype=np.float64) - 1.0).max())


def kind_of(key: str, values: NumPyArray) -> Kind:
    """Return the kind of scores, from their name or else from their values."""
    if any(name in key.lower() for name in LOGIT_NAMES):
        return "logits"
    return looks_like(values)


def _are_sorted(scores: NumPyArray) -> bool:
    """Whether every row is in descending order; the first rows settle most files."""
    first_rows = (np.diff(scores[:MIN_ROWS_TO_JUDGE], axis=1) <= 0).all()
    return bool(first_rows and (np.diff(scores, axis=1) <= 0).all())


def check_whole_vectors(scores: NumPyArray, name: str) -> None:
    """Refuse top-k lists: rows in descending order that sum to less than one.

    Language-model APIs return the k best log-probabilities in order.  Their columns are
    ranks, not classes, so they cannot be calibrated.
    """
    rows, width = scores.shape
    if rows < MIN_ROWS_TO_JUDGE or not _are_sorted(scores):
        return
    if scores.max() <= 0.0:
        mass, what = np.exp(scores.astype(np.float64)).sum(axis=1), "log-probabilities"
    elif scores.min() >= 0.0 and scores.max() <= 1.0:
        mass, what = scores.sum(axis=1, dtype=np.float64), "probabilities"
    else:
        return
    if (mass < 1.0 - sum_tolerance(scores.dtype)).any() and mass.max() < 1.01:
        raise InputError(
            name,
            f"looks like top-{width} {what}: every row is sorted and some sum to "
            f"{mass.min():.3g}, so the columns are ranks, not classes",
            "pass whole vectors with one column for each class",
        )


def check_values(values: NumPyArray, name: str) -> None:
    """Refuse rows that are not whole vectors of finite numbers."""
    bad: Flags = np.isnan(values).any(axis=1) | (values == np.inf).any(axis=1)
    raise_first(
        row_error(
            bad,
            name,
            "contains NaN or an infinite value",
            "drop such rows, or, if these are top-k scores, pass whole vectors with one column "
            "per class",
        )
    )
    check_whole_vectors(values, name)


def concat_batches(parts: list[Batch]) -> Batch:
    """Return consecutive batches as one, without other columns."""
    if len(parts) == 1:
        return parts[0]
    columns = ([getattr(part, name) for part in parts] for name in ("values", "labels", "weights"))
    values, labels, weights = (
        None if column[0] is None else np.concatenate(column) for column in columns
    )
    assert values is not None
    numbers = np.concatenate([part.numbers for part in parts])
    return Batch(parts[0].first, values, labels, weights, numbers)


__all__ = ["Batch", "NoRows", "ScoreFile", "Scores", "open_scores", "read_scores"]
