"""Calibration of every class's probability, not only the largest: `classwise_ece`."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from cordcal._door.errors import Refusal
from cordcal._door.types import Classes, Vector
from cordcal.metrics._bins import BINS, bin_index, check_bins
from cordcal.metrics._documented import documented
from cordcal.metrics._feeding import fed_report
from cordcal.metrics._measure import Measure
from cordcal.metrics._stream import BlockStream, require_rows, unlike


class ClasswiseECEStream(BlockStream):
    """`classwise_ece` of blocks of rows in O(bins · classes) memory.

    Parameters
    ----------
    bins : int
        Number of equal-width bins.

    Examples
    --------
    >>> stream = ClasswiseECEStream().update([[0.8, 0.2]], [0])
    >>> round(stream.merge(ClasswiseECEStream().update([[0.4, 0.6]], [0])).result(), 6)
    0.4
    """

    def __init__(self, bins: int = BINS) -> None:
        self.bins = check_bins(bins)
        self._weight = 0.0
        # By bin and class: Σ w (p − 1[y = class]).
        self._gaps: Vector | None = None

    def visit(self, block: npt.NDArray[Any], wide: Vector, labels: Classes, weight: Vector) -> None:
        """Add a checked block, as given and in float64."""
        classes = block.shape[1]
        gaps = self._sized(classes)
        # Among many classes nearly every entry is small: whole rows go to the first bin, and
        # the few entries beyond its edge are moved on.  The edge rounded to a narrow dtype
        # lets some of the first bin's own entries through, which then move nowhere.
        gaps[0] += weight @ wide
        large = np.flatnonzero(block >= block.dtype.type(1.0 / self.bins))
        row = large // classes
        column = large - row * classes
        mass = wide.ravel()[large]
        moved = weight[row] * mass
        # One flat index: the fast path of ufunc.at is for one dimension.
        flat = gaps.reshape(-1)
        np.add.at(flat, bin_index(mass, self.bins) * classes + column, moved)
        np.subtract.at(flat, column, moved)
        true_mass = wide[np.arange(len(wide)), labels]
        np.subtract.at(flat, bin_index(true_mass, self.bins) * classes + labels, weight)
        self._weight += float(weight.sum())

    def _sized(self, classes: int) -> Vector:
        if self._gaps is None:
            self._gaps = np.zeros((self.bins, classes))
        elif classes and self._gaps.shape[1] != classes:
            raise Refusal(
                "probabilities",
                f"has {classes} classes but earlier blocks had {self._gaps.shape[1]}",
                "pass the same columns in every block",
            )
        return self._gaps

    def merge(self, other: Self) -> Self:
        """Add what another stream of the same kind has seen; return this stream."""
        if other.bins != self.bins:
            raise unlike(f"{self.bins} and {other.bins} bins")
        if other._gaps is not None:
            self._sized(other._gaps.shape[1])[:] += other._gaps
            self._weight += other._weight
        return self

    def result(self) -> float:
        """Return the classwise ECE of all rows seen so far."""
        require_rows(self._weight)
        gaps = self._sized(0)
        return float(np.abs(gaps).sum() / (gaps.shape[1] * self._weight))


@documented
def classwise_ece(
    probabilities: Any,
    labels: Any,
    *,
    bins: int = BINS,
    sample_weight: Any = None,
    axis: int | None = None,
    ignore_index: int | None = None,
) -> float:
    """Return the classwise expected calibration error: the mean over classes of each one's ECE.

    For class j the probabilities p_j of all rows are put in equal-width bins (lo, hi], as in
    `ece`, and compared with how often j is the label.  The mean runs over all K columns;
    a class that no label names counts with the probability it was given.

    Parameters
    ----------
    {report}
    bins : int
        Number of bins.
    {rows}

    Returns
    -------
    classwise_ece : float
        Between 0 and 2 / K.

    Examples
    --------
    >>> round(classwise_ece([[0.8, 0.2], [0.4, 0.6]], [0, 0]), 6)
    0.4
    """
    given = (probabilities, labels, sample_weight, axis, ignore_index)
    return fed_report(ClasswiseECEStream(bins), *given).result()


CLASSWISE_ECE = Measure(
    "classwise_ece",
    "classwise ECE",
    "cwECE",
    "The gap of ECE for every class's own probability, averaged over the classes.",
    classwise_ece,
    ClasswiseECEStream,
    unit="%",
    digits=3,
)
