"""scikit-learn: a drop-in for `CalibratedClassifierCV` that keeps every prediction."""

from cordcal.sklearn._classifier import PreservingCalibratedClassifierCV
from cordcal.sklearn._trusted import trusted_types

__all__ = ["PreservingCalibratedClassifierCV", "trusted_types"]
