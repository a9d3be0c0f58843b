"""Measures that are means of one number a row: accuracy, log loss, Brier score."""

from __future__ import annotations

from typing import Any

import numpy as np

from cordcal.metrics._feeding import fed
from cordcal.metrics._rows import LabelledRows, Vector
from cordcal.metrics._stream import MeanStream

# The true class's probability is floored here before the logarithm, on every report alike:
# with it one confident mistake costs 27.6, and exact zeros (isotonic methods) stay finite.
NLL_FLOOR = 1e-12


class AccuracyStream(MeanStream):
    """`accuracy` of blocks of rows, exact for any blocks and order."""

    @staticmethod
    def of_rows(rows: LabelledRows) -> Vector:
        """Return 1 for a correct row, else 0."""
        return rows.correct.astype(np.float64)


class NLLStream(MeanStream):
    """`nll` of blocks of rows, exact for any blocks and order."""

    @staticmethod
    def of_rows(rows: LabelledRows) -> Vector:
        """Return each row's negative log-likelihood."""
        # + 0.0 turns the -0.0 of a certain row into 0.0.
        return -np.log(np.maximum(rows.true_mass, NLL_FLOOR)) + 0.0


class BrierStream(MeanStream):
    """`brier` of blocks of rows, exact for any blocks and order."""

    @staticmethod
    def of_rows(rows: LabelledRows) -> Vector:
        """Return each row's squared distance to its one-hot label."""
        return rows.squared_error


def accuracy(
    probabilities: Any,
    labels: Any,
    *,
    sample_weight: Any = None,
    axis: int | None = None,
    ignore_index: int | None = None,
) -> float:
    """Return the share of rows whose largest entry is the true class.

    Parameters
    ----------
    probabilities : array_like of shape (n, K)
        The report to measure; ties go to the smallest index.
    labels : array_like of int
        The true class of each row, 0..K-1.
    sample_weight : array_like, optional
        Weights of the rows.
    axis : int, optional
        The dimension of the classes, for dense reports such as (B, K, H, W); labels and
        weights then have the shape that is left.
    ignore_index : int, optional
        The label of rows or positions that have none; they are left out.

    Returns
    -------
    accuracy : float
        Between 0 and 1.

    Examples
    --------
    >>> accuracy([[0.7, 0.2, 0.1], [0.5, 0.4, 0.1]], [0, 1])
    0.5
    """
    stream = fed(
        AccuracyStream(),
        probabilities,
        labels=labels,
        sample_weight=sample_weight,
        axis=axis,
        ignore_index=ignore_index,
    )
    return stream.result()


def nll(
    probabilities: Any,
    labels: Any,
    *,
    sample_weight: Any = None,
    axis: int | None = None,
    ignore_index: int | None = None,
) -> float:
    """Return the mean negative log-likelihood (log loss, natural logarithm).

    The true class's probability is floored at 1e-12, so that a report with exact
    zeros has a finite value.

    Parameters
    ----------
    probabilities : array_like of shape (n, K)
        The report to measure.
    labels : array_like of int
        The true class of each row, 0..K-1.
    sample_weight : array_like, optional
        Weights of the rows.
    axis : int, optional
        The dimension of the classes, for dense reports such as (B, K, H, W); labels and
        weights then have the shape that is left.
    ignore_index : int, optional
        The label of rows or positions that have none; they are left out.

    Returns
    -------
    nll : float
        0 for a report that is certain and right, at most 27.63.

    Examples
    --------
    >>> round(nll([[0.5, 0.5], [0.0, 1.0]], [0, 0]), 6)
    14.162084
    """
    stream = fed(
        NLLStream(),
        probabilities,
        labels=labels,
        sample_weight=sample_weight,
        axis=axis,
        ignore_index=ignore_index,
    )
    return stream.result()


def brier(
    probabilities: Any,
    labels: Any,
    *,
    sample_weight: Any = None,
    axis: int | None = None,
    ignore_index: int | None = None,
) -> float:
    """Return the multiclass Brier score: squared error summed over classes, mean over rows.

    There is no factor 1/K or 1/2: the value lies between 0 and 2.

    Parameters
    ----------
    probabilities : array_like of shape (n, K)
        The report to measure.
    labels : array_like of int
        The true class of each row, 0..K-1.
    sample_weight : array_like, optional
        Weights of the rows.
    axis : int, optional
        The dimension of the classes, for dense reports such as (B, K, H, W); labels and
        weights then have the shape that is left.
    ignore_index : int, optional
        The label of rows or positions that have none; they are left out.

    Returns
    -------
    brier : float
        Between 0 and 2.

    Examples
    --------
    >>> brier([[0.5, 0.5], [0.0, 1.0]], [0, 0])
    1.25
    """
    stream = fed(
        BrierStream(),
        probabilities,
        labels=labels,
        sample_weight=sample_weight,
        axis=axis,
        ignore_index=ignore_index,
    )
    return stream.result()
