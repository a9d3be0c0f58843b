"""
Figures for a paper
===================

`cordcal.plots` draws with matplotlib.  Every function takes ``ax=`` and returns the axes, so the
figures take whatever style, size and place you give them; what they draw is measured by
`cordcal.metrics`.  Saved as PDF or SVG they go into a paper as they are.

The digits again: naive Bayes is sure of itself where it should not be.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

import cordcal
from cordcal import plots

X, y = load_digits(return_X_y=True)
X_train, X_rest, y_train, y_rest = train_test_split(X, y, test_size=0.6, random_state=0)
bayes = GaussianNB(var_smoothing=1e-3).fit(X_train, y_train)
scores = bayes.predict_proba(X_rest)

calibration, evaluation = slice(0, 500), slice(500, None)
model = cordcal.PreservingCalibrator("vs", input="probabilities").fit(
    scores[calibration], y_rest[calibration]
)
both = model.predict_both(scores[evaluation])
original, direct, repaired = scores[evaluation], both.direct, both.repaired
labels = y_rest[evaluation]

# %%
# Reliability
# -----------
# Several outputs in one diagram, with 95 % bands and the histogram of the confidences below.

outputs = {"original": original, "direct": direct, "repaired": repaired}
plots.reliability_diagram(outputs, labels)
plt.show()

# %%
# One class against the others, for the class that is asked for:

plots.reliability_diagram({"original": original, "repaired": repaired}, labels, of_class=8)
plt.show()

# %%
# scikit-learn draws calibration curves of two classes only; this display takes any number.

plots.ReliabilityDisplay.from_estimator(bayes, X_rest[evaluation], labels)
plt.show()

# %%
# Predictions
# -----------
# Which predictions the direct output changes, from where to where:

plots.flows(original, direct)
plt.show()

# %%
# What it costs to answer more often: the error among the surest rows, by their share.

plots.risk_coverage(outputs, labels)
plt.show()

# %%
# Comparisons
# -----------
# A comparison draws itself, side by side on axes of yours:

comparison = cordcal.compare(scores, y_rest, ["ts", "vs", "sms", "irova"], input="probabilities")
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
plots.prediction_changes(comparison, ax=left)
plots.metric_versus_tpcr(comparison, ax=right)
plt.show()

# %%
# And the same numbers as a table, with their intervals, for the paper or the notebook:

print(comparison.to_markdown(["nll", "ece"]))

# %%
# ``comparison.to_latex()`` writes the table for LaTeX, ``comparison.to_frame()`` is a data frame.
assert np.isfinite(comparison.to_frame()["nll"]).all()
