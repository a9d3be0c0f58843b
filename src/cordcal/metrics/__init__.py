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
    DecisionChanges,
    DecisionChangesStream,
    Flows,
    MeanRetentionStream,
    TopkChanges,
    TopkChangesStream,
    decision_changes,
    decision_flows,
    mean_retention,
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
    "DecisionChanges",
    "DecisionChangesStream",
    "ECEStream",
    "EqualMassECEStream",
    "Flows",
    "MeanRetentionStream",
    "Metric",
    "MetricValues",
    "NLLStream",
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
    "decision_changes",
    "decision_flows",
    "ece",
    "ece_equal_mass",
    "mean_retention",
    "measure_all",
    "nll",
    "register",
    "reliability",
    "risk_coverage",
    "smooth_ece",
    "topk_changes",
    "tpcr",
    "unregister",
]
