"""CORD: keep the decision, retain the mean mass, leave the rest of the report alone."""

from __future__ import annotations

from typing import Any, NoReturn, Self

import numpy as np
import numpy.typing as npt

from cordcal import arrays
from cordcal.repair import _array
from cordcal.repair._array import EPSILON
from cordcal.repair._exact import ExactSum
from cordcal.repair._results import Construction, Explanation
from cordcal.repair._rows import CalibrationRows, described_blocks, repair_rows

_OUTPUT_DTYPES = (np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.float16))


class CORD:
    """Repair a calibrator's reports so that the classifier's decisions are kept.

    `fit` reads the original and the direct reports of the calibration rows and finds
    one number, the shared scalar; `transform` repairs any report with it.  The
    repaired vector's own argmax is the original decision in every row, the direct
    distribution over the other classes is untouched, and the mean mass on the original
    decisions is retained on the calibration rows.  No labels are needed.

    Attributes
    ----------
    eta_ : float
        The shared scalar η*.
    construction_ : Construction
        What `fit` did.
    n_classes_ : int
        Number of classes seen by `fit`.

    Examples
    --------
    >>> import numpy as np
    >>> original = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.5, 0.4, 0.1]])
    >>> direct = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.4, 0.5, 0.1]])
    >>> cord = CORD().fit(original, direct)
    >>> repaired = cord.transform(original, direct)
    >>> repaired.argmax(axis=1)
    array([0, 1, 0])
    >>> repaired.round(3)
    array([[0.68 , 0.213, 0.107],
           [0.212, 0.575, 0.212],
           [0.455, 0.455, 0.091]])
    """

    eta_: float
    construction_: Construction
    n_classes_: int

    def fit(
        self,
        original: Any,
        direct: Any,
        *,
        decision: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Find the shared scalar on calibration rows.

        Parameters
        ----------
        original : array_like of shape (n, K)
            The classifier's own probabilities.
        direct : array_like of shape (n, K)
            The calibrator's probabilities for the same rows.
        decision : array_like of int, optional
            The class to keep in each row, where it is not the argmax of ``original``
            (ties go to the smallest index).
        sample_weight : array_like, optional
            Weights of the rows, on both sides of the mean constraint.

        Returns
        -------
        self : CORD
            The fitted repair.
        """
        p, q = _pair(original, direct)
        rows, classes = q.shape
        keep = None if decision is None else arrays.check_decisions(decision, rows, classes)
        weight = None if sample_weight is None else arrays.check_weights(sample_weight, rows)
        calibration = CalibrationRows.of(p, q, keep, weight)
        self._construct(calibration, classes, decision_given=decision is not None)
        return self

    def _construct(self, rows: CalibrationRows, classes: int, *, decision_given: bool) -> None:
        solution, constraint = rows.solve()
        at_lower, at_upper = rows.count_at_bounds(solution.eta)

        def mean(excess: ExactSum) -> float:
            return (rows.direct_sum + excess).mean(rows.weight_sum)

        self.n_classes_ = classes
        self.eta_ = solution.eta
        self.construction_ = Construction(
            n=len(rows),
            n_classes=classes,
            direct_mean=rows.direct_sum.mean(rows.weight_sum),
            target=mean(constraint.target),
            attainable=(mean(constraint.at_lowest), mean(constraint.at_highest)),
            attained=mean(solution.excess),
            eta=solution.eta,
            n_changed=rows.n_changed,
            n_at_lower=at_lower,
            n_at_upper=at_upper,
            decision_given=decision_given,
            passes=solution.passes,
        )

    def transform(
        self,
        original: Any,
        direct: Any,
        *,
        decision: Any = None,
        dtype: npt.DTypeLike | None = None,
        out: npt.NDArray[Any] | None = None,
    ) -> npt.NDArray[Any]:
        """Repair reports with the fitted scalar.

        Parameters
        ----------
        original, direct : array_like of shape (n, K) or (K,)
            The classifier's and the calibrator's probabilities.
        decision : array_like of int, optional
            The class to keep in each row; required if `fit` was given one.
        dtype : dtype, optional
            float64, float32 or float16; by default that of ``direct``.  The decision is
            strictly the largest entry in this dtype.
        out : ndarray, optional
            Where to write; may be ``direct`` itself.  If a row is refused, the rows
            before it have been written.

        Returns
        -------
        repaired : ndarray
            The repaired probabilities, ``out`` if that was given.
        """
        self._check_fitted()
        p, q = _pair(original, direct, allow_row=True)
        single = q.ndim == 1
        if single:
            p, q = p[None, :], q[None, :]
        keep = self._check_against_fit(q, decision)
        target = _output(q, dtype, out, single)
        repair_rows(p, q, keep, self.eta_, target)
        if out is not None:
            return out
        return target[0] if single else target

    def explain(self, original: Any, direct: Any, *, decision: Any = None) -> Explanation:
        """Tell each row's story: decision, masses, interval, and what the repair did.

        Parameters
        ----------
        original, direct, decision
            As for `transform`.

        Returns
        -------
        explanation : Explanation
            Vectors with one entry a row.
        """
        self._check_fitted()
        p, q = _pair(original, direct)
        keep = self._check_against_fit(q, decision)
        parts: list[tuple[npt.NDArray[Any], ...]] = []
        for block in described_blocks(p, q, keep):
            state = block.state
            mass, rest, slope = _array.response(
                self.eta_, state.reference, state.reference_rest, state.lower
            )
            bound = np.where(slope > 0.0, 0, np.where(rest == EPSILON, 1, -1)).astype(np.int8)
            parts.append(
                (
                    state.decision,
                    state.direct_mass,
                    state.reference,
                    state.lower,
                    mass,
                    state.changed,
                    bound,
                )
            )
        return Explanation(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def _check_fitted(self) -> None:
        if not hasattr(self, "eta_"):
            _raise_not_fitted()

    def _check_against_fit(
        self, direct: npt.NDArray[Any], decision: Any
    ) -> npt.NDArray[np.intp] | None:
        rows, classes = direct.shape
        if classes != self.n_classes_:
            raise ValueError(
                f"direct has {classes} classes but fit saw {self.n_classes_}; "
                f"pass the same columns as in fit"
            )
        if decision is None:
            if self.construction_.decision_given:
                raise ValueError(
                    "decision is missing: fit was given the decisions to keep, so transform "
                    "needs them too; pass decision="
                )
            return None
        return arrays.check_decisions(decision, rows, classes)

    def __repr__(self) -> str:
        return f"CORD(eta={self.eta_!r})" if hasattr(self, "eta_") else "CORD()"


def _pair(
    original: Any, direct: Any, *, allow_row: bool = False
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    p = arrays.as_matrix(original, "original", allow_row=allow_row)
    q = arrays.as_matrix(direct, "direct", allow_row=allow_row)
    arrays.check_same_shape(p, "original", q, "direct")
    return p, q


def _output(
    direct: npt.NDArray[Any],
    dtype: npt.DTypeLike | None,
    out: npt.NDArray[Any] | None,
    single: bool,
) -> npt.NDArray[Any]:
    """Return the (n, K) array to write to, which may be a view of ``out``."""
    if dtype is not None and np.dtype(dtype) not in _OUTPUT_DTYPES:
        raise ValueError(f"dtype {np.dtype(dtype)} is not served; use float64, float32 or float16")
    if out is None:
        return np.empty(direct.shape, dtype=direct.dtype if dtype is None else dtype)
    expected = direct.shape[1:] if single else direct.shape
    if not isinstance(out, np.ndarray) or out.shape != expected:
        found = getattr(out, "shape", type(out).__name__)
        raise ValueError(f"out has shape {found}; pass an ndarray of shape {expected}")
    wanted = out.dtype if dtype is None else np.dtype(dtype)
    if out.dtype not in _OUTPUT_DTYPES or out.dtype != wanted:
        raise ValueError(
            f"out has dtype {out.dtype}; pass one of float64, float32 or float16"
            + ("" if dtype is None else f" that equals dtype={wanted}")
        )
    if not out.flags.writeable:
        raise ValueError("out is read-only; pass a writeable array")
    return out[None, :] if single else out


def _raise_not_fitted() -> NoReturn:
    from sklearn.exceptions import NotFittedError

    raise NotFittedError("this CORD is not fitted yet; call fit(original, direct) first")
