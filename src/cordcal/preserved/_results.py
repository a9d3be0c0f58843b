"""The two reports of a calibrator with its repair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from cordcal._door.types import Decisions


@dataclass(frozen=True, eq=False)
class Reports:
    """Both reports of the same rows, and the decisions they belong to.

    Attributes
    ----------
    direct : ndarray of shape (n, K)
        The calibrator's own probabilities.
    repaired : ndarray of shape (n, K)
        The repair's probabilities, whose argmax is the decision in every row.
    decision : ndarray of int of shape (n,)
        The classifier's decisions.
    """

    direct: npt.NDArray[Any]
    repaired: npt.NDArray[Any]
    decision: Decisions

    def to_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays by name."""
        return {"direct": self.direct, "repaired": self.repaired, "decision": self.decision}
