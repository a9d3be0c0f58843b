"""JSONL files, some lines at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, BinaryIO

from cordcal.files._arrow import import_arrow
from cordcal.files._columns import Grouping
from cordcal.files._contents import Contents, column_contents
from cordcal.files._jsonl import Row, group_keys, matrix_of, parse_lines, values_of, vector_of
from cordcal.files._numpy import Lazy
from cordcal.files._opening import check_size, limit, no_rows
from cordcal.files._places import Places
from cordcal.files._rest import Rest, ValueColumn
from cordcal.files._sources import SAMPLE_ROWS, Source, spans_of_rows


class Lines(Source):
    """A file with a JSON object a line.

    It is read once to find out where its rows begin and, where the other values are wanted,
    what they are called.
    """

    def __init__(self, path: str, opened: Callable[[], BinaryIO], places: Places) -> None:
        self.path, self._opened = path, opened
        self._typing = threading.Lock()
        self._types: dict[str, Any] | None = None
        with opened() as file:
            lines = list(islice(_filled_lines(file, path), SAMPLE_ROWS))
        if not lines:
            raise no_rows(path)
        self.head = parse_lines(path, (line for _, line in lines))
        self.grouping = group_keys(self.head, places, path)
        # Numbers take less room than their digits do.
        size = max(8, sum(len(line) for _, line in lines) // len(lines))
        self.keys: dict[str, None] = {}
        rows, starts = 0, []
        with opened() as file:
            for start, line in _filled_lines(file, path):
                starts.append(start)
                if places.rest:
                    self.keys |= dict.fromkeys(parse_lines(path, [line], rows)[0])
                rows += 1
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
                yield replace(found, rest=self._rest(rows, wanted[0])) if rest else found

    def _contents(self, rows: list[Row]) -> Contents:
        return line_contents(self.path, rows, self.grouping)

    def _rest(self, rows: list[Row], matrix: str) -> Rest:
        taken = self.grouping.matrices[matrix]
        return Rest(
            {
                key: ValueColumn(values_of(key, rows), lambda key=key: self._type(key))  # type: ignore[misc]
                for key in self.keys
                if key not in taken
            }
        )

    def _type(self, key: str) -> Any:
        """Return the Arrow type of a value in all rows, text where there is none."""
        with self._typing:
            if self._types is None:
                self._types = self._infer()
        return self._types[key]

    def _infer(self) -> dict[str, Any]:
        arrow, _ = import_arrow()
        found: dict[str, Any] = dict.fromkeys(self.keys, arrow.null())
        with self._opened() as file:
            lines = (line for _, line in _filled_lines(file, self.path))
            while rows := parse_lines(self.path, islice(lines, SAMPLE_ROWS)):
                for key in self.keys:
                    found[key] = _together(arrow, found[key], [row.get(key) for row in rows])
        # A column without any value: text holds nothing as well as another type.
        return {
            key: arrow.string() if kind == arrow.null() else kind for key, kind in found.items()
        }


def _together(arrow: Any, kind: Any, values: list[Any]) -> Any:
    """Return a type for what was seen and some more values."""
    try:
        schemas = [arrow.schema([("x", each)]) for each in (kind, arrow.infer_type(values))]
        return arrow.unify_schemas(schemas, promote_options="permissive").field("x").type
    except (arrow.ArrowException, OverflowError):
        return arrow.string()


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
