"""The row rule of Lift, written against the array API as ``rule.py`` is for CORD.

A curve with three parameters maps the direct mass b on the prediction to a confidence s.  The
other classes share 1 − s in their direct ratios (``raise``), or such that none of them
reaches s (``cap``).  ``mass`` and ``rest`` are s and 1 − s, carried separately.

`fit_curve` fits the three parameters, a convex problem, with a certificate.  The loss is the
weighted logistic loss of "the prediction is right" in z = α·log b − β·log(1 − b) + γ, before
clipping, with a ridge penalty towards the identity and α, β ≥ 0.  The ridge is the one of four
strengths under which the rows are most likely.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from cordcal._numeric.arrays import UNIT_ROUNDOFF, dtype_name, namespace
from cordcal._numeric.types import Array, DType, Namespace, Vector
from cordcal._validation.scores import rescale_large_weights
from cordcal.repair.rule import (
    SMALLEST,
    RowState,
    Split,
    at_prediction,
    chosen_entries,
    clip_to_interval,
    make_first,
    next_below,
    rebuild,
    rounding_margin,
    tiny_tail,
)

Mode = Literal["raise", "cap"]


class Curve(NamedTuple):
    """The parameters of s = σ(α·log b − β·log(1 − b) + γ), with α and β at least zero."""

    alpha: float
    beta: float
    gamma: float


IDENTITY = Curve(1.0, 1.0, 0.0)
"""The curve that returns the direct mass unchanged."""


def confidence(
    curve: Curve, mass: Array, rest: Array, *, xp: Namespace | None = None
) -> tuple[Array, Array]:
    """Return s and 1 − s for masses b and their complements, before clipping."""
    xp = namespace(mass) if xp is None else xp
    z = curve.alpha * xp.log(mass) - curve.beta * xp.log(rest) + curve.gamma
    negative = z < 0.0
    # exp of non-positive numbers only: no overflow, and the smaller of s and 1 − s is exact.
    small = xp.exp(xp.where(negative, z, -1.0 * z))
    one = xp.ones_like(z)
    larger, smaller = one / (1.0 + small), small / (1.0 + small)
    return xp.where(negative, smaller, larger), xp.where(negative, larger, smaller)


def min_mass(classes: int, dtype: DType) -> float:
    """Return the smallest confidence at which K − 1 classes just below it can hold 1 − s.

    With u the unit roundoff, s and K − 1 times the number below it add up to one from
    (1 + 2u)/K on.  The factor 6 covers the rounding of s itself, the summand subnormal numbers.
    """
    name = dtype_name(dtype)
    return (1.0 + 6.0 * UNIT_ROUNDOFF[name]) / classes + 2.0 * SMALLEST[name]


def min_masses(class_weights: Array, margin: tuple[float, float], *, xp: Namespace) -> Array:
    """Return per class the smallest confidence that is first under class weights.

    Without rounding the other classes hold s · Σ w_a / w_j at most, which is 1 − s at
    s = 1 / (w_a · Σ 1 / w), or 1/K for equal weights; the margins are twice those of `class_caps`.
    """
    factor, slack = margin
    inverse = 1.0 / class_weights
    others = xp.sum(inverse[None, :], axis=1) - inverse
    ratio = class_weights * others
    # Not a factor near one: onnxruntime would treat it as one and drop it.
    ratio = ratio - ratio * (2.0 * (factor - 1.0))
    return (1.0 + 2.0 * slack * others) / (1.0 + ratio)


def class_caps(mass: Array, own: Array, class_weights: Array, margin: tuple[float, float]) -> Array:
    """Return how large each class may be below a prediction with this mass and weight.

    ``margin`` is that of `rounding_margin`, so that rounding cannot make another class first.
    """
    factor, slack = margin
    product = (mass * own)[:, None]
    # Not a factor near one: onnxruntime would treat it as one and drop it.
    return (product - product * (factor - 1.0) - slack) / class_weights[None, :]


def water_fill(others: Array, cap: Array, total: Array, *, xp: Namespace | None = None) -> Array:
    """Return ``min(c·others, cap)`` per row, with c such that the row sums to ``total``.

    ``cap`` has one number per row, or per class, too; classes reach it in the order of
    others/cap.  With the first j at the cap, the others give c_j = (total − caps)/tail_j.
    No c_j exceeds the true c, because min is at most either argument; so c is the largest.
    """
    xp = namespace(others) if xp is None else xp
    # Entries too small to divide by are raised to the smallest that is not: no visible change.
    tiny, _ = tiny_tail(others, xp=xp)
    zeros = xp.zeros_like(others)
    others = xp.where((others > 0.0) & (others < tiny), zeros + tiny, others)
    if len(cap.shape) == 1:
        order = xp.argsort(others, axis=1)
        cap = cap[:, None]
        count = others.shape[1]
        capped = xp.arange(count - 1, -1, -1, dtype=others.dtype, device=others.device)[None, :]
        above = capped * cap
    else:
        # A cap above the total is never reached; sums of such caps would only lose digits.
        cap = xp.where(cap > total[:, None], zeros + total[:, None], cap)
        cap = xp.where(cap < tiny, zeros + tiny, cap)
        order = xp.argsort(others / cap, axis=1)
        caps = xp.take_along_axis(cap, order, axis=1)
        above = xp.flip(xp.cumulative_sum(xp.flip(caps, axis=1), axis=1), axis=1) - caps
    # Column i sums the i + 1 entries that are capped last; the first is the prediction's zero.
    tails = xp.cumulative_sum(xp.take_along_axis(others, order, axis=1), axis=1)
    left = total[:, None] - above
    positive = tails > 0.0
    levels = xp.where(positive & (left > 0.0), left, zeros) / xp.where(positive, tails, zeros + 1.0)
    water_filled = others * xp.max(levels, axis=1, keepdims=True)
    return xp.where(water_filled > cap, zeros + cap, water_filled)


def keep_prediction(
    direct: Array,
    state: RowState,
    part: Split,
    mass: Array,
    rest: Array,
    dtype: DType,
    mode: Mode,
    class_weights: Array | None = None,
) -> Array:
    """Return rows in ``dtype`` with s on the prediction, which is strictly the prediction."""
    xp = namespace(direct)
    inside, inside_rest, low, _ = clip_to_interval(mass, rest, state.lower)
    raised = rebuild(direct, state.prediction, part, inside, inside_rest)
    raised = make_first(xp.astype(raised, dtype), state.prediction, class_weights)
    if mode == "raise" or not bool(xp.any(low)):
        return raised
    capped = cap_row(direct, state.prediction, part, mass, dtype, class_weights)
    return xp.where(low[:, None], capped, raised)


def cap_row(
    direct: Array,
    prediction: Array,
    part: Split,
    mass: Array,
    dtype: DType,
    class_weights: Array | None = None,
) -> Array:
    """Return rows in ``dtype`` with s on the prediction and every other class below it.

    Where the other classes cannot hold 1 − s below s, s is raised just enough.
    """
    xp = namespace(direct)
    chosen = chosen_entries(direct, prediction, xp=xp)
    least: Array = xp.ones_like(mass) * min_mass(direct.shape[1], dtype)
    if class_weights is not None:
        margin = rounding_margin(float(xp.max(class_weights)), dtype)
        least = at_prediction(min_masses(class_weights, margin, xp=xp), direct, prediction, xp=xp)
    narrow = xp.astype(xp.where(mass < least, least, mass), dtype)
    wide = xp.astype(narrow, direct.dtype)
    others = rebuild(direct, prediction, part, xp.zeros_like(mass), 1.0 - wide)
    if class_weights is None:
        cap = xp.astype(next_below(narrow), direct.dtype)
    else:
        own = at_prediction(class_weights, direct, prediction, xp=xp)
        cap = class_caps(wide, own, class_weights, margin)
    water_filled = xp.astype(water_fill(others, cap, 1.0 - wide), dtype)
    return xp.where(chosen, narrow[:, None], water_filled)


# The fit of the curve.

# Ridge strengths, in rows.  Five rows prevent three parameters from fitting ten errors, and 300
# rows with errors outweigh them; the larger ones leave a calibrated blend alone.
RIDGES = (5.0, 20.0, 80.0, 320.0)
# A squared Newton decrement below this, per row, is rounding: the step changes no digit.
_SETTLED = 1e-26
# Below this, per row, a full step cannot overshoot, and loss differences are mostly rounding.
_NEAR = 1e-12
_MAX_STEPS = 200


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted curve, the mean losses of the identity and of the curve, and the certificate.

    ``gap`` bounds how far the penalised loss per row is above its minimum; ``ridge`` is the
    chosen strength, in rows.
    """

    curve: Curve
    ridge: float
    loss_before: float
    loss_after: float
    gap: float


def fit_curve(
    mass: Vector, rest: Vector, right: npt.NDArray[np.bool_], weight: Vector | None
) -> Fitted:
    """Return the curve that best predicts whether predictions with these masses are right.

    Parameters
    ----------
    mass, rest : ndarray
        b and 1 − b, both positive.
    right : ndarray of bool
        Whether each prediction is right.
    weight : ndarray, optional
        Weights of the rows; their sum is the number of rows that the ridge is compared with.
    """
    rows = _Problem.of(mass, rest, right, weight)
    solutions, theta = [], np.array(IDENTITY)
    for ridge in RIDGES:
        problem = replace(rows, ridge=ridge)
        theta = problem.solve(theta)  # starts from the optimum of the previous ridge
        solutions.append((problem.evidence(theta), problem, theta))
    _, problem, theta = max(solutions, key=lambda solution: solution[0])
    return Fitted(
        Curve(*theta.tolist()),
        problem.ridge,
        problem.loss(np.array(IDENTITY)) / problem.rows,
        problem.loss(theta) / problem.rows,
        problem.gap(theta) / problem.rows,
    )


@dataclass(frozen=True, slots=True)
class _Problem:
    """Rows as columns log b, −log(1 − b) and 1, sorted."""

    columns: npt.NDArray[np.float64]
    right: Vector
    weight: Vector
    ridge: float = RIDGES[0]

    @classmethod
    def of(
        cls, mass: Vector, rest: Vector, right: npt.NDArray[np.bool_], weight: Vector | None
    ) -> _Problem:
        w = np.ones(mass.size) if weight is None else rescale_large_weights(weight)
        counted = w > 0.0
        mass, rest, y, w = mass[counted], rest[counted], right[counted].astype(float), w[counted]
        # Sums round alike only in one order; the result must not depend on the order of rows.
        order = np.lexsort((w, y, rest, mass))
        mass, rest, y, w = mass[order], rest[order], y[order], w[order]
        columns = np.stack([np.log(mass), -np.log(rest), np.ones(mass.size)])
        return cls(columns, y, w)

    @property
    def rows(self) -> float:
        """The number of rows, in which a row of weight 2 counts twice."""
        return float(self.weight.sum())

    def loss(self, theta: Vector) -> float:
        """Return the summed logistic loss."""
        z = self._scores(theta)
        return float((self.weight * np.logaddexp(0.0, np.where(self.right > 0.0, -z, z))).sum())

    def _scores(self, theta: Vector) -> Vector:
        # Written out, because a matrix product may add in another order.
        alpha, beta, gamma = theta.tolist()
        scores: Vector = alpha * self.columns[0] + beta * self.columns[1] + gamma
        return scores

    def evidence(self, theta: Vector) -> float:
        """Return the log-probability of the rows under this ridge, up to a constant.

        The ridge is a normal prior of the parameters, which are integrated out by Laplace's
        approximation.
        """
        value, _, hessian = self.evaluate(theta)
        volume = float(np.linalg.slogdet(hessian / self.ridge)[1])
        return -value - 0.5 * volume

    def evaluate(self, theta: Vector) -> tuple[float, Vector, npt.NDArray[np.float64]]:
        """Return the loss with its ridge, the gradient and the Hessian."""
        z, wrong, away = self._scores(theta), self.right == 0.0, theta - IDENTITY
        small = np.exp(-np.abs(z))
        sure = 1.0 / (1.0 + small)
        up = np.where(z < 0.0, small * sure, sure)
        losses = np.log1p(small) + np.maximum(np.where(wrong, z, -z), 0.0)
        error = self.weight * np.where(wrong, up, up - 1.0)
        bend = self.columns * (self.weight * small * sure * sure)
        value = float((self.weight * losses).sum()) + 0.5 * self.ridge * float((away * away).sum())
        gradient = (self.columns * error).sum(axis=1) + self.ridge * away
        hessian = np.diag(np.full(3, self.ridge))
        for i, column in enumerate(self.columns[:2]):
            hessian[i, i:] += (bend[i:] * column).sum(axis=1)
            hessian[i:, i] = hessian[i, i:]
        hessian[2, 2] += bend[2].sum()
        return value, gradient, hessian

    def solve(self, start: Vector | Curve = IDENTITY) -> Vector:
        """Return the optimal parameters, with α and β at least zero."""
        optimum = self.solve_face((True, True), start)
        if optimum[0] >= 0.0 and optimum[1] >= 0.0:
            return optimum
        faces = [(True, False), (False, True), (False, False)]
        optima = [self.solve_face(face, start) for face in faces]
        # By strict convexity, the best feasible optimum of a face is the optimum.
        allowed = [theta for theta in optima if theta[0] >= 0.0 and theta[1] >= 0.0]
        return min(allowed, key=lambda theta: self.evaluate(theta)[0])

    def solve_face(self, free: tuple[bool, ...], start: Vector | Curve) -> Vector:
        """Minimise over one face: α and β are free or fixed at zero."""
        at = np.flatnonzero((*free, True))
        theta = np.where((*free, True), start, 0.0)
        value, gradient, hessian = self.evaluate(theta)
        for _ in range(_MAX_STEPS):
            step = np.zeros(3)
            step[at] = -np.linalg.solve(hessian[np.ix_(at, at)], gradient[at])
            decrement = -float((gradient * step).sum()) / self.rows
            if decrement <= _SETTLED:
                break
            following = self.evaluate(theta + step)
            # Halved until it lowers the loss.
            while decrement >= _NEAR and following[0] >= value and np.abs(step).max() > 1e-300:
                step *= 0.5
                following = self.evaluate(theta + step)
            theta = theta + step
            value, gradient, hessian = following
        return theta

    def gap(self, theta: Vector) -> float:
        """Bound how far the value is above its minimum: it is ``ridge``-strongly convex."""
        _, gradient, _ = self.evaluate(theta)
        bound = (theta == 0.0) & np.array([True, True, False])
        # At the bound zero only a negative slope counts.
        pull = np.where(bound, np.minimum(gradient, 0.0), gradient)
        return float((pull * pull).sum()) / (2.0 * self.ridge)
