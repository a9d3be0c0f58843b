"""Blend: a mixture of other calibrators' reports, with shares learnt on rows held out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.types import Array, Kind, Labels, Matrix, Parameters, Vector
from cordcal._validation.labels import check_labels
from cordcal._validation.scores import LOG_FLOOR, CheckedScores
from cordcal.calibrators._base import Calibrator, Size
from cordcal.calibrators.crossfit import (
    FOLDS,
    Candidate,
    FitCache,
    Folds,
    HeldOut,
    check_folds,
    cross_fit,
)
from cordcal.calibrators.registry import calibrator_class
from cordcal.repair.kernels import Stopwatch
from cordcal.repair.lift import Masses

# The certified gap, a row, at which the shares are taken.
_GAP = 1e-10
# A few digits below that, the sums' own rounding is larger than any further step.
_FINE = 1e-13
# Damped Newton takes about ten steps; twice a hundred would be a mistake here.
_MOST_STEPS = 200


@dataclass(frozen=True, slots=True)
class Mixture:
    """The shares, their mean log loss, and how far, a row, it can be above the least one."""

    shares: Vector
    loss: float
    gap: float


def best_shares(likelihood: Matrix, weight: Vector, prior: Vector) -> Mixture:
    """Return the shares π on the simplex that minimise −Σ w log(π·a) − Σ prior·log π.

    Parameters
    ----------
    likelihood : ndarray of shape (members, rows)
        What each member's report puts on the rows' labels.
    weight : ndarray of shape (rows,)
        Weights of the rows, of mean one.
    prior : ndarray of shape (members,)
        Pseudo-rows that each member gets; all above zero.

    Notes
    -----
    Scaling π up by t lowers the objective by (Σw + Σprior)·log t, so that with that number
    times Σπ added the minimum over all positive π lies on the simplex by itself.
    """
    a = np.maximum(likelihood, LOG_FLOOR)
    total = float(weight.sum() + prior.sum())

    def value(x: Vector) -> float:
        losses = weight * np.log(a.T @ x)
        return total * float(x.sum()) - float(losses.sum() + (prior * np.log(x)).sum())

    x = np.full(len(prior), 1.0 / len(prior))
    for _ in range(_MOST_STEPS):
        pull, hessian = _slopes(a, weight, prior, x)
        if _excess(pull, x) <= _FINE * total:
            break
        step: Vector = np.linalg.solve(hessian, pull - total).astype(np.float64)
        x = _further(value, x, step, float((pull - total) @ step))
    x = x / x.sum()
    pull, _ = _slopes(a, weight, prior, x)
    loss = -float((weight * np.log(a.T @ x)).sum()) / len(weight)
    return Mixture(x, loss, _excess(pull, x) / len(weight))


def _slopes(a: Matrix, weight: Vector, prior: Vector, x: Vector) -> tuple[Vector, Matrix]:
    """Return how much each member pulls, and the curvature."""
    ratio = a / (a.T @ x)
    pull = ratio @ weight + prior / x
    return pull, (ratio * weight) @ ratio.T + np.diag(prior / (x * x))


def _excess(pull: Vector, x: Vector) -> float:
    """Return the largest pull minus the total one: by convexity no shares gain more."""
    return float(pull.max() - pull @ x)


def _further(value: Callable[[Vector], float], x: Vector, step: Vector, slope: float) -> Vector:
    """Take a Newton step, halved until it stays positive and lowers the value enough."""
    here, size = value(x), 1.0
    # Close to the optimum values differ by rounding only, and a full step is right.
    near = slope < 1e-9 * abs(here)
    while size > 1e-12:
        there = x + size * step
        if (there > 0.0).all() and (near or value(there) <= here - 0.25 * size * slope):
            return there
        size *= 0.5
    return x


# Pseudo-rows that steady the shares, spread evenly: 40 were too stiff.
_PSEUDO_ROWS = 2.0
# Members that differ do so on rows whose decision is wrong, so those measure what can be
# learnt: with e of them the simplest members get 100/e pseudo-rows more, ten with ten errors
# and one with 100, but never more than 20.
_SIMPLE_ROWS = 100.0
_MOST_SIMPLE_ROWS = 20.0
# The simplest members are those with a handful of numbers: temperatures, and mixtures of such.
_FEW = 4
# With few rows many shares are nearly as good as the best ones: these pseudo-rows go to what
# does well alone.  Ten did no better than five.
_RATED_ROWS = 5.0
# A member with less is dropped: it costs a prediction and moves none.
_LEAST_SHARE = 0.005

# What a blend is made of: every family, the dense maps last.  One-vs-rest curves (platt, beta,
# cir) and temperatures by class or entropy (ts-class, hts) were tried: they add nothing.
_MEMBERS = ("ts", "ets", "mono", "vs", "svs", "irova", "irova-ts", "irm", "sms", "dir-odir")
# Up to this many classes: six fits of a map with K² numbers take seconds for sms, and for
# Dirichlet calibration, whose loss is stiffer, a minute at 5,000 × 100.
_MOST_CLASSES = {"sms": 200, "dir-odir": 100}


class Blend(Calibrator):
    """Blend: Σ π_m · q_m, the reports of other calibrators mixed in shares on the simplex.

    The shares minimise the log loss of cross-fitted reports, a convex problem that is
    solved to a certificate.  Two pseudo-rows spread evenly over the members steady them, five
    go to members that do well alone, and the simplest get 100/e more if only e decisions are
    wrong, since there is little to learn from then.
    Members with a share below half a percent are dropped, and the shares solved again.
    The members are then those fitted on all rows.

    | Works on what each member works on.
    | Changes the argmax and the order, as some members do.
    | −inf logits are taken by the members that can; the others are left out.
    | Cost: the fits of all members, folds + 1 times; a prediction costs its members' ones.

    Parameters
    ----------
    members : sequence of str, optional
        Keys of calibrators.  By default ``ts ets mono vs svs irova irova-ts irm``, with ``sms`` up
        to 200 classes and ``dir-odir`` up to 100: beyond that their K² numbers cost too much.
    folds : int
        How many parts the rows are held out in.  Classes are dealt out evenly, so that one
        with two rows or more is always among those fitted on.
    seed : int
        Seed of the folds.
    input : {"logits", "probabilities"}
        What the scores are.

    Attributes
    ----------
    weights_ : ndarray of shape (M,)
        The shares of the members that are left, in the order of ``members_``.
    members_ : dict of str to Calibrator
        The members that are left, fitted on all rows.
    notes_ : dict of str to str
        Members that were left out, and why.
    objective_ : float
        The mean log loss of the mixture on rows held out.
    gap_ : float
        How far that can be above the least one.
    seconds_ : float
        How long the fits took.

    References
    ----------
    Wolpert 1992, Stacked generalization; Breiman 1996, Stacked regressions.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(300, 3))
    >>> blend = Blend(members=("ts", "vs")).fit(logits, labels)
    >>> list(blend.members_), bool(abs(blend.weights_.sum() - 1.0) < 1e-12)
    (['ts', 'vs'], True)
    """

    key = "blend"
    title = "Blend of calibrators"
    short = "Blend"
    size = Size(uncounted="its members'")
    works_on = "logits"
    keeps_argmax = False
    keeps_order = False
    takes_masked = True
    role = "base"
    cost = "its members' fits, folds + 1 times"
    reference = "cordcal"

    weights_: Vector
    members_: dict[str, Calibrator]
    notes_: dict[str, str]
    objective_: float
    gap_: float
    held_out_: HeldOut
    seconds_: float

    def __init__(
        self,
        members: Sequence[str] | None = None,
        *,
        folds: int = 5,
        seed: int = 0,
        input: Kind = "logits",
    ) -> None:
        super().__init__(input=input)
        self.members = members
        self.folds = folds
        self.seed = seed

    def _read(self, given: npt.NDArray[Any], *, fitting: bool = False) -> npt.NDArray[Any]:
        return given  # each member reads the scores in its own way

    def _parts(self) -> dict[str, Any]:
        if not hasattr(self, "members_"):
            return {}
        shares = zip(self.weights_.tolist(), self.members_.items(), strict=True)
        return {f"{share:.1%} {key}": member for share, (key, member) in shares}

    def _fit(self, working: Matrix, labels: Labels, weight: Vector | None) -> None:
        original = CheckedScores.from_scores(working, self.input, fitting=True)
        self._fit_from(self._fit_cache(original, labels, weight))

    def _fit_checked(self, original: CheckedScores, labels: Labels, weight: Vector | None) -> Self:
        self._check_rows(original, labels, weight)
        with self._fitting(original.classes) as learner:
            learner._fit_from(learner._fit_cache(original, labels, weight))
        return self

    def _fit_cache(
        self, original: CheckedScores, labels: Labels, weight: Vector | None
    ) -> FitCache:
        check_folds(self.folds, len(labels))
        return FitCache(original, labels, weight, Folds.of(labels, self.folds, self.seed))

    def _fit_from(self, fit_cache: FitCache) -> None:
        """Mix calibrators that a workshop makes, or has made."""
        self.n_classes_, self.log_floor_ = fit_cache.original.classes, LOG_FLOOR
        watch = Stopwatch()
        candidates: dict[str, Candidate] = {}
        doubtful: dict[str, Candidate] = {}
        self.notes_ = {}
        for key in self._keys(self.n_classes_):
            found, note = fit_cache.candidate(key)
            if note is not None:
                self.notes_[key] = note
            if found is not None:
                (candidates if note is None else doubtful)[key] = found
        # Where no member ended at an optimum (every decision is right), those that ended count.
        self._mix(candidates or doubtful, fit_cache)
        # What others made before counts, too: it is what such a blend takes.
        made = [found.seconds for found in (candidates | doubtful).values()]
        self.seconds_ = max(watch.seconds(), sum(made))

    def _keys(self, classes: int) -> tuple[str, ...]:
        """Return the members' keys, checked."""
        if self.members is None:
            return tuple(key for key in _MEMBERS if classes <= _MOST_CLASSES.get(key, classes))
        if isinstance(self.members, str) or not self.members:
            raise InputError(
                "members", f"is {self.members!r}", 'pass a sequence of keys, such as ("ts", "svs")'
            )
        for key in self.members:
            if calibrator_class(key).needs_features or key == self.key:
                raise InputError(
                    "members", f"has {key!r}, which is no map of the scores alone", "leave it out"
                )
        repeated = [key for key in self.members if list(self.members).count(key) > 1]
        if repeated:
            raise InputError("members", f"has {repeated[0]!r} twice", "name each once")
        return tuple(self.members)

    def _mix(self, candidates: Mapping[str, Candidate], fit_cache: FitCache) -> None:
        """Find the shares, drop members that have next to none, and find them again."""
        if not candidates:
            key, reason = next(iter(self.notes_.items()))
            raise InputError(
                "members",
                f"has none that could be fitted: {key}: {reason}",
                "pass more rows, or name members that can be fitted on these",
            )
        keys = list(candidates)
        mixture = self._shares(candidates, keys, fit_cache)
        kept = [
            key for key, share in zip(keys, mixture.shares, strict=True) if share >= _LEAST_SHARE
        ]
        for key in keys:
            if key not in kept:
                self.notes_[key] = "its share is below half a percent"
        mixture = self._shares(candidates, kept, fit_cache)
        self.weights_, self.objective_, self.gap_ = mixture.shares, mixture.loss, mixture.gap
        self.members_ = {key: candidates[key].model for key in kept}
        parts = [candidates[key].held_out for key in kept]
        self.held_out_ = HeldOut(
            self.weights_ @ np.stack([part.likelihood for part in parts]),
            Masses(
                self.weights_ @ np.stack([part.masses.mass for part in parts]),
                self.weights_ @ np.stack([part.masses.rest for part in parts]),
            ),
        )

    @staticmethod
    def _shares(
        candidates: Mapping[str, Candidate], keys: Sequence[str], fit_cache: FitCache
    ) -> Mixture:
        likelihood = np.stack([candidates[key].held_out.likelihood for key in keys])
        w = np.ones(likelihood.shape[1]) if fit_cache.weight is None else fit_cache.weight
        counted = w > 0.0
        likelihood, w = likelihood[:, counted], w[counted] / w.max()
        w = w / w.mean()
        wrong = (fit_cache.original.decision != fit_cache.labels)[counted]
        classes = fit_cache.original.classes
        simple = np.array([candidates[key].model.size.at(classes) <= _FEW for key in keys])
        prior = _prior(simple, float(w[wrong].sum())) + _RATED_ROWS * _rating(likelihood, w)
        return best_shares(likelihood, w, prior)

    def _predict(self, working: Matrix) -> Matrix:
        return self._predict_checked(CheckedScores.from_scores(working, self.input))

    def _predict_checked(self, original: CheckedScores) -> Matrix:
        report = np.zeros(original.raw.shape)
        for share, member in zip(self.weights_, self.members_.values(), strict=True):
            part = member._predict_checked(original)
            part *= share
            report += part
        return report

    def _serves_masked(self) -> bool:
        return all(member._serves_masked() for member in self.members_.values())

    def _held(self) -> dict[str, npt.NDArray[Any]]:
        held: dict[str, npt.NDArray[Any]] = {}
        for share, (key, member) in zip(self.weights_, self.members_.items(), strict=True):
            if not member.has_expression():
                raise InputError(
                    "model",
                    f"has the member {key!r}, whose map is no expression of the scores alone",
                    "fit a blend without it",
                )
            inner = {**member._held(), "log_floor_": np.asarray(member.log_floor_)}
            held[f"{key}/share"] = np.asarray(share)
            held |= {f"{key}/{name}": value for name, value in inner.items()}
        return held

    @classmethod
    def _report(cls, scores: Array, kind: Kind, held: Parameters, *, xp: Any) -> Array:
        total = None
        for key in [name.removesuffix("/share") for name in held if name.endswith("/share")]:
            inner = {
                name.removeprefix(f"{key}/"): value
                for name, value in held.items()
                if name.startswith(f"{key}/")
            }
            part = calibrator_class(key)._report(scores, kind, inner, xp=xp) * inner["share"]
            total = part if total is None else total + part
        return total

    @classmethod
    def has_expression(cls) -> bool:
        """Tell that the map can leave NumPy, if its members' maps can."""
        return True

    def _state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Return the shares and every member's own state, under its key."""
        held = {"weights_": self.weights_}
        members = []  # a list, since their order is that of the shares
        for key, member in self.members_.items():
            inner, record = member._state()
            members.append(record)
            held |= {f"{key}/{name}": value for name, value in inner.items()}
        fitted = {
            name: getattr(self, name)
            for name in ("n_classes_", "log_floor_", "notes_", "objective_", "gap_")
        }
        return held, {
            "key": self.key,
            "params": self.get_params(),
            "fitted": fitted,
            "members": members,
        }

    @classmethod
    def _from_state(cls, held: dict[str, npt.NDArray[Any]], meta: dict[str, Any]) -> Self:
        """Rebuild a fitted blend from what `_state` returned."""
        own = {name: value for name, value in held.items() if "/" not in name}
        blend = super()._from_state(own, meta)
        blend.members_ = {}
        for record in meta["members"]:
            key = record["key"]
            inner = {
                name.removeprefix(f"{key}/"): value
                for name, value in held.items()
                if name.startswith(f"{key}/")
            }
            blend.members_[key] = calibrator_class(key)._from_state(inner, record)
        return blend


def _rating(likelihood: Matrix, weight: Vector) -> Vector:
    """Return how well each member does alone: the root of its likelihood, of sum one.

    The root, since the same rows choose the shares afterwards.
    """
    log = np.log(np.maximum(likelihood, LOG_FLOOR)) @ weight
    root = np.exp(0.5 * (log - log.max()))
    rating: Vector = root / root.sum()
    return rating


def _prior(simple: npt.NDArray[np.bool_], errors: float) -> Vector:
    """Return how many pseudo-rows each member gets before the rows are looked at."""
    prior = np.full(len(simple), _PSEUDO_ROWS / len(simple))
    if simple.any():
        extra = min(_SIMPLE_ROWS / max(errors, 1.0), _MOST_SIMPLE_ROWS)
        prior[simple] += extra / np.count_nonzero(simple)
    return prior


def masses_held_out(
    fitted: Any,
    new: Callable[[], Any],
    original: CheckedScores,
    labels: Any,
    weight: Vector | None,
    features: Any,
) -> Masses:
    """Return what models that had not seen the rows put on the decisions.

    A blend has made such models already; ``new()`` returns an unfitted calibrator.
    """
    if isinstance(fitted, Blend):
        return fitted.held_out_.masses
    truth = check_labels(labels, original.rows, original.classes)
    beside = None if features is None else np.asarray(features)
    folds = Folds.of(truth, FOLDS, seed=0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fit on all rows has said what there is to say
            return cross_fit(new, original, truth, weight, folds, beside).masses
    except ValueError as error:
        raise InputError(
            "labels",
            f"cannot be cross-fitted: without one fold of the rows, {error}",
            "pass more rows, or write {option}",
            option=("repair", "cord"),
        ) from error
