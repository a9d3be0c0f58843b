"""Parquet and Feather files: Arrow tables, read and written with pyarrow."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from cordcal._errors import InputError, raise_first, renumber_rows, row_error
from cordcal._numeric.types import NumPyArray
from cordcal.files.columns import FEATURE_NAMES, ColumnSpec, ColumnType, Grouping, grouped
from cordcal.files.disk import InputFile, first_line, import_arrow, no_rows
from cordcal.files.output import Encoder, OutputBlock, Piece
from cordcal.files.passthrough import PartColumns, Passthrough, concat
from cordcal.files.sources import (
    SAMPLE_ROWS,
    Contents,
    Format,
    Lazy,
    Source,
    Span,
    column_contents,
    large_empty,
    split_rows,
)

if TYPE_CHECKING:
    import pyarrow

# What Arrow decodes at a time, and reads from the file at a time.
SLICE_BYTES = 2**20
_READ_BYTES = 2**20
# A quarter of Arrow's default, because unfinished pages take memory.
_PAGE_BYTES = 2**18


def unreadable_error(name: str, error: BaseException, format: str = "Parquet") -> InputError:
    """Return the error for a file that is damaged or of another format."""
    return InputError(
        name,
        f"cannot be read as {format} ({first_line(error)})",
        "it may be truncated: write it again",
    )


@contextmanager
def readable(name: str, format: str) -> Iterator[None]:
    """Turn errors of Arrow in the block into an `InputError`."""
    arrow, _ = import_arrow()
    try:
        yield
    except arrow.ArrowException as error:
        raise unreadable_error(name, error, format.capitalize()) from error


def group_fields(schema: pyarrow.Schema, spec: ColumnSpec, where: str) -> Grouping:
    """Group the columns of a schema into matrices and vectors."""
    arrow, _ = import_arrow()
    if len(set(schema.names)) < len(schema.names):
        twice = next(name for name in schema.names if schema.names.count(name) > 1)
        raise InputError(where, f"has two columns called {twice!r}", "give each its own name")
    column_types = {
        field.name: _column_type(arrow.types, field.type, is_key=field.name == spec.key)
        for field in schema
    }
    return grouped(column_types, spec, where)


def _column_type(types: ModuleType, kind: pyarrow.DataType, *, is_key: bool) -> ColumnType:
    if types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind):
        # Lists of integers are not scores, unless the caller names the column.
        inner = kind.value_type
        is_scores = types.is_floating(inner) or (is_key and types.is_integer(inner))
        return "list" if is_scores else "other"
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_floating(kind):
        return "float"
    # Decimals next to floating numbers are amounts rather than scores.
    return "integer" if types.is_integer(kind) or types.is_decimal(kind) else "other"


def class_names_in(schema: pyarrow.Schema) -> tuple[str, ...] | None:
    """Return the class names in the metadata of a file."""
    metadata = (schema.metadata or {}).get(b"class_names")
    if metadata is None:
        return None
    try:
        return tuple(map(str, json.loads(metadata)))
    except (ValueError, TypeError, RecursionError):
        return None  # somebody else's metadata


def matrix_of(where: str, key: str, columns: tuple[str, ...], table: pyarrow.Table) -> NumPyArray:
    """Return some columns of a table, or one of lists, as a matrix."""
    if columns == (key,):
        column = _combine_chunks(table.column(key))
        if hasattr(column, "flatten") and hasattr(column.type, "value_type"):
            return _list_column(where, key, column)
    return np.column_stack([vector_of(table, name) for name in columns])


def vector_of(table: pyarrow.Table, name: str) -> NumPyArray:
    """Return a column as an array."""
    column = _combine_chunks(table.column(name))
    if hasattr(column.type, "index_type"):  # a category
        column = column.dictionary_decode()
    arrow, _ = import_arrow()
    if arrow.types.is_decimal(column.type):  # Arrow's own cast does not round to the nearest
        return np.array([np.nan if value is None else float(value) for value in column.to_pylist()])
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _combine_chunks(column: pyarrow.Array | pyarrow.ChunkedArray) -> pyarrow.Array:
    return column.combine_chunks() if hasattr(column, "combine_chunks") else column


def _list_column(name: str, key: str, column: pyarrow.Array) -> NumPyArray:
    if column.null_count:
        missing = column.is_null().to_numpy(zero_copy_only=False)
        raise_first(
            row_error(missing, f"{name} ({key})", "is missing", "pass a whole vector in every row")
        )
    if hasattr(column.type, "list_size"):
        width = column.type.list_size
    else:
        lengths = np.diff(np.asarray(column.offsets))
        width = int(lengths[0]) if lengths.size else 0
        raise_first(
            row_error(
                lengths != width,
                f"{name} ({key})",
                "has another length",
                "pass whole vectors, one entry for each class in every row",
                detail=lambda row: (
                    f"has {lengths[row]} entries, the rows before it {width}: these are rows of "
                    f"different lengths"
                ),
            )
        )
    return np.asarray(column.flatten()).reshape(len(column), width)


def _row_bytes(sample: Contents, batch: pyarrow.RecordBatch) -> int:
    """Return the memory of a row: its scores, or all of an Arrow batch if that is more."""
    score_bytes = max(
        (matrix.itemsize * matrix.shape[1] for matrix in sample.matrices.values()), default=1
    )
    return max(score_bytes, 1 if batch is None else batch.nbytes // len(batch))


def table_contents(
    name: str, format: Format, table: pyarrow.Table, grouping: Grouping, matrix: str | None = None
) -> Contents:
    """Return the contents of an Arrow table; with a matrix, the columns besides it too."""

    def read_matrix(key: str) -> NumPyArray:
        with readable(name, format):
            return matrix_of(name, key, grouping.matrices[key], table)

    def read_vector(key: str) -> NumPyArray:
        with readable(name, format):
            return vector_of(table, key)

    stored = class_names_in(table.schema)
    contents = column_contents(
        name,
        format,
        Lazy(grouping.matrices, read_matrix),
        Lazy(grouping.vectors, read_vector),
        grouping,
        lambda: len(table),
        names=stored or grouping.class_names,
    )
    if matrix is not None:
        others = [name for name in table.column_names if name not in grouping.matrices[matrix]]
        contents = replace(contents, passthrough=Passthrough.from_arrow(table, others))
    if stored is None or not contents.headings:
        return contents
    # Metadata name the columns by position only where no heading is a class itself.
    positional = {
        key: stored
        for key, names in grouping.names.items()
        if key not in FEATURE_NAMES and len(names) == len(stored) and set(names).isdisjoint(stored)
    }
    headings, own = ({**name, **positional} for name in (grouping.names, grouping.own_names))
    return replace(contents, headings=headings, own_headings=own)


class ParquetSource(Source):
    """A Parquet file, a row group at a time, or a part of one where they are large."""

    def __init__(self, file: InputFile, spec: ColumnSpec) -> None:
        self.path = path = file.name
        self.arrow, parquet = import_arrow()
        place = path if file.data is None else self.arrow.BufferReader(file.data)
        try:
            # The pipeline reads ahead itself, with a limit that Arrow lacks.
            self.file = parquet.ParquetFile(place, pre_buffer=False, buffer_size=_READ_BYTES)
            sizes = [
                self.file.metadata.row_group(at).num_rows for at in range(self.file.num_row_groups)
            ]
            self.schema = self.file.schema_arrow
            filled = [at for at, size in enumerate(sizes) if size][:1]
            self.first: pyarrow.RecordBatch | None = next(
                self.file.iter_batches(SAMPLE_ROWS, filled), None
            )
        except (self.arrow.ArrowException, OSError) as error:
            raise unreadable_error(path, error) from error
        if self.first is None:
            raise no_rows(path)
        self.grouping = group_fields(self.schema, spec, path)
        self._sample = self._contents(self.first)
        self.row_bytes = _row_bytes(self._sample, self.first if spec.passthrough else None)
        self.groups: list[list[Span]] = []
        rows = 0
        for size in sizes:
            self.groups.append(split_rows(size, self.row_bytes, rows))
            rows += size
        self._spans = tuple(span for group in self.groups for span in group)

    def spans_of(self, key: str) -> tuple[Span, ...]:
        """Return the row groups, or parts of them."""
        return self._spans

    def sample(self) -> Contents:
        """Return the first rows."""
        return self._sample

    def part_columns(self, matrix: str) -> list[PartColumns]:
        """Return the columns of the schema."""
        scores = self.grouping.matrices[matrix]
        return _schema_columns(self.path, self.schema, scores, partial(_parquet_chunks, self.path))

    def pieces(
        self, first: int, keys: Sequence[str], *, passthrough: bool = False
    ) -> Iterator[Contents]:
        """Yield the spans' rows; row groups before the first span are not touched."""
        done = 0
        for group, spans in enumerate(self.groups):
            if done + len(spans) > first and spans:
                yield from self._group(group, spans, keys, passthrough, max(0, first - done))
            done += len(spans)

    def _group(
        self, group: int, spans: list[Span], keys: Sequence[str], passthrough: bool, first: int
    ) -> Iterator[Contents]:
        """Yield the spans of one row group, from number ``first`` on."""
        row, stop = spans[0]
        rows = size = stop - row
        if len(spans) == 1:
            # Arrow needs several times the memory of what it decodes at once.
            size = max(1, min(rows, SLICE_BYTES // self.row_bytes))
        columns = None if passthrough else self._columns(keys)
        matrix = keys[0] if passthrough else None
        batches = self.file.iter_batches(size, [group], columns, use_threads=False)
        try:
            if len(spans) == 1:
                starts = range(row, stop, size)
                slices = (
                    (start, len(batch), self._contents(batch, matrix))
                    for start, batch in zip(starts, batches, strict=True)
                )
                yield _concat_slices(slices, rows, keys)
                self.arrow.default_memory_pool().release_unused()
                return
            late = islice(batches, first, None)
            for (row, _), batch in zip(spans[first:], late, strict=True):  # noqa: B007 - see below
                yield self._contents(batch, matrix)
        except (self.arrow.ArrowException, OSError) as error:
            raise unreadable_error(f"{self.path}, from row {row} on,", error) from error

    def _columns(self, keys: Sequence[str]) -> list[str]:
        matrices = self.grouping.matrices
        return [column for key in keys for column in matrices.get(key, (key,))]

    def _contents(self, batch: pyarrow.RecordBatch, matrix: str | None = None) -> Contents:
        # A record batch of some columns does not carry the file's metadata.
        table = batch.replace_schema_metadata(self.schema.metadata)
        return table_contents(self.path, "parquet", table, self.grouping, matrix)


def _concat_slices(
    slices: Iterator[tuple[int, int, Contents]], rows: int, keys: Sequence[str]
) -> Contents:
    """Concatenate slices; a single one is returned as it is.

    Each comes with the number of its first row and its number of rows.
    """
    begun = next(slices)
    _, size, first = begun
    if size == rows:
        return first
    matrices: dict[str, NumPyArray] = {}
    vectors: dict[str, list[NumPyArray]] = {}
    columns: list[Passthrough | None] = []
    done = 0
    for start, length, part in chain([begun], slices):
        with renumber_rows(start):
            for key in keys:
                values = part[key]
                if values.ndim == 1:
                    vectors.setdefault(key, []).append(values)
                    continue
                if key not in matrices:
                    matrices[key] = large_empty((rows, *values.shape[1:]), values.dtype)
                matrices[key][done : done + length] = values
        columns.append(part.passthrough)
        done += length
    together = {key: np.concatenate(parts) for key, parts in vectors.items()}
    contents = Contents.of(first.path, first.format, matrices, together, first.class_names)
    return replace(
        contents,
        passthrough=concat(columns),
        headings=first.headings,
        own_headings=first.own_headings,
    )


def _parquet_chunks(path: str, column: str) -> Iterator[pyarrow.Array]:
    """Read one column of a Parquet file."""
    _, parquet = import_arrow()
    with parquet.ParquetFile(path, pre_buffer=False) as file:
        for batch in file.iter_batches(columns=[column]):
            yield batch.column(0)


def _schema_columns(
    path: str,
    schema: pyarrow.Schema,
    scores: Sequence[str],
    chunks: Callable[[str], Iterator[pyarrow.Array]],
) -> list[PartColumns]:
    """Return the columns of an Arrow file except those of the scores."""
    names = [name for name in schema.names if name not in scores]
    return [PartColumns(path, Passthrough.from_arrow(schema.empty_table(), names), chunks)]


class FeatherSource(Source):
    """A Feather file: its record batches, or parts of them where they are large."""

    def __init__(self, file: InputFile, spec: ColumnSpec) -> None:
        self._file, self.path = file, file.name
        self.arrow, _ = import_arrow()
        with _readable_feather(self.path):
            reader = self._reader(None)
            self.schema, self.batches = reader.schema, reader.num_record_batches
            # One column is enough to count rows; the others are not decoded.
            counter = self._reader([self.schema.names[0]]) if self.schema.names else reader
            sizes = [counter.get_batch(at).num_rows for at in range(self.batches)]
            filled = next((at for at, size in enumerate(sizes) if size), None)
            if filled is None:
                raise no_rows(self.path)
            first = reader.get_batch(filled)
            first.validate(full=True)
            self.first = first.slice(0, SAMPLE_ROWS)
        self.grouping = group_fields(self.schema, spec, self.path)
        size = _row_bytes(self.sample(), self.first if spec.passthrough else None)
        self.groups: list[list[Span]] = []
        for rows in sizes:
            done = self.groups[-1][-1][1] if any(self.groups) else 0
            self.groups.append(split_rows(rows, size, done) if rows else [(done, done)])
        self._spans = tuple(span for group in self.groups for span in group if span[0] < span[1])

    def spans_of(self, key: str) -> tuple[Span, ...]:
        """Return the record batches, or parts of them."""
        return self._spans

    def sample(self) -> Contents:
        """Return the first rows."""
        return table_contents(self.path, "feather", self.first, self.grouping)

    def part_columns(self, matrix: str) -> list[PartColumns]:
        """Return the columns of the schema."""
        scores = self.grouping.matrices[matrix]
        return _schema_columns(self.path, self.schema, scores, partial(_feather_chunks, self.path))

    def pieces(
        self, first: int, keys: Sequence[str], *, passthrough: bool = False
    ) -> Iterator[Contents]:
        """Yield the spans' rows; batches before the first span are not touched."""
        matrices = self.grouping.matrices
        columns = [column for key in keys for column in matrices.get(key, (key,))]
        row = self._spans[first][0] if first < len(self._spans) else 0
        with _readable_feather(f"{self.path}, from row {row} on,"):
            reader = self._reader(None if passthrough else columns)
            matrix = keys[0] if passthrough else None
            done = 0
            for at, spans in enumerate(self.groups):
                filled = [span for span in spans if span[0] < span[1]]
                late = filled[max(0, first - done) :]
                done += len(filled)
                if late:
                    yield from self._batch(reader.get_batch(at), spans[0][0], late, matrix)

    def _batch(
        self, batch: pyarrow.RecordBatch, begin: int, spans: list[Span], matrix: str | None
    ) -> Iterator[Contents]:
        batch.validate(full=True)  # Arrow trusts lengths and offsets, which may be damaged
        for start, stop in spans:
            part = batch.slice(start - begin, stop - start)
            yield table_contents(self.path, "feather", part, self.grouping, matrix)

    def _reader(self, columns: list[str] | None) -> pyarrow.ipc.RecordBatchFileReader:
        fields = None
        if columns is not None:
            fields = sorted(self.schema.get_field_index(name) for name in set(columns))
        return _open_feather(self._file, fields)


def _open_feather(file: InputFile, fields: list[int] | None) -> pyarrow.ipc.RecordBatchFileReader:
    arrow, _ = import_arrow()
    options = None if fields is None else arrow.ipc.IpcReadOptions(included_fields=fields)
    place = arrow.OSFile(file.name) if file.data is None else arrow.BufferReader(file.data)
    return arrow.ipc.open_file(place, options=options)


def _feather_chunks(path: str, column: str) -> Iterator[pyarrow.Array]:
    """Read one column of a Feather file."""
    with _readable_feather(path):
        file = InputFile(path)
        reader = _open_feather(file, [_open_feather(file, None).schema.get_field_index(column)])
        for at in range(reader.num_record_batches):
            batch = reader.get_batch(at)
            batch.validate(full=True)
            yield batch.column(0)


@contextmanager
def _readable_feather(where: str) -> Iterator[None]:
    arrow, _ = import_arrow()
    try:
        yield
    except (arrow.ArrowException, OSError, OverflowError) as error:
        raise unreadable_error(where, error, "Feather") from error


class _TableEncoder(Encoder, ABC):
    """A format of Arrow tables.  A piece is a table as an Arrow stream, not compressed.

    Probabilities are columns of fixed-size lists, or one column per class.
    """

    joins = True

    def encode(self, block: OutputBlock) -> Piece:
        """Return an Arrow stream of one table."""
        arrow, _ = import_arrow()
        table = self._table(arrow, block)
        sink = arrow.BufferOutputStream()
        with arrow.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        return Piece(memoryview(sink.getvalue()) if len(block) else b"", len(block))

    @contextmanager
    def joiner(self, file: BinaryIO) -> Iterator[_TableJoiner]:
        """Yield what writes the tables of pieces to one file."""
        joiner = _TableJoiner(file, self)
        try:
            yield joiner
        except BaseException:
            with suppress(Exception):  # the file is removed
                joiner.close()
            raise
        joiner.close()

    @abstractmethod
    def open_writer(self, file: BinaryIO, schema: pyarrow.Schema) -> Any:
        """Return pyarrow's writer of a file of such tables."""

    def prepare(self, table: pyarrow.Table) -> pyarrow.Table:
        """Return a table as the format can hold it."""
        return table

    def _table(self, arrow: ModuleType, block: OutputBlock) -> pyarrow.Table:
        passed = {} if block.passthrough is None else block.passthrough.columns
        columns = {name: column.to_arrow(name) for name, column in passed.items()}
        own: dict[str, pyarrow.Array] = {"prediction": arrow.array(block.prediction)}
        if self.names is not None:
            own["prediction_name"] = arrow.array([self.names[index] for index in block.prediction])
        for key, matrix in block.probabilities.items():
            own |= self._report(arrow, key, matrix)
        own |= {key: arrow.array(column) for key, column in block.extra.items()}
        columns |= {key: (arrow.field(key, array.type), array) for key, array in own.items()}
        fields, arrays = zip(*columns.values(), strict=True)
        metadata = None if self.names is None else {"class_names": json.dumps(self.names)}
        return arrow.table(list(arrays), schema=arrow.schema(fields, metadata))

    def _report(self, arrow: ModuleType, key: str, matrix: NumPyArray) -> dict[str, pyarrow.Array]:
        """Return probabilities as one column of lists, or as one column per class."""
        if self.layout == "list":
            flat = arrow.array(np.ascontiguousarray(matrix).reshape(-1))
            return {key: arrow.FixedSizeListArray.from_arrays(flat, matrix.shape[1])}
        headings = self.headings(key, matrix.shape[1])
        return {name: arrow.array(matrix[:, at]) for at, name in enumerate(headings)}


class _TableJoiner:
    """Writes each table as one row group or record batch."""

    def __init__(self, file: BinaryIO, encoder: _TableEncoder) -> None:
        self._file, self._encoder = file, encoder
        self._writer: Any = None

    def append(self, body: bytes | memoryview) -> None:
        """Write the table of a piece."""
        arrow, _ = import_arrow()
        with arrow.ipc.open_stream(arrow.py_buffer(body)) as stream:
            table = self._encoder.prepare(stream.read_all())
        if self._writer is None:
            self._writer = self._encoder.open_writer(self._file, table.schema)
        self._writer.write_table(table, max(1, len(table)))
        arrow.default_memory_pool().release_unused()

    def close(self) -> None:
        """Write the end of the file."""
        if self._writer is not None:
            self._writer.close()


class ParquetEncoder(_TableEncoder):
    """A row group per piece."""

    def open_writer(self, file: BinaryIO, schema: pyarrow.Schema) -> Any:
        """Return a writer without dictionaries and statistics for probabilities."""
        arrow, parquet = import_arrow()
        types = {
            field.name: field.type
            for field in schema
            if not arrow.types.is_nested(field.type)
            and field.name.partition(":")[0] not in ("repaired", "direct")
        }
        return parquet.ParquetWriter(
            file,
            schema,
            data_page_size=_PAGE_BYTES,
            # Floating numbers and row numbers hardly repeat.
            use_dictionary=[
                name
                for name, kind in types.items()
                if not arrow.types.is_floating(kind) and name not in ("prediction", "row")
            ],
            write_statistics=list(types),
        )


class FeatherEncoder(_TableEncoder):
    """A record batch per piece, in Arrow's own file format, not compressed.

    Categories become their values: the format has one dictionary for the whole file, which no
    piece knows.
    """

    def open_writer(self, file: BinaryIO, schema: pyarrow.Schema) -> Any:
        """Return a writer of Arrow's file format."""
        return import_arrow()[0].ipc.new_file(file, schema)

    def prepare(self, table: pyarrow.Table) -> pyarrow.Table:
        """Return a table of one chunk without dictionaries."""
        arrow, _ = import_arrow()
        for at, field in enumerate(table.schema):
            if arrow.types.is_dictionary(field.type):
                plain = table.column(at).cast(field.type.value_type)
                table = table.set_column(at, field.with_type(field.type.value_type), plain)
        return table.combine_chunks()
