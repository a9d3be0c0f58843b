"""Names of classes: those of a data frame's columns, and those the caller gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
