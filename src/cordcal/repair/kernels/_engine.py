"""Run the compiled kernels on NumPy arrays: layouts, dtypes, threads, and invalid rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, merge_errors, raise_first
from cordcal._numeric import arrays
from cordcal._numeric.arrays import UNIT_ROUNDOFF
from cordcal._numeric.exact import ExactSum
from cordcal._numeric.parallel import run_blocks
from cordcal._numeric.types import Floats, Matrix, NumPyArray, NumPyDType, Predictions, Vector
from cordcal._validation.scores import sum_tolerance, sum_warning_level, warn_about_pair
from cordcal.repair import numpy_engine, rule
from cordcal.repair.kernels import Job, _curves, _passes, _ranked, _sums
from cordcal.repair.kernels._jit import Kernel
from cordcal.repair.kernels._scan import SUM_ROWS
from cordcal.repair.numpy_engine import Description
from cordcal.repair.solve import ConstraintValue

# A block that must be copied (another layout, half precision) is about 1 MB.
_COPY_ENTRIES = 2**17
# One row of a constraint costs as much arithmetic as this many entries of a matrix.
_ROW_ENTRIES = 10
_NO_PREDICTIONS = np.empty(0, dtype=np.intp)
_NO_KEYS = np.empty((0, 0), dtype=np.int64)
_NO_WEIGHTS = np.empty(0)
_NO_DESCRIPTION = (np.empty(0), np.empty(0), np.empty(0), np.empty((0, 0)))


@functools.cache
def _kernel_dtype(original: NumPyDType, direct: NumPyDType) -> NumPyDType:
    """Return the dtype both inputs are read in: widening is exact and keeps every tie."""
    return np.result_type(original, direct, np.float32).newbyteorder("=")


@functools.cache
def _limits(original: NumPyDType, direct: NumPyDType, classes: int) -> list[float]:
    """Return which deviations of both inputs' row sums are tolerated, and which need no warning.

    The array engine adds in another order: it decides about rows within rounding of a
    tolerance, so that both engines accept the same rows.
    """
    both, rounding = (original, direct), (classes + 8) * UNIT_ROUNDOFF["float64"]
    return [sum_tolerance(dtype) - rounding for dtype in both] + [
        sum_warning_level(dtype, classes) for dtype in both
    ]


@functools.cache
def kernels_of(
    job: Job, dtypes: tuple[NumPyDType, ...], weighted: bool = False
) -> tuple[Kernel, ...]:
    """Return the kernels of a job for these dtypes: those of both inputs, and the output's.

    ``weighted`` is whether there are class weights.
    """
    if job == "curves":
        return (_curves.evaluate(),)
    if job == "probes":
        return (_passes.probe(), _passes.search(), _sums.add_levels(), _sums.add_bins())
    read = arrays.dtype_name(_kernel_dtype(*dtypes[:2]))
    if job == "describe":
        return (_passes.row_pass(read, read, weighted), _sums.add_levels(), _sums.add_bins())
    written = arrays.dtype_name(dtypes[2])
    if job == "repair":
        return (_passes.row_pass(read, written, weighted),)
    return (_ranked.repair(read, written),)


class _Inputs:
    """Two input arrays, in blocks of rows with the layout and dtype of the kernels."""

    def __init__(
        self,
        original: Floats,
        direct: Floats,
        prediction: Predictions | None,
        class_weights: Vector | None = None,
        written: NumPyDType | None = None,
    ) -> None:
        self.original, self.direct = original, direct
        # A column of a table is a view with gaps, which the kernels do not read.
        self.prediction = None if prediction is None else np.ascontiguousarray(prediction)
        self.dtype = _kernel_dtype(original.dtype, direct.dtype)
        limits = _limits(original.dtype, direct.dtype, direct.shape[1])
        self.weights: npt.NDArray[np.float64] | None = None
        if class_weights is not None:
            narrow = self.dtype if written is None else written
            self.weights = np.stack(
                [class_weights, 1.0 / class_weights, class_weights.astype(narrow)]
            )
            heaviest = float(class_weights.max())
            limits = [*limits, *rule.rounding_margin(heaviest, narrow), heaviest]
        self.limits = np.array(limits)
        rows, classes = direct.shape
        self.as_is = original.dtype == direct.dtype == self.dtype and (
            original.flags.c_contiguous and direct.flags.c_contiguous
        )
        self.most = rows if self.as_is else max(1, _COPY_ENTRIES // classes)

    def block(self, at: slice) -> tuple[Floats, Floats, Predictions]:
        p, q = self.original[at], self.direct[at]
        if not self.as_is:
            p, q = (np.ascontiguousarray(x, dtype=self.dtype) for x in (p, q))
        keep = _NO_PREDICTIONS if self.prediction is None else self.prediction[at]
        return p, q, keep


def describe(
    original: Floats,
    direct: Floats,
    prediction: Predictions | None,
    weight: Vector | None,
    threads: int,
    class_weights: Vector | None = None,
) -> Description:
    """Check and describe every calibration row; see `numpy_engine.describe`."""
    inputs = _Inputs(original, direct, prediction, class_weights)
    rows, classes = direct.shape
    name = arrays.dtype_name(inputs.dtype)
    kernel = _passes.row_pass(name, name, class_weights is not None).get()
    nothing = np.empty((0, classes), inputs.dtype)
    reference, reference_rest, lower = np.empty(rows), np.empty(rows), np.empty(rows)

    def work(at: slice) -> tuple[list[ExactSum], list[float], int] | None:
        summed = np.empty((3, at.stop - at.start))
        worst, changed = np.zeros(2), np.zeros(1, dtype=np.int64)
        vectors = (reference[at], reference_rest[at], lower[at])
        block = inputs.block(at)
        outputs = (nothing, *vectors, summed, worst, changed)
        invalid = kernel(*block, inputs.weights, 0.0, inputs.limits, *outputs)
        if invalid >= 0:
            return None
        return exact_sums(summed, _at(weight, at)), worst.tolist(), int(changed[0])

    totals = [ExactSum()] * 3
    worst, n_changed = [0.0, 0.0], 0
    for part in run_blocks(work, rows, classes, threads, min(inputs.most, SUM_ROWS)):
        if part is None:
            # The array engine raises the error, or accepts a row at the edge of a tolerance.
            return numpy_engine.describe(
                original, direct, prediction, weight, class_weights=class_weights
            )
        totals = list(map(add, totals, part[0]))
        worst = list(map(max, worst, part[1]))
        n_changed += part[2]
    if any(worst):
        warn_about_pair(worst, original, direct)
    direct_sum, lower_sum, shift = totals
    return Description(
        reference, reference_rest, lower, direct_sum, lower_sum, direct_sum, shift, n_changed
    )


def _at(weight: Vector | None, rows: slice) -> Vector:
    return _NO_WEIGHTS if weight is None else weight[rows]


def exact_sums(vectors: npt.NDArray[np.float64], weight: Vector) -> list[ExactSum]:
    """Return the exact sum of each vector, at most `SUM_ROWS` long, weighted if not empty."""
    sums = [ExactSum()] * len(vectors)
    if not weight.size:
        levels = np.empty((len(vectors), 3), dtype=np.int64)
        left = _sums.add_levels().get()(vectors, levels)
        sums = [ExactSum.of_levels(*row_levels) for row_levels in levels.tolist()]
        if not left:
            return sums
    bins = np.zeros((len(vectors), 2048, 2), dtype=np.int64)
    _sums.add_bins().get()(vectors, weight, bins)
    return list(map(add, sums, map(ExactSum.of_bins, bins)))


def probes(
    etas: Sequence[float],
    reference: Vector,
    reference_rest: Vector,
    lower: Vector,
    weight: Vector | None,
    threads: int,
) -> list[ConstraintValue]:
    """Evaluate the constraint at some candidates; see `numpy_engine.probes`."""
    kernel, candidates = _passes.probe().get(), np.array(etas)

    def work(at: slice) -> list[ConstraintValue]:
        gaps = np.empty((len(etas), at.stop - at.start))
        slopes, counts = np.zeros(len(etas)), np.zeros((len(etas), 2), dtype=np.int64)
        vectors = (reference[at], reference_rest[at], lower[at], _at(weight, at))
        kernel(candidates, *vectors, gaps, slopes, counts)
        sums = exact_sums(gaps, vectors[3])
        return list(map(ConstraintValue, sums, slopes.tolist(), *counts.T.tolist()))

    parts = run_blocks(work, reference.shape[0], _ROW_ENTRIES, threads, SUM_ROWS)
    return [reduce(add, values) for values in zip(*parts, strict=True)]


def search(
    shift: float,
    reference: Vector,
    reference_rest: Vector,
    lower: Vector,
    weight: Vector | None,
) -> float:
    """Return an approximate root η of Σ w (s(η) − g) + shift, or zero."""
    w = _NO_WEIGHTS if weight is None else weight
    return float(_passes.search().get()(shift, reference, reference_rest, lower, w))


def repair(
    original: Floats,
    direct: Floats,
    prediction: Predictions | None,
    eta: float,
    out: Floats,
    threads: int,
    class_weights: Vector | None = None,
) -> None:
    """Write the repaired rows to ``out``; see `numpy_engine.repair`."""
    inputs = _Inputs(original, direct, prediction, class_weights, out.dtype)
    dtypes = arrays.dtype_name(inputs.dtype), arrays.dtype_name(out.dtype)
    kernel = _passes.row_pass(*dtypes, class_weights is not None).get()

    def run(at: slice, target: NumPyArray, worst: Vector) -> int:
        block, changed = inputs.block(at), np.zeros(1, dtype=np.int64)
        outputs = (target, *_NO_DESCRIPTION, worst, changed)
        return int(kernel(*block, inputs.weights, eta, inputs.limits, *outputs))

    def take_over(at: slice, target: Floats) -> None:
        keep = None if prediction is None else prediction[at]
        numpy_engine.repair(
            original[at],
            direct[at],
            keep,
            eta,
            target,
            class_weights=class_weights,
            first=at.start,
        )

    _repair_blocks(inputs, out, threads, inputs.most, run, take_over)


def repair_ranked(
    original: Floats,
    direct: Floats,
    prediction: Predictions | None,
    etas: Vector,
    out: Floats,
    threads: int,
) -> None:
    """Write the rows repaired by the nested rule to ``out``."""
    inputs = _Inputs(original, direct, prediction)
    kernel = _ranked.repair(arrays.dtype_name(inputs.dtype), arrays.dtype_name(out.dtype)).get()
    sort = len(etas) > _ranked.PICKED_LEVELS
    bits = _ranked.class_bits(direct.shape[1])

    def run(at: slice, target: NumPyArray, worst: Vector) -> int:
        p, q, keep = inputs.block(at)
        keys = _ranked.sort_keys(p) if sort else _NO_KEYS
        return int(kernel(p, q, keep, keys, bits, etas, inputs.limits, target, worst))

    def take_over(at: slice, target: Floats) -> None:
        keep = None if prediction is None else prediction[at]
        numpy_engine.repair_ranked(original[at], direct[at], keep, etas, target, first=at.start)

    # The keys of a block are a separate array, to be no larger than a copied block.
    most = min(inputs.most, max(1, _COPY_ENTRIES // direct.shape[1])) if sort else inputs.most
    _repair_blocks(inputs, out, threads, most, run, take_over)


def _repair_blocks(
    inputs: _Inputs,
    out: Floats,
    threads: int,
    most: int,
    run: Callable[[slice, NumPyArray, Vector], int],
    take_over: Callable[[slice, Floats], None],
) -> None:
    """Run a repair kernel over all rows.

    ``run(rows, target, worst)`` returns the first row of a tile with an invalid row, or -1; from
    there on ``take_over(rows, target)`` runs the array engine, which raises an error with all
    invalid rows of the block.  The other blocks are repaired too, so that the final error names
    all invalid rows.
    """
    rows, classes = inputs.direct.shape
    errors: list[InputError] = []
    contiguous = out.flags.c_contiguous and out.dtype.isnative
    if not contiguous:
        most = min(most, max(1, _COPY_ENTRIES // classes))

    def work(at: slice) -> list[float]:
        worst = np.zeros(2)
        shape = (at.stop - at.start, classes)
        target = out[at] if contiguous else np.empty(shape, dtype=out.dtype.newbyteorder("="))
        bits = target.view(np.uint16) if target.dtype == np.float16 else target
        first = run(at, bits, worst)
        if first >= 0:
            try:
                take_over(slice(at.start + first, at.stop), target[first:])
            except InputError as error:
                errors.append(error)
        if not contiguous:
            out[at] = target
        deviations: list[float] = worst.tolist()
        return deviations

    worst = [
        max(column) for column in zip(*run_blocks(work, rows, classes, threads, most), strict=True)
    ]
    raise_first(*merge_errors(errors))
    if any(worst):
        warn_about_pair(worst, inputs.original, inputs.direct)


def evaluate_curves(x: Matrix, *curves: Any) -> None:
    """Evaluate curves in place; see `cordcal.calibrators._curves.CurveSearch`."""
    _curves.evaluate().get()(x, *curves)
