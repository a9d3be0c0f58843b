"""`PreservingCalibrator`: a calibrator joined with a repair, and its state in a file."""

from cordcal.preserving.model import Outputs, PreservingCalibrator

__all__ = ["Outputs", "PreservingCalibrator"]
