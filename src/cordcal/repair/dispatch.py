"""Apply the row rule to arrays of any library.

NumPy arrays go to the engine.  Arrays of other libraries (torch, JAX, array-api-strict) stay in
their library, on their device: the specification itself runs on them.  A construction copies only
vectors of length n back to NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import array_api_compat
import numpy as np

from cordcal._numeric import arrays
from cordcal._numeric.types import Array, DType, Predictions, Vector
from cordcal._validation.scores import check_probabilities, sum_warning_level, warn_about_pair
from cordcal.repair import engine, ranking, rule
from cordcal.repair.engine import CheckedBlock, Description, deviation
from cordcal.repair.ranking import RankedRows
from cordcal.repair.rule import RowState, Split


def _check_and_widen(original: Array, direct: Array) -> tuple[Array, Array, list[float]]:
    """Check that all rows are distributions.

    Returns both arrays widened, and the largest deviations of their row sums from one.
    """
    xp = arrays.namespace(original, direct)
    wide = arrays.wide_dtype(xp, direct)
    p, q = xp.astype(original, wide), xp.astype(direct, wide)
    deviations = [
        check_probabilities(supplied, xp.sum(widened, axis=1), name, supplied.dtype)
        for name, supplied, widened in (("original", original, p), ("direct", direct, q))
    ]
    return p, q, deviations


def checked_foreign(original: Array, direct: Array, prediction: Predictions | None) -> CheckedBlock:
    """Check all rows in the dtype they came in; return them as one block of NumPy arrays."""
    *wide, deviations = _check_and_widen(original, direct)
    warn_about_pair(deviations, original, direct)
    p, q = arrays.to_numpy(original), arrays.to_numpy(direct)
    wide_p, wide_q = (arrays.to_numpy(array).astype(np.float64, order="C") for array in wide)
    return CheckedBlock(slice(0, len(q)), p, q, prediction, wide_p, wide_q, *deviations)


def _on_device(prediction: Predictions, like: Array) -> Array:
    """Return the predictions as an array of the library and on the device of ``like``."""
    return arrays.namespace(like).asarray(prediction, device=array_api_compat.device(like))


def weights_like(class_weights: Vector | None, wide: Array) -> Array | None:
    """Return class weights as an array of the library, device and dtype of ``wide``."""
    if class_weights is None:
        return None
    xp = arrays.namespace(wide)
    return xp.astype(arrays.array_like(class_weights, wide), wide.dtype)


def describe_foreign(
    original: Array,
    direct: Array,
    prediction: Predictions | None,
    class_weights: Vector | None = None,
) -> tuple[RowState, Split, Array]:
    """Check and describe all rows; return the state, the split and the widened direct rows."""
    p, q, (original_deviation, _) = _check_and_widen(original, direct)
    keep = arrays.first_argmax(original) if prediction is None else _on_device(prediction, direct)
    w = weights_like(class_weights, q)
    moved = arrays.first_argmax(direct if w is None else q * w[None, :]) != keep
    state, part = rule.row_state(p, q, keep, moved, w)
    warn_about_pair((original_deviation, deviation(arrays.to_numpy(part.total))), original, direct)
    return state, part, q


def describe(
    original: Array,
    direct: Array,
    prediction: Predictions | None,
    weight: Vector | None,
    class_weights: Vector | None,
    threads: int,
) -> Description:
    """Check and describe every calibration row, of any library."""
    if isinstance(direct, np.ndarray):
        return engine.describe(original, direct, prediction, weight, class_weights, threads)
    (state,) = row_states(original, direct, prediction, class_weights)
    return Description.from_state(state, weight)


def row_states(
    original: Array,
    direct: Array,
    prediction: Predictions | None,
    class_weights: Vector | None = None,
) -> Iterator[RowState]:
    """Check and describe rows of any library, in blocks of NumPy vectors."""
    if isinstance(direct, np.ndarray):
        for block in engine.described_blocks(original, direct, prediction, class_weights):
            yield block.state
    else:
        yield numpy_state(describe_foreign(original, direct, prediction, class_weights)[0])


def checked_blocks(
    original: Array, direct: Array, prediction: Predictions | None
) -> Iterator[CheckedBlock]:
    """Check rows of any library; yield them in blocks of NumPy arrays."""
    if isinstance(direct, np.ndarray):
        yield from engine.checked_blocks(original, direct, prediction)
    else:
        yield checked_foreign(original, direct, prediction)


def numpy_state(state: RowState) -> RowState:
    """Return the state as NumPy vectors, with numbers in float64."""
    vectors = {field.name: arrays.to_numpy(getattr(state, field.name)) for field in fields(state)}
    return RowState(
        **{
            name: vector.astype(np.float64) if vector.dtype.kind == "f" else vector
            for name, vector in vectors.items()
        }
    )


def repair_foreign(
    original: Array,
    direct: Array,
    prediction: Predictions | None,
    eta: float,
    dtype: DType,
    class_weights: Vector | None = None,
) -> Array:
    """Return the repaired rows in ``dtype``, the prediction strictly the first."""
    xp = arrays.namespace(direct)
    state, part, wide = describe_foreign(original, direct, prediction, class_weights)
    level = sum_warning_level(direct.dtype, direct.shape[1])
    repaired = xp.astype(rule.repair_rows(wide, state, part, eta, level), dtype)
    return rule.make_first(repaired, state.prediction, weights_like(class_weights, wide))


def rank_foreign(
    original: Array, direct: Array, prediction: Predictions | None, levels: int
) -> tuple[RankedRows, Array]:
    """Check all rows and arrange them in the original order; return the widened direct ones too."""
    p, q, deviations = _check_and_widen(original, direct)
    warn_about_pair(deviations, original, direct)
    keep = None if prediction is None else _on_device(prediction, direct)
    order = ranking.kept_order(original, keep)
    return ranking.rank_rows(p, q, order, levels), q


def repair_ranked_foreign(
    original: Array, direct: Array, prediction: Predictions | None, etas: list[float], dtype: DType
) -> Array:
    """Return the rows repaired by the nested rule in ``dtype``, the first ranks in order."""
    xp = arrays.namespace(direct)
    rows, wide = rank_foreign(original, direct, prediction, len(etas))
    level = sum_warning_level(direct.dtype, direct.shape[1])
    repaired = ranking.repair_rows(wide, rows, etas, level)
    return ranking.raise_order(xp.astype(repaired, dtype), rows, len(etas))
