"""
Keep a scikit-learn model's predictions
=======================================

You use ``CalibratedClassifierCV`` and have noticed that ``predict`` changes with it. Replace it
by :class:`~cordcal.sklearn.PreservingCalibratedClassifierCV`: same arguments, same attributes,
and with ``ensemble=False`` every prediction stays the classifier's.
"""

# %%
# The problem
# -----------
import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

X, y = load_digits(return_X_y=True)
X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=0.3, random_state=0)
X_calibration, X_test, y_calibration, y_test = train_test_split(X_rest, y_rest, random_state=0)

classifier = GaussianNB().fit(X_train, y_train)
usual = CalibratedClassifierCV(FrozenEstimator(classifier), method="isotonic", cv=3)
usual.fit(X_calibration, y_calibration)
changed = np.mean(usual.predict(X_test) != classifier.predict(X_test))
print(f"CalibratedClassifierCV changes {changed:.1%} of the predictions")

# %%
# The drop-in
# -----------
from cordcal.sklearn import PreservingCalibratedClassifierCV

kept = PreservingCalibratedClassifierCV(FrozenEstimator(classifier), method="isotonic", cv=3)
kept.fit(X_calibration, y_calibration)
proba = kept.predict_proba(X_test)
print((kept.predict(X_test) == classifier.predict(X_test)).all())
print((kept.classes_[proba.argmax(axis=1)] == classifier.predict(X_test)).all())

# %%
# ``predict`` is the classifier's own, and the argmax of ``predict_proba`` agrees with it, so that
# ``argmax(predict_proba) == predict`` holds even for classifiers (``SVC``, threshold wrappers) for
# which it did not before. The usual report is still there, as ``direct_proba``:
print(np.abs(kept.direct_proba(X_test) - usual.predict_proba(X_test)).max() < 1e-12)

# %%
# Any calibrator
# --------------
# ``method`` also takes the keys of cordcal's calibrators. The classifier can be trained inside,
# with cross-fitting, as usual; the decision is then the vote of the fold members.
from sklearn.metrics import log_loss

for method in ("sigmoid", "temperature", "isotonic", "svs"):
    model = PreservingCalibratedClassifierCV(FrozenEstimator(classifier), method=method, cv=3)
    model.fit(X_calibration, y_calibration)
    direct, repaired = model.direct_proba(X_test), model.predict_proba(X_test)
    moved = np.mean(model.classes_[direct.argmax(axis=1)] != classifier.predict(X_test))
    print(
        f"{method:<12} changes {moved:5.1%}   log loss direct {log_loss(y_test, direct):.3f}"
        f"   repaired {log_loss(y_test, repaired):.3f}   original "
        f"{log_loss(y_test, classifier.predict_proba(X_test)):.3f}"
    )

# %%
# Naive Bayes on pixels is so wrong about some digits that the changes are improvements: here the
# direct report is better. Whether that is so for your classifier is what
# :doc:`the audit </guides/guide_4_audit>` answers; whether predictions *may* change is yours to
# say.
