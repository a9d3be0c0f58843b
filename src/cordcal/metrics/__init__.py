"""Measures of reports and of the decisions they carry.

Functions take whole arrays; each has a streaming form whose name ends in ``Stream``
(``update``, ``merge``, ``result``) for data larger than memory.  Entries are read as given
and never renormalised.
"""

from cordcal.metrics._all import Measures, measure_all
from cordcal.metrics._bins import ECEStream, Reliability, ReliabilityStream, ece, reliability
from cordcal.metrics._changes import DecisionChanges, DecisionChangesStream, decision_changes, tpcr
from cordcal.metrics._class_reliability import class_reliability
from cordcal.metrics._classwise import ClasswiseECEStream, classwise_ece
from cordcal.metrics._equal_mass import EqualMassECEStream, ece_equal_mass
from cordcal.metrics._flows import Flows, decision_flows
from cordcal.metrics._measure import Measure
from cordcal.metrics._registry import MEASURES, register, unregister
from cordcal.metrics._retention import MeanRetentionStream, mean_retention
from cordcal.metrics._risk import RiskCoverage, risk_coverage
from cordcal.metrics._scores import AccuracyStream, BrierStream, NLLStream, accuracy, brier, nll
from cordcal.metrics._smooth import SmoothECEStream, smooth_ece
from cordcal.metrics._topk import TopkChanges, TopkChangesStream, topk_changes

__all__ = [
    "MEASURES",
    "AccuracyStream",
    "BrierStream",
    "ClasswiseECEStream",
    "DecisionChanges",
    "DecisionChangesStream",
    "ECEStream",
    "EqualMassECEStream",
    "Flows",
    "MeanRetentionStream",
    "Measure",
    "Measures",
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
