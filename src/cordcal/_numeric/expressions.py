"""Array expressions that NumPy, torch and ONNX share, and what scores become before a map.

A map is written once, on (n, K) float64 arrays of any library, without branches on data.
The functions here take the namespace ``xp``.  NumPy's arrays they **overwrite**, which
spares a pass over fresh memory; other libraries, which trace, get new arrays.  Operators
never overwrite: write ``x * y`` where ``x`` is needed again, ``times(x, y, xp)`` elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cordcal._numeric.types import Array, Domain, Kind

# Shifted logits below this are cut: at every temperature up to e^16 they have
# probability 0 already, and products with them stay finite.
LOWEST_SHIFTED = -1e15


def times(x: Array, y: Any, xp: Any) -> Array:
    """Return ``x * y``."""
    return np.multiply(x, y, out=x) if xp is np else x * y


def plus(x: Array, y: Any, xp: Any) -> Array:
    """Return ``x + y``."""
    return np.add(x, y, out=x) if xp is np else x + y


def minus(x: Array, y: Any, xp: Any) -> Array:
    """Return ``x - y``."""
    return np.subtract(x, y, out=x) if xp is np else x - y


def over(x: Array, y: Any, xp: Any) -> Array:
    """Return ``x / y``."""
    return np.divide(x, y, out=x) if xp is np else x / y


def exp(x: Array, xp: Any) -> Array:
    """Return e to the power of each entry."""
    return np.exp(x, out=x) if xp is np else xp.exp(x)


def log(x: Array, xp: Any) -> Array:
    """Return the logarithm of each entry."""
    return np.log(x, out=x) if xp is np else xp.log(x)


def maximum(x: Array, bound: Any, xp: Any) -> Array:
    """Return the larger of each entry and a number or array."""
    if xp is np:
        return np.maximum(x, bound, out=x)
    return xp.where(x < bound, xp.zeros_like(x) + bound, x)


def minimum(x: Array, bound: Any, xp: Any) -> Array:
    """Return the smaller of each entry and a number or array."""
    if xp is np:
        return np.minimum(x, bound, out=x)
    return xp.where(x > bound, xp.zeros_like(x) + bound, x)


def softplus(x: Array, xp: Any) -> Array:
    """Return log(1 + e^x), without overflow; ``x`` is left alone.

    Examples
    --------
    >>> softplus(np.array([-800.0, 0.0, 800.0]), np).round(4).tolist()
    [0.0, 0.6931, 800.0]
    """
    size = xp.where(x < 0.0, 0.0 - x, x)
    return 0.5 * (x + size) + xp.log(1.0 + xp.exp(0.0 - size))


def largest(x: Array, count: int, xp: Any) -> Array:
    """Return each row's largest entries in falling order; ``x`` is left alone.

    Examples
    --------
    >>> largest(np.array([[1.0, 3.0, 2.0]]), 2, np)
    array([[3., 2.]])
    """
    if xp is np:
        top = np.partition(x, -count, axis=1)[:, -count:]
        return np.ascontiguousarray(np.sort(top, axis=1)[:, ::-1])
    return xp.sort(x, axis=1, descending=True)[:, :count]


def chosen(report: Array, decision: Array, xp: Any) -> Array:
    """Tell which entries are the decision's."""
    return decision[:, None] == xp.arange(report.shape[1], device=report.device)[None, :]


def shares(masses: Array, xp: Any) -> Array:
    """Return each row divided by its sum."""
    return over(masses, xp.sum(masses, axis=1, keepdims=True), xp)


def subtract_max(scores: Array, xp: Any) -> Array:
    """Return scores whose largest entry is 0 in every row."""
    return minus(scores, xp.max(scores, axis=1, keepdims=True), xp)


def softmax(scores: Array, xp: Any) -> Array:
    """Return row-wise softmax.

    Examples
    --------
    >>> softmax(np.array([[0.0, np.log(3.0)]]), np)
    array([[0.25, 0.75]])
    """
    return shares(exp(subtract_max(scores, xp), xp), xp)


def in_domain(scores: Array, kind: Kind, domain: Domain, log_floor: Any, xp: Any) -> Array:
    """Return what a map works on.

    Parameters
    ----------
    scores : array of shape (n, K)
        Logits, or probabilities whose rows sum to one.
    kind : {"logits", "probabilities"}
        Which of the two.
    domain : str
        What to return.
    log_floor : float
        The smallest probability whose logarithm is taken.
    xp : namespace
        The scores' library.

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
        shifted = subtract_max(scores, xp)
        return minus(shifted, xp.log(xp.sum(xp.exp(shifted), axis=1, keepdims=True)), xp)
    if domain == "shifted":
        return maximum(subtract_max(scores, xp), LOWEST_SHIFTED, xp)
    return scores
