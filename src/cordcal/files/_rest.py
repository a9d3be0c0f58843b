"""Columns that are passed on as they came, from one table to the next.

A column keeps its type from Parquet to Parquet, its text from CSV to CSV and its values from
JSONL to JSONL; between formats it becomes what the other one has for it.
"""

from __future__ import annotations

import datetime
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError

Rows = slice | npt.NDArray[Any]
"""Rows of a column: a slice, or their numbers."""


# Formats whose columns have one type from the first row to the last.
ARROW_SUFFIXES = (".parquet", ".feather", ".arrow")


class Column(ABC):
    """One column."""

    @abstractmethod
    def take(self, rows: Rows) -> Column:
        """Return some rows."""

    @abstractmethod
    def joined(self, others: Sequence[Any]) -> Column:
        """Return the column with the same one of later rows behind it."""

    @abstractmethod
    def arrow(self, name: str) -> Any:
        """Return an Arrow field and array."""

    @abstractmethod
    def values(self) -> list[Any]:
        """Return what JSON writes."""

    def texts(self) -> list[str]:
        """Return the cells of a CSV file."""
        return [_text(value) for value in self.values()]

    @abstractmethod
    def type_in(self, suffix: str) -> str:
        """Return the type that the column gives a file of such a name, for one of its parts."""


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, eq=False)
class ArrowColumn(Column):
    """A column of an Arrow table."""

    field: Any
    array: Any

    def take(self, rows: Rows) -> ArrowColumn:
        """Return some rows; a slice is not copied."""
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self.array))
            return ArrowColumn(self.field, self.array.slice(start, stop - start))
        return ArrowColumn(self.field, self.array.take(_arrow().array(rows)))

    def joined(self, others: Sequence[Any]) -> ArrowColumn:
        """Return the column with others behind it, nothing copied."""
        chunks = [chunk for each in (self, *others) for chunk in _chunks(each.array)]
        return ArrowColumn(self.field, _arrow().chunked_array(chunks, type=self.field.type))

    def arrow(self, name: str) -> Any:
        """Return the field and the array as they are."""
        return self.field, self.array

    def type_in(self, suffix: str) -> str:
        """Return the Arrow type: text that is made of another one looks different."""
        return str(self.field.type) + ("" if self.field.nullable else " not null")

    def values(self) -> list[Any]:
        """Return plain values; times as ISO 8601."""
        return [_plain(value, self.field.name) for value in self.array.to_pylist()]


def _chunks(array: Any) -> list[Any]:
    return array.chunks if hasattr(array, "chunks") else [array]


def _plain(value: Any, name: str) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): _plain(each, name) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, name) for each in value]
    if isinstance(value, bytes):
        raise InputError(
            f"the column {name!r}",
            "holds bytes, which text cannot",
            "write Parquet or Feather, or leave the other columns out with {option}",
            option=("rest", "False"),
        )
    return str(value)


@dataclass(frozen=True, eq=False)
class TextColumn(Column):
    """The cells of a CSV column as they are written, and what all of them can be read as."""

    cells: npt.NDArray[np.object_]
    sort: Literal["integer", "float", "text"]

    @classmethod
    def of(cls, cells: list[str]) -> TextColumn:
        """Look at all cells once: every part of the column must be of one type."""
        held = np.empty(len(cells), dtype=object)
        held[:] = cells
        return cls(held, _sort(cells))

    def take(self, rows: Rows) -> TextColumn:
        """Return some rows."""
        return TextColumn(self.cells[rows], self.sort)

    def joined(self, others: Sequence[Any]) -> TextColumn:
        """Return the column with others behind it."""
        together = np.concatenate([self.cells, *(each.cells for each in others)])
        sorts = {self.sort, *(each.sort for each in others)}
        sort = "text" if "text" in sorts else "float" if "float" in sorts else "integer"
        return TextColumn(together, sort)  # type: ignore[arg-type]

    def arrow(self, name: str) -> Any:
        """Return numbers where all cells are, else text; an empty cell is missing."""
        arrow = _arrow()
        kinds = {"integer": arrow.int64(), "float": arrow.float64(), "text": arrow.string()}
        kind = kinds[self.sort]
        return arrow.field(name, kind), arrow.array(self.values(), kind)

    def values(self) -> list[Any]:
        """Return numbers where all cells are, else text."""
        read: Any = {"integer": int, "float": float, "text": str}[self.sort]
        empty = "" if self.sort == "text" else None
        return [read(cell) if cell else empty for cell in self.cells]

    def type_in(self, suffix: str) -> str:
        """Return what the cells are; in CSV they are written as they came."""
        return self.sort if suffix in (*ARROW_SUFFIXES, ".jsonl") else "text"

    def texts(self) -> list[str]:
        """Return the cells."""
        found: list[str] = self.cells.tolist()
        return found


def _sort(cells: Iterable[str]) -> Literal["integer", "float", "text"]:
    """Tell what cells are; 007 is text, since the number 7 is written otherwise."""
    sort: Literal["integer", "float", "text"] = "integer"
    filled = False
    for cell in cells:
        if not cell:
            continue
        filled = True
        digits = cell.removeprefix("-")
        if digits.isascii() and digits.isdecimal():
            if (digits[0] == "0" and len(digits) > 1) or len(digits) > 18:
                return "text"
            continue
        try:
            float(cell)
        except ValueError:
            return "text"
        if "_" in cell or cell != cell.strip():
            return "text"
        sort = "float"
    return sort if filled else "text"


class _Missing:
    """What a row has under a key that it does not have."""

    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()


@dataclass(frozen=True, eq=False)
class ValueColumn(Column):
    """What the rows of a JSONL file have under one key.

    ``kind`` returns the Arrow type of all of the file's rows, for formats that need one.
    """

    held: npt.NDArray[np.object_]
    kind: Callable[[], Any]

    def take(self, rows: Rows) -> ValueColumn:
        """Return some rows."""
        return ValueColumn(self.held[rows], self.kind)

    def joined(self, others: Sequence[Any]) -> ValueColumn:
        """Return the column with others behind it."""
        return ValueColumn(np.concatenate([self.held, *(each.held for each in others)]), self.kind)

    def arrow(self, name: str) -> Any:
        """Return values of one type; those of several types become text."""
        arrow, kind = _arrow(), self.kind()
        values = [None if value is MISSING else value for value in self.held]
        if arrow.types.is_string(kind):
            values = [None if value is None else _text(value) for value in values]
        return arrow.field(name, kind), arrow.array(values, kind)

    def values(self) -> list[Any]:
        """Return the values, `MISSING` where a row has none."""
        found: list[Any] = self.held.tolist()
        return found

    def type_in(self, suffix: str) -> str:
        """Return the Arrow type, where the format has one; else every value has its own."""
        return str(self.kind()) if suffix in ARROW_SUFFIXES else "value"

    def texts(self) -> list[str]:
        """Return the cells of a CSV file: words as they are, the rest as JSON."""
        return ["" if value is MISSING else _text(value) for value in self.held]


class Rest:
    """Columns by their names, in order."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self.columns = dict(columns)

    @classmethod
    def of_arrow(cls, table: Any, names: Iterable[str]) -> Rest:
        """Choose columns of an Arrow table."""
        return cls(
            {name: ArrowColumn(table.schema.field(name), table.column(name)) for name in names}
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(self.columns)

    def take(self, rows: Rows) -> Rest:
        """Return some rows."""
        return Rest({name: column.take(rows) for name, column in self.columns.items()})

    def types_in(self, suffix: str) -> dict[str, str]:
        """Return the type that each column gives a file of such a name."""
        return {name: column.type_in(suffix) for name, column in self.columns.items()}

    def without(self, names: Iterable[str]) -> Rest:
        """Return the columns but for some."""
        dropped = set(names)
        return Rest({name: each for name, each in self.columns.items() if name not in dropped})

    def beside(self, other: Rest | None) -> Rest:
        """Return these columns and, behind them, those of another table with other names."""
        return (
            self if other is None else Rest({**self.columns, **other.without(self.names).columns})
        )


class SameColumns:
    """Makes the other columns of parts that go into one file those of the first part.

    Parameters
    ----------
    suffix : str
        That of the file.
    """

    def __init__(self, suffix: str) -> None:
        self.suffix = suffix
        self._first: tuple[str, dict[str, str]] | None = None
        self._checked: str | None = None

    def __call__(self, rest: Rest, path: str) -> Rest:
        """Return a part's columns in the order of the first part's; refuse others."""
        # In JSONL every row has its own keys.
        if self.suffix == ".jsonl" and all(
            isinstance(column, ValueColumn) for column in rest.columns.values()
        ):
            return rest
        if self._first is None:
            self._first, self._checked = (path, rest.types_in(self.suffix)), path
        first, types = self._first
        if path != self._checked:
            _check_types(rest.types_in(self.suffix), path, types, first)
            self._checked = path
        if rest.names == tuple(types):
            return rest
        return Rest({name: rest.columns[name] for name in types})


def _check_types(own: Mapping[str, str], path: str, types: Mapping[str, str], first: str) -> None:
    missing, extra = (
        [name for name in a if name not in b] for a, b in ((types, own), (own, types))
    )
    other = next((name for name in types if name in own and own[name] != types[name]), None)
    if missing:
        reason = f"does not have the column {missing[0]!r} of {first}"
    elif extra:
        reason = f"has the column {extra[0]!r}, which {first} does not have"
    elif other is not None:
        kinds = own[other], types[other]
        reason = f"has the column {other!r} of type {kinds[0]} but {first} of type {kinds[1]}"
    else:
        return
    raise InputError(
        path,
        reason,
        "write the parts to a folder, or leave the other columns out with {option}",
        option=("rest", "False"),
    )


def joined(parts: Sequence[Rest | None]) -> Rest | None:
    """Return the columns of consecutive rows together."""
    first, *others = parts
    if first is None or not others:
        return first
    for other in others:
        if other is not None and set(other.names) != set(first.names):
            raise InputError(
                "the parts",
                f"have different columns ({', '.join(set(other.names) ^ set(first.names))})",
                "give them the same columns, or leave the other columns out with {option}",
                option=("rest", "False"),
            )
    return Rest(
        {
            name: column.joined([other.columns[name] for other in others if other is not None])
            for name, column in first.columns.items()
        }
    )


def _arrow() -> Any:
    from cordcal.files._arrow import import_arrow

    return import_arrow()[0]
