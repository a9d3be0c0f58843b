"""Calibration in equal-width bins: of the top label, of one class, and of every class."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.exact import ordinary_weights, weight_unit
from cordcal._numeric.types import Classes, Matrix, Vector
from cordcal._validation.alignment import align_rows
from cordcal.metrics.record import Measure, Resampler, documented, sums_by_place
from cordcal.metrics.rows import LabelledRows, Report
from cordcal.metrics.stream import (
    BlockStream,
    RowStream,
    WeightedSums,
    fed_report,
    require_rows,
    unlike,
)

# The paper's number of bins.
BINS = 15


def check_bins(bins: int) -> int:
    """Return a number of bins that can be used."""
    if isinstance(bins, bool) or not isinstance(bins, int | np.integer) or bins < 1:
        raise InputError("bins", f"is {bins!r}", "pass a whole number of bins, at least 1")
    return int(bins)


def bin_edges(bins: int) -> Vector:
    """Return the edges m / bins, each correctly rounded, so that 2/3 lies on its edge."""
    return np.arange(bins + 1) / bins


def bin_index(confidence: Vector, bins: int) -> Classes:
    """Return each confidence's bin (lo, hi]; 0 falls in the first bin, 1 in the last.

    Examples
    --------
    >>> import numpy as np
    >>> bin_index(np.array([0.0, 0.2, 0.2000001, 2 / 3, 1.0]), 15)
    array([ 0,  2,  3,  9, 14])
    """
    return np.searchsorted(bin_edges(bins)[1:-1], confidence, side="left")


@dataclass(frozen=True, eq=False)
class Reliability:
    """The bins behind a reliability diagram; every field is a vector with one entry a bin.

    Attributes
    ----------
    lower, upper : ndarray
        The bin (lower, upper]; the first bin holds 0 as well.
    count : ndarray of int
        Rows in the bin.
    weight : ndarray
        Their weight; equal to ``count`` without sample weights, and relative to the largest one
        where sums of weights overflow.
    confidence, accuracy : ndarray
        Weighted means over the bin's rows, NaN in an empty bin.
    accuracy_low, accuracy_high : ndarray
        95 % Clopper–Pearson interval of the accuracy, (0, 1) in an empty bin.  With sample
        weights the number of rows is Kish's effective one, (Σw)² / Σw².
    """

    lower: Vector
    upper: Vector
    count: npt.NDArray[np.int64]
    weight: Vector
    confidence: Vector
    accuracy: Vector
    accuracy_low: Vector
    accuracy_high: Vector

    @property
    def ece(self) -> float:
        """The expected calibration error of these bins."""
        filled = self.count > 0
        gap = np.abs(self.confidence[filled] - self.accuracy[filled])
        weight = ordinary_weights(self.weight)
        return float(weight[filled] @ gap / weight.sum())

    def __len__(self) -> int:
        return int(self.count.shape[0])

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the vectors as lists by name; None where a bin is empty."""
        return {
            field.name: [
                None if value != value else value for value in getattr(self, field.name).tolist()
            ]
            for field in fields(self)
        }

    def __repr__(self) -> str:
        return f"Reliability({len(self)} bins, {int(self.count.sum()):,} rows, ECE {self.ece:.4f})"


class _BinStream(WeightedSums, RowStream):
    """Sums of confidence and correctness in equal-width bins."""

    _sums = (("_weight", 1), ("_squares", 2), ("_confidence", 1), ("_correct", 1))

    def __init__(self, bins: int = BINS) -> None:
        self.bins = check_bins(bins)
        self._count = np.zeros(self.bins, dtype=np.int64)
        self._weight, self._squares, self._confidence, self._correct = (
            np.zeros(self.bins) for _ in range(4)
        )

    def add(self, rows: LabelledRows) -> None:
        """Add rows that were reduced already."""
        index = bin_index(rows.confidence, self.bins)
        weight = self._in_unit(rows.weight, len(rows))

        def total(values: Vector) -> Vector:
            return np.asarray(np.bincount(index, values, minlength=self.bins), dtype=np.float64)

        self._count += np.bincount(index, minlength=self.bins)
        self._weight += total(weight)
        self._squares += total(weight * weight)
        self._confidence += total(weight * rows.confidence)
        self._correct += total(weight * rows.correct)

    def merge(self, other: Self) -> Self:
        """Add what another stream of the same kind has seen; return this stream."""
        if other.bins != self.bins:
            raise unlike(f"{self.bins} and {other.bins} bins")
        other = self._same_unit(other)
        self._count += other._count
        self._weight += other._weight
        self._squares += other._squares
        self._confidence += other._confidence
        self._correct += other._correct
        return self


class ECEStream(_BinStream):
    """`ece` of blocks of rows in O(bins) memory; blocks change the last bits at most.

    Parameters
    ----------
    bins : int
        Number of equal-width bins.

    Examples
    --------
    >>> first = ECEStream().update([[0.8, 0.2]], [0])
    >>> second = ECEStream().update([[0.4, 0.6]], [0])
    >>> round(first.merge(second).result(), 6)
    0.4
    """

    def result(self) -> float:
        """Return the ECE of all rows seen so far."""
        return binned_gap(self._weight, self._confidence, self._correct)


class ReliabilityStream(_BinStream):
    """`reliability` of blocks of rows in O(bins) memory.

    Parameters
    ----------
    bins : int
        Number of equal-width bins.
    """

    def result(self) -> Reliability:
        """Return the bins of all rows seen so far."""
        require_rows(self._weight.sum())
        edges = bin_edges(self.bins)
        filled = self._weight > 0.0
        weight = np.where(filled, self._weight, np.nan)
        accuracy = self._correct / weight
        effective = weight * weight / np.where(filled, self._squares, np.nan)
        low, high = clopper_pearson(accuracy * effective, effective)
        return Reliability(
            lower=edges[:-1],
            upper=edges[1:],
            count=self._count.copy(),
            weight=self._given_weight(),
            confidence=self._confidence / weight,
            accuracy=accuracy,
            accuracy_low=np.where(filled, low, 0.0),
            accuracy_high=np.where(filled, high, 1.0),
        )

    def _given_weight(self) -> Vector:
        """Return the weights of the bins as they were given, unless their sum overflows."""
        with np.errstate(over="ignore"):
            weight = np.ldexp(self._weight, weight_unit(self._exponent))
        return weight if np.isfinite(weight.sum()) else self._weight.copy()


def binned_gap(weight: Vector, confidence: Vector, correct: Vector) -> float:
    """Return Σ |Σ confidence − Σ correct| over the bins, divided by the total weight."""
    total = float(weight.sum())
    require_rows(total)
    return float(np.abs(confidence - correct).sum()) / total


def clopper_pearson(
    successes: Vector, trials: Vector, level: float = 0.95
) -> tuple[Vector, Vector]:
    """Return the exact binomial interval of each success rate; counts need not be whole.

    Examples
    --------
    >>> import numpy as np
    >>> low, high = clopper_pearson(np.array([0.0, 5.0]), np.array([10.0, 10.0]))
    >>> low.round(4), high.round(4)
    (array([0.    , 0.1871]), array([0.3085, 0.8129]))
    """
    from scipy.special import betaincinv

    tail = (1.0 - level) / 2.0
    failures = np.maximum(trials - successes, 0.0)
    none, every = successes <= 0.0, failures <= 0.0
    low = betaincinv(np.where(none, 1.0, successes), failures + 1.0, tail)
    high = betaincinv(successes + 1.0, np.where(every, 1.0, failures), 1.0 - tail)
    return np.where(none, 0.0, low), np.where(every, 1.0, high)


@documented
def ece(
    probabilities: Any,
    labels: Any,
    *,
    bins: int = BINS,
    sample_weight: Any = None,
    axis: int | None = None,
    ignore_index: int | None = None,
) -> float:
    """Return the expected calibration error of the top label.

    The mean over rows of the gap between confidence and accuracy within equal-width bins
    (lo, hi] of the top confidence.  A confidence on an edge belongs to the bin below it,
    0 to the first bin and 1 to the last.  Edges are m / ``bins`` in float64; a float32
    confidence is compared as the number it is.

    Parameters
    ----------
    {report}
    bins : int
        Number of bins; the paper's 15 by default.
    {rows}

    Returns
    -------
    ece : float
        Between 0 and 1.

    Examples
    --------
    >>> round(ece([[0.8, 0.2], [0.4, 0.6]], [0, 0]), 6)
    0.4
    """
    given = (probabilities, labels, sample_weight, axis, ignore_index)
    return fed_report(ECEStream(bins), *given).result()


@documented
def reliability(
    probabilities: Any,
    labels: Any,
    *,
    bins: int = BINS,
    sample_weight: Any = None,
    axis: int | None = None,
    ignore_index: int | None = None,
) -> Reliability:
    """Return the bins behind a reliability diagram of the top label.

    The bins are those of `ece`; accuracies carry 95 % Clopper–Pearson intervals, which
    keep their width in a bin whose rows are all right or all wrong.

    Parameters
    ----------
    {report}
    bins : int
        Number of bins; the paper's 15 by default.
    {rows}

    Returns
    -------
    reliability : Reliability
        Counts, accuracies, confidences and intervals by bin.

    Examples
    --------
    >>> reliability([[0.8, 0.2], [0.4, 0.6]], [0, 0], bins=5)
    Reliability(5 bins, 2 rows, ECE 0.4000)
    """
    given = (probabilities, labels, sample_weight, axis, ignore_index)
    return fed_report(ReliabilityStream(bins), *given).result()


def _resampler(rows: LabelledRows) -> Resampler:
    residual = rows.confidence - rows.correct
    sums = sums_by_place(bin_index(rows.confidence, BINS), residual, BINS)

    def values(weight: Matrix, total: Vector) -> Vector:
        return np.asarray(np.abs(sums @ weight).sum(axis=0) / total)

    return values


ECE = Measure(
    "ece",
    "expected calibration error",
    "ECE",
    "The gap between confidence and accuracy in 15 bins of equal width.",
    ece,
    ECEStream,
    resampler=_resampler,
    unit="%",
    digits=2,
    leading=True,
)


def class_reliability(
    probabilities: Any,
    labels: Any,
    index: int,
    *,
    bins: int = BINS,
    sample_weight: Any = None,
) -> Reliability:
    """Return the bins behind a reliability diagram of one class.

    Where `reliability` asks how often the predicted class is right, this asks how often the
    class is the true one among rows that give it some probability.

    Parameters
    ----------
    probabilities : array_like of shape (n, K)
        The report to measure.
    labels : array_like of int
        The true class of each row, 0..K-1.
    index : int
        The class.
    bins : int
        Number of bins.
    sample_weight : array_like, optional
        Weights of the rows.

    Returns
    -------
    reliability : Reliability
        Counts, shares of the class, probabilities and intervals by bin.

    Examples
    --------
    >>> found = class_reliability([[0.8, 0.2], [0.4, 0.6]], [0, 0], 1, bins=5)
    >>> found.count.tolist(), found.accuracy[[0, 2]].tolist()
    ([1, 0, 1, 0, 0], [0.0, 0.0])
    """
    probabilities, labels, sample_weight = align_rows(
        probabilities=probabilities, labels=labels, sample_weight=sample_weight
    )
    report = Report.of(probabilities, "probabilities")
    if not 0 <= index < report.classes:
        raise ValueError(f"index is {index}; pass a class, 0..{report.classes - 1}")
    rows = report.labelled(*report.beside(labels, sample_weight))
    chosen = np.full(len(rows), index, dtype=np.intp)
    own = LabelledRows(
        confidence=report.mass_on(chosen),
        prediction=chosen,
        true_mass=rows.true_mass,
        squared_error=rows.squared_error,
        labels=rows.labels,
        weight=rows.weight,
    )
    stream = ReliabilityStream(bins)
    stream.add(own)
    return stream.result()


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
            raise InputError(
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
