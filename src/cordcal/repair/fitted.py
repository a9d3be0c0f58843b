"""The methods CORD and Lift share once fitted: `transform` and `explain`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric import arrays
from cordcal._numeric.types import Array, Decisions
from cordcal._validation import layouts
from cordcal._validation.estimator import Estimator
from cordcal._validation.layouts import align_rows
from cordcal.repair import dispatch, foreign, numpy_engine, ranking, rule
from cordcal.repair.inputs import check_against_fit, check_fitted, check_pair, output_array
from cordcal.repair.ranking import Level, RankedRows
from cordcal.repair.results import Explanation

Columns = tuple[npt.NDArray[Any], ...]
"""The fields of an `Explanation`, for some rows."""


def explain(original: Array, direct: Array, decision: Decisions | None, eta: Any) -> Explanation:
    """Describe each row and its repair with these scalars."""
    if np.ndim(eta):
        parts = _ranks(original, direct, decision, eta.tolist())
    else:
        parts = _first_rank(original, direct, decision, eta)
    return Explanation(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))


def _first_rank(
    original: Array, direct: Array, decision: Decisions | None, eta: float
) -> Iterator[Columns]:
    if isinstance(direct, np.ndarray):
        states = [
            block.state for block in numpy_engine.described_blocks(original, direct, decision)
        ]
    else:
        states = [foreign.describe_rows(original, direct, decision)[0]]
    for state in states:
        responses = rule.response(eta, state.reference, state.reference_rest, state.lower)
        yield _columns(state.decision, state, responses)


def _ranks(
    original: Array, direct: Array, decision: Decisions | None, etas: list[float]
) -> Iterator[Columns]:
    for rows in _ranked_blocks(original, direct, decision, len(etas)):
        levels = [
            _columns(rows.order[:, level], state, responses)
            for level, state, responses in ranking.respond_levels(rows, etas)
        ]
        # The levels come from the last to the first; their columns go from the first to the last.
        yield tuple(np.stack(field[::-1], axis=1) for field in zip(*levels, strict=True))


def _ranked_blocks(
    original: Array, direct: Array, decision: Decisions | None, levels: int
) -> Iterator[RankedRows]:
    if isinstance(direct, np.ndarray):
        for block in numpy_engine.checked_blocks(original, direct, decision):
            yield numpy_engine.rank_block(block, levels)
    else:
        yield foreign.rank_rows(original, direct, decision, levels)[0]


def _columns(
    decision: Array, state: rule.RowState | Level, responses: tuple[Array, Array, Array]
) -> Columns:
    mass, rest, slope = responses
    fields = (decision, state.direct_mass, state.reference, state.lower, mass, state.changed)
    bound = numpy_engine.at_bound(arrays.to_numpy(rest), arrays.to_numpy(slope))
    return (*(arrays.to_numpy(field) for field in fields), bound)


class FittedRepair(Estimator, ABC):
    """Base class of repairs; a subclass adds `fit` and its rule for rows."""

    construction_: Any
    n_classes_: int

    def transform(
        self,
        original: Any,
        direct: Any,
        *,
        decision: Any = None,
        dtype: Any = None,
        out: npt.NDArray[Any] | None = None,
        axis: int | None = None,
    ) -> Any:
        """Repair rows with the fitted rule.

        Parameters
        ----------
        original, direct : array_like of shape (n, K) or (K,)
            The classifier's and the calibrator's probabilities.  Rows of pandas objects are
            matched by index; the result has the order of ``original``.
        decision : array_like of int, optional
            The class to preserve per row; required if `fit` had one.
        dtype : dtype, optional
            float64, float32 or float16; by default that of ``direct``.  The decision is
            strictly the largest entry in this dtype.
        out : ndarray, optional
            Where to write; may be ``direct`` itself.  If a row is invalid, the rows before it
            have been written.
        axis : int, optional
            The dimension of the classes, for dense arrays such as (B, K, H, W).

        Returns
        -------
        repaired : ndarray
            The repaired probabilities, or ``out``; lazy for dask collections.
        """
        check_fitted(self)
        return dispatch.transform(self, original, direct, decision, dtype, out, axis)

    def explain(
        self, original: Any, direct: Any, *, decision: Any = None, axis: int | None = None
    ) -> Explanation:
        """Explain the repair of each row: decision, masses, interval, and bounds reached.

        Parameters
        ----------
        original, direct, decision, axis
            As for `transform`; a single row gives a table of one row, and every position of a
            dense array is a row.

        Returns
        -------
        explanation : Explanation
            Vectors with one entry per row; if several ranks are preserved, matrices with one
            column per rank.  For a `Lift`, ``reference`` is the confidence before clipping.

        Examples
        --------
        >>> import numpy as np
        >>> from cordcal import CORD
        >>> original, direct = np.array([[0.6, 0.4]]), np.array([[0.3, 0.7]])
        >>> CORD().fit(original, direct).explain(original, direct).changed
        array([ True])
        """
        check_fitted(self)
        original, direct, decision = align_rows(original=original, direct=direct, decision=decision)
        if layouts.lazy_handler(original, direct) is not None:
            raise InputError(
                "original and direct",
                "are dask collections, whose rows explain does not read",
                "compute() the rows to explain first",
            )
        (original, direct), (decision,) = layouts.flatten_rows(
            axis, (original, direct), (decision,)
        )
        p, q = check_pair(original, direct, allow_row=True)
        if q.ndim == 1:
            p, q = p[None, :], q[None, :]
        return self._explain(p, q, check_against_fit(self.construction_, q, decision))

    def _transform_rows(
        self,
        original: npt.NDArray[Any],
        direct: npt.NDArray[Any],
        decision: Decisions,
        dtype: npt.DTypeLike,
    ) -> npt.NDArray[Any]:
        """Repair a pair of matrices with checked decisions."""
        out = output_array(direct, dtype, None, False)
        self._repair_rows(original, direct, decision, out)
        return out

    @abstractmethod
    def _repair_rows(
        self,
        original: npt.NDArray[Any],
        direct: npt.NDArray[Any],
        decision: Decisions | None,
        out: npt.NDArray[Any],
    ) -> None:
        """Write repaired NumPy rows to ``out``: one of the inputs, or no overlap with them."""

    @abstractmethod
    def _repair_foreign(
        self, original: Any, direct: Any, decision: Decisions | None, dtype: Any
    ) -> Any:
        """Return repaired rows of another library, on their device."""

    @abstractmethod
    def _explain(self, original: Any, direct: Any, decision: Decisions | None) -> Explanation:
        """Explain rows with checked decisions."""
