"""Lines of JSON, an object a row: what lies in them, read in pieces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, renumber_rows
from cordcal.files.columns import ColumnSpec, Grouping, Sort, grouped
from cordcal.files.passthrough import MISSING

Row = dict[str, Any]
# What a number may be; null is NaN, and a truth value is not a number.
_NUMBERS = {int, float, type(None)}


def starts_json(head: bytes) -> bool:
    """Whether a file that begins so is JSON."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")


def parse_lines(name: str, lines: Iterable[bytes], first: int = 0) -> list[Row]:
    """Return the objects of some lines, of which ``first`` is the number of the first."""
    rows: list[Row] = []
    with renumber_rows(first):
        for line in lines:
            if not line.isspace():
                rows.append(_object(name, line, len(rows)))
    return rows


def _object(name: str, line: bytes, at: int) -> Row:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InputError(
            name,
            "is no JSON object",
            'write one object on each line, such as {"id": 7, "logits": [0.2, 1.3]}',
            rows=[at],
        )
    return found


def group_keys(rows: Sequence[Row], spec: ColumnSpec, where: str) -> Grouping:
    """Sort the keys of some rows out; those that later rows add are passed on only."""
    first: dict[str, Any] = {}
    for row in rows:
        for key, value in row.items():
            if first.get(key) is None:
                first[key] = value
    return grouped({key: _sort(value) for key, value in first.items()}, spec, where)


def _sort(value: Any) -> Sort:
    if isinstance(value, list):
        return "list" if value and all(_is_number(each) for each in value) else "other"
    return "float" if _is_number(value) else "other"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def matrix_of(
    where: str, key: str, columns: tuple[str, ...], rows: Sequence[Row]
) -> npt.NDArray[np.float64]:
    """Return lists, or some numbers of each row, as a matrix; null is NaN."""
    if columns == (key,):
        return _lists(where, key, rows)
    return np.column_stack([_numbers(where, column, rows) for column in columns])


def _lists(where: str, key: str, rows: Sequence[Row]) -> npt.NDArray[np.float64]:
    held = [row.get(key) for row in rows]
    width = len(held[0]) if held and isinstance(held[0], list) else 0
    for at, each in enumerate(held):
        if not isinstance(each, list) or len(each) != width:
            entries = None
            if isinstance(each, list):
                entries = f"has {len(each)} entries, the rows before it {width}"
            raise InputError(
                f"{where} ({key})",
                "is no list of one length",
                "pass whole vectors, one entry for each class in every row",
                rows=[at],
                detail=entries or "is missing",
            )
    return _floats(f"{where} ({key})", held).reshape(len(held), width)


def _numbers(where: str, key: str, rows: Sequence[Row]) -> npt.NDArray[np.float64]:
    return _floats(f"{where} ({key})", [row.get(key) for row in rows])


def _floats(where: str, held: list[Any]) -> npt.NDArray[np.float64]:
    """Return numbers, or lists of them, as an array; NumPy alone would read true and "1" too."""
    in_lists = bool(held) and isinstance(held[0], list)
    entries = chain.from_iterable(held) if in_lists else held
    if set(map(type, entries)) <= _NUMBERS:
        try:
            return np.array(held, dtype=np.float64)
        except OverflowError:
            pass  # an integer beyond all floats
    raise _no_number(where, held, in_lists=in_lists)


def _no_number(where: str, held: list[Any], *, in_lists: bool) -> InputError:
    """Name the first entry that is not a number."""
    for at, row in enumerate(held):
        entries = row if in_lists else [row]
        for column, value in enumerate(entries):
            if type(value) not in _NUMBERS or _is_beyond(value):
                shown = json.dumps(value)
                shown = shown if len(shown) <= 30 else f"{shown[:29]}…"
                place = f" as entry {column}" if in_lists else ""
                return InputError(
                    where,
                    "has an entry that is not a number",
                    "write numbers, or null",
                    rows=[at],
                    detail=f"has {shown}{place}, which is not a number",
                )
    return InputError(where, "has an entry that is not a number", "write numbers, or null")


def _is_beyond(value: Any) -> bool:
    try:
        float(0 if value is None else value)
    except OverflowError:
        return True
    return False


def vector_of(key: str, rows: Sequence[Row]) -> npt.NDArray[Any]:
    """Return a value of each row: numbers, or else words; null is NaN among numbers."""
    held = [row.get(key) for row in rows]
    kinds = set(map(type, held))
    if kinds <= _NUMBERS or kinds == {bool}:
        for dtype in (np.int64, np.float64) if kinds <= {int, bool} else (np.float64,):
            try:
                return np.array(held, dtype=dtype)
            except OverflowError:
                continue  # larger than any number of this kind
    return np.array([each if isinstance(each, str) else json.dumps(each) for each in held])


def values_of(key: str, rows: Sequence[Row]) -> npt.NDArray[np.object_]:
    """Return a value of each row as it is."""
    column = np.empty(len(rows), dtype=object)
    for at, row in enumerate(rows):  # all at once, lists would become a matrix
        column[at] = row.get(key, MISSING)
    return column
