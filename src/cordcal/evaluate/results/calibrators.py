"""The records of one calibrator: its metrics, and what options would bring it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cordcal._numeric.types import Record
from cordcal.evaluate.results.pictures import Pictures
from cordcal.evaluate.results.values import Interval, Json, Measures
from cordcal.metrics import PredictionChanges
from cordcal.repair.results import ConfidenceGap


@dataclass(frozen=True)
class RuleOffer(Record):
    """What a learnt prediction rule saves one calibrator on the evaluated rows.

    Attributes
    ----------
    nll : float
        The NLL of Lift under the rule, which keeps every prediction too.
    saving : Interval
        The NLL of Lift that keeps the argmax, minus that.
    share : float
        The share of rows in which the likeliest class is not the predicted one.
    """

    nll: float
    saving: Interval
    share: float


@dataclass(frozen=True)
class GroupGap(Record):
    """Confidence minus accuracy in one category of a column, without and with context.

    Attributes
    ----------
    column, value : str
        The column, or ``"group"``, and its category.
    n : int
        The number of evaluated rows.
    before, after : float
        The difference without and with context.
    chance : float
        How far from zero it would be on average if the confidence with context were right.
    """

    column: str
    value: str
    n: int
    before: float
    after: float
    chance: float


@dataclass(frozen=True)
class ContextOffer(Record):
    """What columns next to the scores bring the default on the evaluated rows.

    Attributes
    ----------
    columns : tuple of str
        The columns that have an effect; empty if none explains which predictions are right.
    loss : float
        The log loss of "the prediction is right" with context.
    saving : Interval
        That loss without context, minus that.
    ece, aurc : tuple of float
        The ECE, and the area under the risk-coverage curve, without and with context.
    gaps : tuple of GroupGap
        Confidence minus accuracy per category of each column, and per group.
    """

    columns: tuple[str, ...]
    loss: float
    saving: Interval
    ece: tuple[float, float]
    aurc: tuple[float, float]
    gaps: tuple[GroupGap, ...] = ()

    @property
    def mean_gaps(self) -> dict[str, tuple[float, float, float]]:
        """The mean distance of confidence and accuracy over the rows of each column.

        Without context, with it, and what would be chance if the confidence were right.
        """
        means = {}
        for column in dict.fromkeys(gap.column for gap in self.gaps):
            own = [gap for gap in self.gaps if gap.column == column]
            values = np.abs([(gap.before, gap.after, gap.chance) for gap in own])
            before, after, chance = np.average(values, axis=0, weights=[gap.n for gap in own])
            means[column] = float(before), float(after), float(chance)
        return means

    @property
    def is_clear(self) -> bool:
        """Whether the saving is more than chance."""
        return bool(self.columns) and self.saving.low > 0.0


@dataclass(frozen=True)
class KeptPredictions(Record):
    """How honest Lift's confidence is on the evaluated rows, and what keeping predictions costs.

    Attributes
    ----------
    gap : ConfidenceGap
        Confidence minus accuracy before and after, rows at the bound, and the log losses.
    likelihood : mapping of str to float
        NLL and ECE with ``prefer="likelihood"``.
    """

    gap: ConfidenceGap
    likelihood: Measures


@dataclass(frozen=True)
class ConstraintCost(Record):
    """What keeping the predictions costs one calibrator, in NLL on the evaluated rows.

    Attributes
    ----------
    kept : float
        The smallest NLL of any repair that keeps every prediction: CORD, Lift, or the best
        monotone one, fitted on these rows.
    free : float
        The same if predictions may change.
    cord, lift : float or None
        The NLL of the two repairs on the same rows; the excess over ``kept`` could be gained.
    """

    _computed = ("cost",)

    kept: float
    free: float
    cord: float | None = None
    lift: float | None = None

    @property
    def cost(self) -> float:
        """What the constraint itself costs."""
        return self.kept - self.free


@dataclass(frozen=True, eq=False)
class Entry:
    """One calibrator of a comparison, or the one that is audited.

    Attributes
    ----------
    key, name : str
        Its short key and its title.
    keeps_predictions : bool
        Whether the calibrator keeps every prediction without a repair; a prediction that it
        ties with a class of a lower score is not kept.
    direct, repaired : mapping of str to float
        The metrics of the direct probabilities and of those repaired by CORD; empty without
        labels.
    lift : mapping of str to float, or None
        The metrics of the probabilities repaired by Lift; None if the calibrator needs no
        repair or rows could not be held out.
    changes : PredictionChanges
        Which predictions the direct probabilities change.
    pictures : Pictures
        The data of the report's figures, from the first split.
    gain : mapping of str to Interval
        Direct minus repaired, paired: above zero the repair is better, except for accuracy.
    lift_gain : mapping of str to Interval
        The same for Lift; empty without one.
    parameters : float
        How many parameters it has; infinite if unknown.
    fit_seconds, apply_seconds : float or None
        Time to fit calibrator and repair, and to apply both to the evaluation rows; None if it
        was fitted elsewhere.
    notes : tuple of str
        Warnings during fitting.
    constraint_cost : ConstraintCost or None
        What the constraint itself costs; None if the calibrator needs no repair.
    at_bound : float
        The share of rows whose prediction Lift keeps against the evidence.
    kept : KeptPredictions or None
        Lift's confidence against the accuracy, and what that costs; None without Lift.
    shares : mapping of str to float
        The weights of a blend's members; empty for other calibrators.
    rule : RuleOffer or None
        What a learnt rule saves the blend; None for others, or if its weights are equal.
    context : ContextOffer or None
        What context brings the blend with Lift; None for others, or without context.
    """

    key: str
    name: str
    keeps_predictions: bool
    direct: Measures
    repaired: Measures
    lift: Measures | None
    changes: PredictionChanges
    pictures: Pictures = field(repr=False)
    gain: Mapping[str, Interval] = field(default_factory=dict)
    lift_gain: Mapping[str, Interval] = field(default_factory=dict)
    parameters: float = math.inf
    fit_seconds: float | None = None
    apply_seconds: float | None = None
    notes: tuple[str, ...] = ()
    constraint_cost: ConstraintCost | None = None
    at_bound: float = 0.0
    kept: KeptPredictions | None = None
    shares: Measures = field(default_factory=dict)
    rule: RuleOffer | None = None
    context: ContextOffer | None = None

    @property
    def preserving(self) -> tuple[str, ...]:
        """The outputs that keep every prediction."""
        if self.keeps_predictions:
            return ("direct",)
        return ("repaired",) if self.lift is None else ("repaired", "lift")

    @property
    def outputs(self) -> tuple[str, ...]:
        """All outputs: direct, then the repaired ones if there are any."""
        return self.preserving if self.keeps_predictions else ("direct", *self.preserving)

    def measures(self, output: str) -> Measures:
        """Return the metrics of one output."""
        if output == "lift":
            return self.lift or {}
        return self.repaired if output == "repaired" else self.direct

    def gains(self, output: str) -> Mapping[str, Interval]:
        """Return direct minus one of the repaired outputs; empty for the direct one."""
        if output == "direct":
            return {}
        return self.lift_gain if output == "lift" else self.gain

    def to_dict(self, *, every_class: bool = True) -> Json:
        """Return plain Python values; every class if ``every_class``, else a selection."""
        return {
            "key": self.key,
            "name": self.name,
            "keeps_predictions": self.keeps_predictions,
            "parameters": self.parameters if math.isfinite(self.parameters) else None,
            "direct": dict(self.direct),
            "repaired": dict(self.repaired),
            "lift": None if self.lift is None else dict(self.lift),
            "changes": self.changes.to_dict(),
            "gain": {name: interval.to_dict() for name, interval in self.gain.items()},
            "lift_gain": {name: interval.to_dict() for name, interval in self.lift_gain.items()},
            "seconds": {"fit": self.fit_seconds, "apply": self.apply_seconds},
            "notes": list(self.notes),
            "constraint_cost": None
            if self.constraint_cost is None
            else self.constraint_cost.to_dict(),
            "rule": None if self.rule is None else self.rule.to_dict(),
            "context": None if self.context is None else self.context.to_dict(),
            "at_bound": self.at_bound,
            "kept": None if self.kept is None else self.kept.to_dict(),
            "shares": dict(self.shares),
            **self.pictures.to_dict(every_class=every_class),
        }
