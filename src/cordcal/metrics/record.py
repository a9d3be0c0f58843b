"""A measure as one record: what it is called, how it is computed, written and resampled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Matrix, Vector
from cordcal.metrics.rows import LabelledRows
from cordcal.metrics.stream import MeanStream, RowStream, Stream

Function = TypeVar("Function", bound=Callable[..., Any])

_AXIS = """\
    axis : int, optional
        The dimension of the classes, for dense reports such as (B, K, H, W); labels and
        weights then have the shape that is left.
"""
_IGNORE_INDEX = """\
    ignore_index : int, optional
        The label of rows or positions that have none; they are left out.
"""
_REPORT = """\
    probabilities : array_like of shape (n, K)
        The report to measure.  Rows of pandas objects are matched by index with those of
        labels and weights.
    labels : array_like of int
        The true class of each row, 0..K-1.
"""
_ROWS = """\
    sample_weight : array_like, optional
        Weights of the rows.
"""
_SHARED = {
    "{report}": _REPORT,
    "{rows}": _ROWS + _AXIS + _IGNORE_INDEX,
    "{axis}": _AXIS,
    "{axis, ignore_index}": _AXIS + _IGNORE_INDEX,
}


def documented(function: Function) -> Function:
    """Fill in the shared parameters where a docstring names them as a line in braces."""
    # Under python -OO there is nothing to fill.
    for name, text in _SHARED.items() if function.__doc__ else ():
        function.__doc__ = (function.__doc__ or "").replace(f"    {name}\n", text)
    return function


Resampler = Callable[[Matrix, Vector], Vector]
"""From the rows' weights in each resample, (rows, resamples), and their sums, to the values."""


@dataclass(frozen=True)
class Measure:
    """Everything there is to know about a measure of a labelled report.

    Tables, reports, bootstraps and studies read it, so that a measure is added by its
    record alone: `register`.

    Parameters
    ----------
    key : str
        Its key in results, the name of its function.
    name, short : str
        Its name in a sentence, and in the head of a column.
    meaning : str
        What it says, in a sentence.
    function : callable
        Takes probabilities and labels.
    stream : callable
        Makes its streaming form: `MeanStream`, another stream of rows, or one of blocks.
    of_rows : callable, optional
        Its exact value from reduced rows, where the streaming form is an approximation.
    resampler : callable, optional
        From reduced rows to the values of many resamples at once.  A `MeanStream` has one
        anyway; without one the measure has no intervals.
    unit : str
        ``"%"`` for what is shown in hundredths.
    digits : int
        Digits after the point.
    lower_is_better : bool
        Its direction.
    leading : bool
        Whether it is shown where there is room for few.
    """

    key: str
    name: str
    short: str
    meaning: str
    function: Callable[..., float]
    stream: Callable[[], Stream]
    of_rows: Callable[[LabelledRows], float] | None = None
    resampler: Callable[[LabelledRows], Resampler] | None = None
    unit: str = ""
    digits: int = 4
    lower_is_better: bool = True
    leading: bool = False

    @property
    def scale(self) -> float:
        """What a value is multiplied by when it is shown."""
        return 100.0 if self.unit == "%" else 1.0

    @property
    def axis(self) -> str:
        """The title of an axis or a column that shows it."""
        return f"{self.short} ({self.unit})" if self.unit else self.short

    def value(self, rows: LabelledRows) -> float:
        """Return its exact value of reduced rows."""
        if self.of_rows is not None:
            return self.of_rows(rows)
        stream = self.stream()
        assert isinstance(stream, RowStream)
        stream.add(rows)
        return float(stream.result())

    def resampled(self, rows: LabelledRows) -> Resampler | None:
        """Prepare its resampling; None where it has none."""
        if self.resampler is not None:
            return self.resampler(rows)
        stream = self.stream()
        return _mean_of(stream.of_rows(rows)) if isinstance(stream, MeanStream) else None

    def write(self, value: float, *, signed: bool = False) -> str:
        """Return a value as people read it, without its unit."""
        sign = "+" if signed else ""
        return f"{self.scale * value:{sign}z.{self.digits}f}".replace("-", "−")


def _mean_of(values: Vector) -> Resampler:
    return lambda weight, total: np.asarray(values @ weight / total)


def sums_by_place(places: npt.NDArray[np.intp], values: Vector, size: int) -> Any:
    """Return the sparse matrix that adds up each row's value times its weight, by place.

    ``places`` and ``values`` hold one or more entries a row, as the rows of a matrix.
    """
    from scipy import sparse

    rows = np.broadcast_to(np.arange(values.shape[-1]), values.shape)
    entries = (values.ravel(), (places.ravel(), rows.ravel()))
    return sparse.csr_array(entries, shape=(size, values.shape[-1]))
