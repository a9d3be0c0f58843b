"""Tables: one file, some rows of it, and all files as one.

Columns are matched by their names, types are unified before the first row is read, and a column
that a file lacks is null in its rows.  Parts of folder names such as ``date=2026-11-01`` are
columns of text.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cordcal._errors import InputError, raise_first, row_error, warn
from cordcal._numeric.types import Kind, NumPyArray, NumPyDType
from cordcal.files.columns import KIND, MISSING, ColumnType, TextOptions, is_number, list_names
from cordcal.files.disk import InputFile, Parts, first_line
from cordcal.files.sources import ColumnFile, Source
from cordcal.files.values import (
    JSON,
    NUMBERS,
    as_array,
    combined,
    decode_json,
    encode_json,
    is_list,
    is_text,
    parse_json,
    parse_lists,
)

# Formats whose files have bytes even without rows.
_NEVER_EMPTY = (".parquet", ".feather", ".arrow", ".npz", ".npy", ".h5", ".hdf5", ".pt", ".pth")
# How Spark writes a partition value that is null.
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


class TableFile(ColumnFile):
    """One file of a table.

    Attributes
    ----------
    schema : Schema
        Its columns.
    rows : int or None
        How many rows it has; None if that is not known before it is read.
    decimal : str
        The decimal separator of numbers in text.
    """

    schema: pa.Schema
    rows: int | None = None
    decimal = "."
    identifiers: Sequence[ColumnType] = ("text", "integer")

    @abstractmethod
    def tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield some columns, or all, in slices of rows."""

    @property
    def types(self) -> Mapping[str, ColumnType]:
        """What each column holds."""
        return {field.name: _column_type(field.type) for field in self.schema}

    @property
    def names(self) -> Sequence[str]:
        """The columns."""
        names: list[str] = self.schema.names
        return names

    @property
    def kind(self) -> Kind | None:
        """What the file states that its scores are."""
        stored = (self.schema.metadata or {}).get(KIND.encode(), b"").decode()
        return stored if stored in ("logits", "probabilities") else None

    @property
    def has_rows(self) -> bool:
        """Whether there is a row."""
        return bool(self.rows)

    def listed(self) -> str:
        """Return the columns, for messages."""
        return list_names(self.names)

    def dtype(self, columns: Sequence[str]) -> NumPyDType:
        """Return the dtype of the scores in some columns."""
        dtypes = []
        for name in columns:
            kind = self.schema.field(name).type if name in self.names else pa.null()
            kind = kind.value_type if is_list(kind) else kind
            is_plain = pa.types.is_floating(kind) or pa.types.is_integer(kind)
            dtypes.append(np.dtype(kind.to_pandas_dtype() if is_plain else np.float64))
        return np.result_type(*set(dtypes))

    def width(self, columns: Sequence[str]) -> int | None:
        """Return the number of classes; of a column of lists only the rows show it."""
        return len(columns) if len(columns) > 1 else None

    def count(self, columns: Sequence[str]) -> int | None:
        """Return the number of rows; None if it is not known before they are read."""
        return self.rows

    def scan(self) -> None:
        """Read what the schema needs to be complete."""

    def slices(self, columns: Sequence[str] | None) -> Iterator[TableSlice]:
        """Yield some columns, or all, in slices of rows."""
        for table in self.tables(columns):
            yield TableSlice(table, self.path, self.decimal)


def check_names(path: str, names: Sequence[str]) -> None:
    """Refuse a name that occurs twice."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(path, f"has two columns called {twice!r}", "give each its own name")


def _column_type(kind: pa.DataType) -> ColumnType:
    types = pa.types
    if is_list(kind):
        inner = kind.value_type
        # Lists of integers are scores only if the caller names them.
        is_floating, is_integer = types.is_floating(inner), types.is_integer(inner)
        return "list" if is_floating else "integer list" if is_integer else "other"
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_floating(kind):
        return "float"
    # Decimals next to floating numbers are amounts rather than scores.
    if types.is_integer(kind) or types.is_decimal(kind):
        return "integer"
    return "text" if is_text(kind) else "other"


@dataclass(frozen=True, eq=False)
class TableSlice:
    """Some rows of a table, and the file that they are from."""

    table: pa.Table
    path: str
    decimal: str = "."

    def __len__(self) -> int:
        return len(self.table)

    def matrix(self, columns: Sequence[str]) -> NumPyArray:
        """Return columns of numbers, or one of lists, as a matrix; null is NaN."""
        if len(columns) == 1:
            return self._list_matrix(columns[0])
        vectors = [self.numbers(name) for name in columns]
        matrix = np.empty((len(self), len(columns)), np.result_type(*{v.dtype for v in vectors}))
        for at, vector in enumerate(vectors):
            matrix[:, at] = vector
        return matrix

    def numbers(self, name: str) -> NumPyArray:
        """Return a column of numbers; of text, empty cells, NA and null are NaN."""
        column, field = self.table.column(name), self.table.schema.field(name)
        if not is_text(field.type):
            return as_array(column)
        texts = combined(column)
        if field.metadata == JSON:
            values = parse_json(texts)
            row = next((at for at, value in enumerate(values) if type(value) not in NUMBERS), None)
            if row is None:
                return np.array(values, dtype=np.float64)
        else:
            cells = pc.utf8_trim_whitespace(texts)
            if self.decimal == ",":
                cells = pc.replace_substring(cells, ",", ".")
            try:
                return np.asarray(pc.cast(cells, pa.float64()).to_numpy(zero_copy_only=False))
            except pa.ArrowInvalid:
                missing = pc.is_in(cells, pa.array(MISSING))
                cells = pc.if_else(missing, pa.scalar(None, pa.string()), cells)
            try:
                return np.asarray(pc.cast(cells, pa.float64()).to_numpy(zero_copy_only=False))
            except pa.ArrowInvalid:
                words = enumerate(cells.to_pylist())
                row = next((at for at, word in words if word and not is_number(word)), 0)
        raise self._no_number_error(name, row, texts[row].as_py())

    def _no_number_error(self, name: str, row: int, text: str) -> InputError:
        hint, option = "write a number, or leave the cell empty", None
        if "," in text and is_number(text.replace(",", ".")):
            hint, option = "for numbers with a decimal comma pass {option}", ("decimal", ",")
        return InputError(
            f"{self.path} ({name})",
            "has text in a column of numbers",
            hint,
            rows=[row],
            detail=f"has {text!r} in a column of numbers",
            option=option,
        )

    def values(self, name: str) -> NumPyArray:
        """Return a column of words or numbers: of text, what is written there."""
        column, field = self.table.column(name), self.table.schema.field(name)
        if field.metadata == JSON and is_text(field.type):
            column = pa.chunked_array([decode_json(combined(column))])
        return as_array(column)

    def _list_matrix(self, name: str) -> NumPyArray:
        where, column = f"{self.path} ({name})", combined(self.table.column(name))
        hint = "pass whole vectors, one entry for each class in every row"
        lists = parse_lists(column) if is_text(column.type) else None
        if lists is not None:
            lengths = np.array([-1 if value is None else len(value) for value in lists])
        else:
            lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
        width = int(lengths[0]) if len(lengths) else 0
        raise_first(
            row_error(lengths < 0, where, "is missing, or not a list of numbers", hint),
            row_error(
                (lengths >= 0) & (lengths != max(width, 0)),
                where,
                "has another length",
                hint,
                detail=lambda row: f"has {lengths[row]} entries, the rows before it {width}",
            ),
        )
        if lists is not None:
            return np.array(lists, dtype=np.float64).reshape(len(self), width)
        matrix: NumPyArray = np.asarray(column.flatten().to_numpy(zero_copy_only=False))
        return matrix.reshape(len(self), width)


def open_file(file: InputFile, options: TextOptions) -> TableFile:
    """Open one file; its format is recognised by its first bytes."""
    from cordcal.files.arrow import FeatherFile, ParquetFile
    from cordcal.files.text import CsvFile, JsonlFile, TextSource

    head = file.head
    suffix = Path(file.name).suffix.lower()
    if not head and suffix in _NEVER_EMPTY:
        hint = "write it again: an interrupted program leaves such files"
        raise InputError(file.name, f"is empty, which a {suffix} file never is", hint)
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
        self._metadata = JSON if self.is_json else None
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
            {name: self._text(value) for name, value in own.items() if name not in file.names}
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
        owners: dict[str, list[tuple[TableFile, pa.Field]]] = {}
        for file in self.files:
            file.scan()
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

    def _text(self, value: str | None) -> pa.Scalar:
        """Return a value of a folder name."""
        text = pa.array([value], pa.string())
        return (encode_json(text) if self.is_json else text)[0]

    def _conform(
        self, table: pa.Table, partition: Mapping[str, pa.Scalar], names: Sequence[str] | None
    ) -> pa.Table:
        """Return some columns, or those that there are, with the types of the whole table."""
        if names is None and not partition:
            return table
        columns: dict[str, Any] = {
            **{name: pa.repeat(text, len(table)) for name, text in partition.items()},
            **dict(zip(table.column_names, table.columns, strict=True)),
        }
        fields = {name: pa.field(name, pa.string(), metadata=self._metadata) for name in partition}
        fields |= {field.name: field for field in table.schema} | self._fields
        chosen = [
            fields.get(name, pa.field(name, pa.string(), metadata=self._metadata))
            for name in (columns if names is None else names)
        ]
        arrays = [
            columns[field.name].cast(field.type)
            if field.name in columns
            else pa.nulls(len(table), field.type)
            for field in chosen
        ]
        return pa.table(arrays, schema=pa.schema(chosen)) if chosen else table.select([])

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


def unified_field(
    name: str, owners: Sequence[tuple[TableFile, pa.Field]], *, nullable: bool
) -> pa.Field:
    """Return a field whose type holds the values of every file, or refuse the files."""
    (widest, first), *others = owners
    common = first.type
    for file, field in others:
        unified = common_type(common, field.type)
        if unified is None:
            why = f" but {widest.path} of type {common}, and neither can hold the other's values"
            raise _conflict_error(name, file, field.type, why)
        if unified != common:
            common, widest = unified, file
    for file, field in owners:
        if field.type == common:
            continue
        try:
            for table in file.tables([name]):
                table.column(0).cast(common)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            other = next(other for other, own in owners if own.type != field.type)
            why = f", which with that of {other.path} would become {common}: {first_line(error)}"
            raise _conflict_error(name, file, field.type, why) from error
    is_nullable = nullable or any(field.nullable for _, field in owners)
    return first.with_type(common).with_nullable(is_nullable)


def common_type(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """Return a type for the values of two types, each of which has to be checked; None if none.

    Examples
    --------
    >>> common_type(pa.int32(), pa.int64()), common_type(pa.uint32(), pa.int32())
    (DataType(int64), DataType(int64))
    >>> common_type(pa.int64(), pa.float32())
    DataType(double)
    """
    types = pa.types
    if first == second or types.is_null(second):
        return first
    if types.is_null(first):
        return second
    # Two files seldom have the same categories.
    pair = [kind.value_type if types.is_dictionary(kind) else kind for kind in (first, second)]
    if all(map(is_list, pair)):
        values = common_type(*(kind.value_type for kind in pair))
        make = pa.large_list if any(map(types.is_large_list, pair)) else pa.list_
        return None if values is None else make(values)
    # Arrow would also make bytes of text and floating numbers of decimals.
    is_mixed = any(len(set(map(test, pair))) > 1 for test in (types.is_decimal, is_text))
    if is_mixed or any(map(types.is_nested, pair)):
        return None
    schemas = [pa.schema([("x", kind)]) for kind in pair]
    try:
        common = pa.unify_schemas(schemas, promote_options="permissive").field("x").type
    except pa.ArrowException:
        return None
    # Arrow would let int32 and float32 become float32, which rounds.
    rounds = types.is_floating(common) and any(map(types.is_integer, pair))
    return None if types.is_decimal256(common) else pa.float64() if rounds else common


def _conflict_error(name: str, file: TableFile, own: pa.DataType, why: str) -> InputError:
    return InputError(
        file.path,
        f"has the column {name!r} of type {own}{why}",
        "store it as one type in all parts, write the parts to a folder, or omit the other "
        "columns with {option}",
        option=("passthrough", "False"),
    )
