"""Risk against coverage: the error rate among the rows above a confidence threshold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cordcal._numeric.types import ArrayLike, Record, Vector
from cordcal._validation.names import Name
from cordcal.metrics.base import LabelledRows, RowCollector, fill_docstring, update_stream


@dataclass(frozen=True, eq=False)
class RiskCoverage(Record):
    """The error rate among the most confident rows, for every share of rows.

    Attributes
    ----------
    confidence : ndarray
        The distinct confidences, largest first; each is a threshold.
    coverage : ndarray
        The share of rows at or above the threshold.
    risk : ndarray
        The share of wrong predictions among them.
    aurc : float
        The area under the curve: the mean of the risk over all coverages; lower is better.
    """

    confidence: Vector
    coverage: Vector
    risk: Vector
    aurc: float

    def at(self, confidence: float) -> tuple[float, float]:
        """Return coverage and accuracy of the rows at or above a confidence.

        Examples
        --------
        >>> risk_coverage([[0.9, 0.1], [0.6, 0.4]], [0, 1]).at(0.8)
        (0.5, 1.0)
        """
        above = int(np.searchsorted(-self.confidence, -confidence, side="right"))
        if above == 0:
            return 0.0, float("nan")
        return float(self.coverage[above - 1]), float(1.0 - self.risk[above - 1])

    def __repr__(self) -> str:
        return f"RiskCoverage(AURC {self.aurc:.4f}, {len(self.confidence):,} thresholds)"


def risk_curve(rows: LabelledRows) -> RiskCoverage:
    """Return the curve of reduced rows.

    Rows of equal confidence form one group.  In the area their errors are spread evenly over
    the group, so that their order does not matter.
    """
    confidence, group = np.unique(-rows.confidence, return_inverse=True)
    weight = rows.weights
    mass: Vector = np.bincount(group, weight).astype(np.float64)
    errors: Vector = np.bincount(group, weight * ~rows.correct).astype(np.float64)
    filled = mass > 0.0
    mass, errors = mass[filled], errors[filled]
    total_mass, total_errors = np.cumsum(mass), np.cumsum(errors)
    return RiskCoverage(
        -confidence[filled],
        total_mass / total_mass[-1],
        total_errors / total_mass,
        _area(mass, errors, total_mass, total_errors) / float(total_mass[-1]),
    )


def _area(mass: Vector, errors: Vector, total_mass: Vector, total_errors: Vector) -> float:
    """Return the sum of the risk after each row, with errors spread evenly over each group.

    Let r be the error rate of the group.  The risk after the i-th row is
    (errors_before + r (i − before)) / i = r + (errors_before − r · before) / i.  The sum of
    1 / i is a difference of digammas, which also covers fractional weights.
    """
    from scipy.special import digamma

    before, rate = total_mass - mass, errors / mass
    excess = (total_errors - errors) - rate * before
    harmonic = digamma(total_mass + 1.0) - digamma(before + 1.0)
    return float((rate * mass + excess * harmonic).sum())


def aurc_influence(rows: LabelledRows) -> Vector:
    """Return the influence of each row on the area under the curve.

    It is the derivative of the area by the weight of the row.  With coverage u and cumulative
    errors F, the area is −∫ log u dF, and the influence of a row at u_j with error e_j is
    −e_j log u_j − ∫_{u_j} dF/u + F(1) − area.  Rows of equal confidence share their ranks.
    The mean influence is zero; its root mean square over √n is the standard error.
    """
    from scipy.special import xlogy

    _, group = np.unique(-rows.confidence, return_inverse=True)
    share = rows.weights / rows.weights.sum()
    mass: Vector = np.bincount(group, share).astype(np.float64)
    errors: Vector = np.bincount(group, share * ~rows.correct).astype(np.float64)
    after = np.cumsum(mass)
    before = np.concatenate([[0.0], after[:-1]])
    size = np.where(mass > 0.0, mass, 1.0)  # groups of weight zero have no influence
    rate = errors / size
    with np.errstate(divide="ignore"):
        step = np.where(before > 0.0, np.log(after / np.where(before > 0.0, before, 1.0)), 0.0)
    height = 1.0 - (xlogy(after, after) - xlogy(before, before)) / size
    later = np.concatenate([np.cumsum((rate * step)[::-1])[::-1][1:], [0.0]])
    same_group = rate * (1.0 - before / size * step)
    area = float(errors @ height)
    pushed_down = (later + same_group)[group]
    return np.asarray(~rows.correct * height[group] - area + errors.sum() - pushed_down)


@fill_docstring
def risk_coverage(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    axis: int | None = None,
    ignore_index: int | None = None,
    class_names: Sequence[Name] | None = None,
) -> RiskCoverage:
    """Return the risk among the most confident rows, for every coverage.

    If you abstain below a threshold, the risk is the error rate of the other rows.  A repair
    keeps every prediction but may change which rows are the most confident, and so this curve.

    Parameters
    ----------
    probabilities : array_like of shape (n, K)
        The predicted probabilities; the largest entry gives the prediction and its confidence.
    labels : array_like of int
        The true class of each row, 0..K-1.
    sample_weight : array_like, optional
        Weights of the rows.
    {axis, ignore_index, class_names}

    Returns
    -------
    curve : RiskCoverage
        The curve and the area under it.

    Examples
    --------
    >>> curve = risk_coverage([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]], [0, 0, 1])
    >>> curve.coverage.round(3), curve.risk.round(3)
    (array([0.333, 0.667, 1.   ]), array([0.   , 0.   , 0.333]))
    """
    stream = update_stream(
        RowCollector(), [probabilities], labels, sample_weight, axis, ignore_index, class_names
    )
    return risk_curve(stream.result())
