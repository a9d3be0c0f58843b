"""
Models trained with class weights
=================================

With ``class_weight="balanced"``, oversampling or a lowered threshold, a classifier finds more of a
rare class, and the price is known: its probabilities are wrong. Calibrating them makes the
probabilities right and takes the predictions back. With ``rule="learnt"`` you have both: honest
probabilities, and the predictions that the model was trained to make.
"""

# %%
# The problem
# -----------
# One row in twenty is positive. A weighted model predicts many more of them positive:
import numpy as np
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, recall_score, roc_auc_score
from sklearn.model_selection import train_test_split

X, y = make_classification(6000, weights=[0.95], class_sep=0.6, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
classifier = LogisticRegression(class_weight="balanced").fit(X_train, y_train)
prediction = classifier.predict(X_test)
print(f"{y_test.mean():.1%} are positive, {prediction.mean():.1%} are predicted positive")
print(
    f"mean probability of the positive class: {classifier.predict_proba(X_test)[:, 1].mean():.1%}"
)

# %%
# Calibrated probabilities are honest, but their argmax hardly ever predicts the rare class:
from sklearn.calibration import CalibratedClassifierCV

usual = CalibratedClassifierCV(classifier).fit(X_train, y_train)
for name, predicted in (("the weighted model", prediction), ("calibrated", usual.predict(X_test))):
    print(f"{name}: finds {recall_score(y_test, predicted):.0%} of the positive rows")

# %%
# Keep the predictions
# --------------------
# By default cordcal makes the prediction the largest probability. Here that is too much to ask: a
# row with 10 % would have to say 50 %, and ``fit`` warns that a quarter of the predictions are kept
# against the evidence. ``rule="learnt"`` asks for less. It finds one weight per class, so that the
# prediction is the class with the largest *weight times probability*, and the probabilities can
# stay where they belong.
import warnings

from cordcal.sklearn import PreservingCalibratedClassifierCV

warnings.filterwarnings("ignore", message=".*are kept against the evidence")
argmax = PreservingCalibratedClassifierCV(classifier, method="sigmoid").fit(X_train, y_train)
learnt = PreservingCalibratedClassifierCV(classifier, method="sigmoid", rule="learnt")
learnt.fit(X_train, y_train)

outputs = {
    "the weighted model": classifier.predict_proba(X_test),
    "calibrated, direct": learnt.direct_proba(X_test),
    "repaired, argmax kept": argmax.predict_proba(X_test),
    "repaired, learnt rule": learnt.predict_proba(X_test),
}
for name, proba in outputs.items():
    print(
        f"{name:<22} log loss {log_loss(y_test, proba):.3f}   "
        f"AUC {roc_auc_score(y_test, proba[:, 1]):.3f}   mean {proba[:, 1].mean():.1%}"
    )
print("predictions changed:", np.count_nonzero(learnt.predict(X_test) != prediction))

# %%
# .. warning::
#
#    Use ``predict``, not the argmax of ``predict_proba``. Under a rule the likeliest class is often
#    not the predicted one, by intent:
proba = learnt.predict_proba(X_test)
print(
    f"another argmax in {np.mean(proba.argmax(axis=1) != learnt.predict(X_test)):.1%} of the rows"
)

# %%
# Wherever only the probabilities arrive, take the rule along. It is one number per class, and it
# gives the prediction of any vector:
print(learnt.rule_)
print((learnt.rule_.predict(proba) == learnt.predict(X_test)).all())

# %%
# How far the predictions follow a rule is recorded. Rows that no weights explain are repaired like
# any other: there some probability moves, so that the rule holds in every row.
print(learnt.learnt_rule_)

# %%
# Thresholds and resampling
# -------------------------
# Whatever the estimator's ``predict`` returns is kept. That covers scikit-learn's threshold
# classifiers, and pipelines of imbalanced-learn that resample the training rows.
from sklearn.model_selection import FixedThresholdClassifier

lowered = FixedThresholdClassifier(
    LogisticRegression(), threshold=0.15, response_method="predict_proba"
)
model = PreservingCalibratedClassifierCV(lowered, method="sigmoid", rule="learnt")
model.fit(X_train, y_train)
expected = lowered.fit(X_train, y_train).predict(X_test)
first, second = model.rule_.weights
print(f"learnt threshold {first / (first + second):.3f}")
print("predictions changed:", np.count_nonzero(model.predict(X_test) != expected))

# %%
# Weights that you know
# ---------------------
# If you know the weights, pass them instead of learning them:
import cordcal

print(cordcal.PredictionRule.from_threshold(0.15))  # two classes
print(cordcal.PredictionRule.from_costs([1, 10]))  # what missing each class costs
print(cordcal.PredictionRule.from_priors([0.5, 0.5], [0.95, 0.05]))  # balanced training rows

# %%
# Scores from elsewhere
# ---------------------
# A weighted model predicts the argmax of its own scores, so they are all that is needed. Other
# predictions, such as those of a threshold, are passed as ``prediction=``.
X_fit, X_new, y_fit, y_new = train_test_split(X_test, y_test, stratify=y_test, random_state=0)
plain = LogisticRegression().fit(X_train, y_train)
scores, new_scores = plain.predict_proba(X_fit), plain.predict_proba(X_new)
calibrator = cordcal.PreservingCalibrator("vs", input="probabilities", rule="learnt")
calibrator.fit(scores, y_fit, prediction=scores[:, 1] > 0.2)
proba = calibrator.predict_proba(new_scores, prediction=new_scores[:, 1] > 0.2)
print((calibrator.rule_.predict(proba) == (new_scores[:, 1] > 0.2)).all())
print(f"log loss {log_loss(y_new, proba):.3f}")

# %%
# When it pays
# ------------
# :func:`cordcal.compare` says so in one line. Without class weights or thresholds the default,
# ``rule="argmax"``, is the better choice: its probabilities need no rule to predict. Where the
# argmax costs next to nothing, the learnt weights are all equal, which is the same.
# :doc:`/how-it-works/learnt-weights` derives how they are learnt.

# %%
# In a picture
# ------------
# How often a row is positive, against the probability of it.
import matplotlib.pyplot as plt

from cordcal import plots

shown = {name: outputs[name] for name in ("the weighted model", "repaired, learnt rule")}
plots.reliability_diagram(shown, y_test, of_class=1, bins=8)
plt.show()
