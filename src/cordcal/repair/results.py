"""Results of a construction and an explanation: small frozen records."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Literal

import numpy as np
import numpy.typing as npt

from cordcal._errors import option_text
from cordcal._numeric.types import Floats, StoredRecord, Vector
from cordcal.repair.lift_rule import Curve, Prefer


@dataclass(frozen=True)
class Construction(StoredRecord):
    """The record of `CORD.fit`.

    Attributes
    ----------
    n : int
        Rows seen.
    n_classes : int
        Classes (columns).
    direct_mean : float
        Mean direct mass on the predictions (b̄).
    target : float
        The mean to retain: ``direct_mean``, or the nearest attainable mean (Eq. 6).
    attainable : tuple of float
        The smallest and the largest mean that preserve every prediction.
    attained : float
        The mean of the repaired masses.
    eta : float
        The shared scalar η*.
    n_changed : int
        Rows whose direct probabilities change the prediction.
    n_at_lower, n_at_upper : int
        Rows whose repaired mass is at an end of its interval.
    prediction_given : bool
        Whether the caller passed ``prediction=``.
    passes : int
        How many passes over the rows found the scalar.
    effective_n : float
        (Σw)² / Σw², the effective sample size.
    """

    n: int
    n_classes: int
    direct_mean: float
    target: float
    attainable: tuple[float, float]
    attained: float
    eta: float
    n_changed: int
    n_at_lower: int
    n_at_upper: int
    prediction_given: bool
    # The number of passes is not part of the result.
    passes: int = field(compare=False)
    effective_n: float

    def __repr__(self) -> str:
        share = self.n_changed / self.n
        low, high = self.attainable
        return (
            f"Construction on {self.n:,} rows × {self.n_classes} classes\n"
            f"  predictions the calibrator changed  {self.n_changed:,} ({100 * share:.2f} %)\n"
            f"  mean confidence in the predictions  {self.direct_mean:.6f} direct, "
            f"{self.attained:.6f} repaired\n"
            f"  attainable mean                     [{low:.6f}, {high:.6f}], "
            f"target {self.target:.6f}\n"
            f"  shared scalar η*                    {self.eta:.12g} "
            f"(found in {self.passes} passes)\n"
            f"  rows at a bound                     {self.n_at_lower:,} lower, "
            f"{self.n_at_upper:,} upper\n"
            f"  predictions                         "
            f"{'passed as prediction=' if self.prediction_given else 'argmax of the original'}"
        )


@dataclass(frozen=True)
class RankingConstruction(StoredRecord):
    """The record of `CORD.fit` if it preserves more than the first rank.

    Attributes
    ----------
    levels : tuple of Construction
        One record per level, from the first rank on.  Means are weighted by the direct mass of
        the level.
    """

    levels: tuple[Construction, ...]

    @property
    def eta(self) -> npt.NDArray[np.float64]:
        """The shared scalars, one per level."""
        return np.array([level.eta for level in self.levels])

    @property
    def n(self) -> int:
        """Rows seen."""
        return self.levels[0].n

    @property
    def n_classes(self) -> int:
        """Classes (columns)."""
        return self.levels[0].n_classes

    @property
    def n_changed(self) -> int:
        """Rows whose direct mass on the prediction is below a class of the repaired tail."""
        return self.levels[0].n_changed

    @property
    def prediction_given(self) -> bool:
        """Whether the caller passed ``prediction=``."""
        return self.levels[0].prediction_given

    def __repr__(self) -> str:
        lines = [f"Construction of {len(self.levels)} levels on {self.n:,} rows"]
        shown = self.levels if len(self.levels) <= 10 else self.levels[:9]
        lines.append("  rank   changed   mean direct → repaired   effective n   η*")
        for rank, level in enumerate(shown, start=1):
            lines.append(
                f"  {rank:>4}  {100 * level.n_changed / level.n:>6.2f} %   "
                f"{level.direct_mean:.6f} → {level.attained:.6f}    "
                f"{level.effective_n:>11,.1f}   {level.eta:.9g}"
            )
        if len(shown) < len(self.levels):
            lines.append(f"  … and {len(self.levels) - len(shown)} more")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Explanation:
    """The repair of each row; every field is a vector with one entry per row.

    If more than the first rank is preserved, every field is a matrix with one column per rank,
    and masses are shares of the mass that the earlier ranks leave.

    Attributes
    ----------
    prediction : ndarray of int
        The class that is preserved.
    direct_mass : ndarray
        b, its direct mass.
    reference : ndarray
        g, the mass the repair starts from (Eq. 5).
    lower : ndarray
        The smallest mass that preserves the prediction (Eq. 4).
    repaired_mass : ndarray
        s, its repaired mass, before rounding to the output dtype.
    changed : ndarray of bool
        Whether the direct probabilities change the prediction.
    at_bound : ndarray of int
        -1 where s is at the lower end of its interval, 1 at the upper end, otherwise 0.
    """

    prediction: npt.NDArray[np.intp]
    direct_mass: npt.NDArray[np.float64]
    reference: npt.NDArray[np.float64]
    lower: npt.NDArray[np.float64]
    repaired_mass: npt.NDArray[np.float64]
    changed: npt.NDArray[np.bool_]
    at_bound: npt.NDArray[np.int8]

    def __len__(self) -> int:
        return int(self.prediction.shape[0])

    def to_dict(self) -> dict[str, Floats]:
        """Return the vectors by name, for a data frame; ``lower_2`` is that of rank 2."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.prediction.ndim == 1:
            return columns
        ranks = range(self.prediction.shape[1])
        return {f"{name}_{r + 1}": matrix[:, r] for name, matrix in columns.items() for r in ranks}

    def __repr__(self) -> str:
        changed, bound = (x.reshape(len(self), -1)[:, 0] for x in (self.changed, self.at_bound))
        return (
            f"Explanation of {len(self):,} rows: {changed.sum():,} changed by the calibrator, "
            f"{(bound < 0).sum():,} at the smallest mass that keeps the prediction"
        )


@dataclass(frozen=True)
class LiftConstruction(StoredRecord):
    """The record of `Lift.fit`.

    Attributes
    ----------
    n : int
        Rows seen.
    n_classes : int
        Classes (columns).
    prefer : {"confidence", "likelihood"}
        What is kept in rows whose confidence is too small to preserve the prediction.
    alpha, beta, gamma : float
        The parameters of s = σ(α·log b − β·log(1 − b) + γ).
    pooled_below, pooled : float
        Confidences up to the first are replaced by the second; zero if none is so small (about
        1/K) that it cannot be on top.
    ridge : float
        The strength of the penalty towards the identity, in rows; chosen on the calibration rows.
    credibility : float
        e / (e + 2) with e wrong predictions: how far the parameters are from the identity to
        their optimum.
    loss_before, loss_after : float
        Mean log loss of "the prediction is right" under b and under s, before clipping.
    gap : float
        A bound of how far the penalised loss per row of the optimum is above its minimum.
    cross_fitted : bool
        Whether the parameters were fitted to probabilities of models not fitted on their rows.
    n_right : int
        Rows whose prediction is right.
    n_changed : int
        Rows whose direct probabilities change the prediction.
    n_at_lower, n_at_upper : int
        Rows at the bound, whose predictions are kept against the evidence, and rows whose
        confidence was lowered to the largest possible one.
    n_pooled : int
        Rows that share the confidence ``pooled``.
    prediction_given : bool
        Whether the caller passed ``prediction=``.
    effective_n : float
        (Σw)² / Σw², the effective sample size.
    """

    n: int
    n_classes: int
    prefer: Prefer
    alpha: float
    beta: float
    gamma: float
    pooled_below: float
    pooled: float
    ridge: float
    credibility: float
    loss_before: float
    loss_after: float
    gap: float
    cross_fitted: bool
    n_right: int
    n_changed: int
    n_at_lower: int
    n_at_upper: int
    n_pooled: int
    prediction_given: bool
    effective_n: float

    @property
    def curve(self) -> Curve:
        """The parameters."""
        return Curve(self.alpha, self.beta, self.gamma, self.pooled_below, self.pooled)

    def __repr__(self) -> str:
        return (
            f"Lift on {self.n:,} rows × {self.n_classes} classes, prefer {self.prefer!r}\n"
            f"  predictions that are right          {self.n_right:,} "
            f"({100 * self.n_right / self.n:.2f} %)\n"
            f"  predictions the calibrator changed  {self.n_changed:,} "
            f"({100 * self.n_changed / self.n:.2f} %)\n"
            f"  alpha, beta, gamma                  {self.alpha:.6g}, {self.beta:.6g}, "
            f"{self.gamma:.6g}{' (cross-fitted)' if self.cross_fitted else ''}\n"
            f"  ridge towards the identity          {self.ridge:g} rows\n"
            f"  log loss of being right             {self.loss_before:.6f} direct, "
            f"{self.loss_after:.6f} lifted\n"
            f"  kept against the evidence           {self.n_at_lower:,} "
            f"({100 * self.n_at_lower / self.n:.2f} %)\n"
            f"  below what can be on top            {self.n_pooled:,} with one confidence"
        )


# A true class with probability zero counts as this: 27.6 nats.
_LOSS_FLOOR = 1e-12
# From this share of rows at the bound on, keeping the predictions has a visible cost.
MANY_AT_BOUND = 0.05


@dataclass(frozen=True)
class ConfidenceGap(StoredRecord):
    """How far the confidence is from the accuracy, before and after a repair; ``print`` shows it.

    Attributes
    ----------
    n : int
        Number of labelled rows.
    accuracy : float
        The share of predictions that are right.
    before, after : tuple of float
        Mean confidence minus accuracy of the original and of the repaired probabilities, with the
        ends of its 95 % interval.
    at_bound : float
        The share of predictions that are kept against the evidence.
    direct_nll, repaired_nll : float
        The mean log loss of the direct and of the repaired probabilities.
    repair : {"confidence", "likelihood", "cord"}
        What Lift prefers, or CORD.

    Examples
    --------
    >>> labels = np.array([0, 0, 1, 1])
    >>> sure = np.array([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.2, 0.8]])
    >>> unsure = np.array([[0.8, 0.2], [0.8, 0.2], [0.6, 0.4], [0.2, 0.8]])
    >>> gap = ConfidenceGap.of(sure, unsure, unsure, sure.argmax(axis=1), labels, at_bound=0.0)
    >>> print(gap)
    Confidence minus accuracy: +12.5 points [−31.5, +56.5] → +0.0 points [−33.9, +33.9].
    """

    n: int
    accuracy: float
    before: tuple[float, float, float]
    after: tuple[float, float, float]
    at_bound: float
    direct_nll: float
    repaired_nll: float
    repair: Literal["confidence", "likelihood", "cord"] = "confidence"

    @classmethod
    def of(
        cls,
        original: Floats,
        direct: Floats,
        repaired: Floats,
        prediction: npt.NDArray[np.integer],
        labels: npt.NDArray[np.integer],
        weight: Vector | None = None,
        *,
        at_bound: float,
        repair: Literal["confidence", "likelihood", "cord"] = "confidence",
    ) -> ConfidenceGap:
        """Measure labelled rows."""
        at = np.arange(len(labels))
        w = np.ones(len(labels)) if weight is None else weight / weight.max()
        right = (prediction == labels).astype(np.float64)

        def gap(probabilities: Floats) -> tuple[float, float, float]:
            difference = probabilities[at, prediction] - right
            mean = float(np.average(difference, weights=w))
            variance = float(np.average((difference - mean) ** 2, weights=w))
            error = 1.96 * math.sqrt(variance * float((w * w).sum())) / float(w.sum())
            return mean, mean - error, mean + error

        def loss(probabilities: Floats) -> float:
            true_mass = np.maximum(probabilities[at, labels].astype(np.float64), _LOSS_FLOOR)
            return -float(np.average(np.log(true_mass), weights=w))

        return cls(
            n=len(labels),
            accuracy=float(np.average(right, weights=w)),
            before=gap(original),
            after=gap(repaired),
            at_bound=at_bound,
            direct_nll=loss(direct),
            repaired_nll=loss(repaired),
            repair=repair,
        )

    @property
    def sentence(self) -> str:
        """What keeping the predictions costs and how to avoid it; empty below five per cent.

        With context the repaired probabilities can be the better ones: then it costs nothing.
        """
        cost = self.repaired_nll - self.direct_nll
        if self.at_bound < MANY_AT_BOUND or cost <= 0.0:
            return ""
        other, gain = {
            "confidence": (
                ("prefer", "likelihood"),
                "has a lower log loss and a confidence too high",
            ),
            "likelihood": (
                ("prefer", "confidence"),
                "has an honest confidence and a higher log loss",
            ),
            "cord": (("repair", "lift"), "learns an honest confidence from labels"),
        }[self.repair]
        return (
            f"{100 * self.at_bound:.0f} % of the predictions are kept against the evidence, which "
            f"costs {cost:.3f} of NLL ({self.direct_nll:.3f} → {self.repaired_nll:.3f}): "
            f"{option_text(*other)} {gain}; {option_text('rule', 'learnt')} has the probabilities "
            "of the evidence, from which the rule predicts; the direct probabilities change "
            "predictions"
        )

    def __str__(self) -> str:
        before, after = (
            f"{100 * mean:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}]".replace("-", "−")
            for mean, low, high in (self.before, self.after)
        )
        lines = [f"Confidence minus accuracy: {before} → {after}."]
        if self.sentence:
            lines.append(f"{self.sentence}.")
        return "\n".join(lines)


AnyConstruction = Construction | RankingConstruction | LiftConstruction
"""The record of any repair's fit."""
