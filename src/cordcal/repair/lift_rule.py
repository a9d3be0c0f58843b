"""The row rule of Lift, written against the array API as ``rule.py`` is for CORD.

A curve with three parameters maps the direct mass b on the prediction to a confidence s: what
the labels say.  The lifted vector has s on the prediction, and the other classes share 1 − s in
their direct ratios.  In most rows the prediction is its largest entry, and it is the result.

In the other rows, *at the bound*, the labels speak against the prediction.  No vector there has
the prediction on top, an honest confidence and the best likelihood; two of the three are possible:

``prefer="confidence"``
    s stays, and the other classes are min(c · lifted, cap), such that all of them are below s
    and the row sums to one (`cap_rows`).  Where even that is impossible, because s is about 1/K
    or less, such rows share one confidence with the next ones: their mean (`pool`).  Under a
    rule, which leaves few rows at the bound, s is raised just enough instead.
``prefer="likelihood"``
    The prediction and its largest rivals share their mass equally, the others stay
    (`project_rows`).  Of all vectors with this prediction it has the best log loss that can be
    expected under the lifted vector, and it is the closest in squared distance, too.

Under a prediction rule with class weights w, "largest" means the largest w · p.  ``mass`` and
``rest`` are s and 1 − s, carried separately.

`fit_curve` fits the three parameters, a convex problem, with a certificate.  The loss is the
weighted logistic loss of "the prediction is right" in z = α·log b − β·log(1 − b) + γ, before
clipping, with a ridge penalty towards the identity and α, β ≥ 0.  The ridge is the one of four
strengths under which the rows are most likely.  With e wrong predictions, the curve then moves
from its optimum to the identity by the share 2 / (e + 2): few errors say little, none nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import array_api_compat
import numpy as np
import numpy.typing as npt

from cordcal._numeric.arrays import namespace
from cordcal._numeric.types import Array, DType, Flags, Namespace, Vector
from cordcal._validation.scores import rescale_large_weights
from cordcal.repair.rule import (
    RowState,
    Split,
    chosen_entries,
    clip_to_interval,
    make_first,
    rebuild,
    rounding_margin,
    split,
    tiny_tail,
)

Prefer = Literal["confidence", "likelihood"]

# Rounding to four decimals moves two entries by at most 1e-4 towards each other; 1 % of it covers
# the rounding of float32.
MARGIN = 1.01e-4
# Classes at the cap keep their order: the smallest is up to this share below the largest.  Ties
# would lose the second place; 0.001 and 0.1 change no figure by more than 0.2 %.
STEP = 0.01
# Rows whose confidence cannot be on top are pooled until their mean is this multiple of the
# smallest that can.  At 1 their vectors are uniform; at 1.5 too many rows share one confidence.
POOLED = 1.1


class Curve(NamedTuple):
    """The parameters of s = σ(α·log b − β·log(1 − b) + γ), with α and β at least zero.

    Confidences up to ``pooled_below`` are replaced by ``pooled``; both are zero if none is so
    small that it cannot be on top.  With context (``context.py``) every row has its own curve,
    and the fields are vectors.
    """

    alpha: Any
    beta: Any
    gamma: Any
    pooled_below: Any = 0.0
    pooled: Any = 0.0

    def take(self, rows: slice) -> Curve:
        """Return the curves of some rows; one curve is that of all rows."""
        if np.ndim(self.gamma) == 0:
            return self
        return Curve(*(field[rows] for field in self))


IDENTITY = Curve(1.0, 1.0, 0.0)
"""The curve that returns the direct mass unchanged."""


@dataclass(frozen=True, slots=True)
class Margin:
    """By how much a prediction is on top: w_j p_j ≤ w_a s − ``share`` · w_a s − ``slack``.

    Without class weights w it survives rounding to four decimals, with them rounding to the dtype.
    """

    classes: int
    share: float = 0.0
    slack: float = MARGIN
    weights: Array | None = None
    heaviest: float = 1.0

    @classmethod
    def under_rule(
        cls, classes: int, weights: Array | None, dtype: DType, heaviest: float | None = None
    ) -> Margin:
        """Return the margin under class weights, if there are any; ``heaviest`` is the largest."""
        if weights is None:
            return cls(classes)
        if heaviest is None:
            heaviest = float(namespace(weights).max(weights))
        factor, slack = rounding_margin(heaviest, dtype)
        return cls(classes, factor - 1.0, slack, weights, heaviest)

    def own(self, prediction: Array, *, xp: Namespace) -> Array | float:
        """Return w_a per row, or one."""
        return 1.0 if self.weights is None else xp.take(self.weights, prediction, axis=0)

    def least(self, prediction: Array, *, xp: Namespace) -> Array | float:
        """Return the smallest confidence that can be on top, per row or for all.

        Without margin it is 1 / (w_a · Σ 1 / w), or 1/K: there all w_j p_j are equal.
        """
        if self.weights is None:
            capacity = 1.0 + (1.0 - STEP) * (self.classes - 2)
            return (1.0 + self.slack * capacity) / (1.0 + capacity)
        inverse = 1.0 / self.weights
        total = xp.sum(inverse[None, :], axis=1)
        capacity = (1.0 - STEP) * (total - inverse) + STEP / self.heaviest
        room = self.less_share(self.weights * capacity)
        return xp.take((1.0 + self.slack * capacity) / (1.0 + room), prediction, axis=0)

    def bound(self, lower: Array, prediction: Array, *, xp: Namespace) -> Array:
        """Return the confidence from which on the lifted vector has the prediction on top.

        ``lower`` is the left end of Eq. (4), where w_a s and the largest w_j p_j are equal.
        """
        slack = self.slack / self.own(prediction, xp=xp)
        return lower + (slack + self.share * lower) * (1.0 - lower)

    def caps(self, mass: Array, prediction: Array, *, xp: Namespace) -> Array:
        """Return how large each class may be below a prediction with this mass."""
        level = (self.less_share(mass * self.own(prediction, xp=xp)) - self.slack)[:, None]
        return level if self.weights is None else level / self.weights[None, :]

    def less_share(self, product: Array) -> Array:
        """Return the product without the share of the margin."""
        # Not a factor near one: onnxruntime would treat it as one and drop it.
        return product - product * self.share


def confidence(
    curve: Curve, mass: Array, rest: Array, *, xp: Namespace | None = None
) -> tuple[Array, Array]:
    """Return s and 1 − s for masses b and their complements, before pooling and clipping."""
    xp = namespace(mass) if xp is None else xp
    z = curve.alpha * xp.log(mass) - curve.beta * xp.log(rest) + curve.gamma
    negative = z < 0.0
    # exp of non-positive numbers only: no overflow, and the smaller of s and 1 − s is exact.
    small = xp.exp(xp.where(negative, z, -1.0 * z))
    one = xp.ones_like(z)
    larger, smaller = one / (1.0 + small), small / (1.0 + small)
    return xp.where(negative, smaller, larger), xp.where(negative, larger, smaller)


def pool(
    curve: Curve, mass: Array, rest: Array, *, xp: Namespace | None = None
) -> tuple[Array, Array]:
    """Return s and 1 − s, with one value for all confidences up to ``pooled_below``."""
    if isinstance(curve.pooled, float) and curve.pooled == 0.0:
        return mass, rest
    xp = namespace(mass) if xp is None else xp
    low = mass <= curve.pooled_below
    return (
        xp.where(low, curve.pooled + 0.0 * mass, mass),
        xp.where(low, (1.0 - curve.pooled) + 0.0 * mass, rest),
    )


def rows_at_bound(
    direct: Array,
    prediction: Array,
    mass: Array,
    prefer: Prefer,
    margin: Margin,
    *,
    xp: Namespace | None = None,
) -> Array:
    """Return wide rows with the prediction on top, for confidences below their bound.

    Parameters
    ----------
    direct : array of shape (n, K)
        The direct probabilities, widened.
    prediction : array of int of shape (n,)
        The class to put on top.
    mass : array of shape (n,)
        s, below `Margin.bound`.
    prefer : {"confidence", "likelihood"}
        What is kept: s, or as much of the likelihood as possible.
    margin : Margin
        How far on top, under which class weights.
    xp
        The namespace of a tracer.
    """
    xp = namespace(direct) if xp is None else xp
    part = split(direct, prediction, xp=xp)
    if prefer == "confidence":
        least = margin.least(prediction, xp=xp)
        mass = xp.where(mass < least, least + 0.0 * mass, mass)
    others = rebuild(direct, prediction, part, 0.0 * mass, 1.0 - mass, xp=xp)
    if prefer == "confidence":
        others = cap_rows(mass, others, prediction, margin, xp=xp)
    else:
        mass, others = project_rows(mass, others, prediction, margin, xp=xp)
    return xp.where(chosen_entries(direct, prediction, xp=xp), mass[:, None], others)


def cap_rows(
    mass: Array, others: Array, prediction: Array, margin: Margin, *, xp: Namespace
) -> Array:
    """Return other classes below the confidence s, in their order.

    They are min(c · p_j, cap_j), with c such that they still sum to 1 − s: of all that are below
    the caps, the closest in Kullback-Leibler divergence.  Both terms increase with w_j p_j, so
    the order of the classes stays and only equal ones tie.
    """
    products = others if margin.weights is None else others * margin.weights[None, :]
    steps = (1.0 - STEP) + STEP * (products / xp.max(products, axis=1, keepdims=True))
    return water_fill(others, margin.caps(mass, prediction, xp=xp) * steps, 1.0 - mass, xp=xp)


def project_rows(
    mass: Array, others: Array, prediction: Array, margin: Margin, *, xp: Namespace
) -> tuple[Array, Array]:
    """Share the mass of the prediction and of its largest rivals equally; keep the others.

    With the j largest rivals at its level the prediction has s_j.  Adding a rival above the
    level raises it and adding one below lowers it, so the right j is the one with the largest.
    """
    weights, classes = margin.weights, others.shape[1]
    products = others if weights is None else others * weights[None, :]
    order = xp.argsort(-1.0 * products, axis=1)
    masses = xp.cumulative_sum(xp.take_along_axis(others, order, axis=1), axis=1)
    if weights is None:
        count = xp.arange(1, classes + 1, dtype=others.dtype, device=others.device)
        room = inverses = count[None, :]
    else:
        inverse = 0.0 * others + (1.0 / weights)[None, :]
        inverses = xp.cumulative_sum(xp.take_along_axis(inverse, order, axis=1), axis=1)
        room = inverses * xp.take(weights, prediction, axis=0)[:, None]
    levels = (mass[:, None] + masses + margin.slack * inverses) / (1.0 + margin.less_share(room))
    level = xp.max(levels, axis=1)
    caps = margin.caps(level, prediction, xp=xp) + 0.0 * others
    return level, xp.where(others > caps, caps, others)


def water_fill(others: Array, cap: Array, total: Array, *, xp: Namespace) -> Array:
    """Return ``min(c·others, cap)`` per row, with c such that the row sums to ``total``.

    Classes reach their cap in the order of others/cap.  With the first j at the cap, the others
    give c_j = (total − caps)/tail_j.  No c_j exceeds the true c, because min is at most either
    argument; so c is the largest.
    """
    # Entries too small to divide by are raised to the smallest that is not: no visible change.
    tiny, _ = tiny_tail(others, xp=xp)
    zeros = xp.zeros_like(others)
    others = xp.where((others > 0.0) & (others < tiny), zeros + tiny, others)
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
    return xp.where(water_filled > cap, cap, water_filled)


def keep_prediction(
    direct: Array,
    state: RowState,
    part: Split,
    mass: Array,
    rest: Array,
    dtype: DType,
    prefer: Prefer,
    class_weights: Array | None = None,
) -> Array:
    """Return rows in ``dtype`` with s on the prediction, which is strictly the prediction."""
    xp = namespace(direct)
    margin = Margin.under_rule(direct.shape[1], class_weights, dtype)
    low = mass < margin.bound(state.lower, state.prediction, xp=xp)
    inside, inside_rest, _, _ = clip_to_interval(mass, rest, state.lower)
    rows = rebuild(direct, state.prediction, part, inside, inside_rest)
    if bool(xp.any(low)):
        # Only these rows are sorted.
        some = rows_at_bound(direct[low], state.prediction[low], mass[low], prefer, margin)
        if array_api_compat.is_jax_array(rows):
            rows = rows.at[low].set(some)
        else:
            rows[low] = some
    return make_first(xp.astype(rows, dtype), state.prediction, class_weights)


# The fit of the curve.

# Ridge strengths, in rows.  Five rows prevent three parameters from fitting ten errors, and 300
# rows with errors outweigh them; the larger ones leave a calibrated blend alone.
RIDGES = (5.0, 20.0, 80.0, 320.0)
# The identity counts as much as this many errors.  Five and ten were worse for 3 to 9 errors, none
# for one or two, whose losses of 5 to 10 nats would decide all three parameters.
PSEUDO_ERRORS = 2.0
# A squared Newton decrement below this, per row, is rounding: the step changes no digit.
SETTLED = 1e-26
# Below this, per row, a full step cannot overshoot, and loss differences are mostly rounding.
_NEAR = 1e-12
_MAX_STEPS = 200
_IDENTITY = np.array(IDENTITY[:3])


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted curve, the mean losses of the identity and of the curve, and the certificate.

    ``gap`` bounds how far the penalised loss per row of the optimum is above its minimum;
    ``ridge`` is the chosen strength, in rows, and ``credibility`` the share of the optimum in the
    curve, the rest being the identity.
    """

    curve: Curve
    ridge: float
    credibility: float
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
    solutions, theta = [], _IDENTITY
    for ridge in RIDGES:
        problem = replace(rows, ridge=ridge)
        theta = problem.solve(theta)  # starts from the optimum of the previous ridge
        solutions.append((problem.evidence(theta), problem, theta))
    _, problem, theta = max(solutions, key=lambda solution: solution[0])
    errors = float(problem.weight[problem.right == 0.0].sum())
    credibility = errors / (errors + PSEUDO_ERRORS)
    shrunk = _IDENTITY + credibility * (theta - _IDENTITY)
    return Fitted(
        Curve(*shrunk.tolist()),
        problem.ridge,
        credibility,
        problem.loss(_IDENTITY) / problem.rows,
        problem.loss(shrunk) / problem.rows,
        problem.gap(theta) / problem.rows,
    )


def pool_low(curve: Curve, mass: Vector, least: float, weight: Vector | None) -> Curve:
    """Return the curve with one confidence for the rows that are too low to be on top.

    The lowest rows are pooled, as few as have a mean of `POOLED` times the smallest confidence
    that can be on top; without a row below that, none are.

    Parameters
    ----------
    curve : Curve
        The fitted parameters.
    mass : ndarray
        s of the calibration rows under the curve.
    least : float
        The smallest confidence that can be on top.
    weight : ndarray, optional
        Weights of the rows.

    Examples
    --------
    >>> curve = pool_low(IDENTITY, np.array([0.1, 0.2, 0.5, 0.9]), 0.2, None)
    >>> round(curve.pooled_below, 3), round(curve.pooled, 3)
    (0.7, 0.267)
    """
    w = np.ones(mass.size) if weight is None else rescale_large_weights(weight)
    counted = w > 0.0
    s = mass[counted]
    if s.min(initial=1.0) >= least:
        return curve
    # Equal rows are pooled together.
    values, group = np.unique(s, return_inverse=True)
    mass_of_group = np.bincount(group, w[counted])
    mean = np.cumsum(mass_of_group * values) / np.cumsum(mass_of_group)
    enough = np.flatnonzero(mean >= POOLED * least)
    end = int(enough[0] if enough.size else len(values) - 1)
    # Half way to the next row, so that rounding does not decide about the last one.
    below = 0.5 * (values[end] + (values[end + 1] if end + 1 < len(values) else 1.0))
    return curve._replace(pooled_below=float(below), pooled=max(float(mean[end]), least))


Evaluated = tuple[float, Vector, npt.NDArray[np.float64]]
"""A value, its gradient and its Hessian."""


def logistic_terms(z: Vector, wrong: Flags, weight: Vector) -> tuple[float, Vector, Vector]:
    """Return the summed logistic loss, and its first and second derivatives by each z."""
    small = np.exp(-np.abs(z))
    sure = 1.0 / (1.0 + small)
    up = np.where(z < 0.0, small * sure, sure)
    losses = np.log1p(small) + np.maximum(np.where(wrong, z, -z), 0.0)
    error = weight * np.where(wrong, up, up - 1.0)
    return float((weight * losses).sum()), error, weight * small * sure * sure


def minimise(
    evaluate: Callable[[Vector], Evaluated],
    theta: Vector,
    moves: Flags,
    rows: float,
    settled: float = SETTLED,
) -> Vector:
    """Minimise a smooth convex function of some parameters by Newton's method.

    Parameters
    ----------
    evaluate : callable
        Returns value, gradient and Hessian.
    theta : ndarray
        The start.
    moves : ndarray of bool
        Which parameters change.
    rows : float
        How many rows the value sums over.
    settled : float
        The squared Newton decrement per row at which to stop.
    """
    at = np.flatnonzero(moves)
    value, gradient, hessian = evaluate(theta)
    for _ in range(_MAX_STEPS):
        step = np.zeros(len(theta))
        step[at] = -np.linalg.solve(hessian[np.ix_(at, at)], gradient[at])
        decrement = -float((gradient * step).sum()) / rows
        if decrement <= settled:
            break
        following = evaluate(theta + step)
        # Halved until it lowers the loss.
        while decrement >= _NEAR and following[0] >= value and np.abs(step).max() > 1e-300:
            step *= 0.5
            following = evaluate(theta + step)
        theta = theta + step
        value, gradient, hessian = following
    return theta


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

    def evaluate(self, theta: Vector) -> Evaluated:
        """Return the loss with its ridge, the gradient and the Hessian."""
        z, away = self._scores(theta), theta - _IDENTITY
        loss, error, curvature = logistic_terms(z, self.right == 0.0, self.weight)
        bend = self.columns * curvature
        value = loss + 0.5 * self.ridge * float((away * away).sum())
        gradient = (self.columns * error).sum(axis=1) + self.ridge * away
        hessian = np.diag(np.full(3, self.ridge))
        for i, column in enumerate(self.columns[:2]):
            hessian[i, i:] += (bend[i:] * column).sum(axis=1)
            hessian[i:, i] = hessian[i, i:]
        hessian[2, 2] += bend[2].sum()
        return value, gradient, hessian

    def solve(self, start: Vector = _IDENTITY) -> Vector:
        """Return the optimal parameters, with α and β at least zero."""
        optimum = self.solve_face((True, True), start)
        if optimum[0] >= 0.0 and optimum[1] >= 0.0:
            return optimum
        faces = [(True, False), (False, True), (False, False)]
        optima = [self.solve_face(face, start) for face in faces]
        # By strict convexity, the best feasible optimum of a face is the optimum.
        allowed = [theta for theta in optima if theta[0] >= 0.0 and theta[1] >= 0.0]
        return min(allowed, key=lambda theta: self.evaluate(theta)[0])

    def solve_face(self, free: tuple[bool, ...], start: Vector) -> Vector:
        """Minimise over one face: α and β are free or fixed at zero."""
        moves = np.array([*free, True])
        return minimise(self.evaluate, np.where(moves, start, 0.0), moves, self.rows)

    def gap(self, theta: Vector) -> float:
        """Bound how far the value is above its minimum: it is ``ridge``-strongly convex."""
        _, gradient, _ = self.evaluate(theta)
        bound = (theta == 0.0) & np.array([True, True, False])
        # At the bound zero only a negative slope counts.
        pull = np.where(bound, np.minimum(gradient, 0.0), gradient)
        return float((pull * pull).sum()) / (2.0 * self.ridge)
