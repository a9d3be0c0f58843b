"""The smooth calibration error of many resamples at once, and the record of the measure.

The kernel's width stays that of the sample.  Searching it anew in every resample takes a dozen
transforms on fine grids instead of one: half a minute for the reports of a comparison.
"""

from __future__ import annotations

import numpy as np

from cordcal._door.blocks import row_blocks
from cordcal._door.types import Matrix, Vector
from cordcal.metrics._measure import Measure, Resampler, sums_by_place
from cordcal.metrics._rows import LabelledRows
from cordcal.metrics._smooth import (
    FIRST_NODES,
    SmoothECEStream,
    grown,
    mirrored_spectrum,
    smooth_ece,
    smooth_gap,
    smoothed,
)


def _resampler(rows: LabelledRows) -> Resampler:
    width = smooth_gap(rows)[1]
    nodes = grown(FIRST_NODES, width)
    confidence = np.minimum(rows.confidence, 1.0)
    residual = confidence - rows.correct
    # Each residual is shared between the two nodes next to its confidence.
    scaled = confidence * (nodes - 1)
    left = np.clip(scaled.astype(np.intp), 0, nodes - 2)
    right = residual * (scaled - left)
    sums = sums_by_place(np.stack([left, left + 1]), np.stack([residual - right, right]), nodes)

    def values(weight: Matrix, total: Vector) -> Vector:
        found = np.empty(len(total))
        for some in row_blocks(len(total), nodes):
            spectra = mirrored_spectrum(np.ascontiguousarray((sums @ weight[:, some]).T))
            found[some] = np.abs(smoothed(spectra, nodes, width)).sum(axis=1)
        return found / (nodes * total)

    return values


SMOOTH_ECE = Measure(
    "smooth_ece",
    "smooth ECE",
    "smECE",
    "The same with a smoothing kernel in place of bins.",
    smooth_ece,
    SmoothECEStream,
    of_rows=lambda rows: smooth_gap(rows)[0],
    resampler=_resampler,
    unit="%",
    digits=2,
)
