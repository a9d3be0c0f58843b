"""Which rows a model was fitted on, so that it is not certified on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.arrays import row_digests
from cordcal._numeric.types import Floats, NumPyArray
from cordcal._validation.ids import id_digests

# As many digests are kept, the smallest ones: 80 KB in a file.
_MAX_ROWS = 10_000


@dataclass(frozen=True, eq=False)
class FitRows:
    """Digests of the rows of a fit, of their ids or else of their scores.

    Attributes
    ----------
    digests : ndarray of uint64
        The digests in order, of many rows the smallest ones.
    by_ids : bool
        Whether they are those of ids.
    """

    digests: npt.NDArray[np.uint64]
    by_ids: bool

    @classmethod
    def of(cls, scores: Floats, ids: NumPyArray | None) -> FitRows:
        """Return what identifies the rows of a fit."""
        digests = row_digests(scores) if ids is None else id_digests(ids)
        return cls(np.unique(digests)[:_MAX_ROWS], ids is not None)

    def caveats(self, scores: Floats, ids: NumPyArray | None) -> tuple[str, ...]:
        """Refuse rows of the fit by their ids, or count equal score vectors in a caveat."""
        if self.by_ids and ids is None:
            return ("fit had ids, but these rows have none, so rows of the fit are not recognised",)
        digests = id_digests(ids) if self.by_ids and ids is not None else row_digests(scores)
        # Only the smallest digests were kept, so only those are compared.
        is_kept = len(self.digests) < _MAX_ROWS or digests <= self.digests[-1]
        repeated = np.isin(digests, self.digests) & is_kept
        if not repeated.any():
            return ()
        if self.by_ids:
            raise InputError(
                "ids",
                "has rows that were used to fit",
                "certify on other rows",
                rows=np.flatnonzero(repeated),
                detail="was used to fit",
            )
        return (
            f"{int(repeated.sum()):,} of {len(digests):,} rows have the scores of a row that was "
            f"used to fit; if they are the same rows, the promise does not hold",
        )


def repeated_ids(ids: NumPyArray) -> tuple[str, ...]:
    """Return a caveat if rows to certify on share an id."""
    repeated = len(ids) - len(np.unique(id_digests(ids)))
    if not repeated:
        return ()
    return (
        f"{repeated:,} rows repeat an id: rows of one id are not independent, so the promise may "
        f"not hold unless they are passed as clusters",
    )
