"""Calibrators: scores and labels in, a direct report out.  One file a family, short keys."""

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
