"""Paired bootstrap of the measures of two or more reports on the same rows.

A resample is a vector of counts, the same for every report.  All measures read a few
numbers a row, so no (n, K) array is touched again; a resampled value is the measure with
the counts as sample weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cordcal.metrics._bins import BINS, bin_index
from cordcal.metrics._equal_mass import ranked_gap
from cordcal.metrics._rows import LabelledRows, Vector
from cordcal.metrics._scores import AccuracyStream, BrierStream, NLLStream
from cordcal.metrics._smooth import Positions, Residuals, fixed_point

# The columns of `resampled_measures`.  Classwise ECE is not among them: it needs all classes
# of every row.
RESAMPLED = ("accuracy", "nll", "brier", "ece", "ece_equal_mass", "smooth_ece")


class _Resampler:
    """What does not change from one resample to the next."""

    def __init__(self, rows: LabelledRows) -> None:
        self.weight = rows.weight
        self.means = np.stack(
            [stream.of_rows(rows) for stream in (AccuracyStream, NLLStream, BrierStream)]
        )
        self.bins = bin_index(rows.confidence, BINS)
        self.residual = rows.confidence - rows.correct
        self.order = np.argsort(rows.confidence, kind="stable")
        self.positions = Positions(rows.confidence)

    def measures(self, counts: Vector) -> list[float]:
        """Return the measures with every row counted this often."""
        weight = counts if self.weight is None else counts * self.weight
        residual = weight * self.residual
        smooth = Residuals(self.positions, residual, weight, "count")
        return [
            *(self.means @ weight / weight.sum()).tolist(),
            float(np.abs(np.bincount(self.bins, residual)).sum() / weight.sum()),
            ranked_gap(residual[self.order], weight[self.order], BINS),
            fixed_point(smooth.error_at)[1],
        ]


def resampled_measures(
    reports: Sequence[LabelledRows], *, resamples: int = 1000, seed: int = 0
) -> Vector:
    """Measure every report on the same resamples of the rows.

    Parameters
    ----------
    reports : sequence of LabelledRows
        Reports on the same rows.
    resamples : int
        Bootstrap resamples.
    seed : int
        Seed of the resampling.

    Returns
    -------
    values : ndarray of shape (reports, resamples, measures)
        The measures named by `RESAMPLED`.
    """
    rng = np.random.default_rng(seed)
    rows = len(reports[0])
    resamplers = [_Resampler(report) for report in reports]
    values = np.empty((len(reports), resamples, len(RESAMPLED)))
    for place in range(resamples):
        counts = np.bincount(rng.integers(0, rows, rows), minlength=rows).astype(np.float64)
        for report, resampler in enumerate(resamplers):
            values[report, place] = resampler.measures(counts)
    return values


def percentile_interval(values: Vector, level: float) -> tuple[Vector, Vector]:
    """Return the central interval of resampled values along the first axis."""
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(values, [tail, 1.0 - tail], axis=0)
    return low, high
