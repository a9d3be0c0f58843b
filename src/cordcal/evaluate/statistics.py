"""Metrics on bootstrap resamples of the rows, and intervals from them."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from cordcal._numeric.parallel import default_threads, one_blas_thread, run_tasks
from cordcal._numeric.types import Classes, Matrix, Vector
from cordcal.evaluate.results.values import Interval
from cordcal.metrics import METRICS
from cordcal.metrics.base import LabelledRows

if TYPE_CHECKING:
    pass

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


def paired_interval(estimate: float, low: float, high: float) -> Interval:
    """Return a difference with its interval; what rounding explains is zero.

    A repair that changes nothing still rounds, and that is not a difference.
    """
    return Interval(*(0.0 if abs(end) < ROUNDING else end for end in (estimate, low, high)))


def mean_interval(values: Vector, clusters: Classes | None) -> Interval:
    """Return the mean of paired differences with its 95 % interval, by its standard error."""
    mean, error = float(values.mean()), 1.96 * standard_error(values, clusters)
    return paired_interval(mean, mean - error, mean + error)


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
