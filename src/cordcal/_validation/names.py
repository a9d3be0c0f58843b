"""Class names: from the columns of a data frame or from the caller."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from cordcal._errors import InputError

# A class name as users write it: text, or a number; tables show it as text.
Name = Any


def nondefault_integers(names: Iterable[Name]) -> list[int] | None:
    """Return names that are distinct integers other than 0..K-1 in order; else None.

    Examples
    --------
    >>> nondefault_integers([3, 1.0, 2])
    [3, 1, 2]
    >>> nondefault_integers([0, 1]), nondefault_integers(["3", "1"])
    (None, None)
    """
    integers = []
    for name in names:
        if not _is_integer(name):
            return None
        integers.append(int(name))
    if integers == list(range(len(integers))) or len(set(integers)) < len(integers):
        return None
    return integers


def _is_integer(name: Name) -> bool:
    if isinstance(name, Integral | np.bool_):
        return True
    return isinstance(name, Real) and math.isfinite(name) and float(name).is_integer()


def class_order(
    names: Sequence[str], expected: Sequence[str], where: str, source: str
) -> list[int] | None:
    """Return the column of each expected class; None if the order is the same.

    Parameters
    ----------
    names, expected : sequence of str
        The names of the columns, and the classes in the expected order.
    where, source : str
        The argument or file of the columns and that of the classes, for the error about a class
        that is missing, additional or renamed.

    Examples
    --------
    >>> class_order(["cat", "ant", "bee"], ["ant", "bee", "cat"], "b.csv", "a.csv")
    [1, 2, 0]
    """
    if list(names) == list(expected):
        return None
    columns = {name: column for column, name in enumerate(names)}
    missing = [name for name in expected if name not in columns]
    extra = sorted(columns.keys() - set(expected), key=columns.__getitem__)
    if missing or extra:
        raise _different_classes_error(names, expected, missing, extra, where, source)
    if not len(columns) == len(names) == len(expected):
        repeated = _first_repeated(names if len(columns) < len(names) else expected)
        raise InputError(
            where, f"has two columns for the class {repeated!r}", "give each its own name"
        )
    return [columns[name] for name in expected]


def _first_repeated(names: Sequence[str]) -> str:
    return next(name for position, name in enumerate(names) if name in names[:position])


def _different_classes_error(
    names: Sequence[str],
    expected: Sequence[str],
    missing: Sequence[str],
    extra: Sequence[str],
    where: str,
    source: str,
) -> InputError:
    pattern = common_pattern(names, expected)
    if pattern is not None:
        first = pattern.replace("*", expected[0])
        return InputError(
            where,
            f"has the column {first!r} where {source} has the class {expected[0]!r}",
            "name the columns with {option}",
            option=("columns", pattern),
        )
    pattern = common_pattern(expected, names)
    if pattern is not None:
        first = pattern.replace("*", names[0])
        return InputError(
            where,
            f"has the class {names[0]!r} where {source} has {first!r}",
            f"use the same names in both: read those columns with the pattern {pattern!r}",
        )
    if missing and extra:
        return InputError(
            where,
            f"has the class {extra[0]!r} but not {missing[0]!r}, which {source} has",
            "rename the column if it is this class; otherwise pass the same classes",
        )
    if missing:
        return InputError(
            where,
            f"does not have the class {missing[0]!r}, which {source} has",
            "pass the same classes",
        )
    return InputError(
        where,
        f"has the class {extra[0]!r}, which {source} does not have",
        "pass the same classes, or name the columns of the scores with {option}",
        option=("columns", "a,b,…"),
    )


def common_pattern(names: Sequence[str], classes: Sequence[str]) -> str | None:
    """Return the pattern that turns every class into one of the names, or None.

    Examples
    --------
    >>> common_pattern(["id", "logit_ant", "logit_bee"], ["ant", "bee"])
    'logit_*'
    """
    known = set(names)
    for name in names:
        start = name.find(classes[0])
        while start >= 0:
            prefix, suffix = name[:start], name[start + len(classes[0]) :]
            if prefix + suffix and all(prefix + label + suffix in known for label in classes):
                return f"{prefix}*{suffix}"
            start = name.find(classes[0], start + 1)
    return None


def are_default_names(names: Sequence[str]) -> bool:
    """Whether names are only the positions of the columns: 0, 1, 2 and so on.

    Examples
    --------
    >>> are_default_names(["0", "1", "2"]), are_default_names(["1", "2", "3"])
    (True, False)
    """
    return all(name == str(position) for position, name in enumerate(names))


def check_class_names(names: Sequence[Name], classes: int) -> tuple[str, ...]:
    """Return the class names as text: one distinct name per column.

    Examples
    --------
    >>> check_class_names(["cat", "dog"], 2)
    ('cat', 'dog')
    """
    texts = tuple(str(name) for name in names)
    if len(texts) != classes:
        raise InputError(
            "class_names",
            f"has {len(texts)} names but there are {classes} columns",
            "pass one name for each column",
        )
    if len(set(texts)) < classes:
        raise InputError(
            "class_names",
            f"has {_first_repeated(texts)!r} twice",
            "give each column a name of its own",
        )
    return texts
