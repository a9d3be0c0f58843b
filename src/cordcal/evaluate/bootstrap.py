"""Paired bootstrap of the measures of reports on the same rows.

A resample is a vector of counts, the same for every report; a resampled value is the measure
with the counts as sample weights.  Measures read a few numbers a row, so no (n, K) array is
touched again, and many resamples are taken at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from cordcal._door.types import Matrix, Vector
from cordcal.metrics import MEASURES
from cordcal.metrics._rows import LabelledRows

Name = TypeVar("Name", bound=Hashable)
Replicates = Mapping[str, Vector]
"""By measure, its value in each resample."""

RESAMPLES = 1000
# 8 MB of float64 counts at a time: within the last cache, and enough that calls cost little.
_BLOCK_ENTRIES = 2**20


class _Resampled:
    """One report's measures as functions of how often each row is counted."""

    def __init__(self, rows: LabelledRows, measures: Collection[str]) -> None:
        self.weight = rows.weight
        prepared = {key: MEASURES[key].resampled(rows) for key in measures}
        self.measures = {key: each for key, each in prepared.items() if each is not None}

    def values(self, counts: Matrix) -> dict[str, Vector]:
        """Return the measures, one value for each column of counts."""
        weight = counts if self.weight is None else counts * self.weight[:, None]
        total = weight.sum(axis=0)
        return {key: measure(weight, total) for key, measure in self.measures.items()}


def resampled(
    reports: Mapping[Name, Sequence[LabelledRows]],
    splits: Sequence[npt.NDArray[np.intp]],
    population: int,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    measures: Collection[str] | None = None,
) -> dict[Name, Replicates]:
    """Measure every report on the same resamples of the rows, averaged over splits.

    Rows are drawn from the whole population, so that splits, which overlap, are resampled
    together and not as if they were independent.

    Parameters
    ----------
    reports : mapping
        Each report's rows, one entry a split.
    splits : sequence of ndarray of int
        Which rows of the population each split evaluates on.
    population : int
        Rows to draw from.
    resamples : int
        Bootstrap resamples.
    seed : int
        Seed of the draws.
    measures : collection of str, optional
        Those to resample; all that can be where left out.

    Returns
    -------
    replicates : dict
        By report, the values of every measure that can be resampled.
    """
    rng = np.random.default_rng(seed)
    wanted = MEASURES if measures is None else measures
    prepared = {
        name: [_Resampled(rows, wanted) for rows in split] for name, split in reports.items()
    }
    found: dict[Name, dict[str, list[Vector]]] = {name: {} for name in reports}
    size = max(1, _BLOCK_ENTRIES // population)
    for start in range(0, resamples, size):
        drawn = _drawn(rng, population, min(size, resamples - start))
        chosen = [_counted(drawn[rows]) for rows in splits]
        for name, own in prepared.items():
            parts = [each.values(counts) for each, counts in zip(own, chosen, strict=True)]
            for key in parts[0]:
                mean = np.mean([part[key] for part in parts], axis=0)
                found[name].setdefault(key, []).append(mean)
    return {
        name: {key: np.concatenate(parts) for key, parts in values.items()}
        for name, values in found.items()
    }


def _drawn(rng: np.random.Generator, population: int, resamples: int) -> Matrix:
    """Draw resamples: how often each row is counted, one column a resample."""
    counts = np.empty((population, resamples))
    for column in counts.T:
        column[:] = np.bincount(rng.integers(0, population, population), minlength=population)
    return counts


def _counted(counts: Matrix) -> Matrix:
    """Count every row once where, of a handful of rows, none was drawn."""
    counts[:, counts.sum(axis=0) == 0.0] = 1.0
    return counts


def percentile_interval(values: Vector, level: float = 0.95) -> tuple[Vector, Vector]:
    """Return the central interval of resampled values along the first axis."""
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(values, [tail, 1.0 - tail], axis=0)
    return low, high
