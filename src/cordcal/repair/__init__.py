"""Repair: original and direct reports in, repaired report out (Section 3 of the paper)."""

from cordcal.repair._cord import CORD
from cordcal.repair._lift import Lift
from cordcal.repair._lift_results import LiftConstruction
from cordcal.repair._lift_scalar import lift
from cordcal.repair._results import Construction, Explanation, RankingConstruction
from cordcal.repair._state import ConstructionState
from cordcal.repair._variants import MinimalRepair, RankingProjection, VariantCORD
from cordcal.repair.kernels import warmup

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
    "lift",
    "warmup",
]
