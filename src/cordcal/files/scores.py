"""Read score files of every format, at once or in batches of rows."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, cast

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
    ColumnFile,
    Source,
    check_length,
    join_vectors,
    open_source,
    parse_labels,
    read_vector,
)

if TYPE_CHECKING:
    import pyarrow

    from cordcal.files.tables import Table, TableSlice

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
    columns : str or sequence of str, optional
        The key or column that holds whole rows of scores, or the columns of a table with one score
        each: names, or patterns such as ``"score_*"``.  By default columns named like the classes
        or the labels, one column of lists, or columns that share a prefix; other tables are
        refused.
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
    columns, role, labels, labels_column, weights, weights_column, class_names, classes
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
        if own is not None and at == 0 and set(own) <= set(sources[1].names):
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
        own = _known_names(layout, spec, source.path)
        self.class_names = _used_names(own, spec, source.path)
        self._classes = dict(zip(layout.columns, own or (), strict=False))
        self._read_columns = self._columns_in_order(own)
        self._orders = [self._order_in(file) for file in source.files]
        for name in spec.beside if source.names else ():  # not even a header
            self._check_beside(name)
        self._labels = source.label_column(layout.key, spec)
        self._weights = None
        if spec.weights is None and spec.weights_column is not None:
            self._weights = source.check_column(spec.weights_column, "weights")
        self._label_file = _read_separate(spec, "labels")
        self._weight_file = _read_separate(spec, "weights")
        self._may_lack_labels = self._keep_scores = False
        self._others: list[str] | None = None
        self._row_bytes = 1
        self._starts: list[tuple[int, int]] = []
        self.rows = source.rows(layout.columns)
        sample = self._sample()
        self.classes = sample.shape[1]
        if not self.classes and len(sample):
            raise InputError(self.name, "has no columns", "pass at least two classes")
        for file in source.files:
            self._check_width(file)
        if self.rows is not None:
            self._check_lengths(self.rows)
        self.is_empty = not len(sample)
        if self.is_empty and not allow_empty:
            raise no_rows(self.path)
        dtype = np.result_type(*{file.dtype(layout.columns) for file in self._filled})
        self.dtype = dtype if dtype.kind == "f" else np.dtype(np.float64)
        self.kind: Kind = self._kind_of(sample.astype(self.dtype, copy=False), input)
        self.opener = partial(
            open_with_spec, spec=self._pinned(), role=role, input=self.kind, allow_empty=True
        )
        """Opens another part of the same input, here or on another machine."""

    @property
    def _filled(self) -> Sequence[ColumnFile]:
        """The files that have columns: a text file may not even have a header."""
        return [file for file in self._source.files if file.names] or self._source.files

    def _columns_in_order(self, own: tuple[str, ...] | None) -> list[str]:
        """Return the columns of the scores in the order of the classes."""
        columns = list(self._layout.columns)
        if self._layout.are_lists or own is None or self.class_names is None:
            return columns
        order = class_order(own, self.class_names, self.path, "the classes")
        return columns if order is None else [columns[at] for at in order]

    def _kind_of(self, sample: NumPyArray, input: Kind | None) -> Kind:
        """Return the kind that the caller or the files state, or that the first rows show."""
        finite = sample[np.isfinite(sample).all(axis=1)]
        if len(finite) and may_be_ranks(self.class_names):
            check_whole_vectors(finite, self.name)
        if input is None and self.key == "repaired" and self.columns:
            return "probabilities"
        detected = kind_of(self.key, finite, self._spec.kind) if len(finite) else "logits"
        return input or self._source.kind or detected

    def _pinned(self) -> ColumnSpec:
        """Return the spec with what was found, for other parts of the same input."""
        spec = self._spec
        return replace(
            spec,
            chosen=self._layout,
            labels=None,
            labels_column=None if spec.labels is not None else spec.labels_column,
            weights=None,
            weights_column=None if spec.weights is not None else spec.weights_column,
            classes=self.class_names or spec.classes,
        )

    def _order_in(self, file: ColumnFile) -> list[int] | None:
        """Return the order in which whole rows of a file have the classes; None if they do."""
        if not self._layout.are_lists or not file.names:
            return None
        own = file.class_names or self._spec.class_names
        if (own is None) != (self.class_names is None):
            raise InputError(
                file.path,
                f"{'names' if own else 'does not name'} its classes, unlike "
                f"{self._source.files[0].path}",
                "name the classes in every part",
            )
        if own is None or self.class_names is None:
            return None
        return class_order(own, self.class_names, file.path, self._spec.classes_in)

    def _check_width(self, file: ColumnFile) -> None:
        """Refuse a part with another number of classes, where its header shows it."""
        width = file.width(self._layout.columns)
        if width not in (None, self.classes) and file.names and file.count(self._layout.columns):
            raise InputError(
                file.path,
                f"has {width} columns of {self.key} but {self._source.files[0].path} has "
                f"{self.classes}",
                "pass parts with the same classes",
            )

    def _check_beside(self, name: str) -> None:
        if name not in self._spec.context:
            self._source.check_column(name, "groups")
            return
        try:
            self._source.check_column(name, "context")
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
        if not self._source.is_table:
            return self
        from cordcal.files.values import size_of

        table = cast("Table", self._source)
        file = copy(self)
        scores = self._layout.columns
        if unify:
            table.unify([name for name in table.names if name not in scores])
        file._keep_scores = keep_scores
        file._others = [name for name in table.names if keep_scores or name not in scores]
        sample = next((rows.table for _, rows in table.slices(None)), None)
        if sample is not None and len(sample):
            file._row_bytes = max(1, size_of(sample) // len(sample))
        return file

    def empty_others(self) -> pyarrow.Table | None:
        """Return the other columns of a table without rows."""
        return None if self._others is None else cast("Table", self._source).empty(self._others)

    @property
    def batch_rows(self) -> int:
        """How many rows a batch has, except the last."""
        row_bytes = max(int(self.classes * self.dtype.itemsize), self._row_bytes)
        return max(1, BATCH_BYTES // row_bytes)

    def batches(self, rows: int | None = None) -> Iterator[Batch]:
        """Yield batches of a number of rows, by default at most 16 MiB of scores."""
        size, first = rows or self.batch_rows, 0
        pending: list[_Slice] = []
        count = 0
        self._starts = []
        seen = 0
        for part in self._slices():
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

    def _slices(self, *, scores_only: bool = False) -> Iterator[_Slice]:
        """Yield the rows of all files as they are stored, columns in the order of the classes."""
        beside = () if scores_only else self._spec.beside
        labels, weights = (None, None) if scores_only else (self._labels, self._weights)
        keys = [*self._read_columns, *filter(None, (labels, weights)), *beside]
        with_others = self._others is not None and not scores_only
        done: dict[int, int] = {}
        for file, rows in self._source.slices(None if with_others else list(dict.fromkeys(keys))):
            first = done.get(file, 0)
            done[file] = first + len(rows)
            if not len(rows):
                continue
            with renumber_rows(first):
                values = rows.matrix(self._read_columns)
                truth = None if labels is None else parse_labels(rows.values(labels))
                weight = None if weights is None else rows.numbers(weights)
            order = self._orders[file]
            if order is not None:
                # Not values[:, order], whose rows are not contiguous: sums round differently.
                values = values.take(order, axis=1)
            others = None
            if with_others:
                scores = () if self._keep_scores else self._layout.columns
                table = cast("TableSlice", rows).table
                others = table.select([name for name in table.column_names if name not in scores])
            context = {name: rows.values(name) for name in beside}
            yield _Slice(file, values, truth, weight, others, context)

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
        done = 0
        for part in parts:
            if part.values.shape[1] != self.classes:
                raise self._width_error(part.values.shape[1], first + done)
            done += len(part)
        if len(parts) > 1 or values.dtype != self.dtype:
            values = large_empty((rows, self.classes), self.dtype)
            np.concatenate([part.values for part in parts], out=values, casting="unsafe")
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

    def _check_label_numbers(self, labels: NumPyArray, parts: list[_Slice]) -> None:
        if self.class_names is None:
            return
        for at in {part.file for part in parts}:
            file = self._source.files[0 if self._label_file is not None else at]
            own = file.class_names or self._spec.class_names
            if self._classes and not self._layout.are_lists:
                own = tuple(self._classes[name] for name in file.names if name in self._classes)
            check_label_numbers(labels, own, self.class_names, file.path)

    def _sample(self) -> NumPyArray:
        """Return the first rows with a finite one among them."""
        first: NumPyArray | None = None
        for part in self._slices(scores_only=True) if self._source.names else ():
            for start in range(0, len(part), _SAMPLE_ROWS):
                rows = part.values[start : start + _SAMPLE_ROWS]
                if first is None:
                    first = rows
                if np.isfinite(rows).all(axis=1).any():
                    return rows
        if first is not None:
            return first
        width = self._filled[0].width(self._layout.columns) if self._source.names else None
        return np.empty((0, width or len(self._spec.classes or ())))

    def read(self) -> Scores:
        """Read all rows; rows that are not whole vectors of finite numbers are refused."""
        row_bytes = self.classes * self.dtype.itemsize
        check_size(self.name, row_bytes * (self.rows or 0))
        parts, count = [], 0
        for part in self._slices():
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
            typed=tuple(filter(self._source.has_type, batch.context)),
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
        counts = []
        for file in self._source.files:
            count = file.count(self._layout.columns)  # rows of text are read to be counted
            counts.append(sum(map(len, file.slices(()))) if count is None else count)
        for what, vector in vectors.items():
            check_length(len(vector), getattr(self._spec, what), what, sum(counts))
        edges = np.cumsum(counts)[:-1]
        parts = {name: np.split(vector, edges) for name, vector in vectors.items()}
        return [{name: arrays[at] for name, arrays in parts.items()} for at in range(len(counts))]

    def attach(self, vectors: Mapping[str, NumPyArray]) -> None:
        """Use labels and weights that the caller has read already."""
        self._label_file = vectors.get("labels", self._label_file)
        self._weight_file = vectors.get("weights", self._weight_file)


@dataclass(frozen=True, eq=False)
class _Slice:
    """Some rows of one file: scores, and labels, weights, context and other columns if needed."""

    file: int
    values: NumPyArray
    labels: NumPyArray | None
    weights: NumPyArray | None
    others: pyarrow.Table | None
    context: Mapping[str, NumPyArray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.values)

    def rows(self, start: int, stop: int) -> _Slice:
        """Return some of the rows."""
        if start == 0 and stop >= len(self):
            return self
        labels, weights = (
            None if vector is None else vector[start:stop] for vector in (self.labels, self.weights)
        )
        others = None if self.others is None else self.others.slice(start, stop - start)
        context = {name: vector[start:stop] for name, vector in self.context.items()}
        return _Slice(self.file, self.values[start:stop], labels, weights, others, context)


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
        arrays = [np.where(_are_missing(array), "", array.astype(str)) for array in arrays]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


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
