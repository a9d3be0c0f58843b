"""The types that a skops file of a fitted model holds."""

from __future__ import annotations

from cordcal.calibrators import available, calibrator_class
from cordcal.calibrators.crossfit import HeldOut
from cordcal.calibrators.learnt_rule import LearntRule
from cordcal.certification import Certificate, CertifiedPart
from cordcal.preserving import PreservingCalibrator
from cordcal.preserving.fit_rows import FitRows
from cordcal.repair import (
    CORD,
    ConfidenceGap,
    Construction,
    Lift,
    LiftConstruction,
    PredictionRule,
    RankingConstruction,
)
from cordcal.repair.context import Column, ContextCurve, FittedContext, Scale
from cordcal.repair.lift import Masses
from cordcal.repair.lift_rule import Curve
from cordcal.sklearn._classifier import PreservingCalibratedClassifierCV
from cordcal.sklearn._members import Member, SklearnCalibrator, _PassThroughClassifier

_OWN = (
    PreservingCalibratedClassifierCV, Member, SklearnCalibrator, _PassThroughClassifier,
    PreservingCalibrator, FitRows, CORD, Lift, PredictionRule, LearntRule, HeldOut, Masses, Curve,
    Construction, RankingConstruction, LiftConstruction, ConfidenceGap, FittedContext, ContextCurve,
    Column, Scale, Certificate, CertifiedPart,
)  # fmt: skip
# With method="sigmoid", "isotonic" or "temperature" a model holds scikit-learn's own calibrators.
_SKLEARN = ("_CalibratedClassifier", "_SigmoidCalibration", "_TemperatureScaling")


def trusted_types() -> list[str]:
    """Return the types of cordcal's that skops and MLflow must trust to load a fitted model.

    They are those of `PreservingCalibratedClassifierCV` and `cordcal.PreservingCalibrator` with
    any of cordcal's calibrators, and scikit-learn's calibrators.  The estimator's own types are not
    among them; skops trusts scikit-learn's.

    Returns
    -------
    types : list of str
        To pass as ``trusted`` to ``skops.io.load`` and as ``skops_trusted_types`` to
        ``mlflow.sklearn.log_model``.

    Examples
    --------
    >>> import skops.io
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.naive_bayes import GaussianNB
    >>> model = PreservingCalibratedClassifierCV(GaussianNB()).fit(*load_wine(return_X_y=True))
    >>> again = skops.io.loads(skops.io.dumps(model), trusted=trusted_types())
    >>> type(again).__name__
    'PreservingCalibratedClassifierCV'
    """
    classes = [calibrator_class(key) for key in available()]
    own = [cls for cls in classes if cls.__module__.startswith("cordcal.")]
    names = [f"{cls.__module__}.{cls.__qualname__}" for cls in (*_OWN, *own)]
    return sorted([*names, *(f"sklearn.calibration.{name}" for name in _SKLEARN)])
