"""Columns of Arrow as numbers, lists and text; text as JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cordcal._numeric.types import NumPyArray

JSON = {b"text": b"json"}
"""Metadata of a column whose text is JSON."""
NUMBERS = {float, type(None)}


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is text, of any length."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is lists, of any length."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def size_of(batch: pa.RecordBatch | pa.Table) -> int:
    """Return the bytes of some rows; of views of text, whose parts Arrow does not measure, all."""
    try:
        return int(batch.nbytes)
    except pa.ArrowException:
        return int(batch.get_total_buffer_size())


def combined(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def without_views(kind: pa.DataType) -> pa.DataType:
    """Return the usual type for the same values: views, as polars writes them, become text."""
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_dictionary(kind):
        plain = without_views(kind.value_type)
        return kind if plain == kind.value_type else plain
    return without_views(kind.storage_type) if isinstance(kind, pa.ExtensionType) else kind


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of a column of categories."""
    kind = without_views(column.type.value_type)
    chunks = [chunk.dictionary.cast(kind).take(chunk.indices) for chunk in column.chunks]
    return pa.chunked_array(chunks, kind)


def as_array(column: pa.ChunkedArray) -> NumPyArray:
    """Return a column as an array."""
    if pa.types.is_dictionary(column.type):
        column = decoded(column)
    if pa.types.is_decimal(column.type):  # Arrow's own cast does not round to the nearest
        values = column.to_pylist()
        return np.array([np.nan if value is None else float(value) for value in values], float)
    return np.asarray(column.to_numpy())


def parse_lists(column: pa.Array) -> list[Any]:
    """Return JSON text as lists of numbers; None where a value is not one."""
    return [
        value if isinstance(value, list) and set(map(type, value)) <= NUMBERS else None
        for value in parse_json(column)
    ]


def parse_json(column: pa.Array) -> list[Any]:
    """Return JSON text as values; numbers are floats, and text that is not JSON stays text."""
    texts = [text or "null" for text in column.to_pylist()]
    try:
        values: list[Any] = json.loads(f"[{','.join(texts)}]", parse_int=float)
    except ValueError:
        values = [_value_or_text(text) for text in texts]
    return values


def _value_or_text(text: str) -> Any:
    try:
        return json.loads(text, parse_int=float)
    except ValueError:
        return text


def decode_json(column: pa.Array) -> pa.Array:
    """Return JSON text as plain text: strings without quotes, null as null, others as written."""
    is_null = pc.equal(column, "null")
    if pc.any(is_null).as_py():
        column = pc.if_else(is_null, pa.scalar(None, pa.string()), column)
    quoted = pc.starts_with(column, '"')
    if not pc.any(quoted).as_py():
        return column
    if pc.any(pc.match_substring(column, "\\")).as_py():
        texts = column.to_pylist()
        return pa.array([json.loads(text) if text and text[0] == '"' else text for text in texts])
    return pc.if_else(quoted, pc.utf8_trim(column, '"'), column)


def encode_json(column: pa.Array) -> pa.Array:
    """Return text as JSON strings."""
    if pc.any(pc.match_substring_regex(column, r'["\\\x00-\x1f]')).as_py():
        encode = json.encoder.encode_basestring
        return pa.array(
            [None if text is None else encode(text) for text in column.to_pylist()], pa.string()
        )
    quote = pa.scalar('"')
    return pc.binary_join_element_wise(quote, column, quote, "")
