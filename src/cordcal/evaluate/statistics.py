"""Resampling, intervals, and likelihood-ratio tests of whether calibration is needed."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from cordcal._numeric.parallel import default_threads, one_blas_thread, run_tasks
from cordcal._numeric.types import Labels, Matrix, Vector
from cordcal._validation.scores import LOG_FLOOR, CheckedScores
from cordcal.metrics import METRICS
from cordcal.metrics.rows import LabelledRows
from cordcal.report.data import ORIGINAL as ORIGINAL
from cordcal.report.data import Output as Output

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
        drawn = _draw_counts(rng, population, min(size, resamples - start))
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
class LikelihoodRatio:
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

    key: str
    statistic: float
    freedom: int
    p_value: float
    n: int

    @property
    def needed(self) -> bool:
        """Whether the test rejects the classifier's own probabilities."""
        return self.p_value < LEVEL

    def to_dict(self) -> dict[str, object]:
        """Return the record as plain Python values."""
        return {**asdict(self), "needed": self.needed}


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
