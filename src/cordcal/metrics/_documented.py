"""The parameters that the measures share, written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_AXIS = """\
    axis : int, optional
        The dimension of the classes, for dense reports such as (B, K, H, W); labels and
        weights then have the shape that is left.
"""
_IGNORE_INDEX = """\
    ignore_index : int, optional
        The label of rows or positions that have none; they are left out.
"""
_REPORT = """\
    probabilities : array_like of shape (n, K)
        The report to measure.  Rows of pandas objects are matched by index with those of
        labels and weights.
    labels : array_like of int
        The true class of each row, 0..K-1.
"""
_ROWS = """\
    sample_weight : array_like, optional
        Weights of the rows.
"""
_SHARED = {
    "{report}": _REPORT,
    "{rows}": _ROWS + _AXIS + _IGNORE_INDEX,
    "{axis}": _AXIS,
    "{axis, ignore_index}": _AXIS + _IGNORE_INDEX,
}


def documented(function: Function) -> Function:
    """Fill in the shared parameters where a docstring names them as a line in braces."""
    # Under python -OO there is nothing to fill.
    for name, text in _SHARED.items() if function.__doc__ else ():
        function.__doc__ = (function.__doc__ or "").replace(f"    {name}\n", text)
    return function
