"""Tell what a repair does to each row: masses, interval, and the bound it may sit at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._door import arrays
from cordcal._door.types import Array, Decisions
from cordcal.repair import _array, _foreign, _ranked_rows, _ranking, _rows
from cordcal.repair._ranking import Level, RankedRows
from cordcal.repair._results import Explanation

Columns = tuple[npt.NDArray[Any], ...]
"""The fields of an `Explanation`, for some rows."""


def explain(original: Array, direct: Array, decision: Decisions | None, eta: Any) -> Explanation:
    """Describe the rows and say what the repair with these scalars makes of each."""
    if np.ndim(eta):
        parts = _ranks(original, direct, decision, eta.tolist())
    else:
        parts = _first_rank(original, direct, decision, eta)
    return Explanation(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))


def _first_rank(
    original: Array, direct: Array, decision: Decisions | None, eta: float
) -> Iterator[Columns]:
    if isinstance(direct, np.ndarray):
        states = [block.state for block in _rows.described_blocks(original, direct, decision)]
    else:
        states = [_foreign.describe_rows(original, direct, decision)[0]]
    for state in states:
        found = _array.response(eta, state.reference, state.reference_rest, state.lower)
        yield _columns(state.decision, state, found)


def _ranks(
    original: Array, direct: Array, decision: Decisions | None, etas: list[float]
) -> Iterator[Columns]:
    for rows in _ranked_blocks(original, direct, decision, len(etas)):
        levels = [
            _columns(rows.order[:, level], state, found)
            for level, state, found in _ranking.respond_levels(rows, etas)
        ]
        # The levels come from the inside out; their columns stand from the first rank on.
        yield tuple(np.stack(field[::-1], axis=1) for field in zip(*levels, strict=True))


def _ranked_blocks(
    original: Array, direct: Array, decision: Decisions | None, levels: int
) -> Iterator[RankedRows]:
    if isinstance(direct, np.ndarray):
        for block in _rows.checked_blocks(original, direct, decision):
            yield _ranked_rows.rank_block(block, levels)
    else:
        yield _ranked_rows.rank_foreign(original, direct, decision, levels)[0]


def _columns(
    decision: Array, state: _array.RowState | Level, found: tuple[Array, Array, Array]
) -> Columns:
    mass, rest, slope = found
    told = (decision, state.direct_mass, state.reference, state.lower, mass, state.changed)
    bound = _rows.at_bound(arrays.to_numpy(rest), arrays.to_numpy(slope))
    return (*(arrays.to_numpy(field) for field in told), bound)
