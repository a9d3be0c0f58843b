"""Calibration in equal-width bins: of the top label, of one class, and of every class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.exact import ordinary_weights, weight_unit
from cordcal._numeric.types import ArrayLike, Classes, Floats, Matrix, Record, Vector
from cordcal._validation.names import Name
from cordcal._validation.table import match
from cordcal.metrics.base import (
    BlockStream,
    LabelledRows,
    Metric,
    ProbabilityMatrix,
    Resampler,
    RowCollector,
    RowStream,
    WeightedSums,
    binned_gaps,
    check_mergeable,
    fill_docstring,
    require_rows,
    update_stream,
    weighted_sum_matrix,
)

# The paper's number of bins.
BINS = 15


def check_bins(bins: int) -> int:
    """Return the number of bins; raise an error unless it is a whole number, at least 1."""
    if isinstance(bins, bool) or not isinstance(bins, int | np.integer) or bins < 1:
        raise InputError("bins", f"is {bins!r}", "pass a whole number of bins, at least 1")
    return int(bins)


def bin_edges(bins: int) -> Vector:
    """Return the edges m / bins, correctly rounded, so that 2/3 lies on its edge."""
    return np.arange(bins + 1) / bins


def bin_index(confidence: Vector, bins: int) -> Classes:
    """Return the bin (lo, hi] of each confidence; 0 is in the first bin, 1 in the last.

    Examples
    --------
    >>> import numpy as np
    >>> bin_index(np.array([0.0, 0.2, 0.2000001, 2 / 3, 1.0]), 15)
    array([ 0,  2,  3,  9, 14])
    """
    return np.searchsorted(bin_edges(bins)[1:-1], confidence, side="left")


# Bins of equal mass have so many rows or more: the accuracy of fewer is mostly noise.
MIN_ROWS_PER_BIN = 10


@dataclass(frozen=True)
class DiagramMark:
    """A bin of a reliability diagram that has rows; areas of marks are proportional to rows."""

    count: int
    confidence: float
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    area: float

    @property
    def is_few(self) -> bool:
        """Whether it has so few rows that no line is drawn through it."""
        return self.count < MIN_ROWS_PER_BIN


@dataclass(frozen=True, eq=False)
class Reliability(Record):
    """The bins of a reliability diagram; every field is a vector with one entry per bin.

    Attributes
    ----------
    lower, upper : ndarray
        The bin (lower, upper]; the first bin also includes 0.
    count : ndarray of int
        Rows in the bin.
    weight : ndarray
        Their total weight; equal to ``count`` without sample weights, and relative to the
        largest weight if sums of weights overflow.
    confidence, accuracy : ndarray
        Weighted means over the bin's rows, NaN in an empty bin.
    accuracy_low, accuracy_high : ndarray
        95 % Clopper–Pearson interval of the accuracy, (0, 1) in an empty bin.  With sample
        weights it uses Kish's effective number of rows, (Σw)² / Σw².
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

    def marks(self) -> list[DiagramMark]:
        """Return the marks of the diagram, whose areas are shares of the largest one.

        Examples
        --------
        >>> bins = reliability([[0.9, 0.1]] * 3 + [[0.6, 0.4]], [0, 0, 1, 0])
        >>> [(mark.count, mark.confidence, round(mark.area, 3)) for mark in bins.marks()]
        [(1, 0.6, 0.333), (3, 0.9, 1.0)]
        """
        area = self.weight / self.weight.max()
        vectors = (self.count, self.confidence, self.accuracy)
        ends = (self.accuracy_low, self.accuracy_high)
        rows = zip(*(vector.tolist() for vector in (*vectors, *ends, area)), strict=True)
        return [DiagramMark(*row) for row in rows if row[-1] > 0.0]

    def __len__(self) -> int:
        return int(self.count.shape[0])

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the vectors as lists by name; None for undefined values of empty bins."""
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
    _count_name, _setting = "_count", "bins"

    def __init__(self, bins: int = BINS) -> None:
        self.bins = check_bins(bins)
        self._edges = bin_edges(self.bins)
        self._count = np.zeros(self.bins, dtype=np.int64)
        self._weight, self._squares, self._confidence, self._correct = (
            np.zeros(self.bins) for _ in range(4)
        )

    def add(self, rows: LabelledRows) -> None:
        """Add reduced rows."""
        index = np.searchsorted(self._edges[1:-1], rows.confidence, side="left")
        weight = self._in_unit(rows.weight, len(rows))

        def total(values: Vector) -> Vector:
            return np.asarray(np.bincount(index, values, minlength=self.bins), dtype=np.float64)

        self._count += np.bincount(index, minlength=self.bins)
        self._weight += total(weight)
        self._squares += total(weight * weight)
        self._confidence += total(weight * rows.confidence)
        self._correct += total(weight * rows.correct)


class ECEStream(_BinStream):
    """`ece` of blocks of rows in O(bins) memory; how rows are split changes only the last bits.

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
        """Return the ECE of all rows added so far: Σ ``|Σ confidence − Σ correct|`` / Σ weight."""
        total = float(self._weight.sum())
        require_rows(total)
        return float(np.abs(self._confidence - self._correct).sum()) / total


class ReliabilityStream(_BinStream):
    """`reliability` of blocks of rows in O(bins) memory.

    Parameters
    ----------
    bins : int
        Number of equal-width bins.
    """

    @classmethod
    def with_edges(cls, edges: Vector) -> Self:
        """Return a stream with these edges of the bins, from 0 to 1."""
        stream = cls(len(edges) - 1)
        stream._edges = edges
        return stream

    def result(self) -> Reliability:
        """Return the bins of all rows added so far."""
        require_rows(self._weight.sum())
        edges = self._edges
        filled = self._weight > 0.0
        weight = np.where(filled, self._weight, np.nan)
        accuracy = self._correct / weight
        effective = weight * weight / np.where(filled, self._squares, np.nan)
        low, high = clopper_pearson(accuracy * effective, effective)
        return Reliability(
            lower=edges[:-1],
            upper=edges[1:],
            count=self._count.copy(),
            weight=self._unscaled_weight(),
            confidence=self._confidence / weight,
            accuracy=accuracy,
            accuracy_low=np.where(filled, low, 0.0),
            accuracy_high=np.where(filled, high, 1.0),
        )

    def _unscaled_weight(self) -> Vector:
        """Return the weights of the bins in the caller's unit, unless their sum overflows."""
        with np.errstate(over="ignore"):
            weight = np.ldexp(self._weight, weight_unit(self._exponent))
        return weight if np.isfinite(weight.sum()) else self._weight.copy()


def clopper_pearson(successes: Vector, trials: Vector) -> tuple[Vector, Vector]:
    """Return the exact 95 % interval of each success rate; counts may be fractional.

    Examples
    --------
    >>> import numpy as np
    >>> low, high = clopper_pearson(np.array([0.0, 5.0]), np.array([10.0, 10.0]))
    >>> low.round(4), high.round(4)
    (array([0.    , 0.1871]), array([0.3085, 0.8129]))
    """
    from scipy.special import betaincinv

    tail = 0.025
    failures = np.maximum(trials - successes, 0.0)
    none_succeed, all_succeed = successes <= 0.0, failures <= 0.0
    low = betaincinv(np.where(none_succeed, 1.0, successes), failures + 1.0, tail)
    high = betaincinv(successes + 1.0, np.where(all_succeed, 1.0, failures), 1.0 - tail)
    return np.where(none_succeed, 0.0, low), np.where(all_succeed, 1.0, high)


@fill_docstring
def ece(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    bins: int = BINS,
    sample_weight: ArrayLike | None = None,
    axis: int | None = None,
    ignore_index: int | None = None,
    class_names: Sequence[Name] | None = None,
) -> float:
    """Return the expected calibration error of the top label.

    The mean over rows of the gap between confidence and accuracy within equal-width bins
    (lo, hi] of the top confidence.  A confidence on an edge belongs to the bin below it,
    0 to the first bin and 1 to the last.  Edges are m / ``bins`` in float64; float32
    confidences are compared with them exactly.

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
    >>> round(ece([[0.8, 0.2], [0.4, 0.6]], [0, 0]), 6)
    0.4
    """
    return update_stream(
        ECEStream(bins), [probabilities], labels, sample_weight, axis, ignore_index, class_names
    ).result()


def equal_mass_bins(rows: LabelledRows, bins: int = BINS) -> Reliability:
    """Return a reliability diagram of bins that hold equally many rows, by weight.

    There are fewer bins if these would hold less than ten rows.  Equal confidences are in one
    bin.

    Examples
    --------
    >>> rows = LabelledRows(*[np.linspace(0.5, 0.9, 40)] * 4, *[np.zeros(40, int)], None)
    >>> equal_mass_bins(rows).count.tolist()
    [10, 10, 10, 10]
    """
    bins = max(1, min(check_bins(bins), len(rows) // MIN_ROWS_PER_BIN))
    order = np.argsort(rows.confidence, kind="stable")
    mass = np.cumsum(ordinary_weights(rows.weights)[order])
    last = np.searchsorted(mass, np.arange(1, bins) / bins * mass[-1] * (1.0 - 1e-12))
    inner = np.unique(rows.confidence[order[last]])
    inner = inner[(inner > 0.0) & (inner < min(rows.confidence[order[-1]], 1.0))]
    stream = ReliabilityStream.with_edges(np.concatenate([[0.0], inner, [1.0]]))
    stream.add(rows)
    return stream.result()


@fill_docstring
def reliability(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    bins: int = BINS,
    strategy: Literal["uniform", "quantile"] = "uniform",
    sample_weight: ArrayLike | None = None,
    axis: int | None = None,
    ignore_index: int | None = None,
    class_names: Sequence[Name] | None = None,
) -> Reliability:
    """Return the bins of a reliability diagram of the top label.

    By default the bins are those of `ece`; accuracies have 95 % Clopper–Pearson intervals, which
    do not collapse in a bin whose rows are all correct or all wrong.

    Parameters
    ----------
    {probabilities, labels}
    bins : int
        Number of bins; the paper's 15 by default.
    strategy : {"uniform", "quantile"}
        Bins of equal width, or of equally many rows; then there are fewer than ``bins`` if these
        would hold less than ten rows.
    {sample_weight, axis, ignore_index, class_names}

    Returns
    -------
    reliability : Reliability
        Counts, accuracies, confidences and intervals per bin.

    Examples
    --------
    >>> reliability([[0.8, 0.2], [0.4, 0.6]], [0, 0], bins=5)
    Reliability(5 bins, 2 rows, ECE 0.4000)
    """
    if strategy not in ("uniform", "quantile"):
        raise InputError("strategy", f"is {strategy!r}", 'write "uniform" or "quantile"')
    rows = [probabilities], labels, sample_weight, axis, ignore_index, class_names
    if strategy == "quantile":
        return equal_mass_bins(update_stream(RowCollector(), *rows).result(), bins)
    return update_stream(ReliabilityStream(bins), *rows).result()


def _resampler(rows: LabelledRows) -> Resampler:
    residual = rows.confidence - rows.correct
    sums = weighted_sum_matrix(bin_index(rows.confidence, BINS), residual, BINS)

    def values(weight: Matrix, total: Vector) -> Vector:
        return np.asarray(np.abs(sums @ weight).sum(axis=0) / total)

    return values


ECE = Metric(
    "ece",
    "expected calibration error",
    "ECE",
    "The gap between confidence and accuracy in 15 bins of equal width.",
    ece,
    ECEStream,
    resampler=_resampler,
    unit="%",
    digits=2,
    calibration_error=True,
    leading=True,
    of_correct=lambda confidence, correct: binned_gaps(
        bin_index(confidence, BINS), confidence, correct
    ),
)


def class_reliability(
    probabilities: ArrayLike,
    labels: ArrayLike,
    index: int | str,
    *,
    bins: int = BINS,
    sample_weight: ArrayLike | None = None,
    class_names: Sequence[Name] | None = None,
) -> Reliability:
    """Return the bins of a reliability diagram of one class.

    `reliability` compares the top confidence with how often the predicted class is correct;
    this compares the probability of one class with how often it is the true class.

    Parameters
    ----------
    probabilities : array_like of shape (n, K)
        The predicted probabilities.
    labels : array_like of int
        The true class of each row, 0..K-1.
    index : int or str
        The class: its column, or its name.
    bins : int
        Number of bins.
    sample_weight : array_like, optional
        Weights of the rows.
    class_names : sequence, optional
        One name per column, if the probabilities are not a data frame.

    Returns
    -------
    reliability : Reliability
        Counts, shares of the class, probabilities and intervals per bin.

    Examples
    --------
    >>> result = class_reliability([[0.8, 0.2], [0.4, 0.6]], [0, 0], 1, bins=5)
    >>> result.count.tolist(), result.accuracy[[0, 2]].tolist()
    ([1, 0, 1, 0, 0], [0.0, 0.0])
    """
    matched = match(
        {"probabilities": probabilities},
        class_names=class_names,
        labels=labels,
        sample_weight=sample_weight,
    )
    matrix = ProbabilityMatrix.from_array(matched.matrices[0], "probabilities")
    column = _column_of(index, matrix.classes, matched.columns or [])
    rows = matrix.reduce(*matrix.check_labels(matched.labels, matched.sample_weight))
    # The bins of rows that all predict this class.
    prediction = np.full(len(rows), column, dtype=np.intp)
    stream = ReliabilityStream(bins)
    stream.add(replace(rows, confidence=matrix.mass_on(prediction), prediction=prediction))
    return stream.result()


def _column_of(index: int | str, classes: int, names: list[str]) -> int:
    """Return the column of a class, passed as its index or its name."""
    if isinstance(index, str) and index in names:
        return names.index(index)
    if isinstance(index, str) or not 0 <= index < classes:
        known = f" or one of {', '.join(names)}" if names else ""
        raise InputError("index", f"is {index!r}", f"pass 0..{classes - 1}{known}")
    return int(index)


@dataclass(frozen=True, eq=False)
class ClassBins:
    """Bins of the probability of every class; each field is an array of bins by classes.

    Attributes
    ----------
    weight : ndarray
        The number (or weight) of the rows whose probability of the class is in the bin;
        relative to the largest weight if sums of weights would leave the range of float64.
    mass, hits : ndarray
        The sum of these probabilities, and how many of the rows are of the class.
    """

    weight: Matrix
    mass: Matrix
    hits: Matrix

    @property
    def ece(self) -> Vector:
        """The gap between probability and frequency per class, weighted by rows."""
        return np.asarray(np.abs(self.mass - self.hits).sum(axis=0) / self.weight[:, 0].sum())

    def of(self, index: int) -> list[tuple[float, float, float]]:
        """Return mean probability, frequency and rows of one class, per bin that has rows."""
        filled = np.flatnonzero(self.weight[:, index] > 0.0)
        weight, mass, hits = (field[filled, index] for field in (self.weight, self.mass, self.hits))
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
        # By bin and class: Σ w, Σ w p and Σ w 1[y = class].  For the first two, the first bin
        # holds the sum over all bins until `by_class` subtracts the others.
        self._by_class: npt.NDArray[np.float64] | None = None

    def visit(self, block: Floats, wide: Matrix, labels: Classes, weight: Vector) -> None:
        """Add a checked block, in its own dtype and in float64."""
        classes = block.shape[1]
        weight = self._in_unit(weight, len(weight))
        rows, masses, hits = self._sums_of(classes)
        rows[0] += weight.sum()
        masses[0] += weight @ wide
        # With many classes nearly every entry is in the first bin, so only larger ones are
        # visited.  Rounding the edge to a narrow dtype can let entries of the first bin in.
        large = np.flatnonzero(block >= block.dtype.type(1.0 / self.bins))
        row = large // classes
        mass = wide.ravel()[large]
        cell = bin_index(mass, self.bins) * classes + (large - row * classes)
        row_weight = weight[row]
        for sums, values in ((rows, row_weight), (masses, row_weight * mass)):
            block_sums = np.bincount(cell, values, minlength=sums.size).reshape(sums.shape)
            sums[1:] += block_sums[1:]
        true_mass = wide[np.arange(len(wide)), labels]
        # A flat index, since the fast path of ufunc.at is for one dimension.
        np.add.at(hits.reshape(-1), bin_index(true_mass, self.bins) * classes + labels, weight)

    def _sums_of(self, classes: int) -> npt.NDArray[np.float64]:
        """Return the sums, made at the first call; 0 stands for any number of classes."""
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
        """Add the rows of another stream of the same kind; return this stream."""
        check_mergeable(self, other, "bins")
        other = self._in_common_unit(other)
        if other._by_class is not None:
            self._sums_of(other._by_class.shape[2])[:] += other._by_class
        return self

    def by_class(self) -> ClassBins:
        """Return the bins of every class of all rows added so far."""
        sums = self._sums_of(0).copy()
        require_rows(sums[0, 0].max(initial=0.0))
        sums[:2, 0] -= sums[:2, 1:].sum(axis=1)
        return ClassBins(*sums)

    def result(self) -> float:
        """Return the classwise ECE of all rows added so far."""
        return float(self.by_class().ece.mean())


@fill_docstring
def classwise_ece(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    bins: int = BINS,
    sample_weight: ArrayLike | None = None,
    axis: int | None = None,
    ignore_index: int | None = None,
    class_names: Sequence[Name] | None = None,
) -> float:
    """Return the classwise expected calibration error: the mean over classes of their ECEs.

    For class j the probabilities p_j of all rows are put in equal-width bins (lo, hi], as in
    `ece`, and compared with how often j is the label.  The mean runs over all K columns;
    a class that is never the label counts with its mean probability.

    Parameters
    ----------
    {probabilities, labels}
    bins : int
        Number of bins.
    {sample_weight, axis, ignore_index, class_names}

    Returns
    -------
    classwise_ece : float
        Between 0 and 2 / K.

    Examples
    --------
    >>> round(classwise_ece([[0.8, 0.2], [0.4, 0.6]], [0, 0]), 6)
    0.4
    """
    return update_stream(
        ClasswiseECEStream(bins),
        [probabilities],
        labels,
        sample_weight,
        axis,
        ignore_index,
        class_names,
    ).result()


CLASSWISE_ECE = Metric(
    "classwise_ece",
    "classwise ECE",
    "cwECE",
    "The gap of ECE for every class's own probability, averaged over the classes.",
    classwise_ece,
    ClasswiseECEStream,
    unit="%",
    digits=3,
    calibration_error=True,
    draws=59,
)
