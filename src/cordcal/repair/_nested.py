"""Construct and apply the nested rule: level after level, from the inside out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal import arrays
from cordcal.arrays import Array
from cordcal.repair import _array, _compiled, _foreign, _ranking, _rows
from cordcal.repair._construction import CalibrationRows
from cordcal.repair._exact import moderate, weighted
from cordcal.repair._ranking import Level, RankedRows
from cordcal.repair._results import Construction, RankingConstruction
from cordcal.repair._rows import Decisions, Description, Vector


def construct(
    original: Array,
    direct: Array,
    decision: Decisions | None,
    weight: Vector | None,
    levels: int,
    threads: int,
) -> RankingConstruction:
    """Find one shared scalar a level; the inner ones first, since they bound the outer."""
    rows = _ranked(original, direct, decision, levels)
    classes = direct.shape[1]
    records: list[Construction] = []
    inside: tuple[Vector, Vector] | None = None
    for level in range(levels - 1, -1, -1):
        state = _ranking.level_state(rows, level, inside)
        record = _construct_level(state, weight, classes, decision is not None, threads)
        records.insert(0, record)
        mass, rest, _ = _array.response(
            record.eta, state.reference, state.reference_rest, state.lower
        )
        inside = (mass, rest)
    return RankingConstruction(tuple(records))


def _construct_level(
    state: Level, weight: Vector | None, classes: int, decision_given: bool, threads: int
) -> Construction:
    mass = state.weight if weight is None else state.weight * weight
    # A level to which the calibrator leaves no mass at all constrains nothing.
    free = not mass.any()
    w = np.ones_like(mass) if free else moderate(mass)
    direct_sum = weighted(state.direct_mass, w)
    description = Description(
        state.reference,
        state.reference_rest,
        state.lower,
        direct_sum,
        weighted(state.lower, w),
        direct_sum,
        weighted(
            _array.gap(state.reference, state.reference_rest, state.direct_mass, state.direct_rest),
            w,
        ),
        int(np.count_nonzero(state.changed)),
    )
    rows = CalibrationRows(description, w, classes, threads)
    return rows.construct(decision_given=decision_given, free=free)


def _ranked(original: Array, direct: Array, decision: Decisions | None, levels: int) -> RankedRows:
    """Check all rows and look at them along the kept order, as NumPy vectors."""
    if not isinstance(direct, np.ndarray):
        original, direct = _foreign.checked(original, direct)
        original, direct = (arrays.to_numpy(x).astype(np.float64) for x in (original, direct))
    parts = [
        _rank_block(block, levels) for block in _rows.checked_blocks(original, direct, decision)
    ]
    fields = RankedRows.__dataclass_fields__
    # The tail itself serves a repair only; the levels need its sum and its largest entry.
    joined = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in fields
        if name not in ("tail", "rank")
    }
    return RankedRows(**joined, tail=np.empty(0), rank=np.empty(0, dtype=np.intp))


def _rank_block(block: _rows.CheckedBlock, levels: int) -> RankedRows:
    order = _ranking.kept_order(block.original, block.decision)
    return _ranking.rank_rows(block.wide_original, block.wide_direct, order, levels)


def repair(
    original: npt.NDArray[Any],
    direct: npt.NDArray[Any],
    decision: Decisions | None,
    etas: Vector,
    out: npt.NDArray[Any],
    threads: int,
) -> None:
    """Write the repaired rows to ``out``, in its dtype, the first ranks in order."""
    if _compiled.kernels() is None:
        repair_blocks(original, direct, decision, etas.tolist(), out)
    else:
        _compiled.repair_ranked(original, direct, decision, etas, out, threads)


def repair_blocks(
    original: npt.NDArray[Any],
    direct: npt.NDArray[Any],
    decision: Decisions | None,
    etas: list[float],
    out: npt.NDArray[Any],
    *,
    first: int = 0,
) -> None:
    """Do the same with the array version, block by block."""
    for block in _rows.checked_blocks(original, direct, decision, first=first):
        rows = _rank_block(block, len(etas))
        out[block.rows] = repaired(rows, block.wide_direct, etas, out.dtype)


def repaired(rows: RankedRows, direct: Array, etas: list[float], dtype: Any) -> Array:
    """Return the repaired rows of one block in ``dtype``; ``direct`` is its widened report."""
    xp = arrays.namespace(direct)
    masses, rests, same = _ranking.respond(rows, etas)
    rebuilt = _ranking.rebuild(rows, masses, rests)
    rebuilt = xp.astype(xp.where(same[:, None], direct, rebuilt), dtype)
    strict = _ranking.strict_dtype(dtype)
    return _ranking.lift_order(rebuilt, rows, len(etas), strict=strict)


def repair_foreign(
    original: Array, direct: Array, decision: Decisions | None, etas: list[float], dtype: Any
) -> Array:
    """Return the repaired rows of another library's arrays."""
    p, q = _foreign.checked(original, direct)
    keep = None if decision is None else _foreign.on_device(decision, direct)
    order = _ranking.kept_order(original, keep)
    return repaired(_ranking.rank_rows(p, q, order, len(etas)), q, etas, dtype)
