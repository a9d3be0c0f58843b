"""Outputs that are tables: Parquet, Feather, CSV and JSONL, with the same columns in each.

The other columns of the input come first, then ``prediction``, ``prediction_name`` where names
are known, ``confidence``, and one column per class.
"""

from __future__ import annotations

import io
import json
import math
import os
from abc import abstractmethod
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from cordcal._errors import InputError
from cordcal._numeric.types import Kind
from cordcal.files.columns import KIND
from cordcal.files.disk import replacing
from cordcal.files.output import OutputFormat, OutputRows, Writer
from cordcal.files.values import JSON, combined, decode_json, encode_json, is_text, size_of

# A quarter of Arrow's default, because unfinished pages take memory.
_PAGE_BYTES = 2**18
# Text of more bytes is encoded in halves: Arrow joins at most 2 GiB at once.
_MAX_TEXT_BYTES = 2**28


def output_table(rows: OutputRows, format: OutputFormat) -> pa.Table:
    """Return the columns of an output."""
    vectors = {name: pa.array(vector) for name, vector in rows.vectors.items()}
    own: dict[str, Any] = {"prediction": vectors.pop("prediction")}
    if format.class_names is not None:
        names = pa.array(format.class_names, pa.string())
        own["prediction_name"] = names.take(own["prediction"])
    own["confidence"] = vectors.pop("confidence")
    for kind, matrix in rows.matrices.items():
        pattern = format.names if kind == "repaired" else f"{kind}_{{class}}"
        classes = format.class_names or map(str, range(len(matrix)))
        headings = (pattern.replace("{class}", name) for name in classes)
        own |= zip(headings, map(pa.array, matrix), strict=True)
    own |= vectors
    table = pa.table(own)
    if rows.others is None:
        return table
    for name in own:
        if name in rows.others.column_names:
            raise InputError(
                "the input",
                f"has a column {name!r}, as the output would",
                "rename it, or omit the other columns with {option}",
                option=("passthrough", "False"),
            )
    schema = pa.schema([*rows.others.schema, *table.schema])
    return pa.table([*rows.others.columns, *table.columns], schema=schema)


class TableWriter(Writer):
    """Writes tables to a file."""

    def encode(self, rows: OutputRows) -> Any:
        """Return rows as `write` takes them."""
        return self.encode_table(output_table(rows, self.format))

    @abstractmethod
    def encode_table(self, table: pa.Table) -> Any:
        """Return a table as `write` takes it."""


class _ArrowWriter(TableWriter):
    """A row group or record batch for each block of rows."""

    _writer: Any = None

    def encode_table(self, table: pa.Table) -> pa.Table:
        """Return a table of one chunk; JSON values become text."""
        for at, field in enumerate(table.schema):
            if field.metadata == JSON and field.type == pa.string():
                plain = plain_text(combined(table.column(at)), field)
                table = table.set_column(at, pa.field(field.name, pa.string()), plain)
        return table.combine_chunks()

    @abstractmethod
    def _open(self, schema: pa.Schema) -> Any:
        """Return pyarrow's writer."""

    def write(self, encoded: pa.Table) -> None:
        """Append a table."""
        if self._writer is None:
            self._writer = self._open(encoded.schema)
        self._writer.write_table(encoded, max(1, len(encoded)))

    def close(self) -> None:
        """Write the end of the file."""
        if self._writer is not None:
            self._writer.close()


class ParquetWriter(_ArrowWriter):
    """Parquet, without dictionaries for floating numbers and statistics for probabilities."""

    def _open(self, schema: pa.Schema) -> Any:
        flat = [field for field in schema if not pa.types.is_nested(field.type)]
        floats = {field.name for field in flat if pa.types.is_floating(field.type)}
        names = [field.name for field in flat]
        own = names[names.index("prediction") :] if "prediction" in names else []
        try:
            return pyarrow.parquet.ParquetWriter(
                self.file,
                schema,
                data_page_size=_PAGE_BYTES,
                # Floating numbers and row numbers hardly repeat.
                use_dictionary=[x for x in names if x not in {*floats, "prediction", "row"}],
                write_statistics=[x for x in names if x not in floats.intersection(own)],
            )
        except (pa.ArrowException, OSError):
            for field in filter(_is_unknown_to_parquet, schema):
                raise InputError(
                    f"the column {field.name!r}",
                    f"contains values of type {field.type}, which Parquet cannot store",
                    "write Feather, or omit the other columns with {option}",
                    option=("passthrough", "False"),
                ) from None
            raise


def _is_unknown_to_parquet(field: pa.Field) -> bool:
    try:
        pyarrow.parquet.ParquetWriter(io.BytesIO(), pa.schema([field])).close()
    except (pa.ArrowException, OSError):
        return True
    return False


class FeatherWriter(_ArrowWriter):
    """Arrow's own file format, not compressed.

    Categories become their values: the format has one dictionary for the whole file, which no
    block of rows knows.
    """

    def encode_table(self, table: pa.Table) -> pa.Table:
        """Return a table of one chunk, without categories."""
        plain = [
            field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
            for field in table.schema
        ]
        return super().encode_table(table.cast(pa.schema(plain, table.schema.metadata)))

    def _open(self, schema: pa.Schema) -> Any:
        return pa.ipc.new_file(self.file, schema)


class _TextWriter(TableWriter):
    """A line for each row."""

    def encode_table(self, table: pa.Table) -> list[Any]:
        """Return the lines as bytes."""
        return self._pieces(table)

    def _pieces(self, table: pa.Table) -> list[Any]:
        if size_of(table) > _MAX_TEXT_BYTES and len(table) > 1:
            middle = len(table) // 2
            return self._pieces(table.slice(0, middle)) + self._pieces(table.slice(middle))
        return [_data(self._lines(table))] if len(table) else []

    @abstractmethod
    def _lines(self, table: pa.Table) -> pa.Array:
        """Return one string per row, with its line end."""

    def write(self, encoded: list[Any]) -> None:
        """Append lines."""
        self.file.writelines(encoded)


def _data(lines: pa.Array) -> memoryview:
    """Return the bytes of all strings of an array, one after the other."""
    _, offsets, data = lines.buffers()
    width = np.int64 if pa.types.is_large_string(lines.type) else np.int32
    ends = np.frombuffer(offsets, width)
    return memoryview(data)[ends[lines.offset] : ends[lines.offset + len(lines)]]


# A spreadsheet takes a cell that starts with one of these for a formula, unless it is a number.
_FORMULA = r"^[=+\-@\t\r]"
_NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"


class CsvWriter(_TextWriter):
    """CSV: quotes only where a cell needs them, null as an empty cell, empty text as ``""``."""

    _begun = False

    def encode_table(self, table: pa.Table) -> list[Any]:
        """Return the header, then the lines as bytes."""
        pieces = self._pieces(table)
        if any(b"\0" in bytes(piece) for piece in pieces if _has_text(table)):
            raise InputError(
                "the output",
                "would have a NUL character in its text, which a CSV file cannot hold",
                "write a Parquet, Feather or JSONL file, or omit the other columns with {option}",
                option=("passthrough", "False"),
            )
        head = _data(_joined([self._cell(pa.array([name])) for name in table.column_names]))
        return [bytes(head), *pieces]

    def write(self, encoded: list[Any]) -> None:
        """Append lines; the first of each block is the header."""
        self.file.writelines(encoded[1:] if self._begun else encoded)
        self._begun = True

    def _lines(self, table: pa.Table) -> pa.Array:
        cells = []
        for at, field in enumerate(table.schema):
            texts = plain_text(combined(table.column(at)), field)
            kind, types = field.type, pa.types
            may_need_quotes = is_text(kind) or types.is_nested(kind) or types.is_temporal(kind)
            if may_need_quotes or types.is_dictionary(kind):
                texts = self._cell(texts)
            cells.append(texts)
        return _joined(cells)

    def _cell(self, texts: pa.Array) -> pa.Array:
        if self.format.spreadsheet:
            is_formula = pc.and_(
                pc.match_substring_regex(texts, _FORMULA),
                pc.invert(pc.match_substring_regex(texts, _NUMBER)),
            )
            texts = pc.if_else(is_formula, pc.binary_join_element_wise("'", texts, ""), texts)
        needs_quotes = pc.match_substring_regex(texts, r'[",\r\n]|^$')
        if not pc.any(needs_quotes).as_py():
            return texts
        doubled = pc.replace_substring(texts, '"', '""')
        return pc.if_else(needs_quotes, pc.binary_join_element_wise('"', doubled, '"', ""), texts)


def _joined(cells: list[pa.Array]) -> pa.Array:
    """Return the lines of a CSV file."""
    *others, last = cells
    ended = pc.binary_join_element_wise(pc.fill_null(last, ""), "", "\n")
    return pc.binary_join_element_wise(
        *others, ended, ",", null_handling="replace", null_replacement=""
    )


def _has_text(table: pa.Table) -> bool:
    return any(is_text(kind) or pa.types.is_nested(kind) for kind in table.schema.types)


class JsonlWriter(_TextWriter):
    """JSON lines; a key that a row of the input lacks is missing in the output."""

    def _lines(self, table: pa.Table) -> pa.Array:
        pieces: list[Any] = ["{"]
        for at, field in enumerate(table.schema):
            texts = json_text(combined(table.column(at)), field)
            key = json.dumps(field.name, ensure_ascii=False) + ": "
            if at:
                key = f", {key}"
            pieces.append(pc.binary_join_element_wise(key, texts, "") if texts.null_count else key)
            if not texts.null_count:
                pieces.append(texts)
        lines = pc.binary_join_element_wise(*pieces, "}\n", "", null_handling="skip")
        if table.num_columns and table.column(0).null_count:
            lines = pc.replace_substring_regex(lines, r"^\{, ", "{", max_replacements=1)
        return lines


WRITERS: dict[str, type[TableWriter]] = {
    ".parquet": ParquetWriter,
    ".feather": FeatherWriter,
    ".arrow": FeatherWriter,
    ".csv": CsvWriter,
    ".jsonl": JsonlWriter,
}


def write_table(
    path: str | os.PathLike[str],
    columns: Mapping[str, Any],
    *,
    kind: Kind | None = None,
    overwrite: bool = True,
) -> None:
    """Write columns as a table, in the format of the suffix, completely or not at all.

    ``kind`` is what its scores are; Parquet and Feather files store it for their readers.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in WRITERS:
        raise InputError(
            os.fspath(path),
            f"has the suffix {suffix!r}, which is not that of a table",
            f"use one of {', '.join(WRITERS)}",
        )
    table = as_table(columns)
    if kind is not None:
        table = table.replace_schema_metadata({KIND: kind})
    if suffix == ".jsonl":
        for name, column in columns.items():
            if isinstance(column, np.ndarray) and not np.isfinite(column).all():
                raise InputError(
                    os.fspath(path),
                    f"cannot hold the infinite values of {name!r}: JSON has no word for them",
                    "write a Parquet, Feather or CSV file",
                )
    with replacing(path, overwrite=overwrite) as temporary, temporary.open("wb") as file:
        writer = WRITERS[suffix](file, OutputFormat())
        writer.write(writer.encode_table(table))
        writer.close()


def as_table(columns: Mapping[str, Any]) -> pa.Table:
    """Return columns as a table of Arrow; sequences hold text or None."""
    return pa.table(
        {
            name: pa.array(column, None if isinstance(column, np.ndarray) else pa.string())
            for name, column in columns.items()
        }
    )


# Values as text.


def plain_text(column: pa.Array, field: pa.Field) -> pa.Array:
    """Return a column as text: numbers that read back as the same, times as ISO 8601."""
    types, kind = pa.types, column.type
    if field.metadata == JSON and kind == pa.string():
        try:
            return decode_json(column)
        except UnicodeEncodeError:
            raise InputError(
                f"the column {field.name!r}",
                "contains half a character, such as \\ud800",
                "write JSONL, which keeps it as it is, or omit the other columns with {option}",
                option=("passthrough", "False"),
            ) from None
    if types.is_dictionary(kind):
        values = plain_text(column.dictionary, field.with_metadata({}))
        return values.take(column.indices)
    if types.is_float16(kind):
        column = column.cast(pa.float32())
    if types.is_duration(kind):
        return _durations(column)
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind):
        texts = pc.replace_substring(pc.cast(column, pa.string()), " ", "T", max_replacements=1)
        if pc.any(pc.starts_with(texts, "<")).as_py():
            raise _no_text_error(field.name, "times outside the years -32767 to 32767")
        return texts
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        raise _no_text_error(field.name, "bytes")
    if types.is_nested(kind):
        return _nested(column, field.name)
    try:
        return column.cast(pa.string())
    except pa.ArrowException:
        raise _no_text_error(field.name, f"values of type {kind}") from None


def json_text(column: pa.Array, field: pa.Field) -> pa.Array:
    """Return a column as JSON text; null where a row of a JSONL file has no such key."""
    types, kind = pa.types, column.type
    if field.metadata == JSON and kind == pa.string():
        return column
    if types.is_floating(kind):
        wide = column.cast(pa.float32()) if types.is_float16(kind) else column
        if pc.any(pc.is_inf(wide)).as_py():
            raise _no_text_error(field.name, "infinite values, for which JSON has no word")
        finite = pc.if_else(pc.is_finite(wide), wide, pa.scalar(None, wide.type))
        return pc.fill_null(plain_text(finite, field), "null")
    if types.is_integer(kind) or types.is_boolean(kind) or types.is_nested(kind):
        return pc.fill_null(plain_text(column, field), "null")
    return pc.fill_null(encode_json(plain_text(column, field).cast(pa.string())), "null")


def _durations(column: pa.Array) -> pa.Array:
    """Return durations as ISO 8601: PT1.5S."""
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[column.type.unit]
    counts = column.cast(pa.int64()).to_pylist()
    return pa.array(
        [
            None if count is None else f"PT{Decimal(count).scaleb(-digits).normalize():f}S"
            for count in counts
        ],
        pa.string(),
    )


def _nested(column: pa.Array, name: str) -> pa.Array:
    """Return lists and structs as JSON text."""
    try:
        values = [_json_value(value, name) for value in column.to_pylist()]
    except (ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise _no_text_error(name, "times that Python cannot hold") from None
    dump = json.JSONEncoder(ensure_ascii=False).encode
    return pa.array([None if value is None else dump(value) for value in values], pa.string())


def _json_value(value: Any, name: str) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if math.isinf(value):
            raise _no_text_error(name, "infinite values, for which JSON has no word")
        return None if math.isnan(value) else value
    if isinstance(value, dict):
        return {str(key): _json_value(item, name) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item, name) for item in value]
    if isinstance(value, bytes):
        raise _no_text_error(name, "bytes")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _no_text_error(name: str, what: str) -> InputError:
    return InputError(
        f"the column {name!r}",
        f"contains {what}, which a text format cannot store",
        "write Parquet or Feather, or omit the other columns with {option}",
        option=("passthrough", "False"),
    )
