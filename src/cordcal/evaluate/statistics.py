"""Statistics over many conditions: simultaneous intervals and a table of tests.

The unit is the condition, one data set × classifier × calibrator.  Splits of one data set
overlap, so they are not independent: they are averaged within their condition, and what is
resampled is conditions.  Intervals are simultaneous over everything that is reported
together (Bonferroni over groups × measures, nine in the paper).  The paper names no test
behind its asterisks; the two-sided Wilcoxon signed-rank test with Holm's adjustment over a
whole table is our choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._door.errors import Refusal
from cordcal._door.types import Vector

# Resamples per block: bounds the gathered values to some megabytes.
_BLOCK = 1000


@dataclass(frozen=True)
class Effect:
    """The mean of one measure over the conditions of one group, with its interval.

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
    """One cell of a table of tests of whether differences centre at zero.

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

    Every measure of a group sees the same resamples, so that measures stay paired.

    Parameters
    ----------
    differences : mapping of str to array_like
        By measure, one paired difference a condition, splits already averaged.
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
        raise Refusal("level", f"is {level}", "pass a number between 0 and 1, such as 0.95")
    if resamples < 1:
        raise Refusal("resamples", f"is {resamples}", "pass at least 1")
    if not differences:
        raise Refusal("differences", "is empty", "pass at least one measure")
    columns = {name: _finite(values, name) for name, values in differences.items()}
    for name, values in columns.items():
        if values.shape != (len(groups),):
            raise Refusal(
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
        for place, measure in enumerate(columns):
            effects.append(
                Effect(
                    group=name,
                    measure=measure,
                    n=len(inside),
                    mean=float(inside[:, place].mean()),
                    low=float(low[place]),
                    high=float(high[place]),
                    level=level,
                )
            )
    return effects


def bootstrap_means(values: Vector, resamples: int, rng: np.random.Generator) -> Vector:
    """Return the column means of resampled rows, one row a resample."""
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
        raise Refusal("p_values", "has an entry below 0 or above 1", "pass numbers between 0 and 1")
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
        By cell, one paired difference a condition, splits already averaged.

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
        raise Refusal("cells", "is empty", "pass at least one")
    columns = {name: _finite(values, name) for name, values in cells.items()}
    # scipy has no answer where nothing differs; there is no evidence of a difference then.
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
        raise Refusal(name, "is empty", "pass at least one value")
    bad = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))
    if bad.size:
        raise Refusal(name, "is not finite", "drop or fix such rows before calling", rows=bad)
    return array
