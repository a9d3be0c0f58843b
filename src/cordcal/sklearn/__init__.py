"""scikit-learn: a drop-in for `CalibratedClassifierCV` that keeps every prediction."""

from cordcal.sklearn._classifier import PreservingCalibratedClassifierCV

__all__ = ["PreservingCalibratedClassifierCV"]
