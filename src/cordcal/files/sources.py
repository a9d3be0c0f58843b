"""Where the rows of a score file come from, piece by piece or whole.

Parquet, npy and HDF5 files are read piece by piece, as are Feather and JSONL files (`_ipc`,
`_lines`); npz, CSV, torch and stdin, which cannot be, are read whole and handed out in spans.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, renumber_rows
from cordcal.files._arrow import group_fields, import_arrow, not_readable
from cordcal.files._hdf5 import DataSets
from cordcal.files._numpy import Chosen, Lazy, read_header, unreadable
from cordcal.files.columns import ColumnSpec
from cordcal.files.contents import Contents, array_contents, table_contents
from cordcal.files.memory import empty
from cordcal.files.opening import NoRows, no_rows, open_regular
from cordcal.files.passthrough import PartColumns, Passthrough, concat

# A batch is at most 16 MiB of scores: some hundred times what a thread's cache holds, and
# small enough that a dozen copies in flight stay far below what the imports take.
BATCH_BYTES = 2**24
# What Arrow decodes at a time, and reads from the file at a time.
SLICE_BYTES = 2**20
_READ_BYTES = 2**20
# Rows that are read to find out what a file holds.
SAMPLE_ROWS = 4096

Span = tuple[int, int]


class Source(ABC):
    """A file's rows in pieces, in order."""

    spans: tuple[Span, ...]

    @abstractmethod
    def sample(self) -> Contents:
        """Return the first rows."""

    def spans_of(self, matrix: str) -> tuple[Span, ...]:
        """Return the spans of the rows of a matrix."""
        return self.spans

    def part_rows(self, matrix: str) -> list[int]:
        """Return how many rows of a matrix each file has; most sources are one."""
        return [self.spans_of(matrix)[-1][1]]

    def dtype_of(self, matrix: str) -> np.dtype[Any]:
        """Return the dtype of a matrix."""
        return self.sample().matrices[matrix].dtype

    def part_columns(self, matrix: str) -> list[PartColumns]:
        """Return the passthrough columns of each file of a table, without rows."""
        return []

    @abstractmethod
    def pieces(
        self, first: int, wanted: Sequence[str], *, rest: bool = False
    ) -> Iterator[Contents]:
        """Yield the contents of the spans from number ``first`` on.

        Parameters
        ----------
        first : int
            The first span.
        wanted : sequence of str
            The arrays that are asked for, the matrix of the scores first.
        rest : bool
            Whether the other columns of a table are asked for too.
        """


def spans_of_rows(rows: int, row_bytes: int, first: int = 0) -> list[Span]:
    """Cut rows into spans of nearly one length, of at most `BATCH_BYTES`."""
    most = max(1, BATCH_BYTES // row_bytes)
    size = -(-rows // max(1, -(-rows // most)))
    return [(first + at, first + min(at + size, rows)) for at in range(0, rows, max(1, size))]


def row_bytes(sample: Contents, batch: Any) -> int:
    """Return what a row takes in memory: its scores, or all of an Arrow batch if that is more."""
    most = max((each.itemsize * each.shape[1] for each in sample.matrices.values()), default=1)
    return max(most, 1 if batch is None else batch.nbytes // len(batch))


class Whole(Source):
    """A file that was read whole."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents

    def spans_of(self, matrix: str) -> tuple[Span, ...]:
        """Return the spans of a matrix: each may be of another length."""
        values = self.contents.matrices[matrix]
        return tuple(spans_of_rows(len(values), values.itemsize * values.shape[1]))

    def sample(self) -> Contents:
        """Return everything."""
        return self.contents

    def pieces(
        self, first: int, wanted: Sequence[str], *, rest: bool = False
    ) -> Iterator[Contents]:
        """Yield slices."""
        found = self.contents
        beside = None if not rest or found.others is None else found.others(wanted[0])
        for start, stop in self.spans_of(wanted[0])[first:]:
            rows = slice(start, stop)
            matrices, vectors = (
                Chosen(whole, list(whole), rows) for whole in (found.matrices, found.vectors)
            )
            own = None if beside is None else beside.take(rows)
            yield replace(found, matrices=matrices, vectors=vectors, rest=own)


class Npy(Source):
    """A npy file, read with plain reads: a memory map would count as memory used."""

    def __init__(self, path: str) -> None:
        self.path = path
        with open_regular(path) as file:
            head = read_header(file, path)
            there = os.fstat(file.fileno()).st_size - head.offset
        if len(head.shape) != 2:
            raise InputError(
                path,
                "holds no matrix of scores (rows × classes)",
                f"it has an array of shape {head.shape}",
            )
        self.head = head
        for what, size in zip(("rows", "columns"), head.shape, strict=True):
            if not size:
                raise NoRows(path, f"has no {what}", "pass at least one row of two classes")
        if there < head.size:
            raise unreadable(path, f"it is cut short: {there:,} bytes instead of {head.size:,}")
        self.spans = tuple(spans_of_rows(head.shape[0], head.dtype.itemsize * head.shape[1]))

    def sample(self) -> Contents:
        """Return the first rows."""
        return self._read(0, min(SAMPLE_ROWS, self.spans[0][1]))

    def pieces(
        self, first: int, wanted: Sequence[str], *, rest: bool = False
    ) -> Iterator[Contents]:
        """Yield the spans' rows; a plain array has no others."""
        for start, stop in self.spans[first:]:
            yield self._read(start, stop)

    def _read(self, start: int, stop: int) -> Contents:
        (rows, classes), dtype, offset = self.head.shape, self.head.dtype, self.head.offset
        size = dtype.itemsize
        with Path(self.path).open("rb") as file:
            if self.head.columnwise:
                values = np.empty((stop - start, classes), dtype)
                for column in range(classes):
                    file.seek(offset + (column * rows + start) * size)
                    values[:, column] = np.fromfile(file, dtype, stop - start)
            else:
                file.seek(offset + start * classes * size)
                count = (stop - start) * classes
                values = np.fromfile(file, dtype, count).reshape(-1, classes)
        return Contents.of(self.path, "npy", {"array": values})


class Hdf5(Source):
    """A HDF5 file, some rows of its data sets at a time."""

    def __init__(self, path: str, held: DataSets) -> None:
        self.path, self.held = path, held
        self.contents = array_contents(path, "hdf5", held, held.shapes)

    def spans_of(self, matrix: str) -> tuple[Span, ...]:
        """Return the spans of a matrix: each may be of another length."""
        (rows, classes), size = self.held.shapes[matrix], self.held.dtype(matrix).itemsize
        if not rows or not classes:
            raise no_rows(f"{self.path} ({matrix})")
        return tuple(spans_of_rows(rows, size * classes))

    def sample(self) -> Contents:
        """Return the first rows."""
        return self._rows(list(self.held), 0, SAMPLE_ROWS)

    def pieces(
        self, first: int, wanted: Sequence[str], *, rest: bool = False
    ) -> Iterator[Contents]:
        """Yield the spans' rows; data sets have no other columns."""
        for start, stop in self.spans_of(wanted[0])[first:]:
            yield self._rows(wanted, start, stop)

    def _rows(self, wanted: Sequence[str], start: int, stop: int) -> Contents:
        whole = self.contents
        matrices, vectors = (
            Lazy(
                [key for key in held if key in wanted],
                lambda key: self.held.rows(key, start, stop),
            )
            for held in (whole.matrices, whole.vectors)
        )
        return replace(whole, matrices=matrices, vectors=vectors)


class Parquet(Source):
    """A Parquet file, a row group at a time, or a part of one where they are large."""

    def __init__(self, path: str, spec: ColumnSpec) -> None:
        self.path = path
        self.arrow, parquet = import_arrow()
        try:
            # Reading ahead is the pipeline's business, with a bound that Arrow has not.
            self.file = parquet.ParquetFile(path, pre_buffer=False, buffer_size=_READ_BYTES)
            sizes = [
                self.file.metadata.row_group(at).num_rows for at in range(self.file.num_row_groups)
            ]
            self.schema = self.file.schema_arrow
            filled = [at for at, size in enumerate(sizes) if size][:1]
            self.first: Any = next(self.file.iter_batches(SAMPLE_ROWS, filled), None)
        except (self.arrow.ArrowException, OSError) as error:
            raise not_readable(path, error) from error
        if self.first is None:
            raise no_rows(path)
        self.grouping = group_fields(self.schema, spec, path)
        sample = self.sample()
        self.row_bytes = row_bytes(sample, self.first if spec.rest else None)
        self._dtypes = {key: values.dtype for key, values in sample.matrices.items()}
        self.groups: list[list[Span]] = []
        rows = 0
        for size in sizes:
            self.groups.append(spans_of_rows(size, self.row_bytes, rows))
            rows += size
        self.spans = tuple(span for group in self.groups for span in group)

    def sample(self) -> Contents:
        """Return the first rows."""
        return self._contents(self.first)

    def dtype_of(self, matrix: str) -> np.dtype[Any]:
        """Return the dtype of a matrix, which is known from the first rows."""
        return self._dtypes[matrix]

    def part_columns(self, matrix: str) -> list[PartColumns]:
        """Return the columns of the schema."""
        scores = self.grouping.matrices[matrix]
        return schema_columns(self.path, self.schema, scores, partial(_column_chunks, self.path))

    def pieces(
        self, first: int, wanted: Sequence[str], *, rest: bool = False
    ) -> Iterator[Contents]:
        """Yield the spans' rows; row groups before the first span are not touched."""
        done = 0
        for group, spans in enumerate(self.groups):
            if done + len(spans) > first and spans:
                yield from self._group(group, spans, wanted, rest, max(0, first - done))
            done += len(spans)

    def _group(
        self, group: int, spans: list[Span], wanted: Sequence[str], rest: bool, first: int
    ) -> Iterator[Contents]:
        """Yield the spans of one row group, from number ``first`` on."""
        row, stop = spans[0]
        rows = size = stop - row
        if len(spans) == 1:
            # Arrow needs several times the memory of what it decodes at once.
            size = max(1, min(rows, SLICE_BYTES // self.row_bytes))
        columns = None if rest else self._columns(wanted)
        matrix = wanted[0] if rest else None
        batches = self.file.iter_batches(size, [group], columns, use_threads=False)
        try:
            if len(spans) == 1:
                starts = range(row, stop, size)
                slices = (
                    (start, len(batch), self._contents(batch, matrix))
                    for start, batch in zip(starts, batches, strict=True)
                )
                yield _filled(slices, rows, wanted)
                self.arrow.default_memory_pool().release_unused()
                return
            late = islice(batches, first, None)
            for (row, _), batch in zip(spans[first:], late, strict=True):  # noqa: B007 - see below
                yield self._contents(batch, matrix)
        except (self.arrow.ArrowException, OSError) as error:
            raise not_readable(f"{self.path}, from row {row} on,", error) from error

    def _columns(self, wanted: Sequence[str]) -> list[str]:
        matrices = self.grouping.matrices
        return [column for name in wanted for column in matrices.get(name, (name,))]

    def _contents(self, batch: Any, matrix: str | None = None) -> Contents:
        # A record batch of some columns does not carry the file's metadata.
        table = batch.replace_schema_metadata(self.schema.metadata)
        found = table_contents(self.path, "parquet", table, self.grouping)
        if matrix is None or found.others is None:
            return found
        return replace(found, rest=found.others(matrix))


def _filled(
    slices: Iterator[tuple[int, int, Contents]], rows: int, wanted: Sequence[str]
) -> Contents:
    """Put slices together in arrays of the whole size; a single one is handed on as it is.

    Each comes with the number of its first row and how many it has.
    """
    begun = next(slices)
    _, size, first = begun
    if size == rows:
        return first
    matrices: dict[str, npt.NDArray[Any]] = {}
    vectors: dict[str, list[npt.NDArray[Any]]] = {}
    rests: list[Passthrough | None] = []
    done = 0
    for start, length, part in chain([begun], slices):
        with renumber_rows(start):
            for key in wanted:
                values = part[key]
                if values.ndim == 1:
                    vectors.setdefault(key, []).append(values)
                    continue
                if key not in matrices:
                    matrices[key] = empty((rows, *values.shape[1:]), values.dtype)
                matrices[key][done : done + length] = values
        rests.append(part.rest)
        done += length
    together = {key: np.concatenate(parts) for key, parts in vectors.items()}
    found = Contents.of(first.path, first.format, matrices, together, first.class_names)
    rest, names, own = concat(rests), first.headings, first.own_headings
    return replace(found, rest=rest, headings=names, own_headings=own)


def _column_chunks(path: str, column: str) -> Iterator[Any]:
    """Read one column of a Parquet file."""
    _, parquet = import_arrow()
    with parquet.ParquetFile(path, pre_buffer=False) as file:
        for batch in file.iter_batches(columns=[column]):
            yield batch.column(0)


def schema_columns(
    path: str, schema: Any, scores: Sequence[str], chunks: Callable[[str], Iterator[Any]]
) -> list[PartColumns]:
    """Return the columns of an Arrow file except those of the scores."""
    names = [name for name in schema.names if name not in scores]
    return [PartColumns(path, Passthrough.from_arrow(schema.empty_table(), names), chunks)]
