"""One reduction of a report to a few numbers a row, from which every measure is computed.

A report is read once, block by block, and checked on the way.  What is kept is
five vectors of length n, so that bootstraps and streams never touch (n, K) arrays again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal import arrays

Vector = npt.NDArray[np.float64]
Classes = npt.NDArray[np.intp]

# About 2 MB of float64 a block: small enough for the cache, large enough for NumPy.
_BLOCK_ENTRIES = 2**18


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
        matrix = arrays.as_matrix(values, name)
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

    def labelled(self, labels: Any, sample_weight: Any) -> LabelledRows:
        """Reduce the report to its rows."""
        truth = arrays.check_decisions(labels, self.rows, self.classes, "labels")
        weight = None
        if sample_weight is not None:
            weight = arrays.check_weights(sample_weight, self.rows)
        confidence, true_mass, error, total = (np.empty(self.rows) for _ in range(4))
        prediction = np.empty(self.rows, dtype=np.intp)
        for at, block in self.blocks():
            arrays.check_entries(block, self.name, first=at.start)
            wide = block.astype(np.float64)
            here = np.arange(len(wide))
            prediction[at] = arrays.first_argmax(block)
            confidence[at] = wide[here, prediction[at]]
            true_mass[at] = wide[here, truth[at]]
            total[at] = wide.sum(axis=1)
            wide[here, truth[at]] -= 1.0
            error[at] = np.einsum("ij,ij->i", wide, wide)
        deviation = arrays.check_sums(total, self.name, self.given, self.classes)
        arrays.warn_about_sums(deviation, self.name, self.given, self.classes)
        return LabelledRows(confidence, prediction, true_mass, error, truth, weight)


def labelled_rows(probabilities: Any, labels: Any, sample_weight: Any = None) -> LabelledRows:
    """Check a report, its labels and weights, and reduce it to its rows."""
    return Report.of(probabilities, "probabilities").labelled(labels, sample_weight)
