"""Which rows an input has: dense arrays with classes along any axis, lazy collections."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.arrays import to_numpy
from cordcal._numeric.types import ArrayLike, Classes, DType, Floats

View = Floats


def check_axis(axis: object, dimensions: int, name: str) -> int:
    """Return the axis of the classes as a non-negative number."""
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


def is_dense(axis: object, *matrices: ArrayLike) -> bool:
    """Whether the arrays need `row_views`; those of shape (n, K) with classes last do not."""
    if axis is None:
        return False
    dimensions = max(np.ndim(matrix) for matrix in matrices)
    return dimensions != 2 or check_axis(axis, dimensions, "the array") != 1


def row_views(
    axis: int, matrices: Sequence[ArrayLike], vectors: Sequence[ArrayLike | None] = ()
) -> Iterator[tuple[int, list[View], list[Any]]]:
    """Yield (first row, (rows, K) views of the matrices, slices of the vectors).

    Parameters
    ----------
    axis : int
        The dimension of the classes in the matrices.
    matrices : sequence of array
        Scores or probabilities of one shape.
    vectors : sequence of array or None
        Labels, weights or predictions, of that shape without the classes.

    Examples
    --------
    >>> images = np.zeros((2, 10, 4, 4))
    >>> [(first, views[0].shape) for first, views, _ in row_views(1, [images])]
    [(0, (16, 10)), (16, (16, 10))]
    >>> [views[0].shape for _, views, _ in row_views(-1, [np.zeros((2, 5, 3))])]
    [(10, 3)]
    """
    arrays = [to_numpy(matrix) for matrix in matrices]
    class_axis = check_axis(axis, arrays[0].ndim, "the array")
    classes_last = [np.moveaxis(array, class_axis, -1) for array in arrays]
    shape = classes_last[0].shape[:-1]
    checked = [None if vector is None else _check_shape(vector, shape) for vector in vectors]
    # Iterate over as few leading dimensions as possible.
    depth = 0
    while not all(_is_viewable(array, depth) for array in classes_last):
        depth += 1
    first = 0
    for index in np.ndindex(shape[:depth]):
        views = [array[index].reshape(-1, array.shape[-1]) for array in classes_last]
        parts = [None if vector is None else vector[index].reshape(-1) for vector in checked]
        yield first, views, parts
        first += len(views[0])


def flatten_rows(
    axis: int | None, matrices: Sequence[ArrayLike], vectors: Sequence[ArrayLike | None] = ()
) -> tuple[list[Any], list[Any]]:
    """Return dense arrays as (rows, K) matrices, and labels or weights as vectors.

    This copies, for functions that need all rows at once, such as explanations and audits.
    Arrays that are (n, K) rows already are returned unchanged.

    Examples
    --------
    >>> (images,), (labels,) = flatten_rows(1, [np.zeros((2, 3, 4, 4))], [np.zeros((2, 4, 4))])
    >>> images.shape, labels.shape
    ((32, 3), (32,))
    """
    if axis is None or not is_dense(axis, *matrices):
        return list(matrices), list(vectors)
    _, views, parts = zip(*row_views(axis, matrices, vectors), strict=True)
    # Contiguous rows: sums over a column-wise copy would round in another order.
    rows = [np.ascontiguousarray(np.concatenate(blocks)) for blocks in zip(*views, strict=True)]
    return rows, [
        None if blocks[0] is None else np.concatenate(blocks) for blocks in zip(*parts, strict=True)
    ]


def _is_viewable(array: View, depth: int) -> bool:
    """Whether the dimensions after the first ``depth`` can be flattened to rows without a copy."""
    part = array[(0,) * depth]
    try:
        np.reshape(part, (-1, array.shape[-1]), copy=False)
    except ValueError:
        return False
    return True


def _check_shape(vector: ArrayLike, shape: tuple[int, ...]) -> View:
    array = to_numpy(vector)
    if array.shape != shape:
        raise InputError(
            "labels, weights or predictions",
            f"have shape {array.shape} but the scores have positions {shape}",
            "pass one entry for each position",
        )
    return array


def labelled_blocks(
    axis: int | None,
    ignore_index: int | None,
    matrices: Sequence[ArrayLike],
    labels: ArrayLike,
    sample_weight: ArrayLike | None,
) -> Iterator[tuple[Sequence[int], list[Any], Any, Any]]:
    """Yield blocks of (row numbers, matrices, labels, weights), without ignored rows.

    The row numbers count all positions, ignored ones too.
    """
    if not is_dense(axis, *matrices):
        yield from _without_ignored(0, list(matrices), labels, sample_weight, ignore_index)
        return
    assert axis is not None
    # Predictions may replace a matrix; they lack the dimension of the classes.
    dimensions = max(np.ndim(matrix) for matrix in matrices)
    has_classes = [np.ndim(matrix) == dimensions for matrix in matrices]
    pairs = list(zip(matrices, has_classes, strict=True))
    full = [matrix for matrix, is_full in pairs if is_full]
    predictions = [matrix for matrix, is_full in pairs if not is_full]
    vectors = [labels, sample_weight, *predictions]
    for first, views, (block_labels, weight, *predicted) in row_views(axis, full, vectors):
        next_view, next_predicted = iter(views), iter(predicted)
        block = [next(next_view) if is_full else next(next_predicted) for is_full in has_classes]
        yield from _without_ignored(first, block, block_labels, weight, ignore_index)


def _without_ignored(
    first: int,
    matrices: list[Any],
    labels: ArrayLike,
    weight: ArrayLike | None,
    ignore_index: int | None,
) -> Iterator[tuple[Sequence[int], list[Any], Any, Any]]:
    """Yield the rows of a block whose label is not ``ignore_index``, if there are any."""
    if ignore_index is None:
        yield range(first, first + np.shape(matrices[0])[0]), matrices, labels, weight
        return
    if labels is None:
        raise InputError(
            "ignore_index", "is given but labels are not", "pass labels, or leave it out"
        )
    truth = to_numpy(labels, "labels")
    rows = np.flatnonzero(truth != ignore_index)
    if rows.size:
        if rows.size < truth.size:
            matrices = [_take_rows(matrix, rows) for matrix in matrices]
        weights = None if weight is None else to_numpy(weight, "sample_weight")[rows]
        yield (rows + first).tolist(), matrices, truth[rows], weights


def _take_rows(matrix: ArrayLike, rows: Classes) -> ArrayLike:
    """Return some rows; those of a data frame stay a frame, for the names of its columns."""
    return matrix.take(rows) if hasattr(matrix, "columns") else to_numpy(matrix)[rows]


def rows_to_fit(
    axis: int | None,
    ignore_index: int | None,
    scores: ArrayLike,
    labels: ArrayLike,
    sample_weight: ArrayLike | None,
    prediction: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
) -> tuple[Any, Any, Any, Any, Any]:
    """Return scores, labels, weights, predictions and clusters as rows, without ignored ones.

    This copies: a fit needs all rows in one matrix.
    """
    blocks = list(labelled_blocks(axis, ignore_index, [scores], labels, sample_weight))
    if not blocks:
        raise InputError(
            "labels", f"are all {ignore_index}, the ignore_index", "there are no rows left"
        )
    rows, matrices, block_labels, weights = zip(*blocks, strict=True)
    selected = np.concatenate([np.array(numbers) for numbers in rows])
    if prediction is not None:
        _, (prediction,) = flatten_rows(axis, [scores], [prediction])
        prediction = to_numpy(prediction, "prediction")[selected]
    if clusters is not None:
        _, (clusters,) = flatten_rows(axis, [scores], [clusters])
        clusters = to_numpy(clusters, "clusters")[selected]
    return (
        np.concatenate([to_numpy(matrix) for (matrix,) in matrices]),
        None if labels is None else np.concatenate(block_labels),
        None if sample_weight is None else np.concatenate(weights),
        prediction,
        clusters,
    )


# The module that registers the handler of a framework's collections.
_MODULES = {"dask": "cordcal.dask"}


class LazyHandler(Protocol):
    """Operations on the lazy collections of a framework; each returns what its caller returns."""

    def construct(
        self,
        repair: Any,
        original: ArrayLike,
        direct: ArrayLike,
        prediction: ArrayLike | None,
        sample_weight: ArrayLike | None,
    ) -> Any:
        """Fit the shared scalar without moving rows between workers; see `CORD.fit`."""

    def described(self, describe: Any, **columns: Any) -> tuple[int, list[Any]]:
        """Return the number of classes, and the result of ``describe`` per block of rows."""

    def transform(
        self,
        repair: Any,
        original: ArrayLike,
        direct: ArrayLike,
        prediction: ArrayLike | None,
        dtype: DType,
    ) -> Any:
        """Repair lazily; see `CORD.transform`."""

    def apply(self, function: Any, scores: ArrayLike, dtype: DType, *, shape: str = "ij") -> Any:
        """Apply a function to every block of scores, lazily; see `PreservingCalibrator`."""

    def update_stream(
        self,
        stream: Any,
        outputs: Sequence[ArrayLike],
        labels: ArrayLike,
        sample_weight: ArrayLike | None,
        ignore_index: Any,
    ) -> Any:
        """Return the stream of a metric after all blocks of rows."""

    def audited(
        self,
        cord: Any,
        original: ArrayLike,
        direct: ArrayLike,
        labels: ArrayLike,
        *,
        prediction: ArrayLike | None,
        sample_weight: ArrayLike | None,
    ) -> Any:
        """Return the stream of an audit after all blocks of rows."""


_HANDLERS: dict[str, LazyHandler] = {}


def register_lazy(framework: str, handler: LazyHandler) -> None:
    """Register the handler of a framework's collections, by its top-level module."""
    _HANDLERS[framework] = handler


def lazy_handler(*values: ArrayLike) -> LazyHandler | None:
    """Return the handler of the first lazy collection among the values, or None.

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
