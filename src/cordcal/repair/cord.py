"""CORD: keep the decision, retain the mean mass, leave the rest of the report alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric import arrays
from cordcal._numeric.exact import scale_to_safe_exponent
from cordcal._numeric.parallel import default_threads
from cordcal._numeric.types import Decisions, Vector
from cordcal.repair import dispatch, fitted, foreign
from cordcal.repair.construction import SPILL_BYTES, ConstructionState
from cordcal.repair.engines import RANKED_WORK, engine_for, row_work
from cordcal.repair.fitted import FittedRepair
from cordcal.repair.inputs import check_fitted
from cordcal.repair.results import Construction, Explanation, RankingConstruction


class CORD(FittedRepair):
    """Repair a calibrator's reports so that the classifier's decisions are kept.

    `fit` reads the original and the direct reports of the calibration rows and finds
    one number, the shared scalar; `transform` repairs any report with it.  The
    repaired vector's own argmax is the original decision in every row, the direct
    distribution over the other classes is untouched, and the mean mass on the original
    decisions is retained on the calibration rows.  No labels are needed.

    Parameters
    ----------
    preserve : int or "ranking"
        How many of the original's first ranks to keep: 1 keeps the decision (the paper's
        CORD), k keeps the order of the first k classes, ``"ranking"`` the whole order.
    threads : int, optional
        Cores to use.  By default all of them, but one inside a worker process or thread.
        A model file keeps a number that was set; ``model.set_params(threads=None)`` lifts it.

    Attributes
    ----------
    eta_ : float, or ndarray of shape (k,) when more than one rank is kept
        The shared scalar η*, one a level.
    construction_ : Construction or RankingConstruction
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
    array([[0.674, 0.217, 0.109],
           [0.214, 0.571, 0.214],
           [0.455, 0.455, 0.091]])
    """

    eta_: Any
    construction_: Construction | RankingConstruction
    n_classes_: int

    def __init__(
        self, preserve: int | Literal["ranking"] = 1, *, threads: int | None = None
    ) -> None:
        self.preserve = preserve
        self.threads = threads

    def fit(
        self,
        original: Any,
        direct: Any,
        *,
        decision: Any = None,
        sample_weight: Any = None,
        axis: int | None = None,
    ) -> Self:
        """Find the shared scalar on calibration rows.

        Parameters
        ----------
        original : array_like of shape (n, K)
            The classifier's own probabilities.
        direct : array_like of shape (n, K)
            The calibrator's probabilities for the same rows; those of pandas objects are matched
            by index.
        decision : array_like of int, optional
            The class to keep in each row, where it is not the argmax of ``original``
            (ties go to the smallest index).
        sample_weight : array_like, optional
            Weights of the rows, on both sides of the mean constraint.
        axis : int, optional
            The dimension of the classes, for dense reports such as (B, K, H, W); by default
            reports have shape (n, K).

        Returns
        -------
        self : CORD
            The fitted repair.

        Notes
        -----
        Dask arrays and data frames are constructed where their blocks are: see
        `cordcal.dask`.
        """
        found = dispatch.construct(self, original, direct, decision, sample_weight, axis)
        return self._constructed(found)

    def construct(
        self,
        batches: Iterable[Sequence[Any] | Mapping[str, Any]],
        *,
        spill_bytes: int | None = SPILL_BYTES,
    ) -> Self:
        """Find the shared scalar on calibration rows that come in batches.

        The scalar is the one `fit` finds on all rows together, bit for bit.  Of every row
        three numbers are kept (a few for each rank with ``preserve``), not the reports.

        Parameters
        ----------
        batches : iterable of (original, direct) or mapping
            The arguments of `fit` for some rows at a time: pairs of reports, or mappings
            with the keys ``original``, ``direct`` and, if wanted, ``decision`` and
            ``sample_weight``.
        spill_bytes : int, optional
            How much of these numbers to keep in memory; more goes to a temporary file.

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
        return self._constructed(dispatch.construct_batches(self, batches, spill_bytes))

    def merge_states(self, states: Iterable[ConstructionState]) -> Self:
        """Find the shared scalar on rows that were described elsewhere.

        Parameters
        ----------
        states : iterable of ConstructionState
            What other processes or machines made of their rows.

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
                whole = ConstructionState(state.levels, self._cores())
            whole.merge(state)
        if whole is None or whole.classes is None:
            raise InputError("states", "is empty", "pass the state of at least one row")
        if whole.levels != self._levels(whole.classes):
            raise InputError(
                "states",
                f"keep {whole.levels} rank(s) but preserve is {self.preserve!r}",
                f"make them with levels={self._levels(whole.classes)}",
            )
        return self._constructed(whole.construct())

    def _fit_rows(
        self,
        original: npt.NDArray[Any],
        direct: npt.NDArray[Any],
        decision: Decisions,
        weight: Vector | None,
    ) -> Self:
        """Fit on a pair of matrices whose decisions and weights were checked already."""
        if weight is not None:
            weight, _ = scale_to_safe_exponent(weight)
        state = self._new_state(direct.shape[1], None)
        state.append(state.reduced(original, direct, decision, weight))
        return self._constructed(state.construct())

    def _constructed(self, construction: Construction | RankingConstruction) -> Self:
        # In one step: a fit that is interrupted leaves the one before whole.
        self.__dict__.update(
            construction_=construction, eta_=construction.eta, n_classes_=construction.n_classes
        )
        return self

    def _new_state(self, classes: int, spill_bytes: int | None = SPILL_BYTES) -> ConstructionState:
        return ConstructionState(self._levels(classes), self._cores(), spill_bytes)

    def _levels(self, classes: int) -> int:
        """Return how many ranks to keep; the last one follows from the others."""
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
            return default_threads()
        if not arrays.is_count(self.threads):
            raise InputError("threads", f"is {self.threads!r}", "pass a positive integer or None")
        return int(self.threads)

    def _repair_rows(
        self,
        original: npt.NDArray[Any],
        direct: npt.NDArray[Any],
        decision: Decisions | None,
        out: npt.NDArray[Any],
    ) -> None:
        given = (original, direct, decision, self.eta_, out, self._cores())
        work, reports = row_work(direct), (original, direct, out)
        if isinstance(self.eta_, np.ndarray):  # one scalar a level
            engine_for("repair_ranked", RANKED_WORK * work, *reports).repair_ranked(*given)
        else:
            engine_for("repair", work, *reports).repair(*given)

    def _repair_foreign(
        self, original: Any, direct: Any, decision: Decisions | None, dtype: Any
    ) -> Any:
        if isinstance(self.eta_, np.ndarray):
            scalars = self.eta_.tolist()
            return foreign.repair_ranked(original, direct, decision, scalars, dtype)
        return foreign.repair(original, direct, decision, self.eta_, dtype)

    def _explain(self, original: Any, direct: Any, decision: Decisions | None) -> Explanation:
        return fitted.explain(original, direct, decision, self.eta_)

    def _state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Return what a model file holds: the shared scalar, and how it was found."""
        check_fitted(self)
        threads = {} if self.threads is None else {"threads": int(self.threads)}
        return {"eta": np.atleast_1d(self.eta_)}, {
            "preserve": self.preserve if self.preserve == "ranking" else int(self.preserve),
            "construction": self.construction_.to_dict(),
            **threads,
        }

    @classmethod
    def _from_state(cls, held: dict[str, npt.NDArray[Any]], meta: dict[str, Any]) -> Self:
        """Rebuild a fitted repair from what `_state` returned."""
        cord = cls(meta["preserve"], threads=meta.get("threads"))
        record = meta["construction"]
        nested = "levels" in record
        cord.construction_ = (RankingConstruction if nested else Construction).from_dict(record)
        cord.eta_ = held["eta"] if nested else float(held["eta"][0])
        cord.n_classes_ = cord.construction_.n_classes
        return cord

    def __repr__(self) -> str:
        parts = [] if self.preserve == 1 else [f"preserve={self.preserve!r}"]
        if self.threads is not None:
            parts.append(f"threads={self.threads!r}")
        if hasattr(self, "eta_"):
            several = isinstance(self.eta_, np.ndarray)
            parts.append(f"{len(self.eta_)} scalars" if several else f"eta={self.eta_!r}")
        return f"CORD({', '.join(parts)})"
