"""
Two scanners: a column that the classifier never saw
====================================================

A classifier that you cannot change reads digits.  Half of the images come from a worn scanner, and
the classifier does not know which.  You do: it is a column of your table.

This guide gives that column to the calibrator.  Every prediction stays; an image of the worn
scanner is trusted less.
"""

# %%
# A classifier, and images of two scanners
# ----------------------------------------
# The images are those that scikit-learn ships.  The classifier was trained on clean ones; the worn
# scanner loses the right edge, adds noise and doubles the contrast, so that the classifier is as
# sure as ever.
import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import cordcal

X, y = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
order = rng.permutation(len(y))
train, rest = order[:500], order[500:]
classifier = LogisticRegression(max_iter=2000).fit(X[train], y[train])

images, labels = X[rest].reshape(-1, 8, 8).copy(), y[rest]
scanner = rng.choice(["new", "worn"], size=len(rest))
worn = scanner == "worn"
images[worn, :, 5:] = 0.0
images[worn] = 2.0 * (images[worn] + rng.normal(scale=3.0, size=images[worn].shape))
scores = classifier.decision_function(images.reshape(len(rest), -1))
table = pd.DataFrame({"scanner": scanner, "ink": images.sum(axis=(1, 2))})
right = scores.argmax(axis=1) == labels
print(table.assign(right=right).groupby("scanner")["right"].mean().round(3).to_dict())

# %%
# What the column brings
# ----------------------
comparison = cordcal.compare(scores, labels, ["blend"], context=table)
print(comparison.recommendation.with_context)

# %%
# The same by scikit-learn
# ------------------------
# `PreservingCalibratedClassifierCV` takes ``context`` by metadata routing, so that it passes
# through pipelines and cross-validation.  Rows are matched by position.
import warnings

import sklearn
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from cordcal.sklearn import PreservingCalibratedClassifierCV

warnings.filterwarnings("ignore", message=".*are kept against the evidence")
flat, half = images.reshape(len(rest), -1), len(rest) // 2
with sklearn.config_context(enable_metadata_routing=True):
    own = PreservingCalibratedClassifierCV(FrozenEstimator(classifier))
    own.set_fit_request(context=True).set_predict_proba_request(context=True)
    model = make_pipeline(FunctionTransformer(), own)
    model.fit(flat[:half], labels[:half], context=table[:half])
    probabilities = model.predict_proba(flat[half:], context=table[half:])
assert (probabilities.argmax(axis=1) == scores[half:].argmax(axis=1)).all()

# %%
# What it learnt, and what it is worth on new images:
calibrator = own.to_calibrator()
for effect in calibrator.context_effects():
    print(effect)

plain = cordcal.PreservingCalibrator().fit(scores[:half], labels[:half])
for name, confidence in (
    ("scores alone", plain.predict_proba(scores[half:]).max(axis=1)),
    ("with context", probabilities.max(axis=1)),
):
    for kind in ("new", "worn"):
        rows = scanner[half:] == kind
        share, truth = confidence[rows].mean(), right[half:][rows].mean()
        print(f"{name}, {kind:4} scanner: confidence {share:.1%}, right {truth:.1%}")

# %%
# Reliability of the images of the worn scanner:
import matplotlib.pyplot as plt

worn_rows = scanner[half:] == "worn"
cordcal.plots.reliability_diagram(
    {
        "scores alone": plain.predict_proba(scores[half:])[worn_rows],
        "with context": probabilities[worn_rows],
    },
    labels[half:][worn_rows],
)
plt.show()

# %%
# Which columns are fit for it
# ----------------------------
# - Columns that will be known when the classifier is used.  A column that determines the label, or
#   whether the prediction is right, is doubted with the share of rows.
# - Categories that come again.  A column with nearly as many values as rows is refused, a
#   constant one has no effect.
# - Numbers enter as one slope, within the range seen.  Write codes such as a shop's number as text.
#
# With files, the columns are named; a model file holds their names and categories:
#
# .. code-block:: console
#
#    $ cordcal fit scores.parquet --context-columns scanner,ink --output model.safetensors
#    $ cordcal apply model.safetensors new.parquet --output repaired.parquet
