"""From what a caller brings to rows of one kind: lazy collections, dense arrays, other libraries.

Everything that depends on how reports come is decided here, once; behind it a repair is a
rule for rows.
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
from cordcal._validation.alignment import align_rows
from cordcal._validation.labels import check_weights
from cordcal._validation.probabilities import check_same_shape
from cordcal.repair.construction import ConstructionState
from cordcal.repair.inputs import (
    batch_arguments,
    check_against_fit,
    output_array,
    report_pair,
    same_array,
    wanted_dtype,
)
from cordcal.repair.results import Construction, RankingConstruction

Found = Construction | RankingConstruction


class Constructed(Protocol):
    """What the fronts ask of a repair that finds shared scalars: how to gather its rows."""

    def _new_state(self, classes: int, spill_bytes: int | None) -> ConstructionState:
        """Return an empty state for reports of this many classes."""


class Repair(Protocol):
    """What the fronts ask of a fitted repair: its rule for rows."""

    construction_: Any

    def _repair_rows(
        self,
        original: npt.NDArray[Any],
        direct: npt.NDArray[Any],
        decision: Decisions | None,
        out: npt.NDArray[Any],
    ) -> None:
        """Write repaired NumPy rows to ``out``, which may be an input but overlaps none."""

    def _repair_foreign(
        self, original: Any, direct: Any, decision: Decisions | None, dtype: Any
    ) -> Any:
        """Return repaired rows of another library, where they live."""


# The construction.


def construct(
    repair: Constructed,
    original: Any,
    direct: Any,
    decision: Any,
    sample_weight: Any,
    axis: int | None,
) -> Found:
    """Find the shared scalar of calibration rows, however they come."""
    collection = layouts.lazy_handler(original, direct)
    if collection is not None:
        found: Found = collection.construct(repair, original, direct, decision, sample_weight)
        return found
    original, direct, decision, sample_weight = align_rows(
        original=original, direct=direct, decision=decision, sample_weight=sample_weight
    )
    if layouts.is_dense(axis, original, direct):
        assert axis is not None
        check_same_shape(original, "original", direct, "direct")
        views = layouts.row_views(axis, (original, direct), (decision, sample_weight))
        return construct_batches(repair, ((*pair, *beside) for _, pair, beside in views))
    p, q = report_pair(original, direct)
    weight = None
    if sample_weight is not None:
        weight, _ = scale_to_safe_exponent(check_weights(sample_weight, q.shape[0]))
    return repair._new_state(q.shape[1], None).add(p, q, decision, weight).construct()


def construct_batches(
    repair: Constructed,
    batches: Iterable[Sequence[Any] | Mapping[str, Any]],
    spill_bytes: int | None = None,
) -> Found:
    """Find the shared scalar of rows that come in batches."""
    state: ConstructionState | None = None
    for batch in batches:
        given = batch_arguments(batch)
        given = dict(zip(given, align_rows(**given), strict=True))
        p, q = report_pair(given["original"], given["direct"])
        if state is None:
            state = repair._new_state(q.shape[1], spill_bytes)
        state.add(p, q, given.get("decision"), given.get("sample_weight"))
    if state is None:
        raise InputError("batches", "is empty", "pass at least one batch of calibration rows")
    return state.construct()


# The repair.


def transform(
    repair: Repair,
    original: Any,
    direct: Any,
    decision: Any,
    dtype: Any,
    out: npt.NDArray[Any] | None,
    axis: int | None,
) -> Any:
    """Repair reports by a fitted rule, however they come."""
    collection = layouts.lazy_handler(original, direct)
    if collection is not None:
        if out is not None or axis is not None:
            raise InputError(
                "out and axis", "are not served for dask collections", "leave them out"
            )
        return collection.transform(repair, original, direct, decision, dtype)
    original, direct, decision = align_rows(original=original, direct=direct, decision=decision)
    if layouts.is_dense(axis, original, direct) and np.ndim(direct) > 1:
        assert axis is not None
        return _transform_dense(repair, original, direct, decision, dtype, out, axis)
    p, q = report_pair(original, direct, allow_row=True)
    single = q.ndim == 1
    if single:
        p, q = p[None, :], q[None, :]
    keep = check_against_fit(repair.construction_, q, decision)
    if not isinstance(q, np.ndarray):
        if out is not None:
            raise InputError("out", "is served for NumPy arrays only", "leave it out")
        wanted = q.dtype if dtype is None else wanted_dtype(q, dtype)
        repaired = repair._repair_foreign(p, q, keep, wanted)
        return repaired[0, :] if single else repaired
    target = output_array(q, dtype, out, single)
    if out is not None:
        _repair_apart(repair, p, q, keep, target)
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
    for first, (p, q, part), (kept,) in views:
        with renumber_rows(first):
            transform(repair, p, q, kept, None, part, None)
    if written is not target:
        target[...] = written
    return target


def _transform_dense_foreign(
    xp: Any, repair: Repair, original: Any, direct: Any, decision: Any, dtype: Any, place: int
) -> Any:
    p, q = (xp.moveaxis(each, place, -1) for each in (original, direct))
    originals, directs = (xp.reshape(each, (-1, q.shape[-1])) for each in (p, q))
    keep = None if decision is None else arrays.to_numpy(decision).reshape(-1)
    repaired = transform(repair, originals, directs, keep, dtype, None, None)
    return xp.moveaxis(xp.reshape(repaired, q.shape), -1, place)


def _overlaps(out: npt.NDArray[Any], *inputs: Any) -> bool:
    """Whether writing to ``out`` would change rows of an input that are still to be read.

    An input itself may be written to: its rows are read before they are written.
    """
    for x in inputs:
        if isinstance(x, np.ndarray) and np.may_share_memory(out, x) and not same_array(out, x):
            return True
    return False


def _repair_apart(
    repair: Repair,
    original: npt.NDArray[Any],
    direct: npt.NDArray[Any],
    decision: Decisions | None,
    out: npt.NDArray[Any],
) -> None:
    """Repair NumPy rows into ``out``, which may be an input, or overlap one."""
    written = np.empty_like(out) if _overlaps(out, original, direct) else out
    repair._repair_rows(original, direct, decision, written)
    if written is not out:
        out[...] = written
