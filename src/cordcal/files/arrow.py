"""Parquet and Feather files, read in slices of a few megabytes."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from cordcal.files.disk import InputFile, check_size, limit, reading
from cordcal.files.tables import TableFile, check_names
from cordcal.files.values import decoded, size_of, without_views

# Arrow decodes this many bytes at a time; it needs several times the memory.
SLICE_BYTES = 2**22
# Rows that are decoded to learn how long text is.
_PROBE_ROWS = 16


class ParquetFile(TableFile):
    """A Parquet file, read row group by row group."""

    format = "parquet"

    def __init__(self, file: InputFile) -> None:
        self.path, self._file = file.name, file
        with reading(self.path, "Parquet"), self._open() as opened:
            self.schema = _checked_schema(self.path, opened.schema_arrow)
            self.rows = opened.metadata.num_rows

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield some columns, or all, in slices of a few megabytes."""
        wanted = list(self.schema.names if columns is None else columns)
        with reading(self.path, "Parquet"), self._open() as opened:
            for group in range(opened.num_row_groups):
                if not opened.metadata.row_group(group).num_rows:
                    continue
                size = self._slice_rows(opened, group, set(wanted))
                for batch in opened.iter_batches(size, [group], wanted, use_threads=False):
                    check_size(self.path, size_of(batch))
                    # Arrow takes names as prefixes of nested ones, so select again.
                    yield _plain(pa.Table.from_batches([batch])).select(wanted)

    def _open(self) -> Any:
        data = self._file.data
        place = self.path if data is None else pa.BufferReader(data)
        # The next slice is read ahead by our own thread.
        return pyarrow.parquet.ParquetFile(place, pre_buffer=False, buffer_size=2**20)

    def _slice_rows(self, opened: Any, group: int, wanted: set[str]) -> int:
        """Return how many rows to decode at once.

        A column of numbers takes what its values take.  Text may repeat one long value a million
        times, so some rows are decoded to learn its length, and no slice could exceed the limit
        even if every value had the length of the whole stored column.
        """
        described = opened.metadata.row_group(group)
        size, longest, texts = 0, 0, set()
        for at in range(described.num_columns):
            column = described.column(at)
            name = column.path_in_schema.split(".")[0]
            if name not in wanted and column.path_in_schema not in wanted:
                continue
            stored = column.total_uncompressed_size
            if column.physical_type == "BYTE_ARRAY":
                texts.add(name if name in wanted else column.path_in_schema)
                longest = max(longest, stored)
                width = 4
            else:
                width = max(8, opened.schema.column(at).length)
            size += max(stored, column.num_values * width)
        per_row = size / described.num_rows
        if texts:
            batches = opened.iter_batches(_PROBE_ROWS, [group], sorted(texts), use_threads=False)
            first = next(iter(batches))
            per_row = max(per_row, size_of(first) / len(first))
            longest *= len(texts)
        rows = int(SLICE_BYTES / max(per_row, 1.0))
        return max(1, min(rows, int(described.num_rows), limit() // max(longest, 1)))


class FeatherFile(TableFile):
    """A file in Arrow's own format, read record batch by record batch."""

    format = "feather"

    def __init__(self, file: InputFile) -> None:
        self.path, self._file = file.name, file
        with reading(self.path, "Feather"):
            with self._open(None) as reader:
                self.schema = _checked_schema(self.path, reader.schema)
            self._batches = record_batches(file)
        self.rows = sum(self._batches.rows)

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield some columns, or all, in slices of a few megabytes."""
        wanted = list(self.schema.names if columns is None else columns)
        fields = [self.schema.get_field_index(name) for name in wanted]
        with reading(self.path, "Feather"), self._open(fields) as reader:
            for at, size in enumerate(self._batches.bytes):
                check_size(self.path, size + self._batches.dictionaries)
                batch = reader.get_batch(at)
                batch.validate(full=True)  # offsets in a damaged file may point anywhere
                table = _plain(pa.Table.from_batches([batch])).select(wanted)
                size = max(1, int(SLICE_BYTES * len(table) / max(size_of(table), 1)))
                for start in range(0, len(table), size):
                    yield table.slice(start, size)

    def _open(self, fields: list[int] | None) -> Any:
        data = self._file.data
        place = pa.OSFile(self.path) if data is None else pa.BufferReader(data)
        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        return pa.ipc.open_file(place, options=options)


@dataclass(frozen=True)
class RecordBatches:
    """The record batches of a Feather file, as its metadata describe them.

    Attributes
    ----------
    rows, bytes : tuple of int
        The rows of each batch, and its bytes in memory.
    dictionaries : int
        The bytes of all dictionaries.
    """

    rows: tuple[int, ...]
    bytes: tuple[int, ...]
    dictionaries: int


_BLOCK = np.dtype([("offset", "<i8"), ("metadata", "<i4"), ("", "<i4"), ("body", "<i8")])
_BUFFER = np.dtype([("offset", "<i8"), ("size", "<i8")])
# The footer and the metadata of a batch grow with the number of columns; more is damage.
_MAX_METADATA = 2**28


def record_batches(file: InputFile) -> RecordBatches:
    """Read how large the record batches of a Feather file are; Arrow would decode them first.

    The footer lists the place of each batch.  A batch lists its buffers; a compressed one begins
    with the length of its content, which Arrow allocates, or -1 if it is stored as it is.
    """

    def read(place: int, size: int) -> bytes:
        if not 0 <= size <= _MAX_METADATA or place < 0:
            raise OSError("the metadata are damaged")
        opened.seek(place)
        return opened.read(size)

    def measure(block: Any, *, is_dictionary: bool) -> tuple[int, int]:
        data = read(int(block["offset"]), int(block["metadata"]))
        # Since Arrow 0.15 the length follows four bytes of ones.
        message = _FlatTable.root(data, 8 if data.startswith(b"\xff\xff\xff\xff") else 4)
        batch = message.table(2)
        if is_dictionary:
            batch = batch.table(1)
        buffers = batch.structs(2, _BUFFER)
        sizes = buffers["size"].tolist()
        if batch.place(3) is not None:
            body = int(block["offset"]) + int(block["metadata"])
            for at, (offset, size) in enumerate(buffers.tolist()):
                if size:
                    length = int.from_bytes(read(body + offset, 8), "little", signed=True)
                    sizes[at] = size if length == -1 else length
        return batch.integer(0), sum(sizes)

    with file.open() as opened:
        end = opened.seek(0, io.SEEK_END) - len("ARROW1") - 4
        length = int.from_bytes(read(end, 4), "little")
        try:
            footer = _FlatTable.root(read(end - length, length), 0)
            dictionaries = [
                measure(block, is_dictionary=True)[1] for block in footer.structs(2, _BLOCK)
            ]
            measured = [measure(block, is_dictionary=False) for block in footer.structs(3, _BLOCK)]
        except (struct.error, ValueError) as error:
            raise OSError("the metadata are damaged") from error
    rows, sizes = zip(*measured, strict=True) if measured else ((), ())
    return RecordBatches(rows, sizes, sum(dictionaries))


@dataclass(frozen=True)
class _FlatTable:
    """A table of a flatbuffer, the format of Arrow's metadata."""

    data: bytes
    at: int

    @classmethod
    def root(cls, data: bytes, start: int) -> _FlatTable:
        return cls(data, start + struct.unpack_from("<I", data, start)[0])

    def place(self, field: int) -> int | None:
        """Return where a field is; None if it has its default."""
        (back,) = struct.unpack_from("<i", self.data, self.at)
        fields = self.at - back
        if 4 + 2 * field >= struct.unpack_from("<H", self.data, fields)[0]:
            return None
        (offset,) = struct.unpack_from("<H", self.data, fields + 4 + 2 * field)
        return self.at + offset if offset else None

    def integer(self, field: int) -> int:
        place = self.place(field)
        return 0 if place is None else int(struct.unpack_from("<q", self.data, place)[0])

    def table(self, field: int) -> _FlatTable:
        place = self.place(field)
        if place is None:
            raise ValueError("a table is missing")
        return _FlatTable.root(self.data, place)

    def structs(self, field: int, dtype: np.dtype[Any]) -> Any:
        """Return a vector of structs as an array."""
        place = self.place(field)
        if place is None:
            return np.empty(0, dtype)
        start = place + struct.unpack_from("<I", self.data, place)[0]
        (count,) = struct.unpack_from("<I", self.data, start)
        return np.frombuffer(self.data, dtype, count, start + 4)


def _checked_schema(path: str, schema: pa.Schema) -> pa.Schema:
    """Return a schema with plain types; refuse a name that occurs twice."""
    check_names(path, schema.names)
    fields = [field.with_type(without_views(field.type)) for field in schema]
    return pa.schema(fields, schema.metadata)


def _plain(table: pa.Table) -> pa.Table:
    for at, field in enumerate(table.schema):
        kind = without_views(field.type)
        if kind == field.type:
            continue
        column = table.column(at)
        if isinstance(field.type, pa.ExtensionType):
            storage = [chunk.storage for chunk in column.chunks]
            column = pa.chunked_array(storage, field.type.storage_type)
        if pa.types.is_dictionary(column.type):
            column = decoded(column)
        table = table.set_column(at, field.with_type(kind), column.cast(kind))
    return table
