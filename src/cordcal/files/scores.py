"""Read score files of every format, at once or in batches of rows."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, renumber_rows
from cordcal._numeric.types import Kind, NumPyArray
from cordcal._validation.labels import as_indices
from cordcal._validation.names import are_default_names, class_order
from cordcal._validation.scores import as_matrix
from cordcal.files.columns import (
    LABEL_NAMES,
    MISSING,
    ColumnSpec,
    ScoreColumns,
    TextOptions,
    as_patterns,
    list_names,
)
from cordcal.files.disk import Parts, PathLike, check_size, large_empty, no_rows
from cordcal.files.kinds import check_values, check_whole_vectors, kind_of, may_be_ranks
from cordcal.files.sources import (
    ArrayRows,
    ArraySource,
    Slice,
    TableRows,
    TableSource,
    check_length,
    open_source,
    parse_labels,
    read_vector,
)

if TYPE_CHECKING:
    import pyarrow

# A batch is at most 16 MiB of scores: far more than a cache, and small enough that a dozen
# batches in flight take less memory than the imports.
BATCH_BYTES = 2**24
# Rows that are read to detect the kind of scores.
_SAMPLE_ROWS = 4096


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
    context : mapping of str to ndarray
        Other columns of the rows as they are written, if the caller asked for them.
    typed : tuple of str
        Those of them whose text is text even where it looks like numbers, as in Parquet.
    """

    path: str
    key: str
    values: NumPyArray
    kind: Kind
    labels: npt.NDArray[np.int64] | None = None
    class_names: tuple[str, ...] | None = None
    weights: NumPyArray | None = None
    columns: tuple[str, ...] = ()
    context: Mapping[str, NumPyArray] = field(default_factory=dict)
    typed: tuple[str, ...] = ()


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
    context : mapping of str to ndarray
        Other columns as they are written, if the caller asked for them by name.
    """

    first: int
    values: NumPyArray
    labels: npt.NDArray[np.int64] | None = None
    weights: NumPyArray | None = None
    row_numbers: npt.NDArray[np.intp] | None = None
    others: pyarrow.Table | None = None
    context: Mapping[str, NumPyArray] = field(default_factory=dict)

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
        context = {name: vector[rows] for name, vector in self.context.items()}
        return Batch(self.first, values, labels, weights, numbers, context=context)


def read_scores(
    path: PathLike | Sequence[PathLike],
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
    path : path, list of paths or "-"
        An npz, npy, CSV, JSONL, Parquet, Feather, HDF5 or torch file; a folder, a pattern or a
        list of such files, which are read as one; ``-`` reads stdin.
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
    path: PathLike | Sequence[PathLike],
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
    path : path, list of paths or "-"
        A file or several as for `read_scores`; npz and torch files are read whole.
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
    path: PathLike | Sequence[PathLike],
    spec: ColumnSpec,
    *,
    role: str = "scores",
    input: Kind | None = None,
    allow_empty: bool = False,
) -> ScoreFile:
    """Open the scores that a `ColumnSpec` describes; see `open_scores`.

    With ``allow_empty``, a file without rows is opened, too.
    """
    source = open_source(path, spec.text)
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


def _names_of_classes(source: TableSource | ArraySource, names: tuple[str, ...]) -> bool:
    """Whether a table has columns named like all of some classes."""
    return set(names) <= set(source.names)


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
        source: TableSource | ArraySource,
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
        self.passthrough = self._may_lack_labels = False
        self._rows: TableRows | ArrayRows
        if isinstance(source, TableSource):
            self._rows = TableRows(source, layout, self._own_names, self.class_names, spec.beside)
        else:
            self._rows = ArrayRows(source, layout, self._own_names, self.class_names, spec)
        for name in spec.beside if source.names else ():  # not even a header
            self._check_context(name)
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
        if len(finite) and may_be_ranks(self.class_names):
            check_whole_vectors(finite, self.name)
        detected = kind_of(self.key, finite) if len(finite) else "logits"
        self.kind: Kind = input or source.kind or detected
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

    def _check_context(self, name: str) -> None:
        if name not in self._spec.context:
            self._rows.check_key(name, "groups")
            return
        try:
            self._rows.check_key(name, "context")
        except InputError as error:
            by_column = {column: option for option, column in self._spec.others}
            if name in by_column:
                hint, option = f"{error.hint}; name it with {{option}}", (by_column[name], "NAME")
            else:
                hint = f"{error.hint}; name the columns that it has with {{option}}"
                option = ("context_columns", "a,b")
            raise InputError(error.argument, error.reason, hint, option=option) from None

    @property
    def name(self) -> str:
        """The file and the key, for messages."""
        return f"{self.path} ({self.key})"

    @property
    def paths(self) -> list[str]:
        """The files."""
        return self._source.paths

    @property
    def parts(self) -> Parts:
        """The files, with the folder below which they are."""
        return self._source.parts

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

    def with_unlabelled_rows(self) -> ScoreFile:
        """Return the file with -1 for the label of a row that has none, to be skipped."""
        file = copy(self)
        file._may_lack_labels = True
        return file

    def with_others(self, *, unify: bool, keep_scores: bool = False) -> ScoreFile:
        """Return the file with the other columns of a table in its batches.

        Parameters
        ----------
        unify : bool
            Settle names and types over all files and rows, for an output of one type per column.
        keep_scores : bool
            Whether the scores are among the columns.
        """
        if not isinstance(self._rows, TableRows):
            return self
        file = copy(self)
        file._rows = self._rows.with_others(unify=unify, keep_scores=keep_scores)
        file.passthrough = True
        return file

    def empty_others(self) -> pyarrow.Table | None:
        """Return the other columns of a table without rows."""
        return self._rows.empty_others() if isinstance(self._rows, TableRows) else None

    @property
    def batch_rows(self) -> int:
        """How many rows a batch has, except the last."""
        row_bytes = max(int(self.classes * self.dtype.itemsize), self._rows.row_bytes)
        return max(1, BATCH_BYTES // row_bytes)

    def batches(self, rows: int | None = None) -> Iterator[Batch]:
        """Yield batches of a number of rows, by default at most 16 MiB of scores."""
        size, first = rows or self.batch_rows, 0
        pending: list[Slice] = []
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

    def _batch(self, parts: list[Slice], first: int) -> Batch:
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
                labels = self._indices(raw)
        weights = _join([part.weights for part in parts])
        if self._weight_file is not None:
            weights = self._weight_file[first:stop]
        others = None
        if parts[0].others is not None:
            import pyarrow as pa

            others = pa.concat_tables([part.others for part in parts], promote_options="default")
        context = {
            name: join_vectors([part.context[name] for part in parts]) for name in self._spec.beside
        }
        return Batch(first, values, labels, weights, None, others, context)

    def _indices(self, labels: NumPyArray) -> npt.NDArray[np.int64]:
        """Return labels as column indices."""
        shape, where = (len(labels), self.classes), self._spec.labels or self.path
        missing = _are_missing(labels, self.class_names or ())
        if labels.dtype.kind == "U":  # NA in other programs
            labels = np.where(missing, "", labels)
        if not self._may_lack_labels or not missing.any():
            return as_indices(labels, shape, self.class_names, where)
        if missing.all():
            return np.full(len(labels), -1)
        filled = np.where(missing, labels[~missing][0], labels)
        return np.where(missing, -1, as_indices(filled, shape, self.class_names, where))

    def _width_error(self, width: int, row: int) -> InputError:
        return InputError(
            self.name,
            f"has {width} entries, the first row {self.classes}",
            "pass whole vectors, one entry for each class in every row",
            rows=[row],
        )

    def _check_label_numbers(self, labels: NumPyArray, parts: list[Slice]) -> None:
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
        check_values(batch.values, self.name, self.class_names)
        return self.as_scores(replace(batch, values=as_matrix(batch.values, self.name)))

    def as_scores(self, batch: Batch) -> Scores:
        """Return rows that were read with what is known of them."""
        return Scores(
            path=self.path,
            key=self.key,
            values=batch.values,
            kind=self.kind,
            labels=batch.labels,
            class_names=self.class_names,
            weights=batch.weights,
            columns=self.columns,
            context=batch.context,
            typed=tuple(filter(self._rows.has_type, batch.context)),
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


def _take(pending: list[Slice], size: int) -> tuple[list[Slice], list[Slice]]:
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
        arrays = [np.where(_are_missing(array), "", array.astype(str)) for array in arrays]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def join_vectors(vectors: Sequence[NumPyArray]) -> NumPyArray:
    """Return one column of several slices; numbers next to words stay what they are."""
    if len({vector.dtype.kind in "OUS" for vector in vectors if len(vector)}) > 1:
        vectors = [vector.astype(object) for vector in vectors]
    return vectors[0] if len(vectors) == 1 else np.concatenate(vectors)


def _are_missing(labels: NumPyArray, names: Sequence[str] = ()) -> npt.NDArray[np.bool_]:
    """Flag the rows without a label: NaN among numbers, empty text or NA among words."""
    if labels.dtype.kind in "iub":
        return np.zeros(len(labels), dtype=bool)
    if labels.dtype.kind == "f":
        return np.isnan(labels)
    missing = set(MISSING) - set(names)  # a class may be called NA
    return np.array([str(label).strip() in missing for label in labels.tolist()], dtype=bool)


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
    context = {
        name: join_vectors([part.context[name] for part in parts]) for name in parts[0].context
    }
    return Batch(parts[0].first, values, labels, weights, numbers, context=context)
