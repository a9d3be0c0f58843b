"""Repair: from original and direct probabilities to repaired ones (Section 3 of the paper)."""

from cordcal.repair.construction import ConstructionState
from cordcal.repair.context import ContextEffect
from cordcal.repair.cord import CORD
from cordcal.repair.lift import Lift, lift_confidences
from cordcal.repair.prediction_rule import PredictionRule
from cordcal.repair.results import (
    ConfidenceGap,
    Construction,
    Explanation,
    LiftConstruction,
    RankingConstruction,
)

__all__ = [
    "CORD",
    "ConfidenceGap",
    "Construction",
    "ConstructionState",
    "ContextEffect",
    "Explanation",
    "Lift",
    "LiftConstruction",
    "PredictionRule",
    "RankingConstruction",
    "lift_confidences",
]
