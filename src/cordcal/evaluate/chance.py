"""What may be chance in the metrics of classes and groups: `joint_allowances`.

Labels are drawn from the probabilities, as if these were right, for all parts at once (Westfall
and Young).  In each draw the most surprising part counts: the draws show how surprising it is in
a share 1 − α of all cases, whatever the number, the sizes and the dependence of the parts.

How surprising a part is must be comparable between parts: it is the exponent of the tail of a
Poisson variable with the mean, the variance and the skewness of the part's metric.  For a part of
nearly certain rows, in which draws show hardly an error, that is the Chernoff bound, so that such
parts do not decide for all others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Classes, Matrix, Vector
from cordcal.metrics.base import BlockStream, LabelledRows, MeanStream, Metric, ProbabilityMatrix

# The spread shrinks with the root of the number of rows, so some of a part's rows are enough.
_CHANCE_ROWS = 20_000
# Labels that are drawn at once.
_LABELS_AT_ONCE = 2**20
# The estimate and its draws are summed in different orders.
_ROUNDING = 1e-12


def joint_allowances(
    metric: Metric,
    matrix: ProbabilityMatrix,
    parts: Sequence[Classes],
    estimates: Vector,
    clusters: Classes | None,
    alpha: float,
    seed: int,
) -> Vector:
    """Return how much worse than expected each part may be by chance, for all parts together.

    A calibration error of right probabilities is only chance, so all of it counts; of other
    metrics, what lies beyond their expectation.  Rows of one cluster share their luck: they are
    right or wrong together, as far as their confidences allow.

    Parameters
    ----------
    metric : Metric
        The metric; lower is better.
    matrix : ProbabilityMatrix
        The probabilities of all rows.
    parts : sequence of ndarray of int
        The rows of each part; no row belongs to two.
    estimates : ndarray
        The metric of each part.
    clusters : ndarray of int, optional
        The cluster of each row, as numbers from 0; by default each row is one of its own.
    alpha : float
        The probability that any part exceeds its allowance, if the probabilities are right.
    seed : int
        Seed of the draws.
    """
    rng = np.random.default_rng([seed, len(parts)])
    drawn = [
        np.sort(rng.choice(rows, _CHANCE_ROWS, replace=False)) if len(rows) > _CHANCE_ROWS else rows
        for rows in parts
    ]
    scale = np.sqrt([len(some) / len(rows) for some, rows in zip(drawn, parts, strict=True)])
    rows = np.concatenate(drawn)
    draws = _Draws(take(matrix, rows), np.cumsum([0, *map(len, drawn)]), of_rows(clusters, rows))
    values, moments = draws.of(metric, alpha, rng)
    if metric.calibration_error:
        # The observed value counts in the mean as the draws do: errors in parts where no draw
        # shows one would seem more surprising than the draws otherwise.
        observed = np.where(np.isfinite(estimates), estimates / scale, values.mean(axis=1))
        moments = replace(moments, mean=np.column_stack([values, observed]).mean(axis=1))
    surprise = _surprise(values - moments.mean[:, None], moments).max(axis=0)
    rank = math.ceil((1.0 - alpha) * (len(surprise) + 1)) - 1
    excess = _excess(float(np.sort(surprise)[rank]), moments)
    return scale * (excess + moments.mean * metric.calibration_error) + _ROUNDING


@dataclass(frozen=True, eq=False)
class _Moments:
    """Mean and variance of each part's metric, and its third cumulant over the variance."""

    mean: Vector
    variance: Vector
    jump: Vector


def _surprise(excess: Matrix, moments: _Moments) -> Matrix:
    """Return the tail exponent v/b² · h(bx/v) of each excess x; h(u) = (1 + u) log(1 + u) − u."""
    x = np.maximum(excess, 0.0)
    v, b = moments.variance[:, None], moments.jump[:, None]
    u = np.divide(b * x, v, out=np.zeros_like(x), where=v > 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Below 1e-4, h(u) cancels; it is u²/2 − u³/6.
        exact = ((1.0 + u) * np.log1p(u) - u) * v / (b * b)
        near = x * x / (2.0 * v) * (1.0 - u / 3.0)
    return np.asarray(np.where(v > 0.0, np.where(u < 1e-4, near, exact), 0.0))


def _excess(surprise: float, moments: _Moments) -> Vector:
    """Return the excess with a given surprise, by bisection."""
    low = np.zeros(len(moments.mean))
    # h(u) ≥ u²/(2 + u) bounds the excess from above.
    linear = surprise * moments.jump
    high = linear + np.sqrt(linear**2 + 2.0 * surprise * moments.variance)
    for _ in range(60):
        middle = (low + high) / 2.0
        less = _surprise(middle[:, None], moments)[:, 0] < surprise
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    return high


@dataclass(frozen=True, eq=False)
class _Draws:
    """Rows whose labels are drawn; part i has the rows from ``starts[i]`` to ``starts[i + 1]``."""

    matrix: ProbabilityMatrix
    starts: Classes
    clusters: Classes | None

    def of(self, metric: Metric, alpha: float, rng: np.random.Generator) -> tuple[Matrix, _Moments]:
        """Return a metric of each part, parts × draws, and its moments."""
        rows = _LabelDraws.of(self.matrix)
        stream = metric.stream()
        uniform = self._uniform(metric.draws, alpha, rng)
        if isinstance(stream, MeanStream):
            blocks = [self._part_means(rows.losses(stream, u)) for u in uniform]
            return np.concatenate(blocks, axis=1), self._moments(*rows.moments(stream))
        parts = [slice(*pair) for pair in itertools.pairwise(self.starts.tolist())]
        blocks = []
        for u in uniform:
            if metric.of_correct is None:
                labels = rows.labels(u)
                block = [self._one_by_one(metric, at, labels[at]) for at in parts]
            else:
                right = u < rows.confidence[:, None]
                block = [metric.of_correct(rows.confidence[at], right[at]) for at in parts]
            blocks.append(np.stack(block))
        values = np.concatenate(blocks, axis=1)
        spread = rows.confidence * (1.0 - rows.confidence)
        moments = self._moments(spread, spread, np.abs(2.0 * rows.confidence - 1.0))
        # These are moments of the sum of all residuals: bins and classes scale them alike.
        seen, expected = values.var(axis=1).sum(), moments.variance.sum()
        scale = seen / expected if seen and expected else 1.0
        return values, replace(
            moments, variance=moments.variance * scale, jump=moments.jump * math.sqrt(scale)
        )

    def _one_by_one(self, metric: Metric, part: slice, labels: Classes) -> Vector:
        matrix = replace(self.matrix, values=self.matrix.values[part])
        return np.array([measure(metric, matrix, column) for column in labels.T])

    def _uniform(self, draws: int, alpha: float, rng: np.random.Generator) -> Iterator[Matrix]:
        """Yield what decides the labels, rows × draws in blocks; clusters share it."""
        # With fewer, no draw would be beyond the level.
        draws = max(draws, math.ceil(1.0 / alpha) - 1)
        step = max(1, _LABELS_AT_ONCE // self.matrix.rows)
        for start in range(0, draws, step):
            count = min(step, draws - start)
            if self.clusters is None:
                yield rng.random((self.matrix.rows, count))
            else:
                yield rng.random((int(self.clusters.max()) + 1, count))[self.clusters]

    def _part_means(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        sums = np.add.reduceat(values, self.starts[:-1], axis=0)
        return np.asarray((sums.T / np.diff(self.starts)).T)

    def _moments(self, mean: Vector, variance: Vector, jump: Vector) -> _Moments:
        """Return the moments of parts from those of rows; deviations of one cluster add up."""
        sizes = np.diff(self.starts)
        part = np.repeat(np.arange(len(sizes)), sizes)
        deviation = np.sqrt(variance)
        if self.clusters is not None:
            pairs, index = np.unique(np.stack([part, self.clusters]), axis=1, return_inverse=True)
            deviation, jump = (
                np.asarray(np.bincount(index, column), dtype=np.float64)
                for column in (deviation, jump)
            )
            part = pairs[0]
        total = np.bincount(part, deviation**2)
        third = np.bincount(part, jump * deviation**2)
        ratio = np.divide(third, total, out=np.zeros_like(third), where=total > 0.0)
        return _Moments(self._part_means(mean), total / sizes**2, np.maximum(ratio, 0.0) / sizes)


@dataclass(frozen=True, eq=False)
class _LabelDraws:
    """Rows of probabilities as distributions of their labels.

    A number u between 0 and 1 decides a label: the prediction if u is below its confidence,
    otherwise the other classes in their order.  ``ends`` is one sorted list for all rows: those
    of row i lie between i and i + 1.
    """

    probabilities: npt.NDArray[Any]
    confidence: Vector
    prediction: Classes
    ends: Vector
    squares: Vector

    @classmethod
    def of(cls, matrix: ProbabilityMatrix) -> _LabelDraws:
        prediction, number = matrix.predictions(), np.arange(matrix.rows)
        others = matrix.values.astype(np.float64)
        confidence = np.minimum(others[number, prediction], 1.0)
        squares = np.vecdot(others, others)
        others[number, prediction] = 0.0
        others.cumsum(axis=1, out=others)
        total = others[:, -1:].copy()
        np.divide(others, total, out=others, where=total > 0.0)
        others += number[:, None]
        return cls(matrix.values, confidence, prediction, others.ravel(), squares)

    def _wrong(self, u: Matrix) -> tuple[Classes, Classes, Classes]:
        """Return the rows and draws whose labels are not the predictions, and these labels."""
        rows, draws = np.nonzero(u >= self.confidence[:, None])
        below = self.confidence[rows]
        # Rounding must not reach the next row.
        share = np.minimum((u[rows, draws] - below) / (1.0 - below), 1.0 - 1e-9)
        classes = self.probabilities.shape[1]
        labels = np.searchsorted(self.ends, share + rows, side="right") - rows * classes
        return rows, draws, np.clip(labels, 0, classes - 1)

    def labels(self, u: Matrix) -> Classes:
        """Return drawn labels, rows × draws."""
        labels = np.broadcast_to(self.prediction[:, None], u.shape).copy()
        rows, draws, others = self._wrong(u)
        labels[rows, draws] = others
        return labels

    def _loss(self, stream: MeanStream, rows: Classes, labels: Classes) -> Vector:
        mass = self.probabilities[rows, labels].astype(np.float64)
        errors = self.squares[rows] + 1.0 - 2.0 * mass
        return stream.of_rows(
            LabelledRows(self.confidence[rows], self.prediction[rows], mass, errors, labels, None)
        )

    def losses(self, stream: MeanStream, u: Matrix) -> Matrix:
        """Return the losses of drawn labels, rows × draws."""
        right = self._loss(stream, np.arange(len(u)), self.prediction)
        losses = np.broadcast_to(right[:, None], u.shape).copy()
        rows, draws, others = self._wrong(u)
        losses[rows, draws] = self._loss(stream, rows, others)
        return losses

    def moments(self, stream: MeanStream) -> tuple[Vector, Vector, Vector]:
        """Return mean and variance of each loss, and its third cumulant over the variance."""
        count, classes = self.probabilities.shape
        result = np.zeros((3, count))
        step = max(1, _LABELS_AT_ONCE // classes)
        for start in range(0, count, step):
            at = np.arange(start, min(start + step, count))
            every = np.tile(np.arange(classes), len(at))
            losses = self._loss(stream, np.repeat(at, classes), every).reshape(len(at), classes)
            weight = self.probabilities[at].astype(np.float64)
            weight /= weight.sum(axis=1, keepdims=True)
            mean = np.vecdot(weight, losses)
            deviation = losses - mean[:, None]
            squares = weight * deviation**2
            variance, third = squares.sum(axis=1), np.vecdot(squares, deviation)
            ratio = np.divide(third, variance, out=np.zeros_like(mean), where=variance > 0.0)
            result[:, at] = mean, variance, ratio
        return result[0], result[1], result[2]


def of_rows(clusters: Classes | None, rows: Classes) -> Classes | None:
    """Return the clusters of some rows."""
    return None if clusters is None else clusters[rows]


def take(matrix: ProbabilityMatrix, rows: Classes) -> ProbabilityMatrix:
    """Return some rows of a matrix."""
    return replace(matrix, values=matrix.values[rows])


def measure(metric: Metric, matrix: ProbabilityMatrix, labels: Classes) -> float:
    """Return a metric of rows whose predictions follow the matrix's rule."""
    stream = metric.stream()
    if not isinstance(stream, BlockStream):
        return metric.value(matrix.reduce(labels))
    stream.update_checked(matrix, labels, None)
    return float(stream.result())
