"""The records of an audit: metrics side by side, changes per group, certified error rates."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cordcal._numeric.types import Record
from cordcal.evaluate.results.values import Json
from cordcal.metrics import METRICS, PredictionChanges

# Smaller differences between metrics of the same rows are rounding.
_SAME = 1e-12


@dataclass(frozen=True)
class GroupChanges(Record):
    """Changed predictions within one group of rows: a class, or a band of confidence.

    Attributes
    ----------
    group : str
        The predicted class, or the band of its confidence.
    changes : PredictionChanges
        What the direct probabilities change in these rows.
    """

    group: str
    changes: PredictionChanges

    def to_dict(self) -> Json:
        """Return the record as plain Python values."""
        return {"group": self.group, **self.changes.to_dict()}


@dataclass(frozen=True)
class MeasureComparison(Record):
    """One metric of original, direct and repaired probabilities.

    Attributes
    ----------
    measure : str
        Its name in `cordcal.metrics`.
    original, direct, repaired : float
        Its values.
    difference : float
        Repaired minus direct.
    low, high : float or None
        Paired bootstrap interval of the difference; None for classwise ECE, which is not
        resampled.
    """

    _computed = ("verdict",)

    measure: str
    original: float
    direct: float
    repaired: float
    difference: float
    low: float | None
    high: float | None

    @property
    def verdict(self) -> str:
        """``better``, ``worse``, ``same`` or ``unclear``: repaired compared with direct."""
        ends = (self.difference, self.low or 0.0, self.high or 0.0)
        if max(map(abs, ends)) <= _SAME:
            return "same"
        if self.low is None or self.high is None or self.low <= 0.0 <= self.high:
            return "unclear"
        rises = self.low > 0.0
        return "worse" if rises == METRICS[self.measure].lower_is_better else "better"


@dataclass(frozen=True)
class CertifiedErrorRate(Record):
    """An upper bound for the error rate of the predictions above a confidence.

    Attributes
    ----------
    threshold : float
        The lowest confidence that counts.
    n, errors : int
        How many rows have at least this confidence, and how many of them are wrong.
    bound : float
        The largest error rate that is compatible with that.
    """

    threshold: float
    n: int
    errors: int
    bound: float

    @property
    def threshold_text(self) -> str:
        """The threshold in percent."""
        return f"{100.0 * self.threshold:.10g} %"

    @property
    def bound_text(self) -> str:
        """The bound in percent, rounded up."""
        return f"{math.ceil(1e4 * self.bound - 1e-9) / 100.0:.4g} %"

    def __str__(self) -> str:
        return (
            f"of the predictions reported at {self.threshold_text} or more, at most "
            f"{self.bound_text} are wrong ({self.errors:,} of {self.n:,} here)"
        )
