"""What every metric is made of: reduced rows, streams, and the record `Metric`.

`ProbabilityMatrix.reduce` turns probabilities into a few numbers per row, from which every metric
is computed.  The (n, K) array is read once, in blocks, and checked on the way.  The result is a
few vectors of length n, so bootstraps and streams never touch (n, K) arrays again.

A stream has ``update``, ``merge`` and ``result``.  `RowStream` and `BlockStream` are the two kinds
of streams of labelled probabilities; `WeightedSums` and `WeightedMean` are what they add up;
`update_stream` passes arrays of any layout to a stream.

`Metric` is the one record per metric that tables, reports and bootstraps read.
"""

from __future__ import annotations

import copy
import functools
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, merge_errors, raise_first, renumber_rows
from cordcal._numeric import arrays
from cordcal._numeric.exact import (
    ExactSum,
    ordinary_weights,
    total_weight,
    weight_exponent,
    weight_unit,
    weighted,
)
from cordcal._numeric.types import Array, ArrayLike, Classes, Flags, Floats, Labels, Matrix, Vector
from cordcal._validation import layouts
from cordcal._validation.labels import check_predictions, check_weights, zero_weight_error
from cordcal._validation.names import Name
from cordcal._validation.scores import are_distributions, as_matrix, probability_errors
from cordcal._validation.table import RememberedColumns, match

# Called per checked block with the block as passed, its entries in float64, labels and weights.
BlockVisitor = Callable[[Floats, Matrix, Classes, Vector], None]

# 4 MB of float64 per block: fits the last-level cache, with enough rows to make calls cheap.
_BLOCK_ENTRIES = 2**19


@dataclass(frozen=True, slots=True, eq=False)
class LabelledRows:
    """What the metrics need per row of labelled probabilities.

    Attributes
    ----------
    confidence, prediction
        The largest entry and its index, the smallest index on ties.
    true_mass
        The probability of the true class.
    squared_error
        The squared distance to the one-hot label, summed over the classes.
    labels, weight
        The true classes and the weights; ``weight`` is None if every row counts once.
    """

    confidence: Vector
    prediction: Classes
    true_mass: Vector
    squared_error: Vector
    labels: Classes
    weight: Vector | None

    def __len__(self) -> int:
        return int(self.labels.shape[0])

    def take(self, index: Classes | Flags) -> LabelledRows:
        """Return some of the rows, by their numbers or by a mask."""
        return LabelledRows(
            self.confidence[index],
            self.prediction[index],
            self.true_mass[index],
            self.squared_error[index],
            self.labels[index],
            None if self.weight is None else self.weight[index],
        )

    @property
    def correct(self) -> npt.NDArray[np.bool_]:
        """Whether the prediction is the label, per row."""
        return np.equal(self.prediction, self.labels)

    @property
    def weights(self) -> Vector:
        """The weights; ones if there are none."""
        return np.ones(len(self)) if self.weight is None else self.weight


@dataclass(frozen=True, slots=True, eq=False)
class ProbabilityMatrix:
    """An (n, K) array of a known shape, read in blocks.

    `checked_blocks` checks that its rows are probabilities; `blocks` does not, and also serves
    logits.  ``input_dtype`` is the dtype of the caller's array: bfloat16 is stored as float32,
    which is exact, but its rows may sum to one as loosely as bfloat16 rounds.  With
    ``rule_weights``, those of a prediction rule, rows predict the class with the largest weight
    times probability.
    """

    values: Floats
    name: str
    input_dtype: str
    rule_weights: Vector | None = None

    @classmethod
    def from_array(
        cls, values: ArrayLike, name: str, rule_weights: Vector | None = None
    ) -> ProbabilityMatrix:
        """Convert an array of any library; its entries are checked as the blocks are read."""
        matrix = as_matrix(values, name)
        input_dtype = arrays.dtype_name(matrix.dtype)
        array = arrays.to_numpy(matrix)
        if array.dtype.kind != "f":  # JAX's bfloat16 arrives as an extension dtype
            array = array.astype(np.float32)
        return cls(array, name, input_dtype, rule_weights)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.values.shape[0])

    @property
    def classes(self) -> int:
        """The number of classes."""
        return int(self.values.shape[1])

    def check_labels(
        self, labels: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[Labels, Vector | None]:
        """Check the labels, and the weights if there are any, against the shape."""
        checked = check_predictions(labels, self.rows, self.classes, "labels")
        if sample_weight is None:
            return checked, None
        return checked, check_weights(sample_weight, self.rows, some=False)

    def blocks(self) -> Iterator[tuple[slice, Floats]]:
        """Yield the rows in blocks that fit the cache."""
        size = max(1, _BLOCK_ENTRIES // self.classes)
        for start in range(0, self.rows, size):
            block = slice(start, min(start + size, self.rows))
            yield block, self.values[block]

    def checked_blocks(self) -> Iterator[tuple[slice, Floats, Matrix]]:
        """Yield the blocks, checked as probabilities, as they are and in float64.

        Both arrays are read-only by convention and valid until the next block.
        """
        ones = np.ones(self.classes)
        buffer = np.empty((0, self.classes))
        for at, block in self.blocks():
            if block.dtype == np.float64:
                wide = np.asarray(block, dtype=np.float64)
            else:
                if len(buffer) < len(block):
                    buffer = np.empty(block.shape)
                wide = buffer[: len(block)]
                np.copyto(wide, block)
            if not (
                self._passes_quick_check(block)
                or are_distributions(block.min(), np.abs(wide @ ones - 1.0).max(), self.input_dtype)
            ):
                raise_first(*self._errors())
            yield at, block, wide

    def _passes_quick_check(self, block: Floats) -> bool:
        """Whether sums in float32, which take half the time, suffice to accept a block."""
        if block.dtype != np.float32:
            return False
        sums = block @ np.ones(self.classes, np.float32)
        # Bounds the rounding error of a sum near one, for any order of additions.
        largest_error = np.abs(sums - 1.0).max() + self.classes * 2.0**-23
        return are_distributions(block.min(), float(largest_error), self.input_dtype)

    def _errors(self) -> list[InputError]:
        """Return the errors of all rows."""
        ones = np.ones(self.classes)
        return merge_errors(
            error.offset_rows(at.start)
            for at, block in self.blocks()
            for error in probability_errors(
                block, block.astype(np.float64) @ ones, self.name, self.input_dtype
            )
        )

    def reduce(
        self, labels: Labels, weight: Vector | None = None, *, visit: BlockVisitor | None = None
    ) -> LabelledRows:
        """Reduce the rows in one pass; labels and weights come from `check_labels`.

        ``visit`` is called with every checked block, for metrics that need whole rows.
        """
        confidence, true_mass, squared_error = (np.empty(self.rows) for _ in range(3))
        prediction = np.empty(self.rows, dtype=np.intp)
        weights = np.ones(self.rows) if weight is None else weight
        for at, block, wide in self.checked_blocks():
            row, block_labels = np.arange(len(wide)), labels[at]
            best = self._predicted(block)
            prediction[at], confidence[at] = best, wide[row, best]
            block_mass = true_mass[at] = wide[row, block_labels]
            if visit is not None:
                visit(block, wide, block_labels, weights[at])
            squared_error[at] = _squared_error(wide, block_labels, block_mass)
        return LabelledRows(confidence, prediction, true_mass, squared_error, labels, weight)

    def _predicted(self, block: Floats) -> Classes:
        """Return the predictions of some rows, the smallest index on ties."""
        if self.rule_weights is not None:
            block = block.astype(np.float64) * self.rule_weights
        return np.asarray(arrays.first_argmax(block))

    def predictions(self) -> Classes:
        """Return the prediction of each row."""
        return np.concatenate([self._predicted(block) for _, block in self.blocks()])

    def confidences(self) -> tuple[Vector, Classes]:
        """Return the probability of each prediction, and the predictions."""
        confidence, prediction = np.empty(self.rows), np.empty(self.rows, dtype=np.intp)
        for at, block, wide in self.checked_blocks():
            best = self._predicted(block)
            prediction[at], confidence[at] = best, wide[np.arange(len(wide)), best]
        return confidence, prediction

    def mass_on(self, classes: Classes) -> Vector:
        """Return the probability of one class per row."""
        mass = np.empty(self.rows)
        for at, _, wide in self.checked_blocks():
            mass[at] = wide[np.arange(len(wide)), classes[at]]
        return mass


def _squared_error(wide: Matrix, labels: Classes, true_mass: Vector) -> Vector:
    """Return the squared distance to the one-hot label per row."""
    squares = np.vecdot(wide, wide)
    others = squares - true_mass * true_mass
    # In confident rows the difference cancels, so the other classes are summed directly.
    # Elsewhere at least ten digits are left.
    cancelled = np.flatnonzero(others < 1e-6 * squares)
    if cancelled.size:
        entries = wide[cancelled]
        entries[np.arange(len(cancelled)), labels[cancelled]] = 0.0
        others[cancelled] = np.vecdot(entries, entries)
    return np.asarray(np.square(1.0 - true_mass) + others)


# Streams.


class Stream(ABC):
    """A metric in progress: add blocks of rows, merge streams, read the result."""

    @functools.cached_property
    def _columns(self) -> RememberedColumns:
        return RememberedColumns()

    def update(
        self, probabilities: ArrayLike, labels: ArrayLike, *, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Add a block of rows.

        Parameters
        ----------
        probabilities : array_like of shape (n, K)
            The predicted probabilities.
        labels : array_like
            The true class of each row: a column index, or the name of a data frame's column.
        sample_weight : array_like, optional
            Weights of the rows.

        Returns
        -------
        self
            The stream, so that calls can be chained.
        """
        rows = self._columns.match({"probabilities": probabilities}, labels, sample_weight)
        (matrix,) = rows.matrices
        self.update_arrays(matrix, rows.labels, rows.sample_weight)
        return self

    def update_arrays(
        self, probabilities: Array, labels: ArrayLike, sample_weight: ArrayLike | None
    ) -> None:
        """Add a block of rows whose rows and columns are matched; see `match`."""
        matrix = ProbabilityMatrix.from_array(probabilities, "probabilities")
        self.update_checked(matrix, *matrix.check_labels(labels, sample_weight))

    @abstractmethod
    def update_checked(
        self, probabilities: ProbabilityMatrix, labels: Labels, weight: Vector | None
    ) -> None:
        """Add a block of rows whose labels and weights are already checked."""

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """Add the rows of another stream of the same kind; return this stream."""

    @abstractmethod
    def result(self) -> Any:
        """Return the metric of all rows added so far."""


class RowStream(Stream):
    """A metric that needs only the reduced rows."""

    def update_checked(
        self, probabilities: ProbabilityMatrix, labels: Labels, weight: Vector | None
    ) -> None:
        """Add a block of rows whose labels and weights are already checked."""
        self.add(probabilities.reduce(labels, weight))

    @abstractmethod
    def add(self, rows: LabelledRows) -> None:
        """Add reduced rows."""


class BlockStream(Stream):
    """A metric that needs all classes of a row: it visits the blocks while they are read."""

    def update_checked(
        self, probabilities: ProbabilityMatrix, labels: Labels, weight: Vector | None
    ) -> None:
        """Add a block of rows whose labels and weights are already checked."""
        probabilities.reduce(labels, weight, visit=self.visit)

    @abstractmethod
    def visit(self, block: Floats, wide: Matrix, labels: Classes, weight: Vector) -> None:
        """Add a checked block, in its own dtype and in float64."""


def require_rows(weight: float) -> None:
    """Raise an error if no row was added yet."""
    if not weight:
        raise InputError("the stream", "has seen no rows yet", "call update(...) first")


def check_mergeable(stream: Any, other: Any, setting: str) -> None:
    """Refuse to merge streams that were made with different settings."""
    own, others = getattr(stream, setting), getattr(other, setting)
    if own != others:
        raise InputError(
            "other",
            f"cannot be merged: streams of {setting} = {own!r} and {setting} = {others!r}",
            "make both streams alike",
        )


class WeightedSums:
    """Sums over weighted rows in one unit, a power of two that follows the largest weight.

    The unit is one unless weights are so large or so small that their sums or products
    would leave the range of float64.  A subclass names its sums.
    """

    # Attributes, each with the power of the weights that it sums.
    _sums: ClassVar[tuple[tuple[str, int], ...]]
    # The attribute that counts rows, and the argument of the constructor, if there are any.
    _count_name: ClassVar[str | None] = None
    _setting: ClassVar[str | None] = None
    # Attributes in the unit of the weights that are no sums: how two of them merge.
    _extremes: ClassVar[Mapping[str, Callable[[float, float], float]]] = {}
    # The binary exponent of the largest weight so far.
    _exponent: int | None = None

    def _in_unit(self, weight: Vector | None, rows: int) -> Vector:
        """Return the weights of new rows (ones if there are none) divided by the unit."""
        weight = np.ones(rows) if weight is None else weight
        self._raise_unit(weight_exponent(weight))
        unit = weight_unit(self._exponent)
        return weight if unit == 0 else np.asarray(np.ldexp(weight, -unit))

    def _raise_unit(self, exponent: int | None) -> None:
        """Express the sums in the unit of a weight of this exponent, if that is larger."""
        if exponent is None or (self._exponent is not None and exponent <= self._exponent):
            return
        shift = weight_unit(self._exponent) - weight_unit(exponent)
        self._exponent = exponent
        if shift:
            for name, power in self._sums:
                setattr(self, name, _times_power_of_two(getattr(self, name), power * shift))

    def merge(self, other: Self) -> Self:
        """Add the rows of another stream of the same kind; return this stream."""
        if self._setting is not None:
            check_mergeable(self, other, self._setting)
        other = self._in_common_unit(other)
        names = [name for name, _ in self._sums]
        for name in names if self._count_name is None else [self._count_name, *names]:
            combine: Callable[[Any, Any], Any] = self._extremes.get(name, operator.add)
            setattr(self, name, combine(getattr(self, name), getattr(other, name)))
        return self

    def _in_common_unit(self, other: Self) -> Self:
        """Bring these sums and a copy of the other ones to one unit; return the copy."""
        other = copy.copy(other)  # shallow: sums are replaced, never changed in place
        self._raise_unit(other._exponent)
        other._raise_unit(self._exponent)
        return other


def _times_power_of_two(total: Any, bits: int) -> Any:
    """Return a sum times 2^bits; None if there is no sum yet."""
    if total is None:
        return None
    return total.scaled(bits) if isinstance(total, ExactSum) else np.ldexp(total, bits)


class WeightedMean(WeightedSums):
    """An exact weighted mean in progress: its bits do not depend on order or blocks."""

    _sums = (("total", 1), ("weight", 1))

    def __init__(self) -> None:
        self.total = self.weight = ExactSum()

    def add(self, values: Vector, weight: Vector | None) -> None:
        """Add one value per row."""
        if weight is not None or weight_unit(self._exponent):
            weight = self._in_unit(weight, len(values))
        self.total += weighted(values, weight)
        self.weight += total_weight(len(values), weight)

    def result(self) -> float:
        """Return the mean."""
        require_rows(self.weight.units)
        return self.total.mean(self.weight)


class MeanStream(RowStream):
    """A metric that is the mean of one number per row."""

    def __init__(self) -> None:
        self._mean = WeightedMean()

    @staticmethod
    @abstractmethod
    def of_rows(rows: LabelledRows) -> Vector:
        """Return the number of each row."""

    def add(self, rows: LabelledRows) -> None:
        """Add reduced rows."""
        self._mean.add(self.of_rows(rows), rows.weight)

    def merge(self, other: Self) -> Self:
        """Add the rows of another stream of the same kind; return this stream."""
        self._mean.merge(other._mean)
        return self

    def result(self) -> float:
        """Return the mean over all rows added so far."""
        return self._mean.result()


class RowCollector(RowStream):
    """The reduced rows themselves, for metrics that need all of them at once."""

    def __init__(self) -> None:
        self._parts: list[LabelledRows] = []

    def add(self, rows: LabelledRows) -> None:
        """Add reduced rows."""
        self._parts.append(rows)

    def merge(self, other: Self) -> Self:
        """Add the rows of another stream of the same kind; return this stream."""
        self._parts += other._parts
        return self

    def result(self) -> LabelledRows:
        """Return all rows added so far; extreme weights are relative to the largest one."""
        require_rows(len(self._parts))
        rows = _concatenate(self._parts)
        return rows if rows.weight is None else replace(rows, weight=ordinary_weights(rows.weight))


def _concatenate(parts: list[LabelledRows]) -> LabelledRows:
    if len(parts) == 1:
        return parts[0]

    # If any block has weights, rows of blocks without weights count once.
    weighted = any(part.weight is not None for part in parts)
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in LabelledRows.__dataclass_fields__
        if name != "weight"
    }
    weight = np.concatenate([part.weights for part in parts]) if weighted else None
    return LabelledRows(**columns, weight=weight)


class _Updatable(Protocol):
    @property
    def update_arrays(self) -> Callable[..., Any]: ...


AnyStream = TypeVar("AnyStream", bound=_Updatable)

# How streams name the arrays that their ``update`` takes before the labels, by their number.
_ARGUMENT_NAMES = {
    1: ("probabilities",),
    2: ("original", "evaluated"),
    3: ("original", "direct", "repaired"),
}


def update_stream(
    stream: AnyStream,
    scores: Sequence[Any],
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    axis: int | None = None,
    ignore_index: int | None = None,
    class_names: Sequence[Name] | None = None,
) -> AnyStream:
    """Add all rows of the callers' arrays to a stream, and return the stream.

    Parameters
    ----------
    stream : Stream, PredictionChangesStream, ...
        Has ``update_arrays(*scores, labels, weights)`` and ``merge``.
    scores : sequence of array_like
        What it takes before the labels: probabilities, logits or predictions.
    labels, sample_weight : array_like, optional
        One entry per row or position.
    axis : int, optional
        The dimension of the classes in dense arrays.
    ignore_index : int, optional
        The label of positions without a true class.
    class_names : sequence, optional
        One name per column; labels may be among them.
    """
    arguments = dict(zip(_ARGUMENT_NAMES[len(scores)], scores, strict=True))
    rows = match(
        arguments,
        class_names=class_names,
        labels=labels,
        sample_weight=sample_weight,
        ignore_index=ignore_index,
    )
    handler = layouts.lazy_handler(*scores, labels)
    if handler is not None:
        if axis is not None:
            raise InputError("axis", "is not supported for dask collections", "pass blocks of rows")
        updated: AnyStream = handler.update_stream(
            stream, rows.matrices, rows.labels, sample_weight, rows.ignore_index
        )
        return updated
    weight = rows.sample_weight
    if weight is not None and not np.any(arrays.to_numpy(weight)):
        raise zero_weight_error()
    blocks = layouts.labelled_blocks(axis, rows.ignore_index, rows.matrices, rows.labels, weight)
    for numbers, block, block_labels, block_weight in blocks:
        with renumber_rows(numbers):
            stream.update_arrays(*block, block_labels, block_weight)
    return stream


# The record of a metric.

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
    of_correct : callable, optional
        For a calibration error of the top label: maps confidences, and whether predictions are
        right as rows × draws, to one value per draw.  Without it, gates compute draw by draw.
    draws : int
        How often gates draw labels to find what is chance; fewer draws make it less precise.
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
    of_correct: Callable[[Vector, Flags], Vector] | None = None
    draws: int = 199

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


def binned_gaps(bins: Classes, confidence: Vector, correct: Flags) -> Vector:
    """Return Σ |Σ (confidence − correct)| / rows, the outer sum over bins, for each draw."""
    order = np.argsort(bins, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(bins[order]) != 0])
    right = np.add.reduceat(correct[order], starts, axis=0, dtype=np.int32)
    gaps = np.abs(np.add.reduceat(confidence[order], starts)[:, None] - right)
    return np.asarray(gaps.sum(axis=0) / len(bins))


# Parameters that the docstrings of several metrics share.
_PROBABILITIES = """\
    probabilities : array_like of shape (n, K)
        The predicted probabilities.  Rows of pandas objects are matched by index with those of
        labels and weights.
    labels : array_like
        The true class of each row: a column index, or a class name.
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
_CLASS_NAMES = """\
    class_names : sequence, optional
        One name per column, if the labels are names and the probabilities are not a data frame.
"""
_SHARED_PARAMETERS = {
    "{probabilities, labels}": _PROBABILITIES,
    "{sample_weight, axis, ignore_index, class_names}": (
        _SAMPLE_WEIGHT + _AXIS + _IGNORE_INDEX + _CLASS_NAMES
    ),
    "{axis}": _AXIS,
    "{axis, ignore_index, class_names}": _AXIS + _IGNORE_INDEX + _CLASS_NAMES,
}

Function = TypeVar("Function", bound=Callable[..., Any])


def fill_docstring(function: Function) -> Function:
    """Replace lines such as ``{axis}`` in a docstring by the shared parameters they name."""
    if function.__doc__:  # None under python -OO
        for line, text in _SHARED_PARAMETERS.items():
            function.__doc__ = function.__doc__.replace(f"    {line}\n", text)
    return function
