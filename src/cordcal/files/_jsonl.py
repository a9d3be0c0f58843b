"""JSONL files: one JSON object per line, read some lines at a time."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, renumber_rows
from cordcal._numeric.types import NumPyArray
from cordcal.files.columns import ColumnSpec, ColumnType, Grouping, grouped
from cordcal.files.disk import InputFile, check_size, import_arrow, limit, no_rows
from cordcal.files.output import Encoder, OutputBlock, Piece
from cordcal.files.passthrough import (
    MISSING,
    JsonColumn,
    JsonType,
    PartColumns,
    Passthrough,
    common_json_type,
)
from cordcal.files.sources import (
    SAMPLE_ROWS,
    Contents,
    Lazy,
    Source,
    Span,
    column_contents,
    split_rows,
)

Row = dict[str, Any]
# What a number may be; null is NaN, and a truth value is not a number.
_NUMBERS = {int, float, type(None)}


def starts_json(head: bytes) -> bool:
    """Whether the first bytes of a file are those of JSON."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")


def parse_lines(name: str, lines: Iterable[bytes], first: int = 0) -> list[Row]:
    """Parse lines; errors count rows from ``first``."""
    rows: list[Row] = []
    with renumber_rows(first):
        for line in lines:
            if not line.isspace():
                rows.append(_parse_object(name, line, len(rows)))
    return rows


def _parse_object(name: str, line: bytes, at: int) -> Row:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InputError(
            name,
            "is not a JSON object",
            'write one object on each line, such as {"id": 7, "logits": [0.2, 1.3]}',
            rows=[at],
        )
    return value


def group_keys(rows: Sequence[Row], spec: ColumnSpec, where: str) -> Grouping:
    """Group the keys of the first rows; keys that only later rows have are passed through."""
    first: dict[str, Any] = {}
    for row in rows:
        for key, value in row.items():
            if first.get(key) is None:
                first[key] = value
    return grouped({key: _column_type(value) for key, value in first.items()}, spec, where)


def _column_type(value: Any) -> ColumnType:
    if isinstance(value, list):
        return "list" if value and all(_is_number(entry) for entry in value) else "other"
    return "float" if _is_number(value) else "other"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def matrix_of(
    where: str, key: str, columns: tuple[str, ...], rows: Sequence[Row]
) -> npt.NDArray[np.float64]:
    """Return a key of lists, or several numeric keys, as a matrix; null is NaN."""
    if columns == (key,):
        return _list_matrix(where, key, rows)
    return np.column_stack([_number_column(where, column, rows) for column in columns])


def _list_matrix(where: str, key: str, rows: Sequence[Row]) -> npt.NDArray[np.float64]:
    values = [row.get(key) for row in rows]
    width = len(values[0]) if values and isinstance(values[0], list) else 0
    for at, value in enumerate(values):
        if not isinstance(value, list) or len(value) != width:
            entries = None
            if isinstance(value, list):
                entries = f"has {len(value)} entries, the rows before it {width}"
            raise InputError(
                f"{where} ({key})",
                "is not a list of the same length as in other rows",
                "pass whole vectors, one entry for each class in every row",
                rows=[at],
                detail=entries or "is missing",
            )
    return _floats(f"{where} ({key})", values).reshape(len(values), width)


def _number_column(where: str, key: str, rows: Sequence[Row]) -> npt.NDArray[np.float64]:
    return _floats(f"{where} ({key})", [row.get(key) for row in rows])


def _floats(where: str, values: list[Any]) -> npt.NDArray[np.float64]:
    """Return numbers, or lists of them, as an array; unlike NumPy, refuse true and "1"."""
    in_lists = bool(values) and isinstance(values[0], list)
    entries = chain.from_iterable(values) if in_lists else values
    if set(map(type, entries)) <= _NUMBERS:
        try:
            return np.array(values, dtype=np.float64)
        except OverflowError:
            pass  # an integer too large for a float
    raise _not_a_number_error(where, values, in_lists=in_lists)


def _not_a_number_error(where: str, values: list[Any], *, in_lists: bool) -> InputError:
    """Return an error that names the first entry that is not a number."""
    for at, row in enumerate(values):
        entries = row if in_lists else [row]
        for column, value in enumerate(entries):
            if type(value) not in _NUMBERS or _overflows_float(value):
                shown = json.dumps(value)
                shown = shown if len(shown) <= 30 else f"{shown[:29]}…"
                place = f" as entry {column}" if in_lists else ""
                return InputError(
                    where,
                    "has an entry that is not a number",
                    "write numbers, or null",
                    rows=[at],
                    detail=f"has {shown}{place}, which is not a number",
                )
    return InputError(where, "has an entry that is not a number", "write numbers, or null")


def _overflows_float(value: Any) -> bool:
    try:
        float(0 if value is None else value)
    except OverflowError:
        return True
    return False


def vector_of(key: str, rows: Sequence[Row]) -> NumPyArray:
    """Return one value per row: numbers, else text; null is NaN among numbers."""
    values = [row.get(key) for row in rows]
    kinds = set(map(type, values))
    if kinds <= _NUMBERS or kinds == {bool}:
        for dtype in (np.int64, np.float64) if kinds <= {int, bool} else (np.float64,):
            try:
                return np.array(values, dtype=dtype)
            except OverflowError:
                continue  # too large for this dtype
    return np.array([value if isinstance(value, str) else json.dumps(value) for value in values])


def values_of(key: str, rows: Sequence[Row]) -> npt.NDArray[np.object_]:
    """Return one value per row, unchanged."""
    column = np.empty(len(rows), dtype=object)
    for at, row in enumerate(rows):  # assigned at once, lists would become a matrix
        column[at] = row.get(key, MISSING)
    return column


class LineSource(Source):
    """A file with a JSON object per line.

    The file is read once to find the offsets of its rows and, for passthrough, their keys.
    """

    def __init__(self, file: InputFile, spec: ColumnSpec) -> None:
        self._file, self.path = file, file.name
        with file.open() as opened:
            lines = list(islice(_filled_lines(opened, self.path), SAMPLE_ROWS))
        if not lines:
            raise no_rows(self.path)
        self.head = parse_lines(self.path, (line for _, line in lines))
        self.grouping = group_keys(self.head, spec, self.path)
        # Parsed numbers take less memory than their digits.
        size = max(8, sum(len(line) for _, line in lines) // len(lines))
        self.keys: dict[str, None] = {}
        rows, starts = 0, []
        with file.open() as opened:
            for start, line in _filled_lines(opened, self.path):
                starts.append(start)
                if spec.passthrough:
                    self.keys |= dict.fromkeys(parse_lines(self.path, [line], rows)[0])
                rows += 1
        self._types = _JsonTypes(file, tuple(self.keys))
        self._spans = tuple(split_rows(rows, size))
        self._starts = [starts[first] for first, _ in self._spans]

    def spans_of(self, key: str) -> tuple[Span, ...]:
        """Return the lines of each piece."""
        return self._spans

    def sample(self) -> Contents:
        """Return the first rows."""
        return line_contents(self.path, self.head, self.grouping)

    def contents(self) -> Contents:
        """Return all rows, parsed once for all keys."""
        rows: list[Row] = []
        with self._file.open() as opened:
            check_size(self.path, opened.seek(0, 2))
            opened.seek(0)
            rows = parse_lines(self.path, (line for _, line in _filled_lines(opened, self.path)))
        return line_contents(self.path, rows, self.grouping)

    def pieces(
        self, first: int, keys: Sequence[str], *, passthrough: bool = False
    ) -> Iterator[Contents]:
        """Yield the spans' rows."""
        with self._file.open() as opened:
            spans = zip(self._spans[first:], self._starts[first:], strict=True)
            for (start, stop), place in spans:
                opened.seek(place)
                lines = islice(_filled_lines(opened, self.path), stop - start)
                rows = parse_lines(self.path, (line for _, line in lines), start)
                contents = line_contents(self.path, rows, self.grouping)
                columns = self._passthrough(rows, keys[0]) if passthrough else None
                yield replace(contents, passthrough=columns)

    def part_columns(self, matrix: str) -> list[PartColumns]:
        """Return the keys of all rows."""
        return [PartColumns(self.path, self._passthrough([], matrix), lambda column: iter(()))]

    def _passthrough(self, rows: list[Row], matrix: str) -> Passthrough:
        used = self.grouping.matrices[matrix]
        return Passthrough(
            {
                key: JsonColumn(values_of(key, rows), partial(self._types.get, key))
                for key in self.keys
                if key not in used
            }
        )


class _JsonTypes:
    """The type of the values of each key in all rows, inferred when it is first needed."""

    def __init__(self, file: InputFile, keys: Sequence[str]) -> None:
        self._file, self._keys = file, keys
        self._lock = threading.Lock()
        self._types: dict[str, JsonType] | None = None

    def get(self, key: str) -> JsonType:
        """Return the type that holds all values of a key; text if no other does."""
        with self._lock:
            if self._types is None:
                self._types = self._infer()
        return self._types[key]

    def _infer(self) -> dict[str, JsonType]:
        arrow, _ = import_arrow()
        types = dict.fromkeys(self._keys, JsonType(arrow.null()))
        name = self._file.name
        with self._file.open() as opened:
            lines = (line for _, line in _filled_lines(opened, name))
            while rows := parse_lines(name, islice(lines, SAMPLE_ROWS)):
                for key in self._keys:
                    values = [row.get(key) for row in rows]
                    types[key] = common_json_type([types[key], JsonType.infer(values)])
        return types


def line_contents(name: str, rows: list[Row], grouping: Grouping) -> Contents:
    """Return parsed rows as `Contents`."""
    return column_contents(
        name,
        "jsonl",
        Lazy(grouping.matrices, lambda key: matrix_of(name, key, grouping.matrices[key], rows)),
        Lazy(grouping.vectors, lambda key: vector_of(key, rows)),
        grouping,
        lambda: len(rows),
        names=grouping.class_names,
    )


def _filled_lines(file: BinaryIO, name: str) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the bytes of each line that is not empty."""
    max_bytes = limit()
    place = file.tell()
    while line := file.readline(max_bytes + 1):
        check_size(name, len(line))
        if not line.isspace():
            yield place, line.removeprefix(b"\xef\xbb\xbf")
        place += len(line)


class JsonlEncoder(Encoder):
    """One object per line: passthrough columns, prediction, probabilities, extra columns."""

    def encode(self, block: OutputBlock) -> Piece:
        """Return the lines, with the shortest digits that read back as the same numbers."""
        passed = {} if block.passthrough is None else block.passthrough.columns
        columns = [
            [(key, _json(value)) for value in column.to_json()] for key, column in passed.items()
        ]
        prediction = block.prediction.tolist()
        columns.append([("prediction", str(index)) for index in prediction])
        if self.names is not None:
            words = [_json(name) for name in self.names]
            columns.append([("prediction_name", words[index]) for index in prediction])
        for name, values in block.probabilities.items():
            columns += self._report(name, values)
        for key, values in block.extra.items():
            columns.append([(key, _json(value)) for value in np.asarray(values).tolist()])
        keys = {
            key: json.dumps(key, ensure_ascii=False) for column in columns for key, _ in column[:1]
        }
        lines = (
            "{" + ", ".join(f"{keys[key]}: {text}" for key, text in row if text is not None) + "}\n"
            for row in zip(*columns, strict=True)
        )
        return Piece("".join(lines).encode(), len(block))

    def _report(self, name: str, values: NumPyArray) -> Iterator[list[tuple[str, str | None]]]:
        digits = values.astype(np.str_)
        if self.layout == "list":
            yield [(name, f"[{', '.join(row)}]") for row in digits.tolist()]
            return
        for at, heading in enumerate(self.headings(name, values.shape[1])):
            yield [(heading, text) for text in digits[:, at].tolist()]


def _json(value: Any) -> str | None:
    """Return a value as JSON; None if the row lacks the key."""
    if value is MISSING:
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return "null"
    return json.dumps(value, ensure_ascii=False)
