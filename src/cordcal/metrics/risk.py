"""Risk against coverage: how wrong the rows are that a threshold on the confidence keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cordcal._numeric.types import Vector
from cordcal.metrics.rows import LabelledRows
from cordcal.metrics.stream import RowCollector, update_stream


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """The error among the most confident rows, for every share of rows that is kept.

    Attributes
    ----------
    confidence : ndarray
        The distinct confidences, largest first: keep rows at or above one of them.
    coverage : ndarray
        The share of rows that is kept.
    risk : ndarray
        The share of wrong decisions among them.
    aurc : float
        The mean of the risk after each further row, the area under the curve; lower is better.
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
        kept = int(np.searchsorted(-self.confidence, -confidence, side="right"))
        if kept == 0:
            return 0.0, float("nan")
        return float(self.coverage[kept - 1]), float(1.0 - self.risk[kept - 1])

    def to_dict(self) -> dict[str, Any]:
        """Return the curve as plain Python values."""
        return {
            "confidence": self.confidence.tolist(),
            "coverage": self.coverage.tolist(),
            "risk": self.risk.tolist(),
            "aurc": self.aurc,
        }

    def __repr__(self) -> str:
        return f"RiskCoverage(AURC {self.aurc:.4f}, {len(self.confidence):,} thresholds)"


def risk_curve(rows: LabelledRows) -> RiskCoverage:
    """Return the curve of reduced rows.

    Rows of one confidence are kept or left together; within the area they count as if their
    errors were spread evenly among them, so that their order is nothing.
    """
    confidence, group = np.unique(-rows.confidence, return_inverse=True)
    weight = rows.weights
    kept: Vector = np.bincount(group, weight).astype(np.float64)
    wrong: Vector = np.bincount(group, weight * ~rows.correct).astype(np.float64)
    filled = kept > 0.0
    kept, wrong = kept[filled], wrong[filled]
    covered, failed = np.cumsum(kept), np.cumsum(wrong)
    return RiskCoverage(
        -confidence[filled],
        covered / covered[-1],
        failed / covered,
        _area(covered, failed, kept, wrong) / float(covered[-1]),
    )


def _area(covered: Vector, failed: Vector, kept: Vector, wrong: Vector) -> float:
    """Return the sum of the risk after each row, a group's errors coming at an even rate.

    With r the group's rate, the i-th row sees (failed_before + r (i − before)) / i, that is
    r + (failed_before − r · before) / i; the sum of 1 / i is a difference of digammas, which
    also serves weights that are not whole.
    """
    from scipy.special import digamma

    before, rate = covered - kept, wrong / kept
    excess = (failed - wrong) - rate * before
    return float((rate * kept + excess * (digamma(covered + 1.0) - digamma(before + 1.0))).sum())


def aurc_influence(rows: LabelledRows) -> Vector:
    """Return what each row adds to the area under the curve, times the number of rows.

    Weights of a little more on one row move the area by its own error, by the ranks that
    it pushes down, and by the mean: with u the coverage and F the errors so far, the area is
    −∫ log u dF, and a row at u_j moves it by −e_j log u_j − ∫_{u_j} dF/u + F(1) − area.
    Rows of one confidence share their ranks.  The mean over the rows is zero, and their root
    mean square over √n is the standard error.
    """
    from scipy.special import xlogy

    _, group = np.unique(-rows.confidence, return_inverse=True)
    share = rows.weights / rows.weights.sum()
    kept: Vector = np.bincount(group, share).astype(np.float64)
    failed: Vector = np.bincount(group, share * ~rows.correct).astype(np.float64)
    after = np.cumsum(kept)
    before = np.concatenate([[0.0], after[:-1]])
    size = np.where(kept > 0.0, kept, 1.0)  # a group of weight zero has no rows to move
    rate = failed / size
    with np.errstate(divide="ignore"):
        step = np.where(before > 0.0, np.log(after / np.where(before > 0.0, before, 1.0)), 0.0)
    height = 1.0 - (xlogy(after, after) - xlogy(before, before)) / size
    later = np.concatenate([np.cumsum((rate * step)[::-1])[::-1][1:], [0.0]])
    own = rate * (1.0 - before / size * step)
    area = float(failed @ height)
    return np.asarray(~rows.correct * height[group] - area + failed.sum() - (later + own)[group])


def risk_coverage(
    probabilities: Any,
    labels: Any,
    *,
    sample_weight: Any = None,
    axis: int | None = None,
    ignore_index: int | None = None,
) -> RiskCoverage:
    """Return the risk among the most confident rows, for every coverage.

    Who abstains below some confidence asks how wrong the rest is.  A repair keeps every
    decision, but it may change which rows are the most confident, and with them this curve.

    Parameters
    ----------
    probabilities : array_like of shape (n, K)
        The predicted probabilities; its largest entry is the decision and its confidence.
    labels : array_like of int
        The true class of each row, 0..K-1.
    sample_weight : array_like, optional
        Weights of the rows.
    axis : int, optional
        The dimension of the classes, for dense reports such as (B, K, H, W).
    ignore_index : int, optional
        The label of rows or positions that have none; they are left out.

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
        RowCollector(), [probabilities], labels, sample_weight, axis, ignore_index
    )
    return risk_curve(stream.result())
