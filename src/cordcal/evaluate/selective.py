"""What is left to whoever abstains below some confidence: risk, coverage, accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cordcal._numeric.types import Vector
from cordcal.metrics.risk import RiskCoverage, aurc_influence, risk_curve
from cordcal.metrics.rows import LabelledRows

# Confidences that people abstain below.
THRESHOLDS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
# Points of a curve that a picture can tell apart.
_POINTS = 25
# Half the width of a 95 % interval in standard errors.
_NORMAL = 1.959964


@dataclass(frozen=True)
class Selective:
    """One report's risk against coverage, for a picture and a table.

    Attributes
    ----------
    coverage, risk : tuple of float
        The curve, thinned to what a picture shows.
    aurc, low, high : float
        The area under the whole curve with its 95 % interval, from the rows' influence on it.
    at : tuple of (confidence, coverage, accuracy)
        What is left at or above chosen confidences; the accuracy is None where nothing is.
    """

    coverage: tuple[float, ...]
    risk: tuple[float, ...]
    aurc: float
    low: float
    high: float
    at: tuple[tuple[float, float, float | None], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python values."""
        return asdict(self)


@dataclass(frozen=True)
class Selection:
    """The curves of all reports of a calibrator.

    Attributes
    ----------
    reports : mapping of str to Selective
        One a report.
    change : mapping of str to (estimate, low, high)
        How far each repaired report's area is from the direct one's, paired by rows.
    """

    reports: Mapping[str, Selective]
    change: Mapping[str, tuple[float, float, float]]

    @classmethod
    def of(cls, rows: Mapping[str, LabelledRows]) -> Selection:
        """Compute the curves of reports on the same rows."""
        curves = {name: risk_curve(each) for name, each in rows.items()}
        moves = {name: aurc_influence(each) for name, each in rows.items()}
        share = {name: each.weights / each.weights.sum() for name, each in rows.items()}
        reports = {
            name: _selective(curve, _NORMAL * _error(moves[name], share[name]))
            for name, curve in curves.items()
        }
        change = {}
        for name in curves.keys() - {"original", "direct"}:
            estimate = curves[name].aurc - curves["direct"].aurc
            reach = _NORMAL * _error(moves[name] - moves["direct"], share[name])
            change[name] = (estimate, estimate - reach, estimate + reach)
        return cls(reports, dict(sorted(change.items(), reverse=True)))

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python values."""
        return {
            "reports": {name: each.to_dict() for name, each in self.reports.items()},
            "change": {name: list(each) for name, each in self.change.items()},
        }


def _error(influence: Vector, share: Vector) -> float:
    """Return the standard error of a mean of influences."""
    return math.sqrt(float(np.square(share * influence).sum()))


def _selective(curve: RiskCoverage, reach: float) -> Selective:
    grid = np.arange(1, _POINTS + 1) / _POINTS
    last = len(curve.coverage) - 1
    shown = np.unique(np.minimum(np.searchsorted(curve.coverage, grid - 1e-12), last))
    at = []
    for confidence in THRESHOLDS:
        coverage, accuracy = curve.at(confidence)
        at.append((confidence, coverage, None if math.isnan(accuracy) else accuracy))
    return Selective(
        tuple(curve.coverage[shown].tolist()),
        tuple(curve.risk[shown].tolist()),
        curve.aurc,
        max(curve.aurc - reach, 0.0),
        min(curve.aurc + reach, 1.0),
        tuple(at),
    )
