"""Read score files of every format, at once or in batches of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, renumber_rows
from cordcal._numeric.types import Classes, Flags, Kind, NumPyArray, NumPyDType
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
    is_identifier,
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Batch:
    """Some rows of a file, in order.

    Attributes
    ----------
    values : ndarray of shape (rows, K)
        The scores as stored.
    numbers : ndarray of int
        The number of each row in the file.
    labels : ndarray of int or None
        The labels as column indices.
    weights : ndarray or None
        One weight per row, if the caller asked for them.
    context : mapping of str to ndarray
        Other columns as they are written, if the caller asked for them by name.
    others : pyarrow.Table or None
        The other columns of a table, if the caller asked for them.
    """

    values: NumPyArray
    numbers: npt.NDArray[np.intp]
    labels: npt.NDArray[np.int64] | None = None
    weights: NumPyArray | None = None
    context: Mapping[str, NumPyArray] = field(default_factory=dict)
    others: pyarrow.Table | None = None

    def __len__(self) -> int:
        return int(self.values.shape[0])

    @property
    def first(self) -> int:
        """The number of the first row in the file."""
        return int(self.numbers[0])

    def take(self, rows: slice | Flags) -> Batch:
        """Return some of the rows: a slice of them, or those for which a flag is true."""
        others = self.others
        if others is not None:
            others = others[rows] if isinstance(rows, slice) else others.filter(rows)
        return Batch(
            values=self.values[rows],
            numbers=self.numbers[rows],
            labels=None if self.labels is None else self.labels[rows],
            weights=None if self.weights is None else self.weights[rows],
            context={name: vector[rows] for name, vector in self.context.items()},
            others=others,
        )

    @staticmethod
    def concat(parts: Sequence[Batch], dtype: NumPyDType) -> Batch:
        """Return rows that follow each other as one batch, with scores of one dtype."""
        values, others = parts[0].values, parts[0].others
        if len(parts) > 1 or values.dtype != dtype:
            values = large_empty((sum(map(len, parts)), values.shape[1]), dtype)
            np.concatenate([part.values for part in parts], out=values, casting="unsafe")
        if others is not None:
            import pyarrow as pa

            others = pa.concat_tables([part.others for part in parts], promote_options="default")
        return Batch(
            values=values,
            numbers=np.concatenate([part.numbers for part in parts]),
            labels=_joined([part.labels for part in parts]),
            weights=_joined([part.weights for part in parts]),
            context={
                name: join_vectors([part.context[name] for part in parts])
                for name in parts[0].context
            },
            others=others,
        )


def _joined(vectors: Sequence[NumPyArray | None]) -> NumPyArray | None:
    present = [vector for vector in vectors if vector is not None]
    return join_vectors(present) if len(present) == len(vectors) else None


@dataclass(frozen=True, eq=False, kw_only=True)
class Scores(Batch):
    """The scores of a file: all rows, or those that could be read, with what is known of them.

    Attributes
    ----------
    path : str
        Where they came from.
    key : str
        The key or column they were stored under.
    kind : str
        ``"logits"`` or ``"probabilities"``, from the name or else from the values.
    class_names : tuple of str or None
        One name per column.
    columns : tuple of str
        The table columns of the scores; empty if they are one array.
    typed : tuple of str
        Columns of the context whose text is text even where it looks like numbers, as in Parquet.
    """

    path: str
    key: str
    kind: Kind
    class_names: tuple[str, ...] | None = None
    columns: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()


def read_scores(path: PathLike | Sequence[PathLike], **options: Any) -> Scores:
    r"""Read the scores of a file.

    Parameters
    ----------
    path : path, list of paths or "-"
        A file or several as for `open_scores`.
    **options
        Where scores, labels and weights are, and how text is read: those of `open_scores`.

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
    return open_scores(path, **options).read()


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
        An npz, npy, CSV, JSONL, Parquet, Feather, HDF5 or torch file; a folder, a pattern or a
        list of such files, which are read as one; ``-`` reads stdin.  Npz and torch files are
        read whole.
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
    has_rows = any(file.has_rows for file in source.files)
    if allow_empty and not (source.names or has_rows) and spec.classes is not None:
        # Not even a header.
        layout = ScoreColumns("scores", spec.classes, spec.classes)
    return ScoreFile(source, layout, spec, role=role, input=input, allow_empty=allow_empty)


def open_pair(
    original: tuple[str, ColumnSpec],
    direct: tuple[str, ColumnSpec],
    *,
    input: Kind | None = None,
) -> tuple[ScoreFile, ScoreFile]:
    """Open the original scores and the direct probabilities of the same rows.

    Columns are matched by name, in the order of the original; if one of the files does not show
    which of its columns are scores, they are those named like the classes of the other.  Rows go
    by position; identifiers that both files have are compared when they are read.
    """
    specs = [original[1], direct[1]]
    sources = [open_source(path, spec.text) for path, spec in (original, direct)]
    roles: list[tuple[str, Kind | None]] = [("original", input), ("direct", "probabilities")]
    layouts = [
        source.layout(spec, *role) for source, spec, role in zip(sources, specs, roles, strict=True)
    ]
    for at, other in ((0, 1), (1, 0)):
        own, names = _names(layouts[at]), _names(layouts[other])
        if names is None or (own is not None and set(own) == set(names)):
            continue
        if own is not None and at == 0 and set(own) <= set(sources[1].names):
            continue  # the second file has the classes of the first
        wanted = replace(specs[at], columns=None, classes=names, classes_in=sources[other].path)
        again = sources[at].layout(wanted, *roles[at])
        if _names(again) is not None:
            layouts[at] = again
    for at, other in ((0, 1), (1, 0)):
        # Columns without names are numbered, so columns headed 2,1,0 are those numbers.
        names = _names(layouts[at]) or ()
        positions = tuple(map(str, range(len(names))))
        if names and _names(layouts[other]) is None and set(names) == set(positions):
            specs[at] = replace(specs[at], classes=positions, classes_in=sources[other].path)

    chosen = {
        name for layout in layouts if isinstance(layout, ScoreColumns) for name in layout.columns
    }
    shared = (name for name in sources[0].names if name in sources[1].names and name not in chosen)
    candidates = filter(is_identifier, shared)
    ids = next((x for x in candidates if all(source.may_identify(x) for source in sources)), None)
    specs = [replace(spec, ids=ids) for spec in specs]

    def opened(at: int) -> ScoreFile:
        role, kind = roles[at]
        return ScoreFile(sources[at], layouts[at], specs[at], role=role, input=kind)

    first = opened(0)
    if first.class_names is not None and _names(layouts[1]) is not None:
        specs[1] = replace(specs[1], classes=first.class_names, classes_in=first.path)
    return first, opened(1)


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
        layout: ScoreColumns | InputError,
        spec: ColumnSpec,
        *,
        role: str = "scores",
        input: Kind | None = None,
        allow_empty: bool = False,
    ) -> None:
        if isinstance(layout, InputError):
            raise layout
        self._source, self._layout, self._spec, self._role = source, layout, spec, role
        self.path, self.key = source.path, layout.key
        self.columns = () if layout.are_lists else layout.columns
        own, self.class_names = _class_names(layout, spec, source.path)
        self._class_of = dict(zip(self.columns, own or (), strict=False))
        self._read_columns = list(layout.columns)
        if self._class_of and self.class_names is not None:
            order = class_order(own or (), self.class_names, self.path, "the classes")
            if order is not None:
                self._read_columns = [layout.columns[at] for at in order]
        self._orders = [self._order_in(file) for file in source.files]
        for name in spec.beside if source.names else ():  # not even a header
            self._check_beside(name)
        labels, weights = source.label_column(layout.key, spec), None
        if spec.weights is None and spec.weights_column is not None:
            weights = source.check_column(spec.weights_column, "weights")
        # The columns of labels and weights, and those of separate files.
        vectors = {"labels": labels, "weights": weights}
        self._vectors = {what: name for what, name in vectors.items() if name is not None}
        self._separate = _read_separate(spec)
        self._may_lack_labels = self._keep_scores = self._has_others = False
        self._row_bytes = 1
        self._starts: dict[int, int] = {}
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

    @property
    def opener(self) -> Callable[[PathLike], ScoreFile]:
        """Opens another part of the same input, here or on another machine."""
        spec = self._spec
        pinned = replace(
            spec,
            chosen=self._layout,
            labels=None,
            labels_column=None if spec.labels is not None else spec.labels_column,
            weights=None,
            weights_column=None if spec.weights is not None else spec.weights_column,
            classes=self.class_names or spec.classes,
        )
        return partial(
            open_with_spec, spec=pinned, role=self._role, input=self.kind, allow_empty=True
        )

    @property
    def _filled(self) -> Sequence[ColumnFile]:
        """The files that have columns: a text file may not even have a header."""
        return [file for file in self._source.files if file.names] or self._source.files

    def _kind_of(self, sample: NumPyArray, input: Kind | None) -> Kind:
        """Return the kind that the caller or the files state, or that the first rows show."""
        finite = sample[np.isfinite(sample).all(axis=1)]
        if len(finite) and may_be_ranks(self.class_names):
            check_whole_vectors(finite, self.name)
        if input is None and self.key == "repaired" and self.columns:
            return "probabilities"
        detected = kind_of(self.key, finite, self._spec.kind) if len(finite) else "logits"
        return input or self._source.kind or detected

    def _names_in(self, file: ColumnFile) -> tuple[str, ...] | None:
        """Return the class names in the order of a file's own columns."""
        if not self._class_of:
            return file.class_names or self._spec.class_names
        return tuple(self._class_of[name] for name in file.names if name in self._class_of)

    def _order_in(self, file: ColumnFile) -> list[int] | None:
        """Return the order in which whole rows of a file have the classes; None if they do."""
        if not self._layout.are_lists or not file.names:
            return None
        own = self._names_in(file)
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
            what, option = "the columns that it has", ("context_columns", "a,b")
            for own_option, column in self._spec.others:
                if column == name:
                    what, option = "it", (own_option, "NAME")
            hint = f"{error.hint}; name {what} with {{option}}"
            raise InputError(error.argument, error.reason, hint, option=option) from None

    @property
    def name(self) -> str:
        """The file and the key, for messages."""
        return f"{self.path} ({self.key})"

    @property
    def ids(self) -> str | None:
        """The column of identifiers that another file of the same rows has, too."""
        return self._spec.ids

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
        file = copy(self)
        file._vectors = {what: name for what, name in self._vectors.items() if what != "labels"}
        file._separate = {what: name for what, name in self._separate.items() if what != "labels"}
        return file

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

        table, scores = cast("Table", self._source), self._layout.columns
        if unify:
            table.unify([name for name in table.names if name not in scores])
        file = copy(self)
        file._has_others, file._keep_scores = True, keep_scores
        sample = next((rows.table for _, rows in table.slices(None)), None)
        if sample is not None and len(sample):
            file._row_bytes = max(1, size_of(sample) // len(sample))
        return file

    def empty_others(self) -> pyarrow.Table | None:
        """Return the other columns of a table without rows."""
        if not self._has_others:
            return None
        return cast("Table", self._source).empty(self._other_columns(self._source.names))

    def _other_columns(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if self._keep_scores or name not in self._layout.columns]

    @property
    def batch_rows(self) -> int:
        """How many rows a batch has, except the last."""
        row_bytes = max(int(self.classes * self.dtype.itemsize), self._row_bytes)
        return max(1, BATCH_BYTES // row_bytes)

    def batches(self, rows: int | None = None) -> Iterator[Batch]:
        """Yield batches of a number of rows, by default at most 16 MiB of scores."""
        size = rows or self.batch_rows
        pending: list[Batch] = []
        count = 0
        for part in self._slices():
            start = 0
            while count + len(part) - start >= size:
                stop = start + size - count
                pending.append(part.take(slice(start, stop)))
                yield self._batch(pending)
                pending, count, start = [], 0, stop
            if start < len(part):
                pending.append(part.take(slice(start, None)))
                count += len(part) - start
            del part
        if pending:
            yield self._batch(pending)

    def _slices(self, *, scores_only: bool = False) -> Iterator[Batch]:
        """Yield the rows of all files, columns in the order of the classes, labels as written."""
        beside = () if scores_only else self._spec.beside
        vectors = {} if scores_only else self._vectors
        keys = dict.fromkeys([*self._read_columns, *vectors.values(), *beside])
        with_others = self._has_others and not scores_only
        first = 0
        self._starts = {}
        for file, rows in self._source.slices(None if with_others else list(keys)):
            if not len(rows):
                continue
            stop = first + len(rows)
            with renumber_rows(first - self._starts.setdefault(file, first)):
                values = rows.matrix(self._read_columns)
                read: dict[str, Any] = {
                    what: rows.values(name) if what == "labels" else rows.numbers(name)
                    for what, name in vectors.items()
                }
            order = self._orders[file]
            if order is not None:
                # Not values[:, order], whose rows are not contiguous: sums round differently.
                values = values.take(order, axis=1)
            for what, vector in self._separate.items():
                read[what] = vector[first:stop] if len(vector) >= stop else None
            if with_others:
                table = cast("TableSlice", rows).table
                read["others"] = table.select(self._other_columns(table.column_names))
            context = {name: rows.values(name) for name in beside}
            yield Batch(values=values, numbers=np.arange(first, stop), context=context, **read)
            first = stop
        if not scores_only:
            self._check_lengths(first)

    def _check_lengths(self, rows: int) -> None:
        """Refuse separate labels or weights of another number of rows."""
        for what, vector in self._separate.items():
            check_length(len(vector), getattr(self._spec, what) or self.path, what, rows)

    def place(self, row: int) -> tuple[str, int]:
        """Return the file of a row that was read, and the row's number in it."""
        if not self._starts or len(self._source.paths) == 1:
            return self.path, row
        (file,) = self._files_of(np.array([row]))
        return self._source.paths[file], row - self._starts[file]

    def _files_of(self, rows: Classes) -> list[int]:
        """Return the files of some rows that were read."""
        places = np.searchsorted(list(self._starts.values()), rows, side="right") - 1
        return [list(self._starts)[at] for at in np.unique(places)]

    def _batch(self, parts: Sequence[Batch]) -> Batch:
        """Return slices as one batch, labels as column indices."""
        for part in parts:
            if part.values.shape[1] != self.classes:
                raise InputError(
                    self.name,
                    f"has {part.values.shape[1]} entries, the first row {self.classes}",
                    "pass whole vectors, one entry for each class in every row",
                    rows=[part.first],
                )
        batch = Batch.concat(parts, self.dtype)
        if batch.labels is None:
            return batch
        with renumber_rows(batch.first):
            is_separate = "labels" in self._separate
            labels = batch.labels if is_separate else parse_labels(batch.labels)
            for file in [0] if is_separate else self._files_of(batch.numbers):
                self._check_label_numbers(labels, self._source.files[file])
            return replace(batch, labels=self._indices(labels))

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

    def _check_label_numbers(self, labels: NumPyArray, file: ColumnFile) -> None:
        """Refuse numeric labels if the columns that they count have been reordered."""
        own, names = self._names_in(file), self.class_names
        if own is None or names is None or own == names or labels.dtype.kind not in "iufb":
            return
        if all(name.lstrip("-").isdigit() for name in names):
            return  # the labels are the columns' names themselves
        raise InputError(
            file.path,
            f"has numbers for labels, but its columns come in another order ({list_names(own)}) "
            f"than the classes ({list_names(names)})",
            "write class names as labels, or bring the columns into this order",
        )

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
        batch = self._batch(parts)
        check_values(batch.values, self.name, self.class_names)
        return self.as_scores(replace(batch, values=as_matrix(batch.values, self.name)))

    def as_scores(self, batch: Batch) -> Scores:
        """Return rows that were read with what is known of them."""
        return Scores(
            **vars(batch),
            path=self.path,
            key=self.key,
            kind=self.kind,
            class_names=self.class_names,
            columns=self.columns,
            typed=tuple(filter(self._source.has_type, batch.context)),
        )

    def separate_vectors(self) -> list[dict[str, NumPyArray]]:
        """Return labels and weights of separate files, part by part."""
        if not self._separate:
            return [{} for _ in self._source.paths]
        parts, stop = [], 0
        for file in self._source.files:
            count = file.count(self._layout.columns)  # rows of text are read to be counted
            rows = sum(map(len, file.slices(()))) if count is None else count
            start, stop = stop, stop + rows
            parts.append({what: vector[start:stop] for what, vector in self._separate.items()})
        self._check_lengths(stop)
        return parts

    def attach(self, vectors: Mapping[str, NumPyArray]) -> None:
        """Use labels and weights that the caller has read already."""
        self._separate = {**self._separate, **vectors}


def _are_missing(labels: NumPyArray, names: Sequence[str]) -> Flags:
    """Flag the rows without a label: NaN among numbers, empty text or NA among words."""
    if labels.dtype.kind in "iub":
        return np.zeros(len(labels), dtype=bool)
    if labels.dtype.kind == "f":
        return np.isnan(labels)
    missing = set(MISSING) - set(names)  # a class may be called NA
    return np.array([label.strip() in missing for label in labels.tolist()], dtype=bool)


def _class_names(
    layout: ScoreColumns, spec: ColumnSpec, path: str
) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Return the names of the columns in their order, and the classes in the order that is used.

    That is the order of a model, or else of the caller, or else of the file.
    """
    own, given, classes = layout.class_names, spec.class_names, spec.classes
    if own is None and given is not None:
        if not layout.are_lists and len(given) != len(layout.columns):
            raise InputError(
                "class_names",
                f"has {len(given)} names but {path} has {len(layout.columns)} columns",
                "give each column one name",
            )
        own = given
    if own is None:
        return None, None
    if given is not None:
        class_order(own, given, path, "class_names")  # refuses other classes
    if classes is None or (are_default_names(classes) and set(own) != set(classes)):
        return own, given or own
    class_order(own, classes, path, spec.classes_in)
    return own, classes


def _read_separate(spec: ColumnSpec) -> dict[str, NumPyArray]:
    """Return the labels and the weights that are in separate files."""
    vectors = {}
    if spec.labels is not None:
        labels = read_vector(spec.labels, spec.labels_column, LABEL_NAMES, text=spec.text)
        vectors["labels"] = parse_labels(labels)
    if spec.weights is not None:
        weights = parse_labels(read_vector(spec.weights, spec.weights_column, (), text=spec.text))
        if weights.dtype.kind not in "iufb":
            hint = "pass one number per row"
            raise InputError(spec.weights, "has words where weights should be", hint)
        vectors["weights"] = weights
    return vectors
