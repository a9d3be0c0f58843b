"""Figures for papers with matplotlib (``pip install matplotlib``).

Each function takes arrays or a result, draws on ``ax`` or on new axes, and returns the axes.
The numbers come from `cordcal.metrics` and `cordcal.compare`.
"""

from cordcal.plots._figures import (
    COLOURS,
    ReliabilityDisplay,
    certificate,
    confidence_histogram,
    flows,
    metric_versus_tpcr,
    prediction_changes,
    reliability_diagram,
    risk_coverage,
)

__all__ = [
    "COLOURS",
    "ReliabilityDisplay",
    "certificate",
    "confidence_histogram",
    "flows",
    "metric_versus_tpcr",
    "prediction_changes",
    "reliability_diagram",
    "risk_coverage",
]
