"""Paired bootstrap of a report's measures: rows drawn with replacement, the same for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal.metrics._all import measure_report
from cordcal.metrics._bins import BINS, bin_index
from cordcal.metrics._equal_mass import rank_bins
from cordcal.metrics._rows import LabelledRows, Report
from cordcal.metrics._scores import NLL_FLOOR

Matrix = npt.NDArray[np.float64]

# The 2.5 % quantile of a thousand draws rests on 25 of them.
REPLICATES = 1000


class Resamples:
    """How often each row is drawn in each replicate; the same draws for every report.

    Rows are drawn from the whole data set, so that the splits of a comparison, which
    overlap, are resampled together.
    """

    def __init__(self, rows: int, seed: int, replicates: int = REPLICATES) -> None:
        generator = np.random.default_rng([seed, 1])  # apart from the stream that splits
        draws = generator.multinomial(rows, np.full(rows, 1.0 / rows), size=replicates)
        self._draws = draws.astype(np.uint8)  # no row is drawn 256 times

    def weights(self, rows: npt.NDArray[np.intp]) -> Matrix:
        """Return the draws of some rows, one replicate a line."""
        return self._draws[:, rows].astype(np.float64)


def measure(
    report: Any, labels: npt.NDArray[np.intp], weights: Matrix
) -> tuple[dict[str, float], dict[str, npt.NDArray[np.float64]]]:
    """Return each measure of a report, and its value in each replicate."""
    measured = measure_report(Report.of(report, "report"), labels, None)
    values = measured.measures.to_dict()
    del values["n"]
    rows = measured.rows
    total = weights.sum(axis=1)
    ranks = np.empty(len(rows), dtype=np.intp)
    ranks[np.argsort(rows.confidence, kind="stable")] = rank_bins(rows.weights, BINS)
    replicates = {
        "accuracy": weights @ rows.correct / total,
        "nll": weights @ -np.log(np.maximum(rows.true_mass, NLL_FLOOR)) / total,
        "brier": weights @ rows.squared_error / total,
        "ece": _binned(rows, bin_index(rows.confidence, BINS), weights) / total,
        "ece_equal_mass": _binned(rows, ranks, weights) / total,
    }
    return values, replicates


def _binned(
    rows: LabelledRows, bins: npt.NDArray[np.intp], weights: Matrix
) -> npt.NDArray[np.float64]:
    spread = np.zeros((len(rows), BINS))
    spread[np.arange(len(rows)), bins] = rows.confidence - rows.correct
    return np.asarray(np.abs(weights @ spread).sum(axis=1))
