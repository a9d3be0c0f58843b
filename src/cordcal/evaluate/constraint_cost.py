"""How much likelihood any repair loses by keeping predictions.

A repair that keeps a row's prediction a, and the calibrator's proportions among the other classes,
is one number s per row: the mass on a.  The lower end of s is where another class would overtake
a.  Among repairs s = max(f(b), end), with b the direct mass on a and f non-decreasing, the
smallest loss on these rows is the best that a repair could reach; the same without the end is the
best if predictions could change.  Both are fitted on the rows they are measured on, so both are
optimistic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Classes, Floats, Vector
from cordcal.evaluate.results.calibrators import ConstraintCost
from cordcal.metrics.base import WeightedMean
from cordcal.metrics.proper import NLL_FLOOR

if TYPE_CHECKING:
    pass

# The values of f, evenly spaced in the logit: neighbours differ by 0.1, so the best of them is
# within 0.1² / 32 = 0.0003 nats per row of the optimum.
_LOGITS = np.linspace(-27.0, 27.0, 541)


def lower_end(
    direct: Floats, prediction: Classes, rule_weights: Vector | None = None
) -> tuple[Vector, Vector, Vector]:
    """Return the direct mass on the predictions, on the rest, and the least that keeps each.

    With the proportions r among the other classes, s ≥ (1 − s) max r; under a rule with weights
    w, w_a s ≥ (1 − s) max w r.
    """
    others = np.array(direct, dtype=np.float64)
    rows = np.arange(len(others))
    mass = others[rows, prediction]
    others[rows, prediction] = 0.0
    rest = others.sum(axis=1)
    if rule_weights is not None:
        others = others * rule_weights / rule_weights[prediction][:, None]
    largest = others.max(axis=1)
    # If the other classes have no mass, any mass keeps the prediction.
    share = np.divide(largest, rest, out=np.zeros(len(others)), where=rest > 0.0)
    return mass, rest, share / (1.0 + share)


def measure_constraint_cost(
    direct: Floats,
    prediction: Classes,
    labels: Classes,
    *,
    cord: float | None = None,
    lift: float | None = None,
) -> ConstraintCost:
    """Return the smallest losses with and without the constraint.

    Both are minima on these rows, without an interval or a test: clusters change neither.

    Parameters
    ----------
    direct : ndarray of shape (n, K)
        The calibrator's probabilities.
    prediction, labels : ndarray of int
        The predictions to keep, and the true classes.
    cord, lift : float, optional
        The NLL of the two repairs on these rows, stored in the result.
    """
    mass, rest, end = lower_end(direct, prediction)
    right = prediction == labels
    true = np.asarray(direct[np.arange(len(labels)), labels], dtype=np.float64)
    # The share of the true class in the mass that a wrong prediction leaves.
    # Of right rows it is not asked: their mass over a tiny rest would overflow.
    share = np.divide(true, rest, out=np.zeros(len(rest)), where=(rest > 0.0) & ~right)
    share = np.where(right, 1.0, np.minimum(share, 1.0))
    repairs = [loss for loss in (cord, lift) if loss is not None]
    # CORD and Lift also read the original probabilities, so either may be better than the best
    # function of the direct mass.  What keeps every prediction is also allowed without the limit.
    constrained = min([smallest_loss(mass, right, share, end), *repairs])
    free = min(smallest_loss(mass, right, share, np.zeros(len(end))), constrained)
    return ConstraintCost(constrained, free, cord, lift)


def smallest_loss(mass: Vector, right: npt.NDArray[np.bool_], share: Vector, end: Vector) -> float:
    """Return the smallest mean loss over s = max(f(mass), end) with f non-decreasing.

    The loss of a right row is −log s, that of a wrong one −log((1 − s) share).  Because of the
    ends, the loss of a right row is not convex in f, so pooling neighbours would not find the
    minimum.  Dynamic programming does: it visits the rows by mass and stores the best loss so
    far for every last value of f.
    """
    order = np.argsort(mass, kind="stable")
    # log s and log(1 − s) from the logit, each without cancellation.
    right_loss, wrong_loss = np.logaddexp(0.0, -_LOGITS), np.logaddexp(0.0, _LOGITS)
    max_loss = -np.log(NLL_FLOOR)
    with np.errstate(divide="ignore"):
        at_end_right, at_end_wrong = -np.log(end), -np.log1p(-end)
        offset = -np.log(share)
    best = np.zeros(len(_LOGITS))
    last = None
    for row in order.tolist():
        if mass[row] != last:  # rows of the same mass share one value of f
            best = np.minimum.accumulate(best)
            last = mass[row]
        if right[row]:
            loss = np.minimum(right_loss, at_end_right[row])
        else:
            loss = np.maximum(wrong_loss, at_end_wrong[row]) + offset[row]
        best = best + np.minimum(loss, max_loss)
    return float(best.min()) / len(mass)


def cost_without_labels(mass: Vector, end: Vector, weight: Vector | None = None) -> float:
    """Return the mean KL divergence of Bernoulli(b) from Bernoulli(max(b, end)).

    It is the cost of keeping the predictions if the direct probabilities are correct.

    Parameters
    ----------
    mass, end : ndarray of shape (n,)
        The direct mass on each prediction, and the least that keeps it.
    weight : ndarray of shape (n,), optional
        Weights of the rows.

    Examples
    --------
    >>> import numpy as np
    >>> round(cost_without_labels(np.array([0.4, 0.9]), np.array([0.5, 0.5])), 6)
    0.010068
    """
    raised = np.maximum(mass, end)
    mean = WeightedMean()
    divergence = _relative_entropy(mass, raised) + _relative_entropy(1.0 - mass, 1.0 - raised)
    mean.add(divergence, weight)
    return mean.result()


def _relative_entropy(p: Vector, q: Vector) -> Vector:
    """Return p · log(p / q), zero where p is zero."""
    ratio = np.divide(p, q, out=np.ones(len(p)), where=p > 0.0)
    return np.asarray(p * np.log(ratio))
