"""The smooth calibration error of many resamples at once, and the record of the measure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cordcal._door.types import Vector
from cordcal.metrics._measure import Matrix, Measure, Resampler, sums_by_place
from cordcal.metrics._rows import LabelledRows
from cordcal.metrics._smooth import (
    FIRST_NODES,
    SMALLEST_WIDTH,
    STEPS,
    SmoothECEStream,
    Spectrum,
    grown,
    mirrored_spectrum,
    smooth_ece,
    smooth_gap,
    smoothed,
)

Widths = npt.NDArray[np.float64]
Nodes = npt.NDArray[np.intp]


class _Spreading:
    """How the residuals of a report's rows are shared between the nodes of the grids."""

    def __init__(self, rows: LabelledRows) -> None:
        self.confidence = np.minimum(rows.confidence, 1.0)
        self.residual = self.confidence - rows.correct
        self._grids: dict[int, object] = {}

    def spectra(self, weight: Matrix, nodes: int) -> Spectrum:
        """Return the spectra of the weighted residuals on one grid, a line a resample."""
        if nodes not in self._grids:
            scaled = self.confidence * (nodes - 1)
            left = np.clip(scaled.astype(np.intp), 0, nodes - 2)
            right = self.residual * (scaled - left)
            self._grids[nodes] = sums_by_place(
                np.stack([left, left + 1]), np.stack([self.residual - right, right]), nodes
            )
        sums: Matrix = self._grids[nodes] @ weight  # type: ignore[operator]
        return mirrored_spectrum(np.ascontiguousarray(sums.T))


class _Search:
    """The bisections of `_smooth.fixed_point`, each resample on its own way."""

    def __init__(self, spreading: _Spreading, weight: Matrix, total: Vector) -> None:
        self.spreading, self.weight, self.total = spreading, weight, total
        self.nodes: Nodes = np.full(len(total), FIRST_NODES)
        self._spectra: dict[int, Spectrum] = {}

    def errors_at(self, widths: Widths, among: npt.NDArray[np.bool_]) -> Vector:
        """Return each chosen resample's error at its own width; a grid never shrinks."""
        errors = np.zeros(len(widths))
        for width in np.unique(widths[among]):
            here = among & (widths == width)
            self.nodes[here] = [grown(nodes, width) for nodes in self.nodes[here].tolist()]
            for nodes in np.unique(self.nodes[here]).tolist():
                on = np.flatnonzero(here & (self.nodes == nodes))
                if nodes not in self._spectra:
                    self._spectra[nodes] = self.spreading.spectra(self.weight, nodes)
                traces = smoothed(self._spectra[nodes][on], nodes, float(width))
                errors[on] = np.abs(traces).sum(axis=1) / (nodes * self.total[on])
        return errors

    def errors(self) -> Vector:
        """Return the error at the fixed point of each resample."""
        low, high = np.zeros(len(self.total)), np.ones(len(self.total))
        every = np.ones(len(self.total), dtype=bool)
        searching = self.errors_at(high, every) <= high
        for _ in range(STEPS):
            middle = (low + high) / 2.0
            tried = searching & (middle >= SMALLEST_WIDTH)
            below = (middle < self.errors_at(middle, tried)) | ~tried
            low = np.where(searching & below, middle, low)
            high = np.where(searching & ~below, middle, high)
        return self.errors_at(high, every)


def _resampler(rows: LabelledRows) -> Resampler:
    spreading = _Spreading(rows)
    return lambda weight, total: _Search(spreading, weight, total).errors()


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
