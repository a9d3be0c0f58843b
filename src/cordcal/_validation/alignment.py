"""Rows have owners: arguments whose rows go together, matched by their pandas indices.

| indices | rows go together |
|---|---|
| none, or one side without (NumPy, polars, torch, lists) | by position |
| equal, in the same order, repeated entries or not | by position |
| 0..n−1 in order, next to any but the same numbers in another order | by position |
| 0..n−1 in order, next to the same numbers in another order | refused: either may be meant |
| two others that hold the same entries, each once | by entry |
| two others that do not | refused |

An argument without an index, or with 0..n−1 in order, goes by position with the first argument.
Where the first is such a one, the others must have one order: whose is the first's, nobody knows.
``train_test_split`` leaves labels with the numbers of a larger frame, next to scores that a model
numbers anew: those go by position.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.arrays import refuse_masked


def align_rows(**arguments: Any) -> tuple[Any, ...]:
    """Return arguments whose rows go together, all in the order of the first one's rows.

    Masked arrays are refused here, too: their entries are not to be used.

    Parameters
    ----------
    **arguments : array_like or None
        One entry for each row, by the name that a refusal gives it.

    Examples
    --------
    >>> import pandas as pd
    >>> scores = pd.DataFrame({"cat": [0.9, 0.2], "dog": [0.1, 0.8]}, index=["a", "b"])
    >>> labels = pd.Series([1, 0], index=["b", "a"])
    >>> align_rows(scores=scores, labels=labels)[1].tolist()
    [0, 1]
    """
    for name, value in arguments.items():
        refuse_masked(value, name)
    indices = _indices(arguments)
    if len(indices) < 2:
        return tuple(arguments.values())
    default = [name for name, index in indices.items() if _is_default(index)]
    labelled = [name for name in indices if name not in default]
    for name in labelled if default else ():
        if _is_shuffled_default(indices[name]):
            raise _ambiguous(*sorted((name, default[0]), key=list(arguments).index))
    for name in labelled[1:]:
        order = _order(labelled[0], name, indices)
        if order is None:
            continue
        if labelled[0] != next(iter(arguments)):
            raise _orderless(next(iter(arguments)), labelled[0], name)
        arguments[name] = arguments[name].take(order)
    return tuple(arguments.values())


def _indices(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the pandas indices, of as many rows as the first; other lengths are refused later."""
    pandas = sys.modules.get("pandas")  # whoever has an index has loaded it
    if pandas is None:
        return {}
    kinds = (pandas.DataFrame, pandas.Series)
    indices = {name: each.index for name, each in arguments.items() if isinstance(each, kinds)}
    rows = next((len(index) for index in indices.values()), 0)
    return {name: index for name, index in indices.items() if len(index) == rows}


def _is_default(index: Any) -> bool:
    """Whether an index is 0..n−1 in order, which pandas makes where nobody asked for one."""
    if isinstance(index, sys.modules["pandas"].RangeIndex):
        return bool(index.start == 0 and index.step == 1)
    return _is_numeric(index) and np.array_equal(index.to_numpy(), np.arange(len(index)))


def _is_shuffled_default(index: Any) -> bool:
    """Whether an index holds 0..n−1, each once: rows of a frame of this size in another order."""
    if not _is_numeric(index) or index.min() != 0 or index.max() != len(index) - 1:
        return False
    return np.array_equal(np.sort(index.to_numpy()), np.arange(len(index)))


def _is_numeric(index: Any) -> bool:
    return getattr(index.dtype, "kind", "O") in "iuf" and not index.hasnans


def _order(first: str, second: str, indices: dict[str, Any]) -> Any:
    """Return the places of the first one's entries in the second; None where both are alike."""
    one, other = indices[first], indices[second]
    if one is other or one.equals(other):
        return None
    for name, index in ((first, one), (second, other)):
        if not index.is_unique:
            raise _repeated(name, index, second if name == first else first)
    # A dictionary, as pandas' own look-up raises errors for some pairs of kinds of index.
    entries, places = one.tolist(), {entry: row for row, entry in enumerate(other.tolist())}
    if places.keys() != set(entries):
        raise _missing(first, set(entries), second, other)
    return [places[entry] for entry in entries]


def _ambiguous(first: str, second: str) -> InputError:
    return InputError(
        second,
        f"and {first} have the same numbers as index, 0..n−1, but in different orders, one of "
        f"them the default order",
        f"pass {second}.loc[{first}.index] if the index says which rows go together, or "
        f"{second}.to_numpy() if their positions do",
    )


def _orderless(unordered: str, first: str, second: str) -> InputError:
    return InputError(
        second,
        f"and {first} have the same index in different orders, and {unordered} has no index that "
        f"says in which its rows are",
        f"pass {second}.loc[{first}.index] if {unordered} is in the order of {first}, or give "
        f"{unordered} the index, too",
    )


def _repeated(name: str, index: Any, other: str) -> InputError:
    rows = np.flatnonzero(index.duplicated())
    entry = index[rows[:1]].tolist()[0]
    return InputError(
        name,
        "repeats an index entry",
        f"the index of {other} differs, so rows can only be matched by entries that occur once: "
        f"make the index unique, or pass {name}.to_numpy() if positions say which rows go together",
        rows=rows,
        detail=f"repeats the index entry {entry!r}",
    )


def _missing(first: str, entries: set[Any], second: str, other: Any) -> InputError:
    listed = other.tolist()
    rows = [row for row, entry in enumerate(listed) if entry not in entries]
    entry = next((listed[row] for row in rows), None)
    return InputError(
        second,
        f"has an index entry that {first} does not have",
        f"pass the same rows in both, or {second}.to_numpy() if positions say which rows go "
        f"together",
        rows=rows,
        detail=f"has the index entry {entry!r}, which {first} does not have",
    )
