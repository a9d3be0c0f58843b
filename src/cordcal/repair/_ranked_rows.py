"""Run the array version of the nested rule: over NumPy arrays in blocks, and elsewhere."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from cordcal._door import arrays
from cordcal._door.reports import sum_warning_level
from cordcal._door.types import Array, Decisions, Vector
from cordcal.repair import _foreign, _ranking, _rows
from cordcal.repair._ranking import RankedRows


def rank_block(block: _rows.CheckedBlock, levels: int) -> RankedRows:
    """Look at the rows of a checked block along the kept order."""
    order = _ranking.kept_order(block.original, block.decision)
    return _ranking.rank_rows(block.wide_original, block.wide_direct, order, levels)


def repair(
    original: npt.NDArray[Any],
    direct: npt.NDArray[Any],
    decision: Decisions | None,
    etas: Vector,
    out: npt.NDArray[Any],
    threads: int = 1,
    *,
    first: int = 0,
) -> None:
    """Write the repaired rows to ``out``, in its dtype, the first ranks in order."""
    scalars = etas.tolist()
    for block in _rows.checked_blocks(original, direct, decision, first=first):
        rows = rank_block(block, len(scalars))
        out[block.rows] = repaired(rows, block.wide_direct, scalars, block.level, out.dtype)


def repaired(rows: RankedRows, direct: Array, etas: list[float], level: float, dtype: Any) -> Array:
    """Return the repaired rows of one block in ``dtype``; ``direct`` is its widened report."""
    xp = arrays.namespace(direct)
    masses, rests, same = _ranking.respond(rows, etas, level)
    rebuilt = _ranking.rebuild(rows, masses, rests)
    rebuilt = xp.astype(xp.where(same[:, None], direct, rebuilt), dtype)
    strict = _ranking.strict_dtype(dtype)
    return _ranking.lift_order(rebuilt, rows, len(etas), strict=strict)


def rank_foreign(
    original: Array, direct: Array, decision: Decisions | None, levels: int
) -> tuple[RankedRows, Array]:
    """Check another library's arrays and rank their rows; return the widened direct ones too."""
    p, q = _foreign.checked(original, direct)
    keep = None if decision is None else _foreign.on_device(decision, direct)
    order = _ranking.kept_order(original, keep)
    return _ranking.rank_rows(p, q, order, levels), q


def repair_foreign(
    original: Array, direct: Array, decision: Decisions | None, etas: list[float], dtype: Any
) -> Array:
    """Return the repaired rows of another library's arrays."""
    rows, wide = rank_foreign(original, direct, decision, len(etas))
    level = sum_warning_level(direct.dtype, direct.shape[1])
    return repaired(rows, wide, etas, level, dtype)
