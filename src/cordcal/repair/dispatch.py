"""Turn every kind of input into rows: lazy collections, dense arrays, other array libraries.

Only this module depends on the kind of input; a repair itself is a rule for rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, renumber_rows
from cordcal._numeric import arrays
from cordcal._numeric.exact import scale_to_safe_exponent
from cordcal._numeric.types import Decisions
from cordcal._validation import layouts
from cordcal._validation.labels import check_weights
from cordcal._validation.layouts import align_rows
from cordcal._validation.scores import check_same_shape
from cordcal.repair.construction import ConstructionState
from cordcal.repair.inputs import (
    batch_arguments,
    check_against_fit,
    check_pair,
    output_array,
    output_dtype,
    same_array,
)
from cordcal.repair.results import Construction, RankingConstruction

AnyConstruction = Construction | RankingConstruction


class HasState(Protocol):
    """A repair with a shared scalar: it creates the state that accumulates its rows."""

    def _new_state(self, classes: int, spill_bytes: int | None) -> ConstructionState:
        """Return an empty state for rows of this many classes."""


class Repair(Protocol):
    """A fitted repair: its rule for rows."""

    construction_: Any

    def _repair_rows(
        self,
        original: npt.NDArray[Any],
        direct: npt.NDArray[Any],
        decision: Decisions | None,
        out: npt.NDArray[Any],
    ) -> None:
        """Write repaired NumPy rows to ``out``: one of the inputs, or no overlap with them."""

    def _repair_foreign(
        self, original: Any, direct: Any, decision: Decisions | None, dtype: Any
    ) -> Any:
        """Return repaired rows of another library, on their device."""


def construct(
    repair: HasState,
    original: Any,
    direct: Any,
    decision: Any,
    sample_weight: Any,
    axis: int | None,
) -> AnyConstruction:
    """Find the shared scalar of calibration rows of any kind."""
    collection = layouts.lazy_handler(original, direct)
    if collection is not None:
        construction: AnyConstruction = collection.construct(
            repair, original, direct, decision, sample_weight
        )
        return construction
    original, direct, decision, sample_weight = align_rows(
        original=original, direct=direct, decision=decision, sample_weight=sample_weight
    )
    if layouts.is_dense(axis, original, direct):
        assert axis is not None
        check_same_shape(original, "original", direct, "direct")
        views = layouts.row_views(axis, (original, direct), (decision, sample_weight))
        return construct_batches(repair, ((*pair, *vectors) for _, pair, vectors in views))
    p, q = check_pair(original, direct)
    weight = None
    if sample_weight is not None:
        weight, _ = scale_to_safe_exponent(check_weights(sample_weight, q.shape[0]))
    return repair._new_state(q.shape[1], None).add(p, q, decision, weight).construct()


def construct_batches(
    repair: HasState,
    batches: Iterable[Sequence[Any] | Mapping[str, Any]],
    spill_bytes: int | None = None,
) -> AnyConstruction:
    """Find the shared scalar of rows that come in batches."""
    state: ConstructionState | None = None
    for batch in batches:
        arguments = batch_arguments(batch)
        arguments = dict(zip(arguments, align_rows(**arguments), strict=True))
        p, q = check_pair(arguments["original"], arguments["direct"])
        if state is None:
            state = repair._new_state(q.shape[1], spill_bytes)
        state.add(p, q, arguments.get("decision"), arguments.get("sample_weight"))
    if state is None:
        raise InputError("batches", "is empty", "pass at least one batch of calibration rows")
    return state.construct()


def transform(
    repair: Repair,
    original: Any,
    direct: Any,
    decision: Any,
    dtype: Any,
    out: npt.NDArray[Any] | None,
    axis: int | None,
) -> Any:
    """Repair rows of any kind with a fitted rule."""
    collection = layouts.lazy_handler(original, direct)
    if collection is not None:
        if out is not None or axis is not None:
            raise InputError("out and axis", "are not served for dask collections", "omit them")
        return collection.transform(repair, original, direct, decision, dtype)
    original, direct, decision = align_rows(original=original, direct=direct, decision=decision)
    if layouts.is_dense(axis, original, direct) and np.ndim(direct) > 1:
        assert axis is not None
        return _transform_dense(repair, original, direct, decision, dtype, out, axis)
    p, q = check_pair(original, direct, allow_row=True)
    single = q.ndim == 1
    if single:
        p, q = p[None, :], q[None, :]
    keep = check_against_fit(repair.construction_, q, decision)
    if not isinstance(q, np.ndarray):
        if out is not None:
            raise InputError("out", "is supported for NumPy arrays only", "omit it")
        target_dtype = q.dtype if dtype is None else output_dtype(q, dtype)
        repaired = repair._repair_foreign(p, q, keep, target_dtype)
        return repaired[0, :] if single else repaired
    target = output_array(q, dtype, out, single)
    if out is not None:
        _repair_into(repair, p, q, keep, target)
        return out
    repair._repair_rows(p, q, keep, target)
    return target[0] if single else target


def _transform_dense(
    repair: Repair, original: Any, direct: Any, decision: Any, dtype: Any, out: Any, axis: int
) -> Any:
    check_same_shape(original, "original", direct, "direct")
    place = layouts.check_axis(axis, np.ndim(direct), "direct")
    if not isinstance(direct, np.ndarray):
        xp = arrays.namespace(original, direct)
        if xp is not np:
            return _transform_dense_foreign(xp, repair, original, direct, decision, dtype, place)
        direct = np.asarray(direct, dtype=np.float64)
    target = output_array(direct, dtype, out, False)
    written = np.empty_like(target) if _overlaps(target, original, direct) else target
    views = layouts.row_views(place, (original, direct, written), (decision,))
    for first, (p, q, part), (block_decision,) in views:
        with renumber_rows(first):
            transform(repair, p, q, block_decision, None, part, None)
    if written is not target:
        target[...] = written
    return target


def _transform_dense_foreign(
    xp: Any, repair: Repair, original: Any, direct: Any, decision: Any, dtype: Any, place: int
) -> Any:
    p, q = (xp.moveaxis(array, place, -1) for array in (original, direct))
    originals, directs = (xp.reshape(array, (-1, q.shape[-1])) for array in (p, q))
    keep = None if decision is None else arrays.to_numpy(decision).reshape(-1)
    repaired = transform(repair, originals, directs, keep, dtype, None, None)
    return xp.moveaxis(xp.reshape(repaired, q.shape), -1, place)


def _overlaps(out: npt.NDArray[Any], *inputs: Any) -> bool:
    """Whether writing to ``out`` would change rows of an input before they are read.

    ``out`` may be an input itself: each row is read before it is written.
    """
    for x in inputs:
        if isinstance(x, np.ndarray) and np.may_share_memory(out, x) and not same_array(out, x):
            return True
    return False


def _repair_into(
    repair: Repair,
    original: npt.NDArray[Any],
    direct: npt.NDArray[Any],
    decision: Decisions | None,
    out: npt.NDArray[Any],
) -> None:
    """Repair NumPy rows into ``out``, which may be or overlap an input."""
    written = np.empty_like(out) if _overlaps(out, original, direct) else out
    repair._repair_rows(original, direct, decision, written)
    if written is not out:
        out[...] = written
