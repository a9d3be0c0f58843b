"""scikit-learn: a drop-in for `CalibratedClassifierCV`, and scorers of calibration."""

from cordcal.sklearn import scorers
from cordcal.sklearn._classifier import PreservingCalibratedClassifierCV
from cordcal.sklearn._trusted import trusted_types

__all__ = ["PreservingCalibratedClassifierCV", "scorers", "trusted_types"]
