"""CORD: preserve the prediction and the mean mass on it, and the other classes' direct ratios."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, Self

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric import arrays, parallel
from cordcal._numeric.exact import scale_to_safe_exponent
from cordcal._numeric.types import (
    Array,
    ArrayLike,
    Arrays,
    DType,
    Floats,
    Meta,
    NumPyArray,
    Predictions,
    Vector,
)
from cordcal._validation import layouts
from cordcal._validation.context import ContextValues
from cordcal._validation.labels import check_weights
from cordcal._validation.scores import check_same_shape
from cordcal._validation.table import RememberedColumns, match
from cordcal.repair import dispatch, engine, ranking, rule
from cordcal.repair.construction import SPILL_BYTES, ConstructionState
from cordcal.repair.fitted import FittedRepair, check_fitted, check_pair, refuse_ranking
from cordcal.repair.prediction_rule import PredictionRule, check_rule
from cordcal.repair.ranking import Level, RankedRows
from cordcal.repair.results import Construction, Explanation, RankingConstruction

Batch = Sequence[ArrayLike] | Mapping[str, ArrayLike]
"""Some calibration rows: a pair of arrays, or the arguments of `CORD.fit` by name."""


class CORD(FittedRepair):
    """Repair a calibrator's probabilities so that no prediction changes.

    `fit` reads the original and the direct probabilities of the calibration rows and finds
    one number, the shared scalar; `transform` repairs any rows with it.  The argmax of every
    repaired row is the original prediction, the other classes keep their relative direct
    probabilities, and on the calibration rows the mean probability of the predictions stays
    that of the calibrator.  No labels are needed.

    Parameters
    ----------
    preserve : int or "ranking"
        How many of the original's first ranks to preserve: 1 preserves the prediction (the
        paper's CORD), k the order of the first k classes, ``"ranking"`` the whole order.
    rule : "argmax", PredictionRule or array_like of shape (K,)
        How a vector predicts: by its largest entry, or by the largest weight times
        probability, for a classifier whose predictions are deliberately not the likeliest class
        (trained with class weights, or with a threshold).  ``preserve`` must then be 1.
    threads : int, optional
        Cores to use.  By default all of them, but one inside a worker process or thread.
        A model file stores a number that was set; ``model.set_params(threads=None)`` resets it.

    Attributes
    ----------
    eta_ : float, or ndarray of shape (k,) if more than one rank is preserved
        The shared scalar η*, one per level.
    construction_ : Construction or RankingConstruction
        The record of `fit`.
    n_classes_ : int
        Number of classes seen by `fit`.
    rule_ : PredictionRule or None
        The rule, None for the argmax.

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
    array([[0.674, 0.217, 0.109],
           [0.214, 0.571, 0.214],
           [0.455, 0.455, 0.091]])
    """

    eta_: float | Vector
    construction_: Construction | RankingConstruction
    n_classes_: int

    def __init__(
        self,
        preserve: int | Literal["ranking"] = 1,
        *,
        rule: Literal["argmax"] | PredictionRule | ArrayLike = "argmax",
        threads: int | None = None,
    ) -> None:
        self.preserve = preserve
        self.rule = rule
        self.threads = threads

    def fit(
        self,
        original: ArrayLike,
        direct: ArrayLike,
        *,
        prediction: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        axis: int | None = None,
    ) -> Self:
        """Find the shared scalar on calibration rows.

        Parameters
        ----------
        original : array_like of shape (n, K)
            The classifier's own probabilities.
        direct : array_like of shape (n, K)
            The calibrator's probabilities for the same rows; rows of pandas objects are matched
            by index.
        prediction : array_like of int, optional
            The class to preserve per row; by default the argmax of ``original`` (ties go to
            the smallest index).
        sample_weight : array_like, optional
            Weights of the rows, on both sides of the mean constraint.
        axis : int, optional
            The dimension of the classes, for dense arrays such as (B, K, H, W); by default
            arrays have shape (n, K).

        Returns
        -------
        self : CORD
            The fitted repair.

        Notes
        -----
        Dask arrays and data frames are read on the workers that hold their blocks: see
        `cordcal.dask`.
        """
        collection = layouts.lazy_handler(original, direct)
        rows = match(
            {"original": original, "direct": direct},
            prediction=prediction,
            sample_weight=sample_weight,
        )
        original, direct = rows.matrices
        prediction, sample_weight, names = rows.prediction, rows.sample_weight, rows.columns
        if collection is not None:
            return self.adopt_construction(
                collection.construct(self, original, direct, prediction, sample_weight), names
            )
        if layouts.is_dense(axis, original, direct):
            assert axis is not None
            check_same_shape(original, "original", direct, "direct")
            views = layouts.row_views(axis, (original, direct), (prediction, sample_weight))
            batches = ((*pair, *vectors) for _, pair, vectors in views)
            return self.construct(batches, spill_bytes=None)
        p, q = check_pair(original, direct)
        weight = None
        if sample_weight is not None:
            weight, _ = scale_to_safe_exponent(check_weights(sample_weight, q.shape[0]))
        state = self.new_state(q.shape[1], None, names).add(p, q, prediction, weight)
        return self.adopt_construction(state.construct(), names)

    def construct(
        self,
        batches: Iterable[Batch],
        *,
        spill_bytes: int | None = SPILL_BYTES,
    ) -> Self:
        """Find the shared scalar on calibration rows that come in batches.

        The scalar is bit for bit the one that `fit` finds on all rows together.  Only three
        numbers per row (a few per rank with ``preserve``) stay in memory.

        Parameters
        ----------
        batches : iterable of (original, direct) or mapping
            The arguments of `fit` for some rows at a time: pairs of arrays, or mappings
            with the keys ``original``, ``direct`` and optionally ``prediction`` and
            ``sample_weight``.
        spill_bytes : int, optional
            How many bytes of these numbers to keep in memory; more go to a temporary file.

        Returns
        -------
        self : CORD
            The fitted repair.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> original, direct = rng.dirichlet(np.ones(4), size=(2, 90))
        >>> batches = zip(np.split(original, 3), np.split(direct, 3))
        >>> CORD().construct(batches).eta_ == CORD().fit(original, direct).eta_
        True
        """
        state: ConstructionState | None = None
        columns = RememberedColumns()
        for batch in batches:
            arguments = _batch_arguments(batch)
            matrices = {name: arguments[name] for name in ("original", "direct")}
            rows = columns.match(
                matrices,
                sample_weight=arguments.get("sample_weight"),
                prediction=arguments.get("prediction"),
            )
            p, q = check_pair(*rows.matrices)
            if state is None:
                state = self.new_state(q.shape[1], spill_bytes, rows.columns)
            state.add(p, q, rows.prediction, rows.sample_weight)
        if state is None:
            raise InputError("batches", "is empty", "pass at least one batch of calibration rows")
        return self.adopt_construction(state.construct(), rows.columns)

    def merge_states(self, states: Iterable[ConstructionState]) -> Self:
        """Find the shared scalar on rows that were described elsewhere.

        Parameters
        ----------
        states : iterable of ConstructionState
            The states of other processes or machines.

        Returns
        -------
        self : CORD
            The fitted repair.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> original, direct = rng.dirichlet(np.ones(4), size=(2, 90))
        >>> parts = [
        ...     ConstructionState(levels=1, threads=1).add(p, q)
        ...     for p, q in zip(np.split(original, 3), np.split(direct, 3))
        ... ]
        >>> CORD().merge_states(parts).eta_ == CORD().fit(original, direct).eta_
        True
        """
        whole: ConstructionState | None = None
        for state in states:
            if whole is None:
                whole = ConstructionState(
                    state.levels, self._cores(), class_weights=state.class_weights
                )
            whole.merge(state)
        if whole is None or whole.classes is None:
            raise InputError("states", "is empty", "pass the state of at least one row")
        if whole.levels != self.count_levels(whole.classes):
            raise InputError(
                "states",
                f"keep {whole.levels} rank(s) but preserve is {self.preserve!r}",
                f"make them with levels={self.count_levels(whole.classes)}",
            )
        expected = self.new_state(whole.classes).class_weights
        if not np.array_equal(_or_ones(whole.class_weights), _or_ones(expected)):
            raise InputError(
                "states", "have another prediction rule", "make them with the weights of rule="
            )
        return self.adopt_construction(whole.construct())

    def fit_checked(
        self,
        original: Floats,
        direct: Floats,
        prediction: Predictions,
        weight: Vector | None,
    ) -> Self:
        """Fit on a pair of matrices with checked predictions and weights."""
        if weight is not None:
            weight, _ = scale_to_safe_exponent(weight)
        state = self.new_state(direct.shape[1], None)
        state.append(state.reduced(original, direct, prediction, weight))
        return self.adopt_construction(state.construct())

    def adopt_construction(
        self, construction: Construction | RankingConstruction, names: list[str] | None = None
    ) -> Self:
        """Take over a construction as the result of a fit."""
        # In one step, so that an interrupted fit leaves the previous one intact.
        self.__dict__.update(
            construction_=construction,
            eta_=construction.eta,
            n_classes_=construction.n_classes,
            rule_=check_rule(self.rule, construction.n_classes, names=names),
            columns_=names,
        )
        return self

    def new_state(
        self,
        classes: int,
        spill_bytes: int | None = SPILL_BYTES,
        names: list[str] | None = None,
    ) -> ConstructionState:
        """Return a state without rows, for this many classes."""
        weights = self.weights_for(classes, names)
        levels = self.count_levels(classes)
        return ConstructionState(levels, self._cores(), spill_bytes, weights)

    def count_levels(self, classes: int) -> int:
        """Return how many ranks to preserve; the last one follows from the others."""
        refuse_ranking(self.preserve, self.rule)
        if self.preserve == "ranking":
            return classes - 1
        if not arrays.is_count(self.preserve):
            raise InputError(
                "preserve", f"is {self.preserve!r}", "pass a positive integer or 'ranking'"
            )
        if self.preserve >= classes:
            raise InputError(
                "preserve",
                f"is {self.preserve} but there are {classes} classes",
                f"pass at most {classes - 1}, or 'ranking'",
            )
        return int(self.preserve)

    def _cores(self) -> int:
        if self.threads is None:
            return parallel.default_threads()
        if not arrays.is_count(self.threads):
            raise InputError("threads", f"is {self.threads!r}", "pass a positive integer or None")
        return int(self.threads)

    def _repair_rows(
        self,
        original: Floats,
        direct: Floats,
        prediction: Predictions | None,
        out: Floats,
    ) -> None:
        eta = self.eta_
        if isinstance(eta, np.ndarray):  # one scalar per level
            engine.repair_ranked(original, direct, prediction, eta, out)
            return
        engine.visit_blocks(
            lambda block: engine.cord_rows(eta, block, out[block.rows]),
            original,
            direct,
            prediction,
            self.fitted_weights(out.dtype),
            self._cores() if direct.size >= parallel.THREAD_ENTRIES else 1,
        )

    def _repair_foreign(
        self, original: Array, direct: Array, prediction: Predictions | None, dtype: DType
    ) -> Array:
        if isinstance(self.eta_, np.ndarray):
            scalars = self.eta_.tolist()
            return dispatch.repair_ranked_foreign(original, direct, prediction, scalars, dtype)
        weights = self.fitted_weights(dtype)
        return dispatch.repair_foreign(original, direct, prediction, self.eta_, dtype, weights)

    def explain_checked(
        self,
        original: Array,
        direct: Array,
        prediction: Predictions | None,
        context: ContextValues | None = None,
    ) -> Explanation:
        """Explain rows with checked predictions."""
        return _explained(original, direct, prediction, self.eta_, self.fitted_weights())

    def to_state(self) -> tuple[Arrays, Meta]:
        """Return the content of a model file: the shared scalar and the construction."""
        check_fitted(self)
        threads = {} if self.threads is None else {"threads": int(self.threads)}
        return {"eta": np.atleast_1d(self.eta_), **self._rule_state()}, {
            "preserve": self.preserve if self.preserve == "ranking" else int(self.preserve),
            "construction": self.construction_.to_dict(),
            "class_names": self.columns_,
            **threads,
        }

    @classmethod
    def from_state(cls, tensors: Arrays, meta: Meta) -> Self:
        """Rebuild a fitted repair from the content of a model file."""
        cord = cls(meta["preserve"], threads=meta.get("threads"))
        record = meta["construction"]
        nested = "levels" in record
        cord.construction_ = (RankingConstruction if nested else Construction).from_dict(record)
        cord.eta_ = tensors["eta"] if nested else float(tensors["eta"][0])
        cord.n_classes_ = cord.construction_.n_classes
        cord._restore_rule(tensors, meta)
        return cord

    def __repr__(self) -> str:
        parts = [] if self.preserve == 1 else [f"preserve={self.preserve!r}"]
        if not isinstance(self.rule, str):
            parts.append(f"rule={self.rule!r}")
        if self.threads is not None:
            parts.append(f"threads={self.threads!r}")
        if hasattr(self, "eta_"):
            eta = self.eta_
            parts.append(f"{eta.size} scalars" if isinstance(eta, np.ndarray) else f"eta={eta!r}")
        return f"CORD({', '.join(parts)})"


def _batch_arguments(batch: Batch) -> dict[str, ArrayLike]:
    """Return a batch's arguments by name."""
    names = ("original", "direct", "prediction", "sample_weight")
    if not isinstance(batch, Mapping):
        if len(batch) not in (2, 3, 4):
            raise InputError(
                "batches",
                f"has a batch with {len(batch)} entries",
                f"pass pairs (original, direct), or mappings with the keys {', '.join(names)}",
            )
        return dict(zip(names, batch, strict=False))
    unknown = sorted(set(batch) - set(names))
    if unknown or not {"original", "direct"} <= set(batch):
        raise InputError(
            "batches",
            f"has a batch with the keys {', '.join(map(repr, batch))}",
            "pass original and direct, and optionally prediction and sample_weight",
        )
    return dict(batch)


Columns = tuple[NumPyArray, ...]
"""The fields of an `Explanation`, for some rows."""


def _or_ones(class_weights: Vector | None) -> Vector | float:
    return 1.0 if class_weights is None else class_weights


def _explained(
    original: Array,
    direct: Array,
    prediction: Predictions | None,
    eta: float | Vector,
    class_weights: Vector | None,
) -> Explanation:
    """Describe each row and its repair with these scalars."""
    if isinstance(eta, np.ndarray):
        parts = _ranks(original, direct, prediction, eta.tolist())
    else:
        parts = _first_rank(original, direct, prediction, eta, class_weights)
    return Explanation(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))


def _first_rank(
    original: Array,
    direct: Array,
    prediction: Predictions | None,
    eta: float,
    class_weights: Vector | None,
) -> Iterator[Columns]:
    if isinstance(direct, np.ndarray):
        states = dispatch.row_states(original, direct, prediction, class_weights)
    else:
        states = iter([dispatch.describe_foreign(original, direct, prediction, class_weights)[0]])
    for state in states:
        yield _columns(state.prediction, state, eta)


def _ranks(
    original: Array, direct: Array, prediction: Predictions | None, etas: list[float]
) -> Iterator[Columns]:
    for rows in _ranked_blocks(original, direct, prediction, len(etas)):
        levels = [
            _columns(rows.order[:, level], state, etas[level])
            for level, state, _, _ in ranking.respond_levels(rows, etas)
        ]
        # The levels come from the last to the first; their columns go from the first to the last.
        yield tuple(np.stack(field[::-1], axis=1) for field in zip(*levels, strict=True))


def _ranked_blocks(
    original: Array, direct: Array, prediction: Predictions | None, levels: int
) -> Iterator[RankedRows]:
    if isinstance(direct, np.ndarray):
        for block in engine.checked_blocks(original, direct, prediction):
            yield block.ranked(levels)
    else:
        yield dispatch.rank_foreign(original, direct, prediction, levels)[0]


def _columns(prediction: Array, state: rule.RowState | Level, eta: float) -> Columns:
    mass, rest, slope = rule.response(eta, state.reference, state.reference_rest, state.lower)
    fields = (prediction, state.direct_mass, state.reference, state.lower, mass, state.changed)
    bound = engine.at_bound(arrays.to_numpy(rest), arrays.to_numpy(slope))
    return (*(arrays.to_numpy(field) for field in fields), bound)
