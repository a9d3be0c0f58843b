"""
Watch a model in production
===========================

Every night brings new rows. Does the confidence still hold, and do the inputs look as before?
:class:`cordcal.Monitor` answers after every batch. The probability that it *ever* raises a false
alarm is at most 5 %, however often you look.
"""

# %%
# A model and its baseline
# ------------------------
# A classifier is calibrated on some rows; other rows show what its outputs look like today.
import numpy as np
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

import cordcal

features, labels = make_classification(
    n_samples=24_000, n_features=12, n_informative=6, n_classes=4, class_sep=0.9, random_state=0
)
training, calibration, baseline, nights = np.split(np.arange(24_000), [2_000, 10_000, 14_000])
classifier = LogisticRegression(max_iter=1000).fit(features[training], labels[training])
model = cordcal.PreservingCalibrator().fit(
    classifier.decision_function(features[calibration]), labels[calibration]
)
monitor = cordcal.Monitor(model.predict_proba(classifier.decision_function(features[baseline])))

# %%
# Calm nights
# -----------
# Add each night's rows with their labels. All is well:
for number, rows in enumerate(np.split(nights[:6_000], 6), start=1):
    proba = model.predict_proba(classifier.decision_function(features[rows]))
    status = monitor.add(proba, labels[rows], name=f"night {number}")
print(status)

# %%
# A sensor fails
# --------------
# From now on the most important feature is zero.  The classifier does not notice, the monitor
# does.
broken = features.copy()
broken[:, np.abs(classifier.coef_).max(axis=0).argmax()] = 0.0
for number, rows in enumerate(np.split(nights[6_000:], 4), start=7):
    proba = model.predict_proba(classifier.decision_function(broken[rows]))
    status = monitor.add(proba, labels[rows], name=f"night {number}")
    if status.verdict == "alarm":
        break
print(status)

# %%
# Labels that come later
# ----------------------
# Rows without labels wait for them if they have ids. The inputs are tested at once, the
# confidence when the labels arrive; a row counts once in each test.
monitor.acknowledge()
rows = nights[9_000:9_500]
proba = model.predict_proba(classifier.decision_function(features[rows]))
print(monitor.add(proba, ids=rows, name="no labels yet").waiting)
print(monitor.add_labels(rows[:200], labels[rows[:200]]).waiting)

# %%
# The state goes into one file, for the next night or for the command ``cordcal monitor``:
import tempfile
from pathlib import Path

path = Path(tempfile.mkdtemp()) / "state.monitor"
monitor.save(path)
print(cordcal.Monitor.load(path).status.verdict)

# %%
# In a picture
# ------------
# The confidence of each night, and the accuracy that its labels show: a gap opens on night 7.
import matplotlib.pyplot as plt

shown = [period for period in monitor.periods if period.name.startswith("night")]
accuracy = [100 * sum(night.band_correct) / night.labelled for night in shown]
figure, ax = plt.subplots(layout="constrained")
names = [night.name for night in shown]
ax.plot(names, [100 * night.confidence for night in shown], "o-", label="confidence")
ax.plot(names, accuracy, "s--", label="accuracy")
ax.tick_params("x", rotation=45)
ax.set_ylabel("%")
ax.legend()
plt.show()
