"""
Files larger than memory, and Dask
==================================

The repair needs only a few running sums, which are exact. So rows may come at once, in batches,
from a file or from a cluster: the shared scalar is the same double.
"""

# %%
# Rows in batches
# ---------------
# :meth:`CORD.construct <cordcal.CORD.construct>` takes any iterable of pairs. It keeps three
# numbers per row, in a temporary file if there are many.
import numpy as np

import cordcal

rng = np.random.default_rng(0)
original = rng.dirichlet(np.full(20, 0.5), 30_000)
direct = original**0.7 * np.linspace(1, 2, 20)
direct /= direct.sum(axis=1, keepdims=True)


def batches():
    """Yield pairs of outputs, as a loader would."""
    for start in range(0, len(original), 4096):
        yield original[start : start + 4096], direct[start : start + 4096]


cord = cordcal.CORD().construct(batches())
print(cord.eta_ == cordcal.CORD().fit(original, direct).eta_)

# %%
# Measures in batches
# -------------------
# Every measure has a stream with ``update``, ``merge`` and ``result``. Two workers' streams merge
# to what one would have found.
from cordcal.metrics import PredictionChangesStream

first, second = PredictionChangesStream(), PredictionChangesStream()
for number, (p, q) in enumerate(batches()):
    (first if number % 2 else second).update(p, q)
print(first.merge(second).result().tpcr == cordcal.metrics.tpcr(original, direct))

# %%
# Files
# -----
# :func:`cordcal.files.open_scores` reads npy and Parquet files piece by piece.
import tempfile
from pathlib import Path

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "original.npy"
    np.save(path, original)
    scores = cordcal.files.open_scores(path)
    print(scores.rows, scores.classes, scores.kind, len(list(scores)), "batches")
    print(sum(len(batch) for batch in scores))

# %%
# The command does the same; its memory does not grow with the file. ``--resume`` makes the parts
# of a folder that are missing or changed, and ``--on-error`` decides what to do with a bad row.
#
# .. code-block:: console
#
#    $ cordcal fit --original p.npy --direct q.npy --output cord.safetensors
#    $ cordcal apply cord.safetensors --original p.npy --direct q.npy --output repaired.parquet

# %%
# Dask
# ----
# Pass dask arrays or data frames where you would pass NumPy arrays
# (``pip install 'dask[array]'``). Blocks of rows stay where they are; a fit takes at most ten
# rounds over the workers, and ``transform`` is lazy. It runs on whatever scheduler is active:
# threads here, a cluster elsewhere.
import dask
import dask.array as da

dask.config.set(scheduler="threads", num_workers=2)
p, q = da.from_array(original, chunks=(5000, -1)), da.from_array(direct, chunks=(5000, -1))
spread = cordcal.CORD().fit(p, q)
print(spread.eta_ == cord.eta_, f"in {spread.construction_.passes} rounds")
repaired = spread.transform(p, q)
print(repaired)
print(np.array_equal(repaired.compute(), cord.transform(original, direct)))

# %%
# Images
# ------
# Segmentation has one row a pixel. Name the axis of the classes; nothing is copied.
maps = rng.dirichlet(np.ones(3), (2, 8, 8)).transpose(0, 3, 1, 2)
flat = maps**0.5 / (maps**0.5).sum(axis=1, keepdims=True)
pixels = cordcal.CORD().fit(maps, flat, axis=1)
print(pixels.transform(maps, flat, axis=1).shape)

# %%
# :doc:`/scale` has the details: what is kept in memory, resuming, bad rows. :doc:`/spark` does the
# same on Spark.
#
# .. toctree::
#    :hidden:
#
#    /scale
#    /spark

# %%
# In a picture
# ------------
# A stream of batches draws a reliability diagram, too: its bins are running sums.
import matplotlib.pyplot as plt

from cordcal import plots

labels = np.array([rng.choice(20, p=row) for row in original])
bins = cordcal.metrics.ReliabilityStream()
for start in range(0, len(original), 4096):
    block = slice(start, start + 4096)
    bins.update(cord.transform(original[block], direct[block]), labels[block])
plots.ReliabilityDisplay(bins.result(), name="repaired").plot()
plt.show()
