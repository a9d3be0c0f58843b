"""Class names: those of a data frame's columns, and those the caller passes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from cordcal._errors import InputError


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


def integer_column_names(values: Any) -> list[int] | None:
    """Return a data frame's columns where they are whole numbers other than 0..K-1 in order.

    Labels of such a frame are its headings, not positions.

    Examples
    --------
    >>> import pandas as pd
    >>> integer_column_names(pd.DataFrame([[0.4, 0.6]], columns=[1, 2]))
    [1, 2]
    >>> integer_column_names(pd.DataFrame([[0.4, 0.6]])) is None
    True
    """
    if hasattr(values, "column_names") or not hasattr(values, "columns"):
        return None
    return nondefault_integers(values.columns)


def nondefault_integers(names: Iterable[Any]) -> list[int] | None:
    """Return names that are whole numbers, each its own, but not 0..K-1 in order; else None.

    Examples
    --------
    >>> nondefault_integers([3, 1.0, 2])
    [3, 1, 2]
    >>> nondefault_integers([0, 1]), nondefault_integers(["3", "1"])
    (None, None)
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
    raise InputError(
        name,
        f"has the column {one[at]!r} where {than} has {other[at]!r}",
        "pass the same classes in the same order",
    )


def in_column_order(values: Any, where: str, expected: list[str] | None, than: str) -> Any:
    """Return a data frame with its columns in another order; what has no names as it is.

    Parameters
    ----------
    values : object
        Scores of any kind.
    where, than : str
        What messages call them, and who has the expected columns.
    expected : list of str or None
        The columns; others are refused.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"dog": [0.6], "cat": [0.4]})
    >>> list(in_column_order(frame, "scores", ["cat", "dog"], "fit"))
    ['cat', 'dog']
    """
    own = column_names(values)
    if own is None or expected is None or len(own) != len(expected):
        return values  # shapes that differ are refused in words of their own
    if are_default_names(own) != are_default_names(expected) and set(own) != set(expected):
        return values  # a frame made without names
    order = class_order(own, expected, where, than)
    if order is None:
        return values
    if hasattr(values, "column_names"):
        return values.select([values.column_names[at] for at in order])
    return values[[values.columns[at] for at in order]]


def class_order(
    own: Sequence[str], expected: Sequence[str], where: str, than: str
) -> list[int] | None:
    """Return which column is each of the expected classes; None where the order is the same.

    Parameters
    ----------
    own, expected : sequence of str
        The names of the columns, and the classes that they must be.
    where, than : str
        Who has the columns, and who has the classes, for the refusal of a class that is
        missing, additional or renamed.

    Examples
    --------
    >>> class_order(["cat", "ant", "bee"], ["ant", "bee", "cat"], "b.csv", "a.csv")
    [1, 2, 0]
    """
    if list(own) == list(expected):
        return None
    place = {name: at for at, name in enumerate(own)}
    missing = [name for name in expected if name not in place]
    extra = sorted(place.keys() - set(expected), key=place.__getitem__)
    if missing or extra:
        raise _other_classes(own, expected, missing, extra, where, than)
    if not len(place) == len(own) == len(expected):
        names = own if len(place) < len(own) else expected
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise InputError(
            where, f"has two columns for the class {twice!r}", "give each its own name"
        )
    return [place[name] for name in expected]


def _other_classes(
    own: Sequence[str],
    expected: Sequence[str],
    missing: Sequence[str],
    extra: Sequence[str],
    where: str,
    than: str,
) -> InputError:
    pattern = common_pattern(own, expected)
    if pattern is not None:
        first = pattern.replace("*", expected[0])
        return InputError(
            where,
            f"has the column {first!r} where {than} has the class {expected[0]!r}",
            "name the columns with {option}",
            option=("columns", pattern),
        )
    pattern = common_pattern(expected, own)
    if pattern is not None:
        first = pattern.replace("*", own[0])
        return InputError(
            where,
            f"has the class {own[0]!r} where {than} has {first!r}",
            f"call the classes alike: there, read the columns with the pattern {pattern!r}",
        )
    if missing and extra:
        return InputError(
            where,
            f"has the class {extra[0]!r} but not {missing[0]!r}, which {than} has",
            "rename the column if it is this class; otherwise pass the same classes",
        )
    if missing:
        return InputError(
            where,
            f"does not have the class {missing[0]!r}, which {than} has",
            "pass the same classes",
        )
    return InputError(
        where,
        f"has the class {extra[0]!r}, which {than} does not have",
        "pass the same classes, or name the columns of the scores with {option}",
        option=("columns", "a,b,…"),
    )


def common_pattern(names: Sequence[str], classes: Sequence[str]) -> str | None:
    """Return the pattern under which some of the names are the classes; None if there is none.

    Examples
    --------
    >>> common_pattern(["id", "logit_ant", "logit_bee"], ["ant", "bee"])
    'logit_*'
    """
    listed = set(names)
    for name in names:
        at = name.find(classes[0])
        while at >= 0:
            before, after = name[:at], name[at + len(classes[0]) :]
            if before + after and all(before + each + after in listed for each in classes):
                return f"{before}*{after}"
            at = name.find(classes[0], at + 1)
    return None


def are_default_names(names: Sequence[str]) -> bool:
    """Whether names are only the numbers of the columns, 0, 1, 2 and so on."""
    return all(name == str(at) for at, name in enumerate(names))


def check_class_names(names: Sequence[Any], classes: int) -> tuple[str, ...]:
    """Return the classes' names as words, one for each column and each its own.

    Examples
    --------
    >>> check_class_names(["cat", "dog"], 2)
    ('cat', 'dog')
    """
    words = tuple(str(name) for name in names)
    if len(words) != classes:
        raise InputError(
            "class_names",
            f"has {len(words)} names but there are {classes} columns",
            "pass one name for each column",
        )
    if len(set(words)) < classes:
        twice = next(word for at, word in enumerate(words) if word in words[:at])
        raise InputError(
            "class_names", f"has {twice!r} twice", "give each column a name of its own"
        )
    return words
