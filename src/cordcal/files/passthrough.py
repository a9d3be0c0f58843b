"""Passthrough columns: columns of an input table that `apply` copies to its output.

A column keeps its type from Parquet to Parquet, its text from CSV to CSV and its values from
JSONL to JSONL.  Between formats it becomes the closest type of the other one.  The parts of a
folder may differ: `PassthroughSchema` settles names, order and types over all of them.
"""

from __future__ import annotations

import datetime
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, warn
from cordcal.files.disk import first_line, import_arrow

if TYPE_CHECKING:
    import pyarrow

# Integers up to this size are exact in float64.
EXACT_INTEGERS = 2**53


class Conflict(Exception):
    """Two types, or a value and a type, that cannot be combined without loss."""


def arrow_module() -> ModuleType:
    """Return pyarrow."""
    return import_arrow()[0]


def common_type(first: pyarrow.DataType, second: pyarrow.DataType) -> pyarrow.DataType:
    """Return a type that can hold the values of two types, or raise `Conflict`.

    Whether every value converts exactly may have to be checked (`is_always_exact`).

    Examples
    --------
    >>> import pyarrow
    >>> common_type(pyarrow.int32(), pyarrow.int64())
    DataType(int64)
    >>> common_type(pyarrow.uint32(), pyarrow.int32())
    DataType(int64)
    >>> common_type(pyarrow.int64(), pyarrow.float32())
    DataType(double)
    """
    arrow, types = arrow_module(), arrow_module().types
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
        large = any(map(types.is_large_list, pair))
        return arrow.large_list(values) if large else arrow.list_(values)
    # Arrow would also make bytes of text and floating numbers of decimals.
    mixed = any(test(first) != test(second) for test in (types.is_decimal, _is_text))
    try:
        common = None if mixed or any(map(types.is_nested, pair)) else _promoted(first, second)
    except arrow.ArrowException:
        common = None
    if common is None or types.is_decimal256(common):
        raise Conflict(f"{first} and {second}")
    # Arrow would let int32 and float32 become float32, which rounds.
    rounds = types.is_floating(common) and any(map(types.is_integer, pair))
    return arrow.float64() if rounds else common


def _promoted(first: pyarrow.DataType, second: pyarrow.DataType) -> pyarrow.DataType:
    """Return the type that Arrow's own rules promote two types to."""
    arrow = arrow_module()
    schemas = [arrow.schema([("x", kind)]) for kind in (first, second)]
    return arrow.unify_schemas(schemas, promote_options="permissive").field("x").type


def _is_text(kind: pyarrow.DataType) -> bool:
    types = arrow_module().types
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_list(kind: pyarrow.DataType) -> bool:
    types = arrow_module().types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_always_exact(own: pyarrow.DataType, common: pyarrow.DataType) -> bool:
    """Whether every value of a type is the same value of its common type with another."""
    types = arrow_module().types
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
    # Times may overflow a finer unit.
    temporal = types.is_temporal(own)
    return not temporal


def check_cast(chunks: Iterator[pyarrow.Array], common: pyarrow.DataType) -> None:
    """Raise `Conflict` if a value changes when it is cast."""
    arrow = arrow_module()
    try:
        for chunk in chunks:
            chunk.cast(common)
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError) as error:
        raise Conflict(first_line(error)) from error


@dataclass(frozen=True)
class JsonType:
    """The Arrow type of JSON values, and whether some are integers beyond 2^53."""

    arrow_type: pyarrow.DataType
    has_large_integers: bool = False

    @classmethod
    def infer(cls, values: list[object]) -> JsonType:
        """Return the type of some values; text if they have no common one."""
        arrow = arrow_module()
        large = any(type(value) is int and abs(value) > EXACT_INTEGERS for value in values)
        try:
            return cls(arrow.infer_type(values), large)
        except (arrow.ArrowException, OverflowError):
            return cls(arrow.string(), large)


def common_json_type(types: Iterable[JsonType]) -> JsonType:
    """Return the type of JSON values of several types; text if none holds all of them.

    Examples
    --------
    >>> import pyarrow
    >>> integer, floating = JsonType(pyarrow.int64()), JsonType(pyarrow.float64())
    >>> common_json_type([integer, JsonType(pyarrow.null()), floating]).arrow_type
    DataType(double)
    >>> common_json_type([integer, JsonType(pyarrow.string())]).arrow_type
    DataType(string)
    """
    arrow = arrow_module()
    common, large = arrow.null(), False
    for json_type in types:
        large = large or json_type.has_large_integers
        try:
            common = _promoted(common, json_type.arrow_type)
        except arrow.ArrowException:
            common = arrow.string()
        if large and arrow.types.is_floating(common):
            common = arrow.string()
    return JsonType(common, large)


Rows = slice | npt.NDArray[np.intp]
"""Rows of a column: a slice, or their numbers."""

TextType = Literal["integer", "float", "text"]

# Formats whose columns have one type throughout.
ARROW_SUFFIXES = (".parquet", ".feather", ".arrow")


class Column(ABC):
    """One column."""

    @abstractmethod
    def take(self, rows: Rows) -> Column:
        """Return some rows."""

    @abstractmethod
    def concat(self, others: Sequence[Any]) -> Column:
        """Return the column followed by later rows of it."""

    @abstractmethod
    def missing(self, rows: int) -> Column:
        """Return a column of the same type without values."""

    @abstractmethod
    def as_type_of(self, other: Any) -> Column:
        """Return the same values in the type of another column of the same class."""

    @abstractmethod
    def to_arrow(self, name: str) -> tuple[pyarrow.Field, pyarrow.Array]:
        """Return an Arrow field and array."""

    @abstractmethod
    def to_json(self) -> list[Any]:
        """Return the values that JSON writes."""

    def to_text(self) -> list[str]:
        """Return the cells of a CSV file."""
        return [_text(value) for value in self.to_json()]


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, eq=False)
class ArrowColumn(Column):
    """A column of an Arrow table."""

    field: pyarrow.Field
    array: pyarrow.ChunkedArray

    def take(self, rows: Rows) -> ArrowColumn:
        """Return some rows; a slice is not copied."""
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self.array))
            return ArrowColumn(self.field, self.array.slice(start, stop - start))
        return ArrowColumn(self.field, self.array.take(arrow_module().array(rows)))

    def concat(self, others: Sequence[Any]) -> ArrowColumn:
        """Return the column followed by others; nothing is copied."""
        chunks = [chunk for column in (self, *others) for chunk in _chunks(column.array)]
        return ArrowColumn(self.field, arrow_module().chunked_array(chunks, type=self.field.type))

    def missing(self, rows: int) -> ArrowColumn:
        """Return nulls."""
        return ArrowColumn(self.field, arrow_module().nulls(rows, self.field.type))

    def as_type_of(self, other: ArrowColumn) -> ArrowColumn:
        """Cast the values; a value that changes is an error of Arrow."""
        array = self.array
        if array.type != other.field.type:
            array = array.cast(other.field.type)
        return ArrowColumn(other.field, array)

    def to_arrow(self, name: str) -> tuple[pyarrow.Field, pyarrow.Array]:
        """Return the field and the array as they are."""
        return self.field, self.array

    def to_json(self) -> list[Any]:
        """Return plain values; times as ISO 8601."""
        return [_json_value(value, self.field.name) for value in self.array.to_pylist()]


def _chunks(array: pyarrow.Array | pyarrow.ChunkedArray) -> list[pyarrow.Array]:
    return array.chunks if hasattr(array, "chunks") else [array]


def _json_value(value: Any, name: str) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): _json_value(item, name) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item, name) for item in value]
    if isinstance(value, bytes):
        raise InputError(
            f"the column {name!r}",
            "contains bytes, which a text format cannot store",
            "write Parquet or Feather, or omit the other columns with {option}",
            option=("passthrough", "False"),
        )
    return str(value)


@dataclass(frozen=True, eq=False)
class TextColumn(Column):
    """The cells of a CSV column as they are written; None where a part has no such column.

    ``text_type`` returns what all cells of the file can be read as.
    """

    cells: npt.NDArray[np.object_]
    text_type: Callable[[], TextType]

    @classmethod
    def from_cells(cls, cells: list[str], text_type: Callable[[], TextType]) -> TextColumn:
        """Make a column of strings."""
        array = np.empty(len(cells), dtype=object)
        array[:] = cells
        return cls(array, text_type)

    def take(self, rows: Rows) -> TextColumn:
        """Return some rows."""
        return replace(self, cells=self.cells[rows])

    def concat(self, others: Sequence[Any]) -> TextColumn:
        """Return the column followed by others."""
        return replace(
            self, cells=np.concatenate([self.cells, *(column.cells for column in others)])
        )

    def missing(self, rows: int) -> TextColumn:
        """Return cells without text."""
        return replace(self, cells=np.full(rows, None, dtype=object))

    def as_type_of(self, other: TextColumn) -> TextColumn:
        """Return the cells to be read as another column is."""
        return replace(self, text_type=other.text_type)

    def to_arrow(self, name: str) -> tuple[pyarrow.Field, pyarrow.Array]:
        """Return numbers if all cells are numbers, else text; an empty number is null."""
        arrow = arrow_module()
        types = {"integer": arrow.int64(), "float": arrow.float64(), "text": arrow.string()}
        arrow_type = types[self.text_type()]
        return arrow.field(name, arrow_type), arrow.array(self.to_json(), arrow_type)

    def to_json(self) -> list[Any]:
        """Return numbers if all cells are numbers, else text; an empty number is null."""
        text_type = self.text_type()
        if text_type == "text":
            return list(self.cells)
        parse: Any = int if text_type == "integer" else float
        return [parse(cell) if cell else None for cell in self.cells]

    def to_text(self) -> list[str]:
        """Return the cells as they were written."""
        return [cell or "" for cell in self.cells]


def text_type_of(cells: Iterable[str]) -> TextType:
    """Return the type of cells; 007 is text, because as a number it would become 7."""
    text_type: TextType = "integer"
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
        text_type = "float"
    return text_type if filled else "text"


class _Missing:
    """The value of a row that lacks a key."""

    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()


@dataclass(frozen=True, eq=False)
class JsonColumn(Column):
    """The values of a JSONL file's rows under one key.

    ``json_type`` returns the type of all of the file's values, for formats that need one.
    """

    values: npt.NDArray[np.object_]
    json_type: Callable[[], JsonType]

    def take(self, rows: Rows) -> JsonColumn:
        """Return some rows."""
        return replace(self, values=self.values[rows])

    def concat(self, others: Sequence[Any]) -> JsonColumn:
        """Return the column followed by others."""
        values = np.concatenate([self.values, *(column.values for column in others)])
        return replace(self, values=values)

    def missing(self, rows: int) -> JsonColumn:
        """Return rows without the key."""
        return replace(self, values=np.full(rows, MISSING, dtype=object))

    def as_type_of(self, other: JsonColumn) -> JsonColumn:
        """Return the values with the Arrow type of another column."""
        return replace(self, json_type=other.json_type)

    def to_arrow(self, name: str) -> tuple[pyarrow.Field, pyarrow.Array]:
        """Return values of one type; those of several types become text."""
        arrow, arrow_type = arrow_module(), self.json_type().arrow_type
        if arrow.types.is_null(arrow_type):  # formats lack a column type without values
            arrow_type = arrow.string()
        values = [None if value is MISSING else value for value in self.values]
        if arrow.types.is_string(arrow_type):
            values = [None if value is None else _text(value) for value in values]
        return arrow.field(name, arrow_type), arrow.array(values, arrow_type)

    def to_json(self) -> list[Any]:
        """Return the values, `MISSING` where a row has none."""
        values: list[Any] = self.values.tolist()
        return values

    def to_text(self) -> list[str]:
        """Return the cells of a CSV file: strings as they are, other values as JSON."""
        return ["" if value is MISSING else _text(value) for value in self.values]


class Passthrough:
    """Columns by name, in order."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self.columns = dict(columns)

    @classmethod
    def from_arrow(cls, table: pyarrow.Table, names: Iterable[str]) -> Passthrough:
        """Choose columns of an Arrow table."""
        return cls(
            {name: ArrowColumn(table.schema.field(name), table.column(name)) for name in names}
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(self.columns)

    def take(self, rows: Rows) -> Passthrough:
        """Return some rows."""
        return Passthrough({name: column.take(rows) for name, column in self.columns.items()})

    def without(self, names: Iterable[str]) -> Passthrough:
        """Return the columns except some."""
        dropped = set(names)
        return Passthrough(
            {name: column for name, column in self.columns.items() if name not in dropped}
        )

    def merge(self, other: Passthrough | None) -> Passthrough:
        """Return these columns followed by those of another table with other names."""
        if other is None:
            return self
        return Passthrough({**self.columns, **other.without(self.names).columns})


def concat(blocks: Sequence[Passthrough | None]) -> Passthrough | None:
    """Return the columns of consecutive rows as one."""
    first, *others = blocks
    if first is None or not others:
        return first
    return Passthrough(
        {
            name: column.concat([other.columns[name] for other in others if other is not None])
            for name, column in first.columns.items()
        }
    )


@dataclass(frozen=True, eq=False)
class PartColumns:
    """The passthrough columns of one part.

    Attributes
    ----------
    path : str
        The part.
    columns : Passthrough
        Its columns without rows.
    chunks : callable
        Reads one column of an Arrow file, in chunks.
    """

    path: str
    columns: Passthrough
    chunks: Callable[[str], Iterator[pyarrow.Array]]


class PassthroughSchema:
    """The passthrough columns of all parts that go into one file.

    Columns are matched by name, in the order of the first part; columns that only later parts
    have come last.  Types are unified without loss, or the parts are refused.

    Parameters
    ----------
    parts : sequence of PartColumns
        The parts, in order.
    suffix : str
        The suffix of the output.
    """

    def __init__(self, parts: Sequence[PartColumns], suffix: str) -> None:
        self._columns: dict[str, Column] = {}
        owners: dict[str, list[tuple[PartColumns, Column]]] = {}
        for part in parts:
            for name, column in part.columns.columns.items():
                owners.setdefault(name, []).append((part, column))
        for name, owner in owners.items():
            is_everywhere = len(owner) == len(parts)
            self._columns[name] = _unify(name, owner, suffix, nullable=not is_everywhere)
        keys_differ = suffix == ".jsonl" and all(
            isinstance(column, JsonColumn) for column in self._columns.values()
        )
        if not keys_differ:
            _warn_of_missing(parts, owners)

    def conform(self, block: Passthrough, rows: int) -> Passthrough:
        """Return a part's columns as those of all parts."""
        columns = block.columns
        return Passthrough(
            {
                name: columns[name].as_type_of(unified)
                if name in columns
                else unified.missing(rows)
                for name, unified in self._columns.items()
            }
        )


def _warn_of_missing(
    parts: Sequence[PartColumns], owners: Mapping[str, Sequence[tuple[PartColumns, Column]]]
) -> None:
    """Warn once of all columns that are null in some part."""
    notes = []
    for name, owner in owners.items():
        present = {part.path for part, _ in owner}
        absent = [part.path for part in parts if part.path not in present]
        if absent:
            more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
            notes.append(f"{name!r} in {absent[0]}{more}")
    if notes:
        shown = ", ".join(notes[:4]) + (f" and {len(notes) - 4} more" if len(notes) > 4 else "")
        warn(f"some parts lack a column, which is empty in their rows: {shown}")


def _unify(
    name: str, owners: Sequence[tuple[PartColumns, Column]], suffix: str, *, nullable: bool
) -> Column:
    """Return a column without rows of a type that holds the values of every part."""
    first_part, first = owners[0]
    columns: list[Any] = [column for _, column in owners]
    for part, column in owners:
        if type(column) is not type(first):
            raise InputError(
                part.path,
                f"and {first_part.path} have different formats",
                "write all parts in one format",
            )
    if isinstance(first, TextColumn):
        if suffix == ".csv":  # cells are copied as they are written
            return first
        types = {column.text_type() for column in columns}
        widest: TextType = next(kind for kind in ("text", "float", "integer") if kind in types)
        return replace(first, text_type=lambda: widest)
    if isinstance(first, JsonColumn):
        if suffix not in ARROW_SUFFIXES:
            return first
        common = common_json_type(column.json_type() for column in columns)
        return replace(first, json_type=lambda: common)
    return _unify_arrow(name, owners, nullable=nullable)


def _unify_arrow(
    name: str, owners: Sequence[tuple[PartColumns, Any]], *, nullable: bool
) -> ArrowColumn:
    first_part, first = owners[0]
    common, widest = first.field.type, first_part
    for part, column in owners[1:]:
        try:
            unified = common_type(common, column.field.type)
        except Conflict as conflict:
            raise _conflict(name, part, column.field.type, widest, common) from conflict
        if unified != common:
            common, widest = unified, part
    for part, column in owners:
        own = column.field.type
        if own == common or is_always_exact(own, common):
            continue
        try:
            check_cast(part.chunks(name), common)
        except Conflict as conflict:
            other = next(candidate for candidate, column in owners if column.field.type != own)
            raise _conflict(name, part, own, other, common, str(conflict)) from conflict
    is_nullable = nullable or any(column.field.nullable for _, column in owners)
    field = first.field.with_type(common).with_nullable(is_nullable)
    return ArrowColumn(field, arrow_module().nulls(0, common))


def _conflict(
    name: str,
    part: PartColumns,
    own: pyarrow.DataType,
    other: PartColumns,
    common: pyarrow.DataType,
    why: str = "",
) -> InputError:
    reason = f"has the column {name!r} of type {own}"
    if why:
        reason += f", which with that of {other.path} would become {common}: {why}"
    else:
        reason += f" but {other.path} of type {common}, and neither can hold the other's values"
    return InputError(
        part.path,
        reason,
        "store it as one type in all parts, write the parts to a folder, or omit the other "
        "columns with {option}",
        option=("passthrough", "False"),
    )
