"""Measures of reports and of the decisions they carry.

Functions take whole arrays; each has a streaming form whose name ends in ``Stream``
(``update``, ``merge``, ``result``) for data larger than memory.  Entries are read as given
and never renormalised.
"""

from cordcal.metrics._bins import ECEStream, Reliability, ReliabilityStream, ece, reliability
from cordcal.metrics._changes import (
    DecisionChanges,
    DecisionChangesStream,
    decision_changes,
    tpcr,
)
from cordcal.metrics._scores import (
    AccuracyStream,
    BrierStream,
    NLLStream,
    accuracy,
    brier,
    nll,
)

__all__ = [
    "AccuracyStream",
    "BrierStream",
    "DecisionChanges",
    "DecisionChangesStream",
    "ECEStream",
    "NLLStream",
    "Reliability",
    "ReliabilityStream",
    "accuracy",
    "brier",
    "decision_changes",
    "ece",
    "nll",
    "reliability",
    "tpcr",
]
