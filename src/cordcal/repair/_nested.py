"""Construct and apply the nested rule: level after level, from the inside out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from cordcal._door.types import Array, Decisions, Vector
from cordcal._numeric.exact import moderated, weighted
from cordcal.repair import _array, _construction, _foreign, _ranked_rows, _ranking, _rows
from cordcal.repair._construction import CalibrationRows
from cordcal.repair._ranking import Level, RankedRows
from cordcal.repair._results import Construction, RankingConstruction
from cordcal.repair._rows import Description
from cordcal.repair._shelf import Shelf

Inside = tuple[Vector, Vector]
"""The repaired masses of a level, and their complements."""


@dataclass(frozen=True, slots=True)
class RankedBlock:
    """Calibration rows seen along the kept order, with their weights."""

    rows: RankedRows
    weight: Vector | None
    classes: int
    threads: int

    @classmethod
    def of(
        cls,
        original: Array,
        direct: Array,
        decision: Decisions | None,
        weight: Vector | None,
        levels: int,
        threads: int,
    ) -> RankedBlock:
        """Check and rank the rows."""
        rows = _ranked(original, direct, decision, levels)
        return cls(rows, weight, direct.shape[1], threads)

    @property
    def has_weight(self) -> bool:
        """Whether any row counts."""
        return self.weight is None or bool(self.weight.any())

    def level(self, level: int, inside: Inside | None) -> LevelBlock:
        """Look at one level, given the repaired masses of the next one inside."""
        state = _ranking.level_state(self.rows, level, inside)
        mass = state.weight if self.weight is None else state.weight * self.weight
        return LevelBlock(state, mass, self.classes, self.threads)


@dataclass(frozen=True, slots=True)
class LevelBlock:
    """One level of a block, with the mass that weighs its rows."""

    state: Level
    mass: Vector
    classes: int
    threads: int

    @property
    def constrains(self) -> bool:
        """Whether the calibrator leaves any mass to the level."""
        return bool(self.mass.any())

    def calibration(self, *, free: bool) -> CalibrationRows:
        """Return the rows of a construction; a level that constrains nothing is ``free``."""
        state = self.state
        w, exponent = (np.ones_like(self.mass), 0) if free else moderated(self.mass)
        direct_sum = weighted(state.direct_mass, w)
        gap = _array.gap(
            state.reference, state.reference_rest, state.direct_mass, state.direct_rest
        )
        description = Description(
            state.reference,
            state.reference_rest,
            state.lower,
            direct_sum,
            weighted(state.lower, w),
            direct_sum,
            weighted(gap, w),
            int(np.count_nonzero(state.changed)),
        )
        return CalibrationRows(description, w, self.classes, self.threads, exponent)

    def inside(self, eta: float) -> Inside:
        """Return the repaired masses, and their complements."""
        state = self.state
        mass, rest, _ = _array.response(eta, state.reference, state.reference_rest, state.lower)
        return mass, rest


def construct(
    blocks: Shelf[RankedBlock], levels: int, *, decision_given: bool
) -> RankingConstruction:
    """Find one shared scalar a level; the inner ones first, since they bound the outer."""
    records: list[Construction] = []
    insides: Shelf[Inside] | None = None
    for level in range(levels - 1, -1, -1):
        found = blocks.beside(
            block.level(level, inside)
            for block, inside in zip(blocks, insides or repeat(None), strict=False)
        )
        free = not any(block.constrains for block in found)
        rows = found.beside(block.calibration(free=free) for block in found)
        records.insert(0, _construction.construct(rows, decision_given=decision_given, free=free))
        insides = found.beside(block.inside(records[0].eta) for block in found)
    return RankingConstruction(tuple(records))


def _ranked(original: Array, direct: Array, decision: Decisions | None, levels: int) -> RankedRows:
    """Check all rows and look at them along the kept order, as NumPy vectors."""
    blocks: Iterable[_rows.CheckedBlock]
    if not isinstance(direct, np.ndarray):
        blocks = [_foreign.checked_block(original, direct, decision)]
    else:
        blocks = _rows.checked_blocks(original, direct, decision)
    parts = [_ranked_rows.rank_block(block, levels) for block in blocks]
    # The tail itself serves a repair only; the levels need its sum and its largest entry,
    # and of the order the kept ranks and the one behind them.
    joined = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in RankedRows.__dataclass_fields__
        if name not in ("order", "tail", "rank")
    }
    order = np.concatenate([part.order[:, : levels + 1] for part in parts])
    return RankedRows(**joined, order=order, tail=np.empty(0), rank=np.empty(0, dtype=np.intp))
