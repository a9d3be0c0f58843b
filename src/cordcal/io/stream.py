"""Read score files in batches of rows, so that a file may be larger than memory.

Parquet and npy files are read piece by piece; npz, CSV and stdin, which cannot be, are
read whole and handed out in the same batches.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal import arrays
from cordcal.io import scores as files
from cordcal.io._memory import empty
from cordcal.io.contents import (
    Contents,
    npy_message,
    open_contents,
    parquet_message,
    table_contents,
)
from cordcal.io.encoding import import_arrow
from cordcal.io.kinds import Kind, check_whole_vectors

# A batch is at most 16 MiB of scores: some hundred times what a thread's cache holds, and
# small enough that a dozen copies in flight stay far below what the imports take.
BATCH_BYTES = 2**24
# What Arrow decodes at a time, and reads from the file at a time.
SLICE_BYTES = 2**20
_READ_BYTES = 2**20
# Rows that are read to find out what a file holds.
_SAMPLE_ROWS = 4096

Span = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Batch:
    """Some consecutive rows of a file.

    Attributes
    ----------
    first : int
        The number of the first row in the file.
    values : ndarray of shape (rows, K)
        The scores as stored.
    labels : ndarray of int or None
        The labels as column indices.
    features : ndarray or None
        Penultimate features, where the file has them.
    """

    first: int
    values: npt.NDArray[Any]
    labels: npt.NDArray[np.int64] | None = None
    features: npt.NDArray[Any] | None = None

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def rows(self, start: int, stop: int) -> Batch:
        """Return some of the rows, counted within the batch."""
        return Batch(
            self.first + start,
            self.values[start:stop],
            None if self.labels is None else self.labels[start:stop],
            None if self.features is None else self.features[start:stop],
        )


class _Source(ABC):
    """A file's rows in pieces, in order."""

    spans: tuple[Span, ...]

    @abstractmethod
    def sample(self) -> Contents:
        """Return the first rows."""

    @abstractmethod
    def pieces(self, first: int, matrix: str) -> Iterator[Contents]:
        """Yield the contents of the spans from number ``first`` on."""


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
    """

    def __init__(
        self, source: _Source, sample: Contents, key: str, kind: Kind, labels: str | None
    ) -> None:
        values = sample.matrices[key]
        self.path, self.key, self.kind = sample.path, key, kind
        self.class_names = sample.class_names
        self.spans = source.spans
        self.rows, self.classes = self.spans[-1][1], int(values.shape[1])
        self.dtype = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
        self._source = source
        apart = labels is not None and files.is_file(labels)
        self._column = None if apart else labels
        self._beside = self._labels_of(labels) if labels is not None and apart else None

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

    def batches(self, first: int = 0) -> Iterator[Batch]:
        """Yield the batches, from number ``first`` on."""
        pieces = self._source.pieces(first, self.key)
        for start, stop in self.spans[first:]:
            # Nothing here may hold on to a batch while the next one is read.
            yield self._batch(next(pieces), start, stop)

    def along(self, spans: Sequence[Span]) -> Iterator[Batch]:
        """Yield batches of other spans of rows than the file's own."""
        own = next((at for at, span in enumerate(self.spans) if span[1] > spans[0][0]), 0)
        batches = self.batches(own)
        held: list[Batch] = []
        for start, stop in spans:
            while not held or held[-1].first + len(held[-1]) < stop:
                held.append(next(batches))
            parts = [
                batch.rows(max(start - batch.first, 0), min(stop - batch.first, len(batch)))
                for batch in held
            ]
            yield _joined(parts)
            held = [batch for batch in held if batch.first + len(batch) > stop]

    def _batch(self, contents: Contents, start: int, stop: int) -> Batch:
        try:
            values = arrays.as_matrix(contents.matrices[self.key], self.name)
            found = files.labels_in(contents, self.key, self._column)
            if self._beside is not None:
                found = self._beside[start:stop]
            labels = None
            if found is not None:
                labels = files.as_indices(found, values.shape, self.class_names, self.path)
        except ValueError as error:
            raise ValueError(arrays.renumbered(str(error), start)) from error
        if values.shape != (stop - start, self.classes):
            raise ValueError(
                f"{self.name}: row {start} has {values.shape[1]} entries, the first row "
                f"{self.classes}; pass whole vectors, one entry for each class in every row"
            )
        features = files.features_in(contents)
        return Batch(start, values.astype(self.dtype, copy=False), labels, features)

    def _labels_of(self, path: str) -> npt.NDArray[Any]:
        """Return the labels that a file of their own holds."""
        found = files.read_vector(path)
        if len(found) != self.rows:
            raise ValueError(
                f"{path}: there are {len(found)} labels but {self.path} has {self.rows} rows of "
                f"scores; pass one label for each row"
            )
        return found


def open_scores(
    path: str | os.PathLike[str],
    *,
    key: str | None = None,
    role: str = "scores",
    labels: str | None = None,
    input: Kind | None = None,
) -> ScoreFile:
    """Open a score file for reading in batches of at most 16 MiB.

    Parameters
    ----------
    path : path or "-"
        A Parquet or npy file of any size, or a npz or CSV file that fits in memory.
    key : str, optional
        The key (npz) or column (Parquet) of the scores; found by name where left out.
    role : str
        A name to prefer: ``"original"`` or ``"direct"``.
    labels : str, optional
        A file of labels, or the key or column of this file that holds them.
    input : {"logits", "probabilities"}, optional
        The kind, where the file's name for the scores or its first rows do not make it plain.

    Returns
    -------
    file : ScoreFile
        Iterate over it for `Batch` objects.  Values come as stored, not checked.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "scores.npy"
    >>> np.save(path, np.full((5, 4), 0.25))
    >>> scores = open_scores(path)
    >>> scores.shape, scores.kind, [len(batch) for batch in scores]
    ((5, 4), 'probabilities', [5])
    """
    column = None if labels is None or files.is_file(labels) else labels
    source = _open(os.fspath(path), column)
    sample = source.sample()
    chosen = files.choose(sample, key, role, input)
    values = arrays.as_matrix(sample.matrices[chosen], f"{sample.path} ({chosen})")
    # Rows with a NaN are found when they are used; here they must not decide anything.
    sound = values[np.isfinite(values).all(axis=1)]
    if len(sound):
        check_whole_vectors(sound, f"{sample.path} ({chosen})")
    kind = input or (files.kind_of(chosen, sound) if len(sound) else "logits")
    names = sample.class_names
    if names is not None and len(names) != values.shape[1]:
        raise ValueError(
            f"{sample.path} has {len(names)} class names but {chosen} has {values.shape[1]} "
            f"columns; give each column one name"
        )
    return ScoreFile(source, sample, chosen, kind, labels)


def _open(path: str, column: str | None) -> _Source:
    if path == "-":
        return _Whole(open_contents(path, beside=column))
    with Path(path).open("rb") as file:
        head = file.read(6)
    if head.startswith(b"PAR1"):
        return _Parquet(path, column)
    if head.startswith(b"\x93NUMPY"):
        return _Npy(path)
    return _Whole(open_contents(path, beside=column))


def _spans(rows: int, row_bytes: int, first: int = 0) -> list[Span]:
    """Cut rows into spans of nearly one length, of at most `BATCH_BYTES`."""
    most = max(1, BATCH_BYTES // row_bytes)
    size = -(-rows // max(1, -(-rows // most)))
    return [(first + at, first + min(at + size, rows)) for at in range(0, rows, max(1, size))]


class _Whole(_Source):
    """A file that was read whole."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        # Any of the matrices may be asked for; the longest has all rows.
        longest = max(contents.matrices.values(), key=len, default=np.empty((1, 1)))
        self.spans = tuple(_spans(len(longest), longest.itemsize * longest.shape[1]))

    def sample(self) -> Contents:
        """Return everything."""
        return self.contents

    def pieces(self, first: int, matrix: str) -> Iterator[Contents]:
        """Yield slices."""
        for start, stop in self.spans[first:]:
            yield _sliced(self.contents, slice(start, stop))


def _sliced(contents: Contents, rows: slice) -> Contents:
    return Contents(
        contents.path,
        contents.format,
        {key: matrix[rows] for key, matrix in contents.matrices.items()},
        {key: vector[rows] for key, vector in contents.vectors.items()},
        contents.class_names,
    )


class _Npy(_Source):
    """A npy file, read with plain reads: a memory map would count as memory used."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            # A map is only a look at the header, and refuses a file that is cut short.
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            raise ValueError(npy_message(path, error)) from error
        if array.ndim != 2:
            raise ValueError(
                f"{path} holds no matrix of scores (rows × classes); it has array {array.shape}"
            )
        self.shape, self.dtype, self.offset = array.shape, array.dtype, array.offset
        self.columnwise = array.flags.f_contiguous and not array.flags.c_contiguous
        self.spans = tuple(_spans(array.shape[0], self.dtype.itemsize * array.shape[1]))
        if not self.spans:
            raise ValueError(f"{path} has no rows; pass at least one")

    def sample(self) -> Contents:
        """Return the first rows."""
        return self._read(0, min(_SAMPLE_ROWS, self.spans[0][1]))

    def pieces(self, first: int, matrix: str) -> Iterator[Contents]:
        """Yield the spans' rows."""
        for start, stop in self.spans[first:]:
            yield self._read(start, stop)

    def _read(self, start: int, stop: int) -> Contents:
        rows, classes = self.shape
        size = self.dtype.itemsize
        with Path(self.path).open("rb") as file:
            if self.columnwise:
                values = np.empty((stop - start, classes), self.dtype)
                for column in range(classes):
                    file.seek(self.offset + (column * rows + start) * size)
                    values[:, column] = np.fromfile(file, self.dtype, stop - start)
            else:
                file.seek(self.offset + start * classes * size)
                count = (stop - start) * classes
                values = np.fromfile(file, self.dtype, count).reshape(-1, classes)
        return Contents(self.path, "npy", {"array": values})


class _Parquet(_Source):
    """A Parquet file, a row group at a time, or a part of one where they are large."""

    def __init__(self, path: str, column: str | None) -> None:
        self.path, self.column = path, column
        self.arrow, parquet = import_arrow()
        try:
            # Reading ahead is the pipeline's business, with a bound that Arrow has not.
            self.file = parquet.ParquetFile(path, pre_buffer=False, buffer_size=_READ_BYTES)
            sizes = [
                self.file.metadata.row_group(at).num_rows for at in range(self.file.num_row_groups)
            ]
            filled = [at for at, size in enumerate(sizes) if size][:1]
            self.first = next(self.file.iter_batches(_SAMPLE_ROWS, filled), None)
        except (self.arrow.ArrowException, OSError) as error:
            raise ValueError(parquet_message(path, error)) from error
        if self.first is None:
            raise ValueError(f"{path} has no rows; pass at least one")
        matrices = self.sample().matrices.values()
        self.row_bytes = max((each.itemsize * each.shape[1] for each in matrices), default=1)
        self.groups: list[list[Span]] = []
        rows = 0
        for size in sizes:
            self.groups.append(_spans(size, self.row_bytes, rows))
            rows += size
        self.spans = tuple(span for group in self.groups for span in group)

    def sample(self) -> Contents:
        """Return the first rows."""
        return self._contents(self.first)

    def pieces(self, first: int, matrix: str) -> Iterator[Contents]:
        """Yield the spans' rows; row groups before the first span are not touched."""
        wanted = self._columns(matrix)
        done = 0
        for group, spans in enumerate(self.groups):
            if done + len(spans) > first and spans:
                yield from self._group(group, spans, wanted, max(0, first - done))
            done += len(spans)

    def _group(
        self, group: int, spans: list[Span], wanted: list[str] | None, first: int
    ) -> Iterator[Contents]:
        """Yield the spans of one row group, from number ``first`` on."""
        row, stop = spans[0]
        rows = size = stop - row
        if len(spans) == 1:
            # Arrow needs several times the memory of what it decodes at once.
            size = max(1, min(rows, SLICE_BYTES // self.row_bytes))
        batches = self.file.iter_batches(size, [group], wanted, use_threads=False)
        try:
            if len(spans) == 1:
                starts = range(row, stop, size)
                slices = (self._contents(*each) for each in zip(batches, starts, strict=True))
                yield _filled(slices, rows)
                self.arrow.default_memory_pool().release_unused()
                return
            for (row, _), batch in zip(spans[first:], islice(batches, first, None), strict=True):
                yield self._contents(batch, row)
        except (self.arrow.ArrowException, OSError) as error:
            message = parquet_message(f"{self.path}, from row {row} on,", error)
            raise ValueError(message) from error

    def _columns(self, matrix: str) -> list[str] | None:
        """Return the columns to read: where the scores are one, other matrices are left out."""
        kinds = {field.name: field.type for field in self.file.schema_arrow}
        if matrix not in kinds:
            return None
        is_list = self.arrow.types.is_nested
        return [
            name
            for name, kind in kinds.items()
            if name == matrix or name in files.FEATURE_NAMES or not is_list(kind)
        ]

    def _contents(self, batch: Any, first: int = 0) -> Contents:
        table = batch
        if isinstance(batch, self.arrow.RecordBatch):
            schema = batch.schema.with_metadata(self.file.schema_arrow.metadata)
            table = self.arrow.Table.from_batches([batch]).cast(schema)
        try:
            return table_contents(self.path, table, self.column)
        except ValueError as error:
            raise ValueError(arrays.renumbered(str(error), first)) from error


def _filled(slices: Iterator[Contents], rows: int) -> Contents:
    """Put slices together in arrays of the whole size; a single one is handed on as it is."""
    first = next(slices)
    length = len(next(iter(first.matrices.values())))
    if length == rows:
        return first
    columns = first.matrices | first.vectors
    whole = {key: empty((rows, *part.shape[1:]), part.dtype) for key, part in columns.items()}
    done = 0
    for part in chain([first], slices):
        for key, values in (part.matrices | part.vectors).items():
            whole[key][done : done + len(values)] = values
        done += len(values)
    return Contents(
        first.path,
        first.format,
        {key: whole[key] for key in first.matrices},
        {key: whole[key] for key in first.vectors},
        first.class_names,
    )


def _joined(parts: list[Batch]) -> Batch:
    if len(parts) == 1:
        return parts[0]

    def together(name: str) -> Any:
        columns = [getattr(part, name) for part in parts]
        return None if columns[0] is None else np.concatenate(columns)

    return Batch(parts[0].first, together("values"), together("labels"), together("features"))
