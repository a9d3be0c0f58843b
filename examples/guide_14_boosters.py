"""
Calibrate LightGBM, XGBoost, CatBoost, AutoGluon and TabPFN
===========================================================

Gradient boosting returns raw margins and probabilities, and none of the three libraries calibrates
them. AutoGluon and TabPFN divide by one temperature. This guide shows what to pass, which rows to
fit on, and what the default adds to a temperature. Needs
``pip install cordcal lightgbm xgboost-cpu catboost pandas`` (or xgboost, for graphics cards).
"""

# %%
# Data with names and a category
# ------------------------------
# Noisy handwritten digits with text labels, and how heavy the pen was as a category. Rows to train
# on, to stop early on, to calibrate on, and new ones.
import numpy as np
import pandas as pd
from sklearn.datasets import load_digits

pixels, digit = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
noisy = pixels + 4.0 * rng.normal(size=pixels.shape)
X = pd.DataFrame(noisy, columns=[f"pixel {k}" for k in range(64)])
X["pen"] = pd.cut(pixels.sum(axis=1), 4, labels=["fine", "medium", "broad", "brush"])
names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
y = np.array(names)[digit]
order = rng.permutation(len(y))
train, stop, fit, new = np.split(order, [500, 800, 1300])

# %%
# Raw margins
# -----------
# Pass margins, not probabilities, where a library has them: they are logits, and no rounding to
# float32 has lost the small ones. The columns are in the order of the library's own classes.
# CatBoost takes text labels and sorts them: ``classes_`` has the order. XGBoost wants integers, and
# so does LightGBM's early stopping by ``eval_y``: here positions in the same sorted list, which
# cordcal gets as ``class_names``. Categorical columns concern the booster alone.
import lightgbm
import xgboost
from catboost import CatBoostClassifier

classes = np.unique(y)
code = np.searchsorted(classes, y)
quiet = {"n_jobs": 1, "random_state": 0}

light = lightgbm.LGBMClassifier(n_estimators=100, learning_rate=0.2, verbose=-1, **quiet)
light.fit(
    X.iloc[train],
    code[train],
    eval_X=X.iloc[stop],
    eval_y=code[stop],
    callbacks=[lightgbm.early_stopping(10, verbose=False)],
)
extreme = xgboost.XGBClassifier(
    n_estimators=100, learning_rate=0.2, enable_categorical=True, early_stopping_rounds=10, **quiet
)
extreme.fit(X.iloc[train], code[train], eval_set=[(X.iloc[stop], code[stop])], verbose=False)
cat = CatBoostClassifier(
    iterations=200,
    learning_rate=0.2,
    depth=4,
    cat_features=["pen"],
    early_stopping_rounds=10,
    random_seed=0,
    thread_count=1,
    verbose=False,
    allow_writing_files=False,
)
cat.fit(X.iloc[train], y[train], eval_set=(X.iloc[stop], y[stop]))
print(list(cat.classes_) == list(classes))

margins = {
    "LightGBM": light.predict(X, raw_score=True),
    "XGBoost": extreme.predict(X, output_margin=True),
    "CatBoost": cat.predict(X, prediction_type="RawFormulaVal"),
}
print({name: scores.shape for name, scores in margins.items()})

# %%
# What the default adds to a temperature
# --------------------------------------
# Each is fitted on the rows to calibrate on and measured on new rows. A temperature keeps
# predictions, too; so does the default, by its repair. Isotonic regression, as in scikit-learn,
# does not: the last column counts its changes.
import warnings

from scipy.special import softmax

import cordcal
from cordcal import metrics


def show(name, proba, scores):
    """Print a line of the table."""
    changed = np.count_nonzero(proba.argmax(axis=1) != scores.argmax(axis=1))
    figures = [f(proba, code[new]) for f in (metrics.nll, metrics.brier, metrics.ece)]
    print(
        f"  {name:<22} {figures[0]:.3f}  {figures[1]:.3f}  {100 * figures[2]:5.1f} %  {changed:3}"
    )


models = {}
for library, scores in margins.items():
    print(f"{library:<24}  NLL    Brier    ECE    changed")
    show("uncalibrated", softmax(scores[new], axis=1), scores[new])
    for method, key in [("one temperature", "ts"), ("the default", None)]:
        model = cordcal.PreservingCalibrator(key, class_names=list(classes))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            models[library, method] = model.fit(scores[fit], y[fit])
        show(method, model.predict_proba(scores[new]), scores[new])
        for warning in caught:
            print(f"    warning: {str(warning.message).split(':')[0]}")
    isotonic = cordcal.PreservingCalibrator("isotonic").fit(scores[fit], code[fit])
    show("isotonic, unrepaired", isotonic.direct_proba(scores[new]), scores[new])

# %%
# Reliability of LightGBM before and after:
import matplotlib.pyplot as plt

models["LightGBM", "the default"].plot(margins["LightGBM"][new], y[new])
plt.show()

# %%
# The default has the lowest NLL and Brier score for all three. The ECE of 500 rows is worth a few
# points either way; :func:`cordcal.compare` gives these differences with intervals.
#
# ``predict`` returns the text labels, the same as the booster's:
predicted = models["LightGBM", "the default"].predict(margins["LightGBM"][new])
print((predicted == classes[light.predict(X.iloc[new])]).all())

# %%
# Probabilities instead
# ---------------------
# Where only probabilities are at hand, say so. With two classes, pass both columns of
# ``predict_proba``: the margin of a binary booster is one number, not a row.
proba = light.predict_proba(X)
by_proba = cordcal.PreservingCalibrator(input="probabilities", class_names=list(classes))
by_proba.fit(proba[fit], y[fit])
show("from probabilities", by_proba.predict_proba(proba[new]), proba[new])

# %%
# Which rows to calibrate on
# --------------------------
# Never those that the trees were grown on: there the booster is nearly always right, and the
# calibration learns just that. The rows of early stopping are at hand, but not quite fresh: the
# number of trees was chosen for its loss on them, so the booster looks a little better there than
# it is. One number can hide little. Over 20 splits like this one with 300 rows of either kind
# (``python benchmarks/early_stopping_rows.py``) the NLL on new rows is 0.550 with the rows of early
# stopping, 0.547 with as many fresh ones (difference 0.004 ± 0.007), 0.534 with both and 0.623 with
# the training rows. So calibrate on both where labels are few. Where many combinations of settings
# were tried on the same rows, these have told much more: leave them out.
scores = margins["LightGBM"]
show("uncalibrated", softmax(scores[new], axis=1), scores[new])
for name, rows in [
    ("training rows", train),
    ("early-stopping rows", stop),
    ("as many fresh rows", fit[: len(stop)]),
    ("fresh rows", fit),
    ("both", np.r_[stop, fit]),
]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that no prediction of the training rows is wrong
        model = cordcal.PreservingCalibrator().fit(scores[rows], code[rows])
    show(name, model.predict_proba(scores[new]), scores[new])

# %%
# AutoGluon and TabPFN
# --------------------
# Not run here: AutoGluon brings gigabytes of packages, and TabPFN fetches its weights from a hub.
# AutoGluon fits a temperature of its own by ``calibrate``, and cordcal can take its probabilities
# with or without it. They are a frame with the classes as columns and the index of the rows, and
# cordcal matches both by name.
#
# .. code-block:: python
#
#    predictor = TabularPredictor(label="digit").fit(train_frame)
#    model = cordcal.PreservingCalibrator(input="probabilities")
#    model.fit(predictor.predict_proba(fit_frame), fit_frame["digit"])
#
# TabPFN divides by ``softmax_temperature``, a constant that its ``tuning_config`` can fit. The rows
# to calibrate on must not be in its context, the rows passed to its ``fit``.
#
# .. code-block:: python
#
#    network = TabPFNClassifier().fit(X.iloc[train], y[train])
#    model = cordcal.PreservingCalibrator(input="probabilities", class_names=network.classes_)
#    model.fit(network.predict_proba(X.iloc[fit]), y[fit])
