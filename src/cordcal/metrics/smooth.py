"""The smooth calibration error (smECE) of the top label: `smooth_ece`.

Resamples use the kernel width of the sample.  Searching a width per resample takes a dozen
transforms on fine grids instead of one: half a minute for a comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.arrays import row_blocks
from cordcal._numeric.types import ArrayLike, Classes, Flags, Matrix, Vector
from cordcal._validation.names import Name
from cordcal.metrics.base import (
    LabelledRows,
    Metric,
    Resampler,
    RowCollector,
    RowStream,
    WeightedSums,
    fill_docstring,
    require_rows,
    update_stream,
    weighted_sum_matrix,
)

Spectrum = npt.NDArray[np.complex128]
Normalization = Literal["count", "density", "corrected"]

# The fixed point is bisected on [0, 1] in ten steps, so widths are multiples of 2^-10.  Widths
# below 0.001 are never tried.  Both are part of the published definition.
STEPS = 10
SMALLEST_WIDTH = 0.001
# Nodes of the first grid of "count".
FIRST_NODES = 200
# Added to the smoothed density, a sum over rows, to keep it away from zero.
_DENSITY_FLOOR = 1e-4
# Cells of the stream's grid; its nodes include 0 and 1, and its two vectors take 1 MB.
_STREAM_CELLS = 2**16


class Positions:
    """Confidences, and how each is shared between the nearest nodes of grids on [0, 1]."""

    def __init__(self, confidence: Vector) -> None:
        self.confidence = np.minimum(confidence, 1.0)
        self._grids: dict[int, tuple[Classes, Vector]] = {}

    def spread(self, values: Vector, nodes: int) -> Vector:
        """Share each value linearly between the two grid nodes next to its confidence."""
        if nodes not in self._grids:
            self._grids[nodes] = _shares(self.confidence, nodes)
        left, share = self._grids[nodes]
        right = values * share
        total = np.bincount(left, values - right, minlength=nodes)
        total[1:] += np.bincount(left, right, minlength=nodes - 1)[: nodes - 1]
        return np.asarray(total, dtype=np.float64)


class Residuals:
    """Residuals and masses at positions, and smECE at any kernel width."""

    def __init__(
        self, positions: Positions, residual: Vector, mass: Vector, normalization: Normalization
    ) -> None:
        self.positions = positions
        self.residual = residual
        self.mass = mass
        self.total = float(mass.sum())
        self.normalization = normalization
        self._nodes = FIRST_NODES
        self._spectra: dict[int, tuple[Spectrum, ...]] = {}

    def error_at(self, width: float) -> float:
        """Return smECE at one kernel width."""
        if self.normalization == "count":
            return self._by_count(width)
        return self._by_density(width)

    def _by_count(self, width: float) -> float:
        self._nodes = grow_grid(self._nodes, width)
        (residual,) = self._smoothed(self._nodes, width)
        return float(np.abs(residual).sum() / (self._nodes * self.total))

    def _by_density(self, width: float) -> float:
        # relplot 1.0.2 and 1.0.3: smoothed residual and density, interpolated at even points.
        nodes = _density_cells(width) + 1
        points = np.linspace(0.0, 1.0, max(round(10.0 / width), 200))
        grid = np.linspace(0.0, 1.0, nodes)
        residual, density = (
            np.interp(points, grid, values) for values in self._smoothed(nodes, width)
        )
        return float(np.abs(residual).sum() / (density + _DENSITY_FLOOR).sum())

    def _smoothed(self, nodes: int, width: float) -> list[Vector]:
        """Convolve with a Gaussian cut off at ±1/2; values are mirrored at both end nodes."""
        if nodes not in self._spectra:
            by_count = self.normalization == "count"
            vectors = (self.residual,) if by_count else (self.residual, self.mass)
            self._spectra[nodes] = tuple(self._spectrum(values, nodes) for values in vectors)
        return [smooth_spectrum(spectrum, nodes, width) for spectrum in self._spectra[nodes]]

    def _spectrum(self, values: Vector, nodes: int) -> Spectrum:
        spread = self.positions.spread(values, nodes)
        if self.normalization == "corrected":
            # Mirroring duplicates all nodes except the end nodes.
            spread[[0, -1]] *= 2.0
        return mirrored_spectrum(spread)

    def grid_step(self, width: float) -> float:
        """Return the spacing of the grid that `error_at` uses for this width."""
        return 1.0 / (self._nodes - 1 if self.normalization == "count" else _density_cells(width))


def grow_grid(nodes: int, width: float) -> int:
    """Return the number of nodes of "count" at a width, if the last grid had ``nodes``.

    In relplot 1.0 and 1.0.1 the grid grows by factors of four and never shrinks in a search.
    """
    while round(20.0 / width) > nodes:
        nodes *= 4
    return nodes


def _density_cells(width: float) -> int:
    return max(2000, round(20.0 / width)) // 2


def mirrored_spectrum(values: Vector) -> Spectrum:
    """Return the spectrum of values on a grid (the last axis), mirrored at both end nodes.

    The end nodes are not repeated.  Each mirrored part is half a kernel long.
    """
    nodes = values.shape[-1]
    arm = nodes // 2
    before, after = values[..., arm:0:-1], values[..., -2 : -arm - 2 : -1]
    return np.fft.rfft(np.concatenate([before, values, after], axis=-1), _transform_length(nodes))


def smooth_spectrum(spectrum: Spectrum, nodes: int, width: float) -> Vector:
    """Return the values of a `mirrored_spectrum`, convolved with the kernel of a width."""
    arm = nodes // 2
    whole = np.fft.irfft(spectrum * _kernel_spectrum(nodes, width), _transform_length(nodes))
    return whole[..., arm : arm + nodes]


@lru_cache
def _transform_length(nodes: int) -> int:
    """Return a fast length for transforms of mirrored values, with factors 2, 3 and 5 only."""
    # The period 2 (nodes − 1) is often twice a prime, whose transform takes ten times longer.
    length = nodes + 2 * (nodes // 2)
    while 30**64 % length:  # every such number in reach divides so high a power
        length += 1
    return length


# A bisection visits ten widths, and bisections of similar rows visit similar widths.
@lru_cache(maxsize=256)
def _kernel_spectrum(nodes: int, width: float) -> Spectrum:
    kernel = np.zeros(_transform_length(nodes))
    # With an even number of nodes the kernel is half a cell off-centre, as published.
    kernel[np.arange(nodes) - nodes // 2] = gaussian(np.linspace(0.0, 1.0, nodes) - 0.5, width)
    return np.fft.rfft(kernel)


def gaussian(x: Any, width: float) -> Any:
    """Return the normal density."""
    return np.exp(-(x * x) / (2.0 * width * width)) / (np.sqrt(2.0 * np.pi) * width)


def fixed_point(error_at: Callable[[float], float]) -> tuple[float, float, list[float]]:
    """Bisect for the width that equals its error; return width, error and the widths tried."""
    low, high = 0.0, 1.0
    tried = [high]
    if error_at(high) > high:
        return high, error_at(high), tried
    for _ in range(STEPS):
        middle = (low + high) / 2.0
        if middle < SMALLEST_WIDTH:
            low = middle
            continue
        tried.append(middle)
        if middle < error_at(middle):
            low = middle
        else:
            high = middle
    # Computed again, since the grid of "count" may be finer by now.
    return high, error_at(high), tried


def smooth_gap(rows: LabelledRows, normalization: Normalization = "count") -> tuple[float, float]:
    """Return smECE and its kernel width for reduced rows."""
    weight = rows.weights
    if rows.weight is not None:
        # The density floor assumes a mean weight of one.
        weight = weight * (np.count_nonzero(weight) / weight.sum())
    positions = Positions(rows.confidence)
    residual = weight * (positions.confidence - rows.correct)
    width, error, _ = fixed_point(Residuals(positions, residual, weight, normalization).error_at)
    return error, width


def check_normalization(normalization: str) -> Normalization:
    """Return the normalization; raise an error if it is unknown."""
    if normalization not in get_args(Normalization):
        raise InputError(
            "normalization",
            f"is {normalization!r}",
            f"use one of {', '.join(get_args(Normalization))}",
        )
    return normalization  # type: ignore[return-value]


class SmoothECEStream(WeightedSums, RowStream):
    """`smooth_ece` of blocks of rows in constant memory, with a bound on its error.

    Residuals are summed on a grid of 65,537 confidences, each shared between its two nearest
    nodes.  `error_bound` bounds the difference from `smooth_ece` of the same rows; it is
    usually of the order of 1e-5.

    Parameters
    ----------
    normalization : {"count", "density", "corrected"}
        As for `smooth_ece`.
    """

    _sums = (("_residual", 1), ("_mass", 1))
    _count_name, _setting = "_rows", "normalization"

    def __init__(self, normalization: Normalization = "count") -> None:
        self.normalization = check_normalization(normalization)
        self._residual, self._mass = np.zeros(_STREAM_CELLS + 1), np.zeros(_STREAM_CELLS + 1)
        self._rows = 0

    def add(self, rows: LabelledRows) -> None:
        """Add reduced rows."""
        positions, weight = Positions(rows.confidence), self._in_unit(rows.weight, len(rows))
        residual = weight * (positions.confidence - rows.correct)
        self._residual += positions.spread(residual, _STREAM_CELLS + 1)
        self._mass += positions.spread(weight, _STREAM_CELLS + 1)
        self._rows += int(np.count_nonzero(weight))

    def _residuals(self) -> Residuals:
        require_rows(self._rows)
        scale = self._rows / self._mass.sum()
        nodes = Positions(np.arange(_STREAM_CELLS + 1) / _STREAM_CELLS)
        return Residuals(nodes, self._residual * scale, self._mass * scale, self.normalization)

    def result(self) -> float:
        """Return smECE of all rows added so far, up to `error_bound`."""
        return fixed_point(self._residuals().error_at)[1]

    def error_bound(self) -> float:
        """Return the largest possible difference from `smooth_ece` of the same rows."""
        points = self._residuals()
        width, error, tried = fixed_point(points.error_at)

        def bound(w: float) -> float:
            return self._sharing_bound(w, points.grid_step(w))

        # If a width's error is too close to the width to tell which is larger, the search may
        # end one step away.
        if all(abs(points.error_at(w) - w) > bound(w) for w in tried):
            return bound(width)
        step = 2.0**-STEPS
        near = [w for w in (width - step, width + step) if SMALLEST_WIDTH <= w <= 1.0]
        return max(abs(points.error_at(w) - error) + bound(w) for w in near)

    def _sharing_bound(self, width: float, step: float) -> float:
        """Bound the change of smECE by sharing residuals between the stream's nodes.

        Sharing matters only where a node of the coarse grid lies inside a cell of the stream.
        The mass there moves by at most cell / (2 step), half to either side, and its smoothed
        value by the second difference of the kernel.  Summed over the grid that is at most
        step² ∫|k″| = 0.97 step² / width², plus four times the kernel's jump at its cut-off.
        Next to the boundary, half of the mass that moves to the end node is lost.
        """
        cell = 1.0 / _STREAM_CELLS
        # 0.3 instead of 0.97 / 4: second differences are summed over grid points.
        moved = cell * (0.3 * step / (width * width) + float(gaussian(0.5, width)))
        if self.normalization != "corrected":
            left = int(step * _STREAM_CELLS)
            around = [left, left + 1, -left - 2, -left - 1]
            moved += cell / (8.0 * step) * float(self._mass[around].sum() / self._mass.sum())
        # A density enters twice, in the numerator and the denominator, and may be half as large
        # at the boundary.
        return moved if self.normalization == "count" else 4.0 * moved


@fill_docstring
def smooth_ece(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    normalization: Normalization = "count",
    sample_weight: ArrayLike | None = None,
    axis: int | None = None,
    ignore_index: int | None = None,
    class_names: Sequence[Name] | None = None,
) -> float:
    """Return the smooth calibration error (smECE) of the top label.

    Residuals, confidence minus correctness, are smoothed over the confidence by a Gaussian
    kernel that is reflected at 0 and 1; smECE is their mean absolute size.  The kernel's width
    is the fixed point at which it equals smECE, to 1/1024.

    Parameters
    ----------
    {probabilities, labels}
    normalization : {"count", "density", "corrected"}
        ``"count"`` divides the smoothed residuals by the number of rows, as relplot 1.0 and
        1.0.1 and the paper do.  ``"density"`` divides by the smoothed density, as relplot
        1.0.2 and 1.0.3 do.  Both mirror the grid without repeating its end nodes, so rows of
        confidence 1 count half: ``"count"`` is then too small, and ``"density"`` too large,
        by up to a factor of two if most confidences are 1.  ``"corrected"`` is
        ``"density"`` with full end nodes.
    {sample_weight, axis, ignore_index, class_names}

    Returns
    -------
    smooth_ece : float
        Between 0 and 1.

    Examples
    --------
    >>> p = [[0.7, 0.3], [0.6, 0.4], [0.9, 0.1], [0.8, 0.2]]
    >>> round(smooth_ece(p, [0, 1, 0, 1]), 6)
    0.241322
    >>> round(smooth_ece(p, [0, 1, 0, 1], normalization="corrected"), 6)
    0.249846
    """
    kind = check_normalization(normalization)
    stream = update_stream(
        RowCollector(), [probabilities], labels, sample_weight, axis, ignore_index, class_names
    )
    return smooth_gap(stream.result(), kind)[0]


def _resampler(rows: LabelledRows) -> Resampler:
    width = smooth_gap(rows)[1]
    nodes = grow_grid(FIRST_NODES, width)
    confidence = np.minimum(rows.confidence, 1.0)
    residual = confidence - rows.correct
    # Each residual is shared between the two nodes next to its confidence.
    left, share = _shares(confidence, nodes)
    right = residual * share
    sums = weighted_sum_matrix(
        np.stack([left, left + 1]), np.stack([residual - right, right]), nodes
    )

    def values(weight: Matrix, total: Vector) -> Vector:
        errors = np.empty(len(total))
        spread = np.ascontiguousarray((sums @ weight).T)
        # Small blocks: the transforms of a block stay in the cache of one core.
        for block in row_blocks(len(total), nodes, entries=2**15):
            spectra = mirrored_spectrum(spread[block])
            errors[block] = np.abs(smooth_spectrum(spectra, nodes, width)).sum(axis=1)
        return errors / (nodes * total)

    return values


def _of_correct(confidence: Vector, correct: Flags) -> Vector:
    """Return smECE for many draws of correctness: `smooth_gap`, all draws in each step."""
    positions = np.minimum(confidence, 1.0)
    residual = positions[:, None] - correct
    draws = np.arange(correct.shape[1])
    nodes = np.full(len(draws), FIRST_NODES)
    spectra: dict[int, Spectrum] = {}

    def error_at(width: Vector, some: Classes) -> Vector:
        errors = np.empty(len(some))
        grown = [
            grow_grid(*pair) for pair in zip(nodes[some].tolist(), width.tolist(), strict=True)
        ]
        nodes[some] = grown
        for count, at in {*zip(grown, width.tolist(), strict=True)}:
            chosen = (nodes[some] == count) & (width == at)
            if count not in spectra:
                left, share = _shares(positions, count)
                right = residual * share[:, None]
                sums = weighted_sum_matrix(left, np.ones(len(left)), count) @ (residual - right)
                sums += weighted_sum_matrix(left + 1, np.ones(len(left)), count) @ right
                spectra[count] = mirrored_spectrum(np.ascontiguousarray(sums.T))
            smoothed = smooth_spectrum(spectra[count][some[chosen]], count, at)
            errors[chosen] = np.abs(smoothed).sum(axis=1) / (count * len(confidence))
        return errors

    low, high = np.zeros(len(draws)), np.ones(len(draws))
    # An error above one is not possible, so the first width is not tried.
    for _ in range(STEPS):
        middle = (low + high) / 2.0
        tried = draws[middle >= SMALLEST_WIDTH]
        above = middle < SMALLEST_WIDTH
        above[tried] = middle[tried] < error_at(middle[tried], tried)
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return error_at(high, draws)


def _shares(confidence: Vector, nodes: int) -> tuple[Classes, Vector]:
    """Return the node below each confidence, and the share of the node above it."""
    scaled = confidence * (nodes - 1)
    left = np.clip(scaled.astype(np.intp), 0, nodes - 2)
    return left, scaled - left


SMOOTH_ECE = Metric(
    "smooth_ece",
    "smooth ECE",
    "smECE",
    "The same with a smoothing kernel in place of bins.",
    smooth_ece,
    SmoothECEStream,
    of_rows=lambda rows: smooth_gap(rows)[0],
    resampler=_resampler,
    of_correct=_of_correct,
    draws=39,
    unit="%",
    digits=2,
    calibration_error=True,
)
