"""Metrics that are means of one number per row: accuracy, log loss, Brier score."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cordcal._numeric.types import ArrayLike, Vector
from cordcal._validation.names import Name
from cordcal.metrics.base import LabelledRows, MeanStream, Metric, fill_docstring, update_stream

# Any probability of the true class is clipped at this value before the logarithm, so that exact
# zeros (isotonic methods) have a finite loss, 27.6 nats.
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
        """Return the negative log-likelihood per row."""
        # + 0.0 turns the -0.0 of a row with probability 1 into 0.0.
        return -np.log(np.maximum(rows.true_mass, NLL_FLOOR)) + 0.0


class BrierStream(MeanStream):
    """`brier` of blocks of rows, exact for any blocks and order."""

    @staticmethod
    def of_rows(rows: LabelledRows) -> Vector:
        """Return the squared distance to the one-hot label per row."""
        return rows.squared_error


@fill_docstring
def accuracy(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    axis: int | None = None,
    ignore_index: int | None = None,
    class_names: Sequence[Name] | None = None,
) -> float:
    """Return the share of rows whose largest entry is the true class.

    Parameters
    ----------
    probabilities : array_like of shape (n, K)
        The predicted probabilities; ties go to the smallest index.
    labels : array_like of int
        The true class of each row, 0..K-1.
    {sample_weight, axis, ignore_index, class_names}

    Returns
    -------
    accuracy : float
        Between 0 and 1.

    Examples
    --------
    >>> accuracy([[0.7, 0.2, 0.1], [0.5, 0.4, 0.1]], [0, 1])
    0.5
    """
    return update_stream(
        AccuracyStream(), [probabilities], labels, sample_weight, axis, ignore_index, class_names
    ).result()


@fill_docstring
def nll(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    axis: int | None = None,
    ignore_index: int | None = None,
    class_names: Sequence[Name] | None = None,
) -> float:
    """Return the mean negative log-likelihood (log loss, natural logarithm).

    The probability of the true class is clipped at 1e-12, so that the value is finite for
    exact zeros.

    Parameters
    ----------
    {probabilities, labels}
    {sample_weight, axis, ignore_index, class_names}

    Returns
    -------
    nll : float
        Between 0 and 27.63; 0 if every true class has probability 1.

    Examples
    --------
    >>> round(nll([[0.5, 0.5], [0.0, 1.0]], [0, 0]), 6)
    14.162084
    """
    stream = update_stream(
        NLLStream(), [probabilities], labels, sample_weight, axis, ignore_index, class_names
    )
    return stream.result()


@fill_docstring
def brier(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    axis: int | None = None,
    ignore_index: int | None = None,
    class_names: Sequence[Name] | None = None,
) -> float:
    """Return the multiclass Brier score: squared error summed over classes, mean over rows.

    There is no factor 1/K or 1/2: the value lies between 0 and 2.

    Parameters
    ----------
    {probabilities, labels}
    {sample_weight, axis, ignore_index, class_names}

    Returns
    -------
    brier : float
        Between 0 and 2.

    Examples
    --------
    >>> brier([[0.5, 0.5], [0.0, 1.0]], [0, 0])
    1.25
    """
    return update_stream(
        BrierStream(), [probabilities], labels, sample_weight, axis, ignore_index, class_names
    ).result()


ACCURACY = Metric(
    "accuracy",
    "accuracy",
    "accuracy",
    "The share of rows whose top class is the true one.",
    accuracy,
    AccuracyStream,
    unit="%",
    digits=2,
    lower_is_better=False,
)
NLL = Metric(
    "nll",
    "negative log-likelihood",
    "NLL",
    "The mean negative log-probability of the true class, floored at 1e-12.",
    nll,
    NLLStream,
    leading=True,
)
BRIER = Metric(
    "brier",
    "Brier score",
    "Brier",
    "The squared error, summed over the classes.",
    brier,
    BrierStream,
    leading=True,
)
