"""One file of a table, and its columns as arrays."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cordcal._errors import InputError, raise_first, row_error
from cordcal._numeric.types import Kind, NumPyArray, NumPyDType
from cordcal.files.base import ColumnFile
from cordcal.files.columns import KIND, ColumnType, is_number, list_names
from cordcal.files.values import (
    JSON,
    WrongCell,
    as_array,
    combined,
    decode_json,
    is_list,
    is_text,
    parse_lists,
    parse_numbers,
)


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
        """Return a column of numbers."""
        column, field = self.table.column(name), self.table.schema.field(name)
        if not is_text(field.type):
            return as_array(column)
        is_json = field.metadata == JSON
        try:
            return parse_numbers(combined(column), is_json=is_json, decimal=self.decimal)
        except WrongCell as wrong:
            hint = "write a number, or leave the cell empty"
            option = None
            if "," in wrong.text and is_number(wrong.text.replace(",", ".")):
                hint, option = "for numbers with a decimal comma pass {option}", ("decimal", ",")
            raise InputError(
                f"{self.path} ({name})",
                "has text in a column of numbers",
                hint,
                rows=[wrong.row],
                detail=f"has {wrong.text!r} in a column of numbers",
                option=option,
            ) from None

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
