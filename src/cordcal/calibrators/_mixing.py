"""Shares of a mixture that minimise its log loss: a convex problem, solved to a certificate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cordcal._door.scores import LOG_FLOOR
from cordcal._door.types import Matrix, Vector

# The certified gap, a row, at which the shares are taken.
_GAP = 1e-10
# A few digits below that, the sums' own rounding is larger than any further step.
_FINE = 1e-13
# Damped Newton takes about ten steps; twice a hundred would be a mistake here.
_MOST_STEPS = 200


@dataclass(frozen=True, slots=True)
class Mixture:
    """The shares, their mean log loss, and how far, a row, it can be above the least one."""

    shares: Vector
    loss: float
    gap: float


def best_shares(likelihood: Matrix, weight: Vector, prior: Vector) -> Mixture:
    """Return the shares π on the simplex that minimise −Σ w log(π·a) − Σ prior·log π.

    Parameters
    ----------
    likelihood : ndarray of shape (members, rows)
        What each member's report puts on the rows' labels.
    weight : ndarray of shape (rows,)
        Weights of the rows, of mean one.
    prior : ndarray of shape (members,)
        Pseudo-rows that each member gets; all above zero.

    Notes
    -----
    Scaling π up by t lowers the objective by (Σw + Σprior)·log t, so that with that number
    times Σπ added the minimum over all positive π lies on the simplex by itself.
    """
    a = np.maximum(likelihood, LOG_FLOOR)
    total = float(weight.sum() + prior.sum())

    def value(x: Vector) -> float:
        losses = weight * np.log(a.T @ x)
        return total * float(x.sum()) - float(losses.sum() + (prior * np.log(x)).sum())

    x = np.full(len(prior), 1.0 / len(prior))
    for _ in range(_MOST_STEPS):
        pull, hessian = _slopes(a, weight, prior, x)
        if _excess(pull, x) <= _FINE * total:
            break
        step: Vector = np.linalg.solve(hessian, pull - total).astype(np.float64)
        x = _further(value, x, step, float((pull - total) @ step))
    x = x / x.sum()
    pull, _ = _slopes(a, weight, prior, x)
    loss = -float((weight * np.log(a.T @ x)).sum()) / len(weight)
    return Mixture(x, loss, _excess(pull, x) / len(weight))


def _slopes(a: Matrix, weight: Vector, prior: Vector, x: Vector) -> tuple[Vector, Matrix]:
    """Return how much each member pulls, and the curvature."""
    ratio = a / (a.T @ x)
    pull = ratio @ weight + prior / x
    return pull, (ratio * weight) @ ratio.T + np.diag(prior / (x * x))


def _excess(pull: Vector, x: Vector) -> float:
    """Return the largest pull minus the total one: by convexity no shares gain more."""
    return float(pull.max() - pull @ x)


def _further(value: Callable[[Vector], float], x: Vector, step: Vector, slope: float) -> Vector:
    """Take a Newton step, halved until it stays positive and lowers the value enough."""
    here, size = value(x), 1.0
    # Close to the optimum values differ by rounding only, and a full step is right.
    near = slope < 1e-9 * abs(here)
    while size > 1e-12:
        there = x + size * step
        if (there > 0.0).all() and (near or value(there) <= here - 0.25 * size * slope):
            return there
        size *= 0.5
    return x
