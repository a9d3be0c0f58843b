"""Run the row rule on the arrays of other libraries: torch, JAX, array-api-strict.

Rows are described where the arrays live; only vectors of length n come back for a
construction, and a repaired report stays in its namespace, device and dtype.
"""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np

from cordcal._numeric import arrays
from cordcal._numeric.exact import weighted
from cordcal._numeric.rows import lane_sum
from cordcal._numeric.types import Array, Decisions, Vector
from cordcal._validation.probabilities import (
    check_probabilities,
    sum_warning_level,
    warn_about_pair,
)
from cordcal.repair import numpy_engine, ranking, rule
from cordcal.repair.numpy_engine import CheckedBlock, Description, deviation
from cordcal.repair.ranking import RankedRows
from cordcal.repair.rule import RowState, Split


def checked(original: Array, direct: Array) -> tuple[Array, Array]:
    """Check that all rows are distributions; return both reports widened."""
    p, q, worst = _sound(original, direct)
    warn_about_pair(worst, original, direct)
    return p, q


def _sound(original: Array, direct: Array) -> tuple[Array, Array, list[float]]:
    """Return both reports widened, and the largest deviations of their sums from one."""
    xp = arrays.namespace(original, direct)
    wide = arrays.wide_dtype(xp, direct)
    p, q = xp.astype(original, wide), xp.astype(direct, wide)
    worst = [
        check_probabilities(given, lane_sum(widened), name, given.dtype)
        for name, given, widened in (("original", original, p), ("direct", direct, q))
    ]
    return p, q, worst


def checked_block(original: Array, direct: Array, decision: Decisions | None) -> CheckedBlock:
    """Check all rows in the dtype they came in; return them as one block of NumPy arrays."""
    *wide, worst = _sound(original, direct)
    warn_about_pair(worst, original, direct)
    p, q = (arrays.to_numpy(report) for report in (original, direct))
    wide_p, wide_q = (arrays.to_numpy(report).astype(np.float64) for report in wide)
    return CheckedBlock(slice(0, len(q)), p, q, decision, wide_p, wide_q, *worst)


def on_device(decision: Decisions, like: Array) -> Array:
    """Return the decisions as an array beside ``like``."""
    return arrays.namespace(like).asarray(decision, device=array_api_compat.device(like))


def describe_rows(
    original: Array, direct: Array, decision: Decisions | None
) -> tuple[RowState, Split, Array]:
    """Check and describe all rows; return the state, the split and the widened direct rows."""
    p, q, (worst, _) = _sound(original, direct)
    keep = arrays.first_argmax(original) if decision is None else on_device(decision, direct)
    moved = arrays.first_argmax(direct) != keep
    state, part = rule.row_state(p, q, keep, moved)
    warn_about_pair((worst, deviation(arrays.to_numpy(part.total))), original, direct)
    return state, part, q


def describe(
    original: Array, direct: Array, decision: Decisions | None, weight: Vector | None
) -> Description:
    """Check and describe every calibration row; see `_rows.describe`."""
    state, _, _ = describe_rows(original, direct, decision)

    def vector(values: Array) -> Vector:
        return arrays.to_numpy(values).astype(np.float64)

    g, g_rest, lower = map(vector, (state.reference, state.reference_rest, state.lower))
    b, b_rest = vector(state.direct_mass), vector(state.direct_rest)
    direct_sum = weighted(b, weight)
    return Description(
        g,
        g_rest,
        lower,
        direct_sum,
        weighted(lower, weight),
        direct_sum,
        weighted(rule.gap(g, g_rest, b, b_rest), weight),
        int(np.count_nonzero(arrays.to_numpy(state.changed))),
    )


def repair(
    original: Array, direct: Array, decision: Decisions | None, eta: float, dtype: Any
) -> Array:
    """Return the repaired rows in ``dtype``, the decision strictly on top."""
    xp = arrays.namespace(direct)
    state, part, q = describe_rows(original, direct, decision)
    mass, rest, _ = rule.response(eta, state.reference, state.reference_rest, state.lower)
    repaired = rule.rebuild(q, state.decision, part, mass, rest)
    level = sum_warning_level(direct.dtype, direct.shape[1])
    same = rule.unchanged(eta, part, state, level)
    repaired = xp.where(same[:, None], q, repaired)
    return rule.raise_decision(xp.astype(repaired, dtype), state.decision)


def rank_foreign(
    original: Array, direct: Array, decision: Decisions | None, levels: int
) -> tuple[RankedRows, Array]:
    """Check another library's arrays and rank their rows; return the widened direct ones too."""
    p, q = checked(original, direct)
    keep = None if decision is None else on_device(decision, direct)
    order = ranking.kept_order(original, keep)
    return ranking.rank_rows(p, q, order, levels), q


def repair_foreign(
    original: Array, direct: Array, decision: Decisions | None, etas: list[float], dtype: Any
) -> Array:
    """Return the repaired rows of another library's arrays."""
    rows, wide = rank_foreign(original, direct, decision, len(etas))
    level = sum_warning_level(direct.dtype, direct.shape[1])
    return numpy_engine.repaired(rows, wide, etas, level, dtype)
