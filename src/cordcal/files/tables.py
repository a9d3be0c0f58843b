"""Tables of one or more files: Parquet, Feather, CSV and JSONL, read in slices of rows.

The files of a folder are one table by name: columns are matched by their names, types are unified
without loss before the first row is read, and a column that a file lacks is null in its rows.
Parts of folder names such as ``date=2026-11-01`` are columns of text.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from cordcal._errors import InputError, raise_first, row_error, warn
from cordcal._numeric.types import NumPyArray
from cordcal.files.columns import ColumnType, TextOptions
from cordcal.files.disk import InputFile, check_size, first_line, limit
from cordcal.files.text import (
    JSON,
    CsvFile,
    JsonlFile,
    TextSource,
    WrongCell,
    decode_json,
    encode_json,
    is_number,
    parse_lists,
    parse_numbers,
)

# Arrow decodes this many bytes at a time; it needs several times the memory.
SLICE_BYTES = 2**22
# Rows that are decoded to learn how long text is.
_PROBE_ROWS = 16
# How Spark writes a partition value that is null.
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def size_of(batch: pa.RecordBatch | pa.Table) -> int:
    """Return the bytes of some rows; of views of text, whose parts Arrow does not measure, all."""
    try:
        return int(batch.nbytes)
    except pa.ArrowException:
        return int(batch.get_total_buffer_size())


class TableFile(Protocol):
    """One file of a table, read in slices.

    Attributes
    ----------
    path, format : str
        The file and its format.
    schema : Schema
        Its columns.
    rows : int or None
        How many rows it has; None if that is not known before it is read.
    """

    path: str
    format: str
    schema: pa.Schema
    rows: int | None

    def slices(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield some columns, or all, in slices of rows."""


def open_file(file: InputFile, options: TextOptions) -> TableFile:
    """Open one file; its format is recognised by its first bytes."""
    head = file.head(64)
    if head.startswith(b"PAR1"):
        return ParquetFile(file)
    if head.startswith(b"ARROW1"):
        return FeatherFile(file)
    start = TextSource(file, options).start.lstrip()
    return (JsonlFile if start[:1] in (b"{", b"[") else CsvFile)(file, options)


@contextmanager
def _readable(path: str, format: str) -> Iterator[None]:
    """Turn errors of Arrow in the block into an `InputError`."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            path,
            f"cannot be read as {format} ({first_line(error)})",
            "it may be truncated: write it again",
        ) from error


class ParquetFile:
    """A Parquet file, read row group by row group."""

    format = "parquet"

    def __init__(self, file: InputFile) -> None:
        self.path, self._file = file.name, file
        with _readable(self.path, "Parquet"), self._open() as opened:
            self.schema = _checked_schema(self.path, opened.schema_arrow)
            self.rows: int | None = opened.metadata.num_rows

    def slices(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield some columns, or all, in slices of a few megabytes."""
        wanted = list(self.schema.names if columns is None else columns)
        with _readable(self.path, "Parquet"), self._open() as opened:
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


class FeatherFile:
    """A file in Arrow's own format, read record batch by record batch."""

    format = "feather"

    def __init__(self, file: InputFile) -> None:
        self.path, self._file = file.name, file
        with _readable(self.path, "Feather"):
            with self._open(None) as reader:
                self.schema = _checked_schema(self.path, reader.schema)
            self._batches = record_batches(file)
        self.rows: int | None = sum(self._batches.rows)

    def slices(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield some columns, or all, in slices of a few megabytes."""
        wanted = list(self.schema.names if columns is None else columns)
        fields = [self.schema.get_field_index(name) for name in wanted]
        with _readable(self.path, "Feather"), self._open(fields) as reader:
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
    names = schema.names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(path, f"has two columns called {twice!r}", "give each its own name")
    fields = [field.with_type(_plain_type(field.type)) for field in schema]
    return pa.schema(fields, schema.metadata)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the usual type for the same values: views, as polars writes them, become text."""
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_dictionary(kind):
        plain = _plain_type(kind.value_type)
        return kind if plain == kind.value_type else plain
    if isinstance(kind, pa.ExtensionType):
        return _plain_type(kind.storage_type)
    return kind


def _plain(table: pa.Table) -> pa.Table:
    for at, field in enumerate(table.schema):
        kind = _plain_type(field.type)
        if kind != field.type:
            column = table.column(at)
            if isinstance(field.type, pa.ExtensionType):
                column = pa.chunked_array(
                    [chunk.storage for chunk in column.chunks], field.type.storage_type
                )
            if pa.types.is_dictionary(column.type):
                column = _decoded(column)
            table = table.set_column(at, field.with_type(kind), column.cast(kind))
    return table


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of a column of categories."""
    kind = column.type.value_type
    chunks = [
        chunk.dictionary.cast(_plain_type(kind)).take(chunk.indices) for chunk in column.chunks
    ]
    return pa.chunked_array(chunks, _plain_type(kind))


# Several files.


class Table:
    """The files of a table as one.

    Parameters
    ----------
    path : str
        The file, folder or pattern, for messages.
    files : sequence of TableFile
        The files, in order.
    partitions : sequence of dict
        The columns in the folder names of each file.

    Attributes
    ----------
    names : tuple of str
        The columns of the first file, then those that only later ones have.
    is_json, is_text : bool
        Whether columns are JSON text, or text of any kind.
    """

    def __init__(
        self,
        path: str,
        files: Sequence[TableFile],
        partitions: Sequence[dict[str, str | None]],
    ) -> None:
        self.path, self.files = path, files
        filled = [at for at, file in enumerate(files) if file.schema.names]
        first = files[filled[0] if filled else 0]
        self.format = first.format
        self.is_json = first.format == "jsonl"
        self.is_text = first.format in ("csv", "jsonl")
        for at in filled:
            if files[at].format != first.format:
                raise InputError(
                    files[at].path,
                    f"is a {files[at].format} file but {first.path} a {first.format} file",
                    "write all parts in one format",
                )
            header = getattr(files[at], "has_header", None)
            if header != getattr(first, "has_header", None):
                raise InputError(
                    files[at].path,
                    f"has {'a' if header else 'no'} header, unlike {first.path}",
                    "write a header in every part, or in none",
                )
        self._partitions = [
            {name: value for name, value in own.items() if name not in file.schema.names}
            for file, own in zip(files, partitions, strict=True)
        ]
        self._types: dict[str, pa.Field] = {}

    @property
    def has_header(self) -> bool:
        """Whether the names of the columns come from the file."""
        return all(getattr(file, "has_header", True) for file in self.files if file.schema.names)

    @property
    def rows(self) -> int | None:
        """How many rows there are; None if that is not known before they are read."""
        counts = [file.rows for file in self.files]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        names: dict[str, None] = {}
        for file, partition in zip(self.files, self._partitions, strict=True):
            names |= dict.fromkeys([*partition, *file.schema.names])
        return tuple(names)

    def column_types(self) -> dict[str, ColumnType]:
        """Return what each column holds; of text, judged by the first rows of each file."""
        types: dict[str, ColumnType] = {}
        rows = 0  # the first file with rows decides
        for file, partition in zip(self.files, self._partitions, strict=True):
            own: dict[str, ColumnType] = dict.fromkeys(partition, "other")
            if isinstance(file, CsvFile | JsonlFile):
                own |= {
                    name: _text_type(file.sample.column(name), self.is_json)
                    for name in file.sample.column_names
                }
                if not len(file.sample):  # a header alone: any column may be one of numbers
                    own = dict.fromkeys(own, "float")
            else:
                own |= {field.name: _column_type(field.type) for field in file.schema}
            for name, kind in own.items():
                if name not in types or not rows:
                    types[name] = kind
            rows += len(file.sample) if isinstance(file, CsvFile | JsonlFile) else file.rows or 0
        return types

    def has_type(self, name: str) -> bool:
        """Return whether the files say if a column is text; text files and folders do not."""
        return not self.is_text and any(name in file.schema.names for file in self.files)

    def difference(self, columns: Sequence[str]) -> InputError | None:
        """Return the error that one file has some of the columns and another has not."""
        filled = [file for file in self.files if file.schema.names]
        for file in filled[1:]:
            names, expected = set(file.schema.names), set(filled[0].schema.names)
            extra = [name for name in columns if name in names - expected]
            missing = [name for name in columns if name in expected - names]
            if extra or missing:
                has = f"has the column {extra[0]!r}" if extra else ""
                lacks = f"has no column {missing[0]!r}" if missing else ""
                return InputError(
                    file.path,
                    f"{' but '.join(filter(None, (has, lacks)))}, unlike {filled[0].path}",
                    "give every part the same columns of scores",
                )
        return None

    def unify(self, columns: Sequence[str]) -> None:
        """Settle names and types of columns over all files, without loss, or refuse them."""
        for file in self.files:
            if isinstance(file, JsonlFile):
                file.scan()
        owners: dict[str, list[tuple[TableFile, pa.Field]]] = {}
        for file in self.files:
            for field in file.schema:
                if field.name in columns:
                    owners.setdefault(field.name, []).append((file, field))
        filled = [file for file in self.files if file.schema.names]
        self._types = {
            name: unified_field(name, owner, nullable=len(owner) < len(filled))
            for name, owner in owners.items()
        }
        if not self.is_json:
            _warn_of_missing(filled, owners)

    def slices(self, columns: Sequence[str] | None = None) -> Iterator[tuple[int, pa.Table]]:
        """Yield the number of a file and a slice of its rows.

        Without ``columns`` all columns, conformed if `unify` was called; JSONL rows then have the
        keys that they have.
        """
        for at, file in enumerate(self.files):
            own = None
            if columns is not None:
                own = [name for name in columns if name in file.schema.names]
            names = columns
            if columns is None and self._types:
                names = self.names
            for table in file.slices(own):
                yield at, self._conform(at, table, names)

    def _conform(self, at: int, table: pa.Table, names: Sequence[str] | None) -> pa.Table:
        partition = self._partitions[at]
        if names is None and not partition:
            return table
        rows = len(table)
        columns, fields = [], []
        for name in [*partition, *table.column_names] if names is None else names:
            field = self._types.get(name)
            if name in table.column_names:
                column = table.column(name)
                own = table.schema.field(name)
                if field is not None and field.type != own.type:
                    column = column.cast(field.type)
                field = field or own
            elif name in partition:
                text: Any = pa.array([partition[name]], pa.string())
                field = pa.field(name, pa.string())
                if self.is_json:
                    text, field = encode_json(text), field.with_metadata(JSON)
                column = pa.repeat(text[0], rows)
            else:
                field = field or pa.field(
                    name, pa.string(), metadata=JSON if self.is_json else None
                )
                column = pa.nulls(rows, field.type)
            columns.append(column)
            fields.append(field)
        if not columns:
            return table.select([])
        return pa.table(columns, schema=pa.schema(fields))


def partition_columns(path: str) -> dict[str, str | None]:
    """Return the columns in the folder names of a file, relative to the input's folder.

    Examples
    --------
    >>> partition_columns("date=2026-11-01/part-0.parquet")
    {'date': '2026-11-01'}
    """
    folders = Path(path).parts[:-1]
    pairs = (folder.partition("=") for folder in folders if "=" in folder)
    return {
        unquote(name): None if value == _NULL_PARTITION else unquote(value)
        for name, _, value in pairs
        if name
    }


def _warn_of_missing(
    files: Sequence[TableFile], owners: dict[str, list[tuple[TableFile, pa.Field]]]
) -> None:
    """Warn once of all columns that are null in the rows of some file."""
    notes = []
    for name, owner in owners.items():
        present = {file.path for file, _ in owner}
        absent = [file.path for file in files if file.path not in present]
        if absent:
            more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
            notes.append(f"{name!r} in {absent[0]}{more}")
    if notes:
        shown = ", ".join(notes[:4]) + (f" and {len(notes) - 4} more" if len(notes) > 4 else "")
        warn(f"some parts lack a column, which is empty in their rows: {shown}")


# Types of several files.


class _Conflict(Exception):
    """Two types, or a value and a type, that cannot be combined without loss."""


def unified_field(
    name: str, owners: Sequence[tuple[TableFile, pa.Field]], *, nullable: bool
) -> pa.Field:
    """Return a field whose type holds the values of every file, or refuse the files."""
    (widest, first), *others = owners
    common = first.type
    for file, field in others:
        try:
            unified = common_type(common, field.type)
        except _Conflict as conflict:
            raise _conflict_error(name, file, field.type, widest, common) from conflict
        if unified != common:
            common, widest = unified, file
    for file, field in owners:
        if field.type == common or is_always_exact(field.type, common):
            continue
        try:
            _check_cast(file, name, common)
        except _Conflict as conflict:
            other = next(other for other, own in owners if own.type != field.type)
            raise _conflict_error(
                name, file, field.type, other, common, str(conflict)
            ) from conflict
    is_nullable = nullable or any(field.nullable for _, field in owners)
    return first.with_type(common).with_nullable(is_nullable)


def common_type(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """Return a type for the values of two types; whether each fits may have to be checked.

    Examples
    --------
    >>> common_type(pa.int32(), pa.int64()), common_type(pa.uint32(), pa.int32())
    (DataType(int64), DataType(int64))
    >>> common_type(pa.int64(), pa.float32())
    DataType(double)
    """
    types = pa.types
    if first == second:
        return first
    for kind, other in ((first, second), (second, first)):
        if types.is_null(kind):
            return other
        if types.is_dictionary(kind):  # two files seldom have the same categories
            return common_type(kind.value_type, other)
    pair = first, second
    if all(map(_is_list, pair)):
        values = common_type(first.value_type, second.value_type)
        is_large = any(map(types.is_large_list, pair))
        return pa.large_list(values) if is_large else pa.list_(values)
    # Arrow would also make bytes of text and floating numbers of decimals.
    is_mixed = any(test(first) != test(second) for test in (types.is_decimal, is_text))
    common = None
    if not is_mixed and not any(map(types.is_nested, pair)):
        schemas = [pa.schema([("x", kind)]) for kind in pair]
        try:
            common = pa.unify_schemas(schemas, promote_options="permissive").field("x").type
        except pa.ArrowException:
            common = None
    if common is None or types.is_decimal256(common):
        raise _Conflict(f"{first} and {second}")
    # Arrow would let int32 and float32 become float32, which rounds.
    rounds = types.is_floating(common) and any(map(types.is_integer, pair))
    return pa.float64() if rounds else common


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is text, of any length."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_always_exact(own: pa.DataType, common: pa.DataType) -> bool:
    """Whether every value of a type is the same value of its common type with another."""
    types = pa.types
    if types.is_dictionary(own):
        own = own.value_type
    if own == common or types.is_null(own):
        return True
    if types.is_integer(own) and types.is_floating(common):
        return bool(own.bit_width <= 32)
    if types.is_integer(own) and types.is_integer(common):
        return bool(own.bit_width < common.bit_width or types.is_signed_integer(own))
    if _is_list(own):
        return is_always_exact(own.value_type, common.value_type)
    return not types.is_temporal(own)  # times may overflow a finer unit


def _check_cast(file: TableFile, name: str, common: pa.DataType) -> None:
    """Raise `_Conflict` if a value of a file changes when it is cast."""
    try:
        for table in file.slices([name]):
            table.column(0).cast(common)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _Conflict(first_line(error)) from error


def _conflict_error(
    name: str,
    file: TableFile,
    own: pa.DataType,
    other: TableFile,
    common: pa.DataType,
    why: str = "",
) -> InputError:
    reason = f"has the column {name!r} of type {own}"
    if why:
        reason += f", which with that of {other.path} would become {common}: {why}"
    else:
        reason += f" but {other.path} of type {common}, and neither can hold the other's values"
    return InputError(
        file.path,
        reason,
        "store it as one type in all parts, write the parts to a folder, or omit the other "
        "columns with {option}",
        option=("passthrough", "False"),
    )


# Columns as arrays.


def _column_type(kind: pa.DataType) -> ColumnType:
    types = pa.types
    if _is_list(kind):
        inner = kind.value_type
        # Lists of integers are scores only if the caller names them.
        is_floating, is_integer = types.is_floating(inner), types.is_integer(inner)
        return "list" if is_floating else "integer list" if is_integer else "other"
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_floating(kind):
        return "float"
    # Decimals next to floating numbers are amounts rather than scores.
    if types.is_integer(kind) or types.is_decimal(kind):
        return "integer"
    return "text" if is_text(kind) else "other"


def _text_type(column: pa.ChunkedArray, is_json: bool) -> ColumnType:
    texts = (text for text in column.to_pylist() if text and text.strip() and text != "null")
    first = next(texts, "").strip()
    if not is_json:
        # A decimal comma is refused where the numbers are read, with the option to pass.
        return "float" if is_number(first.replace(",", ".")) else "text"
    if first[:1] == "[":
        return "list" if parse_lists(pa.array([first]))[0] else "other"
    if first[:1] == '"':
        return "text"
    return "float" if is_number(first) else "other"


def number_matrix(table: pa.Table, columns: Sequence[str], path: str, decimal: str) -> NumPyArray:
    """Return columns of numbers, or one of lists, as a matrix; null is NaN."""
    if len(columns) == 1:
        return _list_matrix(table, columns[0], path)
    vectors = [number_vector(table, name, path, decimal) for name in columns]
    dtype = np.result_type(*{vector.dtype for vector in vectors})
    matrix = np.empty((len(table), len(columns)), dtype)
    for at, vector in enumerate(vectors):
        matrix[:, at] = vector
    return matrix


def number_vector(table: pa.Table, name: str, path: str, decimal: str = ".") -> NumPyArray:
    """Return a column of numbers."""
    column, field = table.column(name), table.schema.field(name)
    if is_text(field.type):
        try:
            return parse_numbers(combined(column), is_json=field.metadata == JSON, decimal=decimal)
        except WrongCell as wrong:
            hint = "write a number, or leave the cell empty"
            option = None
            if "," in wrong.text and is_number(wrong.text.replace(",", ".")):
                hint, option = "for numbers with a decimal comma pass {option}", ("decimal", ",")
            raise InputError(
                f"{path} ({name})",
                "has text in a column of numbers",
                hint,
                rows=[wrong.row],
                detail=f"has {wrong.text!r} in a column of numbers",
                option=option,
            ) from None
    return typed_vector(column)


def typed_vector(column: pa.ChunkedArray) -> NumPyArray:
    """Return a column as an array."""
    if pa.types.is_dictionary(column.type):
        column = _decoded(column)
    if pa.types.is_decimal(column.type):  # Arrow's own cast does not round to the nearest
        values = column.to_pylist()
        return np.array([np.nan if value is None else float(value) for value in values], float)
    return np.asarray(column.to_numpy())


def text_vector(table: pa.Table, name: str) -> NumPyArray:
    """Return a column of words or numbers: of text, what is written there."""
    column, field = table.column(name), table.schema.field(name)
    if field.metadata == JSON and is_text(field.type):
        column = pa.chunked_array([decode_json(combined(column))])
    return typed_vector(column)


def combined(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _list_matrix(table: pa.Table, name: str, path: str) -> NumPyArray:
    where, column = f"{path} ({name})", combined(table.column(name))
    hint = "pass whole vectors, one entry for each class in every row"
    if is_text(column.type):
        lists = parse_lists(column)
        lengths = np.array([-1 if value is None else len(value) for value in lists])
        column = None
    else:
        lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
    width = int(lengths[0]) if len(lengths) else 0
    raise_first(
        row_error(lengths < 0, where, "is missing, or not a list of numbers", hint),
        row_error(
            (lengths >= 0) & (lengths != max(width, 0)),
            where,
            "has another length",
            hint,
            detail=lambda row: f"has {lengths[row]} entries, the rows before it {width}",
        ),
    )
    if column is None:
        return np.array(lists, dtype=np.float64).reshape(len(lists), width)
    values = column.flatten()
    matrix: NumPyArray = np.asarray(values.to_numpy(zero_copy_only=False))
    return matrix.reshape(len(table), width)


def concat_columns(parts: Iterable[NumPyArray]) -> NumPyArray:
    """Return the values of one column of several slices; numbers next to words become words."""
    arrays = list(parts)
    if len({array.dtype.kind in "OUS" for array in arrays if len(array)}) > 1:
        arrays = [array.astype(object) for array in arrays]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
