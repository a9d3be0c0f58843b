"""One reduction of a report to a few numbers a row, from which every measure is computed.

A report is read once, block by block, and checked on the way.  What is kept is
five vectors of length n, so that bootstraps and streams never touch (n, K) arrays again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, merge_errors, raise_first
from cordcal._numeric import arrays
from cordcal._numeric.types import Classes, Labels, Matrix, Vector
from cordcal._validation.labels import check_decisions, check_weights
from cordcal._validation.probabilities import are_distributions, as_matrix, probability_errors

Visitor = Callable[[npt.NDArray[Any], Vector, Classes, Vector], None]

# 4 MB of float64 a block: within the last cache, and enough rows that calls cost nothing.
_BLOCK_ENTRIES = 2**19


@dataclass(frozen=True, slots=True, eq=False)
class LabelledRows:
    """What the measures need to know of each row of a labelled report.

    Attributes
    ----------
    confidence, prediction
        The largest entry and its index, the smallest index on ties.
    true_mass
        The probability of the true class.
    squared_error
        The squared distance to the one-hot label, summed over the classes.
    labels, weight
        As given; ``weight`` is None where every row counts once.
    """

    confidence: Vector
    prediction: Classes
    true_mass: Vector
    squared_error: Vector
    labels: Classes
    weight: Vector | None

    def __len__(self) -> int:
        return int(self.labels.shape[0])

    def take(self, chosen: npt.NDArray[Any]) -> LabelledRows:
        """Return some of the rows, by their numbers or by a mask."""
        weight = None if self.weight is None else self.weight[chosen]
        return LabelledRows(
            self.confidence[chosen],
            self.prediction[chosen],
            self.true_mass[chosen],
            self.squared_error[chosen],
            self.labels[chosen],
            weight,
        )

    @property
    def correct(self) -> npt.NDArray[np.bool_]:
        """Whether each prediction is the label."""
        return np.equal(self.prediction, self.labels)

    @property
    def weights(self) -> Vector:
        """The weights, ones where none were given."""
        return np.ones(len(self)) if self.weight is None else self.weight


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """A checked (n, K) array on its way through the measures.

    ``given`` is the dtype the caller's array had: bfloat16 is held as float32, which
    loses nothing, but its rows may sum as loosely as bfloat16 does.
    """

    values: npt.NDArray[Any]
    name: str
    given: str

    @classmethod
    def of(cls, values: Any, name: str) -> Report:
        """Take an array of any library; entries are checked as the blocks are read."""
        matrix = as_matrix(values, name)
        given = arrays.dtype_name(matrix.dtype)
        array = arrays.to_numpy(matrix)
        if array.dtype.kind != "f":  # JAX's bfloat16 arrives as an extension dtype
            array = array.astype(np.float32)
        return cls(array, name, given)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.values.shape[0])

    @property
    def classes(self) -> int:
        """The number of classes."""
        return int(self.values.shape[1])

    def blocks(self) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """Yield the rows in blocks that fit the cache."""
        size = max(1, _BLOCK_ENTRIES // self.classes)
        for start in range(0, self.rows, size):
            block = slice(start, min(start + size, self.rows))
            yield block, self.values[block]

    def checked_blocks(self) -> Iterator[tuple[slice, npt.NDArray[Any], Vector]]:
        """Yield the blocks, checked as probabilities, with their entries in float64.

        Both are for reading, and gone when the next block is asked for.
        """
        ones = np.ones(self.classes)
        memory = np.empty((0, self.classes))
        for at, block in self.blocks():
            if block.dtype == np.float64:
                wide = block
            else:
                if len(memory) < len(block):
                    memory = np.empty(block.shape)
                wide = memory[: len(block)]
                np.copyto(wide, block)
            if not (
                self._surely_distributions(block)
                or are_distributions(block, wide @ ones, self.given)
            ):
                raise_first(*self._refusals())
            yield at, block, wide

    def _surely_distributions(self, block: npt.NDArray[Any]) -> bool:
        """Whether sums in float32, which take half the time, are enough to accept a block."""
        if block.dtype != np.float32:
            return False
        sums = block @ np.ones(self.classes, np.float32)
        # In any order of additions a sum near one is wrong by less than this.
        return are_distributions(block, sums, self.given, spare=self.classes * 2.0**-23)

    def _refusals(self) -> list[InputError]:
        """Return what is wrong with which rows of the whole report."""
        ones = np.ones(self.classes)
        return merge_errors(
            refusal.offset_rows(at.start)
            for at, block in self.blocks()
            for refusal in probability_errors(
                block, block.astype(np.float64) @ ones, self.name, self.given
            )
        )

    def beside(self, labels: Any, sample_weight: Any) -> tuple[Labels, Vector | None]:
        """Check what comes with the report: labels, and weights if there are any."""
        truth = check_decisions(labels, self.rows, self.classes, "labels")
        if sample_weight is None:
            return truth, None
        return truth, check_weights(sample_weight, self.rows, some=False)

    def labelled(
        self, truth: Labels, weight: Vector | None = None, *, visit: Visitor | None = None
    ) -> LabelledRows:
        """Reduce the report to its rows in one pass, given labels and weights from `beside`.

        ``visit`` is called with each checked block, its entries in float64, labels and weights,
        for measures that need whole rows.
        """
        confidence, true_mass, error = (np.empty(self.rows) for _ in range(3))
        prediction = np.empty(self.rows, dtype=np.intp)
        weights = np.ones(self.rows) if weight is None else weight
        for at, block, wide in self.checked_blocks():
            here, y = np.arange(len(wide)), truth[at]
            best = arrays.first_argmax(block)
            prediction[at], confidence[at] = best, wide[here, best]
            true = true_mass[at] = wide[here, y]
            if visit is not None:
                visit(block, wide, y, weights[at])
            error[at] = _squared_error(wide, y, true)
        return LabelledRows(confidence, prediction, true_mass, error, truth, weight)

    def mass_on(self, classes: Classes) -> Vector:
        """Return the probability each row puts on one given class."""
        mass = np.empty(self.rows)
        for at, _, wide in self.checked_blocks():
            mass[at] = wide[np.arange(len(wide)), classes[at]]
        return mass


def _squared_error(wide: Matrix, labels: Classes, true: Vector) -> Vector:
    """Return each row's squared distance to its one-hot label, given its true class's mass."""
    squares = np.vecdot(wide, wide)
    others = squares - true * true
    # In confident rows the difference has lost its digits; these are added up anew.
    # Elsewhere at least ten digits are left.
    lost = np.flatnonzero(others < 1e-6 * squares)
    if lost.size:
        rest = wide[lost]
        rest[np.arange(len(lost)), labels[lost]] = 0.0
        others[lost] = np.vecdot(rest, rest)
    return np.asarray(np.square(1.0 - true) + others)
