"""CORD on dask collections: blocks of rows stay where they are, sums travel.

All of it runs on whatever scheduler is active: threads, a LocalCluster, a real cluster.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
import numpy as np
import numpy.typing as npt
from dask.delayed import Delayed, delayed

from cordcal._errors import InputError, renumber_rows
from cordcal._numeric import arrays
from cordcal._validation import layouts
from cordcal._validation.labels import zero_weight_error
from cordcal._validation.names import column_names, in_column_order
from cordcal._validation.probabilities import as_matrix, check_same_shape
from cordcal.repair.construction import (
    ConstructionState,
    Totals,
    common_exponent,
    sum_of,
    sum_of_each,
)
from cordcal.repair.results import Construction, RankingConstruction
from cordcal.repair.solve import ConstraintValue, solve_in_rounds

# Levels that are constructed on the workers; a level takes up to ten rounds.
MOST_LEVELS = 10
# Sums are added up in a tree, so that nobody waits for thousands of messages.
_FAN_IN = 16


@dataclass(frozen=True, eq=False)
class Rows:
    """Collections of the same rows, cut into the same blocks.

    Attributes
    ----------
    columns : dict of str to dask array
        By the argument's name; matrices have one block across the classes.
    firsts : list of int or None
        The number of each block's first row, where the blocks' lengths are known.
    """

    columns: dict[str, Any]
    firsts: list[int] | None

    @classmethod
    def of(cls, **given: Any) -> Rows:
        """Cut all collections like the first; those that are None are left out."""
        columns: dict[str, Any] = {}
        if given.get("original") is not None:
            expected = column_names(given["original"])
            given["direct"] = in_column_order(given["direct"], "direct", expected, "original")
        for name, values in given.items():
            if values is not None:
                columns[name] = _cut_like(_as_array(values), name, columns)
        sizes = next(iter(columns.values())).chunks[0]
        known = not np.isnan(np.sum(sizes))
        firsts = np.cumsum([0, *sizes[:-1]]).tolist() if known else None
        return cls(columns, firsts)

    @property
    def classes(self) -> int:
        """The number of columns of the first collection."""
        return int(next(iter(self.columns.values())).shape[1])

    def map(self, function: Callable[..., Any], *arguments: Any) -> list[Delayed]:
        """Call ``function(*arguments, **blocks)`` for every block of rows, later."""
        blocks = {name: array.to_delayed().ravel() for name, array in self.columns.items()}
        count = len(next(iter(blocks.values())))
        run = delayed(_numbered, pure=False)
        return [
            run(
                function,
                None if self.firsts is None else self.firsts[at],
                at,
                arguments,
                {name: parts[at] for name, parts in blocks.items()},
            )
            for at in range(count)
        ]

    def blockwise(self, function: Callable[..., Any], dtype: Any, shape: str = "ij") -> Any:
        """Return a lazy array of ``function(**blocks)``."""
        pairs: list[Any] = []
        for array in self.columns.values():
            pairs += [array, "ij"[: array.ndim]]
        # One number a block, negative where the lengths before it are not known.
        count = len(next(iter(self.columns.values())).chunks[0])
        places = da.from_array(np.array(self.firsts or [-1] * count), chunks=1)
        return da.blockwise(
            functools.partial(_on_blocks, function, tuple(self.columns)),
            shape,
            *pairs,
            places,
            "i",
            dtype=dtype,
            meta=np.empty((0,) * len(shape), dtype=dtype),
            align_arrays=False,
            concatenate=True,
        )


def _as_array(values: Any) -> Any:
    """Return a dask array; a data frame's columns are classes."""
    if hasattr(values, "to_dask_array"):
        return values.to_dask_array()
    return values if arrays.is_dask(values) else da.asarray(arrays.to_numpy(values))


def _cut_like(array: Any, name: str, columns: dict[str, Any]) -> Any:
    if array.ndim == 2 and len(array.chunks[1]) > 1:
        array = array.rechunk({1: -1})
    if not columns:
        return array
    first_name, first = next(iter(columns.items()))
    sizes, own = first.chunks[0], array.chunks[0]
    if np.isnan(np.sum(sizes)) or np.isnan(np.sum(own)):
        # Lengths are known when the blocks are: then the blocks must correspond.
        if len(sizes) != len(own):
            raise InputError(
                first_name,
                f"has {len(sizes)} blocks and {name} {len(own)}, of unknown lengths",
                "call compute_chunk_sizes() on dask arrays, or use the same partitions",
            )
        return array
    if sum(sizes) != sum(own):
        raise InputError(
            first_name,
            f"has {sum(sizes)} rows but {name} has {sum(own)}",
            "both must hold the same rows",
        )
    return array if sizes == own else array.rechunk({0: sizes})


def _numbered(
    function: Callable[..., Any],
    first: int | None,
    place: int,
    arguments: tuple[Any, ...],
    blocks: dict[str, Any],
) -> Any:
    """Call a function of one block; an error names the row in the whole, or the block."""
    rows = {len(block) for block in blocks.values()}
    if len(rows) > 1:
        sizes = ", ".join(f"{name} {len(block)}" for name, block in blocks.items())
        raise ValueError(f"block {place} has different numbers of rows ({sizes})")
    if first is not None and first >= 0:
        with renumber_rows(first):
            return function(*arguments, **blocks)
    try:
        return function(*arguments, **blocks)
    except InputError as refusal:
        raise refusal.with_argument(f"block {place}: {refusal.argument}") from None


def _on_blocks(function: Callable[..., Any], names: tuple[str, ...], *blocks: Any) -> Any:
    *given, place = blocks
    # Dask asks for the type of the result with empty blocks.
    first = int(place[0]) if place.size else 0
    return _numbered(function, first, 0, (), dict(zip(names, given, strict=True)))


def _total(parts: Sequence[Delayed], add: Callable[[list[Any]], Any]) -> Any:
    """Add up what the blocks return, in a tree on the workers."""
    combine = delayed(add, pure=False)
    while len(parts) > 1:
        parts = [combine(list(parts[at : at + _FAN_IN])) for at in range(0, len(parts), _FAN_IN)]
    return dask.compute(parts[0])[0]


# The construction.


def construct(
    cord: Any, original: Any, direct: Any, decision: Any, sample_weight: Any
) -> Construction | RankingConstruction:
    """Find the shared scalar without moving rows; see `CORD.fit`."""
    rows = Rows.of(direct=direct, original=original, decision=decision, sample_weight=sample_weight)
    levels = cord._levels(rows.classes)
    if levels > MOST_LEVELS:
        # So many levels are too many rounds: a whole ranking is constructed in memory.
        held = dict(zip(rows.columns, dask.compute(*rows.columns.values()), strict=True))
        found: RankingConstruction = type(cord)(cord.preserve).fit(**held).construction_
        return found
    blocks = dask.persist(*rows.map(_describe, levels))
    filled = _filled(blocks)
    given = decision is not None
    if sample_weight is not None and not any(dask.compute(*[block.has_weight for block in filled])):
        raise zero_weight_error()
    if levels == 1:
        return _construct_level(filled, rows.classes, given, free=False)
    return _construct_ranking(filled, rows.classes, levels, given)


def _describe(
    levels: int, *, original: Any, direct: Any, decision: Any = None, sample_weight: Any = None
) -> Any:
    """Reduce one block of rows; None where it is empty, as filtered partitions are."""
    if not len(direct):
        return None
    p, q = as_matrix(original, "original"), as_matrix(direct, "direct")
    check_same_shape(p, "original", q, "direct")
    return ConstructionState(levels, 1).describe(p, q, decision, sample_weight).rows_of


def _filled(blocks: Sequence[Delayed]) -> list[Delayed]:
    """Leave out the empty blocks."""
    there = dask.compute(*[delayed(_is_there)(block) for block in blocks])
    found = [block for block, filled in zip(blocks, there, strict=True) if filled]
    if not found:
        raise InputError("original and direct", "have no rows", "pass at least one")
    return found


def _is_there(block: Any) -> bool:
    return block is not None


def _construct_level(
    blocks: Sequence[Delayed], classes: int, decision_given: bool, *, free: bool
) -> Construction:
    shared = common_exponent(dask.compute(*[block.exponent for block in blocks]))
    rows = dask.persist(*[block.rescaled(shared) for block in blocks])
    tally: Totals = _total([block.tally() for block in rows], sum_of)

    def probe(etas: Sequence[float]) -> list[ConstraintValue]:
        found: list[ConstraintValue] = _total(
            [block.probes(list(etas)) for block in rows], sum_of_each
        )
        return found

    solution = solve_in_rounds(tally.bounds(classes), probe, free=free)
    return tally.record(solution, classes, decision_given=decision_given)


def _construct_ranking(
    blocks: Sequence[Delayed], classes: int, levels: int, decision_given: bool
) -> RankingConstruction:
    """Level after level from the inside out, as `_nested.construct` does."""
    records: list[Construction] = []
    insides: Sequence[Any] = [None] * len(blocks)
    for level in range(levels - 1, -1, -1):
        found = dask.persist(
            *[block.level(level, inside) for block, inside in zip(blocks, insides, strict=True)]
        )
        free = not any(dask.compute(*[block.constrains for block in found]))
        rows = [block.calibration(free=free) for block in found]
        records.insert(0, _construct_level(rows, classes, decision_given, free=free))
        insides = dask.persist(*[block.inside(records[0].eta) for block in found])
    return RankingConstruction(tuple(records))


def described(describe: Callable[..., list[Any]], **columns: Any) -> tuple[int, list[Any]]:
    """Return the number of classes, and the descriptions of every block's rows; see `Lift.fit`."""
    rows = Rows.of(**columns)
    blocks = dask.compute(*rows.map(_described_block, describe))
    parts = [part for block in blocks for part in block]
    if not parts:
        raise InputError("original and direct", "have no rows", "pass at least one")
    return rows.classes, parts


def _described_block(describe: Callable[..., list[Any]], *, direct: Any, **given: Any) -> list[Any]:
    return describe(direct=direct, **given) if len(direct) else []


# Reports and measures.


def transform(cord: Any, original: Any, direct: Any, decision: Any, dtype: Any) -> Any:
    """Repair lazily; see `CORD.transform`."""
    rows = Rows.of(direct=direct, original=original, decision=decision)
    wanted = np.dtype(rows.columns["direct"].dtype if dtype is None else dtype)

    def repair(
        direct: npt.NDArray[Any], original: npt.NDArray[Any], decision: Any = None
    ) -> npt.NDArray[Any]:
        if not len(direct):
            return np.empty(direct.shape, wanted)
        repaired: npt.NDArray[Any] = cord.transform(
            original, direct, decision=decision, dtype=wanted
        )
        return repaired

    return rows.blockwise(repair, wanted)


def apply(function: Callable[..., Any], scores: Any, dtype: Any, *, shape: str = "ij") -> Any:
    """Call ``function(rows)`` on every block of scores, lazily; see `PreservingCalibrator`."""
    wanted = np.dtype(dtype)

    def on_block(scores: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if not len(scores):
            return np.empty(scores.shape[: len(shape)], wanted)
        return np.asarray(function(scores), dtype=wanted)

    return Rows.of(scores=scores).blockwise(on_block, wanted, shape)


def update_stream(
    stream: Any, reports: Sequence[Any], labels: Any, sample_weight: Any, ignore_index: Any
) -> Any:
    """Return a stream that has seen every block's rows; see `metrics.stream.update_stream`."""
    names = [f"report{at}" for at in range(len(reports))]
    given = dict(zip(names, reports, strict=True))
    # A matrix comes first: decisions in place of a report do not say how many classes.
    rows = Rows.of(**given, labels=labels, sample_weight=sample_weight)
    seen = rows.map(_seen, stream, tuple(names), ignore_index)
    return _total(seen, _merged)


def _seen(
    stream: Any,
    names: tuple[str, ...],
    ignore_index: int | None,
    *,
    labels: Any = None,
    sample_weight: Any = None,
    **given: Any,
) -> Any:
    own = copy.deepcopy(stream)
    reports = [given[name] for name in names]
    if not len(reports[0]):
        return own
    for rows, block, truth, weight in layouts.labelled_blocks(
        None, ignore_index, reports, labels, sample_weight
    ):
        with renumber_rows(rows):
            own.update(*block, *([] if truth is None else [truth]), sample_weight=weight)
    return own


def _merged(streams: list[Any]) -> Any:
    # Merging changes its left side, which dask may still hold for somebody else.
    total = copy.deepcopy(streams[0])
    for stream in streams[1:]:
        total.merge(stream)
    return total


def audited(
    cord: Any, original: Any, direct: Any, labels: Any, *, decision: Any, sample_weight: Any
) -> Any:
    """Return an audit's stream that has seen every block; a few numbers a row travel."""
    rows = Rows.of(
        direct=direct,
        original=original,
        labels=labels,
        decision=decision,
        sample_weight=sample_weight,
    )
    return _total(rows.map(_audit_block, cord), _merged)


def _audit_block(cord: Any, *, original: Any, direct: Any, labels: Any = None, **given: Any) -> Any:
    from cordcal.evaluate.audit import AuditStream

    stream = AuditStream(cord)
    return stream.update(original, direct, labels, **given) if len(direct) else stream
