"""Resampling, tests of the need to calibrate, certified error rates, and the constraint's cost.

*Likelihood-ratio tests* show whether calibration is needed.

*Certified error rates* hold with a stated confidence.  The rows must be independent, unweighted
and not used to fit.  Given the confidences, the number of wrong predictions above a threshold is
then a sum of independent indicators, which is at least as concentrated as a binomial variable of
the same mean (Hoeffding 1956): binomial bounds hold, also if the threshold was chosen by the
confidences.

*The cost of the constraint* is how much likelihood any repair loses by keeping predictions.  A
repair that keeps a row's prediction a, and the calibrator's proportions among the other classes,
is one number s per row: the mass on a.  The lower end of s is where another class would overtake
a.  Among repairs s = max(f(b), end), with b the direct mass on a and f non-decreasing, the
smallest loss on these rows is the best that a repair could reach; the same without the end is the
best if predictions could change.  Both are fitted on the rows they are measured on, so both are
optimistic.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.parallel import default_threads, one_blas_thread, run_tasks
from cordcal._numeric.types import Classes, Floats, Labels, Matrix, Record, Vector
from cordcal._validation.scores import LOG_FLOOR, CheckedScores
from cordcal.certification import certify_rows, tail
from cordcal.evaluate.results import CertifiedErrorRate, ConstraintCost, Interval
from cordcal.metrics import METRICS
from cordcal.metrics.base import LabelledRows, WeightedMean
from cordcal.metrics.proper import NLL_FLOOR

if TYPE_CHECKING:
    from cordcal.calibrators.crossfit import FitCache

Name = TypeVar("Name", bound=Hashable)
Replicates = Mapping[str, Vector]
"""By metric, its value in each resample."""

RESAMPLES = 1000
# Means of float64 rows agree to about this: a repair that has nothing to do still rounds.
ROUNDING = 1e-9
# 8 MB of float64 counts at a time: within the last cache, and enough that calls cost little.
_BLOCK_ENTRIES = 2**20


class _ResampledMetrics:
    """The metrics of some probabilities as functions of how often each row is counted."""

    def __init__(self, rows: LabelledRows, measures: Collection[str]) -> None:
        self.weight = rows.weight
        prepared = {key: METRICS[key].resampled(rows) for key in measures}
        self.measures = {
            key: function for key, function in prepared.items() if function is not None
        }

    def values(self, counts: Matrix) -> dict[str, Vector]:
        """Return the metrics, one value for each column of counts."""
        weight = counts if self.weight is None else counts * self.weight[:, None]
        total = weight.sum(axis=0)
        return {key: measure(weight, total) for key, measure in self.measures.items()}


def resampled(
    outputs: Mapping[Name, Sequence[LabelledRows]],
    splits: Sequence[npt.NDArray[np.intp]],
    population: int,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    measures: Collection[str] | None = None,
    clusters: Classes | None = None,
) -> dict[Name, Replicates]:
    """Compute metrics on the same resamples for all outputs, averaged over splits.

    Rows are drawn from the whole population: splits overlap, so they are not resampled as if
    they were independent.

    Parameters
    ----------
    outputs : mapping
        The rows of each output, one entry per split.
    splits : sequence of ndarray of int
        Which rows of the population each split evaluates on.
    population : int
        Rows to draw from.
    resamples : int
        Bootstrap resamples.
    seed : int
        Seed of the draws.
    measures : collection of str, optional
        The metrics to resample; by default all that can be.
    clusters : ndarray of int, optional
        The cluster of each row of the population, as numbers from 0; whole clusters are drawn.

    Returns
    -------
    replicates : dict
        By output, the values of every metric that can be resampled.
    """
    rng = np.random.default_rng(seed)
    keys = METRICS if measures is None else measures
    prepared = {
        name: [_ResampledMetrics(rows, keys) for rows in by_split]
        for name, by_split in outputs.items()
    }
    blocks: dict[Name, dict[str, list[Vector]]] = {name: {} for name in outputs}
    size = max(1, _BLOCK_ENTRIES // population)
    for start in range(0, resamples, size):
        units = population if clusters is None else int(clusters.max()) + 1
        drawn = _draw_counts(rng, units, min(size, resamples - start))
        drawn = drawn if clusters is None else drawn[clusters]
        split_counts = [_fill_empty(drawn[rows]) for rows in splits]
        tasks = [partial(_mean_values, metrics, split_counts) for metrics in prepared.values()]
        with one_blas_thread():
            means = run_tasks(tasks, default_threads(), lambda done: None)
        for name, values in zip(prepared, means, strict=True):
            for key, mean in values.items():
                blocks[name].setdefault(key, []).append(mean)
    return {
        name: {key: np.concatenate(parts) for key, parts in values.items()}
        for name, values in blocks.items()
    }


def _mean_values(
    metrics: Sequence[_ResampledMetrics], split_counts: Sequence[Matrix]
) -> dict[str, Vector]:
    """Return every metric on each resample, averaged over splits."""
    parts = [metric.values(counts) for metric, counts in zip(metrics, split_counts, strict=True)]
    return {key: np.mean([part[key] for part in parts], axis=0) for key in parts[0]}


def _draw_counts(rng: np.random.Generator, population: int, resamples: int) -> Matrix:
    """Draw resamples: how often each row is counted, one column per resample."""
    counts = np.empty((population, resamples))
    for column in counts.T:
        column[:] = np.bincount(rng.integers(0, population, population), minlength=population)
    return counts


def _fill_empty(counts: Matrix) -> Matrix:
    """Count every row once in resamples that drew none of a small split's rows."""
    counts[:, counts.sum(axis=0) == 0.0] = 1.0
    return counts


def percentile_interval(values: Vector, level: float = 0.95) -> tuple[Vector, Vector]:
    """Return the central interval of resampled values along the first axis."""
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(values, [tail, 1.0 - tail], axis=0)
    return low, high


def interval_of(estimate: float, replicates: Vector) -> Interval:
    """Return the 95 % percentile interval of bootstrapped values around an estimate."""
    low, high = percentile_interval(replicates)
    return paired_interval(estimate, float(low), float(high))


# Means of float64 rows agree to about this; no metric is shown with more digits.
_ROUNDING = 1e-9


def paired_interval(estimate: float, low: float, high: float) -> Interval:
    """Return a difference with its interval; what rounding explains is zero.

    A repair that changes nothing still rounds, and that is not a difference.
    """
    return Interval(*(0.0 if abs(end) < _ROUNDING else end for end in (estimate, low, high)))


def shifted_interval(value: float, drawn: Vector) -> tuple[float, float]:
    """Return the 95 % interval of a metric from its bootstrap replicates.

    Resamples repeat rows, which inflates binned errors.  Without a shift by this bias, an ECE
    would lie below its own interval.

    Examples
    --------
    >>> low, high = shifted_interval(0.01, np.array([0.01, 0.05, 0.09]))
    >>> low, round(high, 3)
    (0.0, 0.048)
    """
    low, high = map(float, percentile_interval(drawn - drawn.mean() + value))
    # The shifted interval must stay in the metric's range: no accuracy above one, and no negative
    # value of a non-negative metric.
    low = max(low, 0.0) if drawn.min() >= 0.0 else low
    return low, min(high, max(float(drawn.max()), value))


def joint_lower_bounds(estimates: Vector, replicates: Matrix, level: float = 0.95) -> Vector:
    """Return lower confidence bounds that hold for all estimates together.

    Every bound lies the same number of standard errors below its estimate: as many as the
    largest deviation among all estimates needs, in a share ``level`` of the resamples.

    Parameters
    ----------
    estimates : ndarray of shape (m,)
        The estimates.
    replicates : ndarray of shape (resamples, m)
        Their values in the same resamples.
    level : float
        The probability with which all bounds hold.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> estimates = np.array([0.0, 1.0])
    >>> bounds = joint_lower_bounds(estimates, estimates + 0.1 * rng.normal(size=(1000, 2)))
    >>> bounds.round(1)
    array([-0.2,  0.8])
    """
    deviations = replicates - estimates
    errors = np.sqrt(np.mean(deviations * deviations, axis=0))
    # An estimate without any deviation is its own bound.
    studentised = np.divide(
        deviations, errors, out=np.zeros_like(deviations), where=errors > ROUNDING
    )
    widest = np.quantile(studentised.max(axis=1), level)
    bounds: Vector = estimates - widest * errors
    return bounds


# Likelihood-ratio tests.  A calibrator that contains the identity, fitted by maximum likelihood,
# never lowers the likelihood of its calibration rows.  If no calibration is needed, twice the gain
# in log-likelihood is about chi-squared, with one degree of freedom per parameter.

# A p-value below this counts as evidence.
LEVEL = 0.05
# The chi-squared distribution is asymptotic: with fewer rows per parameter there is no test.
_ROWS_PER_PARAMETER = 10


@dataclass(frozen=True)
class LikelihoodRatio(Record):
    """A test of the classifier's own probabilities against a calibrator that contains them.

    The rows must be independent, and not training rows of the classifier.

    Attributes
    ----------
    key : str
        The calibrator: ``"ts"``, one temperature, or ``"vs"``, a scale and a bias per class.
    statistic : float
        Twice the gain in log-likelihood on the calibration rows.
    freedom : int
        Degrees of freedom of its chi-squared distribution.
    p_value : float
        The probability of such a gain if no calibration is needed.
    n : int
        Number of calibration rows.
    """

    _computed = ("needed",)

    key: str
    statistic: float
    freedom: int
    p_value: float
    n: int

    @property
    def needed(self) -> bool:
        """Whether the test rejects the classifier's own probabilities."""
        return self.p_value < LEVEL


def calibration_tests(
    fit_cache: FitCache, compared: Collection[str]
) -> tuple[LikelihoodRatio, ...]:
    """Test the identity against one temperature, and against vector scaling if it is compared.

    A fit that warns has no maximum inside its range, and there is no test against it.

    Parameters
    ----------
    fit_cache : FitCache
        The calibration rows, and the fits so far.
    compared : collection of str
        The calibrators that are compared anyway.
    """
    from scipy.special import chdtrc

    if fit_cache.original.clusters is not None:
        return ()  # the test counts rows as independent
    rows, classes = len(fit_cache.labels), fit_cache.original.classes
    # Biases are free up to a shift; the bias of a class without labels has no maximum.
    freedoms = {"ts": 1}
    if "vs" in compared and len(np.unique(fit_cache.labels)) == classes:
        freedoms["vs"] = 2 * classes - 1
    before = float(np.mean(_log_loss(fit_cache.original, fit_cache.labels)))
    tests = []
    for key, freedom in freedoms.items():
        if rows < _ROWS_PER_PARAMETER * freedom:
            continue
        fit = fit_cache.fit(key)
        after = float(fit.model.objective_)  # type: ignore[attr-defined]
        if not fit.warnings and math.isfinite(before - after):
            statistic = 2.0 * rows * max(before - after, 0.0)
            p_value = float(chdtrc(freedom, statistic))
            tests.append(LikelihoodRatio(key, statistic, freedom, p_value, rows))
    return tuple(tests)


def _log_loss(original: CheckedScores, labels: Labels) -> Vector:
    """Return −log p of the true classes, with scores converted as calibrators do."""
    from scipy.special import log_softmax

    logits = np.asarray(original.raw, dtype=np.float64)
    if original.kind == "probabilities":
        logits = np.log(np.maximum(logits, LOG_FLOOR))
    return np.asarray(-log_softmax(logits, axis=1)[np.arange(len(labels)), labels])


def describe_need(tests: Collection[LikelihoodRatio]) -> str:
    """Return whether calibration is needed, in one sentence; empty without a test.

    With several tests, the smallest p-value is compared with a share of the level.
    """
    if not tests:
        return ""
    smallest = min(tests, key=lambda test: test.p_value)
    if smallest.p_value < LEVEL / len(tests):
        return (
            f"Yes: {_MODELS[smallest.key]} already fits clearly better than the classifier's own "
            f"probabilities ({_format_p_value(smallest)})."
        )
    models = [_MODELS[test.key] for test in tests]
    fits = (
        f"{models[0]} does not fit" if len(tests) == 1 else f"neither {' nor '.join(models)} fits"
    )
    return (
        f"There is no clear sign of it: {fits} clearly better "
        f"({', '.join(map(_format_p_value, tests))}). This does not prove that none is needed."
    )


def _format_p_value(test: LikelihoodRatio) -> str:
    return "p < 1e-12" if test.p_value < 1e-12 else f"p = {test.p_value:.2g}"


def describe_tests(tests: Collection[LikelihoodRatio]) -> list[str]:
    """Return one sentence per test."""
    return [_sentence(test) for test in tests]


_MODELS = {"ts": "one temperature", "vs": "a scale and a bias for each class"}


def _sentence(test: LikelihoodRatio) -> str:
    model = _MODELS[test.key]
    return (
        f"{model[0].upper()}{model[1:]}: likelihood ratio {test.statistic:.1f} on {test.freedom} "
        f"degree{'' if test.freedom == 1 else 's'} of freedom, {_format_p_value(test)}, "
        f"{test.n:,} calibration rows."
    )


# Certified error rates.

# Confidences at which error rates are stated.
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


# Error rates at which comparisons state the share that may act.
ACT_ERRORS = (0.01, 0.02, 0.05, 0.10)


def standard_error(values: Vector, clusters: Classes | None = None) -> float:
    """Return the standard error of a mean, in which rows of one cluster may depend on each other.

    Examples
    --------
    >>> values = np.array([0.0, 1.0, 2.0, 3.0])
    >>> standard_error(values) == standard_error(np.repeat(values, 9), np.repeat(np.arange(4), 9))
    True
    """
    if clusters is None:
        return float(np.std(values)) / math.sqrt(len(values))
    sums = np.bincount(clusters, values - values.mean())
    return math.sqrt(float(sums @ sums)) / len(values)


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


# The cost of the constraint.

# The values of f, evenly spaced in the logit: neighbours differ by 0.1, so the best of them is
# within 0.1² / 32 = 0.0003 nats per row of the optimum.
_LOGITS = np.linspace(-27.0, 27.0, 541)

# Tolerance for the end: a repair stays slightly above it, where two classes would tie.
_AT_END = 1e-9


def lower_end(
    direct: Floats, prediction: Classes, rule_weights: Vector | None = None
) -> tuple[Vector, Vector, Vector]:
    """Return the direct mass on the predictions, on the rest, and the least that keeps each.

    With the proportions r among the other classes, s ≥ (1 − s) max r; under a rule with weights
    w, w_a s ≥ (1 − s) max w r.
    """
    others = np.array(direct, dtype=np.float64)
    rows = np.arange(len(others))
    mass = others[rows, prediction]
    others[rows, prediction] = 0.0
    rest = others.sum(axis=1)
    if rule_weights is not None:
        others = others * rule_weights / rule_weights[prediction][:, None]
    largest = others.max(axis=1)
    # If the other classes have no mass, any mass keeps the prediction.
    share = np.divide(largest, rest, out=np.zeros(len(others)), where=rest > 0.0)
    return mass, rest, share / (1.0 + share)


def at_end(direct: Floats, repaired: Floats, prediction: Classes) -> npt.NDArray[np.bool_]:
    """Return for each row whether its repaired mass is the least that keeps the prediction."""
    _, _, end = lower_end(direct, prediction)
    mass = repaired[np.arange(len(prediction)), prediction]
    return np.asarray(mass <= end + _AT_END)


def measure_constraint_cost(
    direct: Floats,
    prediction: Classes,
    labels: Classes,
    *,
    cord: float | None = None,
    lift: float | None = None,
) -> ConstraintCost:
    """Return the smallest losses with and without the constraint.

    Both are minima on these rows, without an interval or a test: clusters change neither.

    Parameters
    ----------
    direct : ndarray of shape (n, K)
        The calibrator's probabilities.
    prediction, labels : ndarray of int
        The predictions to keep, and the true classes.
    cord, lift : float, optional
        The NLL of the two repairs on these rows, stored in the result.
    """
    mass, rest, end = lower_end(direct, prediction)
    right = prediction == labels
    true = np.asarray(direct[np.arange(len(labels)), labels], dtype=np.float64)
    # The share of the true class in the mass that a wrong prediction leaves.
    # Of right rows it is not asked: their mass over a tiny rest would overflow.
    share = np.divide(true, rest, out=np.zeros(len(rest)), where=(rest > 0.0) & ~right)
    share = np.where(right, 1.0, np.minimum(share, 1.0))
    repairs = [loss for loss in (cord, lift) if loss is not None]
    # CORD and Lift also read the original probabilities, so either may be better than the best
    # function of the direct mass.  What keeps every prediction is also allowed without the limit.
    constrained = min([smallest_loss(mass, right, share, end), *repairs])
    free = min(smallest_loss(mass, right, share, np.zeros(len(end))), constrained)
    return ConstraintCost(constrained, free, cord, lift)


def smallest_loss(mass: Vector, right: npt.NDArray[np.bool_], share: Vector, end: Vector) -> float:
    """Return the smallest mean loss over s = max(f(mass), end) with f non-decreasing.

    The loss of a right row is −log s, that of a wrong one −log((1 − s) share).  Because of the
    ends, the loss of a right row is not convex in f, so pooling neighbours would not find the
    minimum.  Dynamic programming does: it visits the rows by mass and stores the best loss so
    far for every last value of f.
    """
    order = np.argsort(mass, kind="stable")
    # log s and log(1 − s) from the logit, each without cancellation.
    right_loss, wrong_loss = np.logaddexp(0.0, -_LOGITS), np.logaddexp(0.0, _LOGITS)
    max_loss = -np.log(NLL_FLOOR)
    with np.errstate(divide="ignore"):
        at_end_right, at_end_wrong = -np.log(end), -np.log1p(-end)
        offset = -np.log(share)
    best = np.zeros(len(_LOGITS))
    last = None
    for row in order.tolist():
        if mass[row] != last:  # rows of the same mass share one value of f
            best = np.minimum.accumulate(best)
            last = mass[row]
        if right[row]:
            loss = np.minimum(right_loss, at_end_right[row])
        else:
            loss = np.maximum(wrong_loss, at_end_wrong[row]) + offset[row]
        best = best + np.minimum(loss, max_loss)
    return float(best.min()) / len(mass)


def cost_without_labels(mass: Vector, end: Vector, weight: Vector | None = None) -> float:
    """Return the mean KL divergence of Bernoulli(b) from Bernoulli(max(b, end)).

    It is the cost of keeping the predictions if the direct probabilities are correct.

    Parameters
    ----------
    mass, end : ndarray of shape (n,)
        The direct mass on each prediction, and the least that keeps it.
    weight : ndarray of shape (n,), optional
        Weights of the rows.

    Examples
    --------
    >>> import numpy as np
    >>> round(cost_without_labels(np.array([0.4, 0.9]), np.array([0.5, 0.5])), 6)
    0.010068
    """
    raised = np.maximum(mass, end)
    mean = WeightedMean()
    divergence = _relative_entropy(mass, raised) + _relative_entropy(1.0 - mass, 1.0 - raised)
    mean.add(divergence, weight)
    return mean.result()


def _relative_entropy(p: Vector, q: Vector) -> Vector:
    """Return p · log(p / q), zero where p is zero."""
    ratio = np.divide(p, q, out=np.ones(len(p)), where=p > 0.0)
    return np.asarray(p * np.log(ratio))
