"""Intervals of a study's means, and tests of tables: which unit is resampled.

The calibrators of one classifier share its rows and its errors, so their conditions are not
independent.  The paper's printed intervals are those that resampling classifiers gives, and
classifiers (then splits within each) are resampled here too; resampling conditions (classifier
× calibrator) as if they were independent is kept as an option.  A bootstrap over a handful of
units is too narrow, so a t interval over the units' own means is added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal_study.specs import Unit
from cordcal_study.tidy import Row, mean_interval

Vector = npt.NDArray[np.float64]

RESAMPLES = 10_000
FEW = 10
"""Below this many units, each one's value is shown next to the interval."""


@dataclass(frozen=True)
class Effect:
    """The mean of one measure over a group's conditions, with simultaneous intervals.

    Attributes
    ----------
    group, measure : str
        What was averaged.
    n_conditions, n_units : int
        Conditions in the group, and units that were resampled.
    mean : float
        Unweighted mean over conditions.
    low, high : float
        Percentile bootstrap interval over units.
    t_low, t_high : float
        The t interval over the units' means; not a number for a single unit.
    units : mapping of str to float
        Each unit's own mean.
    """

    group: str
    measure: str
    n_conditions: int
    n_units: int
    mean: float
    low: float
    high: float
    t_low: float
    t_high: float
    units: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class _Unit:
    """One unit: how many conditions it has, and their sum on every split."""

    conditions: int
    sums: Vector  # of shape (splits, measures)


def effects(
    rows: Sequence[Row],
    measures: Sequence[str],
    unit: Unit = "classifiers",
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Effect]:
    """Average each group's rows and bootstrap its units; all intervals hold jointly.

    Parameters
    ----------
    rows : sequence of Row
        Paired differences, one a condition, split and measure.
    measures : sequence of str
        The measures to tell, each of which every condition has.
    unit : {"classifiers", "conditions"}
        What is resampled; splits are resampled within it.
    level : float
        Joint level: each interval is taken at 1 − (1 − level) / (groups × measures).
    resamples, seed : int
        Size and seed of the bootstrap.

    Returns
    -------
    effects : list of Effect
        One for each group and measure.

    Examples
    --------
    >>> row = Row("g", "net", "vs", 0, 1.0, "clean", "cord", "ece", 0.2)
    >>> results = effects([row, row._replace(set="other", value=0.4)], ["ece"])
    >>> round(results[0].mean, 3), results[0].n_units, results[0].units
    (0.3, 2, {'net': 0.2, 'other': 0.4})
    """
    groups = list(dict.fromkeys(row.group for row in rows))
    joint = 1.0 - (1.0 - level) / (len(groups) * len(measures))
    results = []
    # A group's resamples do not depend on which other groups are there.
    streams = np.random.SeedSequence(seed).spawn(len(groups))
    for group, stream in zip(groups, streams, strict=True):
        units = _units([row for row in rows if row.group == group], measures, unit)
        results += _group_effects(group, measures, units, joint, resamples, stream)
    return results


def _units(rows: Sequence[Row], measures: Sequence[str], unit: Unit) -> dict[str, _Unit]:
    values: dict[str, dict[int, dict[str, dict[str, float]]]] = {}
    for row in rows:
        name = row.set if unit == "classifiers" else f"{row.set}, {row.calibrator}"
        splits = values.setdefault(name, {})
        splits.setdefault(row.seed, {}).setdefault(row.calibrator, {})[row.measure] = row.value
    units = {}
    for name, splits in values.items():
        sums = [
            [math.fsum(entry[measure] for entry in split.values()) for measure in measures]
            for split in splits.values()
        ]
        units[name] = _Unit(len(next(iter(splits.values()))), np.array(sums))
    return units


def _group_effects(
    group: str,
    measures: Sequence[str],
    units: Mapping[str, _Unit],
    level: float,
    resamples: int,
    stream: np.random.SeedSequence,
) -> list[Effect]:
    all_units = list(units.values())
    conditions = sum(entry.conditions for entry in all_units)
    mean = sum(entry.sums.mean(axis=0) for entry in all_units) / conditions
    replicates = _resampled(all_units, resamples, np.random.default_rng(stream))
    low, high = np.quantile(replicates, [(1.0 - level) / 2.0, (1.0 + level) / 2.0], axis=0)
    results = []
    for at, measure in enumerate(measures):
        means = {
            name: float(entry.sums[:, at].mean() / entry.conditions)
            for name, entry in units.items()
        }
        _, t_low, t_high = mean_interval(list(means.values()), level)
        if len(means) == 1:
            t_low = t_high = math.nan
        results.append(
            Effect(
                group,
                measure,
                conditions,
                len(means),
                float(mean[at]),
                float(low[at]),
                float(high[at]),
                t_low,
                t_high,
                means,
            )
        )
    return results


def _resampled(units: Sequence[_Unit], resamples: int, rng: np.random.Generator) -> Vector:
    """Return the group's mean in every resample: units first, then splits within each."""
    total = np.zeros((resamples, units[0].sums.shape[1]))
    count = np.zeros((resamples, 1))
    for chosen in rng.integers(0, len(units), (len(units), resamples)):
        for at, unit in enumerate(units):
            places = np.flatnonzero(chosen == at)
            splits = len(unit.sums)
            total[places] += unit.sums[rng.integers(0, splits, (places.size, splits))].mean(axis=1)
            count[places] += unit.conditions
    return total / count


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
