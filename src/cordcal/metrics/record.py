"""`Metric`: one record per metric, which tables, reports and bootstraps read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Matrix, Vector
from cordcal.metrics.rows import LabelledRows
from cordcal.metrics.stream import MeanStream, RowStream, Stream

Resampler = Callable[[Matrix, Vector], Vector]
"""Maps the rows' weights, (rows, resamples), and their sums to one value per resample."""


@dataclass(frozen=True)
class Metric:
    """A metric of labelled probabilities: how it is computed, resampled, named and shown.

    Tables, reports, bootstraps and studies read the record, so `register` is all it takes to
    add a metric.

    Parameters
    ----------
    key : str
        Its key in results, the name of its function.
    name, short : str
        Its name in a sentence, and in the head of a column.
    meaning : str
        What it measures, in one sentence.
    function : callable
        Takes probabilities and labels.
    stream : callable
        Makes its streaming form: a `MeanStream`, another stream of rows, or one of blocks.
    of_rows : callable, optional
        Computes the exact value from reduced rows, if the streaming form is approximate.
    resampler : callable, optional
        Maps reduced rows to a function that computes the values of many resamples at once.
        A `MeanStream` needs none; other metrics have no intervals without one.
    unit : str
        ``"%"`` for values that are shown in percent.
    digits : int
        Digits after the point.
    lower_is_better : bool
        Its direction.
    calibration_error : bool
        Whether it is zero in expectation for perfect calibration, except for the noise of labels.
    leading : bool
        Whether to show it where there is room for only a few metrics.
    exact_resampler : bool
        Whether ``resampler`` gives the metric's own values, with nothing kept from the sample.
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
    calibration_error: bool = False
    leading: bool = False
    exact_resampler: bool = True

    @property
    def scale(self) -> float:
        """The factor from a value to the number that is shown."""
        return 100.0 if self.unit == "%" else 1.0

    @property
    def axis(self) -> str:
        """The title of an axis or a column that shows it."""
        return f"{self.short} ({self.unit})" if self.unit else self.short

    def value(self, rows: LabelledRows) -> float:
        """Return its exact value for reduced rows."""
        if self.of_rows is not None:
            return self.of_rows(rows)
        stream = self.stream()
        assert isinstance(stream, RowStream)
        stream.add(rows)
        return float(stream.result())

    def resampled(self, rows: LabelledRows) -> Resampler | None:
        """Return the function that computes its values in resamples; None if it has none."""
        if self.resampler is not None:
            return self.resampler(rows)
        stream = self.stream()
        if not isinstance(stream, MeanStream):
            return None
        values = stream.of_rows(rows)
        return lambda weight, total: np.asarray(values @ weight / total)

    def write(self, value: float, *, signed: bool = False) -> str:
        """Return a value as it is shown, without its unit."""
        sign = "+" if signed else ""
        return f"{self.scale * value:{sign}z.{self.digits}f}".replace("-", "−")


def weighted_sum_matrix(index: npt.NDArray[np.intp], values: Vector, size: int) -> Any:
    """Return the sparse matrix that maps weights of rows to weighted sums of values by index.

    ``index`` and ``values`` have one or more entries per row, as the rows of a matrix; ``size``
    is the number of sums.
    """
    from scipy import sparse

    rows = np.broadcast_to(np.arange(values.shape[-1]), values.shape)
    entries = (values.ravel(), (index.ravel(), rows.ravel()))
    return sparse.csr_array(entries, shape=(size, values.shape[-1]))


# Parameters that the docstrings of several metrics share.
_PROBABILITIES = """\
    probabilities : array_like of shape (n, K)
        The predicted probabilities.  Rows of pandas objects are matched by index with those of
        labels and weights.
    labels : array_like
        The true class of each row: a column index, or the name of a data frame's column.
"""
_SAMPLE_WEIGHT = """\
    sample_weight : array_like, optional
        Weights of the rows.
"""
_AXIS = """\
    axis : int, optional
        The dimension of the classes, for dense probabilities such as (B, K, H, W); labels and
        weights then have the shape of the other dimensions.
"""
_IGNORE_INDEX = """\
    ignore_index : int, optional
        The label of rows or positions without a true class; they are omitted.
"""
_SHARED_PARAMETERS = {
    "{probabilities, labels}": _PROBABILITIES,
    "{sample_weight, axis, ignore_index}": _SAMPLE_WEIGHT + _AXIS + _IGNORE_INDEX,
    "{axis}": _AXIS,
    "{axis, ignore_index}": _AXIS + _IGNORE_INDEX,
}

Function = TypeVar("Function", bound=Callable[..., Any])


def fill_docstring(function: Function) -> Function:
    """Replace lines such as ``{axis}`` in a docstring by the shared parameters they name."""
    if function.__doc__:  # None under python -OO
        for line, text in _SHARED_PARAMETERS.items():
            function.__doc__ = function.__doc__.replace(f"    {line}\n", text)
    return function
