"""
Keep a ranking
==============

Retrieval lists, "did you mean" and triage queues use more than the first class. Probabilities that
keep the first class can still reorder the rest. ``preserve=k`` keeps the order of the first k
classes, ``preserve="ranking"`` all of them. :doc:`/how-it-works/ranking` has the derivation, and
what it costs.
"""

# %%
# Scores and a calibrator that reorders
# -------------------------------------
import numpy as np

import cordcal
from cordcal import metrics

rng = np.random.default_rng(0)
labels = rng.integers(20, size=6000)
logits = 2.0 * np.eye(20)[labels] + rng.normal(size=(6000, 20))
calibration, new = slice(0, 3000), slice(3000, None)

# %%
# How far down the list the outputs differ
# ----------------------------------------
# Isotonic regression has many exact ties, so it reorders nearly every list.
for preserve in (1, 2, 5, "ranking"):
    model = cordcal.PreservingCalibrator("irova", preserve=preserve)
    model.fit(logits[calibration], labels[calibration])
    proba = model.predict_proba(logits[new])
    changed = {k: metrics.topk_changes(logits[new], proba, k).order_changed for k in (1, 2, 5, 19)}
    row = "  ".join(f"top {k}: {share:7.2%}" for k, share in changed.items())
    print(f"preserve={preserve!s:<8} {row}   NLL {metrics.nll(proba, labels[new]):.4f}")

# %%
# The direct output, for comparison:
direct = model.direct_proba(logits[new])
changed = {k: metrics.topk_changes(logits[new], direct, k).order_changed for k in (1, 2, 5, 19)}
row = "  ".join(f"top {k}: {share:7.2%}" for k, share in changed.items())
print(f"direct            {row}   NLL {metrics.nll(direct, labels[new]):.4f}")

# %%
# One scalar a level
# ------------------
# The state is k numbers. The effective number of rows shrinks with the mass that is left to a
# level: deep levels rest on few rows.
five = cordcal.PreservingCalibrator("irova", preserve=5).fit(
    logits[calibration], labels[calibration]
)
print(five.construction_)

# %%
# In half precision
# -----------------
# float64 and float32 hold a strict order of all ranks. float16 and bfloat16 have too few numbers
# for that: there the first class is strictly the largest, nothing is inverted, and ties below it
# are possible. Count them where it matters:
half = five.predict_proba(logits[new], dtype=np.float16)
top = np.take_along_axis(half, np.argsort(-logits[new], axis=1)[:, :6], axis=1)
steps = -np.diff(top.astype(np.float64), axis=1)
print(
    "inverted:", int((steps < 0).sum()), "  tied below the first:", int((steps[:, 1:] == 0).sum())
)
print("first strictly largest:", bool((steps[:, 0] > 0).all()))

# %%
# In a picture
# ------------
# The rows whose first k classes change their order if the calibrator is used directly.
import matplotlib.pyplot as plt

figure, ax = plt.subplots(layout="constrained")
ax.bar([f"top {k}" for k in changed], [100 * share for share in changed.values()])
ax.set_ylabel("rows with another order (%)")
plt.show()
