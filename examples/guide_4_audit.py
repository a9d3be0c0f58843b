"""
Audit the calibrator you have
=============================

A calibrator is in production. How many predictions does it change, which ones, and is that good
or bad? :func:`~cordcal.audit` answers from its outputs alone; with labels it also shows what the
changes are worth.
"""

# %%
# A calibrator in use
# -------------------
# scikit-learn's isotonic calibration of a naive Bayes classifier stands in for yours.
import warnings

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.naive_bayes import MultinomialNB

pixels, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(labels))
training, calibration, new = np.split(order, [400, 1000])
classifier = MultinomialNB().fit(pixels[training] / 16, labels[training])
calibrated = CalibratedClassifierCV(FrozenEstimator(classifier), method="isotonic")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    calibrated.fit(pixels[calibration] / 16, labels[calibration])

original = classifier.predict_proba(pixels[new] / 16)
direct = calibrated.predict_proba(pixels[new] / 16)

# %%
# The audit
# ---------
import cordcal

result = cordcal.audit(original, direct, labels[new])
print(result.interpret())

# %%
# Numbers instead of words
# ------------------------
# Everything is a field; ``to_dict()`` gives plain values for a log or a dashboard.
changes = result.changes
print(f"{changes.n_changed} of {changes.n} predictions change ({changes.tpcr:.2%})")
print(f"wrong to right {changes.n_gained}, right to wrong {changes.n_lost}", end=", ")
print(f"wrong to wrong {changes.n_neutral}")
for measure in result.measures:
    print(f"{measure.measure:<14} direct {measure.direct:.4f}   repaired {measure.repaired:.4f}")

# %%
# Where it changes predictions
# ----------------------------
for group in sorted(result.by_class, key=lambda group: -group.changes.tpcr)[:3]:
    print(f"predictions of {group.group}: {group.changes.tpcr:.1%} of {group.changes.n} change")
for group in result.by_confidence:
    print(f"confidence {group.group:<14} {group.changes.tpcr:6.1%} of {group.changes.n:3} change")

# %%
# Without labels
# --------------
# Predictions can be compared without labels, on any rows you have; only what the changes are worth
# stays open.
print(cordcal.audit(original, direct).interpret())

# %%
# From the command line
# ---------------------
# With a one-file HTML report that needs no network:
#
# .. code-block:: console
#
#    $ cordcal audit --original p.npz --direct q.npz --labels y.npy --report audit.html

# %%
# In a picture
# ------------
# From which digit to which: rows are the original predictions, columns the calibrator's.
import matplotlib.pyplot as plt

from cordcal import plots

plots.flows(original, direct)
plt.show()
