"""Probabilities as decimal numbers: for screens and text, with the prediction still on top."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.arrays import dtype_name
from cordcal._numeric.types import DType, Floats, Vector

# The largest number of decimals at which two multiples are different numbers of the dtype.
MOST_DECIMALS = {"float64": 15, "float32": 6, "float16": 3}


def check_decimals(decimals: object, dtype: DType) -> int:
    """Return the number of decimals; refuse one that is negative, not whole, or too large.

    Examples
    --------
    >>> check_decimals(2, np.float32)
    2
    """
    if isinstance(decimals, bool) or not isinstance(decimals, int | np.integer) or decimals < 0:
        raise InputError("decimals", f"is {decimals!r}", "pass a whole number such as 2")
    name = dtype_name(dtype)
    most = MOST_DECIMALS[name]
    if decimals > most:
        raise InputError(
            "decimals",
            f"is {decimals} but {name} can distinguish at most {most} decimals",
            f"pass at most {most}, or a wider dtype",
        )
    return int(decimals)


def round_to_decimals(
    probabilities: Floats,
    prediction: npt.NDArray[np.integer],
    decimals: int,
    class_weights: Vector | None = None,
) -> Floats:
    """Return multiples of 10⁻ᵈ that sum to one, with the prediction strictly on top.

    Each entry is rounded down, and the units that are missing go to the largest remainders.
    Where the prediction then ties with another class, it takes one unit from it.  Small
    classes become zero, so a log loss of the result means nothing: use it for display only.

    Parameters
    ----------
    probabilities : ndarray of shape (n, K)
        Rows that sum to one, whose largest entry is at the prediction.
    prediction : ndarray of int of shape (n,)
        The predictions.
    decimals : int
        d; see `check_decimals`.
    class_weights : ndarray of shape (K,), optional
        Weights of a prediction rule, under which the prediction is on top.

    Examples
    --------
    >>> rows = np.array([[0.3334, 0.3333, 0.3333], [0.502, 0.498, 0.0]])
    >>> round_to_decimals(rows, np.array([0, 0]), 2)
    array([[0.34, 0.33, 0.33],
           [0.51, 0.49, 0.  ]])
    """
    at, units = np.arange(len(probabilities)), 10**decimals
    scaled = np.asarray(probabilities, dtype=np.float64)
    scaled = scaled / scaled.sum(axis=1, keepdims=True) * units
    counts = np.floor(scaled)
    remainder = scaled - counts
    remainder[at, prediction] += 1e-9  # first among equals
    order = np.argsort(-remainder, axis=1, kind="stable")
    missing = units - counts.sum(axis=1)
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(scaled.shape[1])[None, :], axis=1)
    counts += rank < missing[:, None]
    weights = np.ones(scaled.shape[1]) if class_weights is None else class_weights
    while True:
        products = counts * weights
        own = products[at, prediction]
        products[at, prediction] = -1.0
        rival = products.argmax(axis=1)
        low = np.flatnonzero(own <= products[at, rival])
        if low.size == 0:
            return np.asarray(counts / units, dtype=probabilities.dtype)
        counts[low, rival[low]] -= 1.0
        counts[low, prediction[low]] += 1.0
