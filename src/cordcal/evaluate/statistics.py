"""Resampling and intervals: paired bootstrap, losses per row, simultaneous intervals, tests."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.types import Matrix, Vector
from cordcal.metrics import METRICS
from cordcal.metrics.rows import LabelledRows

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
        for name, metrics in prepared.items():
            parts = [
                metric.values(counts) for metric, counts in zip(metrics, split_counts, strict=True)
            ]
            for key in parts[0]:
                mean = np.mean([part[key] for part in parts], axis=0)
                blocks[name].setdefault(key, []).append(mean)
    return {
        name: {key: np.concatenate(parts) for key, parts in values.items()}
        for name, values in blocks.items()
    }


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


Output = tuple[str, str]
"""A calibrator's key and one of its outputs, such as ``("svs", "repaired")``."""

ORIGINAL: Output = ("uncalibrated", "original")


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


# Resamples per block, which limits the gathered values to some megabytes.
_BLOCK = 1000


@dataclass(frozen=True)
class Effect:
    """The mean of one metric over the conditions of one group, with its interval.

    Attributes
    ----------
    group, measure : str
        What was averaged.
    n : int
        Conditions in the group.
    mean : float
        Unweighted mean over conditions.
    low, high : float
        Simultaneous percentile bootstrap interval.
    level : float
        The joint level of all intervals of the table.
    """

    group: str
    measure: str
    n: int
    mean: float
    low: float
    high: float
    level: float

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python values."""
        return asdict(self)


@dataclass(frozen=True)
class Test:
    """One cell of a table that tests whether differences are centred at zero.

    Attributes
    ----------
    cell : str
        The cell's name.
    n : int
        Conditions.
    mean : float
        Mean difference.
    p_value : float
        Two-sided Wilcoxon signed-rank p-value; 1 where every difference is zero.
    adjusted : float
        The same after Holm's adjustment over the table.
    """

    cell: str
    n: int
    mean: float
    p_value: float
    adjusted: float

    __test__ = False  # pytest would collect a class of this name

    @property
    def stars(self) -> str:
        """``*`` below 0.05, ``**`` below 0.01, ``***`` below 0.001, adjusted."""
        return "*" * sum(self.adjusted < level for level in (0.05, 0.01, 0.001))

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python values."""
        return {**asdict(self), "stars": self.stars}


def simultaneous_intervals(
    differences: Mapping[str, npt.ArrayLike],
    groups: Sequence[str],
    *,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> list[Effect]:
    """Bootstrap conditions within each group; the intervals hold jointly.

    Every metric of a group uses the same resamples, so that metrics stay paired.

    Parameters
    ----------
    differences : mapping of str to array_like
        By metric, one paired difference per condition, splits already averaged.
    groups : sequence of str
        The group (data set) of each condition.
    level : float
        Joint level; each interval is taken at 1 − (1 − level) / (groups × measures).
    resamples : int
        Bootstrap resamples.
    seed : int
        Seed of the resampling.

    Returns
    -------
    effects : list of Effect
        One for each group and measure, groups in the order of first appearance.

    Examples
    --------
    >>> effects = simultaneous_intervals({"ECE": [0.1, 0.2, 0.3]}, ["a", "a", "a"])
    >>> round(effects[0].mean, 6), round(effects[0].low, 6), round(effects[0].high, 6)
    (0.2, 0.1, 0.3)
    """
    if not 0.0 < level < 1.0:
        raise InputError("level", f"is {level}", "pass a number between 0 and 1, such as 0.95")
    if resamples < 1:
        raise InputError("resamples", f"is {resamples}", "pass at least 1")
    if not differences:
        raise InputError("differences", "is empty", "pass at least one measure")
    columns = {name: _finite(values, name) for name, values in differences.items()}
    for name, values in columns.items():
        if values.shape != (len(groups),):
            raise InputError(
                name,
                f"has shape {values.shape} but groups has {len(groups)} entries",
                "pass one difference for each condition",
            )
    table = np.stack(list(columns.values()), axis=1)
    names = list(dict.fromkeys(groups))
    tail = (1.0 - level) / (2.0 * len(names) * len(columns))
    effects = []
    # A group's resamples do not depend on which other groups are in the table's order.
    for name, stream in zip(names, np.random.SeedSequence(seed).spawn(len(names)), strict=True):
        inside = table[np.array([group == name for group in groups])]
        means = bootstrap_means(inside, resamples, np.random.default_rng(stream))
        low, high = np.quantile(means, [tail, 1.0 - tail], axis=0)
        for column, measure in enumerate(columns):
            effects.append(
                Effect(
                    group=name,
                    measure=measure,
                    n=len(inside),
                    mean=float(inside[:, column].mean()),
                    low=float(low[column]),
                    high=float(high[column]),
                    level=level,
                )
            )
    return effects


def bootstrap_means(values: Vector, resamples: int, rng: np.random.Generator) -> Vector:
    """Return the column means of resampled rows, one row per resample."""
    rows = len(values)
    means = np.empty((resamples, values.shape[1]))
    for start in range(0, resamples, _BLOCK):
        count = min(_BLOCK, resamples - start)
        chosen = rng.integers(0, rows, (count, rows))
        means[start : start + count] = values[chosen].mean(axis=1)
    return means


def holm(p_values: npt.ArrayLike) -> Vector:
    """Return Holm's step-down adjustment of a family of p-values.

    Parameters
    ----------
    p_values : array_like
        The family.

    Returns
    -------
    adjusted : ndarray
        In the same order and shape.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    p = _finite(p_values, "p_values")
    if ((p < 0.0) | (p > 1.0)).any():
        raise InputError(
            "p_values", "has an entry below 0 or above 1", "pass numbers between 0 and 1"
        )
    flat = p.ravel()
    order = np.argsort(flat, kind="stable")
    steps = np.maximum.accumulate((flat.size - np.arange(flat.size)) * flat[order])
    adjusted = np.empty_like(flat)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted.reshape(p.shape)


def wilcoxon_table(cells: Mapping[str, npt.ArrayLike]) -> list[Test]:
    """Test every cell of a table by Wilcoxon's signed-rank test, adjusted over the table.

    Parameters
    ----------
    cells : mapping of str to array_like
        By cell, one paired difference per condition, splits already averaged.

    Returns
    -------
    tests : list of Test
        One for each cell.

    Examples
    --------
    >>> for test in wilcoxon_table({"ECE": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "NLL": [0.0, 0.0]}):
    ...     print(test.cell, test.p_value, test.adjusted, test.stars or "-")
    ECE 0.03125 0.0625 -
    NLL 1.0 1.0 -
    """
    from scipy.stats import wilcoxon

    if not cells:
        raise InputError("cells", "is empty", "pass at least one")
    columns = {name: _finite(values, name) for name, values in cells.items()}
    # scipy fails if all differences are zero; there is no evidence of a difference then.
    p_values = [
        float(wilcoxon(values).pvalue) if np.any(values) else 1.0 for values in columns.values()
    ]
    return [
        Test(name, len(values), float(values.mean()), p, float(adjusted))
        for (name, values), p, adjusted in zip(
            columns.items(), p_values, holm(p_values), strict=True
        )
    ]


def _finite(values: npt.ArrayLike, name: str) -> Vector:
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise InputError(name, "is empty", "pass at least one value")
    bad = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))
    if bad.size:
        raise InputError(name, "is not finite", "drop or fix such rows before calling", rows=bad)
    return array
