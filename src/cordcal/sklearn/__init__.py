"""scikit-learn: a drop-in for `CalibratedClassifierCV`, and scorers of calibration."""

from cordcal.sklearn import scorers
from cordcal.sklearn._classifier import PreservingCalibratedClassifierCV

__all__ = ["PreservingCalibratedClassifierCV", "scorers"]
