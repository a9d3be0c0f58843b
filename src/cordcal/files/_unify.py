"""Common Arrow types that hold the values of several types exactly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from cordcal.files.opening import first_line, import_arrow

_UNITS = ("s", "ms", "us", "ns")
# Integers up to this size are exact in float64.
EXACT_INTEGERS = 2**53


class Conflict(Exception):
    """Two types, or a value and a type, that cannot be combined without loss."""


def arrow_module() -> Any:
    """Return pyarrow."""
    return import_arrow()[0]


def common_type(first: Any, second: Any) -> Any:
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
    if all(map(types.is_integer, pair)):
        return _common_integer(*pair)
    if all(types.is_integer(kind) or types.is_floating(kind) for kind in pair):
        wide = any(types.is_integer(kind) or kind.bit_width == 64 for kind in pair)
        return arrow.float64() if wide else arrow.float32()
    if all(map(types.is_decimal, pair)):
        return _common_decimal(*pair)
    if all(types.is_string(kind) or types.is_large_string(kind) for kind in pair):
        return arrow.large_string()
    if all(map(_is_binary, pair)):
        large = any(map(types.is_large_binary, pair))
        return arrow.large_binary() if large else arrow.binary()
    if all(map(types.is_timestamp, pair)) and first.tz == second.tz:
        return arrow.timestamp(_finer(*pair), first.tz)
    if all(map(types.is_duration, pair)):
        return arrow.duration(_finer(*pair))
    if all(map(types.is_time, pair)):
        unit = _finer(*pair)
        return arrow.time32(unit) if unit in ("s", "ms") else arrow.time64(unit)
    if all(map(types.is_date, pair)):
        return arrow.date64()
    if all(map(_is_list, pair)):
        values = common_type(first.value_type, second.value_type)
        large = any(map(types.is_large_list, pair))
        return arrow.large_list(values) if large else arrow.list_(values)
    raise Conflict(f"{first} and {second}")


def _common_integer(first: Any, second: Any) -> Any:
    arrow, types = arrow_module(), arrow_module().types
    if types.is_signed_integer(first) == types.is_signed_integer(second):
        return max(first, second, key=lambda kind: kind.bit_width)
    unsigned = first if types.is_unsigned_integer(first) else second
    # A signed type needs one bit more; of 64 bits each value is checked.
    bits = max(first.bit_width, second.bit_width, min(2 * unsigned.bit_width, 64))
    return {16: arrow.int16(), 32: arrow.int32(), 64: arrow.int64()}[bits]


def _common_decimal(first: Any, second: Any) -> Any:
    scale = max(first.scale, second.scale)
    digits = max(first.precision - first.scale, second.precision - second.scale)
    if scale + digits > 38:
        raise Conflict(f"{first} and {second}")
    return arrow_module().decimal128(scale + digits, scale)


def _finer(first: Any, second: Any) -> str:
    units: tuple[str, str] = (first.unit, second.unit)
    return max(units, key=_UNITS.index)


def _is_binary(kind: Any) -> bool:
    types = arrow_module().types
    return bool(
        types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    )


def _is_list(kind: Any) -> bool:
    types = arrow_module().types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_always_exact(own: Any, common: Any) -> bool:
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


def check_cast(chunks: Iterator[Any], common: Any) -> None:
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

    arrow_type: Any
    has_large_integers: bool = False

    @classmethod
    def infer(cls, values: list[Any]) -> JsonType:
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
            schemas = [arrow.schema([("x", kind)]) for kind in (common, json_type.arrow_type)]
            unified = arrow.unify_schemas(schemas, promote_options="permissive")
            common = unified.field("x").type
        except arrow.ArrowException:
            common = arrow.string()
        if large and arrow.types.is_floating(common):
            common = arrow.string()
    return JsonType(common, large)
