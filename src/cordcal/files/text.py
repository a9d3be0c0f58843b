"""CSV and JSONL files as tables of text: Arrow splits cells, the strictness is ours.

A text file has no types, so every column is text: the cells of a CSV file as they are written, the
values of a JSONL file as JSON text.  Scores, labels and weights are parsed by those who need them.

Files are read in blocks of whole rows.  Arrow would read a quote that is never closed as one long
cell, drop blank lines, and forget JSON keys that first occur in a later block.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv

from cordcal._errors import InputError
from cordcal._numeric.types import NumPyDType
from cordcal._validation.names import are_default_names
from cordcal.files.columns import ColumnType, TextOptions, is_number, is_other_column
from cordcal.files.disk import InputFile, check_size, first_line
from cordcal.files.table_files import TableFile, check_names
from cordcal.files.values import JSON, parse_lists

# Bytes of text that are parsed at a time; a longer row is read whole.
BLOCK_BYTES = 2**22
# Rows that decide about the delimiter, the header and which columns hold numbers.
SAMPLE_ROWS = 1000

_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
# Files that are often taken for text, by their first bytes, and what to do with them.
_NOT_TEXT = {
    b"\xd0\xcf\x11\xe0": ("an Excel workbook", "save the sheet as CSV"),
    b"\xff\xfe": ("UTF-16 text", "pass {option}"),
    b"\xfe\xff": ("UTF-16 text", "pass {option}"),
    b"FEA1": ("a file of the first Feather version", "write it again with a newer library"),
    b"\xff\xff\xff\xff": ("an Arrow stream", "write an Arrow file (.arrow, .feather) or Parquet"),
    b"Obj\x01": ("an Avro file", "convert it to Parquet"),
    b"ORC": ("an ORC file", "convert it to Parquet"),
}
_HTML = re.compile(rb"\s*<(?:!doctype html|html|head|\?xml)", re.IGNORECASE)
_WHOLE = re.compile(r"[+-]?\d+")


class TextSource:
    """The text of a file, decompressed, as UTF-8."""

    def __init__(self, file: InputFile, options: TextOptions) -> None:
        self.name, self._file, self.options = file.name, file, options
        head = file.head(4)
        self._compression = next(
            (name for magic, name in _COMPRESSED.items() if head.startswith(magic)), None
        )
        self.start = self._first_bytes()
        self._check_start()

    def reader(self) -> _Reader:
        """Open the text for reading from the start."""
        return _Reader(self, self._file.open(), self._compression)

    def _first_bytes(self) -> bytes:
        with closing(self.reader()) as reader:
            return reader.read(2**16)

    def _check_start(self) -> None:
        start = self.start
        if self.options.encoding is None:
            for magic, (what, hint) in _NOT_TEXT.items():
                if start.startswith(magic):
                    option = ("encoding", "utf-16") if "option" in hint else None
                    raise InputError(self.name, f"is {what}", hint, option=option)
            # In UTF-16 without a mark every second byte of plain text is zero.
            if start[:2].count(0) == 1 and start.count(0) > len(start) // 4:
                little = "utf-16-le" if start[1] == 0 else "utf-16-be"
                hint, choice = "pass {option}", ("encoding", little)
                raise InputError(self.name, "is UTF-16 text", hint, option=choice)
        if _HTML.match(start):
            raise InputError(self.name, "is an HTML page", "download or export the data itself")
        if b"\0" in start:
            raise InputError(
                self.name,
                "is not a file of a known format",
                "pass an npz, npy, HDF5, torch, Parquet, Feather, CSV or JSONL file",
            )

    def check_encoding(self, block: bytes, line: int) -> None:
        """Refuse bytes that are not UTF-8; ``line`` is that of the first byte."""
        if block.isascii():
            return
        try:
            block.decode()
        except UnicodeDecodeError as error:
            raise self.encoding_error(error, line + block.count(b"\n", 0, error.start)) from None

    def encoding_error(
        self, error: UnicodeDecodeError, line: int, encoding: str = "UTF-8"
    ) -> InputError:
        """Return the error for bytes of another encoding."""
        place = f" in line {line}" if line else ""
        return InputError(
            self.name,
            f"is not {encoding} text (byte 0x{error.object[error.start]:02x}{place})",
            "pass its encoding, as in {option}",
            option=("encoding", "cp1252"),
        )


class _Reader:
    """Reads the bytes of a text as UTF-8."""

    def __init__(self, source: TextSource, file: BinaryIO, compression: str | None) -> None:
        self._source, self._file = source, file
        self._stream: Any = file
        if compression is not None:
            self._stream = pa.CompressedInputStream(pa.PythonFile(file), compression)
        encoding = source.options.encoding
        self._decoder = None if encoding is None else codecs.getincrementaldecoder(encoding)()
        self._is_first = True

    def read(self, size: int) -> bytes:
        """Return the next bytes, none at the end."""
        source = self._source
        try:
            data = bytes(self._stream.read(size))
            if self._decoder is not None:
                data = self._decoder.decode(data, final=not data).encode()
        except UnicodeDecodeError as error:
            raise source.encoding_error(error, 0, source.options.encoding or "") from None
        except (pa.ArrowException, OSError) as error:
            raise InputError(
                source.name,
                f"cannot be decompressed ({first_line(error)})",
                "it may be truncated: write it again",
            ) from error
        if self._is_first:
            data, self._is_first = data.removeprefix(codecs.BOM_UTF8), False
        return data

    def close(self) -> None:
        """Close the file."""
        if self._stream is not self._file:
            self._stream.close()
        self._file.close()


class TextFile(TableFile):
    """A file without types: every column is text.

    Attributes
    ----------
    sample : Table
        The first rows.
    """

    sample: pa.Table

    def __init__(self, file: InputFile, options: TextOptions) -> None:
        self.path, self.options, self.decimal = file.name, options, options.decimal
        self._source = TextSource(file, options)

    @property
    def types(self) -> Mapping[str, ColumnType]:
        """What each column holds, judged by the first rows."""
        if not self.has_rows:  # a header alone: any column may be one of numbers
            return dict.fromkeys(self.names, "float")
        columns = zip(self.sample.column_names, self.sample.columns, strict=True)
        return {name: self._type_of(_first_text(column)) for name, column in columns}

    @property
    def has_rows(self) -> bool:
        """Whether there is a row."""
        return len(self.sample) > 0

    def dtype(self, columns: Sequence[str]) -> NumPyDType:
        """Return float64, as which numbers in text are read."""
        return np.dtype(np.float64)

    @abstractmethod
    def _type_of(self, text: str) -> ColumnType:
        """Return what a column holds by its first value."""


# CSV.

# A quoted cell, or one that is never closed.
_QUOTED = re.compile(rb'"[^"]*+(?:""[^"]*+)*+("?)')
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BLANK_LINE = re.compile(rb"(?<=\n)(?=\r?\n)|\A(?=\r?\n)|(?<=\r)(?=\r)")


class CsvFile(TextFile):
    """A CSV file: text cells, separated by commas, semicolons or tabs; an empty cell is null.

    Attributes
    ----------
    has_header : bool
        Whether the first line names the columns; otherwise they are numbered.
    """

    format = "csv"

    def __init__(self, file: InputFile, options: TextOptions) -> None:
        super().__init__(file, options)
        start = self._source.start
        self._source.check_encoding(start.rsplit(b"\n", 1)[0], 1)
        self._delimiter = _delimiter(start, options.decimal)
        self.has_header, self._skip, self._numeric = False, 0, list[int]()
        self.sample, self.schema = pa.table({}), pa.schema([])
        first: list[str] = []
        parts: list[pa.Table] = []
        for block in self._blocks(len(start)):
            if not parts:
                first = self._cells(block)
                self._name_columns(map(str, range(len(first))))
            parts.append(self._parse(block))
            if sum(map(len, parts)) > 1:  # a long row may fill the next block
                break
        if not parts:  # a file without a line
            return
        parsed = pa.concat_tables(parts)
        self.has_header = _has_header(self.path, first, parsed.slice(0, SAMPLE_ROWS), options)
        if self.has_header:
            check_names(self.path, first)
            self._skip = 1
            self._name_columns(first)
            parsed = parsed.rename_columns(first).slice(1)
        self.sample = parsed.slice(0, SAMPLE_ROWS)
        cells = map(_first_text, self.sample.columns)
        self._numeric = [at for at, cell in enumerate(cells) if is_number(cell)]

    def _name_columns(self, names: Iterable[str]) -> None:
        self.schema = pa.schema([(name, pa.string()) for name in names])

    def _type_of(self, text: str) -> ColumnType:
        # A decimal comma is refused where the numbers are read, with the option to pass.
        return "float" if is_number(text.replace(",", ".")) else "text"

    def _cells(self, block: _Block) -> list[str]:
        """Return the cells of the first row."""
        csv.field_size_limit(2**31 - 1)  # Arrow has no limit of its own
        text = io.StringIO(block.data.decode(), newline="")
        return [cell.strip() for cell in next(csv.reader(text, delimiter=self._delimiter.decode()))]

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield some columns, a block of rows at a time."""
        wanted = list(self.names if columns is None else columns)
        skip = self._skip
        for block in self._blocks():
            self._check_joined_rows(block)
            yield self._parse(block, wanted, skip)
            skip = 0

    def _check_joined_rows(self, block: _Block) -> None:
        """Refuse a quoted cell that hides rows: two quotes that belong to different cells."""
        for start, stop in block.quoted:
            if b"\n" not in block.data[start:stop]:
                continue
            first = block.data.rfind(b"\n", 0, start) + 1
            last = block.data.find(b"\n", stop)
            text = block.data[first : last if last >= 0 else len(block.data)].decode()
            ends, *inner, other_end = map(self._is_row, text.split("\n"))
            if any(inner) or (ends and other_end):
                line = block.line + block.data.count(b"\n", 0, start)
                raise _quote_error(self.path, line, "closes in another row")

    def _is_row(self, line: str) -> bool:
        """Whether a line has a number in every column of numbers, counted from either end."""
        delimiter, width = self._delimiter.decode(), len(self.names)
        parts = [part.strip(' "\r') for part in line.split(delimiter)]
        return (
            len(parts) >= width
            and bool(self._numeric)
            and any(
                all(is_number(parts[at - offset]) for at in self._numeric) for offset in (0, width)
            )
        )

    def _blocks(self, size: int = BLOCK_BYTES) -> Iterator[_Block]:
        return _csv_blocks(self._source, self._delimiter, size)

    def _parse(self, block: _Block, wanted: Sequence[str] | None = None, skip: int = 0) -> pa.Table:
        """Return some columns of a block; of a sample, which has no ``wanted``, all."""
        wrong: list[Any] = []
        names = self.names

        def keep_first(row: Any) -> str:
            wrong.append(row)
            return "skip"

        csv_options = pyarrow.csv
        data = block.with_filled_lines(self._delimiter * (len(names) - 1))
        table = pyarrow.csv.read_csv(
            pa.BufferReader(data),
            csv_options.ReadOptions(
                column_names=names, use_threads=False, block_size=len(data) + 1
            ),
            csv_options.ParseOptions(
                delimiter=self._delimiter.decode(),
                newlines_in_values=block.has_quotes,
                ignore_empty_lines=False,
                invalid_row_handler=keep_first,
            ),
            csv_options.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                # An empty cell is null, and "" is empty text.
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                include_columns=wanted or names,
                check_utf8=False,
            ),
        )
        if wrong and wanted is not None:  # of a sample, the rows that can be read are enough
            row = wrong[0].number - 1 + block.row - self._skip
            raise InputError(
                self.path,
                "has another number of cells than the first line",
                "give every row one cell for each column",
                rows=[max(row, 0)],
                detail=f"has {wrong[0].actual_columns} cells but the first line {len(names)}",
            )
        block.rows = len(table)
        table = table.slice(skip)
        return table.select([]) if wanted == [] else table


@dataclass
class _Block:
    """Whole rows of a CSV file: their text, first row, first line, and quoted cells."""

    data: bytes
    row: int
    line: int
    quoted: list[tuple[int, int]]
    rows: int = 0

    @property
    def has_quotes(self) -> bool:
        return bool(self.quoted)

    def with_filled_lines(self, cells: bytes) -> bytes:
        """Return the text with delimiters in blank lines, which are rows of empty cells."""
        if not cells or not _BLANK_LINE.search(self.data):
            return self.data
        pieces, done = [], 0
        for start, stop in [*self.quoted, (len(self.data), len(self.data))]:
            gaps = [at.start() for at in _BLANK_LINE.finditer(self.data, done, start)]
            for gap in gaps:
                pieces += [self.data[done:gap], cells]
                done = gap
            pieces.append(self.data[done:stop])
            done = stop
        return b"".join(pieces)


def _csv_blocks(source: TextSource, delimiter: bytes, block_size: int) -> Iterator[_Block]:
    """Yield blocks of whole rows; a quote that is not one of a quoted cell is refused.

    Blank lines at the end are not rows.
    """
    size, data, line, row = block_size, b"", 1, 0
    with closing(source.reader()) as reader:
        while True:
            chunk = reader.read(size)
            data += chunk
            if not row:  # blank lines before the first are not rows
                data = data.lstrip(b"\r\n")
            check_size(source.name, len(data))
            quoted, end = _complete_rows(source.name, data, delimiter, line, is_last=not chunk)
            body = data[:end].rstrip(b"\r\n")
            # Blank lines at the end belong to the next block: they are rows if one follows.
            ending = _LINE_END.match(data, len(body)) if chunk else None
            end = len(body) if ending is None else ending.end()
            if body:
                block = _Block(data[:end], row, line, [span for span in quoted if span[1] <= end])
                source.check_encoding(block.data, line)
                yield block
                row, line = row + block.rows, line + block.data.count(b"\n")
                data = data[end:]
            size = max(block_size, len(data))
            if not chunk:
                return


def _complete_rows(
    name: str, data: bytes, delimiter: bytes, line: int, *, is_last: bool
) -> tuple[list[tuple[int, int]], int]:
    """Return the quoted cells of some text, and where its last whole row ends."""
    quoted: list[tuple[int, int]] = []
    around = (b"", delimiter, b"\n", b"\r")
    open_at = len(data)
    for match in _QUOTED.finditer(data) if b'"' in data else ():
        start, stop = match.span()
        if data[start - 1 : start] not in around and start:
            raise _quote_error(name, line + data.count(b"\n", 0, start), "opens inside a cell")
        if not match[1] or (stop == len(data) and not is_last):
            if is_last:
                raise _quote_error(name, line + data.count(b"\n", 0, start), "is never closed")
            open_at = start
            break
        if data[stop : stop + 1] not in around:
            raise _quote_error(name, line + data.count(b"\n", 0, start), "closes inside a cell")
        quoted.append((start, stop))
    if is_last:
        return quoted, len(data)
    stop = open_at
    for start, end in [*reversed(quoted), (0, 0)]:
        newline = data.rfind(b"\n", end, stop)
        if newline < 0 and b"\n" not in data:
            newline = data.rfind(b"\r", end, min(stop, len(data) - 1))
        if newline >= 0:
            return quoted, newline + 1
        stop = start
    return quoted, 0


def _quote_error(name: str, line: int, how: str) -> InputError:
    return InputError(
        name,
        f"cannot be read as CSV: a quote in line {line} {how}",
        'quote whole cells, and write "" for a quote within one',
    )


_DECIMAL_COMMA = re.compile(rb"\s*[+-]?\d+,\d+\s*")


def _delimiter(start: bytes, decimal: str) -> bytes:
    """Return the delimiter by the first lines, without their quoted cells."""
    lines = [line for line in _QUOTED.sub(b"", start).splitlines() if line.strip()][:SAMPLE_ROWS]
    if not lines:
        return b","
    lines = lines[:-1] or lines  # the last may be cut
    counts = {mark: lines[0].count(mark) for mark in (b",", b";", b"\t")}
    if decimal == ",":
        del counts[b","]
    best = max(counts, key=counts.__getitem__)
    others = [mark for mark in counts if mark != b"," and counts[mark]]
    # 0,5;0,5 has more commas than semicolons.
    if best == b"," and others:
        cells = [cell for line in lines[1:] or lines for cell in line.split(others[0])]
        if all(_DECIMAL_COMMA.fullmatch(cell) for cell in cells):
            return others[0]
    return best


def _has_header(name: str, first: Sequence[str], sample: pa.Table, options: TextOptions) -> bool:
    """Return whether the first line names the columns; refuse a line that may be a row."""
    rows = sample.slice(1)
    below = [_first_text(rows.column(at)) for at in range(rows.num_columns)]
    if options.decimal == ",":
        below, first = ([cell.replace(",", ".") for cell in cells] for cells in (below, first))
    words = [at for at, cell in enumerate(first) if cell and not is_number(cell)]
    fractions = [cell for cell in first if is_number(cell) and not _WHOLE.fullmatch(cell)]
    # A class may be called nan, a row with a misspelt number is not a header.
    fractions = [cell for cell in fractions if float(cell) == float(cell)]
    if not fractions and any(is_number(below[at]) for at in words):
        return True
    if options.header is not None:
        return options.header
    whole = [cell for cell in first if _WHOLE.fullmatch(cell)]
    has_rows = rows.num_rows > 0
    if not fractions and len(set(first)) == len(first):
        if words and not whole and (len(first) > 1 or is_other_column(first[0])):
            return True  # a table of words, or a column with a usual name
        above = [below[at] for at, cell in enumerate(first) if _WHOLE.fullmatch(cell)]
        some_fraction = has_rows and any(
            is_number(cell) and not _WHOLE.fullmatch(cell) for cell in above
        )
        if whole and are_default_names(whole) and some_fraction and len(whole) > 1:
            return True
        if not whole and not words and len(first) == 1 and not has_rows:
            return False
    line = ",".join(first)
    shown = line if len(line) <= 40 else f"{line[:39]}…"
    raise InputError(
        name,
        f"begins with the line {shown!r}, which may be a header or a row",
        "decide with {option}",
        option=("header", "True or False"),
    )


def _first_text(column: pa.ChunkedArray) -> str:
    """Return the first cell that is not empty."""
    for text in column.to_pylist():
        if text is not None and text.strip() not in ("", "null"):
            return str(text.strip())
    return ""


# JSONL.

_STRING = r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"'
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_SCALAR = rf"{_STRING}|{_NUMBER}|true|false|null|NaN|-?Infinity"
_VALUE = rf"(?:{_SCALAR}|\[[^][{{}}\"]*+\])"
_DECODER = json.JSONDecoder()
_KEY = re.compile(rf"\s*({_STRING})\s*:\s*")


class JsonlFile(TextFile):
    """A JSONL file: one object per line; every value is JSON text.

    The schema has the keys of the first rows, or of all rows once `scan` was called.
    """

    format = "jsonl"

    def __init__(self, file: InputFile, options: TextOptions) -> None:
        super().__init__(file, options)
        self.sample = next(self._tables(None, 2**16), pa.table({})).slice(0, SAMPLE_ROWS)
        self.schema = self.sample.schema

    def _type_of(self, text: str) -> ColumnType:
        if text[:1] == "[":
            return "list" if parse_lists(pa.array([text]))[0] else "other"
        if text[:1] == '"':
            return "text"
        return "float" if is_number(text) else "other"

    def scan(self) -> None:
        """Read all keys of the file."""
        names = dict.fromkeys(self.schema.names)
        for table in self._tables(None):
            names |= dict.fromkeys(table.column_names)
        self.schema = pa.schema([_json_field(name) for name in names])

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield some keys, a block of rows at a time; without ``columns`` all that rows have."""
        return self._tables(columns)

    def _tables(self, columns: Sequence[str] | None, size: int = BLOCK_BYTES) -> Iterator[pa.Table]:
        layout, row = _Layout((), None), 0
        for lines in _line_blocks(self._source, size):
            rows: list[tuple[str | None, ...]] = []
            odd: dict[int, dict[str, str]] = {}
            for at, line in enumerate(lines):
                match = layout.pattern.fullmatch(line)
                if match is None:
                    values = self._values(line, row + at)
                    if not layout.keys and not odd:
                        layout = _Layout(tuple(values), columns)
                    odd[at] = values
                    rows.append(())
                else:
                    rows.append(match.groups())
            row += len(lines)
            if rows:
                yield _json_table(rows, odd, layout, columns)

    def _values(self, line: str, row: int) -> dict[str, str]:
        """Return the JSON text of each value of an object."""
        values: dict[str, str] = {}
        try:
            start = line.index("{") + 1
            if line[: start - 1].strip():
                raise ValueError
            while True:
                key = _KEY.match(line, start)
                if key is None:
                    if values or line[start:].strip() != "}":
                        raise ValueError
                    return values
                name = json.loads(key[1])
                if name in values:
                    raise InputError(
                        self.path,
                        f"has the key {name!r} twice",
                        "write each key once",
                        rows=[row],
                    )
                end = _DECODER.raw_decode(line, key.end())[1]
                values[name] = line[key.end() : end]
                behind = line[end:].lstrip()
                if behind[:1] == "}":
                    if behind[1:].strip():
                        raise ValueError
                    return values
                if behind[:1] != ",":
                    raise ValueError
                start = len(line) - len(behind) + 1
        except InputError:
            raise
        except (ValueError, RecursionError):
            raise InputError(
                self.path,
                "is not a JSON object",
                'write one object on each line, such as {"id": 7, "logits": [0.2, 1.3]}',
                rows=[row],
            ) from None


class _Layout:
    """The keys of most lines in their order, and a pattern that captures the wanted values."""

    def __init__(self, keys: tuple[str, ...], columns: Sequence[str] | None) -> None:
        self.keys = keys
        self.wanted = tuple(key for key in keys if columns is None or key in columns)
        parts = []
        for key in keys:
            text = f"{re.escape(json.dumps(key, ensure_ascii=False))}"
            value = f"({_VALUE})" if key in self.wanted else _VALUE
            parts.append(rf"\s*{text}\s*:\s*{value}\s*")
        self.pattern = re.compile(rf"\s*\{{{','.join(parts)}\}}\s*" if keys else r"(?!)")


def _json_table(
    rows: list[tuple[str | None, ...]],
    odd: dict[int, dict[str, str]],
    layout: _Layout,
    columns: Sequence[str] | None,
) -> pa.Table:
    """Return rows that match a layout, and others by their number, as columns of JSON text."""
    names = dict.fromkeys(layout.wanted if columns is None else columns)
    if columns is None:
        for values in odd.values():
            names |= dict.fromkeys(values)
    places = {name: at for at, name in enumerate(layout.wanted)}
    if odd:
        empty = [None] * len(layout.wanted)
        rows = [tuple(empty) if at in odd else row for at, row in enumerate(rows)]
    captured = list(zip(*rows, strict=True)) if layout.wanted else []
    arrays = []
    for name in names:
        texts: list[str | None] = (
            list(captured[places[name]]) if name in places else [None] * len(rows)
        )
        for at, values in odd.items():
            texts[at] = values.get(name)
        arrays.append(pa.array(texts, pa.string()))
    if not arrays:
        return pa.table({"": pa.nulls(len(rows))}).select([])
    return pa.table(arrays, schema=pa.schema([_json_field(name) for name in names]))


def _json_field(name: str) -> pa.Field:
    return pa.field(name, pa.string(), metadata=JSON)


def _line_blocks(source: TextSource, block_size: int) -> Iterator[list[str]]:
    """Yield lines that are not blank, a block at a time."""
    data, line, size = b"", 1, block_size
    with closing(source.reader()) as reader:
        while True:
            chunk = reader.read(size)
            data += chunk
            check_size(source.name, len(data))
            end = len(data) if not chunk else data.rfind(b"\n") + 1
            block, data = data[:end], data[end:]
            size = max(block_size, len(data))
            if block:
                source.check_encoding(block, line)
                line += block.count(b"\n")
                yield [text for text in block.decode().split("\n") if text and not text.isspace()]
            if not chunk:
                return
