"""Feed a stream with whatever the caller brought: rows, dense arrays, dask collections."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self, TypeVar

import numpy as np

from cordcal._door import arrays, dense, lazy
from cordcal._door.errors import Refusal, placed
from cordcal._door.rows import same_rows
from cordcal._door.vectors import no_weight
from cordcal._numeric.exact import ordinary_weights
from cordcal.metrics._rows import LabelledRows
from cordcal.metrics._stream import RowStream, require_rows

Fed = TypeVar("Fed")

# What streams call the reports that their ``update`` takes, by how many there are.
_REPORTS = {
    1: ("probabilities",),
    2: ("original", "evaluated"),
    3: ("original", "direct", "repaired"),
}


def fed(
    stream: Fed,
    *reports: Any,
    labels: Any = None,
    sample_weight: Any = None,
    axis: int | None = None,
    ignore_index: int | None = None,
) -> Fed:
    """Return the stream after it has seen all rows.

    Parameters
    ----------
    stream : Stream, DecisionChangesStream, ...
        Has ``update(*reports, labels, sample_weight=...)`` and ``merge``.
    reports : array_like
        What its ``update`` takes before the labels.
    labels, sample_weight : array_like, optional
        One entry for each row or position.
    axis : int, optional
        The dimension of the classes in dense reports.
    ignore_index : int, optional
        The label of positions that have none.
    """
    collection = lazy.handler(*reports, labels)
    if collection is not None:
        if axis is not None:
            raise Refusal("axis", "is not served for dask collections", "pass blocks of rows")
        whole: Fed = collection.fed(stream, reports, labels, sample_weight, ignore_index)
        return whole
    named = dict(zip(_REPORTS[len(reports)], reports, strict=True))
    *rows, labels, sample_weight = same_rows(**named, labels=labels, sample_weight=sample_weight)
    if sample_weight is not None and not np.any(arrays.to_numpy(sample_weight)):
        raise no_weight()
    update: Any = stream.update  # type: ignore[attr-defined]
    blocks = dense.labelled_rows(axis, ignore_index, rows, labels, sample_weight)
    for numbers, block, truth, weight in blocks:
        given = block if truth is None else [*block, truth]
        with placed(numbers):
            update(*given, sample_weight=weight)
    return stream


def fed_report(
    stream: Fed,
    probabilities: Any,
    labels: Any,
    sample_weight: Any,
    axis: int | None,
    ignore_index: int | None,
) -> Fed:
    """Return the stream of a measure of one labelled report after it has seen all rows."""
    return fed(
        stream,
        probabilities,
        labels=labels,
        sample_weight=sample_weight,
        axis=axis,
        ignore_index=ignore_index,
    )


class RowsStream(RowStream):
    """The reduced rows themselves, for measures that need all of them at once."""

    def __init__(self) -> None:
        self._parts: list[LabelledRows] = []

    def add(self, rows: LabelledRows) -> None:
        """Add rows that were reduced already."""
        self._parts.append(rows)

    def merge(self, other: Self) -> Self:
        """Add what another stream of the same kind has seen; return this stream."""
        self._parts += other._parts
        return self

    def result(self) -> LabelledRows:
        """Return all rows seen so far; extreme weights relative to the largest one."""
        require_rows(len(self._parts))
        rows = joined_rows(self._parts)
        return rows if rows.weight is None else replace(rows, weight=ordinary_weights(rows.weight))


def joined_rows(parts: list[LabelledRows]) -> LabelledRows:
    """Put the rows of several blocks together."""
    if len(parts) == 1:
        return parts[0]

    # A block without weights among others with weights counts each of its rows once.
    weighted = any(part.weight is not None for part in parts)
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in LabelledRows.__dataclass_fields__
        if name != "weight"
    }
    weight = np.concatenate([part.weights for part in parts]) if weighted else None
    return LabelledRows(**columns, weight=weight)
