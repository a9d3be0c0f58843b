"""The price of keeping: what the constraint itself costs, whatever the repair.

A report that keeps the decision a of a row and the direct report's proportions among the
other classes is one number s a row, the mass on a, and s may not fall below the end where
another class would pass it.  Among such reports with s = max(f(b), end), b the direct mass on a
and f non-decreasing, the smallest loss on these rows says how good a repair could be; the same
without the end, how good if decisions could change.  Both are fitted on the rows they are
measured on, so both flatter.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Classes, Floats, Vector
from cordcal.metrics.proper import NLL_FLOOR
from cordcal.metrics.stream import WeightedMean

# Values that f may take, even in the logit: neighbours differ by 0.1, so the best of them is
# within 0.1² / 32 = 0.0003 nats a row of the best there is.
_LOGITS = np.linspace(-27.0, 27.0, 541)

# A repair keeps this far from the end, where two classes would tie, and rounds.
_AT_END = 1e-9


@dataclass(frozen=True)
class ConstraintCost:
    """What keeping the decisions costs one calibrator, in NLL on the rows evaluated.

    Attributes
    ----------
    kept : float
        The smallest NLL of a monotone repair that keeps every decision, fitted on these rows.
    free : float
        The same where decisions may change.
    cord, lift : float or None
        The NLL of the two repairs on the same rows: above ``kept``, what is left to gain.
    """

    kept: float
    free: float
    cord: float | None = None
    lift: float | None = None

    @property
    def cost(self) -> float:
        """What the constraint itself costs."""
        return self.kept - self.free

    def to_dict(self) -> dict[str, float | None]:
        """Return the record as plain Python values."""
        return {**asdict(self), "cost": self.cost}


def lower_end(direct: Floats, decision: Classes) -> tuple[Vector, Vector, Vector]:
    """Return the direct mass on the decisions, the rest, and the least that keeps each.

    With the proportions r among the other classes, s ≥ (1 − s) max r.
    """
    wide = np.array(direct, dtype=np.float64)
    here = np.arange(len(wide))
    mass = wide[here, decision]
    wide[here, decision] = 0.0
    rest, largest = wide.sum(axis=1), wide.max(axis=1)
    # Where nothing is left for the others, any mass keeps the decision.
    share = np.divide(largest, rest, out=np.zeros(len(wide)), where=rest > 0.0)
    return mass, rest, share / (1.0 + share)


def share_at_end(direct: Floats, repaired: Floats, decision: Classes) -> float:
    """Return the share of rows whose repaired mass is the least that keeps the decision."""
    return float(np.mean(at_end(direct, repaired, decision)))


def at_end(direct: Floats, repaired: Floats, decision: Classes) -> npt.NDArray[np.bool_]:
    """Tell of each row whether its repaired mass is the least that keeps the decision."""
    _, _, end = lower_end(direct, decision)
    mass = repaired[np.arange(len(decision)), decision]
    return np.asarray(mass <= end + _AT_END)


def measure_constraint_cost(
    direct: Floats,
    decision: Classes,
    labels: Classes,
    *,
    cord: float | None = None,
    lift: float | None = None,
) -> ConstraintCost:
    """Return the smallest losses with and without the constraint.

    Parameters
    ----------
    direct : ndarray of shape (n, K)
        The calibrator's report.
    decision, labels : ndarray of int
        The decisions to keep, and the true classes.
    cord, lift : float, optional
        The NLL of the two repairs on these rows, to be told beside it.
    """
    mass, rest, end = lower_end(direct, decision)
    right = decision == labels
    true = np.asarray(direct[np.arange(len(labels)), labels], dtype=np.float64)
    # Of the mass that a wrong decision leaves, the share of the true class.
    share = np.divide(true, rest, out=np.zeros(len(rest)), where=rest > 0.0)
    share = np.where(right, 1.0, np.minimum(share, 1.0))
    kept = smallest_loss(mass, right, share, end)
    free = smallest_loss(mass, right, share, np.zeros(len(end)))
    return ConstraintCost(kept, free, cord, lift)


def smallest_loss(mass: Vector, right: npt.NDArray[np.bool_], share: Vector, end: Vector) -> float:
    """Return the smallest mean loss over s = max(f(mass), end) with f non-decreasing.

    A right row loses −log s and a wrong one −log((1 − s) share).  Because of the ends, the
    loss of a right row is not convex in f, so that pooling neighbours would not find the
    smallest; going through the rows by mass with the best loss so far for every last value of
    f does.
    """
    order = np.argsort(mass, kind="stable")
    # log s and log(1 − s) from the logit, each without cancellation.
    of_right, of_wrong = np.logaddexp(0.0, -_LOGITS), np.logaddexp(0.0, _LOGITS)
    most = -np.log(NLL_FLOOR)
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
            loss = np.minimum(of_right, at_end_right[row])
        else:
            loss = np.maximum(of_wrong, at_end_wrong[row]) + offset[row]
        best = best + np.minimum(loss, most)
    return float(best.min()) / len(mass)


def cost_without_labels(mass: Vector, end: Vector, weight: Vector | None = None) -> float:
    """Return the mean KL of Bernoulli(b) from Bernoulli(max(b, end)): the price without labels.

    It is what a user who believes the direct report pays for keeping the decisions.

    Parameters
    ----------
    mass, end : ndarray of shape (n,)
        The direct mass on each decision, and the least that keeps it.
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
    mean.add(_relative(mass, raised) + _relative(1.0 - mass, 1.0 - raised), weight)
    return mean.result()


def _relative(part: Vector, other: Vector) -> Vector:
    """Return part · log(part / other), zero where the part is."""
    ratio = np.divide(part, other, out=np.ones(len(part)), where=part > 0.0)
    return np.asarray(part * np.log(ratio))
