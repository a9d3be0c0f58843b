"""What CORD and Lift share: their arguments, and once fitted `transform` and `explain`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import array_api_compat
import numpy as np

from cordcal._errors import InputError, renumber_rows
from cordcal._numeric import arrays
from cordcal._numeric.types import (
    Array,
    ArrayLike,
    Arrays,
    DType,
    Floats,
    Labels,
    Meta,
    Predictions,
    Vector,
)
from cordcal._validation import layouts
from cordcal._validation.context import ContextValues
from cordcal._validation.estimator import Estimator
from cordcal._validation.labels import check_predictions
from cordcal._validation.scores import as_matrix, check_same_shape
from cordcal._validation.table import MatchedRows, match
from cordcal.repair.prediction_rule import PredictionRule, check_rule
from cordcal.repair.results import (
    AnyConstruction,
    ConfidenceGap,
    Explanation,
    RankingConstruction,
)
from cordcal.repair.rule import rounding_margin

_OUTPUT_DTYPES = (np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.float16))


def check_pair(
    original: ArrayLike, direct: ArrayLike, *, allow_row: bool = False
) -> tuple[Array, Array]:
    """Return matched original and direct probabilities as arrays of one shape and one library."""
    p = as_matrix(original, "original", allow_row=allow_row)
    q = as_matrix(direct, "direct", allow_row=allow_row)
    check_same_shape(p, "original", q, "direct")
    arrays.namespace(p, q)
    if isinstance(p, np.ndarray) != isinstance(q, np.ndarray):
        raise TypeError(
            f"original is a {type(p).__name__} and direct a {type(q).__name__}; pass one kind"
        )
    return p, q


def output_dtype(direct: Array, dtype: DType) -> DType:
    """Return the output dtype as a dtype of the library of ``direct``."""
    if isinstance(direct, np.ndarray) and isinstance(dtype, np.dtype) and dtype in _OUTPUT_DTYPES:
        return dtype
    name = arrays.dtype_name(dtype)
    xp = arrays.namespace(direct)
    supported = [str(output) for output in _OUTPUT_DTYPES]
    if array_api_compat.is_torch_array(direct):
        supported.append("bfloat16")
    if name not in supported or not hasattr(xp, name):
        choices = f"{', '.join(supported[:-1])} or {supported[-1]}"
        raise InputError("dtype", f"{name} is not supported", f"use {choices}")
    return np.dtype(name) if xp is np else getattr(xp, name)


def output_array(direct: Floats, dtype: DType | None, out: Floats | None, single: bool) -> Floats:
    """Return the (n, K) array to write to, which may be a view of ``out``."""
    if dtype is not None:
        dtype = output_dtype(direct, dtype)
    if out is None:
        return np.empty(direct.shape, dtype=direct.dtype if dtype is None else dtype)
    expected = direct.shape[1:] if single else direct.shape
    if not isinstance(out, np.ndarray) or out.shape != expected:
        shape = getattr(out, "shape", type(out).__name__)
        raise InputError("out", f"has shape {shape}", f"pass an ndarray of shape {expected}")
    required = out.dtype if dtype is None else dtype
    if out.dtype not in _OUTPUT_DTYPES or out.dtype != required:
        matching = "" if dtype is None else f" that equals dtype={required}"
        raise InputError(
            "out",
            f"has dtype {out.dtype}",
            f"pass one of float64, float32 or float16{matching}",
        )
    if not out.flags.writeable:
        raise InputError("out", "is read-only", "pass a writeable array")
    return out[None, :] if single else out


def check_fitted(repair: Estimator) -> None:
    """Raise an error unless the repair is fitted."""
    if not hasattr(repair, "construction_"):
        from sklearn.exceptions import NotFittedError

        raise NotFittedError(
            f"this {type(repair).__name__} is not fitted yet; call fit(original, direct) first"
        )


def check_against_fit(
    construction: AnyConstruction, direct: Array, prediction: ArrayLike | None
) -> Predictions | None:
    """Check rows and predictions against those of the fit; return the predictions."""
    rows, classes = direct.shape
    if classes != construction.n_classes:
        raise InputError(
            "direct",
            f"has {classes} classes but fit saw {construction.n_classes}",
            "pass the same columns as in fit",
        )
    if prediction is None:
        if construction.prediction_given:
            raise InputError(
                "prediction",
                "is missing: fit had predictions, so transform needs them too",
                "pass {option}",
                option=("prediction", "…"),
            )
        return None
    return check_predictions(prediction, rows, classes)


def refuse_ranking(preserve: object, rule: object) -> None:
    """Refuse a rule together with more than the first rank."""
    if preserve != 1 and not (isinstance(rule, str) and rule == "argmax"):
        raise InputError(
            "preserve",
            f"is {preserve!r}, but a rule keeps one prediction, not a ranking",
            "leave it out, or write {option}",
            option=("rule", "argmax"),
        )


def check_rule_dtype(class_weights: Vector | None, dtype: DType) -> None:
    """Refuse float16 for weights with which its products or probabilities underflow.

    The largest product of a distribution is at least 1 / Σ 1/w, which must be a normal number.
    A rival's probability may be subnormal: its rounding, multiplied by its weight, must not move
    a prediction's probability by more than 2^-9.  Other dtypes have room for every ratio of 1e8.
    """
    if class_weights is None or arrays.dtype_name(dtype) != "float16":
        return
    _, slack = rounding_margin(float(class_weights.max()), dtype)
    smallest_product = 1.0 / (1.0 / class_weights).sum()
    if slack > 2.0**-9 * class_weights.min() or smallest_product < 2.0**-14 * (1.0 + 2.0**-7):
        raise InputError(
            "dtype",
            f"is float16, too narrow for a rule of {len(class_weights)} classes with weights "
            f"from {class_weights.min():.3g} to {class_weights.max():.3g}",
            "use float32",
        )


class FittedRepair(Estimator, ABC):
    """Base class of repairs; a subclass adds `fit` and its rule for rows."""

    construction_: AnyConstruction
    n_classes_: int
    rule: str | PredictionRule | ArrayLike
    rule_: PredictionRule | None = None
    # The class names of the data frames in fit; later ones are matched by name.
    columns_: list[str] | None = None

    def weights_for(self, classes: int, names: Sequence[str] | None = None) -> Vector | None:
        """Return the weights of ``rule=`` for these classes, or None for the argmax."""
        return _weights_of(check_rule(self.rule, classes, names=names))

    def _match(
        self, original: ArrayLike, direct: ArrayLike, prediction: ArrayLike | None
    ) -> MatchedRows:
        """Match rows with each other, and columns with those of fit."""
        return match(
            {"original": original, "direct": direct},
            fitted_names=self.columns_,
            prediction=prediction,
        )

    def fitted_weights(self, dtype: DType | None = None) -> Vector | None:
        """Return the weights of the fitted rule, or None for the argmax; check the dtype."""
        weights = _weights_of(self.rule_)
        if dtype is not None:
            check_rule_dtype(weights, dtype)
        return weights

    def _rule_state(self) -> Arrays:
        """Return what a model file stores of the rule: its weights, nothing for the argmax."""
        return {} if self.rule_ is None else {"rule": self.rule_.weights}

    def _restore_rule(self, tensors: Arrays, meta: Meta) -> None:
        self.columns_ = meta["class_names"]
        if "rule" in tensors:
            rule = PredictionRule(tensors["rule"]).for_classes(self.columns_, "the file")
            self.rule = self.rule_ = rule

    def transform(
        self,
        original: ArrayLike,
        direct: ArrayLike,
        *,
        prediction: ArrayLike | None = None,
        dtype: DType | None = None,
        out: Floats | None = None,
        axis: int | None = None,
    ) -> Array:
        """Repair rows with the fitted rule.

        Parameters
        ----------
        original, direct : array_like of shape (n, K) or (K,)
            The classifier's and the calibrator's probabilities.  Rows of pandas objects are
            matched by index; the result has the order of ``original``.  Columns of data frames
            are matched by name, with those of `fit` if it had any, in whose order they return.
        prediction : array_like of int, optional
            The class to preserve per row; required if `fit` had one.
        dtype : dtype, optional
            float64, float32 or float16; by default that of ``direct``.  The prediction is
            strictly the largest entry in this dtype; under a rule, strictly that of the largest
            weight times probability, with the weights in float64 and in this dtype.
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
        collection = layouts.lazy_handler(original, direct)
        if collection is not None:
            if out is not None or axis is not None:
                raise InputError(
                    "out and axis", "are not supported for dask collections", "omit them"
                )
            original, direct = self._match(original, direct, None).matrices
            return collection.transform(self, original, direct, prediction, dtype)
        rows = self._match(original, direct, prediction)
        (original, direct), prediction = rows.matrices, rows.prediction
        if layouts.is_dense(axis, original, direct) and np.ndim(direct) > 1:
            assert axis is not None
            return self._transform_dense(original, direct, prediction, dtype, out, axis)
        p, q = check_pair(original, direct, allow_row=True)
        single = q.ndim == 1
        if single:
            p, q = p[None, :], q[None, :]
        keep = check_against_fit(self.construction_, q, prediction)
        if not isinstance(q, np.ndarray):
            if out is not None:
                raise InputError("out", "is supported for NumPy arrays only", "omit it")
            target_dtype = q.dtype if dtype is None else output_dtype(q, dtype)
            repaired = self._repair_foreign(p, q, keep, target_dtype)
            return repaired[0, :] if single else repaired
        target = output_array(q, dtype, out, single)
        written = target
        if out is not None and _overlaps(target, p, q):
            written = np.empty_like(target)
        self._repair_rows(p, q, keep, written)
        if written is not target:
            target[...] = written
        if out is not None:
            return out
        return target[0] if single else target

    def explain(
        self,
        original: ArrayLike,
        direct: ArrayLike,
        *,
        prediction: ArrayLike | None = None,
        axis: int | None = None,
    ) -> Explanation:
        """Explain the repair of each row: prediction, masses, interval, and bounds reached.

        Parameters
        ----------
        original, direct, prediction, axis
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
        if layouts.lazy_handler(original, direct) is not None:
            raise InputError(
                "original and direct",
                "are dask collections, whose rows explain does not read",
                "compute() the rows to explain first",
            )
        rows = self._match(original, direct, prediction)
        (original, direct), (prediction,) = layouts.flatten_rows(
            axis, rows.matrices, (rows.prediction,)
        )
        p, q = check_pair(original, direct, allow_row=True)
        if q.ndim == 1:
            p, q = p[None, :], q[None, :]
        return self.explain_checked(p, q, check_against_fit(self.construction_, q, prediction))

    def transform_checked(
        self,
        original: Floats,
        direct: Floats,
        prediction: Predictions,
        dtype: DType,
        context: ContextValues | None = None,
    ) -> Floats:
        """Repair a pair of matrices with checked predictions; only a `Lift` has context."""
        out = output_array(direct, dtype, None, False)
        self._repair_rows(original, direct, prediction, out)
        return out

    def _transform_dense(
        self,
        original: ArrayLike,
        direct: ArrayLike,
        prediction: ArrayLike | None,
        dtype: DType | None,
        out: Floats | None,
        axis: int,
    ) -> Array:
        """Repair dense arrays: views of rows one after the other."""
        check_same_shape(original, "original", direct, "direct")
        place = layouts.check_axis(axis, np.ndim(direct), "direct")
        if not isinstance(direct, np.ndarray):
            xp = arrays.namespace(original, direct)
            if xp is not np:
                p, q = (xp.moveaxis(array, place, -1) for array in (original, direct))
                rows = [xp.reshape(array, (-1, q.shape[-1])) for array in (p, q)]
                keep = None if prediction is None else arrays.to_numpy(prediction).reshape(-1)
                repaired = self.transform(*rows, prediction=keep, dtype=dtype)
                return xp.moveaxis(xp.reshape(repaired, q.shape), -1, place)
            direct = np.asarray(direct, dtype=np.float64)
        target = output_array(direct, dtype, out, False)
        written = np.empty_like(target) if _overlaps(target, original, direct) else target
        views = layouts.row_views(place, (original, direct, written), (prediction,))
        for first, (p, q, part), (block_prediction,) in views:
            with renumber_rows(first):
                self.transform(p, q, prediction=block_prediction, out=part)
        if written is not target:
            target[...] = written
        return target

    @abstractmethod
    def _repair_rows(
        self, original: Floats, direct: Floats, prediction: Predictions | None, out: Floats
    ) -> None:
        """Write repaired NumPy rows to ``out``: one of the inputs, or no overlap with them."""

    @abstractmethod
    def _repair_foreign(
        self, original: Array, direct: Array, prediction: Predictions | None, dtype: DType
    ) -> Array:
        """Return repaired rows of another library, on their device."""

    @abstractmethod
    def explain_checked(
        self,
        original: Array,
        direct: Array,
        prediction: Predictions | None,
        context: ContextValues | None = None,
    ) -> Explanation:
        """Explain rows with checked predictions; only a `Lift` has context."""


def measure_gap(
    repair: FittedRepair,
    original: Floats,
    direct: Floats,
    repaired: Floats,
    prediction: Predictions,
    labels: Labels,
    weight: Vector | None,
) -> ConfidenceGap:
    """Compare confidence and accuracy before and after a repair, on labelled rows of its fit."""
    construction = repair.construction_
    if isinstance(construction, RankingConstruction):
        construction = construction.levels[0]
    return ConfidenceGap.of(
        original,
        direct,
        repaired,
        prediction,
        labels,
        weight,
        at_bound=construction.n_at_lower / construction.n,
        repair=getattr(repair, "prefer", "cord"),
    )


def _weights_of(rule: PredictionRule | None) -> Vector | None:
    return None if rule is None or rule.is_argmax else rule.weights


def _overlaps(out: Floats, *inputs: ArrayLike) -> bool:
    """Whether writing to ``out`` would change rows of an input before they are read.

    ``out`` may be an input itself: each row is read before it is written.
    """
    for x in inputs:
        if isinstance(x, np.ndarray) and np.may_share_memory(out, x) and not _same_array(out, x):
            return True
    return False


def _same_array(x: Floats, y: Floats) -> bool:
    """Whether two arrays are views of the same memory, entry for entry."""
    return x.__array_interface__["data"][0] == y.__array_interface__["data"][0] and (
        (x.shape, x.strides, x.dtype) == (y.shape, y.strides, y.dtype)
    )
