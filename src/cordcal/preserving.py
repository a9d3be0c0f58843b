"""PreservingCalibrator: a calibrator and a repair. Confidence changes, predictions do not."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, renumber_rows
from cordcal._numeric import arrays
from cordcal._numeric.types import Decisions, Kind, Labels, Vector
from cordcal._validation import layouts
from cordcal._validation.alignment import align_rows
from cordcal._validation.caveats import find_caveats, suppress_repeats, warn_about
from cordcal._validation.estimator import Estimator
from cordcal._validation.labels import check_labels, check_weights, names_to_indices
from cordcal._validation.names import (
    check_class_names,
    check_same_columns,
    column_names,
    in_column_order,
    integer_column_names,
)
from cordcal._validation.scores import (
    CheckedScores,
    as_scores,
    check_kind,
    check_scores,
)
from cordcal.calibrators import Calibrator, calibrator_class, make
from cordcal.calibrators.adapters import adapted
from cordcal.calibrators.blend import masses_held_out
from cordcal.calibrators.crossfit import fit_calibrator, predict_calibrated
from cordcal.repair import CORD, Construction, Lift, LiftConstruction, RankingConstruction


@dataclass(frozen=True, eq=False)
class Outputs:
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


def kind_of(calibrator: Any, wanted: Kind | None) -> Kind:
    """Return what the scores are: as asked for, else as the calibrator has them, else logits."""
    own: Kind | None = None
    if isinstance(calibrator, Calibrator):
        own = calibrator.input
        if wanted is not None and wanted != own:
            raise InputError(
                "input",
                f'is {wanted!r} but the calibrator was made with input="{own}"',
                "write the same for both, or only the calibrator's",
            )
    kind = wanted or own or "logits"
    check_kind(kind)
    return kind


def new_repair(wanted: Any, preserve: int | Literal["ranking"], *, default: str) -> CORD | Lift:
    """Return a repair to fit, or say why there is none.

    Parameters
    ----------
    wanted : {"cord", "lift"} or Lift or None
        The repair.
    preserve : int or "ranking"
        How many of the original's first ranks to keep.
    default : {"cord", "lift"}
        What None means.
    """
    wanted = default if wanted is None else wanted
    if wanted == "cord":
        return CORD(preserve)
    if wanted != "lift" and not isinstance(wanted, Lift):
        raise InputError("repair", f"is {wanted!r}", "write 'cord', 'lift' or Lift(mode='cap')")
    if preserve != 1:
        raise InputError(
            "preserve",
            f"is {preserve!r} but Lift learns how sure to be of one decision, not of a ranking",
            "leave preserve out, or write {option}",
            option=("repair", "cord"),
        )
    return Lift() if wanted == "lift" else Lift(**wanted.get_params())


def new_calibrator(wanted: Any, kind: Kind, *, prefit: bool) -> Any:
    """Return a calibrator to fit, or one that is fitted already: a key, or any object's own."""
    if wanted is None or isinstance(wanted, str):
        key = wanted or "blend"
        if prefit:
            raise InputError(
                "prefit=True",
                f"needs a fitted calibrator, not the key {key!r}",
                "pass the fitted object, or leave prefit out",
            )
        return make(key, input=kind)
    if prefit and hasattr(wanted, "predict_proba"):
        return wanted
    calibrator = adapted(wanted, kind)
    if prefit:
        return calibrator
    from sklearn.base import clone

    return clone(calibrator, safe=False)


Arrays = dict[str, npt.NDArray[Any]]
# Names of the calibrator's arrays begin with this.
_PREFIX = "calibrator."


def packed(calibrator: Any, repair: CORD | Lift) -> tuple[Arrays, dict[str, Any]]:
    """Return arrays and JSON-able metadata of both."""
    if not isinstance(calibrator, Calibrator):
        raise ValueError(
            f"a model file cannot hold the foreign calibrator {type(calibrator).__name__}; save "
            f"model.repair_, which is all the repair needs, and keep the calibrator in its own "
            f"format"
        )
    held, meta = calibrator._state()
    arrays, record = repair._state()
    name = "lift" if isinstance(repair, Lift) else "cord"
    arrays = {**arrays, **{_PREFIX + key: value for key, value in held.items()}}
    return arrays, {"calibrator": meta, name: record}


def unpacked(held: Arrays, meta: dict[str, Any]) -> tuple[Calibrator, CORD | Lift]:
    """Return the calibrator and the repair again."""
    inner = {
        name.removeprefix(_PREFIX): value
        for name, value in held.items()
        if name.startswith(_PREFIX)
    }
    record = meta["calibrator"]
    calibrator = calibrator_class(record["key"])._from_state(inner, record)
    if "lift" in meta:
        return calibrator, Lift._from_state(held, meta["lift"])
    return calibrator, CORD._from_state(held, meta["cord"])


class PreservingCalibrator(Estimator):
    """A calibrator that keeps decisions: it fits the calibrator, then a repair.

    ``PreservingCalibrator()`` alone is what to use if you do not want to choose: a `Blend` of
    calibrators, repaired by `Lift`.  A calibrator that you name is repaired by `CORD`, unless
    you ask for ``repair="lift"``.

    The decision is the argmax of the scores as given, in their own dtype (the smallest
    index on ties).  It is never recomputed from a softmax.

    Parameters
    ----------
    calibrator : str or object, optional
        A key such as ``"svs"`` (see `cordcal.calibrators.describe`), a calibrator of
        cordcal, any object with ``fit(scores, labels)`` and ``predict_proba(scores)``, and
        whatever else `cordcal.compare` takes for one.  By default ``"blend"``.
    repair : {"cord", "lift"} or Lift, optional
        `CORD` needs no labels and retains the calibrator's mean confidence; `Lift` learns from
        the labels how sure to be, on reports cross-fitted in five folds.  By default ``"lift"``
        if no calibrator is named, else ``"cord"``.
    input : {"logits", "probabilities"}, optional
        What the scores are.  By default what the calibrator says, else logits.
    preserve : int or "ranking"
        How many of the original's first ranks to keep, as for `CORD`: 1 keeps the decision.
    prefit : bool
        The calibrator is fitted already: `fit` only fits the repair.  CORD needs no labels for
        that; Lift does, and rows that the calibrator was not fitted on.
    class_names : sequence, optional
        Names of the columns; `predict` then returns names, and labels may be names.  A data
        frame's columns must bear these names, or those of the frame that `fit` saw.  Where names
        are whole numbers other than 0..K-1 in order, numeric labels are names as well; so are
        they where a frame has such columns, which `predict` then returns.

    Attributes
    ----------
    calibrator_ : object
        The fitted calibrator.
    repair_ : CORD or Lift
        The fitted repair.
    construction_ : Construction, RankingConstruction or LiftConstruction
        What fitting the repair did.
    n_classes_ : int
        Number of classes.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(300, 3))
    >>> model = PreservingCalibrator().fit(logits, labels)
    >>> bool((model.predict_proba(logits).argmax(axis=1) == logits.argmax(axis=1)).all())
    True
    >>> model = PreservingCalibrator("irova").fit(logits, labels)
    >>> bool((model.direct_proba(logits).argmax(axis=1) == logits.argmax(axis=1)).all())
    False
    >>> bool((model.predict_proba(logits).argmax(axis=1) == logits.argmax(axis=1)).all())
    True
    """

    calibrator_: Any
    repair_: CORD | Lift
    n_classes_: int
    columns_: list[str] | None
    _headings: list[int] | None = None

    def __init__(
        self,
        calibrator: Any = None,
        *,
        repair: Literal["cord", "lift"] | Lift | None = None,
        input: Kind | None = None,
        preserve: int | Literal["ranking"] = 1,
        prefit: bool = False,
        class_names: Sequence[Any] | None = None,
    ) -> None:
        self.calibrator = calibrator
        self.repair = repair
        self.input = input
        self.preserve = preserve
        self.prefit = prefit
        self.class_names = class_names

    def fit(
        self,
        scores: Any,
        labels: Any = None,
        *,
        sample_weight: Any = None,
        features: Any = None,
        axis: int | None = None,
        ignore_index: int | None = None,
    ) -> Self:
        """Fit the calibrator and the repair on the same calibration rows.

        Rows of pandas objects are matched by index (:doc:`the rule </start>`); what has no index
        goes by position with the scores.

        Parameters
        ----------
        scores : array_like of shape (n, K)
            The classifier's logits or probabilities, as ``input`` says.
        labels : array_like of int of shape (n,)
            The true classes, as column indices or class names; not needed with
            ``prefit=True``.
        sample_weight : array_like of shape (n,), optional
            Weights of the rows, for the calibrator and for the repair.
        features : array_like of shape (n, D), optional
            Penultimate features, for a calibrator that needs them (``adats``).
        axis : int, optional
            The dimension of the classes, for dense scores such as (B, K, H, W); labels and
            weights then have the shape that is left, and features end in theirs.
        ignore_index : int, optional
            The label of rows or positions that have none; they are left out.

        Returns
        -------
        self : PreservingCalibrator
            The fitted model.

        Warns
        -----
        UserWarning
            If scores or labels look like a mistake: accuracy below the share of the most
            frequent class or no better than with shuffled labels; labels numbered from 1; columns
            in another order, or one that is not a class; percentages; a softmax applied
            twice; the same scores in every row; fewer than 20 rows.
        """
        scores, labels, sample_weight, features = align_rows(
            scores=scores, labels=labels, sample_weight=sample_weight, features=features
        )
        headings = integer_column_names(scores) if self.class_names is None else None
        if layouts.is_dense(axis, scores) or ignore_index is not None:
            rows = layouts.rows_to_fit(axis, ignore_index, scores, labels, sample_weight, features)
            scores, labels, sample_weight, features = rows
        kind = self._kind()
        given = as_scores(scores)
        columns = self._columns(scores, given.shape[1])
        labels = self._labels(labels, given.shape, headings)
        weight = None if sample_weight is None else check_weights(sample_weight, len(given))
        original = CheckedScores.from_scores(given, kind, fitting=not self.prefit)
        concerns = find_caveats(
            original, self._labels_to_doubt(labels, given.shape), weight, columns
        )
        warn_about(concerns)
        with suppress_repeats(concerns):
            return self._fit_checked(
                original, labels, weight, features, columns=columns, headings=headings
            )

    def _fit_checked(
        self,
        original: CheckedScores,
        labels: Any,
        weight: Vector | None,
        features: Any = None,
        *,
        columns: list[str] | None = None,
        headings: list[int] | None = None,
    ) -> Self:
        """Fit on rows that were checked at this door or another."""
        repair, calibrator = self._new_repair(), self._new_calibrator(original.kind)
        if labels is None and not (self.prefit and isinstance(repair, CORD)):
            hint = "or prefit=True with a calibrator that is fitted already, and repair='cord'"
            raise InputError("labels", "is missing", f"pass the true classes, {hint}")
        if not self.prefit:
            fit_calibrator(calibrator, original, labels, weight, features)
        direct = predict_calibrated(calibrator, original, features)
        rows = (original.probabilities, direct)
        if isinstance(repair, CORD):
            repair._fit_rows(*rows, original.decision, weight)
        else:
            unseen = None
            if not self.prefit:
                new = functools.partial(self._new_calibrator, original.kind)
                unseen = masses_held_out(calibrator, new, original, labels, weight, features)
            repair._fit(*rows, labels, original.decision, weight, held_out=unseen)
        # In one step: a fit that is refused or interrupted leaves the one before whole.
        self.__dict__.update(
            calibrator_=calibrator,
            repair_=repair,
            n_classes_=original.classes,
            columns_=columns,
            _headings=headings,
        )
        return self

    def _labels(self, labels: Any, shape: tuple[int, ...], headings: list[int] | None) -> Any:
        """Return checked labels; a foreign calibrator checks its own."""
        names = headings if self.class_names is None else self.class_names
        found = names_to_indices(labels, shape, names)
        if found is None or not isinstance(self.calibrator, str | Calibrator | None):
            return found
        return check_labels(found, *shape)

    def _labels_to_doubt(self, labels: Any, shape: tuple[int, ...]) -> Labels | None:
        """Return labels that are column indices; what a foreign calibrator takes may not be."""
        try:
            return None if labels is None else check_labels(labels, *shape)
        except InputError:
            return None

    def _columns(self, scores: Any, classes: int) -> list[str] | None:
        """Return the columns' names: those the caller gave, else a data frame's."""
        if self.class_names is None:
            return column_names(scores)
        names = list(check_class_names(self.class_names, classes))
        check_same_columns(column_names(scores), "scores", names, "class_names")
        return names

    def predict_proba(
        self,
        scores: Any,
        *,
        dtype: npt.DTypeLike | None = None,
        features: Any = None,
        axis: int | None = None,
    ) -> Any:
        """Return the repaired report.

        Parameters
        ----------
        scores : array_like of shape (n, K)
            Scores of the kind that `fit` was given.
        dtype : dtype, optional
            float64 (default), float32 or float16; the decision is strictly the largest
            entry of its row in this dtype.
        features : array_like of shape (n, D), optional
            As for `fit`.
        axis : int, optional
            The dimension of the classes, for dense scores such as (B, K, H, W).

        Returns
        -------
        repaired : ndarray of shape (n, K)
            Probabilities whose argmax is the original decision; lazy for dask collections.
        """
        if layouts.lazy_handler(scores) is not None:
            wanted = np.dtype(np.float64 if dtype is None else dtype)
            report = functools.partial(self.predict_proba, dtype=wanted)
            return self._lazily(report, scores, wanted, features=features, axis=axis)
        return self.predict_both(scores, dtype=dtype, features=features, axis=axis).repaired

    def direct_proba(self, scores: Any, *, features: Any = None, axis: int | None = None) -> Any:
        """Return the direct report: the calibrator's own output, in its dtype."""
        if layouts.lazy_handler(scores) is not None:
            wanted = np.dtype(np.float64)
            return self._lazily(self.direct_proba, scores, wanted, features=features, axis=axis)
        scores, features = align_rows(scores=scores, features=features)
        if layouts.is_dense(axis, scores):
            return self.predict_both(scores, features=features, axis=axis).direct
        original = CheckedScores.from_scores(self._again(scores), self._kind())
        return predict_calibrated(self.calibrator_, original, features)

    def _lazily(
        self, report: Callable[..., Any], scores: Any, dtype: Any, shape: str = "ij", **given: Any
    ) -> Any:
        """Return ``report`` of dask's rows, block by block, when it is asked for."""
        if any(value is not None for value in given.values()):
            raise InputError(
                "features and axis", "are not served for dask collections", "leave them out"
            )
        collection = layouts.lazy_handler(scores)
        assert collection is not None
        self._check_fitted("repair_")
        return collection.apply(report, self._in_order(scores), dtype, shape=shape)

    def predict(self, scores: Any, *, axis: int | None = None) -> Any:
        """Return the original decisions: class names where they were given, else indices."""
        if layouts.lazy_handler(scores) is not None:
            names = self._names()
            wanted = np.dtype(np.intp) if names is None else np.asarray(names).dtype
            return self._lazily(self.predict, scores, wanted, "i", axis=axis)
        if layouts.is_dense(axis, scores):
            assert axis is not None
            views = layouts.row_views(axis, [scores])
            found = np.concatenate([self.predict(view) for _, (view,), _ in views])
            return found.reshape(np.delete(np.shape(scores), axis))
        given = self._again(scores)
        check_scores(given, self._kind())
        decision: Decisions = given.argmax(axis=1)
        names = self._names()
        return decision if names is None else np.asarray(np.asarray(names)[decision])

    def _names(self) -> Sequence[Any] | None:
        """Return what `predict` answers with: the names given, or whole-number headings."""
        return self._headings if self.class_names is None else self.class_names

    def predict_both(
        self,
        scores: Any,
        *,
        dtype: npt.DTypeLike | None = None,
        features: Any = None,
        axis: int | None = None,
    ) -> Outputs:
        """Return the direct and the repaired report, computed once.

        Parameters
        ----------
        scores, dtype, features, axis
            As for `predict_proba`; ``dtype`` is the repaired report's.

        Returns
        -------
        reports : Reports
            ``direct``, ``repaired`` and ``decision``.
        """
        scores, features = align_rows(scores=scores, features=features)
        if layouts.is_dense(axis, scores):
            return self._dense_reports(arrays.to_numpy(scores), dtype, features, axis)
        original = CheckedScores.from_scores(self._again(scores), self._kind())
        return self._reports_of(original, features, np.float64 if dtype is None else dtype)

    def _reports_of(
        self, original: CheckedScores, features: Any = None, dtype: npt.DTypeLike = np.float64
    ) -> Outputs:
        """Report on rows that were checked at this door or another."""
        direct = predict_calibrated(self.calibrator_, original, features)
        repaired = self.repair_._transform_rows(
            original.probabilities, direct, original.decision, dtype
        )
        return Outputs(direct, repaired, original.decision)

    def _dense_reports(
        self, scores: npt.NDArray[Any], dtype: npt.DTypeLike | None, features: Any, axis: Any
    ) -> Outputs:
        """Report on one view of rows at a time, into arrays of the scores' own layout."""
        direct = np.empty(scores.shape)
        repaired = np.empty(scores.shape, np.float64 if dtype is None else dtype)
        codes = None if features is None else np.asarray(features)
        flat = None if codes is None else codes.reshape(-1, codes.shape[-1])
        decisions: list[Decisions] = []
        for first, (given, q, out), _ in layouts.row_views(axis, (scores, direct, repaired)):
            own = None if flat is None else flat[first : first + len(given)]
            with renumber_rows(first):
                found = self.predict_both(given, dtype=dtype, features=own)
            q[:], out[:] = found.direct, found.repaired
            decisions.append(found.decision)
        shape = np.delete(scores.shape, axis)
        return Outputs(direct, repaired, np.concatenate(decisions).reshape(shape))

    @property
    def construction_(self) -> Construction | RankingConstruction | LiftConstruction:
        """What fitting the repair did."""
        self._check_fitted("repair_")
        return self.repair_.construction_

    def _kind(self) -> Kind:
        return kind_of(self.calibrator, self.input)

    def _new_repair(self) -> CORD | Lift:
        default = "lift" if self.calibrator is None else "cord"
        return new_repair(self.repair, self.preserve, default=default)

    def _new_calibrator(self, kind: Kind) -> Any:
        return new_calibrator(self.calibrator, kind, prefit=self.prefit)

    def _again(self, scores: Any) -> npt.NDArray[Any]:
        self._check_fitted("repair_")
        return as_scores(self._in_order(scores), self.n_classes_)

    def _in_order(self, scores: Any) -> Any:
        """Return a data frame with its columns in the order of fit's."""
        than = "fit" if self.class_names is None else "class_names"
        return in_column_order(scores, "scores", self.columns_, than)

    def _parts(self) -> dict[str, Any]:
        if not hasattr(self, "repair_"):
            return {}
        return {"calibrator": self.calibrator_, "repair": self.repair_}

    def _state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return arrays and JSON-able metadata; the calibrator's and the repair's inside."""
        self._check_fitted("repair_")
        held, meta = packed(self.calibrator_, self.repair_)
        names = self._names()
        names = None if names is None else np.asarray(names).tolist()
        return held, {**meta, "input": self._kind(), "class_names": names}

    @classmethod
    def _from_state(cls, held: Arrays, meta: dict[str, Any]) -> Self:
        """Rebuild a fitted model from what `_state` returned."""
        calibrator, repair = unpacked(held, meta)
        names = meta["class_names"]
        model = cls(
            calibrator,
            repair=repair if isinstance(repair, Lift) else "cord",
            input=meta["input"],
            preserve=repair.preserve if isinstance(repair, CORD) else 1,
            prefit=True,
            class_names=names,
        )
        model.calibrator_, model.repair_ = calibrator, repair
        model.n_classes_ = calibrator.n_classes_
        model.columns_ = None if names is None else [str(name) for name in names]
        return model


__all__ = ["Outputs", "PreservingCalibrator"]
