"""JSONL files, some lines at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import BinaryIO

from cordcal.files._arrow import import_arrow
from cordcal.files._jsonl import Row, group_keys, matrix_of, parse_lines, values_of, vector_of
from cordcal.files._numpy import Lazy
from cordcal.files._unify import JsonType, common_json_type
from cordcal.files.columns import ColumnSpec, Grouping
from cordcal.files.contents import Contents, column_contents
from cordcal.files.opening import check_size, limit, no_rows
from cordcal.files.passthrough import JsonColumn, PartColumns, Passthrough
from cordcal.files.sources import SAMPLE_ROWS, Source, spans_of_rows


class Lines(Source):
    """A file with a JSON object a line.

    It is read once to find out where its rows begin and, where the other values are wanted,
    what they are called.
    """

    def __init__(self, path: str, opened: Callable[[], BinaryIO], spec: ColumnSpec) -> None:
        self.path, self._opened = path, opened
        with opened() as file:
            lines = list(islice(_filled_lines(file, path), SAMPLE_ROWS))
        if not lines:
            raise no_rows(path)
        self.head = parse_lines(path, (line for _, line in lines))
        self.grouping = group_keys(self.head, spec, path)
        # Numbers take less room than their digits do.
        size = max(8, sum(len(line) for _, line in lines) // len(lines))
        self.keys: dict[str, None] = {}
        rows, starts = 0, []
        with opened() as file:
            for start, line in _filled_lines(file, path):
                starts.append(start)
                if spec.rest:
                    self.keys |= dict.fromkeys(parse_lines(path, [line], rows)[0])
                rows += 1
        self._types = _JsonTypes(path, opened, tuple(self.keys))
        self.spans = tuple(spans_of_rows(rows, size))
        self.starts = [starts[first] for first, _ in self.spans]

    def sample(self) -> Contents:
        """Return the first rows."""
        return self._contents(self.head)

    def pieces(
        self, first: int, wanted: Sequence[str], *, rest: bool = False
    ) -> Iterator[Contents]:
        """Yield the spans' rows."""
        with self._opened() as file:
            for (start, stop), place in zip(self.spans[first:], self.starts[first:], strict=True):
                file.seek(place)
                lines = islice(_filled_lines(file, self.path), stop - start)
                rows = parse_lines(self.path, (line for _, line in lines), start)
                found = self._contents(rows)
                yield replace(found, rest=self._passthrough(rows, wanted[0])) if rest else found

    def _contents(self, rows: list[Row]) -> Contents:
        return line_contents(self.path, rows, self.grouping)

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

    def __init__(self, path: str, opened: Callable[[], BinaryIO], keys: Sequence[str]) -> None:
        self._path, self._opened, self._keys = path, opened, keys
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
        with self._opened() as file:
            lines = (line for _, line in _filled_lines(file, self._path))
            while rows := parse_lines(self._path, islice(lines, SAMPLE_ROWS)):
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
