"""Replicates of every report's measures in a comparison: one draw of rows serves them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from cordcal.evaluate.bootstrap import RESAMPLED, _Resampler
from cordcal.metrics._rows import LabelledRows

Replicates = dict[str, npt.NDArray[np.float64]]

# Twelve draws lie beyond each end of a 95 % interval; more would double the longest step.
REPLICATES = 500


def replicates_of(
    reports: Mapping[tuple[str, str], Sequence[LabelledRows]],
    splits: Sequence[npt.NDArray[np.intp]],
    population: int,
    seed: int,
) -> dict[tuple[str, str], Replicates]:
    """Measure every report on resamples of the rows, averaged over the splits.

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
    seed : int
        Seed of the draws.
    """
    generator = np.random.default_rng([seed, 1])  # apart from the stream that splits
    resamplers = {name: [_Resampler(rows) for rows in split] for name, split in reports.items()}
    values = {name: np.zeros((REPLICATES, len(RESAMPLED))) for name in reports}
    for place in range(REPLICATES):
        drawn = np.bincount(generator.integers(0, population, population), minlength=population)
        for split, rows in enumerate(splits):
            counts = drawn[rows].astype(np.float64)
            if not counts.any():  # a handful of rows, none of them drawn
                counts += 1.0
            for name, own in resamplers.items():
                values[name][place] += own[split].measures(counts)
    return {
        name: dict(zip(RESAMPLED, (found / len(splits)).T, strict=True))
        for name, found in values.items()
    }
