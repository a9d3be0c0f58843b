"""One monotone function of the log-probability for all classes, so every order is kept."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._numeric.arrays import block_buffer, row_blocks
from cordcal._numeric.expressions import (
    LOWEST_SHIFTED,
    maximum,
    minimum,
    minus,
    plus,
    softmax,
    times,
)
from cordcal._numeric.types import Array, Kind, Labels, Matrix, Parameters, Vector
from cordcal._validation.scores import row_weights
from cordcal.calibrators._base import Calibrator, Size, check_positive_integer
from cordcal.calibrators._newton import Optimum, Report, bounded_step, damped_newton, progress
from cordcal.calibrators.affine import warn_about_search
from cordcal.calibrators.temperature import (
    VANISHED_LOSS,
    cross_entropy,
    fit_temperature,
    logit_span,
    logit_unit,
    subsample,
)

# Slopes stay above this: smaller ones would let neighbouring scores round to ties.  Rows that
# span more than so much leave room for less.
_LEAST_SLOPE, _WIDE_SPAN = 1e-3, 64.0
# Segments between quantiles of the log-probabilities that matter, as measured on 22 data sets.
_SEGMENTS = 12

Positions = npt.NDArray[np.intp]


class MonotoneMap(Calibrator):
    """A monotone map of log-probabilities: ``softmax(g(log p))`` with one g for all classes.

    g is piecewise linear between quantiles of the log-probabilities that matter, those of
    the labels and the two largest of each row, and goes on with its first slope below them.
    The slopes are positive and minimise the mean cross-entropy plus ``smoothness`` times the
    squared differences of neighbouring slopes.  That is a convex problem, solved to
    convergence by Newton steps under the bounds; with a large ``smoothness`` it is
    temperature scaling.  Logits of a size that no network puts out are divided by a unit first.

    | Works on logits; log-probabilities give the same map.
    | Keeps the argmax and the whole order; equal logits stay equal.
    | −inf logits keep probability 0.
    | Cost: O(nK) per pass, about ten passes.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.
    smoothness : float
        How strongly neighbouring slopes are pulled together.
    max_iter : int
        Maximum number of Newton steps; about ten are needed.

    Attributes
    ----------
    unit_ : float
        What logits are divided by first: 1, or a power of two if the rows' logits span less than
        1/16 or more than 1024.
    knots_ : ndarray of shape (m,)
        Where g bends, as log-probabilities; the last one is 0.
    slopes_ : ndarray of shape (m,)
        The slope of g left of each knot.
    objective_, gradient_norm_ : float
        The penalised objective, and the largest slope of it that the bounds leave.
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

    _holds = ("unit_", "knots_", "slopes_")

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

    def _fit(self, working: Matrix, labels: Labels, weight: Vector | None) -> None:
        check_positive_integer("max_iter", self.max_iter)
        self.unit_ = logit_unit(working, weight)
        working /= self.unit_
        with progress(self.key, working.size) as report:
            problem, best = fit_slopes(
                working,
                labels,
                weight,
                smoothness=self.smoothness,
                max_iter=self.max_iter,
                report=report,
            )
        self.knots_, self.slopes_ = problem.knots, best.theta
        self.objective_, self.n_iter_ = best.value, best.n_iter
        self.gradient_norm_ = best.gradient_norm
        warn_about_search(self, problem, best)

    @classmethod
    def _map(cls, working: Array, held: Parameters, *, xp: Any) -> Array:
        knots, slopes = held["knots_"], held["slopes_"]
        working = times(working, 1.0 / held["unit_"], xp)
        level = minus(working, xp.log(xp.sum(xp.exp(working), axis=1, keepdims=True)), xp)
        # Each segment's part rises with the log-probability, so their sum does too.
        mapped = times(minimum(level - knots[0], 0.0, xp), slopes[0], xp)
        for j in range(1, knots.shape[0]):
            part = maximum(minimum(level * 1.0, knots[j], xp), knots[j - 1], xp)
            mapped = plus(mapped, times(part, slopes[j], xp), xp)
        return softmax(mapped, xp)


def fit_slopes(
    shifted: Matrix,
    labels: Labels,
    weight: Vector | None,
    *,
    smoothness: float,
    max_iter: int,
    report: Report,
) -> tuple[MonotoneProblem, Optimum]:
    """Find the slopes of least penalised cross-entropy; ``shifted`` is overwritten."""
    coldest = fit_temperature(cross_entropy, *subsample(shifted, labels, weight)).at
    least = _LEAST_SLOPE * min(1.0, _WIDE_SPAN / logit_span(shifted, weight))
    into_log_probabilities(shifted)
    problem = MonotoneProblem(shifted, labels, weight, smoothness, least)
    # Saturated scores leave Newton's method nothing to see: start no colder than they are.
    start = max(math.exp(min(coldest, 0.0)), least)
    best = damped_newton(
        problem,
        np.full(problem.knots.size, start),
        problem.step,
        max_iter=max_iter,
        floor=VANISHED_LOSS,
        report=report,
    )
    return problem, best


def into_log_probabilities(shifted: Matrix) -> None:
    """Turn shifted logits into log-probabilities, in place."""
    for at in row_blocks(*shifted.shape):
        block = shifted[at]
        block -= np.log(np.exp(block).sum(axis=1, keepdims=True))


def quantile_knots(levels: Matrix, labels: Labels, weight: Vector | None) -> Vector:
    """Return where g bends: quantiles of the labels' and the two largest log-probabilities."""
    rows = np.arange(labels.size)
    largest = np.partition(levels, -2, axis=1)[:, -2:]
    pool = np.concatenate([levels[rows, labels], largest[:, 0], largest[:, 1]])
    share = np.linspace(0.0, 1.0, _SEGMENTS + 1)[1:-1]
    # The method that takes weights: a weight of 2 is then the row twice.
    inner = np.quantile(
        pool, share, method="inverted_cdf", weights=np.tile(row_weights(rows.size, weight), 3)
    )
    return np.append(np.unique(inner[inner < 0.0]), 0.0)


class MonotoneProblem:
    """The penalised cross-entropy as a function of the slopes.

    A log-probability L in segment s has g(L) = w_s (L − k_s) − Σ_{j>s} w_j d_j, with k_s the
    segment's upper knot and d_j the lengths of those above.  So a row's moments of dg/dw come
    from three sums for each segment: of q, of q·(L − k_s) and of q·(L − k_s)².

    With many classes nearly all entries lie in the first segment.  They stay in the matrix,
    where passes are quick; the others are taken out and listed one by one.
    """

    def __init__(
        self,
        levels: Matrix,
        labels: Labels,
        weight: Vector | None,
        smoothness: float,
        least: float = _LEAST_SLOPE,
    ) -> None:
        self.least = least
        self.knots = quantile_knots(levels, labels, weight)
        self.length = np.diff(self.knots, prepend=self.knots[0])
        self.weight = row_weights(labels.size, weight)
        bend = np.diff(np.eye(self.knots.size), axis=0)
        self.penalty: Matrix = smoothness * bend.T @ bend
        rows = np.arange(labels.size)
        self.own = self._place(levels[rows, labels])
        self.top = self._place(levels.max(axis=1))
        hot = np.eye(self.knots.size)[self.own[0]]
        self.observed: Vector = self.weight @ self._derivative(hot, hot * self.own[1][:, None])
        self.blocks = [(at, *self._take_out(levels[at])) for at in row_blocks(*levels.shape)]
        self.low = levels
        self.hessian: Matrix

    def _place(self, levels: Vector) -> tuple[Positions, Vector]:
        """Return the segment of each log-probability, and how far below its knot it lies."""
        segment = np.searchsorted(self.knots[:-1], levels)
        return segment, levels - self.knots[segment]

    def _take_out(self, block: Matrix) -> tuple[Positions, Positions, Vector]:
        """Take the entries above the first segment out of a block; list row, segment, below."""
        row, column = np.nonzero(block > self.knots[0])
        segment, below = self._place(block[row, column])
        if self.knots.size > 1:
            block[row, column] = LOWEST_SHIFTED
        block -= self.knots[0]
        return row, segment, below

    def evaluate(self, theta: Vector) -> tuple[float, Vector]:
        """Return the objective and its gradient; the Hessian is kept."""
        count = self.knots.size
        offset = np.append(-np.cumsum((theta * self.length)[::-1])[::-1][1:], 0.0)
        highest = theta[self.top[0]] * self.top[1] + offset[self.top[0]]
        value = float(
            self.weight @ (highest - theta[self.own[0]] * self.own[1] - offset[self.own[0]])
        )
        gradient: Vector = -self.observed
        sums, squares = np.zeros((3, count)), np.zeros((count, count))
        room = block_buffer(*self.low.shape)
        for at, row, segment, below in self.blocks:
            w, low = self.weight[at], self.low[at]
            q = np.multiply(low, theta[0], out=room[: w.size])
            q += (offset[0] - highest[at])[:, None]
            np.exp(q, out=q)
            rare = np.exp(theta[segment] * below + offset[segment] - highest[at][row])
            parts = self._parts(q, low, row * count + segment, rare, below)
            total = parts[0].sum(axis=1)
            parts /= total[:, None]
            value += float(w @ np.log(total))
            slope = self._derivative(parts[0], parts[1])
            gradient += w @ slope
            sums += np.einsum("i,pij->pj", w, parts)
            squares += (slope * w[:, None]).T @ slope
        self.hessian = self._second(*sums) - squares + 2.0 * self.penalty
        pull = self.penalty @ theta
        return value + float(theta @ pull), gradient + 2.0 * pull

    def _parts(
        self, q: Matrix, low: Matrix, cell: Positions, rare: Vector, below: Vector
    ) -> Matrix:
        """Return each row's sums of q, q·below and q·below² in each segment."""
        rows, count = q.shape[0], self.knots.size
        powers = (rare, rare * below, rare * below * below)
        listed = [np.bincount(cell, x, rows * count) for x in powers]
        parts = np.stack(listed).astype(np.float64, copy=False).reshape(3, rows, count)
        parts[0, :, 0] += q.sum(axis=1)
        q *= low
        parts[1, :, 0] += q.sum(axis=1)
        parts[2, :, 0] += np.vecdot(q, low)
        return parts

    def is_separated(self, value: float) -> bool:
        """Tell whether every row's own class has more than half: steeper is always better."""
        return value < math.log(2.0) * float(self.weight[self.weight > 0.0].min())

    def _derivative(self, mass: Matrix, first: Matrix) -> Matrix:
        """Return each row's mean of dg/dw."""
        lower = np.cumsum(mass, axis=1) - mass
        return first - self.length * lower

    def _second(self, mass: Vector, first: Vector, second: Vector) -> Matrix:
        """Return the mean of dg/dw_i·dg/dw_j."""
        lower = np.cumsum(mass) - mass
        # For i < j: entries below segment i have both lengths, those in it only the upper one's.
        upper = np.triu(np.outer(lower * self.length - first, self.length), 1)
        return upper + upper.T + np.diag(lower * self.length**2 + second)

    def step(self, theta: Vector, gradient: Vector) -> Vector:
        """Return the Newton step that keeps every slope above its bound."""
        return bounded_step(self.hessian, gradient, theta - self.least)
