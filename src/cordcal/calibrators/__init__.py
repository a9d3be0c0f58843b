"""Calibrators: scores and labels in, a direct report out.  One file a family, short keys."""

from cordcal.calibrators._base import Calibrator
from cordcal.calibrators._registry import (
    Facts,
    FactTable,
    available,
    calibrator_class,
    describe,
    make,
)

__all__ = [
    "Calibrator",
    "FactTable",
    "Facts",
    "available",
    "calibrator_class",
    "describe",
    "make",
]
