"""Reduce probabilities to a few numbers per row, from which every metric is computed.

The (n, K) array is read once, in blocks, and checked on the way.  The result is a few
vectors of length n, so bootstraps and streams never touch (n, K) arrays again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, merge_errors, raise_first
from cordcal._numeric import arrays
from cordcal._numeric.types import ArrayLike, Classes, Flags, Floats, Labels, Matrix, Vector
from cordcal._validation.labels import check_decisions, check_weights, names_to_indices
from cordcal._validation.names import Name, label_names
from cordcal._validation.scores import are_distributions, as_matrix, probability_errors

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
    which is exact, but its rows may sum to one as loosely as bfloat16 rounds.  ``class_names``
    are the columns of a data frame: labels may be among them.  With ``rule_weights``, those of a
    prediction rule, rows predict the class with the largest weight times probability.
    """

    values: Floats
    name: str
    input_dtype: str
    class_names: list[Name] | None = None
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
        return cls(array, name, input_dtype, label_names(values), rule_weights)

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
        indices = names_to_indices(labels, self.values.shape, self.class_names)
        checked = check_decisions(indices, self.rows, self.classes, "labels")
        if sample_weight is None:
            return checked, None
        return checked, check_weights(sample_weight, self.rows, some=False)

    def column_of(self, index: int | str) -> int:
        """Return the column of a class, passed as its index or its name."""
        names = [str(name) for name in self.class_names or ()]
        if isinstance(index, str) and index in names:
            return names.index(index)
        if isinstance(index, str) or not 0 <= index < self.classes:
            known = f" or one of {', '.join(names)}" if names else ""
            raise InputError("index", f"is {index!r}", f"pass 0..{self.classes - 1}{known}")
        return int(index)

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
        """Return the largest entry of each row and its index, the smallest on ties."""
        confidence, prediction = np.empty(self.rows), np.empty(self.rows, dtype=np.intp)
        for at, block, wide in self.checked_blocks():
            best = arrays.first_argmax(block)
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
