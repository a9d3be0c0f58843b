"""Where changed decisions go: how many rows move from one class to another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cordcal._door.rows import same_rows
from cordcal._door.types import Classes
from cordcal.metrics._changes import decision_pair


@dataclass(frozen=True, eq=False)
class Flows:
    """The moves between classes, the most frequent first.

    Attributes
    ----------
    source, target : ndarray of int
        The class a decision leaves, and the one it goes to.
    count : ndarray of int
        The rows that make this move.
    n : int
        All rows.
    n_classes : int
        The number of classes.
    """

    source: Classes
    target: Classes
    count: Classes
    n: int
    n_classes: int

    def matrix(self) -> Classes:
        """Return the counts as a (K, K) array: rows are sources, columns targets."""
        counts = np.zeros((self.n_classes, self.n_classes), dtype=np.intp)
        counts[self.source, self.target] = self.count
        return counts

    def to_dict(self) -> dict[str, Any]:
        """Return the moves as plain Python values."""
        return {
            "source": self.source.tolist(),
            "target": self.target.tolist(),
            "count": self.count.tolist(),
            "n": self.n,
            "n_classes": self.n_classes,
        }

    def __repr__(self) -> str:
        return f"Flows({int(self.count.sum()):,} of {self.n:,} rows, {len(self.count):,} moves)"


def decision_flows(original: Any, report: Any) -> Flows:
    """Count the rows whose decision a report moves, by where it leaves and where it goes.

    Parameters
    ----------
    original : array_like of shape (n, K) or (n,)
        The original report, or the decisions themselves.
    report : array_like of shape (n, K) or (n,)
        The report whose decisions are compared, or these decisions.

    Returns
    -------
    flows : Flows
        The moves, the most frequent first.

    Examples
    --------
    >>> flows = decision_flows([0, 0, 1], [[0.4, 0.6], [0.3, 0.7], [0.1, 0.9]])
    >>> flows, flows.matrix().tolist()
    (Flows(2 of 3 rows, 1 moves), [[0, 2], [0, 0]])
    """
    original, report = same_rows(original=original, report=report)
    before, after, known = decision_pair(original, report)
    return flows_between(before, after, known or int(max(before.max(), after.max())) + 1)


def flows_between(before: Classes, after: Classes, classes: int) -> Flows:
    """Count the moves between decisions that were read already."""
    moved = before != after
    moves, count = np.unique(before[moved] * classes + after[moved], return_counts=True)
    order = np.argsort(-count, kind="stable")
    source, target = np.divmod(moves[order], classes)
    return Flows(source, target, count[order], len(before), classes)
