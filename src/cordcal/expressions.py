"""Array expressions that NumPy, torch and ONNX share, and the conversion of scores to a domain.

A calibrator's map is one expression on (n, K) float64 arrays of any library, without branches on
data.  These functions take the namespace ``xp``.  NumPy arrays are **overwritten**, which saves a
pass over fresh memory; other libraries, which trace, return new arrays.  Operators never
overwrite: write ``x * y`` if ``x`` is needed again, else ``multiply_in_place(x, y, xp)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cordcal._numeric.types import Array, Domain, Kind, Namespace, NumPyArray

__all__ = [
    "Parameters", "add_in_place", "chosen", "copied", "divide_in_place", "exp", "largest", "log",
    "log_shares", "maximum", "minimum", "multiply_in_place", "row_max", "row_sum", "shares",
    "softmax", "softmax_of_shifted", "softplus", "subtract_in_place", "subtract_max",
]  # fmt: skip

# Shifted logits are clipped here: at every temperature up to e^16 their probability is 0
# anyway, and products with them stay finite.
LOWEST_SHIFTED = -1e15

# From so many rows of at most so many classes on, reductions over columns are faster.
_MANY_ROWS, _SHORT_ROW = 64, 48


@dataclass(eq=False)
class Parameters:
    """What a calibrator's map computes with: ``params["name_"]`` is an array of the library ``xp``.

    Attributes
    ----------
    arrays : mapping of str to array
        Fitted attributes, or what is derived from them, by name.
    members : mapping of str to Parameters
        Those of a blend's members, by key.
    curves : object, optional
        The calibrator's curves, prepared for NumPy.
    shared : dict of str to array, optional
        Results for the current rows, which maps with equal parameters compute only once.

    Examples
    --------
    >>> params = Parameters({"bias_": np.zeros(3)})
    >>> "bias_" in params, params["bias_"]
    (True, array([0., 0., 0.]))
    """

    arrays: Mapping[str, Array]
    members: Mapping[str, Parameters] = field(default_factory=dict)
    curves: Any = None
    shared: dict[str, Array] | None = None

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name]

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    def convert(self, convert: Callable[[str, Array], Array], path: str = "") -> Parameters:
        """Return each array converted, given its name; a member's begins with its key and a slash.

        Examples
        --------
        >>> member = Parameters({"temperature_": 2.0})
        >>> names = Parameters({"shares_": 1.0}, {"ts": member}).convert(lambda name, _: name)
        >>> names["shares_"], names.members["ts"]["temperature_"]
        ('shares_', 'ts/temperature_')
        """
        return Parameters(
            {name: convert(path + name, array) for name, array in self.arrays.items()},
            {key: inner.convert(convert, f"{path}{key}/") for key, inner in self.members.items()},
        )


def copied(x: Array, xp: Namespace) -> Array:
    """Return an array to overwrite; only NumPy's is a copy."""
    return x.copy() if xp is np else x


def shared(name: str, compute: Callable[[], Array], params: Parameters, xp: Namespace) -> Array:
    """Return ``compute()``, which maps with the same ``params.shared`` compute only once."""
    if params.shared is None:
        return compute()
    if name not in params.shared:
        params.shared[name] = compute()
    return copied(params.shared[name], xp)


def multiply_in_place(x: Array, y: float | Array, xp: Namespace) -> Array:
    """Return ``x * y``; a NumPy array ``x`` is overwritten with it."""
    return np.multiply(x, y, out=x) if xp is np else x * y


def add_in_place(x: Array, y: float | Array, xp: Namespace) -> Array:
    """Return ``x + y``; a NumPy array ``x`` is overwritten with it."""
    return np.add(x, y, out=x) if xp is np else x + y


def subtract_in_place(x: Array, y: float | Array, xp: Namespace) -> Array:
    """Return ``x - y``; a NumPy array ``x`` is overwritten with it."""
    return np.subtract(x, y, out=x) if xp is np else x - y


def divide_in_place(x: Array, y: float | Array, xp: Namespace) -> Array:
    """Return ``x / y``; a NumPy array ``x`` is overwritten with it."""
    return np.divide(x, y, out=x) if xp is np else x / y


def exp(x: Array, xp: Namespace) -> Array:
    """Return e to the power of each entry."""
    return np.exp(x, out=x) if xp is np else xp.exp(x)


def log(x: Array, xp: Namespace) -> Array:
    """Return the logarithm of each entry."""
    return np.log(x, out=x) if xp is np else xp.log(x)


def maximum(x: Array, bound: float | Array, xp: Namespace) -> Array:
    """Return the larger of each entry and a number or array."""
    if xp is np:
        return np.maximum(x, bound, out=x)
    return xp.clamp(x, min=bound)


def minimum(x: Array, bound: float | Array, xp: Namespace) -> Array:
    """Return the smaller of each entry and a number or array."""
    if xp is np:
        return np.minimum(x, bound, out=x)
    return xp.clamp(x, max=bound)


def softplus(x: Array, xp: Namespace) -> Array:
    """Return log(1 + e^x), without overflow or overwriting ``x``.

    Examples
    --------
    >>> softplus(np.array([-800.0, 0.0, 800.0]), np).round(4).tolist()
    [0.0, 0.6931, 800.0]
    """
    size = xp.where(x < 0.0, 0.0 - x, x)
    return 0.5 * (x + size) + xp.log(1.0 + xp.exp(0.0 - size))


def largest(x: Array, count: int, xp: Namespace) -> Array:
    """Return the largest entries per row in decreasing order, without overwriting ``x``.

    Examples
    --------
    >>> largest(np.array([[1.0, 3.0, 2.0]]), 2, np)
    array([[3., 2.]])
    """
    if xp is np:
        top = np.partition(x, -count, axis=1)[:, -count:]
        return np.ascontiguousarray(np.sort(top, axis=1)[:, ::-1])
    return xp.sort(x, axis=1, descending=True)[:, :count]


def chosen(matrix: Array, prediction: Array, xp: Namespace) -> Array:
    """Return a mask of the prediction's entry in each row of the matrix."""
    return prediction[:, None] == xp.arange(matrix.shape[1], device=matrix.device)[None, :]


def row_sum(x: Array, xp: Namespace) -> Array:
    """Return the sum of each row, as a column."""
    # NumPy's own functions take three times as long for a single row.
    if xp is np:
        return np.add.reduce(x, axis=1, keepdims=True)
    return xp.sum(x, axis=1, keepdims=True)


def row_max(x: Array, xp: Namespace) -> Array:
    """Return the maximum of each row, as a column."""
    return extreme_of_rows(np.maximum, x) if xp is np else xp.max(x, axis=1, keepdims=True)


def extreme_of_rows(largest_or_smallest: np.ufunc, x: NumPyArray) -> Array:
    """Return ``np.maximum`` or ``np.minimum`` over each row, as a column."""
    if x.shape[1] <= _SHORT_ROW and len(x) >= _MANY_ROWS:
        # NumPy reduces row by row, which takes five times as long as a copy for ten classes.
        return largest_or_smallest.reduce(np.ascontiguousarray(x.T), axis=0)[:, None]
    return largest_or_smallest.reduce(x, axis=1, keepdims=True)


def shares(masses: Array, xp: Namespace) -> Array:
    """Return each row divided by its sum, so that it sums to one."""
    return divide_in_place(masses, row_sum(masses, xp), xp)


def log_shares(logs: Array, xp: Namespace) -> Array:
    """Return the logarithms of `shares` of ``exp(logs)``, of rows whose maximum is about 0."""
    if xp is np:
        return subtract_in_place(logs, np.log(row_sum(np.exp(logs), xp)), xp)
    return xp.log_softmax(logs, 1)


def subtract_max(scores: Array, xp: Namespace) -> Array:
    """Subtract the maximum of each row."""
    return subtract_in_place(scores, row_max(scores, xp), xp)


def softmax(scores: Array, xp: Namespace) -> Array:
    """Return row-wise softmax.

    Examples
    --------
    >>> softmax(np.array([[0.0, np.log(3.0)]]), np)
    array([[0.25, 0.75]])
    """
    return softmax_of_shifted(subtract_max(scores, xp) if xp is np else scores, xp)


def softmax_of_shifted(shifted: Array, xp: Namespace) -> Array:
    """Return row-wise softmax of rows whose maximum is about 0."""
    return shares(exp(shifted, xp), xp) if xp is np else xp.softmax(shifted, 1)


def in_domain(
    scores: Array, kind: Kind, domain: Domain, log_floor: float | Array, xp: Namespace
) -> Array:
    """Convert scores to a calibrator's domain.

    Parameters
    ----------
    scores : array of shape (n, K)
        Logits, or probabilities whose rows sum to one.
    kind : {"logits", "probabilities"}
        Which of the two.
    domain : str
        What to return; see `Domain`.
    log_floor : float
        Smaller probabilities are raised to this before the logarithm.
    xp : namespace
        The array namespace of the scores.

    Examples
    --------
    >>> in_domain(np.array([[1.0, 3.0]]), "logits", "shifted", 1e-12, np)
    array([[-2.,  0.]])
    """
    if kind == "probabilities":
        if domain == "probabilities":
            return scores
        scores = log(maximum(scores, log_floor, xp), xp)
    elif domain == "probabilities":
        return softmax(scores, xp)
    elif domain == "log-probabilities":
        return log_shares(maximum(subtract_max(scores, xp), LOWEST_SHIFTED, xp), xp)
    if domain == "shifted":
        return maximum(subtract_max(scores, xp), LOWEST_SHIFTED, xp)
    return scores
