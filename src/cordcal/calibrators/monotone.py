"""One increasing function of the log-probability for all classes (``mono``): keeps every order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from cordcal._numeric.arrays import block_buffer, row_blocks, row_blocks_of
from cordcal._numeric.types import Array, Kind, Labels, Matrix, Vector
from cordcal._validation.scores import row_weights
from cordcal.calibrators._base import Calibrator, FoldRows, Size, check_positive_integer
from cordcal.calibrators._curves import curve_parameters, interpolate
from cordcal.calibrators._newton import Optimum, Report, bounded_step, damped_newton, progress
from cordcal.calibrators.affine import warn_about_search
from cordcal.calibrators.temperature import (
    VANISHED_LOSS,
    CrossEntropy,
    fit_temperature,
    logit_span,
    logit_unit,
    median_span,
    row_spans,
    subsample,
    subsample_step,
)
from cordcal.expressions import (
    LOWEST_SHIFTED,
    Parameters,
    log_shares,
    multiply_in_place,
)

# Lower bound of the slopes: with smaller ones neighbouring scores could round to ties.  The bound
# is lower for rows with a wider span of logits.
_MIN_SLOPE, _WIDE_SPAN = 1e-3, 64.0
# Number of segments, chosen on 22 data sets.
_SEGMENTS = 12

Positions = npt.NDArray[np.intp]

Listed = tuple[slice, npt.NDArray[np.int32], Vector]
"""A block of rows, and the rows and values of entries taken out of it."""


class MonotoneMap(Calibrator):
    """A monotone map of log-probabilities: ``softmax(g(log p))`` with one g for all classes.

    g is piecewise linear.  Its knots are quantiles of the relevant log-probabilities, those of
    the labels and the two largest of each row; below the first knot it keeps its first slope.
    The slopes are positive and minimise the mean cross-entropy plus ``smoothness`` times the
    squared differences of neighbouring slopes.  This is a convex problem, solved to
    convergence by Newton steps under the bounds; with a large ``smoothness`` it is
    temperature scaling.  Logits of an unusual magnitude are divided by a unit first.

    | Works on logits; log-probabilities give the same map.
    | Keeps the argmax and the whole order; equal logits stay equal.
    | −inf logits keep probability 0.
    | Cost: O(nK) per pass, about ten passes.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.
    smoothness : float
        Strength of the penalty on differences of neighbouring slopes.
    max_iter : int
        Maximum number of Newton steps; about ten are needed.

    Attributes
    ----------
    unit_ : float
        Logits are divided by this first: 1, or a power of two if the range of a row's logits is
        typically below 1/16 or above 1024.
    knots_ : ndarray of shape (m,)
        Knots of g, as log-probabilities; the last one is 0.
    slopes_ : ndarray of shape (m,)
        The slope of g left of each knot.
    objective_, gradient_norm_ : float
        The penalised objective, and the largest entry of its gradient.
    n_iter_ : int
        Number of Newton steps taken.

    References
    ----------
    Rahimi, Shaban, Cheng, Hartley, Boots (2020). Intra order-preserving functions for
    calibration of multi-class neural networks. NeurIPS.  (Their diagonal map; here convex,
    without a network.)

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 4.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(300, 3))
    >>> mono = MonotoneMap().fit(logits, labels)
    >>> bool((mono.slopes_ > 0.0).all())
    True
    """

    key = "mono"
    title = "Monotone map of log-probabilities"
    short = "Mono"
    size = Size(fixed=12)
    works_on = "shifted"
    keeps_argmax = True
    keeps_order = True
    takes_masked = True
    role = "rival"
    cost = "O(nK) per pass, about 10 passes"
    reference = "after Rahimi et al. 2020, NeurIPS"

    parameter_names = ("unit_", "knots_", "slopes_")

    unit_: float = 1.0
    knots_: Vector
    slopes_: Vector
    objective_: float
    gradient_norm_: float
    n_iter_: int

    def __init__(
        self, *, input: Kind = "logits", smoothness: float = 1e-3, max_iter: int = 100
    ) -> None:
        super().__init__(input=input)
        self.smoothness = smoothness
        self.max_iter = max_iter

    def fit_parameters(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        """Fit on validated rows."""
        check_positive_integer("max_iter", self.max_iter)
        self.unit_ = logit_unit(scores, weight)
        scores /= self.unit_
        with progress(self.key, scores.size) as report:
            problem, best = fit_slopes(
                scores,
                labels,
                weight,
                smoothness=self.smoothness,
                max_iter=self.max_iter,
                report=report,
            )
        self._store(problem, best)

    def _store(self, problem: MonotoneProblem, best: Optimum) -> None:
        self.knots_, self.slopes_ = problem.knots, best.theta
        self.objective_, self.n_iter_ = best.value, best.n_iter
        self.gradient_norm_ = best.gradient_norm
        warn_about_search(self, problem, best)

    def _fit_folds(self, rows: FoldRows) -> Iterator[Self]:
        if not rows.many:
            yield from super()._fit_folds(rows)
            return
        shifted = rows.scores(self.works_on)
        shifted /= self.unit_
        weights = [_without(fold, rows.labels.size, rows.weight) for fold in rows.folds]
        step = subsample_step(shifted)
        spans = row_spans(shifted[::step])
        min_slopes = [least_slope(median_span(spans, others[::step])) for others in weights]
        to_log_probabilities(shifted)
        problems = MonotoneProblem.without_folds(
            shifted, rows.labels, weights, self.smoothness, min_slopes, rows.folds
        )
        for problem in problems:
            model = self._unfitted_copy(rows.original.classes)
            model.unit_ = self.unit_
            start = _mean_slopes(self.knots_, self.slopes_, problem.knots)
            best = damped_newton(
                problem,
                np.maximum(start, problem.min_slope),
                problem.step,
                max_iter=self.max_iter,
                floor=VANISHED_LOSS,
                report=lambda *step: None,
                near=True,
            )
            model._store(problem, best)
            yield model

    def parameters(self) -> dict[str, npt.NDArray[Any]]:
        """Return the parameters of the map as arrays."""
        slopes = self.slopes_[1:]
        # Summed as `interpolate` does, so that no rounding decreases at a knot.
        values = [0.0]
        for rise in (slopes * np.diff(self.knots_)).tolist():
            values.append(rise + values[-1])
        curve = curve_parameters(self.knots_, np.array(values), slope=np.append(self.slopes_, 0.0))
        return {"unit_": np.asarray(self.unit_), **curve}

    @classmethod
    def logits(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        """Return the logits of the map."""
        return interpolate(
            log_shares(multiply_in_place(scores, 1.0 / params["unit_"], xp), xp), params, xp
        )


def fit_slopes(
    shifted: Matrix,
    labels: Labels,
    weight: Vector | None,
    *,
    smoothness: float,
    max_iter: int,
    report: Report,
) -> tuple[MonotoneProblem, Optimum]:
    """Return the slopes of least penalised cross-entropy; ``shifted`` is overwritten."""
    min_slope = least_slope(logit_span(shifted, weight))
    # Saturated scores have no gradient: start with a slope of at most 1.
    log_slope = fit_temperature(CrossEntropy, *subsample(shifted, labels, weight)).at
    to_log_probabilities(shifted)
    problem = MonotoneProblem(shifted, labels, weight, smoothness, min_slope)
    best = damped_newton(
        problem,
        np.full(problem.knots.size, max(math.exp(min(log_slope, 0.0)), min_slope)),
        problem.step,
        max_iter=max_iter,
        floor=VANISHED_LOSS,
        report=report,
    )
    return problem, best


def _without(fold: slice, rows: int, weight: Vector | None) -> Vector:
    """Return weights that sum to one, and are zero in the fold."""
    others = np.delete(np.arange(rows), fold)
    weights = np.zeros(rows)
    weights[others] = row_weights(others.size, None if weight is None else weight[others])
    return weights


def least_slope(span: float) -> float:
    """Return the lower bound of the slopes for a typical span of a row's logits."""
    return _MIN_SLOPE * min(1.0, _WIDE_SPAN / span)


def _mean_slopes(knots: Vector, slopes: Vector, new_knots: Vector) -> Vector:
    """Return a map's mean slopes between other knots."""
    values = np.append(0.0, np.cumsum(slopes[1:] * np.diff(knots)))
    at_new = np.interp(new_knots, knots, values)
    at_new += slopes[0] * np.minimum(new_knots - knots[0], 0.0)
    return np.append(slopes[0], np.diff(at_new) / np.diff(new_knots))


def to_log_probabilities(shifted: Matrix) -> None:
    """Turn shifted logits into log-probabilities, in place."""
    for at in row_blocks(*shifted.shape):
        log_shares(shifted[at], np)


def relevant_levels(levels: Matrix, labels: Labels) -> Matrix:
    """Return the log-probability of each label, and the two largest of each row."""
    relevant = np.empty((3, labels.size))
    relevant[0] = levels[np.arange(labels.size), labels]
    for at in row_blocks(*levels.shape):
        relevant[1:, at] = np.partition(levels[at], -2, axis=1)[:, -2:].T
    return relevant


def quantile_knots(ordered: Vector, weight: Vector) -> Vector:
    """Return the knots: quantiles of the relevant log-probabilities, which are sorted."""
    share = np.linspace(0.0, 1.0, _SEGMENTS + 1)[1:-1]
    # The inverse of the distribution function: a weight of 2 counts as two rows, also where a sum
    # meets a share up to its rounding.
    below = np.cumsum(weight)
    inner = ordered[np.searchsorted(below / below[-1], share - 1e-9)]
    return np.append(np.unique(inner[inner < 0.0]), 0.0)


def sort_levels(relevant: Matrix) -> tuple[Vector, Positions]:
    """Return the sorted log-probabilities, and the row of each."""
    order = np.argsort(relevant, axis=None)
    return relevant.ravel()[order], order % relevant.shape[1]


class MonotoneProblem:
    """The penalised cross-entropy as a function of the slopes.

    A log-probability L in segment s has g(L) = w_s (L − k_s) − Σ_{j>s} w_j d_j, with k_s the
    segment's upper knot and d_j the lengths of the segments above.  So a row's moments of dg/dw
    come from three sums per segment: of q, of q·(L − k_s) and of q·(L − k_s)².

    With many classes almost all entries lie in the first segment.  They stay in the matrix,
    which is processed quickly; the others are stored in lists.
    """

    def __init__(
        self,
        levels: Matrix,
        labels: Labels,
        weight: Vector | None,
        smoothness: float,
        min_slope: float = _MIN_SLOPE,
    ) -> None:
        relevant, w = relevant_levels(levels, labels), row_weights(labels.size, weight)
        ordered, row = sort_levels(relevant)
        self._set_knots(quantile_knots(ordered, w[row]), smoothness, min_slope)
        lists = _take_out(levels, self.knots, row_blocks(*levels.shape))
        self._set_rows(levels, relevant, w, lists)

    @classmethod
    def without_folds(
        cls,
        levels: Matrix,
        labels: Labels,
        weights: Sequence[Vector],
        smoothness: float,
        min_slopes: Sequence[float],
        folds: Sequence[slice],
    ) -> Iterator[Self]:
        """Yield the problem without each fold, whose weights are zero.

        The problems share the matrix and the lists.
        """
        relevant = relevant_levels(levels, labels)
        ordered, row = sort_levels(relevant)
        problems = []
        for weight, min_slope, fold in zip(weights, min_slopes, folds, strict=True):
            problem = cls.__new__(cls)
            others = (row < fold.start) | (row >= fold.stop)
            knots = quantile_knots(ordered[others], weight[row[others]])
            problem._set_knots(knots, smoothness, min_slope)
            problems.append(problem)
        lowest = min((problem.knots for problem in problems), key=lambda knots: float(knots[0]))
        blocks = [at for fold in folds for at in row_blocks_of(fold, levels.shape[1])]
        lists = _take_out(levels, lowest, blocks)
        for weight, problem, fold in zip(weights, problems, folds, strict=True):
            some = [part for part in lists if not fold.start <= part[0].start < fold.stop]
            problem._set_rows(levels, relevant, weight, some)
            yield problem
            problem.blocks = []  # frees memory

    def _set_knots(self, knots: Vector, smoothness: float, min_slope: float) -> None:
        self.min_slope, self.knots = min_slope, knots
        self.length = np.diff(knots, prepend=knots[0])
        difference = np.diff(np.eye(knots.size), axis=0)
        self.penalty: Matrix = smoothness * difference.T @ difference

    def _set_rows(
        self, low: Matrix, relevant: Matrix, weight: Vector, lists: Sequence[Listed]
    ) -> None:
        self.low, self.weight = low, weight
        self.label, self.top = self._locate(relevant[0]), self._locate(relevant[2])
        segment, below = self.label
        mass, first = (_sums_by(segment, w, self.knots.size) for w in (weight, weight * below))
        self.observed: Vector = self._derivative(mass, first)
        self.blocks = [
            (at, row, self._segment(level).astype(np.int8), level) for at, row, level in lists
        ]
        self.hessian: Matrix

    def _locate(self, levels: Vector) -> tuple[Positions, Vector]:
        """Return the segment of each log-probability L, and L − k_s."""
        segment = self._segment(levels)
        return segment, levels - self.knots[segment]

    def _segment(self, levels: Vector) -> Positions:
        return np.searchsorted(self.knots[:-1], levels)

    def evaluate(self, theta: Vector) -> tuple[float, Vector]:
        """Return the objective and its gradient, and store the Hessian."""
        count = self.knots.size
        offset = np.append(-np.cumsum((theta * self.length)[::-1])[::-1][1:], 0.0)
        highest = theta[self.top[0]] * self.top[1] + offset[self.top[0]]
        value = float(
            self.weight @ (highest - theta[self.label[0]] * self.label[1] - offset[self.label[0]])
        )
        sums, squares = np.zeros((3, count)), np.zeros((count, count))
        ones, buffer = np.ones(count), block_buffer(*self.low.shape)
        # What mass in one segment takes from the slopes of those above it.
        lengths = np.triu(np.tile(self.length, (count, 1)), 1)
        for at, rows, segments, levels in self.blocks:
            w, low = self.weight[at], self.low[at]
            row, segment = rows.astype(np.intp), segments.astype(np.intp)
            below = levels - self.knots[segment]
            q = np.multiply(low, theta[0], out=buffer[: w.size])
            q += (offset[0] - theta[0] * self.knots[0] - highest[at])[:, None]
            np.exp(q, out=q)
            q_listed = np.exp(theta[segment] * below + offset[segment] - highest[at][row])
            lowest = self._low_moments(q, low)
            # Each row's sums of q and q·(L − k_s) in each segment.
            cell, first_listed = row * count + segment, q_listed * below
            mass, first = (
                _sums_by(cell, x, w.size * count).reshape(w.size, count)
                for x in (q_listed, first_listed)
            )
            mass[:, 0] += lowest[0]
            first[:, 0] += lowest[1]
            total = mass @ ones
            value += float(w @ np.log(total))
            share = w / total
            sums[0] += share @ mass
            sums[1] += share @ first
            sums[2] += _sums_by(segment, share[row] * first_listed * below, count)
            sums[2, 0] += share @ lowest[2]
            first -= mass @ lengths
            first *= (np.sqrt(w) / total)[:, None]
            squares += first.T @ first
        self.hessian = self._second(*sums) - squares + 2.0 * self.penalty
        half_gradient = self.penalty @ theta
        gradient = self._derivative(sums[0], sums[1]) - self.observed + 2.0 * half_gradient
        return value + float(theta @ half_gradient), gradient

    def _low_moments(self, q: Matrix, low: Matrix) -> tuple[Vector, Vector, Vector]:
        """Return each row's sums of q, q·(L − k_s) and q·(L − k_s)² over the matrix."""
        ones, knot = np.ones(q.shape[1]), self.knots[0]  # BLAS sums short rows several times faster
        total = q @ ones
        q *= low
        first, second = q @ ones, np.vecdot(q, low)
        return total, first - knot * total, second - knot * (2.0 * first - knot * total)

    def is_separated(self, value: float) -> bool:
        """Return whether every label has probability above 1/2: steeper is always better."""
        return value < math.log(2.0) * float(self.weight[self.weight > 0.0].min())

    def _derivative(self, mass: Vector, first: Vector) -> Vector:
        """Return the mean of dg/dw."""
        lower = np.cumsum(mass) - mass
        return first - self.length * lower

    def _second(self, mass: Vector, first: Vector, second: Vector) -> Matrix:
        """Return the mean of dg/dw_i·dg/dw_j."""
        lower = np.cumsum(mass) - mass
        # For i < j: entries below segment i depend on both lengths, those in it only on d_j.
        upper = np.triu(np.outer(lower * self.length - first, self.length), 1)
        return upper + upper.T + np.diag(lower * self.length**2 + second)

    def step(self, theta: Vector, gradient: Vector) -> Vector:
        """Return the Newton step that keeps every slope above its bound."""
        return bounded_step(self.hessian, gradient, theta - self.min_slope)


def _sums_by(index: Positions, values: Vector, count: int) -> Vector:
    """Return the sum of the values with each index."""
    return np.bincount(index, values, count).astype(np.float64, copy=False)


def _take_out(levels: Matrix, knots: Vector, blocks: Sequence[slice]) -> list[Listed]:
    """Remove the entries above the first knot; return each block, their rows in it, and them."""
    lists = []
    for at in blocks:
        block = levels[at]
        row, column = np.nonzero(block > knots[0])
        lists.append((at, row.astype(np.int32), block[row, column]))
        if knots.size > 1:
            block[row, column] = LOWEST_SHIFTED
    return lists
