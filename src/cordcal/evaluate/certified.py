"""Statements about error rates that hold with a stated confidence, from held-out rows.

The rows must be independent, unweighted and not used to fit.  Given the confidences, the number
of wrong predictions above a threshold is then a sum of independent indicators, which is at least
as concentrated as a binomial variable of the same mean (Hoeffding 1956): binomial bounds hold,
also if the threshold was chosen by the confidences.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.types import Vector
from cordcal.metrics.rows import LabelledRows
from cordcal.report.data import CertifiedErrorRate

# Confidences at which error rates are stated.
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
# Each further threshold of the search adds this share of rows: close enough for a threshold, far
# enough apart that little of the sequence is spent on nearly the same rows.
_STEP = 1.05
# The search starts again at this many times the rows of its first threshold: one error among the
# most confident rows fails the first, whatever the others are.
_SECOND_START = 8


def certified_error_rates(
    rows: LabelledRows, *, alpha: float = 0.05, thresholds: tuple[float, ...] = THRESHOLDS
) -> tuple[CertifiedErrorRate, ...]:
    """Bound the error rate above each threshold; all bounds hold together.

    Clopper-Pearson bounds at α divided by the number of thresholds, which must not depend on
    the labels.

    Parameters
    ----------
    rows : LabelledRows
        Held-out rows without weights.
    alpha : float
        The probability that any of the statements is wrong.
    thresholds : tuple of float
        Confidences; those that no row reaches are left out.

    Returns
    -------
    rates : tuple of CertifiedErrorRate
        One per threshold.
    """
    _refuse_weights(rows)
    level = alpha / len(thresholds)
    rates = []
    for threshold in thresholds:
        above = rows.confidence >= threshold
        n, errors = int(above.sum()), int((above & ~rows.correct).sum())
        if n:
            rates.append(
                CertifiedErrorRate(threshold, n, errors, _upper_error_rate(errors, n, level))
            )
    return tuple(rates)


def lowest_certified_threshold(
    rows: LabelledRows, target: float, *, alpha: float = 0.05
) -> CertifiedErrorRate | None:
    """Find the lowest confidence above which the error rate is at most ``target``.

    Thresholds are tested downwards in a sequence that depends on the confidences alone.  With
    probability 1 − α the result is right (the fallback procedure of Wiens 2003): the level α is
    shared by two starts, passed on from each threshold that succeeds to the next, and lost at one
    that fails.  The first start has just enough rows to succeed without an error.

    Parameters
    ----------
    rows : LabelledRows
        Held-out rows without weights.
    target : float
        The target error rate.
    alpha : float
        The probability that the error rate above the threshold exceeds the target.

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
    of the predictions reported at 83.9% or more, at most 10% are wrong (104 of 1,273 here)
    """
    _refuse_weights(rows)
    if not 0.0 < target < 1.0:
        raise InputError("target_error", f"is {target}", "pass a share, such as 0.01 or 1%")
    order = np.argsort(-rows.confidence, kind="stable")
    confidence = rows.confidence[order]
    errors = np.cumsum(~rows.correct[order])
    result, level = None, 0.0
    starts = _starts(len(confidence), target, alpha)
    share = alpha / len(starts)
    for threshold, count in _tested_thresholds(confidence, starts[0]):
        while starts and count >= starts[0]:
            level += share
            del starts[0]
        wrong = int(errors[count - 1])
        if level and _binomial_at_most(wrong, count, target) <= level:
            result = CertifiedErrorRate(threshold, count, wrong, target)
        elif starts:
            level = 0.0
        else:
            break
    return result


def _starts(rows: int, target: float, alpha: float) -> list[int]:
    """Return the numbers of rows at which the search starts: two if there are enough rows."""
    for count in (2, 1):
        first = math.ceil(math.log(alpha / count) / math.log1p(-target))
        starts = [first, _SECOND_START * first][:count]
        if starts[-1] <= rows:
            break
    return starts


def _tested_thresholds(confidence: Vector, first: int) -> Iterator[tuple[float, int]]:
    """Yield each tested threshold, and how many of the sorted rows lie above it."""
    count = first
    while count <= len(confidence):
        threshold = _round_down(float(confidence[count - 1]))
        count = int(np.searchsorted(-confidence, -threshold, side="right"))
        yield threshold, count
        count = max(count + 1, math.ceil(count * _STEP))


def _round_down(confidence: float) -> float:
    """Round a threshold so that its distance from one has three digits, to print it exactly.

    Examples
    --------
    >>> _round_down(0.83217), _round_down(0.99998765), _round_down(1.0)
    (0.832, 0.9999876, 1.0)
    """
    distance = 1.0 - confidence
    if distance <= 0.0:
        return 1.0
    digits = 2 - math.floor(math.log10(distance))
    rounded = round(1.0 - math.ceil(distance * 10.0**digits) / 10.0**digits, digits)
    return min(rounded, confidence)


def _refuse_weights(rows: LabelledRows) -> None:
    if rows.weight is not None:
        raise InputError("sample_weight", "cannot be certified", "pass rows that each count once")


def _upper_error_rate(errors: int, n: int, level: float) -> float:
    """Return the Clopper-Pearson upper bound of an error rate."""
    from scipy.special import betaincinv

    return 1.0 if errors == n else float(betaincinv(errors + 1.0, n - errors, 1.0 - level))


def _binomial_at_most(errors: int, n: int, rate: float) -> float:
    """Return P(X ≤ errors) of a binomial distribution."""
    from scipy.special import bdtr

    return float(bdtr(errors, n, rate))


def parse_share(text: str | float, argument: str) -> float:
    """Return a share written as ``0.01`` or ``1%``.

    Examples
    --------
    >>> parse_share("1%", "--target-error"), parse_share("0.01", "--target-error")
    (0.01, 0.01)
    """
    try:
        if isinstance(text, str) and text.strip().endswith("%"):
            return float(text.strip()[:-1]) / 100.0
        return math.nan if isinstance(text, bool) else float(text)
    except (TypeError, ValueError):
        raise InputError(argument, f"is {text!r}", "write a number, such as 0.01 or 1%") from None
