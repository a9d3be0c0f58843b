"""The files of a table as one: columns by name, types unified without loss.

Columns are matched by their names, types are unified before the first row is read, and a column
that a file lacks is null in its rows.  Parts of folder names such as ``date=2026-11-01`` are
columns of text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from cordcal._errors import InputError, warn
from cordcal.files.arrow import FeatherFile, ParquetFile
from cordcal.files.columns import ColumnType, TextOptions
from cordcal.files.disk import InputFile, Parts, first_line
from cordcal.files.sources import Source
from cordcal.files.table_files import TableFile, TableSlice
from cordcal.files.text import CsvFile, JsonlFile, TextSource
from cordcal.files.values import JSON, encode_json, is_list, is_text

# How Spark writes a partition value that is null.
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def open_file(file: InputFile, options: TextOptions) -> TableFile:
    """Open one file; its format is recognised by its first bytes."""
    head = file.head(64)
    if head.startswith(b"PAR1"):
        return ParquetFile(file)
    if head.startswith(b"ARROW1"):
        return FeatherFile(file)
    start = TextSource(file, options).start.lstrip()
    return (JsonlFile if start[:1] in (b"{", b"[") else CsvFile)(file, options)


class Table(Source):
    """The files of a table as one.

    Attributes
    ----------
    is_json, is_text : bool
        Whether columns are JSON text, or text of any kind.
    """

    is_table = True
    files: Sequence[TableFile]

    def __init__(self, parts: Parts, files: Sequence[TableFile]) -> None:
        super().__init__(parts, files)
        filled = [file for file in files if file.names] or files[:1]
        first = filled[0]
        self.format = first.format
        self.is_json = first.format == "jsonl"
        self.is_text = first.format in ("csv", "jsonl")
        self.has_header = all(getattr(file, "has_header", True) for file in filled)
        for file in filled:
            if file.format != first.format:
                raise InputError(
                    file.path,
                    f"is a {file.format} file but {first.path} a {first.format} file",
                    "write all parts in one format",
                )
            header = getattr(file, "has_header", None)
            if header != getattr(first, "has_header", None):
                raise InputError(
                    file.path,
                    f"has {'a' if header else 'no'} header, unlike {first.path}",
                    "write a header in every part, or in none",
                )
        self._partitions = [
            {name: value for name, value in own.items() if name not in file.names}
            for file, own in zip(files, map(partition_columns, parts.relative), strict=True)
        ]
        self._fields: dict[str, pa.Field] = {}

    @property
    def names(self) -> list[str]:
        """The columns of the first file and its folder, then those that only later ones have."""
        pairs = zip(self._partitions, self.files, strict=True)
        return list(dict.fromkeys(name for own, file in pairs for name in (*own, *file.names)))

    @cached_property
    def types(self) -> dict[str, ColumnType]:
        """What each column holds; the first file with rows decides."""
        types = super().types
        return {name: types.get(name, "other") for name in self.names}

    def has_type(self, name: str) -> bool:
        """Return whether the files say if a column is text; text files and folders do not."""
        return not self.is_text and any(name in file.names for file in self.files)

    def unify(self, columns: Sequence[str]) -> None:
        """Settle names and types of columns over all files, without loss, or refuse them."""
        for file in self.files:
            if isinstance(file, JsonlFile):
                file.scan()
        owners: dict[str, list[tuple[TableFile, pa.Field]]] = {}
        for file in self.files:
            for field in file.schema:
                if field.name in columns:
                    owners.setdefault(field.name, []).append((file, field))
        filled = [file for file in self.files if file.names]
        self._fields = {
            name: unified_field(name, owner, nullable=len(owner) < len(filled))
            for name, owner in owners.items()
        }
        if not self.is_json:
            _warn_of_missing(filled, owners)

    def slices(self, columns: Sequence[str] | None) -> Iterator[tuple[int, TableSlice]]:
        """Yield the number of a file and a slice of its rows.

        Without ``columns`` all columns, with one type each if `unify` was called; JSONL rows have
        the keys that they have.
        """
        names = columns
        if columns is None and self._fields:
            names = self.names
        for at, file in enumerate(self.files):
            own = None if columns is None else [name for name in columns if name in file.names]
            for rows in file.slices(own):
                table = self._conform(rows.table, self._partitions[at], names)
                yield at, TableSlice(table, rows.path, rows.decimal)

    def _conform(
        self, table: pa.Table, partition: Mapping[str, str | None], names: Sequence[str] | None
    ) -> pa.Table:
        """Return some columns, or those that there are, with the types of the whole table."""
        if names is None and not partition:
            return table
        columns: dict[str, tuple[pa.Field, Any]] = {}
        for name in [*partition, *table.column_names] if names is None else names:
            field = self._fields.get(name)
            if name in table.column_names:
                column = table.column(name)
                field = field or table.schema.field(name)
                if field.type != column.type:
                    column = column.cast(field.type)
            elif name in partition:
                text: Any = pa.array([partition[name]], pa.string())
                field = pa.field(name, pa.string())
                if self.is_json:
                    text, field = encode_json(text), field.with_metadata(JSON)
                column = pa.repeat(text[0], len(table))
            else:
                metadata = JSON if self.is_json else None
                field = field or pa.field(name, pa.string(), metadata=metadata)
                column = pa.nulls(len(table), field.type)
            columns[name] = field, column
        if not columns:
            return table.select([])
        fields, arrays = zip(*columns.values(), strict=True)
        return pa.table(list(arrays), schema=pa.schema(fields))

    def empty(self, names: Sequence[str]) -> pa.Table:
        """Return some columns without rows."""
        fields: dict[str, pa.Field] = {}
        for file in self.files:
            fields |= {field.name: field for field in file.schema if field.name in names}
        return pa.schema([fields[name] for name in names if name in fields]).empty_table()


def partition_columns(path: str) -> dict[str, str | None]:
    """Return the columns in the folder names of a file, relative to the input's folder.

    Examples
    --------
    >>> partition_columns("date=2026-11-01/part-0.parquet")
    {'date': '2026-11-01'}
    """
    folders = Path(path).parts[:-1]
    pairs = (folder.partition("=") for folder in folders if "=" in folder)
    return {
        unquote(name): None if value == _NULL_PARTITION else unquote(value)
        for name, _, value in pairs
        if name
    }


def _warn_of_missing(
    files: Sequence[TableFile], owners: dict[str, list[tuple[TableFile, pa.Field]]]
) -> None:
    """Warn once of all columns that are null in the rows of some file."""
    notes = []
    for name, owner in owners.items():
        present = {file.path for file, _ in owner}
        absent = [file.path for file in files if file.path not in present]
        if absent:
            more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
            notes.append(f"{name!r} in {absent[0]}{more}")
    if notes:
        shown = ", ".join(notes[:4]) + (f" and {len(notes) - 4} more" if len(notes) > 4 else "")
        warn(f"some parts lack a column, which is empty in their rows: {shown}")


# Types of several files.


class _Conflict(Exception):
    """Two types, or a value and a type, that cannot be combined without loss."""


def unified_field(
    name: str, owners: Sequence[tuple[TableFile, pa.Field]], *, nullable: bool
) -> pa.Field:
    """Return a field whose type holds the values of every file, or refuse the files."""
    (widest, first), *others = owners
    common = first.type
    for file, field in others:
        try:
            unified = common_type(common, field.type)
        except _Conflict as conflict:
            raise _conflict_error(name, file, field.type, widest, common) from conflict
        if unified != common:
            common, widest = unified, file
    for file, field in owners:
        if field.type == common or is_always_exact(field.type, common):
            continue
        try:
            _check_cast(file, name, common)
        except _Conflict as conflict:
            other = next(other for other, own in owners if own.type != field.type)
            raise _conflict_error(
                name, file, field.type, other, common, str(conflict)
            ) from conflict
    is_nullable = nullable or any(field.nullable for _, field in owners)
    return first.with_type(common).with_nullable(is_nullable)


def common_type(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """Return a type for the values of two types; whether each fits may have to be checked.

    Examples
    --------
    >>> common_type(pa.int32(), pa.int64()), common_type(pa.uint32(), pa.int32())
    (DataType(int64), DataType(int64))
    >>> common_type(pa.int64(), pa.float32())
    DataType(double)
    """
    types = pa.types
    if first == second:
        return first
    for kind, other in ((first, second), (second, first)):
        if types.is_null(kind):
            return other
        if types.is_dictionary(kind):  # two files seldom have the same categories
            return common_type(kind.value_type, other)
    pair = first, second
    if all(map(is_list, pair)):
        values = common_type(first.value_type, second.value_type)
        is_large = any(map(types.is_large_list, pair))
        return pa.large_list(values) if is_large else pa.list_(values)
    # Arrow would also make bytes of text and floating numbers of decimals.
    is_mixed = any(test(first) != test(second) for test in (types.is_decimal, is_text))
    common = None
    if not is_mixed and not any(map(types.is_nested, pair)):
        schemas = [pa.schema([("x", kind)]) for kind in pair]
        try:
            common = pa.unify_schemas(schemas, promote_options="permissive").field("x").type
        except pa.ArrowException:
            common = None
    if common is None or types.is_decimal256(common):
        raise _Conflict(f"{first} and {second}")
    # Arrow would let int32 and float32 become float32, which rounds.
    rounds = types.is_floating(common) and any(map(types.is_integer, pair))
    return pa.float64() if rounds else common


def is_always_exact(own: pa.DataType, common: pa.DataType) -> bool:
    """Whether every value of a type is the same value of its common type with another."""
    types = pa.types
    if types.is_dictionary(own):
        own = own.value_type
    if own == common or types.is_null(own):
        return True
    if types.is_integer(own) and types.is_floating(common):
        return bool(own.bit_width <= 32)
    if types.is_integer(own) and types.is_integer(common):
        return bool(own.bit_width < common.bit_width or types.is_signed_integer(own))
    if is_list(own):
        return is_always_exact(own.value_type, common.value_type)
    return not types.is_temporal(own)  # times may overflow a finer unit


def _check_cast(file: TableFile, name: str, common: pa.DataType) -> None:
    """Raise `_Conflict` if a value of a file changes when it is cast."""
    try:
        for table in file.tables([name]):
            table.column(0).cast(common)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _Conflict(first_line(error)) from error


def _conflict_error(
    name: str,
    file: TableFile,
    own: pa.DataType,
    other: TableFile,
    common: pa.DataType,
    why: str = "",
) -> InputError:
    reason = f"has the column {name!r} of type {own}"
    if why:
        reason += f", which with that of {other.path} would become {common}: {why}"
    else:
        reason += f" but {other.path} of type {common}, and neither can hold the other's values"
    return InputError(
        file.path,
        reason,
        "store it as one type in all parts, write the parts to a folder, or omit the other "
        "columns with {option}",
        option=("passthrough", "False"),
    )
