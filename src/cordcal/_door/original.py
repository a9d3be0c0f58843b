"""The classifier's scores, checked once: what it reports, what it decides, what a map works on."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._door.blocks import row_blocks
from cordcal._door.expressions import in_domain
from cordcal._door.scores import as_scores, read_scores
from cordcal._door.types import Classes, Decisions, Domain, Kind, Matrix


@dataclass(frozen=True, eq=False)
class Original:
    """Scores that passed the door; whoever is handed one checks nothing again.

    Attributes
    ----------
    given : ndarray of shape (n, K)
        The scores in the dtype they came in.
    kind : {"logits", "probabilities"}
        What they are.
    probabilities : ndarray of shape (n, K)
        p⁰ in float64.
    decision : ndarray of int of shape (n,)
        The argmax of what came in, in its own dtype, the smallest index on ties.
    """

    given: npt.NDArray[Any]
    kind: Kind
    probabilities: Matrix
    decision: Decisions

    @classmethod
    def of(cls, scores: Any, kind: Kind, *, fitting: bool = False) -> Original:
        """Check scores of a known kind; see `read_scores` for ``fitting``."""
        given = as_scores(scores)
        probabilities = read_scores(
            given, kind, "probabilities", masked=True, owner="Preserved", fitting=fitting
        )
        return cls(given, kind, probabilities, given.argmax(axis=1))

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.given.shape[0])

    @property
    def classes(self) -> int:
        """The number of classes."""
        return int(self.given.shape[1])

    @functools.cached_property
    def masked(self) -> npt.NDArray[np.bool_]:
        """Which rows have a logit of −inf."""
        return np.asarray(np.isneginf(self.given.min(axis=1)))

    def take(self, rows: Classes) -> Original:
        """Return some of the rows."""
        return Original(self.given[rows], self.kind, self.probabilities[rows], self.decision[rows])

    def working(self, domain: Domain, log_floor: float) -> Matrix:
        """Return the rows as what a map works on, in an array of the caller's own."""
        known = self.probabilities if self.kind == "probabilities" else self.given
        if domain == "probabilities":
            return self.probabilities.copy()
        out = np.array(known, dtype=np.float64, order="C")
        for at in row_blocks(*out.shape):
            in_domain(out[at], self.kind, domain, log_floor, np)  # written over the block
        return out
