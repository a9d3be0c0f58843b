"""Where the rows of a score file come from, piece by piece or whole.

Parquet and npy files are read piece by piece; npz, CSV and stdin, which cannot be, are
read whole and handed out in the same spans.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from cordcal._door.errors import Refusal, placed
from cordcal.files._contents import (
    FEATURE_NAMES,
    Contents,
    not_parquet,
    open_contents,
    table_contents,
)
from cordcal.files._encoding import import_arrow
from cordcal.files._memory import empty
from cordcal.files._numpy import Chosen, read_header, unreadable
from cordcal.files._opening import open_regular

# A batch is at most 16 MiB of scores: some hundred times what a thread's cache holds, and
# small enough that a dozen copies in flight stay far below what the imports take.
BATCH_BYTES = 2**24
# What Arrow decodes at a time, and reads from the file at a time.
SLICE_BYTES = 2**20
_READ_BYTES = 2**20
# Rows that are read to find out what a file holds.
_SAMPLE_ROWS = 4096

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

    @abstractmethod
    def pieces(self, first: int, matrix: str) -> Iterator[Contents]:
        """Yield the contents of the spans from number ``first`` on."""


def open_source(path: str, column: str | None) -> Source:
    """Open a file by what it begins with; ``column`` names labels that lie in the same file."""
    if path == "-":
        return _Whole(open_contents(path, beside=column))
    with open_regular(path) as file:
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


class _Whole(Source):
    """A file that was read whole."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents

    def spans_of(self, matrix: str) -> tuple[Span, ...]:
        """Return the spans of a matrix: each may be of another length."""
        values = self.contents.matrices[matrix]
        return tuple(_spans(len(values), values.itemsize * values.shape[1]))

    def sample(self) -> Contents:
        """Return everything."""
        return self.contents

    def pieces(self, first: int, matrix: str) -> Iterator[Contents]:
        """Yield slices."""
        found = self.contents
        for start, stop in self.spans_of(matrix)[first:]:
            rows = slice(start, stop)
            matrices, vectors = (
                Chosen(whole, list(whole), rows) for whole in (found.matrices, found.vectors)
            )
            yield replace(found, matrices=matrices, vectors=vectors)


class _Npy(Source):
    """A npy file, read with plain reads: a memory map would count as memory used."""

    def __init__(self, path: str) -> None:
        self.path = path
        with open_regular(path) as file:
            head = read_header(file, path)
            there = os.fstat(file.fileno()).st_size - head.offset
        if len(head.shape) != 2:
            raise Refusal(
                path,
                "holds no matrix of scores (rows × classes)",
                f"it has an array of shape {head.shape}",
            )
        self.head = head
        for what, size in zip(("rows", "columns"), head.shape, strict=True):
            if not size:
                raise Refusal(path, f"has no {what}", "pass at least one row of two classes")
        if there < head.size:
            raise unreadable(path, f"it is cut short: {there:,} bytes instead of {head.size:,}")
        self.spans = tuple(_spans(head.shape[0], head.dtype.itemsize * head.shape[1]))

    def sample(self) -> Contents:
        """Return the first rows."""
        return self._read(0, min(_SAMPLE_ROWS, self.spans[0][1]))

    def pieces(self, first: int, matrix: str) -> Iterator[Contents]:
        """Yield the spans' rows."""
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


class _Parquet(Source):
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
            raise not_parquet(path, error) from error
        if self.first is None:
            raise Refusal(path, "has no rows", "pass at least one")
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
            raise not_parquet(f"{self.path}, from row {row} on,", error) from error

    def _columns(self, matrix: str) -> list[str] | None:
        """Return the columns to read: where the scores are one, other matrices are left out."""
        kinds = {field.name: field.type for field in self.file.schema_arrow}
        if matrix not in kinds:
            return None
        is_list = self.arrow.types.is_nested
        return [
            name
            for name, kind in kinds.items()
            if name == matrix or name in FEATURE_NAMES or not is_list(kind)
        ]

    def _contents(self, batch: Any, first: int = 0) -> Contents:
        table = batch
        if isinstance(batch, self.arrow.RecordBatch):
            schema = batch.schema.with_metadata(self.file.schema_arrow.metadata)
            table = self.arrow.Table.from_batches([batch]).cast(schema)
        with placed(first):
            return table_contents(self.path, table, self.column)


def _filled(slices: Iterator[Contents], rows: int) -> Contents:
    """Put slices together in arrays of the whole size; a single one is handed on as it is."""
    first = next(slices)
    length = len(next(iter(first.matrices.values())))
    if length == rows:
        return first
    columns = {**first.matrices, **first.vectors}
    whole = {key: empty((rows, *part.shape[1:]), part.dtype) for key, part in columns.items()}
    done = 0
    for part in chain([first], slices):
        for key, values in {**part.matrices, **part.vectors}.items():
            whole[key][done : done + len(values)] = values
        done += len(values)
    return Contents.of(
        first.path,
        first.format,
        {key: whole[key] for key in first.matrices},
        {key: whole[key] for key in first.vectors},
        first.class_names,
    )
