"""A calibrator joined with a repair: confidence changes and decisions do not."""

from cordcal.preserved._model import Preserved
from cordcal.preserved._results import Reports

__all__ = ["Preserved", "Reports"]
