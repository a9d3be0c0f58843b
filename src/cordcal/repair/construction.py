"""Construction: from calibration rows to the shared scalar (Sections 3.3 and 3.4)."""

from __future__ import annotations

import operator
import pickle
import tempfile
import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import repeat
from typing import IO, Generic, Self, TypeVar, cast

import numpy as np

from cordcal._errors import InputError, renumber_rows
from cordcal._numeric.exact import ExactSum, scale_to_safe_exponent, total_weight
from cordcal._numeric.types import Array, ArrayLike, Predictions, Vector
from cordcal._validation.labels import check_predictions, check_weights, zero_weight_error
from cordcal.repair import dispatch, engine, ranking, rule
from cordcal.repair.engine import Description
from cordcal.repair.ranking import Level, RankedRows
from cordcal.repair.results import Construction, RankingConstruction
from cordcal.repair.rule import EPSILON
from cordcal.repair.solve import Bounds, Constraint, ConstraintValue, Solution, solve

Block = TypeVar("Block")
Other = TypeVar("Other")


class SpilledBlocks(Generic[Block]):
    """A list of blocks of which only the first ``limit`` bytes stay in memory.

    The others go to a temporary file, without a name where the system allows it, so that no
    other process can open it.  Iteration reads them one at a time.

    Parameters
    ----------
    limit : int, optional
        Bytes to keep in memory; by default everything.

    Examples
    --------
    >>> import numpy as np
    >>> blocks = SpilledBlocks(limit=100)
    >>> for size in (5, 10, 20):
    ...     blocks.append(np.ones(size))
    >>> blocks.spilled, [int(block.sum()) for block in blocks]
    (2, [5, 10, 20])
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._in_memory: list[Block] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._offsets: list[int] = []

    @property
    def spilled(self) -> int:
        """The number of blocks in the file."""
        return len(self._offsets)

    def append(self, block: Block) -> None:
        """Add a block at the end."""
        if self.limit is None:
            self._in_memory.append(block)
            return
        size = nbytes(block)
        if not self._offsets and self._bytes + size <= self.limit:
            self._in_memory.append(block)
            self._bytes += size
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="cordcal-")  # noqa: SIM115 - closed with self
            weakref.finalize(self, self._file.close)
        self._offsets.append(self._file.seek(0, 2))
        pickle.dump(block, self._file, protocol=pickle.HIGHEST_PROTOCOL)

    def __len__(self) -> int:
        return len(self._in_memory) + len(self._offsets)

    def __iter__(self) -> Iterator[Block]:
        yield from self._in_memory
        for offset in self._offsets:
            assert self._file is not None
            self._file.seek(offset)
            yield pickle.load(self._file)

    def __getstate__(self) -> tuple[int | None, list[Block]]:
        return self.limit, list(self)

    def __setstate__(self, state: tuple[int | None, list[Block]]) -> None:
        limit, blocks = state
        self.__init__(limit)  # type: ignore[misc]
        for block in blocks:
            self.append(block)

    def with_blocks(self, blocks: Iterable[Other]) -> SpilledBlocks[Other]:
        """Return another list with the same limit and these blocks."""
        others: SpilledBlocks[Other] = SpilledBlocks(self.limit)
        for block in blocks:
            others.append(block)
        return others


def nbytes(block: object) -> int:
    """Return the bytes of the arrays in a dataclass or a tuple."""
    if isinstance(block, np.ndarray):
        return block.nbytes
    fields = getattr(block, "__dataclass_fields__", None)
    if fields is not None:
        return sum(nbytes(getattr(block, name)) for name in fields)
    return sum(map(nbytes, block)) if isinstance(block, tuple) else 0


# Means that differ by more than this differ by more than rounding: every summand has a rounding
# error of at most 2^-52.
_CLEAR_MARGIN = 1e-9


@dataclass(frozen=True, slots=True)
class Totals:
    """The exact sums of some calibration rows; the totals of several blocks can be added.

    ``squares`` is Σ w², or None without weights.
    """

    n: int
    n_changed: int
    weight: ExactSum
    squares: ExactSum | None
    direct: ExactSum
    lower: ExactSum
    target: ExactSum

    def __add__(self, other: Totals) -> Totals:
        squares = None
        if self.squares is not None and other.squares is not None:
            squares = self.squares + other.squares
        return Totals(
            self.n + other.n,
            self.n_changed + other.n_changed,
            self.weight + other.weight,
            squares,
            self.direct + other.direct,
            self.lower + other.lower,
            self.target + other.target,
        )

    @property
    def attainable(self) -> tuple[float, float]:
        """The smallest and the largest mean that preserve every prediction."""
        return self.lower.mean(self.weight), 1.0 - EPSILON

    @property
    def effective_n(self) -> float:
        """(Σw)² / Σw², from exact sums, so that it does not depend on the order of rows."""
        if self.squares is None:
            return float(self.n)
        return float(self.weight) ** 2 / float(self.squares)

    def bounds(self, classes: int, class_weights: Vector | None = None) -> Bounds:
        """Return the range of the scalar of the mean constraint (Eq. 8)."""
        low, high = self.attainable
        target = self.target.mean(self.weight)
        return Bounds(
            # h_g at the lower bound is at least -1/lower ≥ -K, at the upper at most 1/ε(1-ε);
            # class weights divide the smallest lower bound by at most their ratio.
            lowest=-classes * weight_ratio(class_weights),
            highest=1.0 / (EPSILON * (1.0 - EPSILON)),
            surely_attainable=low + _CLEAR_MARGIN < target < high - _CLEAR_MARGIN,
        )

    def record(self, solution: Solution, classes: int, *, prediction_given: bool) -> Construction:
        """Return the record of a construction."""

        def mean(excess: ExactSum) -> float:
            return (self.target + excess).mean(self.weight)

        return Construction(
            n=self.n,
            n_classes=classes,
            direct_mean=self.direct.mean(self.weight),
            target=mean(solution.target),
            attainable=self.attainable,
            attained=mean(solution.reached.excess),
            eta=solution.eta,
            n_changed=self.n_changed,
            n_at_lower=solution.reached.at_lower,
            n_at_upper=solution.reached.at_upper,
            prediction_given=prediction_given,
            passes=solution.passes,
            effective_n=self.effective_n,
        )


@dataclass(frozen=True, slots=True)
class CalibrationRows:
    """Calibration rows, described, with their weights: the input of a construction.

    The weights and all sums are scaled by 2^-exponent; the exponent is None if all weights are
    zero.
    """

    description: Description
    weight: Vector | None
    classes: int
    exponent: int | None = 0

    @classmethod
    def of(
        cls,
        original: Array,
        direct: Array,
        prediction: Predictions | None,
        weight: Vector | None,
        threads: int,
        class_weights: Vector | None = None,
    ) -> CalibrationRows:
        """Check and describe the rows, on the device of their arrays."""
        exponent: int | None = 0
        if weight is not None:
            weight, exponent = scale_to_safe_exponent(weight)
        description = dispatch.describe(
            original, direct, prediction, weight, class_weights, threads
        )
        return cls(description, weight, direct.shape[1], exponent)

    @property
    def has_weight(self) -> bool:
        """Whether any row counts."""
        return self.exponent is not None

    def rescaled(self, exponent: int) -> CalibrationRows:
        """Return the rows with weights scaled by 2^-exponent, the exponent of larger ones."""
        if self.weight is None or self.exponent is None or self.exponent == exponent:
            return self
        shift = self.exponent - exponent
        rows = self.description
        return replace(
            self,
            weight=np.ldexp(self.weight, shift),
            exponent=exponent,
            description=replace(
                rows,
                direct_sum=rows.direct_sum.scaled(shift),
                lower_sum=rows.lower_sum.scaled(shift),
                target_sum=rows.target_sum.scaled(shift),
                reference_shift=rows.reference_shift.scaled(shift),
            ),
        )

    def tally(self) -> Totals:
        """Return the rows' sums."""
        description, weight = self.description, self.weight
        return Totals(
            len(self),
            description.n_changed,
            total_weight(len(self), weight),
            None if weight is None else ExactSum.of_products(weight, weight),
            description.direct_sum,
            description.lower_sum,
            description.target_sum,
        )

    def __len__(self) -> int:
        return int(self.description.lower.shape[0])

    def probes(self, etas: Sequence[float]) -> list[ConstraintValue]:
        """Evaluate Σ w (s(η) − τ), its derivative, and the rows at each bound, at candidates."""
        values = engine.probes(etas, *self._vectors())
        shift = self.description.reference_shift
        return [
            ConstraintValue(probe.excess + shift, probe.slope, probe.at_lower, probe.at_upper)
            for probe in values
        ]

    def search(self) -> float:
        """Return an approximate scalar of these rows alone, or zero if the search fails."""
        return engine.search(float(self.description.reference_shift), *self._vectors())

    def _vectors(self) -> tuple[Vector, Vector, Vector, Vector | None]:
        description = self.description
        return description.reference, description.reference_rest, description.lower, self.weight

    def next_edge(self, eta: float, upwards: bool) -> float | None:
        """Return the nearest scalar beyond ``eta`` at which some row enters or leaves a bound."""
        description = self.description
        lower = rule.multiplier(description.lower, 1.0 - description.lower, description.reference)
        upper = (description.reference_rest - EPSILON) / (EPSILON * (1.0 - EPSILON))
        edges = np.concatenate([lower, upper])
        if self.weight is not None:
            edges = edges[np.tile(self.weight > 0.0, 2)]
        beyond = edges[edges > eta] if upwards else edges[edges < eta]
        if beyond.size == 0:
            return None
        return float(beyond.min() if upwards else beyond.max())


def weight_ratio(class_weights: Vector | None) -> float:
    """Return the largest ratio of two class weights."""
    return 1.0 if class_weights is None else float(class_weights.max() / class_weights.min())


def construct(
    blocks: Collection[CalibrationRows] | SpilledBlocks[CalibrationRows],
    *,
    prediction_given: bool,
    class_weights: Vector | None = None,
    free: bool = False,
) -> Construction:
    """Find the shared scalar (Eq. 8) of all blocks' rows, and record what was done.

    The result does not depend on how the rows are split into blocks.  With ``free`` the mean
    is not constrained: the scalar is zero.
    """
    shared = common_exponent(block.exponent for block in blocks)

    def visit() -> Iterable[CalibrationRows]:
        return (block.rescaled(shared) for block in blocks)

    tally = sum_of(block.tally() for block in visit())

    def probes(etas: Sequence[float]) -> list[ConstraintValue]:
        return sum_of_each(block.probes(etas) for block in visit())

    def next_edge(eta: float, upwards: bool) -> float | None:
        edges = [edge for block in blocks if (edge := block.next_edge(eta, upwards)) is not None]
        if not edges:
            return None
        return min(edges) if upwards else max(edges)

    classes = next(iter(blocks)).classes
    if free:
        (at_zero,) = probes([0.0])
        solution = Solution(0.0, at_zero.excess, at_zero, 1)
    else:
        first = next(iter(visit()))
        bounds = tally.bounds(classes, class_weights)
        solution = solve(Constraint(probes, next_edge, bounds, first.search))
    return tally.record(solution, classes, prediction_given=prediction_given)


def common_exponent(exponents: Iterable[int | None]) -> int:
    """Return the exponent that brings the weights of all blocks below one."""
    return max((exponent for exponent in exponents if exponent is not None), default=0)


Summand = TypeVar("Summand", Totals, ConstraintValue)


def sum_of(parts: Iterable[Summand]) -> Summand:
    """Return the sum of the totals or constraint values of one or more blocks."""
    return reduce(operator.add, parts)


def sum_of_each(parts: Iterable[list[ConstraintValue]]) -> list[ConstraintValue]:
    """Return the sum of the constraint values of one or more blocks, per candidate."""
    return [sum_of(probes) for probes in zip(*parts, strict=True)]


Inside = tuple[Vector, Vector]
"""The repaired masses of a level, and their complements."""


@dataclass(frozen=True, slots=True)
class RankedBlock:
    """Calibration rows in the original order of their classes, with their weights."""

    rows: RankedRows
    weight: Vector | None
    classes: int

    @classmethod
    def of(
        cls,
        original: Array,
        direct: Array,
        prediction: Predictions | None,
        weight: Vector | None,
        levels: int,
    ) -> RankedBlock:
        """Check and rank the rows."""
        rows = _ranked(original, direct, prediction, levels)
        return cls(rows, weight, direct.shape[1])

    @property
    def has_weight(self) -> bool:
        """Whether any row counts."""
        return self.weight is None or bool(self.weight.any())

    def level(self, level: int, inside: Inside | None) -> LevelBlock:
        """Return one level, given the repaired masses of the next one."""
        state = ranking.level_state(self.rows, level, inside)
        mass = ranking.level_weight(self.rows, level)
        mass = mass if self.weight is None else mass * self.weight
        return LevelBlock(state, mass, self.classes)


@dataclass(frozen=True, slots=True)
class LevelBlock:
    """One level of a block, with the mass that weights its rows."""

    state: Level
    mass: Vector
    classes: int

    @property
    def constrains(self) -> bool:
        """Whether any row has direct mass at this level."""
        return bool(self.mass.any())

    def calibration(self, *, free: bool) -> CalibrationRows:
        """Return the rows of a construction; a level that constrains nothing is ``free``."""
        state = self.state
        w, exponent = (np.ones_like(self.mass), 0) if free else scale_to_safe_exponent(self.mass)
        description = Description.from_state(state, w)
        return CalibrationRows(description, w, self.classes, exponent)

    def inside(self, eta: float) -> Inside:
        """Return the repaired masses, and their complements."""
        state = self.state
        mass, rest, _ = rule.response(eta, state.reference, state.reference_rest, state.lower)
        return mass, rest


def construct_ranking(
    blocks: SpilledBlocks[RankedBlock], levels: int, *, prediction_given: bool
) -> RankingConstruction:
    """Find one shared scalar per level, the last first, because it bounds the one before."""
    records: list[Construction] = []
    insides: SpilledBlocks[Inside] | None = None
    for level in range(levels - 1, -1, -1):
        level_blocks = blocks.with_blocks(
            block.level(level, inside)
            for block, inside in zip(blocks, insides or repeat(None), strict=False)
        )
        free = not any(block.constrains for block in level_blocks)
        rows = level_blocks.with_blocks(block.calibration(free=free) for block in level_blocks)
        records.insert(0, construct(rows, prediction_given=prediction_given, free=free))
        insides = level_blocks.with_blocks(block.inside(records[0].eta) for block in level_blocks)
    return RankingConstruction(tuple(records))


def _ranked(
    original: Array, direct: Array, prediction: Predictions | None, levels: int
) -> RankedRows:
    """Check all rows and arrange them in the original order, as NumPy vectors."""
    blocks = dispatch.checked_blocks(original, direct, prediction)
    parts = [block.ranked(levels) for block in blocks]
    # Only a repair needs the tail itself; a construction needs its sum and its largest entry,
    # and of the order the preserved ranks and the next one.
    joined = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in RankedRows.__dataclass_fields__
        if name not in ("order", "tail", "rank")
    }
    order = np.concatenate([part.order[:, : levels + 1] for part in parts])
    return RankedRows(**joined, order=order, tail=np.empty(0), rank=np.empty(0, dtype=np.intp))


# Ten million rows take 240 MB; more than that goes to disk.
SPILL_BYTES = 2**28


@dataclass(frozen=True, slots=True)
class RowSummary:
    """A batch of calibration rows, reduced to a few numbers per row."""

    rows_of: CalibrationRows | RankedBlock
    rows: int
    classes: int
    prediction_given: bool
    weighted: bool


class ConstructionState:
    """Accumulates calibration rows for a construction: three numbers per row and some sums.

    States of other batches, threads or machines can be merged; the scalar does not depend on
    how the rows were split.

    Parameters
    ----------
    levels : int
        How many ranks to preserve.
    threads : int
        Cores to use.
    spill_bytes : int, optional
        Bytes to keep in memory; more go to a temporary file.
    class_weights : ndarray of shape (K,), optional
        The weights of a `PredictionRule`, which decides instead of the argmax.
    """

    def __init__(
        self,
        levels: int,
        threads: int,
        spill_bytes: int | None = SPILL_BYTES,
        class_weights: Vector | None = None,
    ) -> None:
        self.levels, self.threads, self.class_weights = levels, threads, class_weights
        self.rows = 0
        self.classes: int | None = None
        self.prediction_given: bool | None = None
        self.weighted: bool | None = None
        self._blocks: SpilledBlocks[CalibrationRows | RankedBlock] = SpilledBlocks(spill_bytes)

    def add(
        self,
        original: Array,
        direct: Array,
        prediction: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add a batch of rows, as arrays of one shape."""
        self._check_like_before(direct.shape[1], prediction is not None, sample_weight is not None)
        with renumber_rows(self.rows):
            block = self.describe(original, direct, prediction, sample_weight)
        self.append(block)
        return self

    def describe(
        self,
        original: Array,
        direct: Array,
        prediction: ArrayLike | None,
        sample_weight: ArrayLike | None,
    ) -> RowSummary:
        """Check a batch and reduce it to a block, without changing the state (thread-safe)."""
        rows, classes = direct.shape
        keep = None if prediction is None else check_predictions(prediction, rows, classes)
        weight = None
        if sample_weight is not None:
            weight = check_weights(sample_weight, rows, some=False)
        return self.reduced(original, direct, keep, weight)

    def reduced(
        self, original: Array, direct: Array, keep: Predictions | None, weight: Vector | None
    ) -> RowSummary:
        """Reduce a batch with checked predictions and weights."""
        rows, classes = direct.shape
        if self.levels > 1:
            block: CalibrationRows | RankedBlock = RankedBlock.of(
                original, direct, keep, weight, self.levels
            )
        else:
            block = CalibrationRows.of(
                original, direct, keep, weight, self.threads, self.class_weights
            )
        return RowSummary(block, rows, classes, keep is not None, weight is not None)

    def append(self, block: RowSummary) -> None:
        """Add a block from `describe`."""
        self._check_like_before(block.classes, block.prediction_given, block.weighted)
        self.classes, self.prediction_given = block.classes, block.prediction_given
        self.weighted = block.weighted
        self._blocks.append(block.rows_of)
        self.rows += block.rows

    def _check_like_before(self, classes: int, prediction: bool, weight: bool) -> None:
        if self.classes not in (None, classes):
            raise InputError(
                "direct",
                f"has {classes} classes but earlier batches had {self.classes}",
                "pass the same columns in every batch",
            )
        for name, passed, before in (
            ("prediction", prediction, self.prediction_given),
            ("sample_weight", weight, self.weighted),
        ):
            if before not in (None, passed):
                raise InputError(
                    name,
                    f"is {'given' if passed else 'missing'} from row {self.rows} on",
                    "pass it with every batch or with none",
                )

    def merge(self, other: Self) -> Self:
        """Add the rows of another state; return this state."""
        if not self.rows:
            self.classes, self.prediction_given = other.classes, other.prediction_given
            self.weighted = other.weighted
        elif other.rows and self._made_like() != other._made_like():
            raise InputError(
                "states",
                "are of different classes, arguments, ranks or prediction rules",
                "merge states that were made alike",
            )
        for block in other._blocks:
            self._blocks.append(block)
        self.rows += other.rows
        return self

    def _made_like(self) -> tuple[object, ...]:
        weights = None if self.class_weights is None else tuple(self.class_weights.tolist())
        return self.classes, self.prediction_given, self.weighted, self.levels, weights

    def construct(self) -> Construction | RankingConstruction:
        """Find the shared scalar of all rows."""
        if not self.rows or self.prediction_given is None:
            raise InputError("batches", "have no calibration rows", "pass at least one")
        if self.weighted and not any(block.has_weight for block in self._blocks):
            raise zero_weight_error()
        if self.levels > 1:
            ranked = cast("SpilledBlocks[RankedBlock]", self._blocks)
            return construct_ranking(ranked, self.levels, prediction_given=self.prediction_given)
        rows = cast("SpilledBlocks[CalibrationRows]", self._blocks)
        return construct(
            rows, prediction_given=self.prediction_given, class_weights=self.class_weights
        )
