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
from cordcal.files._unify import JsonType, common_json_type
from cordcal.files.columns import ColumnSpec, Grouping, Sort, grouped
from cordcal.files.contents import Contents, Lazy, column_contents
from cordcal.files.encoding import Encoder, OutputBlock, Piece
from cordcal.files.opening import InputFile, check_size, import_arrow, limit, no_rows
from cordcal.files.passthrough import MISSING, JsonColumn, PartColumns, Passthrough
from cordcal.files.sources import SAMPLE_ROWS, Source, Span, split_rows

Row = dict[str, Any]
# What a number may be; null is NaN, and a truth value is not a number.
_NUMBERS = {int, float, type(None)}


def starts_json(head: bytes) -> bool:
    """Whether a file that begins so is JSON."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")


def parse_lines(name: str, lines: Iterable[bytes], first: int = 0) -> list[Row]:
    """Return the objects of some lines, of which ``first`` is the number of the first."""
    rows: list[Row] = []
    with renumber_rows(first):
        for line in lines:
            if not line.isspace():
                rows.append(_object(name, line, len(rows)))
    return rows


def _object(name: str, line: bytes, at: int) -> Row:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InputError(
            name,
            "is no JSON object",
            'write one object on each line, such as {"id": 7, "logits": [0.2, 1.3]}',
            rows=[at],
        )
    return found


def group_keys(rows: Sequence[Row], spec: ColumnSpec, where: str) -> Grouping:
    """Sort the keys of some rows out; those that later rows add are passed on only."""
    first: dict[str, Any] = {}
    for row in rows:
        for key, value in row.items():
            if first.get(key) is None:
                first[key] = value
    return grouped({key: _sort(value) for key, value in first.items()}, spec, where)


def _sort(value: Any) -> Sort:
    if isinstance(value, list):
        return "list" if value and all(_is_number(each) for each in value) else "other"
    return "float" if _is_number(value) else "other"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def matrix_of(
    where: str, key: str, columns: tuple[str, ...], rows: Sequence[Row]
) -> npt.NDArray[np.float64]:
    """Return lists, or some numbers of each row, as a matrix; null is NaN."""
    if columns == (key,):
        return _lists(where, key, rows)
    return np.column_stack([_numbers(where, column, rows) for column in columns])


def _lists(where: str, key: str, rows: Sequence[Row]) -> npt.NDArray[np.float64]:
    held = [row.get(key) for row in rows]
    width = len(held[0]) if held and isinstance(held[0], list) else 0
    for at, each in enumerate(held):
        if not isinstance(each, list) or len(each) != width:
            entries = None
            if isinstance(each, list):
                entries = f"has {len(each)} entries, the rows before it {width}"
            raise InputError(
                f"{where} ({key})",
                "is no list of one length",
                "pass whole vectors, one entry for each class in every row",
                rows=[at],
                detail=entries or "is missing",
            )
    return _floats(f"{where} ({key})", held).reshape(len(held), width)


def _numbers(where: str, key: str, rows: Sequence[Row]) -> npt.NDArray[np.float64]:
    return _floats(f"{where} ({key})", [row.get(key) for row in rows])


def _floats(where: str, held: list[Any]) -> npt.NDArray[np.float64]:
    """Return numbers, or lists of them, as an array; NumPy alone would read true and "1" too."""
    in_lists = bool(held) and isinstance(held[0], list)
    entries = chain.from_iterable(held) if in_lists else held
    if set(map(type, entries)) <= _NUMBERS:
        try:
            return np.array(held, dtype=np.float64)
        except OverflowError:
            pass  # an integer beyond all floats
    raise _no_number(where, held, in_lists=in_lists)


def _no_number(where: str, held: list[Any], *, in_lists: bool) -> InputError:
    """Name the first entry that is not a number."""
    for at, row in enumerate(held):
        entries = row if in_lists else [row]
        for column, value in enumerate(entries):
            if type(value) not in _NUMBERS or _is_beyond(value):
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


def _is_beyond(value: Any) -> bool:
    try:
        float(0 if value is None else value)
    except OverflowError:
        return True
    return False


def vector_of(key: str, rows: Sequence[Row]) -> npt.NDArray[Any]:
    """Return a value of each row: numbers, or else words; null is NaN among numbers."""
    held = [row.get(key) for row in rows]
    kinds = set(map(type, held))
    if kinds <= _NUMBERS or kinds == {bool}:
        for dtype in (np.int64, np.float64) if kinds <= {int, bool} else (np.float64,):
            try:
                return np.array(held, dtype=dtype)
            except OverflowError:
                continue  # larger than any number of this kind
    return np.array([each if isinstance(each, str) else json.dumps(each) for each in held])


def values_of(key: str, rows: Sequence[Row]) -> npt.NDArray[np.object_]:
    """Return a value of each row as it is."""
    column = np.empty(len(rows), dtype=object)
    for at, row in enumerate(rows):  # all at once, lists would become a matrix
        column[at] = row.get(key, MISSING)
    return column


class LineSource(Source):
    """A file with a JSON object per line.

    It is read once to find where its rows begin and, if the other values are wanted, their keys.
    """

    def __init__(self, file: InputFile, spec: ColumnSpec) -> None:
        self._file, self.path = file, file.name
        with file.open() as opened:
            lines = list(islice(_filled_lines(opened, self.path), SAMPLE_ROWS))
        if not lines:
            raise no_rows(self.path)
        self.head = parse_lines(self.path, (line for _, line in lines))
        self.grouping = group_keys(self.head, spec, self.path)
        # Numbers take less room than their digits do.
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
        taken = self.grouping.matrices[matrix]
        return Passthrough(
            {
                key: JsonColumn(values_of(key, rows), partial(self._types.get, key))
                for key in self.keys
                if key not in taken
            }
        )


class _JsonTypes:
    """The type of the values of each key in all rows, inferred when it is first needed."""

    def __init__(self, file: InputFile, keys: Sequence[str]) -> None:
        self._file, self._keys = file, keys
        self._lock = threading.Lock()
        self._types: dict[str, JsonType] | None = None

    def get(self, key: str) -> JsonType:
        """Return a type; text if there is no other that holds all values."""
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
    """Name what lies in some rows."""
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
    """Yield the lines that are not empty, and where each begins."""
    most = limit()
    place = file.tell()
    while line := file.readline(most + 1):
        check_size(name, len(line))
        if not line.isspace():
            yield place, line.removeprefix(b"\xef\xbb\xbf")
        place += len(line)


class JsonlEncoder(Encoder):
    """An object a line: what is passed on, the decision, the reports, and the rest."""

    def encode(self, block: OutputBlock) -> Piece:
        """Return the lines, with the shortest digits that read back as the same numbers."""
        passed = {} if block.passthrough is None else block.passthrough.columns
        columns = [
            [(key, _json(value)) for value in column.to_json()] for key, column in passed.items()
        ]
        decision = block.decision.tolist()
        columns.append([("decision", str(index)) for index in decision])
        if self.names is not None:
            words = [_json(name) for name in self.names]
            columns.append([("decision_name", words[index]) for index in decision])
        for report, values in block.reports.items():
            columns += self._report(report, values)
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

    def _report(
        self, report: str, values: npt.NDArray[Any]
    ) -> Iterator[list[tuple[str, str | None]]]:
        digits = values.astype(np.str_)
        if self.layout == "list":
            yield [(report, f"[{', '.join(row)}]") for row in digits.tolist()]
            return
        for at, heading in enumerate(self.headings(report, values.shape[1])):
            yield [(heading, text) for text in digits[:, at].tolist()]


def _json(value: Any) -> str | None:
    """Return a value as JSON; None where a row has none."""
    if value is MISSING:
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return "null"
    return json.dumps(value, ensure_ascii=False)
