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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from cordcal._errors import InputError
from cordcal._numeric.types import NumPyDType
from cordcal._validation.names import are_default_names
from cordcal.files.columns import MISSING, ColumnType, TextOptions, is_number, is_other_column
from cordcal.files.disk import InputFile, check_size, first_line, reading
from cordcal.files.tables import TableFile, check_names
from cordcal.files.values import JSON, parse_lists

# Bytes of text that are parsed at a time; a longer row is read whole.
BLOCK_BYTES = 2**22
# Rows that decide about the delimiter, the header and which columns hold numbers.
SAMPLE_ROWS = 1000
# Values of a column of text that decide whether it holds numbers.
_CELLS_TO_JUDGE = 20

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
        self.name, self._file, self._encoding = file.name, file, options.encoding
        with self._opened() as read:
            self.start = read(2**16).removeprefix(codecs.BOM_UTF8)
        self._check_start()

    def blocks(
        self, size: int, end_of_rows: Callable[[bytes, int, bool], int]
    ) -> Iterator[tuple[bytes, int]]:
        """Yield blocks of whole rows, each with the number of its first line.

        ``end_of_rows`` returns where the last whole row of some bytes ends; it also receives the
        number of their first line, and whether they are the last.
        """
        with self._opened() as read:
            data, line, chunk = b"", 1, read(size).removeprefix(codecs.BOM_UTF8)
            while True:
                data += chunk
                check_size(self.name, len(data))
                end = end_of_rows(data, line, not chunk)
                block, data = data[:end], data[end:]
                if block:
                    self.check_encoding(block, line)
                    yield block, line
                    line += block.count(b"\n")
                if not chunk:
                    return
                chunk = read(max(size, len(data)))

    @contextmanager
    def _opened(self) -> Iterator[Callable[[int], bytes]]:
        """Open the text; yield a function that reads the next bytes of it."""
        head = self._file.head
        kinds = (kind for magic, kind in _COMPRESSED.items() if head.startswith(magic))
        compression = next(kinds, None)
        decoder = self._encoding and codecs.getincrementaldecoder(self._encoding)()

        def read(size: int) -> bytes:
            with reading(self.name, f"{compression} text" if compression else "text"):
                data = bytes(stream.read(size))
            try:
                return decoder.decode(data, final=not data).encode() if decoder else data
            except UnicodeDecodeError as error:
                raise self._encoding_error(error, str(self._encoding)) from None
            except UnicodeError as error:  # no mark of the byte order, half a character
                raise InputError(
                    self.name,
                    f"is not {self._encoding} text ({first_line(error)})",
                    "pass its encoding, as in {option}",
                    option=("encoding", "utf-16-le"),
                ) from None

        with self._file.open() as file:
            stream: Any = file
            if compression is not None:
                stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), compression)
            yield read

    def _check_start(self) -> None:
        start = self.start
        if self._encoding is None:
            for magic, (what, hint) in _NOT_TEXT.items():
                if start.startswith(magic):
                    option = ("encoding", "utf-16") if "option" in hint else None
                    raise InputError(self.name, f"is {what}", hint, option=option)
            # In UTF-16 without a mark every second byte of plain text is zero.
            if start[:2].count(0) == 1 and start.count(0) > len(start) // 4:
                option = ("encoding", "utf-16-le" if start[1] == 0 else "utf-16-be")
                raise InputError(self.name, "is UTF-16 text", "pass {option}", option=option)
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
            line += block.count(b"\n", 0, error.start)
            raise self._encoding_error(error, "UTF-8", f" in line {line}") from None

    def _encoding_error(
        self, error: UnicodeDecodeError, encoding: str, place: str = ""
    ) -> InputError:
        return InputError(
            self.name,
            f"is not {encoding} text (byte 0x{error.object[error.start]:02x}{place})",
            "pass its encoding, as in {option}",
            option=("encoding", "cp1252"),
        )


class TextFile(TableFile):
    """A file without types: every column is text.

    Attributes
    ----------
    sample : Table
        The first rows.
    """

    sample: pa.Table
    identifiers: Sequence[ColumnType] = (
        "text",
        "float",
    )  # whole numbers in text have no type of their own

    def __init__(self, file: InputFile, options: TextOptions) -> None:
        self.path, self.decimal = file.name, options.decimal
        self._source = TextSource(file, options)

    @cached_property
    def types(self) -> Mapping[str, ColumnType]:
        """What each column holds, judged by the first rows."""
        if not self.has_rows:  # a header alone: any column may be one of numbers
            return dict.fromkeys(self.names, "float")
        columns = zip(self.sample.column_names, self.sample.columns, strict=True)
        return {name: self._usual_type(column) for name, column in columns}

    def _usual_type(self, column: pa.ChunkedArray) -> ColumnType:
        """Return what most of the first values are: a word among numbers is a wrong number."""
        filled = (self._type_of(text) for text in _texts(column) if text.strip('"') not in MISSING)
        counts = Counter(islice(filled, _CELLS_TO_JUDGE))
        return counts.most_common(1)[0][0] if counts else self._type_of("")

    @property
    def has_rows(self) -> bool:
        """Whether there is a row."""
        return len(self.sample) > 0

    def dtype(self, columns: Sequence[str]) -> NumPyDType:
        """Return float64, as which numbers in text are read."""
        return np.dtype(np.float64)

    @abstractmethod
    def _type_of(self, text: str) -> ColumnType:
        """Return what a column holds by one of its values."""


# CSV.

# A quoted cell, or one that is never closed.
_QUOTED = re.compile(rb'"[^"]*+(?:""[^"]*+)*+("?)')
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BLANK_LINE = rb"(?:\A|(?<=\n)|(?<=\r)(?!\n))(?=[\r\n])"
_QUOTED_OR_BLANK = re.compile(_QUOTED.pattern + b"|" + _BLANK_LINE)
# Without any of these there is no blank line; finding them is faster than the pattern.
_LINE_ENDS = (b"\n\n", b"\n\r", b"\r\r")


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
        self.has_header = False
        self.sample, self.schema = pa.table({}), pa.schema([])
        first: list[str] = []
        parts: list[pa.Table] = []
        for block, _ in self._blocks(len(start)):
            if not parts:
                first = self._cells(block)
                self._name_columns(map(str, range(len(first))))
            # Of a sample, the rows that can be read are enough.
            parts.append(self._parse(block, self.names)[0])
            if sum(map(len, parts)) > 1:  # a long row may fill the next block
                break
        if not parts:  # a file without a line
            return
        self.sample = pa.concat_tables(parts).slice(0, SAMPLE_ROWS)
        self.has_header = _has_header(self.path, first, self.sample, options)
        if self.has_header:
            check_names(self.path, first)
            self._name_columns(first)
            self.sample = self.sample.rename_columns(first).slice(1)

    def _name_columns(self, names: Iterable[str]) -> None:
        self.schema = pa.schema([(name, pa.string()) for name in names])

    def _type_of(self, text: str) -> ColumnType:
        # A decimal comma is refused where the numbers are read, with the option to pass.
        return "float" if is_number(text.replace(",", ".")) else "text"

    def _cells(self, block: bytes) -> list[str]:
        """Return the cells of the first row."""
        csv.field_size_limit(2**31 - 1)  # Arrow has no limit of its own
        text = io.StringIO(block.decode(), newline="")
        return [cell.strip() for cell in next(csv.reader(text, delimiter=self._delimiter.decode()))]

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield some columns, a block of rows at a time."""
        wanted = list(self.names if columns is None else columns)
        skip = first = int(self.has_header)
        for block, line in self._blocks():
            self._check_joined_rows(block, line)
            table, wrong = self._parse(block, wanted)
            if wrong is not None:
                raise InputError(
                    self.path,
                    "has another number of cells than the first line",
                    "give every row one cell for each column",
                    rows=[max(wrong.number - 1 - first, 0)],
                    detail=f"has {wrong.actual_columns} cells but the first line {len(self.names)}",
                )
            first -= len(table)
            yield table.slice(skip).select(wanted)
            skip = 0

    def _blocks(self, size: int = BLOCK_BYTES) -> Iterator[tuple[bytes, int]]:
        for at, (block, line) in enumerate(self._source.blocks(size, self._end_of_rows)):
            # Blank lines before the first row are not rows.
            yield (block if at else block.lstrip(b"\r\n")), line

    def _end_of_rows(self, data: bytes, line: int, is_last: bool) -> int:
        """Return where the last whole row ends; refuse quotes that are not those of a cell.

        Blank lines at the end belong to the next block: they are rows if one follows.
        """
        around = (b"", self._delimiter, b"\n", b"\r")
        for match in _QUOTED.finditer(data):
            start, stop = match.span()
            if data[start - 1 : start] not in around:
                raise self._quote_error(data, start, line, "opens inside a cell")
            if not match[1] and is_last:
                raise self._quote_error(data, start, line, "is never closed")
            if data[stop : stop + 1] not in around:
                raise self._quote_error(data, start, line, "closes inside a cell")
        newline, end = b"\n", len(data)
        if not is_last:
            if b"\n" not in data:
                newline, end = b"\r", end - 1  # the last may be half of \r\n
            end = data.rfind(newline, 0, end) + 1
            is_within = data.count(b'"', 0, end) % 2
            while is_within:  # a quoted cell
                stop, end = end, data.rfind(newline, 0, end - 1) + 1
                is_within ^= data.count(b'"', end, stop) % 2
        end = len(data[:end].rstrip(b"\r\n"))
        ending = _LINE_END.match(data, end)
        return end if is_last or not end or ending is None else ending.end()

    def _check_joined_rows(self, block: bytes, line: int) -> None:
        """Refuse a quoted cell that hides rows: two quotes that belong to different cells."""
        for match in _QUOTED.finditer(block):
            if b"\n" not in match[0]:
                continue
            first = block.rfind(b"\n", 0, match.start()) + 1
            last = block.find(b"\n", match.end())
            text = block[first : last if last >= 0 else len(block)].decode()
            ends, *inner, other_end = map(self._is_row, text.split("\n"))
            if any(inner) or (ends and other_end):
                raise self._quote_error(block, match.start(), line, "closes in another row")

    def _is_row(self, line: str) -> bool:
        """Whether a line has a number in every column of numbers, counted from either end."""
        cells = [cell.strip(' "\r') for cell in line.split(self._delimiter.decode())]
        numeric = [at for at, kind in enumerate(self.types.values()) if kind == "float"]
        width = len(self.names)
        return len(cells) >= width and any(
            numeric and all(self._type_of(cells[at - offset]) == "float" for at in numeric)
            for offset in (0, width)
        )

    def _quote_error(self, data: bytes, at: int, line: int, how: str) -> InputError:
        line += data.count(b"\n", 0, at)
        return InputError(
            self.path,
            f"cannot be read as CSV: a quote in line {line} {how}",
            'quote whole cells, and write "" for a quote within one',
        )

    def _parse(self, block: bytes, wanted: Sequence[str]) -> tuple[pa.Table, Any]:
        """Return some columns of a block, and its first row of another number of cells."""
        wrong: list[Any] = []
        names = self.names

        def keep(row: Any) -> str:
            wrong.append(row)
            return "skip"

        cells = self._delimiter * (len(names) - 1)
        may_be_blank = block[:1] in b"\r\n" or any(ends in block for ends in _LINE_ENDS)
        if cells and may_be_blank:  # blank lines are rows of empty cells
            block = _QUOTED_OR_BLANK.sub(lambda match: match[0] or cells, block)
        options = pyarrow.csv
        table = options.read_csv(
            pa.BufferReader(block),
            options.ReadOptions(column_names=names, use_threads=False, block_size=len(block) + 1),
            options.ParseOptions(
                delimiter=self._delimiter.decode(),
                newlines_in_values=b'"' in block,
                ignore_empty_lines=False,
                invalid_row_handler=keep,
            ),
            options.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                # An empty cell is null, and "" is empty text.
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                include_columns=wanted or names,
                check_utf8=False,
            ),
        )
        return table, wrong[0] if wrong else None


_DECIMAL_COMMA = re.compile(rb"\s*[+-]?\d+,\d+\s*")


def _delimiter(start: bytes, decimal: str) -> bytes:
    """Return the delimiter by the first lines, without their quoted cells."""
    lines = [line for line in _QUOTED.sub(b"", start).splitlines() if line.strip(b" ")]
    lines = lines[:SAMPLE_ROWS]
    if not lines:
        return b","
    lines = lines[:-1] or lines  # the last may be cut
    counts = {mark: lines[0].count(mark) for mark in (b",", b";", b"\t")}
    if decimal == "," and (any((counts[b";"], counts[b"\t"])) or _DECIMAL_COMMA.match(lines[0])):
        del counts[b","]  # with cells in quotes it may be the delimiter, too
    best = max(counts, key=counts.__getitem__)
    others = [mark for mark in counts if mark != b"," and counts[mark]]
    # 0,5;0,5 has more commas than semicolons.
    if best == b"," and others:
        cells = [cell for line in lines[1:] or lines for cell in line.split(others[0])]
        if all(map(_DECIMAL_COMMA.fullmatch, cells)):
            return others[0]
    return best


def _has_header(name: str, first: Sequence[str], sample: pa.Table, options: TextOptions) -> bool:
    """Return whether the first line names the columns; refuse a line that may be a row."""
    below = [next(_texts(column), "") for column in sample.slice(1).columns]
    if options.decimal == ",":
        below, first = ([cell.replace(",", ".") for cell in cells] for cells in (below, first))
    words = [at for at, cell in enumerate(first) if cell and not is_number(cell)]
    whole = [at for at, cell in enumerate(first) if _WHOLE.fullmatch(cell)]
    # A class may be called nan, a row with a misspelt number is not a header.
    has_fractions = any(_is_fraction(cell) and float(cell) == float(cell) for cell in first)
    if not has_fractions and any(is_number(below[at]) for at in words):
        return True
    if options.header is not None:
        return options.header
    if not has_fractions and len(set(first)) == len(first):
        if words and not whole and (len(first) > 1 or is_other_column(first[0])):
            return True  # a table of words, or a column with a usual name
        are_numbered = len(whole) > 1 and are_default_names([first[at] for at in whole])
        if are_numbered and any(_is_fraction(below[at]) for at in whole):
            return True
    line = ",".join(first)
    shown = line if len(line) <= 40 else f"{line[:39]}…"
    raise InputError(
        name,
        f"begins with the line {shown!r}, which may be a header or a row",
        "decide with {option}",
        option=("header", "True or False"),
    )


def _is_fraction(cell: str) -> bool:
    return is_number(cell) and not _WHOLE.fullmatch(cell)


def _texts(column: pa.ChunkedArray) -> Iterator[str]:
    """Yield the cells that are not empty."""
    for cell in column:
        text = (cell.as_py() or "").strip()
        if text not in ("", "null"):
            yield text


# JSONL.

_STRING = r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"'
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_SCALAR = rf"{_STRING}|{_NUMBER}|true|false|null|NaN|-?Infinity"
_VALUE = rf"(?:{_SCALAR}|\[[^][{{}}\"]*+\])"
_KEY = re.compile(rf"\s*[{{,]\s*({_STRING})\s*:\s*")
_DECODER = json.JSONDecoder()


class JsonlFile(TextFile):
    """A JSONL file: one object per line; every value is JSON text.

    The schema has the keys of the first rows, or of all rows once `scan` was called.
    """

    format = "jsonl"

    def __init__(self, file: InputFile, options: TextOptions) -> None:
        super().__init__(file, options)
        self.sample = next(self.tables(None, 2**16), pa.table({})).slice(0, SAMPLE_ROWS)
        self.schema = self.sample.schema

    def _type_of(self, text: str) -> ColumnType:
        if text[:1] == "[":
            return "list" if parse_lists(pa.array([text]))[0] else "other"
        if text[:1] == '"':
            return "text"
        return "float" if is_number(text) else "other"

    def scan(self) -> None:
        """Read all keys of the file."""
        names = (table.column_names for table in self.tables())
        self.schema = _json_schema(dict.fromkeys(chain(self.names, *names)))

    def tables(
        self, columns: Sequence[str] | None = None, size: int = BLOCK_BYTES
    ) -> Iterator[pa.Table]:
        """Yield some keys, a block of rows at a time; without ``columns`` all that rows have."""

        def end_of_lines(data: bytes, line: int, is_last: bool) -> int:
            return len(data) if is_last else data.rfind(b"\n") + 1

        keys: list[str] = []
        pattern = re.compile("(?!)")
        first = 0
        for block, _ in self._source.blocks(size, end_of_lines):
            lines = [line for line in block.decode().split("\n") if line and not line.isspace()]
            rows: list[Mapping[str, str]] = []
            for at, line in enumerate(lines, first):
                # Most lines have the keys of the first; a pattern finds their values at once.
                match = pattern.fullmatch(line)
                if match is not None:
                    rows.append(dict(zip(keys, match.groups(), strict=True)))
                    continue
                rows.append(self._values(line, at))
                if not at:
                    keys = [key for key in rows[0] if columns is None or key in columns]
                    pattern = _line_pattern(rows[0], keys)
            first += len(lines)
            if rows:
                yield _json_table(rows, columns)

    def _values(self, line: str, row: int) -> dict[str, str]:
        """Return the JSON text of each value of an object."""
        try:
            is_object = isinstance(json.loads(line), dict)
        except (ValueError, RecursionError):
            is_object = False
        if not is_object:
            raise InputError(
                self.path,
                "is not a JSON object",
                'write one object on each line, such as {"id": 7, "logits": [0.2, 1.3]}',
                rows=[row],
            )
        values: dict[str, str] = {}
        end = 0
        while key := _KEY.match(line, end):
            name, start = json.loads(key[1]), key.end()
            if name in values:
                reason = f"has the key {name!r} twice"
                raise InputError(self.path, reason, "write each key once", rows=[row])
            end = _DECODER.raw_decode(line, start)[1]
            values[name] = line[start:end]
        return values


def _line_pattern(keys: Iterable[str], wanted: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern of lines with these keys in their order, which captures wanted values."""
    parts = [
        rf"\s*{re.escape(json.dumps(key, ensure_ascii=False))}\s*:\s*"
        + (rf"({_VALUE})\s*" if key in wanted else rf"{_VALUE}\s*")
        for key in keys
    ]
    return re.compile(rf"\s*\{{{','.join(parts)}\}}\s*")


def _json_table(rows: Sequence[Mapping[str, str]], columns: Sequence[str] | None) -> pa.Table:
    """Return rows as columns of JSON text."""
    names = dict.fromkeys(chain.from_iterable(rows) if columns is None else columns)
    arrays = [pa.array([row.get(name) for row in rows], pa.string()) for name in names]
    if not arrays:
        return pa.table({"": pa.nulls(len(rows))}).select([])
    return pa.table(arrays, schema=_json_schema(names))


def _json_schema(names: Iterable[str]) -> pa.Schema:
    return pa.schema([pa.field(name, pa.string(), metadata=JSON) for name in names])
