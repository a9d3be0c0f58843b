"""Metrics of predicted probabilities and of the predictions they imply.

Functions take whole arrays.  Most have a streaming form, whose name ends in ``Stream``
(``update``, ``merge``, ``result``), for data larger than memory.  Probabilities are never
renormalised.
"""

from cordcal.metrics.base import Metric
from cordcal.metrics.binned import (
    ClasswiseECEStream,
    ECEStream,
    Reliability,
    ReliabilityStream,
    class_reliability,
    classwise_ece,
    ece,
    reliability,
)
from cordcal.metrics.changes import (
    Flows,
    MeanRetentionStream,
    PredictionChanges,
    PredictionChangesStream,
    TopkChanges,
    TopkChangesStream,
    mean_retention,
    prediction_changes,
    prediction_flows,
    topk_changes,
    tpcr,
)
from cordcal.metrics.equal_mass import EqualMassECEStream, ece_equal_mass
from cordcal.metrics.proper import AccuracyStream, BrierStream, NLLStream, accuracy, brier, nll
from cordcal.metrics.registry import METRICS, MetricValues, measure_all, register, unregister
from cordcal.metrics.risk import RiskCoverage, risk_coverage
from cordcal.metrics.smooth import SmoothECEStream, smooth_ece

__all__ = [
    "METRICS",
    "AccuracyStream",
    "BrierStream",
    "ClasswiseECEStream",
    "ECEStream",
    "EqualMassECEStream",
    "Flows",
    "MeanRetentionStream",
    "Metric",
    "MetricValues",
    "NLLStream",
    "PredictionChanges",
    "PredictionChangesStream",
    "Reliability",
    "ReliabilityStream",
    "RiskCoverage",
    "SmoothECEStream",
    "TopkChanges",
    "TopkChangesStream",
    "accuracy",
    "brier",
    "class_reliability",
    "classwise_ece",
    "ece",
    "ece_equal_mass",
    "mean_retention",
    "measure_all",
    "nll",
    "prediction_changes",
    "prediction_flows",
    "register",
    "reliability",
    "risk_coverage",
    "smooth_ece",
    "topk_changes",
    "tpcr",
    "unregister",
]
