"""`PreservingCalibrator`: a calibrator joined with a repair, and its state in a file."""

from cordcal.preserving.model import PreservingCalibrator
from cordcal.preserving.outputs import Outputs

__all__ = ["Outputs", "PreservingCalibrator"]
