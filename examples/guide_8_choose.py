"""
Choose a calibrator
===================

:func:`~cordcal.compare` fits calibrators on one part of the rows, measures the direct and
the repaired probabilities on the other part, and recommends one.
"""

# %%
# The facts before the fit
# ------------------------
# What each calibrator keeps, takes and costs:
import cordcal

for facts in cordcal.calibrators.describe():
    keeps = "order" if facts.keeps_order else "argmax" if facts.keeps_argmax else "-"
    print(f"{facts.key:<9} keeps {keeps:<7} works on {facts.works_on:<18} {facts.cost}")

# %%
# The comparison
# --------------
# Naive Bayes on handwritten digits:
import numpy as np
from sklearn.datasets import load_digits
from sklearn.naive_bayes import MultinomialNB

pixels, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(labels))
classifier = MultinomialNB().fit(pixels[order[:400]] / 16, labels[order[:400]])
scores = classifier.predict_joint_log_proba(pixels[order[400:]] / 16)
truth = labels[order[400:]]

comparison = cordcal.compare(scores, truth, ["ts", "vs", "svs", "irova", "blend"], seed=1)
print(comparison.recommendation)

# %%
# As a table
# ----------
frame = comparison.to_frame()
columns = ["calibrator", "output", "accuracy", "tpcr", "ece", "nll", "brier"]
print(frame[columns].round(4).to_string(index=False))

# %%
# Differences with their intervals
# --------------------------------
# Two outputs measured on the same rows are compared row by row. If the interval contains zero,
# these rows cannot distinguish them; more rows, or ``splits=``, may.
gain = comparison["irova"].gain["nll"]
print(f"irova, direct minus repaired: {gain.estimate:.4f} [{gain.low:.4f}, {gain.high:.4f}]")
other = comparison.difference(("svs", "repaired"), ("ts", "direct"), "nll")
print(f"svs repaired minus ts:        {other.estimate:.4f} [{other.low:.4f}, {other.high:.4f}]")

# %%
# Pictures
# --------
# Each arrow leads from direct probabilities to their repair, which changes no prediction.
import matplotlib.pyplot as plt

from cordcal import plots

figure, axes = plt.subplots(1, 2, figsize=(9, 3.4))
plots.metric_versus_tpcr(comparison, "nll", axes[0])
plots.prediction_changes(comparison, axes[1])
figure.tight_layout()

# %%
# From the command line
# ---------------------
# All calibrators, with a one-file report:
#
# .. code-block:: console
#
#    $ cordcal compare scores.npz --report report.html
#
# Without a comparison, use the default: ``cordcal.PreservingCalibrator()``, a blend of calibrators
# repaired by lift. ``compare`` recommends something else only where that is clearly better.
