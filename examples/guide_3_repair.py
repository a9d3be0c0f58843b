"""
Repair outputs you already have
===============================

You have two tables: the classifier's probabilities and a calibrator's, for the same rows. Where
the calibrator came from does not matter. :class:`~cordcal.CORD` needs no labels, no model and
no logits.
"""

# %%
# Two arrays
# ----------
# Stand-ins for your tables: a classifier's output, and the output of a calibrator that shifts
# mass towards one class.
import numpy as np

import cordcal

rng = np.random.default_rng(0)
original = rng.dirichlet(np.full(5, 0.4), 4000)
direct = original**0.7 * [1.0, 1.0, 1.6, 1.0, 0.8]
direct /= direct.sum(axis=1, keepdims=True)
print(f"{cordcal.metrics.tpcr(original, direct):.2%} of the predictions change")

# %%
# Fit on calibration rows, repair the others
# ------------------------------------------
# :meth:`CORD.fit <cordcal.CORD.fit>` finds one number, the shared scalar, on rows you set aside
# for calibration: those the calibrator itself was fitted on are the right ones.
cord = cordcal.CORD().fit(original[:2000], direct[:2000])
repaired = cord.transform(original[2000:], direct[2000:])
print(cord)
print(f"{cordcal.metrics.tpcr(original[2000:], repaired):.2%} of the predictions change")

# %%
# The repaired output keeps the calibrator's distribution over the *other* classes, and the mean
# mass on the original predictions:
print(cord.construction_)

# %%
# Row by row
# ----------
# What happened to a single row: the mass on the prediction in the direct output (``direct_mass``),
# the smallest that keeps it (``lower``), and what it got.
explanation = cord.explain(original[2000:], direct[2000:])
print(explanation)
row = int(np.flatnonzero(explanation.changed)[0])
print({name: values[row].item() for name, values in explanation.to_dict().items()})
print("direct  ", direct[2000 + row].round(4))
print("repaired", repaired[row].round(4))

# %%
# Predictions that are not the argmax
# -----------------------------------
# If your system decides otherwise than by the argmax of ``original`` (a threshold, a rule, an
# argmax taken of the logits), pass what it decided. Then :meth:`transform
# <cordcal.CORD.transform>` needs it too.
decided = original.argmax(axis=1)
decided[original[:, 3] > 0.3] = 3
careful = cordcal.CORD().fit(original[:2000], direct[:2000], prediction=decided[:2000])
repaired_rows = careful.transform(original[2000:], direct[2000:], prediction=decided[2000:])
print((repaired_rows.argmax(axis=1) == decided[2000:]).all())

# %%
# In place, and other arrays
# --------------------------
# ``out=`` writes into an array you have, which may be ``direct`` itself. PyTorch, JAX and other
# array-API arrays go in and come out as what they are, on their device.
buffer = direct[2000:].copy()
cord.transform(original[2000:], buffer, out=buffer)
print(np.array_equal(buffer, repaired))

# %%
# From the command line
# ---------------------
# The same with files (npz, npy, CSV or Parquet):
#
# .. code-block:: console
#
#    $ cordcal fit --original p.npz --direct q.npz --output cord.safetensors
#    $ cordcal apply cord.safetensors --original p.npz --direct q.npz --output repaired.csv

# %%
# In a picture
# ------------
# Where the calibrator moves predictions: from the rows to the columns. After the repair the
# picture is empty.
import matplotlib.pyplot as plt

from cordcal import plots

plots.flows(original[2000:], direct[2000:])
plt.show()
