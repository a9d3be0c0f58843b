"""The paper's other repairs, for comparison: minimal repairs, other mean targets, other weights.

They share every step with CORD except the varied one, and return NumPy arrays.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric import arrays
from cordcal._numeric.arrays import lane_sum
from cordcal._numeric.exact import scale_to_safe_exponent
from cordcal._numeric.types import Decisions, Vector
from cordcal._validation.estimator import Estimator
from cordcal._validation.labels import check_decisions, check_weights
from cordcal._validation.layouts import align_rows
from cordcal.repair import numpy_engine, ranking, rule
from cordcal.repair.construction import CalibrationRows
from cordcal.repair.fitted import check_against_fit, check_fitted, check_pair, output_array
from cordcal.repair.numpy_engine import MeanTarget
from cordcal.repair.results import Construction

Reports = npt.NDArray[Any]


class VariantCORD(Estimator):
    """CORD with another mean target or another weight in the local reference.

    Parameters
    ----------
    target : {"direct", "reference", "projected", "none"}
        Which mean the repaired masses retain: that of the direct masses (CORD), of the local
        references, of the direct masses clipped to their intervals, or none (every reference
        is clipped to its interval).
    reference_weight : float
        λ of Appendix B: the direct mass's weight in a changed row's reference.

    Attributes
    ----------
    eta_ : float
        The shared scalar η*.
    construction_ : Construction
        The record of `fit`.

    Examples
    --------
    >>> import numpy as np
    >>> from cordcal import CORD
    >>> rng = np.random.default_rng(0)
    >>> original, direct = rng.dirichlet(np.ones(3), 50), rng.dirichlet(np.ones(3), 50)
    >>> VariantCORD(target="none").fit(original, direct).eta_
    0.0
    >>> VariantCORD().fit(original, direct).eta_ == CORD().fit(original, direct).eta_
    True
    """

    eta_: float
    construction_: Construction

    def __init__(
        self,
        *,
        target: MeanTarget | Literal["none"] = "direct",
        reference_weight: float = 0.5,
    ) -> None:
        self.target = target
        self.reference_weight = reference_weight

    def fit(
        self, original: Any, direct: Any, *, decision: Any = None, sample_weight: Any = None
    ) -> Self:
        """Find the shared scalar on calibration rows; see `CORD.fit`."""
        if self.target not in ("direct", "reference", "projected", "none"):
            raise InputError(
                "target",
                f"is {self.target!r}",
                "pass 'direct', 'reference', 'projected' or 'none'",
            )
        if not 0.0 <= self.reference_weight <= 1.0:
            raise InputError(
                "reference_weight", f"is {self.reference_weight}", "pass a number between 0 and 1"
            )
        original, direct, decision, sample_weight = align_rows(
            original=original, direct=direct, decision=decision, sample_weight=sample_weight
        )
        p, q = _numpy_pair(original, direct)
        keep = None if decision is None else check_decisions(decision, *q.shape)
        weight = None
        if sample_weight is not None:
            weight, _ = scale_to_safe_exponent(check_weights(sample_weight, len(q)))
        description = numpy_engine.describe(
            p,
            q,
            keep,
            weight,
            reference_weight=self.reference_weight,
            target="direct" if self.target == "none" else self.target,
        )
        rows = CalibrationRows(description, weight, q.shape[1], 1)
        construction = rows.construct(
            decision_given=decision is not None, free=self.target == "none"
        )
        self.__dict__.update(construction_=construction, eta_=construction.eta)
        return self

    def transform(
        self, original: Any, direct: Any, *, decision: Any = None, dtype: Any = None
    ) -> npt.NDArray[Any]:
        """Repair rows with the fitted scalar; see `CORD.transform`."""
        check_fitted(self)
        original, direct, decision = align_rows(original=original, direct=direct, decision=decision)
        p, q = _numpy_pair(original, direct)
        keep = check_against_fit(self.construction_, q, decision)
        out = output_array(q, dtype, None, False)
        numpy_engine.repair(p, q, keep, self.eta_, out, reference_weight=self.reference_weight)
        return out

    def __repr__(self) -> str:
        return f"VariantCORD(target={self.target!r}, reference_weight={self.reference_weight})"


def _numpy_pair(original: Any, direct: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return both arrays as NumPy arrays."""
    p, q = check_pair(original, direct)
    return arrays.to_numpy(p), arrays.to_numpy(q)


class _Fixed(Estimator):
    """A repair of each row by itself, with nothing to fit."""

    def fit(
        self, original: Any, direct: Any, *, decision: Any = None, sample_weight: Any = None
    ) -> Self:
        """Do nothing; for the same interface as `CORD.fit`."""
        return self

    def transform(
        self, original: Any, direct: Any, *, decision: Any = None, dtype: Any = None
    ) -> npt.NDArray[Any]:
        """Repair rows; see `CORD.transform`."""
        original, direct, decision = align_rows(original=original, direct=direct, decision=decision)
        p, q = _numpy_pair(original, direct)
        keep = None if decision is None else check_decisions(decision, *q.shape)
        out = output_array(q, dtype, None, False)
        self._write(p, q, keep, out)
        return out

    @abstractmethod
    def _write(self, p: Reports, q: Reports, keep: Decisions | None, out: Reports) -> None:
        """Write the repaired rows to ``out``."""


class MinimalRepair(_Fixed):
    """The smallest change that preserves each decision: changed rows go to their lower bound.

    Rows whose direct argmax is the decision are returned as they are; there is nothing to fit.

    Examples
    --------
    >>> import numpy as np
    >>> original, direct = np.array([[0.6, 0.4], [0.7, 0.3]]), np.array([[0.2, 0.8], [0.9, 0.1]])
    >>> MinimalRepair().fit(original, direct).transform(original, direct).round(3)
    array([[0.5, 0.5],
           [0.9, 0.1]])
    """

    def _write(self, p: Reports, q: Reports, keep: Decisions | None, out: Reports) -> None:
        for block in numpy_engine.described_blocks(p, q, keep):
            state = block.state
            rebuilt = rule.rebuild(
                block.direct, state.decision, block.part, state.lower, 1.0 - state.lower
            )
            unchanged = normalised_rows(block.direct, block.part.total, block.level)
            repaired = np.where(state.changed[:, None], rebuilt, unchanged)
            # Unchanged rows may tie, as supplied or after rounding.
            out[block.rows] = rule.raise_decision(repaired.astype(out.dtype), state.decision)


class RankingProjection(_Fixed):
    """The smallest change that preserves the whole ranking: the KL projection onto the order.

    Each row becomes the distribution u in the original's order that minimises KL(direct‖u):
    runs of classes in the wrong order share their mean (pool adjacent violators), and are then
    separated by the smallest steps of the dtype.  There is nothing to fit.

    Examples
    --------
    >>> import numpy as np
    >>> original, direct = np.array([[0.5, 0.3, 0.2]]), np.array([[0.5, 0.1, 0.4]])
    >>> repaired = RankingProjection().fit(original, direct).transform(original, direct)
    >>> repaired.round(3), bool(repaired[0, 1] > repaired[0, 2])
    (array([[0.5 , 0.25, 0.25]]), True)
    """

    def _write(self, p: Reports, q: Reports, keep: Decisions | None, out: Reports) -> None:
        levels = q.shape[1] - 1  # the last rank has nothing below it
        for block in numpy_engine.checked_blocks(p, q, keep):
            order = ranking.kept_order(block.original, block.decision)
            direct = normalised_rows(block.wide_direct, lane_sum(block.wide_direct), block.level)
            ranked = np.take_along_axis(direct, order, axis=1)
            projected = np.empty_like(ranked)
            np.put_along_axis(projected, order, _nonincreasing(ranked), axis=1)
            rows = ranking.rank_rows(block.wide_original, block.wide_direct, order, levels)
            out[block.rows] = ranking.raise_order(projected.astype(out.dtype), rows, levels)


def normalised_rows(rows: Vector, total: Vector, level: float) -> Vector:
    """Return the rows; those whose sums deviate from one by more than ``level`` normalised."""
    return rows / np.where(rule.sums_to_one(total, level), 1.0, total)[:, None]


def _nonincreasing(rows: Vector) -> Vector:
    """Return each row's nearest nonincreasing row in least squares, which is that in KL, too."""
    from scipy.optimize import isotonic_regression

    fitted = rows.copy()
    for row in np.flatnonzero((np.diff(rows, axis=1) > 0.0).any(axis=1)):
        fitted[row] = isotonic_regression(rows[row], increasing=False).x
    return fitted
