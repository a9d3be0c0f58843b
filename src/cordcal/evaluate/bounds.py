"""Upper bounds of error rates and of means that hold with a stated confidence.

The rows must be independent, unweighted and not used to fit.  Given the confidences, the number of
wrong predictions above a threshold is then a sum of independent indicators, which is at least as
concentrated as a binomial variable of the same mean (Hoeffding 1956): binomial bounds hold, also if
the threshold was chosen by the confidences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.types import Classes, Vector
from cordcal.certification import certify_rows, tail
from cordcal.evaluate.results.audit import CertifiedErrorRate
from cordcal.metrics.base import LabelledRows

if TYPE_CHECKING:
    pass

# Confidences at which error rates are stated.
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)

# Error rates at which comparisons state the share that may act.
ACT_ERRORS = (0.01, 0.02, 0.05, 0.10)


def act_shares(
    splits: Sequence[LabelledRows], seed: int, clusters: Sequence[Classes | None] | None = None
) -> tuple[float, ...]:
    """Return the share of predictions that may act at each of `ACT_ERRORS`.

    Half of the rows certify, the share is counted on the others: the mean over the splits.

    Parameters
    ----------
    splits : sequence of LabelledRows
        The evaluation rows of each split.
    seed : int
        Seed of the division into halves, which is the same for all outputs.
    clusters : sequence of ndarray or None, optional
        The clusters of the rows of each split, which are not divided.

    Returns
    -------
    shares : tuple of float
        One per error rate; 0 if nothing can be certified.
    """
    shares = np.zeros((len(splits), len(ACT_ERRORS)))
    for at, rows in enumerate(splits):
        cluster = None if clusters is None else clusters[at]
        units = np.arange(len(rows)) if cluster is None else np.unique(cluster)
        halves = np.array_split(np.random.default_rng(seed).permutation(units), 2)
        first, second = (
            half if cluster is None else np.flatnonzero(np.isin(cluster, half)) for half in halves
        )
        own = None if cluster is None else cluster[first]
        for column, error in enumerate(ACT_ERRORS):
            wrong = ~rows.correct[first]
            (part,) = certify_rows(rows.confidence[first], wrong, error, 0.05, clusters=own)
            if part.threshold is not None:
                shares[at, column] = (rows.confidence[second] >= part.threshold).mean()
    return tuple(shares.mean(axis=0).tolist())


def certified_error_rates(
    rows: LabelledRows, *, alpha: float = 0.05, clusters: Classes | None = None
) -> tuple[CertifiedErrorRate, ...]:
    """Bound the error rate above each threshold that some row reaches; all bounds hold together.

    Clopper-Pearson bounds at α divided by the number of thresholds, which must not depend on
    the labels.

    Parameters
    ----------
    rows : LabelledRows
        Held-out rows without weights.
    alpha : float
        The probability that any of the statements is wrong.
    clusters : ndarray of int, optional
        The cluster of each row, if rows of one cluster are not independent; numbers from 0.

    Returns
    -------
    rates : tuple of CertifiedErrorRate
        One per threshold.
    """
    _refuse_weights(rows)
    level = alpha / len(THRESHOLDS)
    rates = []
    for threshold in THRESHOLDS:
        above = rows.confidence >= threshold
        wrong = ~rows.correct[above]
        if len(wrong):
            bound = upper_rate(wrong, level, None if clusters is None else clusters[above])
            rates.append(CertifiedErrorRate(threshold, len(wrong), int(wrong.sum()), bound))
    return tuple(rates)


def lowest_certified_threshold(
    rows: LabelledRows,
    target: float,
    *,
    alpha: float = 0.05,
    clusters: Classes | None = None,
) -> CertifiedErrorRate | None:
    """Find the lowest confidence above which the error rate is at most ``target``.

    The test is that of `cordcal.certify`, with one part.

    Parameters
    ----------
    rows : LabelledRows
        Held-out rows without weights.
    target : float
        The target error rate.
    alpha : float
        The probability that the error rate above the threshold exceeds the target.
    clusters : ndarray of int, optional
        The cluster of each row, if rows of one cluster are not independent; numbers from 0.

    Returns
    -------
    rate : CertifiedErrorRate or None
        The threshold, with ``target`` as its bound; None if no threshold can be certified.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.uniform(0.5, 1.0, 4000)
    >>> wrong = rng.random(4000) > confidence
    >>> zeros = np.zeros(4000)
    >>> rows = LabelledRows(confidence, zeros.astype(int), zeros, zeros, wrong.astype(int), None)
    >>> print(lowest_certified_threshold(rows, 0.1))
    of the predictions reported at 83.533 % or more, at most 10 % are wrong (109 of 1,308 here)
    """
    _refuse_weights(rows)
    if not 0.0 < target < 1.0:
        raise InputError("target_error", f"is {target}", "pass a share, such as 0.01 or 1%")
    (part,) = certify_rows(rows.confidence, ~rows.correct, target, alpha, clusters=clusters)
    if part.threshold is None:
        return None
    return CertifiedErrorRate(part.threshold, part.accepted, part.errors, target)


def _refuse_weights(rows: LabelledRows) -> None:
    if rows.weight is not None:
        raise InputError("sample_weight", "cannot be certified", "pass rows that each count once")


def upper_rate(
    events: npt.NDArray[np.bool_], level: float, clusters: Classes | None = None
) -> float:
    """Return an upper bound of the rate of events that is wrong with probability ``level``.

    Clopper-Pearson for independent rows.  With clusters, Chernoff: a sum of n rows in
    independent clusters of at most m rows exceeds its mean no more often than that of n/m rows.

    Parameters
    ----------
    events : ndarray of bool
        Whether the event happened, per row.
    level : float
        The probability that the bound is too small.
    clusters : ndarray of int, optional
        The cluster of each row.

    Examples
    --------
    >>> nothing, threes = np.zeros(300, dtype=bool), np.arange(300) // 3
    >>> round(upper_rate(nothing, 0.05), 4), round(upper_rate(nothing, 0.05, threes), 4)
    (0.0099, 0.0295)
    """
    from scipy.special import betaincinv

    n, count = len(events), int(events.sum())
    if count == n:
        return 1.0
    if clusters is None:
        return float(betaincinv(count + 1.0, n - count, 1.0 - level))
    low, high = count / n, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        less = tail(count, n, middle, int(np.bincount(clusters).max())) > level
        low, high = (middle, high) if less else (low, middle)
    return high


def upper_mean(values: Vector, lowest: float, largest: float, level: float) -> float:
    """Return an upper bound of the mean of a bounded variable, wrong with probability ``level``.

    By betting (Waudby-Smith and Ramdas, 2024): a gambler who says that the mean is below m
    bets on each row, with a stake that depends on earlier rows only.  If m is the mean, the
    expected capital stays one, so it reaches 1/level with probability at most ``level`` (Markov);
    the bound is the m at which it does.  The capitals of a few random orders are averaged.

    Parameters
    ----------
    values : ndarray of shape (n,)
        Independent values with the same mean.
    lowest, largest : float
        The range of values there could be.
    level : float
        The probability that the bound is too small.

    Examples
    --------
    >>> zeros = np.zeros(1000)
    >>> round(upper_mean(zeros, -1.0, 1.0, 0.025), 4), round(upper_rate(zeros > 0.0, 0.025), 4)
    (0.0047, 0.0037)
    """
    from scipy.optimize import brentq

    count, rng, price = len(values), np.random.default_rng(0), math.log(1.0 / level)
    distance = (largest - values) / (largest - lowest)
    rows = np.stack([rng.permutation(distance) for _ in range(_ORDERS)])
    # One row before the first: variances are those of earlier rows, with a prior.
    seen = np.arange(1.0, count + 1.0)
    mean = (0.5 + rows.cumsum(axis=1)) / (seen + 1.0)
    variance = _PRIOR_VARIANCE + ((rows - mean) ** 2).cumsum(axis=1)
    variance = np.column_stack([np.full(_ORDERS, _PRIOR_VARIANCE), variance[:, :-1]]) / seen
    inverse_stake = np.sqrt(count * variance / (2.0 * price))

    def excess(m: float) -> float:
        """Return the logarithm of the capital over its limit; it falls in m."""
        # With this stake no row can take all of the capital.
        logs = np.log1p((rows - m) / (m + inverse_stake)).sum(axis=1)
        return float(np.logaddexp.reduce(logs)) - math.log(_ORDERS) - price

    low, high = 1e-9, float(distance.mean())
    if high <= low or excess(low) < 0.0:
        return float(largest)
    m = high if excess(high) >= 0.0 else brentq(excess, low, high, xtol=1e-10)
    return float(largest - (largest - lowest) * m)


# Orders of the rows whose capitals are averaged, and the variance, as a share of the squared
# range, that is assumed before the first row: smaller is shorter where few rows changed.
_ORDERS, _PRIOR_VARIANCE = 5, 0.05
