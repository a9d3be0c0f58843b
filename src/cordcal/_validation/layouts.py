"""Inputs that are not rows: dense arrays with classes along any axis, and lazy collections."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric import arrays

View = npt.NDArray[Any]


def check_axis(axis: Any, dimensions: int, name: str) -> int:
    """Return the axis of the classes, counted from the front."""
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
        raise InputError(
            "axis", f"is {axis!r}", "pass the number of the dimension that holds classes"
        )
    if not -dimensions <= axis < dimensions:
        raise InputError(
            "axis",
            f"is {axis} but {name} has {dimensions} dimension(s)",
            "pass the one that holds the classes",
        )
    return int(axis) % dimensions


def is_dense(axis: Any, *reports: Any) -> bool:
    """Whether the rows of these reports need `row_views`: not for (n, K) with classes last."""
    if axis is None:
        return False
    dimensions = max(np.ndim(report) for report in reports)
    return dimensions != 2 or check_axis(axis, dimensions, "the array") != 1


def row_views(
    axis: int, reports: Sequence[Any], vectors: Sequence[Any] = ()
) -> Iterator[tuple[int, list[View], list[Any]]]:
    """Yield (first row, (rows, K) views of the reports, slices of the vectors).

    Parameters
    ----------
    axis : int
        The dimension of the classes in the reports.
    reports : sequence of array
        Arrays of one shape.
    vectors : sequence of array or None
        Arrays of that shape without the classes: labels, weights, decisions.

    Examples
    --------
    >>> images = np.zeros((2, 10, 4, 4))
    >>> [(first, views[0].shape) for first, views, _ in row_views(1, [images])]
    [(0, (16, 10)), (16, (16, 10))]
    >>> [views[0].shape for _, views, _ in row_views(-1, [np.zeros((2, 5, 3))])]
    [(10, 3)]
    """
    given = [arrays.to_numpy(report) for report in reports]
    place = check_axis(axis, given[0].ndim, "the array")
    moved = [np.moveaxis(report, place, -1) for report in given]
    shape = moved[0].shape[:-1]
    beside = [None if vector is None else _beside(vector, shape) for vector in vectors]
    depth = 0
    while not all(_viewable(report, depth) for report in moved):
        depth += 1
    first = 0
    for at in np.ndindex(shape[:depth]):
        views = [report[at].reshape(-1, report.shape[-1]) for report in moved]
        parts = [None if vector is None else vector[at].reshape(-1) for vector in beside]
        yield first, views, parts
        first += len(views[0])


def flatten_rows(
    axis: int | None, reports: Sequence[Any], vectors: Sequence[Any] = ()
) -> tuple[list[Any], list[Any]]:
    """Return dense reports as (rows, K) matrices and what goes with them as vectors.

    For what reads all rows at once, as stories and audits do: they are copied.  Reports of
    rows come back as they are.

    Examples
    --------
    >>> (images,), (labels,) = flatten_rows(1, [np.zeros((2, 3, 4, 4))], [np.zeros((2, 4, 4))])
    >>> images.shape, labels.shape
    ((32, 3), (32,))
    """
    if axis is None or not is_dense(axis, *reports):
        return list(reports), list(vectors)
    _, views, beside = zip(*row_views(axis, reports, vectors), strict=True)
    # Rows in one piece: sums over a column-wise copy would round in another order.
    rows = [np.ascontiguousarray(np.concatenate(each)) for each in zip(*views, strict=True)]
    return rows, [
        None if each[0] is None else np.concatenate(each) for each in zip(*beside, strict=True)
    ]


def _viewable(report: View, depth: int) -> bool:
    """Whether the rows behind the first ``depth`` dimensions are one view."""
    part = report[(0,) * depth]
    try:
        np.reshape(part, (-1, report.shape[-1]), copy=False)
    except ValueError:
        return False
    return True


def _beside(vector: Any, shape: tuple[int, ...]) -> View:
    array = arrays.to_numpy(vector)
    if array.shape != shape:
        raise InputError(
            "labels, weights or decisions",
            f"have shape {array.shape} but the reports have positions {shape}",
            "pass one entry for each position",
        )
    return array


def labelled_blocks(
    axis: int | None,
    ignore_index: int | None,
    reports: Sequence[Any],
    labels: Any,
    sample_weight: Any,
) -> Iterator[tuple[Sequence[int], list[Any], Any, Any]]:
    """Yield reports, labels and weights in blocks of rows, without positions to ignore.

    What comes first is the number of each row among all positions.
    """
    if not is_dense(axis, *reports):
        yield from _unignored(0, list(reports), labels, sample_weight, ignore_index)
        return
    assert axis is not None
    # Decisions in place of a report lack the dimension of the classes.
    dimensions = max(np.ndim(report) for report in reports)
    full = [np.ndim(report) == dimensions for report in reports]
    whole = [report for report, is_full in zip(reports, full, strict=True) if is_full]
    decided = [report for report, is_full in zip(reports, full, strict=True) if not is_full]
    vectors = [labels, sample_weight, *decided]
    for first, views, (truth, weight, *kept) in row_views(axis, whole, vectors):
        rest, others = iter(views), iter(kept)
        block = [next(rest) if is_full else next(others) for is_full in full]
        yield from _unignored(first, block, truth, weight, ignore_index)


def _unignored(
    first: int, reports: list[Any], labels: Any, weight: Any, ignore_index: int | None
) -> Iterator[tuple[Sequence[int], list[Any], Any, Any]]:
    if ignore_index is None:
        yield range(first, first + np.shape(reports[0])[0]), reports, labels, weight
        return
    if labels is None:
        raise InputError(
            "ignore_index", "is given but labels are not", "pass labels, or leave it out"
        )
    truth = arrays.to_numpy(labels, "labels")
    kept = np.flatnonzero(truth != ignore_index)
    if kept.size:
        some = reports if kept.size == truth.size else [arrays.to_numpy(x)[kept] for x in reports]
        weights = None if weight is None else arrays.to_numpy(weight, "sample_weight")[kept]
        yield (kept + first).tolist(), some, truth[kept], weights


def rows_to_fit(
    axis: int | None,
    ignore_index: int | None,
    scores: Any,
    labels: Any,
    sample_weight: Any,
    features: Any,
) -> tuple[Any, Any, Any, Any]:
    """Return the rows of dense scores, and what goes with them, without those to ignore.

    For fits, which need all rows in one matrix: they are copied.
    """
    blocks = list(labelled_blocks(axis, ignore_index, [scores], labels, sample_weight))
    if not blocks:
        raise InputError(
            "labels", f"are all {ignore_index}, the ignore_index", "there are no rows left"
        )
    rows, reports, truths, weights = zip(*blocks, strict=True)
    kept = None
    if features is not None:
        codes = arrays.to_numpy(features, "features")
        kept = codes.reshape(-1, codes.shape[-1])[np.concatenate([np.array(at) for at in rows])]
    return (
        np.concatenate([arrays.to_numpy(report) for (report,) in reports]),
        None if labels is None else np.concatenate(truths),
        None if sample_weight is None else np.concatenate(weights),
        kept,
    )


# The framework's top module, and the room that registers for it.
_MODULES = {"dask": "cordcal.dask"}


class LazyHandler(Protocol):
    """What a room does for its collections; every function returns what its caller does."""

    def construct(
        self, repair: Any, original: Any, direct: Any, decision: Any, sample_weight: Any
    ) -> Any:
        """Find the shared scalar without moving rows; see `CORD.fit`."""

    def described(self, describe: Any, **columns: Any) -> tuple[int, list[Any]]:
        """Return the number of classes, and what ``describe`` makes of every block's rows."""

    def transform(self, repair: Any, original: Any, direct: Any, decision: Any, dtype: Any) -> Any:
        """Repair lazily; see `CORD.transform`."""

    def apply(self, function: Any, scores: Any, dtype: Any, *, shape: str = "ij") -> Any:
        """Call a function on every block of scores, lazily; see `PreservingCalibrator`."""

    def fed(
        self, stream: Any, reports: Any, labels: Any, sample_weight: Any, ignore_index: Any
    ) -> Any:
        """Return a stream of a measure that has seen every block's rows."""

    def audited(
        self,
        cord: Any,
        original: Any,
        direct: Any,
        labels: Any,
        *,
        decision: Any,
        sample_weight: Any,
    ) -> Any:
        """Return an audit's stream that has seen every block."""


_HANDLERS: dict[str, LazyHandler] = {}


def register_lazy(framework: str, handler: LazyHandler) -> None:
    """Serve the collections of a framework, named by its top module."""
    _HANDLERS[framework] = handler


def lazy_handler(*values: Any) -> LazyHandler | None:
    """Return who serves a lazy collection among the values; None where there is none.

    Examples
    --------
    >>> lazy_handler([0.4, 0.6]) is None
    True
    """
    for value in values:
        framework = type(value).__module__.partition(".")[0]
        if framework in _MODULES:
            if framework not in _HANDLERS:
                importlib.import_module(_MODULES[framework])
            return _HANDLERS[framework]
    return None
