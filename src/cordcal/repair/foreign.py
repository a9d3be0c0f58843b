"""Run the row rule on the arrays of other libraries: torch, JAX, array-api-strict.

The rule runs on the arrays' own device.  A construction copies only vectors of length n back
to NumPy; repaired probabilities stay in their library, device and dtype.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import array_api_compat
import numpy as np

from cordcal._numeric import arrays
from cordcal._numeric.arrays import lane_sum
from cordcal._numeric.types import Array, Decisions, Vector
from cordcal._validation.scores import (
    check_probabilities,
    sum_warning_level,
    warn_about_pair,
)
from cordcal.repair import ranking, rule
from cordcal.repair.numpy_engine import CheckedBlock, Description, deviation
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
        check_probabilities(supplied, lane_sum(widened), name, supplied.dtype)
        for name, supplied, widened in (("original", original, p), ("direct", direct, q))
    ]
    return p, q, deviations


def checked_block(original: Array, direct: Array, decision: Decisions | None) -> CheckedBlock:
    """Check all rows in the dtype they came in; return them as one block of NumPy arrays."""
    *wide, deviations = _check_and_widen(original, direct)
    warn_about_pair(deviations, original, direct)
    p, q = arrays.to_numpy(original), arrays.to_numpy(direct)
    wide_p, wide_q = (arrays.to_numpy(array).astype(np.float64) for array in wide)
    return CheckedBlock(slice(0, len(q)), p, q, decision, wide_p, wide_q, *deviations)


def _on_device(decision: Decisions, like: Array) -> Array:
    """Return the decisions as an array of the library and on the device of ``like``."""
    return arrays.namespace(like).asarray(decision, device=array_api_compat.device(like))


def describe_rows(
    original: Array, direct: Array, decision: Decisions | None
) -> tuple[RowState, Split, Array]:
    """Check and describe all rows; return the state, the split and the widened direct rows."""
    p, q, (original_deviation, _) = _check_and_widen(original, direct)
    keep = arrays.first_argmax(original) if decision is None else _on_device(decision, direct)
    moved = arrays.first_argmax(direct) != keep
    state, part = rule.row_state(p, q, keep, moved)
    warn_about_pair((original_deviation, deviation(arrays.to_numpy(part.total))), original, direct)
    return state, part, q


def describe(
    original: Array, direct: Array, decision: Decisions | None, weight: Vector | None
) -> Description:
    """Check and describe every calibration row; see `numpy_engine.describe`."""
    state = numpy_state(describe_rows(original, direct, decision)[0])
    return Description.from_state(state, weight, int(np.count_nonzero(state.changed)))


def numpy_state(state: RowState) -> RowState:
    """Return the state as NumPy vectors, with numbers in float64."""
    vectors = {field.name: arrays.to_numpy(getattr(state, field.name)) for field in fields(state)}
    return RowState(
        **{
            name: vector.astype(np.float64) if vector.dtype.kind == "f" else vector
            for name, vector in vectors.items()
        }
    )


def repair(
    original: Array, direct: Array, decision: Decisions | None, eta: float, dtype: Any
) -> Array:
    """Return the repaired rows in ``dtype``, the decision strictly the largest entry."""
    xp = arrays.namespace(direct)
    state, part, wide = describe_rows(original, direct, decision)
    level = sum_warning_level(direct.dtype, direct.shape[1])
    repaired = rule.repair_rows(wide, state, part, eta, level)
    return rule.raise_decision(xp.astype(repaired, dtype), state.decision)


def rank_rows(
    original: Array, direct: Array, decision: Decisions | None, levels: int
) -> tuple[RankedRows, Array]:
    """Check all rows and arrange them in the original order; return the widened direct ones too."""
    p, q, deviations = _check_and_widen(original, direct)
    warn_about_pair(deviations, original, direct)
    keep = None if decision is None else _on_device(decision, direct)
    order = ranking.kept_order(original, keep)
    return ranking.rank_rows(p, q, order, levels), q


def repair_ranked(
    original: Array, direct: Array, decision: Decisions | None, etas: list[float], dtype: Any
) -> Array:
    """Return the rows repaired by the nested rule in ``dtype``, the first ranks in order."""
    xp = arrays.namespace(direct)
    rows, wide = rank_rows(original, direct, decision, len(etas))
    level = sum_warning_level(direct.dtype, direct.shape[1])
    repaired = ranking.repair_rows(wide, rows, etas, level)
    return ranking.raise_order(xp.astype(repaired, dtype), rows, len(etas))
