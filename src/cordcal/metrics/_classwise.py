"""Calibration of every class's probability, not only the largest: `classwise_ece`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from cordcal._door.errors import Refusal
from cordcal._door.types import Classes, Matrix, Vector
from cordcal.metrics._bins import BINS, bin_index, check_bins
from cordcal.metrics._documented import documented
from cordcal.metrics._feeding import fed_report
from cordcal.metrics._measure import Measure
from cordcal.metrics._stream import BlockStream, WeightedSums, require_rows, unlike


@dataclass(frozen=True, eq=False)
class ClassBins:
    """Every class's probability in bins; each field is an array of bins by classes.

    Attributes
    ----------
    weight : ndarray
        Rows that give the class a probability in the bin; their weight, where they have one,
        relative to the largest where sums of weights would leave the range of float64.
    mass, hits : ndarray
        The probabilities summed, and how many of the rows are of the class.
    """

    weight: Matrix
    mass: Matrix
    hits: Matrix

    @property
    def ece(self) -> Vector:
        """Each class's gap between probability and frequency, weighted by rows."""
        return np.asarray(np.abs(self.mass - self.hits).sum(axis=0) / self.weight[:, 0].sum())

    def of(self, index: int) -> list[tuple[float, float, float]]:
        """Return mean probability, frequency and rows of one class in each bin that has rows."""
        filled = np.flatnonzero(self.weight[:, index] > 0.0)
        weight, mass, hits = (each[filled, index] for each in (self.weight, self.mass, self.hits))
        return list(
            zip((mass / weight).tolist(), (hits / weight).tolist(), weight.tolist(), strict=True)
        )


class ClasswiseECEStream(WeightedSums, BlockStream):
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

    _sums = (("_by_class", 1),)

    def __init__(self, bins: int = BINS) -> None:
        self.bins = check_bins(bins)
        # By bin and class: Σ w, Σ w p and Σ w 1[y = class]; the first bin of the former two is
        # what the others leave of all rows, and of all their probabilities.
        self._by_class: npt.NDArray[np.float64] | None = None

    def visit(self, block: npt.NDArray[Any], wide: Vector, labels: Classes, weight: Vector) -> None:
        """Add a checked block, as given and in float64."""
        classes = block.shape[1]
        weight = self._in_unit(weight, len(weight))
        rows, masses, hits = self._sized(classes)
        rows[0] += weight.sum()
        masses[0] += weight @ wide
        # Among many classes nearly every entry is small: only the few beyond the first bin are
        # looked at.  The edge rounded to a narrow dtype lets some of its own entries through.
        large = np.flatnonzero(block >= block.dtype.type(1.0 / self.bins))
        row = large // classes
        mass = wide.ravel()[large]
        place = bin_index(mass, self.bins) * classes + (large - row * classes)
        of_row = weight[row]
        for sums, values in ((rows, of_row), (masses, of_row * mass)):
            found = np.bincount(place, values, minlength=sums.size).reshape(sums.shape)
            sums[1:] += found[1:]
        true_mass = wide[np.arange(len(wide)), labels]
        # One flat index: the fast path of ufunc.at is for one dimension.
        np.add.at(hits.reshape(-1), bin_index(true_mass, self.bins) * classes + labels, weight)

    def _sized(self, classes: int) -> npt.NDArray[np.float64]:
        if self._by_class is None:
            self._by_class = np.zeros((3, self.bins, classes))
        elif classes and self._by_class.shape[2] != classes:
            raise Refusal(
                "probabilities",
                f"has {classes} classes but earlier blocks had {self._by_class.shape[2]}",
                "pass the same columns in every block",
            )
        return self._by_class

    def merge(self, other: Self) -> Self:
        """Add what another stream of the same kind has seen; return this stream."""
        if other.bins != self.bins:
            raise unlike(f"{self.bins} and {other.bins} bins")
        other = self._same_unit(other)
        if other._by_class is not None:
            self._sized(other._by_class.shape[2])[:] += other._by_class
        return self

    def by_class(self) -> ClassBins:
        """Return the bins of every class of all rows seen so far."""
        sums = self._sized(0).copy()
        require_rows(sums[0, 0].max(initial=0.0))
        sums[:2, 0] -= sums[:2, 1:].sum(axis=1)
        return ClassBins(*sums)

    def result(self) -> float:
        """Return the classwise ECE of all rows seen so far."""
        return float(self.by_class().ece.mean())


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
