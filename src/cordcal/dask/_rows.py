"""Work on dask collections: rows stay on their workers; only sums are sent.

Everything runs on the active scheduler: threads, a LocalCluster or a remote cluster.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import dask
import dask.array as da
import numpy as np
from dask.delayed import Delayed, delayed

from cordcal._errors import InputError, renumber_rows
from cordcal._numeric import arrays
from cordcal._numeric.types import ArrayLike, DType, NumPyArray
from cordcal._validation import layouts
from cordcal._validation.labels import zero_weight_error
from cordcal._validation.scores import as_matrix, check_same_shape
from cordcal.repair.construction import (
    CalibrationRows,
    ConstructionState,
    RankedBlock,
    Totals,
    common_exponent,
    sum_of,
    sum_of_each,
)
from cordcal.repair.results import Construction, RankingConstruction
from cordcal.repair.solve import ConstraintValue, solve_in_rounds

if TYPE_CHECKING:
    from cordcal.evaluate.audit import AuditStream
    from cordcal.repair import CORD, Lift

Block = TypeVar("Block")
Result = TypeVar("Result")


class _Stream(Protocol):
    @property
    def update(self) -> Callable[..., object]: ...

    @property
    def merge(self) -> Callable[..., object]: ...


AnyStream = TypeVar("AnyStream", bound=_Stream)

# Levels that are fitted on the workers; each takes up to ten rounds.
_MAX_LEVELS = 10
# Sums are reduced in a tree, so that no worker receives thousands of messages.
_FAN_IN = 16


@dataclass(frozen=True, eq=False)
class Rows:
    """Collections of the same rows, with the same chunks.

    Attributes
    ----------
    columns : dict of str to dask array
        Arrays by argument name; matrices have one chunk across the classes.
    firsts : list of int or None
        The number of each block's first row; None if the blocks' lengths are unknown.
    """

    columns: dict[str, da.Array]
    firsts: list[int] | None

    @classmethod
    def of(cls, **collections: ArrayLike) -> Rows:
        """Give all collections the chunks of the first; None is ignored."""
        columns: dict[str, da.Array] = {}
        for name, values in collections.items():
            if values is not None:
                columns[name] = _align_chunks(_as_array(values), name, columns)
        sizes = next(iter(columns.values())).chunks[0]
        are_known = not np.isnan(np.sum(sizes))
        firsts = np.cumsum([0, *sizes[:-1]]).tolist() if are_known else None
        return cls(columns, firsts)

    @property
    def classes(self) -> int:
        """The number of columns of the first collection."""
        return int(next(iter(self.columns.values())).shape[1])

    def map(self, function: Callable[..., Any], *arguments: Any) -> list[Delayed]:
        """Return delayed calls of ``function(*arguments, **blocks)``, one per block of rows."""
        blocks = {name: array.to_delayed().ravel() for name, array in self.columns.items()}
        count = len(next(iter(blocks.values())))
        run = delayed(_call_on_block, pure=False)
        return [
            run(
                function,
                None if self.firsts is None else self.firsts[index],
                index,
                arguments,
                {name: parts[index] for name, parts in blocks.items()},
            )
            for index in range(count)
        ]

    def blockwise(
        self, function: Callable[..., NumPyArray], dtype: DType, shape: str = "ij"
    ) -> da.Array:
        """Return a lazy array of ``function(**blocks)``."""
        pairs: list[da.Array | str] = []
        for array in self.columns.values():
            pairs += [array, "ij"[: array.ndim]]
        # One number per block, negative if the lengths before it are unknown.
        count = len(next(iter(self.columns.values())).chunks[0])
        first_rows = da.from_array(np.array(self.firsts or [-1] * count), chunks=1)
        return da.blockwise(
            functools.partial(_call_blockwise, function, tuple(self.columns)),
            shape,
            *pairs,
            first_rows,
            "i",
            dtype=dtype,
            meta=np.empty((0,) * len(shape), dtype=dtype),
            align_arrays=False,
            concatenate=True,
        )


def _as_array(values: ArrayLike) -> da.Array:
    """Return a dask array; a data frame's columns are classes."""
    if hasattr(values, "to_dask_array"):
        return values.to_dask_array()
    return values if arrays.is_dask(values) else da.asarray(arrays.to_numpy(values))


def _align_chunks(array: da.Array, name: str, columns: dict[str, da.Array]) -> da.Array:
    if array.ndim == 2 and len(array.chunks[1]) > 1:
        array = array.rechunk({1: -1})
    if not columns:
        return array
    first_name, first = next(iter(columns.items()))
    sizes, array_sizes = first.chunks[0], array.chunks[0]
    if np.isnan(np.sum(sizes)) or np.isnan(np.sum(array_sizes)):
        # Lengths become known when blocks are computed, so blocks must correspond.
        if len(sizes) != len(array_sizes):
            raise InputError(
                first_name,
                f"has {len(sizes)} blocks and {name} {len(array_sizes)}, of unknown lengths",
                "call compute_chunk_sizes() on dask arrays, or use the same partitions",
            )
        return array
    if sum(sizes) != sum(array_sizes):
        raise InputError(
            first_name,
            f"has {sum(sizes)} rows but {name} has {sum(array_sizes)}",
            "both must hold the same rows",
        )
    return array if sizes == array_sizes else array.rechunk({0: sizes})


def _call_on_block(
    function: Callable[..., Result],
    first: int | None,
    index: int,
    arguments: tuple[Any, ...],
    blocks: dict[str, NumPyArray],
) -> Result:
    """Call a function on one block; an error has the row in the whole, or the block."""
    rows = {len(block) for block in blocks.values()}
    if len(rows) > 1:
        sizes = ", ".join(f"{name} {len(block)}" for name, block in blocks.items())
        raise ValueError(f"block {index} has different numbers of rows ({sizes})")
    if first is not None and first >= 0:
        with renumber_rows(first):
            return function(*arguments, **blocks)
    try:
        return function(*arguments, **blocks)
    except InputError as error:
        raise error.with_argument(f"block {index}: {error.argument}") from None


def _call_blockwise(
    function: Callable[..., NumPyArray], names: tuple[str, ...], *blocks: NumPyArray
) -> NumPyArray:
    *arguments, first_row = blocks
    # Dask infers the type of the result with empty blocks.
    first = int(first_row[0]) if first_row.size else 0
    return _call_on_block(function, first, 0, (), dict(zip(names, arguments, strict=True)))


def _tree_reduce(parts: Sequence[Delayed], add: Callable[[list[Any]], Block]) -> Block:
    """Reduce the results of the blocks in a tree on the workers."""
    combine = delayed(add, pure=False)
    while len(parts) > 1:
        parts = [
            combine(list(parts[start : start + _FAN_IN])) for start in range(0, len(parts), _FAN_IN)
        ]
    total: Block = dask.compute(parts[0])[0]
    return total


# Fitting.


def construct(
    cord: CORD,
    original: ArrayLike,
    direct: ArrayLike,
    prediction: ArrayLike,
    sample_weight: ArrayLike,
) -> Construction | RankingConstruction:
    """Find the shared scalar without moving rows; see `CORD.fit`."""
    rows = Rows.of(
        direct=direct, original=original, prediction=prediction, sample_weight=sample_weight
    )
    levels = cord.count_levels(rows.classes)
    if levels > _MAX_LEVELS:
        # So many levels need too many rounds, so the ranking is fitted in memory.
        in_memory = dict(zip(rows.columns, dask.compute(*rows.columns.values()), strict=True))
        return type(cord)(cord.preserve).fit(**in_memory).construction_
    class_weights = cord.weights_for(rows.classes)
    blocks = dask.persist(*rows.map(_describe, levels, class_weights))
    filled = _non_empty(blocks)
    prediction_given = prediction is not None
    if sample_weight is not None and not any(dask.compute(*[block.has_weight for block in filled])):
        raise zero_weight_error()
    if levels == 1:
        return _construct_level(filled, rows.classes, prediction_given, class_weights, free=False)
    return _construct_ranking(filled, rows.classes, levels, prediction_given)


def _describe(
    levels: int,
    class_weights: NumPyArray | None,
    *,
    original: NumPyArray,
    direct: NumPyArray,
    prediction: NumPyArray | None = None,
    sample_weight: NumPyArray | None = None,
) -> CalibrationRows | RankedBlock | None:
    """Reduce one block of rows; None if it is empty, as filtered partitions may be."""
    if not len(direct):
        return None
    p, q = as_matrix(original, "original"), as_matrix(direct, "direct")
    check_same_shape(p, "original", q, "direct")
    state = ConstructionState(levels, 1, class_weights=class_weights)
    return state.describe(p, q, prediction, sample_weight).rows_of


def _non_empty(blocks: Sequence[Delayed]) -> list[Delayed]:
    """Return the blocks that have rows."""
    non_empty = dask.compute(*[delayed(_is_not_empty)(block) for block in blocks])
    filled_blocks = [block for block, filled in zip(blocks, non_empty, strict=True) if filled]
    if not filled_blocks:
        raise InputError("original and direct", "have no rows", "pass at least one")
    return filled_blocks


def _is_not_empty(block: object) -> bool:
    return block is not None


def _construct_level(
    blocks: Sequence[Delayed],
    classes: int,
    prediction_given: bool,
    class_weights: Any = None,
    *,
    free: bool,
) -> Construction:
    shared = common_exponent(dask.compute(*[block.exponent for block in blocks]))
    rows = dask.persist(*[block.rescaled(shared) for block in blocks])
    tally: Totals = _tree_reduce([block.tally() for block in rows], sum_of)

    def probe(etas: Sequence[float]) -> list[ConstraintValue]:
        values: list[ConstraintValue] = _tree_reduce(
            [block.probes(list(etas)) for block in rows], sum_of_each
        )
        return values

    solution = solve_in_rounds(tally.bounds(classes, class_weights), probe, free=free)
    return tally.record(solution, classes, prediction_given=prediction_given)


def _construct_ranking(
    blocks: Sequence[Delayed], classes: int, levels: int, prediction_given: bool
) -> RankingConstruction:
    """Fit one level after another from the inside out, as in `repair.ranking`."""
    records: list[Construction] = []
    insides: Sequence[Delayed | None] = [None] * len(blocks)
    for level in range(levels - 1, -1, -1):
        level_blocks = dask.persist(
            *[block.level(level, inside) for block, inside in zip(blocks, insides, strict=True)]
        )
        free = not any(dask.compute(*[block.constrains for block in level_blocks]))
        rows = [block.calibration(free=free) for block in level_blocks]
        records.insert(0, _construct_level(rows, classes, prediction_given, free=free))
        insides = dask.persist(*[block.inside(records[0].eta) for block in level_blocks])
    return RankingConstruction(tuple(records))


def described(
    describe: Callable[..., list[Block]], **columns: ArrayLike
) -> tuple[int, list[Block]]:
    """Return the number of classes, and the summaries of all blocks; see `Lift.fit`."""
    rows = Rows.of(**columns)
    blocks = dask.compute(*rows.map(_describe_block, describe))
    parts = [part for block in blocks for part in block]
    if not parts:
        raise InputError("original and direct", "have no rows", "pass at least one")
    return rows.classes, parts


def _describe_block(
    describe: Callable[..., list[Block]], *, direct: NumPyArray, **block_columns: NumPyArray
) -> list[Block]:
    return describe(direct=direct, **block_columns) if len(direct) else []


# Probabilities, metrics and audits.


def transform(
    cord: CORD | Lift,
    original: ArrayLike,
    direct: ArrayLike,
    prediction: ArrayLike,
    dtype: DType | None,
) -> da.Array:
    """Repair lazily; see `CORD.transform`."""
    rows = Rows.of(direct=direct, original=original, prediction=prediction)
    output_dtype = np.dtype(rows.columns["direct"].dtype if dtype is None else dtype)

    def repair(
        direct: NumPyArray, original: NumPyArray, prediction: NumPyArray | None = None
    ) -> NumPyArray:
        if not len(direct):
            return np.empty(direct.shape, output_dtype)
        repaired: NumPyArray = cord.transform(
            original, direct, prediction=prediction, dtype=output_dtype
        )
        return repaired

    return rows.blockwise(repair, output_dtype)


def apply(
    function: Callable[[NumPyArray], ArrayLike],
    scores: ArrayLike,
    dtype: DType,
    *,
    shape: str = "ij",
) -> da.Array:
    """Call ``function(rows)`` on every block of scores, lazily; see `PreservingCalibrator`."""
    output_dtype = np.dtype(dtype)

    def on_block(scores: NumPyArray) -> NumPyArray:
        if not len(scores):
            return np.empty(scores.shape[: len(shape)], output_dtype)
        return np.asarray(function(scores), dtype=output_dtype)

    return Rows.of(scores=scores).blockwise(on_block, output_dtype, shape)


def update_stream(
    stream: AnyStream,
    outputs: Sequence[ArrayLike],
    labels: ArrayLike,
    sample_weight: ArrayLike,
    ignore_index: int | None,
) -> AnyStream:
    """Return a metric stream updated with every block."""
    names = [f"output{index}" for index in range(len(outputs))]
    columns = dict(zip(names, outputs, strict=True))
    # A matrix comes first, because predicted classes do not have the number of classes.
    rows = Rows.of(**columns, labels=labels, sample_weight=sample_weight)
    streams = rows.map(_update_with_block, stream, tuple(names), ignore_index)
    updated: AnyStream = _tree_reduce(streams, _merge)
    return updated


def _update_with_block(
    stream: AnyStream,
    names: tuple[str, ...],
    ignore_index: int | None,
    *,
    labels: NumPyArray | None = None,
    sample_weight: NumPyArray | None = None,
    **columns: NumPyArray,
) -> AnyStream:
    block_stream = copy.deepcopy(stream)
    outputs = [columns[name] for name in names]
    if not len(outputs[0]):
        return block_stream
    for rows, block, block_labels, weight in layouts.labelled_blocks(
        None, ignore_index, outputs, labels, sample_weight
    ):
        with renumber_rows(rows):
            block_stream.update(
                *block, *([] if block_labels is None else [block_labels]), sample_weight=weight
            )
    return block_stream


def _merge(streams: list[AnyStream]) -> AnyStream:
    # Merging modifies the left side, which dask may still need for another task.
    total = copy.deepcopy(streams[0])
    for stream in streams[1:]:
        total.merge(stream)
    return total


def audited(
    cord: CORD | Lift,
    original: ArrayLike,
    direct: ArrayLike,
    labels: ArrayLike,
    *,
    prediction: ArrayLike,
    sample_weight: ArrayLike,
) -> AuditStream:
    """Return an audit stream updated with every block; only a few numbers per row are sent."""
    rows = Rows.of(
        direct=direct,
        original=original,
        labels=labels,
        prediction=prediction,
        sample_weight=sample_weight,
    )
    updated: AuditStream = _tree_reduce(rows.map(_audit_block, cord), _merge)
    return updated


def _audit_block(
    cord: CORD | Lift,
    *,
    original: NumPyArray,
    direct: NumPyArray,
    labels: NumPyArray | None = None,
    **block_columns: NumPyArray,
) -> AuditStream:
    from cordcal.evaluate.audit import AuditStream

    stream = AuditStream(cord)
    return stream.update(original, direct, labels, **block_columns) if len(direct) else stream
