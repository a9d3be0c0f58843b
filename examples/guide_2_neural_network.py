"""
Calibrate a neural network's logits
===================================

You have a trained network, its logits on a calibration set and the labels. You want honest
probabilities for new inputs, and the network's predictions must stay what they are.

:class:`~cordcal.PreservingCalibrator` fits a calibrator and the repair on the same rows. Any of
cordcal's calibrators can be named by its key; here it is ``"svs"``, structured vector scaling.
"""

# %%
# A network and its logits
# ------------------------
# A small network on noisy handwritten digits stands in for yours; all that cordcal sees are
# the arrays ``logits`` and ``labels``.
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

pixels, labels = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
pixels = pixels / 16 + 0.4 * rng.normal(size=pixels.shape)
network = MLPClassifier(64, learning_rate_init=0.01, tol=1e-3, random_state=0)
network.fit(pixels[:500], labels[:500])

hidden = np.maximum(pixels[500:] @ network.coefs_[0] + network.intercepts_[0], 0.0)
logits = (hidden @ network.coefs_[1] + network.intercepts_[1]).astype(np.float32)
labels = labels[500:]
calibration, new = slice(0, 650), slice(650, None)
print(logits.shape, logits.dtype)

# %%
# Fit and predict
# ---------------
import cordcal

model = cordcal.PreservingCalibrator("svs").fit(logits[calibration], labels[calibration])
repaired = model.predict_proba(logits[new])
print((repaired.argmax(axis=1) == logits[new].argmax(axis=1)).all())

# %%
# The prediction is read from the logits as you pass them, in their own dtype. It is never taken
# from a softmax, which can tie or flip two close logits. What fitting did is on record:
print(model.construction_)

# %%
# Both outputs
# ------------
# The calibrator's own output is still there. It describes *its own* argmax; the repaired one
# describes the network's. Use whichever prediction your system acts on.
from scipy.special import softmax

from cordcal import metrics

outputs = model.predict_both(logits[new])
original = softmax(logits[new], axis=1)
for name, proba in [
    ("original", original),
    ("direct", outputs.direct),
    ("repaired", outputs.repaired),
]:
    print(
        f"{name:<9} TPCR {metrics.tpcr(logits[new], proba):6.2%}"
        f"   accuracy {metrics.accuracy(proba, labels[new]):.4f}"
        f"   ECE {metrics.ece(proba, labels[new]):.4f}"
        f"   NLL {metrics.nll(proba, labels[new]):.4f}"
    )

# %%
# Store it narrow
# ---------------
# Services often store float32 or float16. Say so, and the promise holds in that dtype: the
# prediction is strictly the largest stored number. Casting afterwards would not keep it
# (:doc:`/how-it-works/numbers` explains why).
half = model.predict_proba(logits[new], dtype=np.float16)
print(half.dtype, (half.argmax(axis=1) == logits[new].argmax(axis=1)).all())

# %%
# Keep the fitted model
# ---------------------
# One safetensors file; nothing in it is executed on loading.
import tempfile
from pathlib import Path

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.safetensors"
    cordcal.save(model, path)
    again = cordcal.load(path)
    print(path.stat().st_size, "bytes;", np.array_equal(again.predict_proba(logits[new]), repaired))

# %%
# How the confidences moved
# -------------------------
import matplotlib.pyplot as plt

from cordcal.plots import COLOURS

figure, axes = plt.subplots(figsize=(6, 3))
edges = np.linspace(0, 1, 21)
for name, proba in [
    ("original", original),
    ("direct", outputs.direct),
    ("repaired", outputs.repaired),
]:
    style = "--" if name == "original" else "-"
    counts = np.histogram(proba.max(axis=1), edges)[0]
    axes.stairs(counts, edges, label=name, color=COLOURS[name], linestyle=style)
axes.set(xlabel="confidence", ylabel="rows")
axes.legend(frameon=False, loc="upper left")
figure.tight_layout()
