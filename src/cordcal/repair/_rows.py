"""Run the row rule over NumPy arrays in blocks, and hold what a construction needs.

Blocks bound the memory: nothing here allocates more than a block of the input and
a few vectors of length n.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal import arrays
from cordcal.repair import _array
from cordcal.repair._array import EPSILON, RowState, Split
from cordcal.repair._exact import ExactSum, total_weight, weighted
from cordcal.repair._scalar import Constraint, Probe, Solution, solve

Vector = npt.NDArray[np.float64]

# About 2 MB of float64 a block: small enough for the cache, large enough for NumPy.
_BLOCK_ENTRIES = 2**18
# Rows of a vector pass.
_VECTOR_BLOCK = 2**16


@dataclass(frozen=True, slots=True)
class Block:
    """One block of rows, described."""

    rows: slice
    direct: Vector
    state: RowState
    part: Split


def described_blocks(
    original: npt.NDArray[Any],
    direct: npt.NDArray[Any],
    decision: npt.NDArray[np.intp] | None,
    *,
    reference_weight: float = 0.5,
) -> Iterator[Block]:
    """Check and describe the rows block by block; warn once about sloppy sums at the end."""
    rows, classes = direct.shape
    size = max(1, _BLOCK_ENTRIES // classes)
    worst = {"original": 0.0, "direct": 0.0}
    for start in range(0, rows, size):
        block = slice(start, min(start + size, rows))
        p, q = original[block], direct[block]
        arrays.check_entries(p, "original", first=start)
        arrays.check_entries(q, "direct", first=start)
        keep = np.argmax(p, axis=1) if decision is None else decision[block]
        moved = np.argmax(q, axis=1) != keep
        wide = q.astype(np.float64)
        state, here, there = _array.row_state(
            p.astype(np.float64), wide, keep, moved, reference_weight=reference_weight
        )
        for name, part, given in (("original", there, p), ("direct", here, q)):
            deviation = arrays.check_sums(part.total, name, given.dtype, classes, first=start)
            worst[name] = max(worst[name], deviation)
        yield Block(block, wide, state, here)
    arrays.warn_about_sums(worst["original"], "original", original.dtype, classes)
    arrays.warn_about_sums(worst["direct"], "direct", direct.dtype, classes)


@dataclass(slots=True)
class CalibrationRows:
    """The rows of a construction, reduced to three numbers each and four exact sums.

    ``reference_shift`` is Σ w (g − b): with it the constraint Σ w (s − b) needs the
    references only.
    """

    reference: Vector
    reference_rest: Vector
    lower: Vector
    weight: Vector | None
    weight_sum: ExactSum
    direct_sum: ExactSum
    reference_shift: ExactSum
    n_changed: int

    @classmethod
    def of(
        cls,
        original: npt.NDArray[Any],
        direct: npt.NDArray[Any],
        decision: npt.NDArray[np.intp] | None,
        weight: Vector | None,
        *,
        reference_weight: float = 0.5,
    ) -> CalibrationRows:
        """Describe and check every calibration row."""
        rows = direct.shape[0]
        reference, reference_rest, lower = (np.empty(rows) for _ in range(3))
        direct_sum = shift = ExactSum()
        changed = 0
        for block in described_blocks(
            original, direct, decision, reference_weight=reference_weight
        ):
            state, at = block.state, block.rows
            reference[at] = state.reference
            reference_rest[at] = state.reference_rest
            lower[at] = state.lower
            block_weight = None if weight is None else weight[at]
            direct_sum += weighted(state.direct_mass, block_weight)
            shift += weighted(
                _array.gap(
                    state.reference, state.reference_rest, state.direct_mass, state.direct_rest
                ),
                block_weight,
            )
            changed += int(np.count_nonzero(state.changed))
        return cls(
            reference,
            reference_rest,
            lower,
            weight,
            total_weight(rows, weight),
            direct_sum,
            shift,
            changed,
        )

    def __len__(self) -> int:
        return int(self.reference.shape[0])

    def _blocks(self) -> Iterator[tuple[Vector, Vector, Vector, Vector | None]]:
        for start in range(0, len(self), _VECTOR_BLOCK):
            at = slice(start, start + _VECTOR_BLOCK)
            yield (
                self.reference[at],
                self.reference_rest[at],
                self.lower[at],
                None if self.weight is None else self.weight[at],
            )

    def probe(self, eta: float) -> Probe:
        """Evaluate Σ w (s(η) − b) and its derivative."""
        excess, slope = self.reference_shift, 0.0
        for g, g_rest, lower, weight in self._blocks():
            mass, rest, rise = _array.response(eta, g, g_rest, lower)
            excess += weighted(_array.gap(mass, rest, g, g_rest), weight)
            slope += float(rise.sum() if weight is None else rise @ weight)
        return Probe(excess, slope)

    def excess_at_bounds(self) -> tuple[ExactSum, ExactSum]:
        """Return Σ w (s − b) with every row at its lower and at its upper bound."""
        low = high = self.reference_shift
        for g, g_rest, lower, weight in self._blocks():
            low += weighted(_array.gap(lower, 1.0 - lower, g, g_rest), weight)
            high += weighted(g_rest - EPSILON, weight)
        return low, high

    def _edges(self) -> tuple[Vector, Vector]:
        """Return the scalars at which each row leaves its lower and reaches its upper bound."""
        lower = _array.multiplier(self.lower, 1.0 - self.lower, self.reference)
        upper = (self.reference_rest - EPSILON) / (EPSILON * (1.0 - EPSILON))
        if self.weight is None:
            return lower, upper
        counted = self.weight > 0.0
        return lower[counted], upper[counted]

    def next_edge(self, eta: float, upwards: bool) -> float | None:
        """Return the nearest scalar beyond ``eta`` at which some row enters or leaves a bound."""
        edges = np.concatenate(self._edges())
        beyond = edges[edges > eta] if upwards else edges[edges < eta]
        if beyond.size == 0:
            return None
        return float(beyond.min() if upwards else beyond.max())

    def solve(self) -> tuple[Solution, Constraint]:
        """Find the shared scalar (Eq. 8)."""
        lower, upper = self._edges()
        at_lowest, at_highest = self.excess_at_bounds()
        constraint = Constraint(
            self.probe,
            self.next_edge,
            float(lower.min()),
            float(upper.max()),
            at_lowest,
            at_highest,
        )
        return solve(constraint), constraint

    def count_at_bounds(self, eta: float) -> tuple[int, int]:
        """Return how many rows sit at their lower and at their upper bound."""
        low = high = 0
        for g, g_rest, lower, _ in self._blocks():
            _, rest, slope = _array.response(eta, g, g_rest, lower)
            clipped = slope == 0.0
            top = clipped & (rest == EPSILON)
            high += int(np.count_nonzero(top))
            low += int(np.count_nonzero(clipped & ~top))
        return low, high


def repair_rows(
    original: npt.NDArray[Any],
    direct: npt.NDArray[Any],
    decision: npt.NDArray[np.intp] | None,
    eta: float,
    out: npt.NDArray[Any],
) -> None:
    """Write the repaired rows to ``out``, in its dtype, the decision strictly on top."""
    for block in described_blocks(original, direct, decision):
        state, part = block.state, block.part
        mass, rest, _ = _array.response(eta, state.reference, state.reference_rest, state.lower)
        repaired = _array.rebuild(block.direct, state.decision, part, mass, rest)
        same = _array.unchanged(eta, part, state)
        repaired = np.where(same[:, None], block.direct, repaired)
        out[block.rows] = _array.lift_decision(repaired.astype(out.dtype), state.decision)
