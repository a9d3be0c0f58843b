"""Arrow tables, of which Parquet and Feather files are made: what lies in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, raise_first, row_error
from cordcal.files.columns import ColumnSpec, Grouping, Sort, grouped
from cordcal.files.opening import first_line


def import_arrow() -> tuple[Any, Any]:
    """Return pyarrow and its Parquet module, or say how to get them."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            "Parquet and Feather files need pyarrow; install it with: pip install "
            "'cordcal[parquet]'"
        ) from error
    return pyarrow, pyarrow.parquet


def not_readable(name: str, error: BaseException, format: str = "Parquet") -> InputError:
    """Say that a file is no whole one of its format."""
    return InputError(
        name,
        f"cannot be read as {format} ({first_line(error)})",
        "it may be cut short: write it anew",
    )


@contextmanager
def readable(name: str, format: str) -> Iterator[None]:
    """Refuse a file whose damage shows only when its columns are converted."""
    arrow, _ = import_arrow()
    try:
        yield
    except arrow.ArrowException as error:
        raise not_readable(name, error, format.capitalize()) from error


def group_fields(schema: Any, spec: ColumnSpec, where: str) -> Grouping:
    """Sort the columns of a schema out."""
    arrow, _ = import_arrow()
    if len(set(schema.names)) < len(schema.names):
        twice = next(name for name in schema.names if schema.names.count(name) > 1)
        raise InputError(where, f"has two columns called {twice!r}", "give each its own name")
    sorts = {
        field.name: _sort(arrow.types, field.type, told=field.name == spec.key) for field in schema
    }
    return grouped(sorts, spec, where)


def _sort(types: Any, kind: Any, *, told: bool) -> Sort:
    if types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind):
        # Lists of integers are tokens or spec, unless somebody says that they are scores.
        inner = kind.value_type
        is_scores = types.is_floating(inner) or (told and types.is_integer(inner))
        return "list" if is_scores else "other"
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_floating(kind):
        return "float"
    # Decimals next to floating numbers are amounts rather than scores.
    return "integer" if types.is_integer(kind) or types.is_decimal(kind) else "other"


def class_names_in(schema: Any) -> tuple[str, ...] | None:
    """Return the class names that a file's metadata hold."""
    metadata = (schema.metadata or {}).get(b"class_names")
    if metadata is None:
        return None
    try:
        return tuple(map(str, json.loads(metadata)))
    except (ValueError, TypeError, RecursionError):
        return None  # somebody else's metadata


def matrix_of(where: str, key: str, columns: tuple[str, ...], table: Any) -> npt.NDArray[Any]:
    """Return some columns of a table, or one of lists, as a matrix."""
    if columns == (key,):
        column = _whole(table.column(key))
        if hasattr(column, "flatten") and hasattr(column.type, "value_type"):
            return _list_column(where, key, column)
    return np.column_stack([vector_of(table, name) for name in columns])


def vector_of(table: Any, name: str) -> npt.NDArray[Any]:
    """Return a column as an array."""
    column = _whole(table.column(name))
    if hasattr(column.type, "index_type"):  # a category
        column = column.dictionary_decode()
    arrow, _ = import_arrow()
    if arrow.types.is_decimal(column.type):  # Arrow's own cast does not round to the nearest
        return np.array([np.nan if each is None else float(each) for each in column.to_pylist()])
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _whole(column: Any) -> Any:
    return column.combine_chunks() if hasattr(column, "combine_chunks") else column


def _list_column(name: str, key: str, column: Any) -> npt.NDArray[Any]:
    if column.null_count:
        missing = column.is_null().to_numpy(zero_copy_only=False)
        raise_first(
            row_error(missing, f"{name} ({key})", "is missing", "pass a whole vector in every row")
        )
    if hasattr(column.type, "list_size"):
        width = column.type.list_size
    else:
        lengths = np.diff(np.asarray(column.offsets))
        width = int(lengths[0]) if lengths.size else 0
        raise_first(
            row_error(
                lengths != width,
                f"{name} ({key})",
                "has another length",
                "pass whole vectors, one entry for each class in every row",
                detail=lambda row: (
                    f"has {lengths[row]} entries, the rows before it {width}: these are rows of "
                    f"different lengths"
                ),
            )
        )
    return np.asarray(column.flatten()).reshape(len(column), width)
