"""Repair: from original and direct probabilities to repaired ones (Section 3 of the paper)."""

from cordcal.repair.construction import ConstructionState
from cordcal.repair.cord import CORD
from cordcal.repair.kernels import warmup
from cordcal.repair.lift import Lift, lift_confidences
from cordcal.repair.results import Construction, Explanation, LiftConstruction, RankingConstruction
from cordcal.repair.variants import MinimalRepair, RankingProjection, VariantCORD

__all__ = [
    "CORD",
    "Construction",
    "ConstructionState",
    "Explanation",
    "Lift",
    "LiftConstruction",
    "MinimalRepair",
    "RankingConstruction",
    "RankingProjection",
    "VariantCORD",
    "lift_confidences",
    "warmup",
]
