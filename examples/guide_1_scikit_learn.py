"""
Keep a scikit-learn model's predictions
=======================================

You use ``CalibratedClassifierCV`` and have noticed that ``predict`` changes with it. Replace it
by :class:`~cordcal.sklearn.PreservingCalibratedClassifierCV`: same arguments, same attributes,
and every prediction stays the classifier's.
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

preserving = PreservingCalibratedClassifierCV(FrozenEstimator(classifier), method="isotonic", cv=3)
preserving.fit(X_calibration, y_calibration)
proba = preserving.predict_proba(X_test)
print((preserving.predict(X_test) == classifier.predict(X_test)).all())
print((preserving.classes_[proba.argmax(axis=1)] == classifier.predict(X_test)).all())

# %%
# ``predict`` is the classifier's own, and the argmax of ``predict_proba`` agrees with it, so that
# ``argmax(predict_proba) == predict`` holds even for classifiers (``SVC``, threshold wrappers) for
# which it did not before. The usual probabilities are still there, as ``direct_proba``:
print(np.abs(preserving.direct_proba(X_test) - usual.predict_proba(X_test)).max() < 1e-12)

# %%
# Naive Bayes is nearly always certain: the grey line. Both calibrated outputs know
# better, and only one of them keeps the predictions of ``predict``.
import matplotlib.pyplot as plt

from cordcal import plots

outputs = {
    "original": classifier.predict_proba(X_test),
    "direct": preserving.direct_proba(X_test),
    "repaired": proba,
}
plots.reliability_diagram(outputs, y_test)
plt.show()

# %%
# What differs from scikit-learn
# ------------------------------
# .. list-table::
#    :header-rows: 1
#
#    * - what
#      - ``CalibratedClassifierCV``
#      - here, and why
#    * - ``method``
#      - ``'sigmoid'``
#      - ``None``: a blend of several calibrators, repaired by :class:`~cordcal.Lift`.
#        ``"sigmoid"``, ``"isotonic"`` and ``"temperature"`` run
#        the installed scikit-learn's own code. Keys of cordcal and calibrator objects work too.
#    * - ``ensemble``
#      - ``'auto'``
#      - ``False``: the classifier is fitted on all rows, and its predictions are kept. ``True``
#        keeps one classifier per fold; they vote, and their vote differs from the prediction of
#        one classifier fitted on all rows in some rows (4 % with a small forest). ``"auto"`` is
#        scikit-learn's rule.
#    * - ``repair``
#      - does not exist
#      - how predictions are restored: ``"lift"`` by default, :class:`~cordcal.CORD` (``"cord"``) if
#        you name a method
#    * - ``preserve``
#      - does not exist
#      - ``1``: how many of the first ranks are kept
#    * - ``rule``
#      - does not exist
#      - ``"argmax"``: the prediction is the largest probability. ``"learnt"`` is for estimators
#        with class weights, resampled rows or thresholds
#        (:doc:`guide </guides/guide_11_class_weights>`)
#    * - ``predict(X)``
#      - the argmax of the calibrated probabilities
#      - the classifier's own prediction; the argmax of its scores if it has no ``predict``
#    * - ``predict_proba(X)``
#      - the calibrator's probabilities
#      - the repaired ones, always float64 in NumPy; the calibrator's are ``direct_proba(X)``
#    * - ``calibrated_classifiers_``
#      - members with ``estimator``, ``calibrators``, ``classes``, ``predict_proba``
#      - the same, and ``calibrator``, ``predict``, ``scores``; ``predict_proba`` of a member gives
#        direct probabilities
#    * - ``classes_`` of a prefit classifier
#      - the classes in ``y``
#      - the classifier's own classes, also those without a calibration row; a label that it does
#        not know is an error
#    * - a class without training rows in a fold
#      - scores of zero, or the smallest number for decision values; a warning without ensemble.
#        With temperature scaling in an ensemble, an error
#      - probability zero before calibration, 1e-12 for decision values; a warning. Every method
#        works
#    * - ``fit(…, clusters=)``
#      - does not exist
#      - rows of one patient, user or session are held out together, by ``cv`` and by the
#        calibrator; routed as metadata after ``set_fit_request(clusters=True)``
#    * - weights with a ``FrozenEstimator``
#      - a warning that the classifier does not use them
#      - no warning: there is nothing to fit
#    * - array API dispatch
#      - with ``method="temperature"``
#      - with every method; only scikit-learn's temperature scaling computes in that library
#    * - saving and exporting
#      - pickle, skops, skl2onnx
#      - these (:func:`~cordcal.onnx.register_converter` for skl2onnx), and :func:`cordcal.save` and
#        :func:`cordcal.onnx.export` of the calibration without the classifier
#
# All else is the same: ``estimator``, ``cv``, ``n_jobs``, weights, metadata routing, and which of
# ``decision_function`` and ``predict_proba`` is calibrated. scikit-learn's own tests of its class
# run against this one in cordcal's test suite.
#
# What the default gains
# ----------------------
# Both classes without arguments, log loss on held-out rows, means of ten splits and the paired
# difference with its 95 % interval. Of these 24 problems the loss is clearly lower on 21 and
# clearly higher on none. The last columns are the predictions that differ from those of the
# classifier fitted on all training rows: with ``CalibratedClassifierCV``, and here.
# ``benchmarks/sklearn_log_loss.py`` makes the table.
#
# .. csv-table::
#    :header: data, classifier, ``CalibratedClassifierCV``, here, difference, changed there, here
#
#    digits, naive Bayes, 0.565, 0.406, −0.159 (−0.186 to −0.132), 1.8 %, 0
#    digits, forest, 0.140, 0.066, −0.075 (−0.085 to −0.065), 1.3 %, 0
#    digits, boosting, 0.199, 0.111, −0.088 (−0.099 to −0.076), 1.8 %, 0
#    digits, logistic regression, 0.260, 0.104, −0.155 (−0.164 to −0.147), 1.5 %, 0
#    wine, naive Bayes, 0.176, 0.086, −0.091 (−0.121 to −0.060), 0.0 %, 0
#    wine, forest, 0.161, 0.050, −0.111 (−0.130 to −0.092), 0.2 %, 0
#    wine, boosting, 0.234, 0.076, −0.158 (−0.185 to −0.132), 1.6 %, 0
#    wine, logistic regression, 0.204, 0.036, −0.168 (−0.178 to −0.159), 0.2 %, 0
#    breast cancer, naive Bayes, 0.215, 0.154, −0.061 (−0.072 to −0.051), 0.1 %, 0
#    breast cancer, forest, 0.113, 0.106, −0.007 (−0.017 to +0.002), 0.9 %, 0
#    breast cancer, boosting, 0.119, 0.110, −0.008 (−0.018 to +0.001), 0.7 %, 0
#    breast cancer, logistic regression, 0.102, 0.071, −0.031 (−0.040 to −0.021), 1.7 %, 0
#    iris, naive Bayes, 0.252, 0.156, −0.096 (−0.117 to −0.076), 0.0 %, 0
#    iris, forest, 0.241, 0.155, −0.085 (−0.124 to −0.046), 1.8 %, 0
#    iris, boosting, 0.241, 0.154, −0.088 (−0.112 to −0.063), 1.3 %, 0
#    iris, logistic regression, 0.518, 0.103, −0.415 (−0.447 to −0.383), 13.7 %, 0
#    imbalanced, naive Bayes, 0.424, 0.379, −0.045 (−0.055 to −0.036), 3.7 %, 0
#    imbalanced, forest, 0.295, 0.296, +0.001 (−0.007 to +0.009), 5.1 %, 0
#    imbalanced, boosting, 0.292, 0.265, −0.027 (−0.036 to −0.018), 2.7 %, 0
#    imbalanced, logistic regression, 0.396, 0.334, −0.062 (−0.072 to −0.052), 7.7 %, 0
#    30 classes, naive Bayes, 2.427, 2.078, −0.349 (−0.360 to −0.339), 8.5 %, 0
#    30 classes, forest, 1.765, 1.709, −0.056 (−0.079 to −0.034), 26.7 %, 0
#    30 classes, boosting, 1.885, 1.828, −0.057 (−0.067 to −0.046), 28.2 %, 0
#    30 classes, logistic regression, 2.300, 2.201, −0.100 (−0.106 to −0.094), 7.0 %, 0
#
# Any calibrator
# --------------
# ``method`` also takes the keys of cordcal's calibrators.
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
# direct output is better. Whether that is so for your classifier is what
# :doc:`the audit </guides/guide_4_audit>` answers; whether predictions *may* change is yours to
# say.

# %%
# Pipelines, frames and a search
# ------------------------------
# It is an estimator like others: a pipeline goes in, a frame goes through, and ``GridSearchCV``
# chooses among calibrators by the log loss of what will be reported.
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

pixels = [f"pixel {number}" for number in range(X.shape[1])]
frame, test = pd.DataFrame(X_train, columns=pixels), pd.DataFrame(X_test, columns=pixels)
numbers = make_column_transformer((StandardScaler(), make_column_selector("pixel")))
pipeline = make_pipeline(numbers, LogisticRegression(C=10.0, max_iter=200))

search = GridSearchCV(
    PreservingCalibratedClassifierCV(pipeline, cv=3),
    {"method": ["temperature", "isotonic", "svs"]},
    scoring="neg_log_loss",
    cv=3,
)
search.fit(frame, y_train)
chosen = search.best_estimator_
print(search.best_params_, f"log loss {-search.best_score_:.3f}")
print((chosen.predict(test) == pipeline.fit(frame, y_train).predict(test)).all())

# %%
# Calibration errors are scorers, too: :mod:`cordcal.sklearn.scorers` has ``ece``,
# ``classwise_ece``, ``smooth_ece``, ``brier`` and ``log_loss``, negated, so that greater is better.
from sklearn.model_selection import cross_validate

from cordcal.sklearn import scorers

scoring = {"ece": scorers.ece, "smooth_ece": scorers.smooth_ece}
for name, model in (
    ("naive Bayes", GaussianNB()),
    ("calibrated", PreservingCalibratedClassifierCV(GaussianNB())),
):
    scores = cross_validate(model, X_train, y_train, scoring=scoring, cv=3)
    print(name, {key: f"{-scores[f'test_{key}'].mean():.1%}" for key in scoring})

# %%
# The same search over the classifier's own parameters works too, under
# ``estimator__logisticregression__C``. Then the predictions are those of the classifier that was
# chosen.
#
# Boosters and their raw scores
# -----------------------------
# A booster is a classifier: it can go in as it is. Its probabilities come from raw scores, and
# these are the better thing to calibrate: where it is very sure, probabilities round to 0 and 1
# and raw scores do not. With scikit-learn's boosters the raw scores are what
# ``decision_function`` returns, so nothing need be done. For the others:
#
# .. list-table::
#    :header-rows: 1
#
#    * - booster
#      - raw scores, one column a class
#    * - LightGBM
#      - ``booster.predict(X, raw_score=True)``
#    * - XGBoost
#      - ``booster.predict(X, output_margin=True)``
#    * - CatBoost
#      - ``booster.predict(X, prediction_type="RawFormulaVal")``
#
# Pass them to :class:`~cordcal.PreservingCalibrator` as logits, from rows the booster was not
# fitted on. With two classes there is one number ``z`` per row: pass
# ``np.column_stack([-z / 2, z / 2])``.
import cordcal

try:
    from lightgbm import LGBMClassifier

    booster = LGBMClassifier(n_estimators=20, verbose=-1).fit(X_train, y_train)
    raw, new = (booster.predict(rows, raw_score=True) for rows in (X_calibration, X_test))
except ImportError:
    from sklearn.ensemble import HistGradientBoostingClassifier

    booster = HistGradientBoostingClassifier(max_iter=20).fit(X_train, y_train)
    raw, new = (booster.decision_function(rows) for rows in (X_calibration, X_test))

model = cordcal.PreservingCalibrator("svs", class_names=booster.classes_).fit(raw, y_calibration)
print(
    f"log loss {log_loss(y_test, booster.predict_proba(X_test)):.3f} before, "
    f"{log_loss(y_test, model.predict_proba(new)):.3f} repaired"
)
print("predictions changed:", np.count_nonzero(model.predict(new) != booster.predict(X_test)))
