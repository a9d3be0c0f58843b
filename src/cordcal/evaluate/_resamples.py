"""Replicates of every report's measures in a comparison: one draw of rows serves them all.

A comparison has some twenty reports, so each replicate is made a matrix product: equal-mass
bins and the kernel width of the smooth error stay those of the sample.  (An audit, with two
reports, finds them anew in every resample.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from cordcal.metrics._bins import BINS, bin_index
from cordcal.metrics._rows import LabelledRows
from cordcal.metrics._scores import AccuracyStream, BrierStream, NLLStream
from cordcal.metrics._smooth import mirrored_spectrum, smooth_gap, smoothed

Matrix = npt.NDArray[np.float64]
Replicates = dict[str, Matrix]

REPLICATES = 1000
# Replicates at a time: 20 MB of counts at 25,000 rows.
_BLOCK = 100
_RESAMPLED = ("accuracy", "nll", "brier", "ece", "ece_equal_mass", "smooth_ece")


class _Report:
    """One report's measures as functions of how often each row is counted."""

    def __init__(self, rows: LabelledRows) -> None:
        self.means = np.stack(
            [stream.of_rows(rows) for stream in (AccuracyStream, NLLStream, BrierStream)], axis=1
        )
        width = smooth_gap(rows)[1]
        self.nodes = 200  # the published grid grows by fours until it resolves the kernel
        while round(20.0 / width) > self.nodes:
            self.nodes *= 4
        self.width = width
        self.bins = _bin_matrix(rows, self.nodes)

    def measures(self, counts: Matrix) -> Matrix:
        """Return the measures named by `_RESAMPLED`, one line for each line of counts."""
        total = counts.sum(axis=1, keepdims=True)
        binned = (self.bins @ counts.T).T
        grid = binned[:, 2 * BINS :]
        smooth = smoothed(mirrored_spectrum(grid), self.nodes, self.width)
        gaps = [
            np.abs(part).sum(axis=1, keepdims=True)
            for part in (
                binned[:, :BINS],
                binned[:, BINS : 2 * BINS],
                smooth / self.nodes,
            )
        ]
        return np.asarray(np.concatenate([counts @ self.means, *gaps], axis=1) / total)


def _bin_matrix(rows: LabelledRows, nodes: int) -> Any:
    """Return the map from rows to sums of residuals: both kinds of bins, then grid nodes."""
    count = len(rows)
    confidence = np.minimum(rows.confidence, 1.0)
    residual = confidence - rows.correct
    ranks = np.empty(count, dtype=np.intp)
    ranks[np.argsort(rows.confidence, kind="stable")] = np.arange(count)
    scaled = confidence * (nodes - 1)
    left = np.clip(scaled.astype(np.intp), 0, nodes - 2)
    share = scaled - left
    places = [
        bin_index(rows.confidence, BINS),
        BINS + ranks * BINS // count,
        2 * BINS + left,
        2 * BINS + left + 1,
    ]
    values = [residual, residual, residual * (1.0 - share), residual * share]
    where = np.concatenate(places), np.tile(np.arange(count), len(places))
    shape = (2 * BINS + nodes, count)
    return sparse.csr_array((np.concatenate(values), where), shape=shape)


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
    prepared = {name: [_Report(rows) for rows in split] for name, split in reports.items()}
    values = {name: np.zeros((REPLICATES, len(_RESAMPLED))) for name in reports}
    for start in range(0, REPLICATES, _BLOCK):
        chances = np.full(population, 1.0 / population)
        drawn = generator.multinomial(population, chances, size=_BLOCK)
        for split, rows in enumerate(splits):
            counts = drawn[:, rows].astype(np.float64)
            # Of a handful of rows it may happen that none is drawn.
            counts[counts.sum(axis=1) == 0.0] = 1.0
            for name, own in prepared.items():
                values[name][start : start + _BLOCK] += own[split].measures(counts)
    return {
        name: dict(zip(_RESAMPLED, (found / len(splits)).T, strict=True))
        for name, found in values.items()
    }
