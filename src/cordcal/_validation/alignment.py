"""Arguments with one entry per row, matched by their pandas indices.

| indices | rows are matched |
|---|---|
| none, or only one side has one (NumPy, polars, torch, lists) | by position |
| equal, in the same order, with or without repeated entries | by position |
| 0..n−1 in order, and any but the same numbers in another order | by position |
| 0..n−1 in order, and the same numbers in another order | refused: ambiguous |
| two others with the same entries, each once | by entry |
| two others with different entries | refused |

An argument without an index, or with 0..n−1 in order, is matched to the first by position.
If the first is such an argument, the others must share one order: the first has no index that
decides between two.  ``train_test_split`` returns labels with the index of a larger frame, while
a model returns scores with a new index: those are matched by position.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.arrays import refuse_masked


def align_rows(**arguments: Any) -> tuple[Any, ...]:
    """Return the arguments with their rows in the order of the first argument.

    Arrays with masked entries are refused here too.

    Parameters
    ----------
    **arguments : array_like or None
        Arrays with one entry per row, by the name that an error gives them.

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
    indices = _pandas_indices(arguments)
    if len(indices) < 2:
        return tuple(arguments.values())
    default = [name for name, index in indices.items() if _is_default(index)]
    meaningful = [name for name in indices if name not in default]
    for name in meaningful if default else ():
        if _is_shuffled_default(indices[name]):
            raise _ambiguous_error(*sorted((name, default[0]), key=list(arguments).index))
    leader = next(iter(arguments))
    for name in meaningful[1:]:
        order = _matching_order(meaningful[0], name, indices)
        if order is None:
            continue
        if meaningful[0] != leader:
            raise _no_order_error(leader, meaningful[0], name)
        arguments[name] = arguments[name].take(order)
    return tuple(arguments.values())


def _pandas_indices(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the pandas indices as long as the first; other lengths are refused later."""
    # An index exists only once pandas is loaded; another thread may be loading it now.
    pandas: Any = sys.modules.get("pandas")
    if not (hasattr(pandas, "DataFrame") and hasattr(pandas, "Series")):
        return {}
    kinds = (pandas.DataFrame, pandas.Series)
    indices = {name: value.index for name, value in arguments.items() if isinstance(value, kinds)}
    rows = next((len(index) for index in indices.values()), 0)
    return {name: index for name, index in indices.items() if len(index) == rows}


def _is_default(index: Any) -> bool:
    """Whether an index is 0..n−1 in order, as pandas creates by default."""
    if isinstance(index, sys.modules["pandas"].RangeIndex):
        return bool(index.start == 0 and index.step == 1)
    return _is_numeric(index) and np.array_equal(index.to_numpy(), np.arange(len(index)))


def _is_shuffled_default(index: Any) -> bool:
    """Whether an index is a permutation of 0..n−1: a reordered frame of this size."""
    if not _is_numeric(index) or index.min() != 0 or index.max() != len(index) - 1:
        return False
    return np.array_equal(np.sort(index.to_numpy()), np.arange(len(index)))


def _is_numeric(index: Any) -> bool:
    return getattr(index.dtype, "kind", "O") in "iuf" and not index.hasnans


def _matching_order(first: str, second: str, indices: dict[str, Any]) -> list[int] | None:
    """Return the rows of the second index in the order of the first; None if they are equal."""
    if indices[first] is indices[second] or indices[first].equals(indices[second]):
        return None
    for name, other in ((first, second), (second, first)):
        if not indices[name].is_unique:
            raise _repeated_error(name, indices[name], other)
    # A dictionary, because pandas' own lookup raises for some pairs of index types.
    entries = indices[first].tolist()
    rows = {entry: row for row, entry in enumerate(indices[second].tolist())}
    if rows.keys() != set(entries):
        raise _unmatched_error(first, set(entries), second, indices[second].tolist())
    return [rows[entry] for entry in entries]


def _ambiguous_error(first: str, second: str) -> InputError:
    return InputError(
        second,
        f"and {first} have the same numbers as index, 0..n−1, but in different orders, one of "
        f"them the default order",
        f"pass {second}.loc[{first}.index] to match rows by index, or {second}.to_numpy() to "
        f"match them by position",
    )


def _no_order_error(unordered: str, first: str, second: str) -> InputError:
    return InputError(
        second,
        f"and {first} have the same index in different orders, and {unordered} has no index to "
        f"choose between them",
        f"pass {second}.loc[{first}.index] if {unordered} is in the order of {first}, or give "
        f"{unordered} the index too",
    )


def _repeated_error(name: str, index: Any, other: str) -> InputError:
    rows = np.flatnonzero(index.duplicated())
    entry = index[rows[:1]].tolist()[0]
    return InputError(
        name,
        "repeats an index entry",
        f"the index of {other} differs, so rows can only be matched by entries that occur once: "
        f"make the index unique, or pass {name}.to_numpy() to match rows by position",
        rows=rows,
        detail=f"repeats the index entry {entry!r}",
    )


def _unmatched_error(
    first: str, first_entries: set[Any], second: str, entries: list[Any]
) -> InputError:
    rows = [row for row, entry in enumerate(entries) if entry not in first_entries]
    entry = next((entries[row] for row in rows), None)
    return InputError(
        second,
        f"has an index entry that {first} does not have",
        f"pass the same rows in both, or {second}.to_numpy() to match rows by position",
        rows=rows,
        detail=f"has the index entry {entry!r}, which {first} does not have",
    )
