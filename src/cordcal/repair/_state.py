"""What a construction needs of its calibration rows, gathered batch by batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from cordcal._door.errors import Refusal, placed
from cordcal._door.types import Decisions, Vector
from cordcal._door.vectors import check_decisions, check_weights, no_weight
from cordcal.repair import _construction, _nested
from cordcal.repair._construction import CalibrationRows
from cordcal.repair._nested import RankedBlock
from cordcal.repair._results import Construction, RankingConstruction
from cordcal.repair._shelf import Shelf

# Ten million rows take 240 MB; more than that goes to disk.
SPILL_BYTES = 2**28


@dataclass(frozen=True, slots=True)
class Described:
    """A batch of calibration rows, reduced to the few numbers a row that matter."""

    rows_of: CalibrationRows | RankedBlock
    rows: int
    classes: int
    decision_given: bool
    weighted: bool


class ConstructionState:
    """Calibration rows on their way to a shared scalar: three numbers each and some sums.

    States of other batches, threads or machines can be merged; the scalar does not depend on
    how the rows were cut.

    Parameters
    ----------
    levels : int
        How many ranks are kept.
    threads : int
        Cores to use.
    spill_bytes : int, optional
        Bytes to keep in memory; what is more goes to a temporary file.
    """

    def __init__(self, levels: int, threads: int, spill_bytes: int | None = SPILL_BYTES) -> None:
        self.levels, self.threads = levels, threads
        self.rows = 0
        self.classes: int | None = None
        self.decision_given: bool | None = None
        self.weighted: bool | None = None
        self._blocks: Shelf[Any] = Shelf(spill_bytes)

    def add(
        self, original: Any, direct: Any, decision: Any = None, sample_weight: Any = None
    ) -> Self:
        """Add a batch of rows, whose reports are arrays of one shape."""
        self._check_like_before(direct.shape[1], decision is not None, sample_weight is not None)
        with placed(self.rows):
            block = self.describe(original, direct, decision, sample_weight)
        self.append(block)
        return self

    def describe(self, original: Any, direct: Any, decision: Any, sample_weight: Any) -> Described:
        """Check a batch and reduce it to a block; on any thread, without touching the state."""
        rows, classes = direct.shape
        keep = None if decision is None else check_decisions(decision, rows, classes)
        weight = None
        if sample_weight is not None:
            weight = check_weights(sample_weight, rows, some=False)
        return self.reduced(original, direct, keep, weight)

    def reduced(
        self, original: Any, direct: Any, keep: Decisions | None, weight: Vector | None
    ) -> Described:
        """Reduce a batch whose decisions and weights were checked already."""
        rows, classes = direct.shape
        if self.levels > 1:
            block: CalibrationRows | RankedBlock = RankedBlock.of(
                original, direct, keep, weight, self.levels, self.threads
            )
        else:
            block = CalibrationRows.of(original, direct, keep, weight, self.threads)
        return Described(block, rows, classes, keep is not None, weight is not None)

    def append(self, block: Described) -> None:
        """Add a block that was described already."""
        self._check_like_before(block.classes, block.decision_given, block.weighted)
        self.classes, self.decision_given = block.classes, block.decision_given
        self.weighted = block.weighted
        self._blocks.append(block.rows_of)
        self.rows += block.rows

    def _check_like_before(self, classes: int, decision: bool, weight: bool) -> None:
        if self.classes not in (None, classes):
            raise Refusal(
                "direct",
                f"has {classes} classes but earlier batches had {self.classes}",
                "pass the same columns in every batch",
            )
        for name, given, before in (
            ("decision", decision, self.decision_given),
            ("sample_weight", weight, self.weighted),
        ):
            if before not in (None, given):
                raise Refusal(
                    name,
                    f"is {'given' if given else 'missing'} from row {self.rows} on",
                    "pass it with every batch or with none",
                )

    def merge(self, other: Self) -> Self:
        """Add what another state has seen; return this state."""
        if not self.rows:
            self.classes, self.decision_given = other.classes, other.decision_given
            self.weighted = other.weighted
        elif other.rows and (self.classes, self.decision_given, self.weighted, self.levels) != (
            other.classes,
            other.decision_given,
            other.weighted,
            other.levels,
        ):
            raise Refusal(
                "states",
                "are of different classes, arguments or ranks",
                "merge states that were made alike",
            )
        for block in other._blocks:
            self._blocks.append(block)
        self.rows += other.rows
        return self

    def construct(self) -> Construction | RankingConstruction:
        """Find the shared scalar of all rows seen."""
        if not self.rows or self.decision_given is None:
            raise Refusal("batches", "have no calibration rows", "pass at least one")
        if self.weighted and not any(block.has_weight for block in self._blocks):
            raise no_weight()
        if self.levels > 1:
            return _nested.construct(self._blocks, self.levels, decision_given=self.decision_given)
        return _construction.construct(self._blocks, decision_given=self.decision_given)
