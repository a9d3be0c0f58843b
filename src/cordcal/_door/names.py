"""Names of classes: those of a data frame's columns, and those the caller gives."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from cordcal._door.errors import Refusal


def column_names(values: Any) -> list[str] | None:
    """Return the columns' names of a data frame, or None for what has none.

    Examples
    --------
    >>> import pandas as pd
    >>> column_names(pd.DataFrame({"cat": [0.4], "dog": [0.6]}))
    ['cat', 'dog']
    """
    columns = getattr(values, "column_names", getattr(values, "columns", None))
    return None if columns is None else [str(name) for name in columns]


def whole_headings(values: Any) -> list[int] | None:
    """Return a data frame's columns where they are whole numbers other than 0..K-1 in order.

    Labels of such a frame are its headings, not positions.

    Examples
    --------
    >>> import pandas as pd
    >>> whole_headings(pd.DataFrame([[0.4, 0.6]], columns=[1, 2]))
    [1, 2]
    >>> whole_headings(pd.DataFrame([[0.4, 0.6]])) is None
    True
    """
    if hasattr(values, "column_names") or not hasattr(values, "columns"):
        return None
    return other_numbers(values.columns)


def other_numbers(names: Iterable[Any]) -> list[int] | None:
    """Return names that are whole numbers, each its own, but not 0..K-1 in order; else None.

    Examples
    --------
    >>> other_numbers([3, 1.0, 2]), other_numbers([0, 1]), other_numbers(["3", "1"])
    ([3, 1, 2], None, None)
    """
    numbers = []
    for name in names:
        if not _is_whole(name):
            return None
        numbers.append(int(name))
    usual = numbers == list(range(len(numbers))) or len(set(numbers)) < len(numbers)
    return None if usual else numbers


def _is_whole(name: Any) -> bool:
    if isinstance(name, Integral | np.bool_):
        return True
    return isinstance(name, Real) and math.isfinite(name) and float(name).is_integer()


def check_same_columns(
    one: list[str] | None, name: str, other: list[str] | None, than: str
) -> None:
    """Refuse columns of other names, or in another order, where both sides have names."""
    if one is None or other is None or one == other:
        return
    if len(one) != len(other):
        return  # the shapes will be refused, in words of their own
    numbers = [str(at) for at in range(len(one))]
    if numbers in (one, other) and set(one) != set(other):
        return  # a frame made without names
    at = next(at for at in range(len(one)) if one[at] != other[at])
    raise Refusal(
        name,
        f"has the column {one[at]!r} where {than} has {other[at]!r}",
        "pass the same classes in the same order",
    )


def check_class_names(names: Sequence[Any], classes: int) -> tuple[str, ...]:
    """Return the classes' names as words, one for each column and each its own.

    Examples
    --------
    >>> check_class_names(["cat", "dog"], 2)
    ('cat', 'dog')
    """
    words = tuple(str(name) for name in names)
    if len(words) != classes:
        raise Refusal(
            "class_names",
            f"has {len(words)} names but there are {classes} columns",
            "pass one name for each column",
        )
    if len(set(words)) < classes:
        twice = next(word for at, word in enumerate(words) if word in words[:at])
        raise Refusal("class_names", f"has {twice!r} twice", "give each column a name of its own")
    return words
