"""Selective prediction: risk, coverage and accuracy when abstaining below a confidence."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from cordcal._numeric.types import Vector
from cordcal.metrics.risk import RiskCoverage, aurc_influence, risk_curve
from cordcal.metrics.rows import LabelledRows
from cordcal.report.data import Selection, Selective

# Common thresholds for abstaining.
THRESHOLDS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
# Points that a figure draws per curve.
_POINTS = 25
# Half the width of a 95 % interval in standard errors.
_NORMAL = 1.959964


def selection_of(rows: Mapping[str, LabelledRows]) -> Selection:
    """Compute the curves of several outputs on the same rows."""
    curves = {name: risk_curve(output) for name, output in rows.items()}
    influence = {name: aurc_influence(output) for name, output in rows.items()}
    share = {name: output.weights / output.weights.sum() for name, output in rows.items()}
    outputs = {
        name: _selective(curve, _NORMAL * _standard_error(influence[name], share[name]))
        for name, curve in curves.items()
    }
    change = {}
    for name in curves.keys() - {"original", "direct"}:
        estimate = curves[name].aurc - curves["direct"].aurc
        margin = _NORMAL * _standard_error(influence[name] - influence["direct"], share[name])
        change[name] = (estimate, estimate - margin, estimate + margin)
    return Selection(outputs, dict(sorted(change.items(), reverse=True)))


def _standard_error(influence: Vector, share: Vector) -> float:
    """Return the standard error of a mean of influences."""
    return math.sqrt(float(np.square(share * influence).sum()))


def _selective(curve: RiskCoverage, margin: float) -> Selective:
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
        max(curve.aurc - margin, 0.0),
        min(curve.aurc + margin, 1.0),
        tuple(at),
    )
