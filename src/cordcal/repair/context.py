"""Context: columns next to the scores that say how far to trust a prediction.

Lift's confidence is s = σ(α·log b − β·log(1 − b) + γ).  With context, every column adds a term to
these log-odds:

- categories: one effect each, with mean zero; a category that `fit` did not see has none;
- numbers: a slope, on the number standardised and clipped to the range seen;
- a second opinion, the probabilities of another model: slopes on its log-odds of our prediction,
  on whether it predicts the same, and on its confidence.

The effects of a column have a normal prior with mean zero, whose precision is the column's
*strength*.  For given strengths the fit is convex and has a certificate, as without context.  The
strengths are those under which the rows are most likely, by Laplace's approximation; this is not
jointly convex, so the start and the order are fixed.  They are updated by the rule of Fellner and
Schall (Wood and Fasiolo 2017, https://doi.org/10.1111/biom.12666), which never lowers that
likelihood.  Columns that do not earn `MIN_EVIDENCE` are then left out, the weakest first.

A row whose value is missing must not get the term zero: for a second opinion that means an
average one, and the curve next to it counts on having it.  Such a row gets a curve that was
fitted without the column.  Curves are stored for all columns, for all but one, for each set of
columns that calibration rows have, and for none; a row gets the largest of those it has all
columns for.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.types import (
    Flags,
    Matrix,
    NumPyArray,
    Predictions,
    Record,
    StoredRecord,
    Vector,
)
from cordcal._validation.context import ContextValues, context_argument, is_present
from cordcal._validation.scores import rescale_large_weights
from cordcal.repair.lift_rule import (
    IDENTITY,
    PSEUDO_ERRORS,
    RIDGES,
    SETTLED,
    Curve,
    Evaluated,
    Fitted,
    logistic_terms,
    minimise,
    pool_low,
)

# A column must make the rows e² times as likely as without it, times the number of columns, since
# the best of many is good by chance: 64 features of a network that say nothing cost up to 6 %
# without that factor.
MIN_EVIDENCE = 2.0
# The weakest of the curve's ridges: what a column says changes what b says, so that the curve moves
# far from the identity.
_RIDGE = RIDGES[0]
# Effects are about a third of a unit of log-odds before anything is known.
_START = 10.0
# Categories per row; beyond that most have one row, and new rows have other ones.
_MAX_CATEGORIES = 0.5
# Between effects of any size and effects of a hundredth.
_STRENGTHS = (0.05, 1e4)
# A strength matters by how many effective parameters it leaves, known to this.
_FREEDOM_TOLERANCE = 0.05
_MAX_UPDATES = 40
# The time of a joint fit grows with the cube of the effects.  With more than these, columns that
# say little by themselves are left out before it.
_MANY_EFFECTS = 200
# How much more likely, in nats, a column must make the rows by itself then.
_PROMISING = 1.0
# While strengths are still moving, the parameters need fewer digits.
_ROUGH = 1e-6
# The log-odds of a second opinion within these probabilities.
_CLIP = 1e-4
# Sets of columns that calibration rows have, the most frequent ones, with a curve of their own.
_MAX_PATTERNS = 20
# Two standard errors on either side.
_INTERVAL = 1.959963984540054
# The confidence at which effects are shown in points.
_SHOWN_AT = 0.8
# α, β and γ are the first parameters.
_CURVE, _GAMMA = 3, 2


@dataclass(frozen=True)
class ContextEffect(Record):
    """What one category, or one standard deviation of a number, does to the confidence.

    Attributes
    ----------
    column : str
        The column.
    value : str
        The category, ``"+1 sd"`` for numbers, or which part of a second opinion.
    effect : float
        The change of the log-odds that the prediction is right.
    low, high : float
        Its 95 % interval under the prior that the strength stands for.
    confidence : float
        What a confidence of 0.8 becomes.

    Examples
    --------
    >>> print(ContextEffect("subject", "law", -0.6, -0.9, -0.3, 0.6869))
    subject law: -0.60 [-0.90, -0.30], 0.80 → 0.69
    """

    column: str
    value: str
    effect: float
    low: float
    high: float
    confidence: float

    def __str__(self) -> str:
        interval = f"[{self.low:+.2f}, {self.high:+.2f}]"
        shown = f"{_SHOWN_AT:.2f} → {self.confidence:.2f}"
        return f"{self.column} {self.value}: {self.effect:+.2f} {interval}, {shown}"


# Columns: how values become terms.


class Scale(NamedTuple):
    """Numbers standardised and clipped to the range seen."""

    center: float
    scale: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Vector, weight: Vector) -> Scale:
        """Return the scale of the values that are present."""
        center = float(np.average(values, weights=weight))
        scale = float(np.sqrt(np.average((values - center) ** 2, weights=weight)))
        return cls(center, scale, float(values.min()), float(values.max()))

    def apply(self, values: Vector) -> Vector:
        """Return values in standard deviations from the mean."""
        return (np.clip(values, self.low, self.high) - self.center) / self.scale


@dataclass(frozen=True)
class Column(StoredRecord):
    """How the values of one column become terms: categories, or one or more scaled numbers."""

    name: str
    categories: tuple[str, ...] | None = None
    scales: tuple[Scale, ...] = ()
    is_opinion: bool = False

    @classmethod
    def of(
        cls, name: str, values: NumPyArray, prediction: Predictions, weight: Vector
    ) -> Column | None:
        """Return how a column is encoded; None if it is the same in every row."""
        present = is_present(values) & (weight > 0.0)
        if not present.any():
            raise InputError(context_argument(name), "has no value", "leave the column out")
        if values.dtype == object:
            categories = tuple(sorted(set(values[present])))
            rows = int(present.sum())
            if len(categories) > max(_MAX_CATEGORIES * rows, 2):
                raise InputError(
                    context_argument(name),
                    f"has {len(categories):,} different values in {rows:,} rows, as identifiers do",
                    "leave it out, or group its values",
                )
            return cls(name, categories) if len(categories) > 1 else None
        numbers = _numbers(values[present], prediction[present])
        scales = tuple(Scale.of(column, weight[present]) for column in numbers)
        # What is the same in every row gets a slope of zero, whatever its scale.
        scales = tuple(s._replace(scale=s.scale if s.scale > 0.0 else 1.0) for s in scales)
        if all(scale.low == scale.high for scale in scales):
            return None
        return cls(name, None, scales, values.ndim == 2)

    @property
    def width(self) -> int:
        """The number of effects."""
        return len(self.scales) if self.categories is None else len(self.categories)

    @property
    def values(self) -> tuple[str, ...]:
        """What each effect belongs to."""
        if self.categories is not None:
            return self.categories
        opinion = ("log-odds of our prediction", "same prediction", "its confidence")
        return opinion if self.is_opinion else ("+1 sd",)

    def encode(self, values: NumPyArray, prediction: Predictions) -> Terms:
        """Return the terms of rows; rows without a value have none."""
        present = is_present(values)
        if not present.any():  # then its type does not say what kind of column it is
            return Terms.unknown(len(values), self.width)
        self._check(values)
        if self.categories is None:
            numbers = _numbers(values, prediction)
            scaled = [scale.apply(c) for scale, c in zip(self.scales, numbers, strict=True)]
            return Terms(present, None, np.where(present, np.stack(scaled), 0.0), self.width)
        place = {category: i for i, category in enumerate(self.categories)}
        codes = np.array([place.get(value, -1) for value in values], dtype=np.intp)
        return Terms(present, codes, None, self.width)

    def _check(self, values: NumPyArray) -> None:
        kind = "a second opinion" if self.is_opinion else "numbers"
        kind = kind if self.categories is None else "categories"
        given = "numbers" if values.dtype != object else "categories"
        given = "a second opinion" if values.ndim == 2 else given
        if given != kind:
            raise InputError(
                context_argument(self.name),
                f"holds {given} but fit had {kind}",
                "pass the same kind of column as to fit",
            )


class Terms(NamedTuple):
    """One column of some rows: the codes of categories (−1: not seen), or scaled numbers."""

    present: Flags
    codes: Predictions | None
    numbers: Matrix | None
    width: int

    @classmethod
    def unknown(cls, rows: int, width: int) -> Terms:
        """Return the terms of a column that no row has."""
        return cls(np.zeros(rows, dtype=bool), np.full(rows, -1, dtype=np.intp), None, width)

    def shift(self, effects: Vector) -> Vector:
        """Return what the effects add to each row's log-odds."""
        if self.codes is not None:
            return np.where(self.codes < 0, 0.0, effects[self.codes])
        assert self.numbers is not None
        # One after the other: a matrix product may round a row differently in another batch.
        total = np.zeros(self.numbers.shape[1])
        for effect, numbers in zip(effects.tolist(), self.numbers, strict=True):
            total = total + effect * numbers
        return total

    def take(self, rows: npt.NDArray[Any]) -> Terms:
        """Return some rows."""
        codes = None if self.codes is None else self.codes[rows]
        numbers = None if self.numbers is None else self.numbers[:, rows]
        return Terms(self.present[rows], codes, numbers, self.width)


def _numbers(values: NumPyArray, prediction: Predictions) -> list[Vector]:
    """Return the numbers of a column: itself, or the three of a second opinion."""
    if values.ndim == 1:
        return [values]
    missing = ~is_present(values)
    rows = np.arange(len(values))
    ours = np.clip(values[rows, prediction], _CLIP, 1.0 - _CLIP)
    other = np.where(missing, -1, np.where(missing[:, None], 0.0, values).argmax(axis=1))
    return [np.log(ours) - np.log1p(-ours), (other == prediction) * 1.0, values.max(axis=1)]


# The fitted state.


@dataclass(frozen=True)
class ContextCurve(StoredRecord):
    """A curve and the effects of its columns, for rows that have all of them."""

    columns: tuple[int, ...]
    curve: Curve
    effects: tuple[Vector, ...]

    def rows(self, terms: Sequence[Terms]) -> Curve:
        """Return one curve per row."""
        gamma = self.curve.gamma + np.zeros(len(terms[0].present))
        for column, effects in zip(self.columns, self.effects, strict=True):
            gamma = gamma + terms[column].shift(effects)
        return self.curve._replace(gamma=gamma)


@dataclass(frozen=True)
class FittedContext(StoredRecord):
    """The columns that matter, and curves for the sets of them that a row may have.

    Attributes
    ----------
    names : tuple of str
        All columns that `fit` had.
    columns : tuple of Column
        Those that explain whether predictions are right.
    curves : tuple of ContextCurve
        The largest set of columns first, the empty one last.
    strengths, errors : tuple of ndarray
        Per column, the precision of its prior and the standard errors of its effects.
    evidence : tuple of float
        Per column, how much more likely the rows are with it, in nats.
    gap : float
        A bound of how far the penalised loss per row is above its minimum.
    """

    names: tuple[str, ...]
    columns: tuple[Column, ...]
    curves: tuple[ContextCurve, ...]
    strengths: tuple[float, ...]
    errors: tuple[Vector, ...]
    evidence: tuple[float, ...]
    gap: float

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The columns that `fit` had and that new rows need not have."""
        chosen = {column.name for column in self.columns}
        return tuple(name for name in self.names if name not in chosen)

    def row_curves(self, values: ContextValues, prediction: Predictions) -> Curve:
        """Return one curve per row, from the columns that the row has.

        Parameters
        ----------
        values : ContextValues
            The columns by name; other columns than those of `fit` are ignored.
        prediction : ndarray of int
            The predictions.
        """
        rows = len(prediction)
        # Columns without an effect are not needed.
        lacking = [c.name for c in self.columns if c.name not in values.columns]
        if lacking and values.columns:
            raise InputError(
                "context",
                f"lacks the column {lacking[0]!r}, which has an effect",
                "pass it, with None in rows where it is unknown",
            )
        terms = [
            column.encode(values.columns[column.name], prediction)
            if values.columns
            else Terms.unknown(rows, column.width)
            for column in self.columns
        ]
        return self.choose(terms, rows)

    def choose(self, terms: Sequence[Terms], rows: int) -> Curve:
        """Return one curve per row of encoded columns."""
        result = Curve(*(np.empty(rows) for _ in Curve._fields))
        left = np.ones(rows, dtype=bool)
        for fitted in self.curves:
            present = left.copy()
            for column in fitted.columns:
                present &= terms[column].present
            if not present.any():
                continue
            at = np.flatnonzero(present)
            some = [term.take(at) for term in terms]
            own = fitted.rows(some) if some else fitted.curve
            for whole, part in zip(result, own, strict=True):
                whole[at] = part
            left &= ~present
        return result

    def effects(self) -> tuple[ContextEffect, ...]:
        """Return what every category and number does, column by column."""
        whole = self.curves[0]
        logit = float(np.log(_SHOWN_AT) - np.log1p(-_SHOWN_AT))
        result = []
        for column, effects, errors in zip(self.columns, whole.effects, self.errors, strict=True):
            for value, effect, error in zip(column.values, effects, errors, strict=True):
                shown = 1.0 / (1.0 + np.exp(-(logit + effect)))
                low, high = effect - _INTERVAL * error, effect + _INTERVAL * error
                numbers = (float(number) for number in (effect, low, high, shown))
                result.append(ContextEffect(column.name, value, *numbers))
        return tuple(result)


# The fit.


def fit_context(
    values: ContextValues,
    prediction: Predictions,
    mass: Vector,
    rest: Vector,
    right: Flags,
    weight: Vector | None,
    without: Fitted,
    least: float | None,
) -> FittedContext:
    """Fit the effects of the columns on rows with held-out masses.

    Parameters
    ----------
    values : ContextValues
        The columns.
    prediction : ndarray of int
        The predictions.
    mass, rest : ndarray
        b and 1 − b.
    right : ndarray of bool
        Whether each prediction is right.
    weight : ndarray, optional
        Weights of the rows.
    without : Fitted
        The curve without context, for rows that have none.
    least : float, optional
        The smallest confidence that can be on top, up to which rows are pooled.
    """
    w = np.ones(mass.size) if weight is None else rescale_large_weights(weight)
    candidates, terms = [], []
    for name, column_values in values.columns.items():
        column = Column.of(name, column_values, prediction, w)
        if column is not None:
            candidates.append(column)
            terms.append(column.encode(column_values, prediction))
    rows = _Rows(mass, rest, right, w, tuple(terms))
    names, bare = tuple(values.columns), ContextCurve((), without.curve, ())
    considered = _promising_columns(rows, without.curve)
    chosen, strengths, evidence = _choose_columns(rows, considered)
    if not chosen:
        return FittedContext(names, (), (bare,), (), (), (), without.gap)
    rows = rows._replace(terms=tuple(terms[column] for column in chosen))
    problem, theta = _solve(rows, tuple(range(len(chosen))), strengths, None)
    curves = [problem.to_curve(theta, least)]
    for subset in _subsets(rows):
        part, optimum = _solve(rows, subset, strengths, curves[0])
        curves.append(part.to_curve(optimum, least))
    return FittedContext(
        names,
        tuple(candidates[column] for column in chosen),
        (*curves, bare),
        strengths,
        problem.standard_errors(theta),
        evidence,
        problem.gap(theta),
    )


class _Rows(NamedTuple):
    """Calibration rows with their terms, some of which may be missing."""

    mass: Vector
    rest: Vector
    right: Flags
    weight: Vector
    terms: tuple[Terms, ...]

    def with_columns(self, columns: Sequence[int]) -> npt.NDArray[np.intp]:
        """Return the rows that have all of these columns."""
        present = self.weight > 0.0
        for column in columns:
            present = present & self.terms[column].present
        return np.flatnonzero(present)


@dataclass(frozen=True, slots=True)
class _Problem:
    """The penalised logistic loss of rows that have all columns.

    The parameters are α, β and γ, then the effects column by column.
    """

    dense: Matrix
    codes: tuple[tuple[slice, Predictions], ...]
    places: tuple[slice, ...]
    columns: tuple[int, ...]
    wrong: Flags
    weight: Vector
    strength: Vector
    # The loss of the rows at the latest parameters, which does not depend on the strengths.
    latest: dict[bytes, Evaluated] = field(default_factory=dict)

    @classmethod
    def of(
        cls, rows: _Rows, columns: tuple[int, ...], strengths: Sequence[float] | Vector
    ) -> _Problem:
        at = rows.with_columns(columns)
        if at.size == 0:
            raise InputError(
                "context",
                "has no row in which all its columns have a value",
                "leave out the columns that are mostly unknown",
            )
        terms = [rows.terms[column].take(at) for column in columns]
        mass, rest, wrong, weight = rows.mass[at], rows.rest[at], ~rows.right[at], rows.weight[at]
        numbers = [row for term in terms if term.numbers is not None for row in term.numbers]
        codes = [term.codes for term in terms if term.codes is not None]
        # Sums round alike only in one order; the result must not depend on the order of rows.
        order = np.lexsort((weight, wrong, *codes, *numbers, rest, mass))
        dense = [np.log(mass), -np.log(rest), np.ones(mass.size), *numbers]
        # Slopes come before effects of categories, as dense columns do.
        places, category_places = {}, []
        start = _CURVE
        for column, term in zip(columns, terms, strict=True):
            if term.numbers is not None:
                places[column] = slice(start, start + term.width)
                start += term.width
        for column, term in zip(columns, terms, strict=True):
            if term.codes is not None:
                places[column] = slice(start, start + term.width)
                category_places.append(places[column])
                start += term.width
        return cls(
            np.stack(dense)[:, order],
            tuple(zip(category_places, (code[order] for code in codes), strict=True)),
            tuple(places[column] for column in columns),
            columns,
            wrong[order],
            weight[order],
            np.full(start, _RIDGE),
        ).with_strengths(strengths)

    def with_strengths(self, strengths: Sequence[float] | Vector) -> _Problem:
        """Return the same rows with other strengths of the columns."""
        strength = self.strength.copy()
        for at, value in zip(self.places, strengths, strict=True):
            strength[at] = value
        return replace(self, strength=strength)

    @property
    def rows(self) -> float:
        """The number of rows, in which a row of weight 2 counts twice."""
        return float(self.weight.sum())

    @property
    def credibility(self) -> float:
        """How far the parameters move from the identity to their optimum; see `fit_curve`."""
        errors = float(self.weight[self.wrong].sum())
        return errors / (errors + PSEUDO_ERRORS)

    @property
    def identity(self) -> Vector:
        """The parameters that leave b as it is."""
        return np.concatenate([IDENTITY[:_CURVE], np.zeros(self.strength.size - _CURVE)])

    def log_odds(self, theta: Vector) -> Vector:
        """Return z of every row."""
        z: Vector = (theta[: len(self.dense), None] * self.dense).sum(axis=0)
        for at, codes in self.codes:
            z = z + theta[at][codes]
        return z

    def evaluate(self, theta: Vector) -> Evaluated:
        """Return the penalised loss, the gradient and the Hessian."""
        key = theta.tobytes()
        if key not in self.latest:
            terms = self._evaluate_rows(theta)
            self.latest.clear()
            self.latest[key] = terms
        loss, gradient, hessian = self.latest[key]
        away = theta - self.identity
        value = loss + 0.5 * float((self.strength * away * away).sum())
        return value, gradient + self.strength * away, hessian + np.diag(self.strength)

    def _evaluate_rows(self, theta: Vector) -> Evaluated:
        """Return the loss of the rows, its gradient and its Hessian."""
        loss, error, curvature = logistic_terms(self.log_odds(theta), self.wrong, self.weight)
        dense = len(self.dense)
        gradient = np.zeros(len(theta))
        gradient[:dense] = (self.dense * error).sum(axis=1)
        hessian = np.zeros((len(theta), len(theta)))
        bend = self.dense * curvature
        hessian[:dense, :dense] = bend @ self.dense.T
        for at, codes in self.codes:
            width = at.stop - at.start
            gradient[at] = np.bincount(codes, error, width)
            sums = np.stack([np.bincount(codes, row, width) for row in bend])
            hessian[:dense, at] += sums
            hessian[at, :dense] += sums.T
            hessian[at, at] += np.diag(np.bincount(codes, curvature, width))
        for (at, codes), (other_at, other) in itertools.combinations(self.codes, 2):
            shape = (at.stop - at.start, other_at.stop - other_at.start)
            pairs = codes * shape[1] + other
            sums = np.bincount(pairs, curvature, shape[0] * shape[1]).reshape(shape)
            hessian[at, other_at] += sums
            hessian[other_at, at] += sums.T
        return loss, gradient, hessian

    def solve(self, start: Vector, settled: float = SETTLED) -> Vector:
        """Return the optimal parameters, with α and β at least zero."""
        moves = np.ones(len(start), dtype=bool)
        optimum = minimise(self.evaluate, start, moves, self.rows, settled)
        if (optimum[:2] >= 0.0).all():
            return optimum
        # By strict convexity, the best feasible optimum of a face is the optimum.
        allowed: list[tuple[float, int, Vector]] = []
        for face in ((True, False), (False, True), (False, False)):
            moves[:2] = face
            theta = minimise(self.evaluate, np.where(moves, start, 0.0), moves, self.rows)
            if (theta[:2] >= 0.0).all():
                allowed.append((self.evaluate(theta)[0], len(allowed), theta))
        return min(allowed)[2]

    def to_curve(self, theta: Vector, least: float | None) -> ContextCurve:
        """Return the curve and the effects, moved towards the identity where errors are few."""
        shrunk = self.identity + self.credibility * (theta - self.identity)
        for at, codes in self.codes:
            # A category that was not seen is an average one: γ has the mean effect.
            mean = float(np.average(shrunk[at][codes], weights=self.weight))
            shrunk[at] -= mean
            shrunk[_GAMMA] += mean
        curve = Curve(*shrunk[:_CURVE].tolist())
        if least is not None:
            mass = 1.0 / (1.0 + np.exp(-self.log_odds(shrunk)))
            curve = pool_low(curve, mass, least, self.weight)
        return ContextCurve(self.columns, curve, tuple(shrunk[at] for at in self.places))

    def standard_errors(self, theta: Vector) -> tuple[Vector, ...]:
        """Return those of the effects, of categories less their mean."""
        covariance = self.credibility**2 * np.linalg.inv(self.evaluate(theta)[2])
        centering = np.eye(len(theta))
        for at, codes in self.codes:
            width = at.stop - at.start
            centering[at, at] -= np.bincount(codes, self.weight, width) / self.rows
        variance = np.diag(centering @ covariance @ centering.T)
        return tuple(np.sqrt(variance[at]) for at in self.places)

    def gap(self, theta: Vector) -> float:
        """Bound how far the value per row is above its minimum.

        It is strongly convex with the strength of each parameter.
        """
        _, gradient, _ = self.evaluate(theta)
        bound = np.zeros(len(theta), dtype=bool)
        bound[:2] = theta[:2] == 0.0
        pull = np.where(bound, np.minimum(gradient, 0.0), gradient)
        return float((pull * pull / (2.0 * self.strength)).sum()) / self.rows


def _solve(
    rows: _Rows, columns: tuple[int, ...], strengths: Sequence[float], start: ContextCurve | None
) -> tuple[_Problem, Vector]:
    """Return the problem of some columns and its optimum."""
    problem = _Problem.of(rows, columns, [strengths[column] for column in columns])
    theta = problem.identity
    if start is not None:
        theta[:_CURVE] = start.curve[:_CURVE]
        for column, at in zip(columns, problem.places, strict=True):
            theta[at] = start.effects[column]
    return problem, problem.solve(theta)


def _promising_columns(rows: _Rows, curve: Curve) -> tuple[int, ...]:
    """Return all columns, or of very many effects those that say something by themselves.

    The evidence for a column is that of one step from the curve without context, at the best of
    some strengths.
    """
    every = tuple(range(len(rows.terms)))
    if sum(term.width for term in rows.terms) <= _MANY_EFFECTS:
        return every
    z = curve.alpha * np.log(rows.mass) - curve.beta * np.log(rows.rest) + curve.gamma
    _, error, curvature = logistic_terms(z, ~rows.right, rows.weight)
    strength = np.geomspace(*_STRENGTHS, 20)[:, None]
    promising = []
    for column in every:
        at = rows.with_columns([column])
        term = rows.terms[column].take(at)
        if term.codes is not None:
            slope = np.bincount(term.codes, error[at], term.width)
            bend = np.bincount(term.codes, curvature[at], term.width)
        else:
            assert term.numbers is not None
            slope = (term.numbers * error[at]).sum(axis=1)
            bend = (term.numbers**2 * curvature[at]).sum(axis=1)
        gain = slope**2 / (bend + strength) - np.log1p(bend / strength)
        if 0.5 * float(gain.sum(axis=1).max()) >= _PROMISING:
            promising.append(column)
    return tuple(promising)


def _choose_columns(
    rows: _Rows, columns: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[float, ...], tuple[float, ...]]:
    """Return the columns that earn their place, their strengths and the evidence for each."""
    enough = MIN_EVIDENCE + np.log(max(len(rows.terms), 1))
    strengths = np.full(len(columns), _START)
    while columns:
        problem = _Problem.of(rows, columns, strengths)
        problem, covariance, theta = _find_strengths(problem)
        strengths = np.array([problem.strength[at.start] for at in problem.places])
        evidence = [_evidence(problem, theta, covariance, [at]) for at in problem.places]
        # The weakest columns go together if even together they explain too little.  One by one
        # all of several equal columns would look superfluous.
        order = np.argsort(evidence, kind="stable")
        dropped = 0
        for count in range(1, len(columns) + 1):
            weakest = [problem.places[place] for place in sorted(order[:count])]
            if _evidence(problem, theta, covariance, weakest) >= enough:
                break
            dropped = count
        if dropped == 0:
            return columns, tuple(strengths.tolist()), tuple(evidence)
        kept = np.sort(order[dropped:])
        columns, strengths = tuple(columns[place] for place in kept), strengths[kept]
    return (), (), ()


def _find_strengths(problem: _Problem) -> tuple[_Problem, Matrix, Vector]:
    """Return the problem with likely strengths, the covariance and the optimum.

    The next strength of a column is its effective number of effects over their sum of squares.
    """
    theta, freedom = problem.identity, np.zeros(len(problem.places))
    for _ in range(_MAX_UPDATES):
        theta = problem.solve(theta, _ROUGH)
        covariance = np.asarray(np.linalg.inv(problem.evaluate(theta)[2]), dtype=np.float64)
        shares = 1.0 - problem.strength * np.diag(covariance)
        before, freedom = freedom, np.array([float(shares[at].sum()) for at in problem.places])
        if np.abs(freedom - before).max() <= _FREEDOM_TOLERANCE:
            break
        sizes = [float((theta[at] * theta[at]).sum()) for at in problem.places]
        problem = problem.with_strengths(np.clip(freedom / np.maximum(sizes, 1e-300), *_STRENGTHS))
    return problem, covariance, theta


def _evidence(
    problem: _Problem, theta: Vector, covariance: Matrix, places: Sequence[slice]
) -> float:
    """Return the log-likelihood of the rows with some columns less that without, integrated.

    In the quadratic approximation at the optimum, with P the precision of their effects after
    all others are integrated out, it is ½ θᵀPθ − ½ log |P / strength|.
    """
    at = np.concatenate([np.arange(place.start, place.stop) for place in places])
    precision = np.linalg.inv(covariance[np.ix_(at, at)])
    volume = float(np.linalg.slogdet(precision / problem.strength[at])[1])
    return 0.5 * float(theta[at] @ precision @ theta[at]) - 0.5 * volume


def _subsets(rows: _Rows) -> Iterator[tuple[int, ...]]:
    """Yield the sets of columns that get a curve, next to all and none, the largest first."""
    every = tuple(range(len(rows.terms)))
    wanted = {every[:i] + every[i + 1 :] for i in every}
    if rows.terms:
        present = np.stack([term.present for term in rows.terms], axis=1)[rows.weight > 0.0]
        patterns, counts = np.unique(present, axis=0, return_counts=True)
        for pattern in patterns[np.argsort(-counts, kind="stable")][:_MAX_PATTERNS]:
            wanted.add(tuple(np.flatnonzero(pattern).tolist()))
    wanted -= {every, ()}
    yield from sorted(wanted, key=lambda columns: (-len(columns), columns))
