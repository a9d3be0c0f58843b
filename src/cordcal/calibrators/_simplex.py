"""The shares of a mixture: a convex problem on the simplex, solved to a certified gap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cordcal._numeric.types import Matrix, Vector
from cordcal._validation.scores import LOG_FLOOR

# Stop at this certified gap per row: further steps are smaller than the rounding of the sums.
_MAX_GAP = 1e-13
# Damped Newton takes about ten steps; reaching this limit would be a bug.
_MAX_STEPS = 200


@dataclass(frozen=True, slots=True)
class Mixture:
    """The shares, their mean log loss, and a bound per row on its distance to the minimum."""

    shares: Vector
    loss: float
    gap: float


def best_shares(
    likelihood: Matrix, weight: Vector, prior: Vector, start: Vector | None = None
) -> Mixture:
    """Return the shares π on the simplex that minimise −Σ w log(π·a) − Σ prior·log π.

    Parameters
    ----------
    likelihood : ndarray of shape (members, rows)
        The probability that each member gives to the rows' labels.
    weight : ndarray of shape (rows,)
        Weights of the rows; their sum is the number of rows.
    prior : ndarray of shape (members,)
        Pseudo-rows of each member; all above zero.
    start : ndarray of shape (members,), optional
        Where the search starts, above zero; by default with equal shares.

    Notes
    -----
    Scaling π by t lowers the objective by (Σw + Σprior)·log t.  With (Σw + Σprior)·Σπ added,
    the minimum over all positive π therefore lies on the simplex.
    """
    a = np.maximum(likelihood, LOG_FLOOR)
    total, rows = float(weight.sum() + prior.sum()), float(weight.sum())

    def value(x: Vector, mixed: Vector) -> float:
        losses = weight * np.log(mixed)
        return total * float(x.sum()) - float(losses.sum() + (prior * np.log(x)).sum())

    x = np.full(len(prior), 1.0 / len(prior)) if start is None else start / start.sum()
    mixed = x @ a
    for _ in range(_MAX_STEPS):
        ratio = a / mixed
        # The gradient of Σ w log(x·a) + Σ prior·log x, and −Hessian.
        pull = ratio @ weight + prior / x
        if _gap(pull, x) <= _MAX_GAP * total:
            break
        hessian = (ratio * weight) @ ratio.T + np.diag(prior / (x * x))
        step = np.linalg.solve(hessian, pull - total)
        x, mixed = _line_search(value, a, x, mixed, step, float((pull - total) @ step))
    x = x / x.sum()
    mixed = x @ a
    pull = (a / mixed) @ weight + prior / x
    return Mixture(x, -float((weight * np.log(mixed)).sum()) / rows, _gap(pull, x) / rows)


def _gap(pull: Vector, x: Vector) -> float:
    """Return the largest pull minus the mean one: by convexity no shares gain more."""
    return float(pull.max() - pull @ x)


def _line_search(
    value: Callable[[Vector, Vector], float],
    a: Matrix,
    x: Vector,
    mixed: Vector,
    step: Vector,
    slope: float,
) -> tuple[Vector, Vector]:
    """Take a Newton step, halved until it stays positive and lowers the value enough."""
    current, size = value(x, mixed), 1.0
    # Close to the optimum values differ only by rounding, and a full step is right.
    near = slope < 1e-9 * abs(current)
    while size > 1e-12:
        new_x = x + size * step
        new_mixed = new_x @ a
        if (new_x > 0.0).all() and (
            near or value(new_x, new_mixed) <= current - 0.25 * size * slope
        ):
            return new_x, new_mixed
        size *= 0.5
    return x, mixed
