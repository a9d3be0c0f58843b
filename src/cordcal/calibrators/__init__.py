"""Calibrators: maps fitted on scores and labels.  One module per family, one key per map."""

from cordcal.calibrators._base import Calibrator, Facts, FactTable, Size
from cordcal.calibrators.registry import (
    available,
    calibrator_class,
    describe,
    make,
    register,
    unregister,
)

__all__ = [
    "Calibrator",
    "FactTable",
    "Facts",
    "Size",
    "available",
    "calibrator_class",
    "describe",
    "make",
    "register",
    "unregister",
]
