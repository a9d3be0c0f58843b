"""Blend: a mixture of other calibrators, with shares fitted on held-out rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.arrays import row_blocks
from cordcal._numeric.parallel import default_threads, run_blocks
from cordcal._numeric.types import Array, Domain, Kind, Labels, Matrix, Vector
from cordcal._validation.scores import LOG_FLOOR, CheckedScores
from cordcal.calibrators._base import CACHED_ENTRIES, Calibrator, Size
from cordcal.calibrators._simplex import Mixture, best_shares
from cordcal.calibrators.crossfit import (
    Candidate,
    FitCache,
    Folds,
    HeldOut,
    check_folds,
)
from cordcal.calibrators.registry import calibrator_class
from cordcal.expressions import Parameters, copied, in_domain, softmax
from cordcal.repair.lift import Masses

# Pseudo-rows that regularise the shares, spread evenly; 40 were too many.
_PSEUDO_ROWS = 2.0
# Members differ on rows whose prediction is wrong, so the number e of these limits what can be
# learnt.  The simplest members get 30/e more pseudo-rows (ten with three errors, one with 30),
# at most 20; 100/e were up to 11 % worse for under-confident networks.
_SIMPLE_ROWS = 30.0
_MAX_SIMPLE_ROWS = 20.0
# Members with at most this many parameters are the simplest: temperatures and their mixtures.
_MAX_SIMPLE_SIZE = 4
# With few rows many shares are nearly as good as the best ones: these pseudo-rows go to members
# that do well alone.  Ten were not better than five.
_RATED_ROWS = 5.0
# A member with less is dropped: it costs time at prediction and changes next to nothing.
_MIN_SHARE = 0.005

# The default members: every family, the dense maps last.  One-vs-rest curves (platt, beta, cir)
# and temperatures by class or entropy (ts-class, hts) were tried and add nothing.
_MEMBERS = ("ts", "ets", "mono", "vs", "svs", "irova", "irova-ts", "irm", "sms", "dir-odir")
# With fewer rows than classes: the others take most of the time there, for a tenth of the loss at
# 1,000 classes and 2 % of it at 26.
_MEMBERS_OF_FEW_ROWS = ("ts", "ets", "mono", "irova", "irm")
# With this many scores, 32 MB, their probabilities take memory that the members' fits need.
_MIN_ENTRIES_TO_RELEASE = 2**22
# The largest K of the maps with K² parameters.  Six fits take seconds for sms; for Dirichlet
# calibration, whose loss is stiffer, they take a minute at 5,000 × 100.
_MAX_CLASSES = {"sms": 200, "dir-odir": 100}


class Blend(Calibrator):
    """Blend: Σ π_m · q_m, the direct probabilities of other calibrators, mixed in shares π.

    The shares lie on the simplex and minimise the log loss of cross-fitted probabilities, a
    convex problem that is solved to a certified gap.  Pseudo-rows regularise it: two are spread
    evenly over the members, five go to members that do well alone, and the simplest members get
    30/e more if only e predictions are wrong, since few errors leave little to learn from.
    Members with a share below half a percent are dropped, and the shares are solved for again.
    The members that predict are fitted on all rows.  For a class without rows they get a
    pseudo-row, or else they would take it for impossible: the row in which it is likeliest, with a
    weight such that all of these count as one row at most.  The shares have none.
    If every prediction is right, nothing can be learnt about errors: half of the share goes to
    the original probabilities.

    | Works on what each member works on, with log-probabilities for logits: a constant added to
      a row of logits changes nothing.
    | Changes the argmax and the order, as some members do.
    | −inf logits: members that do not accept them are left out.
    | Cost: the fits of all members, folds + 1 times; a prediction costs its members' predictions.

    Parameters
    ----------
    members : sequence of str, optional
        Keys of calibrators.  By default ``ts ets mono vs svs irova irova-ts irm``, with ``sms`` up
        to 200 classes and ``dir-odir`` up to 100: beyond that their K² parameters cost too much.
        With fewer rows than classes ``ts ets mono irova irm``.
    folds : int
        Number of folds.  Every class is divided evenly, and rows with equal scores are held out
        together.
    seed : int
        Seed of the folds, which otherwise depend only on the rows: not on their order, and not
        on whether a row is repeated or has a weight.
    input : {"logits", "probabilities"}
        The kind of the scores.

    Attributes
    ----------
    weights_ : ndarray of shape (M,)
        The shares of the remaining members, in the order of ``members_``.
    members_ : dict of str to Calibrator
        The remaining members, fitted on all rows.
    notes_ : dict of str to str
        Members that were dropped, and why.  Under ``"folds"``: why copies of a row are in
        several folds, if they are.
    objective_ : float
        The mean log loss of the mixture on held-out rows.
    gap_ : float
        An upper bound on its distance to the minimum.
    seconds_ : float
        Duration of the fits.

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

    def _parts(self) -> dict[str, Any]:
        if not hasattr(self, "members_"):
            return {}
        shares = zip(self.weights_.tolist(), self.members_.items(), strict=True)
        return {f"{100 * share:.1f} % {key}": member for share, (key, member) in shares}

    def _to_domain(self, scores: npt.NDArray[Any], *, fitting: bool = False) -> CheckedScores:
        # Each member has a domain of its own.
        return CheckedScores.from_scores(scores, self.input, fitting=fitting)

    def fit_parameters(self, scores: CheckedScores, labels: Labels, weight: Vector | None) -> None:
        """Fit on validated rows."""
        self.fit_from(self._fit_cache(scores, labels, weight))

    def fit_checked(self, original: CheckedScores, labels: Labels, weight: Vector | None) -> Self:
        """Fit on validated rows."""
        self._check_fit_rows(original, labels, weight)
        return self._fit_in_domain(original, labels, weight)

    def _fit_cache(
        self, original: CheckedScores, labels: Labels, weight: Vector | None
    ) -> FitCache:
        check_folds(self.folds, len(labels))
        folds = Folds.of_rows(original, labels, self.folds, self.seed, weight)
        return FitCache(original, labels, weight, folds)

    def fit_from(self, fit_cache: FitCache) -> None:
        """Mix the calibrators of a cache, which fits those that it lacks."""
        self.n_classes_, self.log_floor_ = fit_cache.original.classes, LOG_FLOOR
        started = perf_counter()
        if fit_cache.original.raw.size >= _MIN_ENTRIES_TO_RELEASE:
            fit_cache.original.release()
        candidates: dict[str, Candidate] = {}
        doubtful: dict[str, Candidate] = {}
        self.notes_ = {} if fit_cache.folds.note is None else {"folds": fit_cache.folds.note}
        weight = fit_cache.weight
        rows = float(len(fit_cache.labels) if weight is None else weight.sum())
        keys = self._keys(self.n_classes_, rows)
        extended = fit_cache.with_absent_classes
        extended.fit_all(keys, members=True)
        for key in keys:
            candidate, note = extended.for_member(key).candidate(key)
            if note is not None:
                self.notes_[key] = note
            if candidate is not None:
                own = replace(candidate, held_out=candidate.held_out.first(len(fit_cache.labels)))
                (candidates if note is None else doubtful)[key] = own
        # Without errors, in all rows or in those of a fold, a temperature has no optimum; what it
        # returns is still better than what isotonic curves know from the few rows of such cases.
        # Other members stop at a place that depends on rounding, so a weight of 2 would not be
        # the row twice.
        none_converged = not candidates
        for key, candidate in doubtful.items():
            is_simple = candidate.model.size.at(self.n_classes_) <= _MAX_SIMPLE_SIZE
            if is_simple or none_converged:
                candidates[key] = candidate
                self.notes_.pop(key)
        self._mix({key: candidates[key] for key in keys if key in candidates}, fit_cache)
        # Fits that the cache had already count, too: a blend needs all of them.
        durations = [candidate.seconds for candidate in (candidates | doubtful).values()]
        self.seconds_ = max(perf_counter() - started, sum(durations))

    def _keys(self, classes: int, rows: float) -> tuple[str, ...]:
        """Return the members' keys, validated."""
        if self.members is None:
            members = _MEMBERS if rows >= classes else _MEMBERS_OF_FEW_ROWS
            return tuple(key for key in members if classes <= _MAX_CLASSES.get(key, classes))
        if isinstance(self.members, str) or not self.members:
            raise InputError(
                "members", f"is {self.members!r}", 'pass a sequence of keys, such as ("ts", "svs")'
            )
        for key in self.members:
            if issubclass(calibrator_class(key), Blend):
                raise InputError(
                    "members", f"has {key!r}, which is not a map of scores alone", "leave it out"
                )
        repeated = [key for key in self.members if list(self.members).count(key) > 1]
        if repeated:
            raise InputError("members", f"has {repeated[0]!r} twice", "name each once")
        return tuple(self.members)

    def _mix(self, candidates: Mapping[str, Candidate], fit_cache: FitCache) -> None:
        """Solve for the shares, drop members with tiny ones, and solve again."""
        if not candidates:
            key, reason = next(item for item in self.notes_.items() if item[0] != "folds")
            raise InputError(
                "members",
                f"has none that could be fitted: {key}: {reason}",
                "pass more rows, or choose members that can be fitted on them",
            )
        if _errors(fit_cache) == 0.0:
            candidates = {**candidates, "ts": _original(fit_cache)}
        keys = list(candidates)
        mixture = self._shares(candidates, keys, fit_cache)
        large = mixture.shares >= _MIN_SHARE
        for key in itertools.compress(keys, ~large):
            self.notes_[key] = "its share is below half a percent"
        if not large.all():
            keys = list(itertools.compress(keys, large))
            mixture = self._shares(candidates, keys, fit_cache, mixture.shares[large])
        self.weights_, self.objective_, self.gap_ = mixture.shares, mixture.loss, mixture.gap
        self.members_ = {key: candidates[key].model for key in keys}
        parts = [candidates[key].held_out for key in keys]
        self.held_out_ = HeldOut(
            self.weights_ @ np.stack([part.likelihood for part in parts]),
            Masses(
                self.weights_ @ np.stack([part.masses.mass for part in parts]),
                self.weights_ @ np.stack([part.masses.rest for part in parts]),
            ),
        )

    @staticmethod
    def _shares(
        candidates: Mapping[str, Candidate],
        keys: Sequence[str],
        fit_cache: FitCache,
        start: Vector | None = None,
    ) -> Mixture:
        likelihood = np.stack([candidates[key].held_out.likelihood for key in keys])
        w = np.ones(likelihood.shape[1]) if fit_cache.weight is None else fit_cache.weight
        counted = w > 0.0
        likelihood, w = likelihood[:, counted], w[counted]
        errors, classes = _errors(fit_cache), fit_cache.original.classes
        sizes = np.array([candidates[key].model.size.at(classes) for key in keys])
        prior = _prior(sizes <= _MAX_SIMPLE_SIZE, errors)
        prior += _RATED_ROWS * _rating(likelihood, w)
        if errors > 0.0 or len(keys) == 1:
            return best_shares(likelihood, w, prior, start)
        # An even mixture is at most log 2 per row worse than either of its halves.
        others = np.array([key != "ts" for key in keys])
        start = None if start is None else start[others]
        shares = np.full(len(keys), 0.5)
        half = best_shares(likelihood[others], w, prior[others], start)
        shares[others] *= half.shares
        loss = -float(w @ np.log(np.maximum(shares @ likelihood, LOG_FLOOR)) / w.sum())
        return Mixture(shares, loss, half.gap)

    def _predict_in_domain(self, scores: CheckedScores) -> Matrix:
        return self.predict_checked(scores)

    def predict_checked(self, original: CheckedScores) -> Matrix:
        """Map blocks of rows on threads, each converted once to every domain of the members."""
        if original.has_masked:
            for calibrator in self.members_.values():
                calibrator._check_masked(original)
        members: _Members = self._prepared()
        direct = np.empty(original.raw.shape)
        blocks = row_blocks(original.rows, original.classes, entries=CACHED_ENTRIES)
        if len(blocks) == 1:
            members.mix(original, direct)
            return direct

        def predict(part: slice) -> None:
            for rows in blocks[part]:
                members.mix(original.take(rows), direct[rows])

        # The blocks do not depend on the number of threads: products of matrices may round
        # differently with another number of rows.
        list(run_blocks(predict, len(blocks), CACHED_ENTRIES, default_threads(), len(blocks)))
        return direct

    def _values(self) -> list[Any]:
        # What is not mapped predicts by itself.
        members = [
            (key, member._values() if member._is_mapped() else member)
            for key, member in self.members_.items()
        ]
        return [self.weights_.tobytes(), members]

    def _prepare(self) -> _Members:
        parameters = [
            calibrator._prepare() if calibrator._is_mapped() else Parameters({})
            for calibrator in self.members_.values()
        ]
        common = _common_scalars(parameters)
        members = [
            _Member.of(c, c.log_floor_, params, _agrees(params, common))
            for c, params in zip(self.members_.values(), parameters, strict=True)
        ]
        return _Members(members, self.weights_)

    def accepts_masked(self) -> bool:
        """Whether every member accepts logits of −inf."""
        return all(member.accepts_masked() for member in self.members_.values())

    def map_parameters(self) -> Parameters:
        """Return the arrays that `map_scores` receives, with those of each member."""
        members = {}
        for key, member in self.members_.items():
            if not member.has_expression():
                raise InputError(
                    "model",
                    f"has the member {key!r}, whose map is not an expression of scores alone",
                    "fit a blend without it",
                )
            members[key] = member.map_parameters()
        # A graph computes a step once for the members that have no such scalar of their own.
        common = _common_scalars([*members.values()])
        arrays = {name: np.asarray(value) for name, value in common.items()}
        arrays["log_floor_"] = np.asarray(self.log_floor_)
        shares = dict(zip(members, self.weights_.tolist(), strict=True))
        order = sorted(members, key=lambda key: not self.members_[key]._is_softmax())
        arrays["shares_"] = np.array([[shares[key] for key in order]])
        for params in members.values():
            if _agrees(params, common):
                params.arrays = {k: x for k, x in params.arrays.items() if k not in common}
        return Parameters(arrays, {key: members[key] for key in order})

    @classmethod
    def map_scores(cls, scores: Array, kind: Kind, params: Parameters, *, xp: Any) -> Array:
        """Map scores of either kind, as one expression."""
        common = {name: params[name] for name in _SHARED_SCALARS if name in params}
        members = []
        for key, inner in params.members.items():
            agrees = not any(name in inner for name in _SHARED_SCALARS)
            own = Parameters({**common, **inner.arrays}) if agrees else inner
            members.append(_Member.of(calibrator_class(key), own["log_floor_"], own, agrees))
        rows = _Rows(lambda domain, floor: in_domain(scores, kind, domain, floor, xp), xp)
        stacked = xp.reshape(xp.concat(rows.map(members), axis=0), (len(members), -1))
        return xp.reshape(xp.matmul(params["shares_"], stacked), (-1, scores.shape[1]))

    @classmethod
    def has_expression(cls) -> bool:
        """Return True: the blend can be exported if its members can."""
        return True

    def to_state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Return the shares, and each member's state under its key."""
        arrays = {"weights_": self.weights_}
        members = []  # a list, since their order is that of the shares
        for key, member in self.members_.items():
            inner, record = member.to_state()
            members.append(record)
            arrays |= {f"{key}/{name}": value for name, value in inner.items()}
        fitted = {
            name: getattr(self, name)
            for name in ("n_classes_", "log_floor_", "notes_", "objective_", "gap_")
        }
        return arrays, {
            "key": self.key,
            "params": self.get_params(),
            "fitted": fitted,
            "members": members,
        }

    @classmethod
    def from_state(cls, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, Any]) -> Self:
        """Rebuild a fitted blend from the result of `to_state`."""
        shares = {name: value for name, value in arrays.items() if "/" not in name}
        blend = super().from_state(shares, meta)
        blend.members_ = {}
        for record in meta["members"]:
            key = record["key"]
            inner = _member_arrays(arrays, key)
            blend.members_[key] = calibrator_class(key).from_state(inner, record)
        return blend


# Scalars of early steps, which members with the same values share.
_SHARED_SCALARS = ("temperature_", "mix_")


def _common_scalars(parameters: Sequence[Parameters]) -> dict[str, float]:
    """Return the value of each shared scalar that most members have."""
    common = {}
    for name in _SHARED_SCALARS:
        values = [float(params[name]) for params in parameters if name in params]
        if values:
            common[name] = max(values, key=values.count)
    return common


def _agrees(params: Parameters, common: Mapping[str, float]) -> bool:
    """Whether a member has shared scalars, with the common values."""
    names = [name for name in common if name in params]
    return bool(names) and all(float(params[name]) == common[name] for name in names)


class _Member(NamedTuple):
    """A member of a blend as an expression: its logits, or its probabilities.

    ``agrees`` is whether it has the common scalars.
    """

    works_on: Domain
    log_floor: Any
    function: Callable[..., Array]
    is_softmax: bool
    params: Parameters
    agrees: bool

    @classmethod
    def of(
        cls,
        calibrator: Calibrator | type[Calibrator],
        log_floor: Any,
        params: Parameters,
        agrees: bool,
    ) -> _Member:
        is_softmax = calibrator._is_softmax()
        function = calibrator.logits if is_softmax else calibrator.probabilities
        if isinstance(calibrator, Calibrator) and not calibrator._is_mapped():
            predict = calibrator._predict_in_domain
            function = lambda scores, params, *, xp: predict(scores)  # noqa: E731
        domain: Domain = calibrator.works_on
        if domain == "logits":
            domain = "log-probabilities"  # as it was fitted
        return cls(domain, log_floor, function, is_softmax, params, agrees)


class _Rows:
    """Rows that several members map: each conversion and shared step is computed once."""

    def __init__(self, convert: Callable[[Domain, Any], Array], xp: Any) -> None:
        self._convert, self._xp = convert, xp
        self._domains: dict[tuple[Domain, float | None], Array] = {}
        self._shared: dict[str, Array] = {}

    def map(self, members: Sequence[_Member]) -> list[Array]:
        """Return direct probabilities, to concatenate.

        The members whose map ends in a softmax, which they have in common, are the first.
        """
        logits: list[Array] = []
        parts: list[Array] = []
        for member in members:
            # An exported blend has one floor, in as many arrays as members.
            key = (member.works_on, member.log_floor if self._xp is np else None)
            scores = self._domains.get(key)
            if scores is None:
                scores = self._domains[key] = self._convert(member.works_on, member.log_floor)
            params = member.params
            if member.agrees:
                params = Parameters(params.arrays, curves=params.curves, shared=self._shared)
            part = member.function(copied(scores, self._xp), params, xp=self._xp)
            (logits if member.is_softmax else parts).append(part)
        if logits:
            stacked = logits[0] if len(logits) == 1 else self._xp.concat(logits, axis=0)
            parts.insert(0, softmax(stacked, self._xp))
        return parts


class _Members:
    """The members of a blend for NumPy."""

    def __init__(self, members: list[_Member], shares: Vector) -> None:
        self.members = members
        self._shares = shares.tolist()
        # For few rows: the members in the order of `_Rows.map`, and their places in the sum.
        order = sorted(range(len(members)), key=lambda number: not members[number].is_softmax)
        self._stacked = [members[number] for number in order]
        self._stacked_shares = shares[order][:, None, None]
        self._places = np.argsort(order)

    def mix(self, original: CheckedScores, out: Matrix) -> None:
        """Write the mixture of direct probabilities, added in the order of the members."""
        rows = _Rows(original.in_domain, np)
        if len(self.members) * out.size <= CACHED_ENTRIES:
            # Time goes by the number of calls.
            stacked = np.concatenate(rows.map(self._stacked)).reshape(-1, *out.shape)
            stacked *= self._stacked_shares
            np.add.reduce(stacked[self._places], axis=0, out=out)
            return
        for number, (member, share) in enumerate(zip(self.members, self._shares, strict=True)):
            (direct,) = rows.map([member])
            np.multiply(direct, share, out=direct if number else out)
            if number:
                out += direct


def _member_arrays(arrays: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return one member's arrays, whose names begin with its key and a slash."""
    prefix = f"{key}/"
    return {
        name.removeprefix(prefix): value
        for name, value in arrays.items()
        if name.startswith(prefix)
    }


def _errors(fit_cache: FitCache) -> float:
    """Return the number of wrong predictions, in which a row of weight 2 counts twice."""
    wrong = fit_cache.original.prediction != fit_cache.labels
    return float(wrong.sum() if fit_cache.weight is None else fit_cache.weight[wrong].sum())


def _original(fit_cache: FitCache) -> Candidate:
    """Return the original probabilities as a calibrator: temperature scaling with T = 1."""
    original, labels = fit_cache.original, fit_cache.labels
    model = calibrator_class("ts")(input=original.kind)
    model.n_classes_, model.log_floor_ = original.classes, LOG_FLOOR
    held_out = HeldOut.empty(original.rows)
    held_out.store(slice(None), original.probabilities, labels, original.prediction)
    loss = -float(np.log(np.maximum(held_out.likelihood, LOG_FLOOR)).mean())
    model.__dict__.update(temperature_=1.0, objective_=loss, n_iter_=0)
    return Candidate(model, held_out, 0.0)


# The prior of the shares.


def _rating(likelihood: Matrix, weight: Vector) -> Vector:
    """Return how well each member does alone: the root of its likelihood, normalised.

    The root is taken because the same rows determine the shares afterwards.
    """
    log = np.log(np.maximum(likelihood, LOG_FLOOR)) @ weight
    root = np.exp(0.5 * (log - log.max()))
    rating: Vector = root / root.sum()
    return rating


def _prior(simple: npt.NDArray[np.bool_], errors: float) -> Vector:
    """Return each member's pseudo-rows that do not depend on its likelihood."""
    prior = np.full(len(simple), _PSEUDO_ROWS / len(simple))
    if simple.any():
        extra = min(_SIMPLE_ROWS / max(errors, 1.0), _MAX_SIMPLE_ROWS)
        prior[simple] += extra / np.count_nonzero(simple)
    return prior
