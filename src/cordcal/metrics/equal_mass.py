"""Top-label calibration in bins of equal mass: `ece_equal_mass`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from cordcal._numeric.exact import scale_to_safe_exponent
from cordcal._numeric.types import ArrayLike, Classes, Flags, Matrix, Vector
from cordcal._validation.names import Name
from cordcal.metrics.base import (
    LabelledRows,
    Metric,
    Resampler,
    RowCollector,
    RowStream,
    WeightedSums,
    binned_gaps,
    fill_docstring,
    require_rows,
    update_stream,
    weighted_sum_matrix,
)
from cordcal.metrics.binned import BINS, check_bins

# The stream sorts 1 − confidence into cells of relative width 2^-12, since the confidences of
# a good classifier are close to 1.  Values below 2^-53 count as 0.
_CELL_BITS = 12
_EXPONENTS = 54
_CELLS = (_EXPONENTS << _CELL_BITS) + 1
# Rows per run of the resampled sums: more runs cost sums, longer runs cost steps.
_RUN = 16


def rank_bins(weight: Vector, bins: int) -> Classes:
    """Return the bins of rows that are sorted by confidence.

    Bin m starts at the row before which m / bins of the weight lies; without weights the row
    of rank r is in bin ⌊bins · r / n⌋.  Weights are summed as integers, and a row that misses
    an edge by no more than their rounding is on it, so that equal weights of any size give the
    same bins.

    Examples
    --------
    >>> import numpy as np
    >>> rank_bins(np.ones(5), 2)
    array([0, 0, 0, 1, 1])
    >>> rank_bins(np.full(5, 0.1), 5)
    array([0, 1, 2, 3, 4])
    """
    units = _as_units(weight)
    running = np.cumsum(units)
    total, before = int(running[-1]), running - units
    # Rounding a weight to float64 moves it by up to 2^-53 of the total, or 2^9 units; rounding
    # it to a unit moves the sum by half a unit per row.
    slack = 2**10 + len(units)
    cuts = np.array([-(-m * total // bins) - slack for m in range(1, bins)], dtype=np.int64)
    return np.searchsorted(cuts, before, side="right")


def _as_units(weight: Vector) -> npt.NDArray[np.int64]:
    """Return weights as integer multiples of a power of two; their sum is about 2^61."""
    scaled, _ = scale_to_safe_exponent(weight)
    _, exponent = np.frexp(scaled.sum())
    return np.rint(np.ldexp(scaled, 61 - int(exponent))).astype(np.int64)


def confidence_order(confidence: Vector) -> Classes:
    """Return the rows sorted by confidence, ties in their original order.

    Examples
    --------
    >>> import numpy as np
    >>> confidence_order(np.array([0.5, 1.0, 0.5]))
    array([0, 2, 1])
    """
    narrow = confidence.astype(np.float32)
    if not np.array_equal(narrow, confidence):
        return np.argsort(confidence, kind="stable")
    # A float32 confidence and its row fit in one integer, and integers sort three times as
    # fast; positive floats sort as their bits do.
    keys = (narrow.view(np.uint32).astype(np.uint64) << 32) + np.arange(len(narrow), dtype="u8")
    keys.sort()
    return (keys & 0xFFFFFFFF).astype(np.intp)


def equal_mass_gap(rows: LabelledRows, bins: int) -> float:
    """Return the equal-mass ECE of reduced rows."""
    order = confidence_order(rows.confidence)
    residual = (rows.weights * (rows.confidence - rows.correct))[order]
    weight = rows.weights[order]
    gaps = np.bincount(rank_bins(weight, bins), residual)
    return float(np.abs(gaps).sum() / weight.sum())


class EqualMassECEStream(WeightedSums, RowStream):
    """`ece_equal_mass` of blocks of rows in constant memory, with a bound on its error.

    Equal-mass bins need all confidences in order, which constant memory cannot store exactly.
    The stream keeps sums in 221,185 narrow cells of the confidence; a cell across the edge of
    a bin is shared between the bins in proportion.  `error_bound` bounds the difference from
    `ece_equal_mass` of the same rows.

    Parameters
    ----------
    bins : int
        Number of bins.
    """

    _sums = (("_weight", 1), ("_residual", 1), ("_smallest", 1), ("_largest", 1))
    _count_name, _setting = "_count", "bins"
    _extremes: ClassVar = {"_smallest": min, "_largest": max}

    def __init__(self, bins: int = BINS) -> None:
        self.bins = check_bins(bins)
        self._count = np.zeros(_CELLS, dtype=np.int64)
        self._weight, self._residual = np.zeros(_CELLS), np.zeros(_CELLS)
        # Of the positive weights.
        self._smallest, self._largest = np.inf, 0.0

    def add(self, rows: LabelledRows) -> None:
        """Add reduced rows."""
        mantissa, exponent = np.frexp(np.clip(1.0 - rows.confidence, 0.0, 1.0 - 2.0**-53))
        # frexp's mantissa lies in [1/2, 1): its leading bits number the cells of an octave.
        octave = np.ldexp(2.0 * mantissa - 1.0, _CELL_BITS).astype(np.intp)
        cell = ((exponent + _EXPONENTS - 1) << _CELL_BITS) + octave + 1
        cell = np.where(mantissa == 0.0, 0, cell)
        weight = self._in_unit(rows.weight, len(rows))
        counted = weight > 0.0
        self._count += np.bincount(cell[counted], minlength=_CELLS)
        self._weight += np.bincount(cell, weight, minlength=_CELLS)
        self._residual += np.bincount(
            cell, weight * (rows.confidence - rows.correct), minlength=_CELLS
        )
        self._smallest = min(self._smallest, float(weight[counted].min(initial=np.inf)))
        self._largest = max(self._largest, float(weight.max(initial=0.0)))

    @property
    def _equal_weights(self) -> bool:
        """Whether all rows have the same weight; then each counts once."""
        return self._smallest == self._largest

    def _shares(self) -> tuple[Vector, Vector, Vector, Classes]:
        """Split cells at the edges of bins.

        Return, per piece, its weight, the weight and residual of its cell, and its bin.
        """
        # Cells are numbered from confidence 1 downwards, ranks upwards.
        filled = np.flatnonzero(self._weight)[::-1]
        weight, residual = self._weight[filled], self._residual[filled]
        if self._equal_weights:
            weight, residual = self._count[filled].astype(np.float64), residual / self._largest
        running = np.concatenate([[0.0], np.cumsum(weight)])
        total = running[-1]
        require_rows(total)
        cuts = np.arange(1, self.bins) * total / self.bins
        if self._equal_weights:  # bin m starts at a whole row
            cuts = np.ceil(np.arange(1, self.bins) * total / self.bins)
        edges = np.union1d(running, cuts)
        middle = (edges[:-1] + edges[1:]) / 2.0
        cell = np.searchsorted(running, middle, side="right") - 1
        bins = np.searchsorted(cuts, middle, side="right")
        return np.diff(edges), weight[cell], residual[cell], bins

    def result(self) -> float:
        """Return the equal-mass ECE of all rows added so far, up to `error_bound`."""
        piece, weight, residual, index = self._shares()
        gap = np.bincount(index, piece / weight * residual, minlength=self.bins)
        return float(np.abs(gap).sum() / piece.sum())

    def error_bound(self) -> float:
        """Return the largest possible difference from `ece_equal_mass` of the same rows."""
        piece, weight, _, _ = self._shares()
        # Residuals within a cell span at most one plus the cell's width: a share m of a cell of
        # weight c is off by at most m (1 − m / c) times that, which is 0 for a whole cell.
        split = (1.0 + 2.0**-_CELL_BITS) * float((piece * (1.0 - piece / weight)).sum())
        # A weighted row on an edge belongs to one bin; the stream may split it.
        cut = 0.0 if self._equal_weights else 2.0 * (self.bins - 1) * self._largest
        return min(1.0, (split + cut) / float(piece.sum()))


@fill_docstring
def ece_equal_mass(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    bins: int = BINS,
    sample_weight: ArrayLike | None = None,
    axis: int | None = None,
    ignore_index: int | None = None,
    class_names: Sequence[Name] | None = None,
) -> float:
    """Return the expected calibration error of the top label in bins of equal mass.

    Rows are ranked by confidence, ties by their position, and cut into ``bins`` groups of
    equal size: the row of rank r is in group ⌊bins · r / n⌋.  The value is the mean over
    rows of each group's gap between confidence and accuracy (the L1 norm of the paper).
    With weights, group m starts at the row before which m / bins of the total weight lies.

    Parameters
    ----------
    {probabilities, labels}
    bins : int
        Number of bins; the paper's 15 by default.
    {sample_weight, axis, ignore_index, class_names}

    Returns
    -------
    ece : float
        Between 0 and 1.

    Examples
    --------
    >>> p = [[0.6, 0.4], [0.7, 0.3], [0.8, 0.2], [0.9, 0.1]]
    >>> round(ece_equal_mass(p, [0, 1, 0, 0], bins=2), 6)
    0.15
    """
    stream = update_stream(
        RowCollector(), [probabilities], labels, sample_weight, axis, ignore_index, class_names
    )
    return equal_mass_gap(stream.result(), check_bins(bins))


def _resampler(rows: LabelledRows) -> Resampler:
    order = confidence_order(rows.confidence)
    count = len(order)
    residual = rows.confidence - rows.correct
    # Sums over short runs of ordered rows locate the edge of a bin, then over single rows.
    run = np.empty(count, dtype=np.intp)
    run[order] = np.arange(count) // _RUN
    runs = int(run[order[-1]]) + 1
    masses = weighted_sum_matrix(run, np.ones(count), runs)
    residuals = weighted_sum_matrix(run, residual, runs)
    ordered = np.append(order, np.full(runs * _RUN - count, order[-1]))
    edges = np.arange(1, BINS)[:, None]

    def values(weight: Matrix, total: Vector) -> Vector:
        running, gaps = (
            np.cumsum(np.pad(sums @ weight, ((1, 0), (0, 0))), axis=0)
            for sums in (masses, residuals)
        )
        # As in `rank_bins`: a bin ends with the row that reaches m / bins of the weight, up to
        # the rounding of the sums.
        cuts = edges * running[-1] / BINS * (1.0 - count * 2.0**-52)
        whole = np.stack(
            [np.searchsorted(*pair) for pair in zip(running.T, cuts.T, strict=True)], 1
        )
        whole = np.maximum(whole - 1, 0)
        column = np.arange(len(total))
        below, sums = running[whole, column], gaps[whole, column]
        for place in range(_RUN):
            row = ordered[whole * _RUN + place]
            added = weight[row, column] * (below < cuts)
            below += added
            sums += added * residual[row]
        ends = np.concatenate([gaps[:1], sums, gaps[-1:]])
        return np.asarray(np.abs(np.diff(ends, axis=0)).sum(axis=0) / running[-1])

    return values


def _of_correct(confidence: Vector, correct: Flags) -> Vector:
    bins = np.empty(len(confidence), dtype=np.intp)
    bins[confidence_order(confidence)] = rank_bins(np.ones(len(confidence)), BINS)
    return binned_gaps(bins, confidence, correct)


EQUAL_MASS_ECE = Metric(
    "ece_equal_mass",
    "equal-mass ECE",
    "ECE-EM",
    "The same in 15 bins that hold equally many rows.",
    ece_equal_mass,
    EqualMassECEStream,
    of_rows=lambda rows: equal_mass_gap(rows, BINS),
    resampler=_resampler,
    unit="%",
    digits=2,
    calibration_error=True,
    of_correct=_of_correct,
)
