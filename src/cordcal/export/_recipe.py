"""What a fitted model does to a row, for modules and graphs: its map, its repair, its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.expressions import in_domain, shares, softmax
from cordcal._numeric.types import Array, Kind, Parameters
from cordcal.calibrators import Calibrator, available, calibrator_class
from cordcal.export._repair import lift, repair
from cordcal.preserving import PreservingCalibrator
from cordcal.repair import CORD, Lift
from cordcal.repair.lift_rule import Curve

Rule = Literal["cord", "raise", "cap"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a fitted `PreservingCalibrator` does to a row, apart from its numbers.

    ``given`` is what it will be given; a model of probabilities may be given logits.
    ``scalars`` are CORD's shared scalars, one a rank that is kept, or the three of a Lift.
    """

    calibrator: type[Calibrator]
    kind: Kind
    given: Kind
    classes: int
    rule: Rule
    scalars: tuple[float, ...]

    def both(
        self, scores: Array, decision: Array, held: Parameters, dtype: str, *, xp: Any
    ) -> tuple[Array, Array]:
        """Return the direct and the repaired report; rounding to ``dtype`` ties no decision."""
        original, direct = self.before_repair(scores, held, xp=xp)
        if self.rule == "cord":
            return direct, repair(original, direct, decision, self.scalars, dtype, xp=xp)
        curve = Curve(*self.scalars)
        return direct, lift(direct, decision, curve, self.rule, dtype, xp=xp)

    def before_repair(self, scores: Array, held: Parameters, *, xp: Any) -> tuple[Array, Array]:
        """Return the original and the direct report."""
        if self.given != self.kind:
            scores = softmax(scores, xp)
        if self.kind == "probabilities":
            scores = shares(scores, xp)
        original = in_domain(scores, self.kind, "probabilities", held["log_floor_"], xp)
        return original, self.calibrator._direct_proba(scores, self.kind, held, xp=xp)


def recipe_of(model: Any, given: Kind | None = None) -> tuple[Recipe, dict[str, npt.NDArray[Any]]]:
    """Return a fitted model's recipe and its numbers; refuse what has no map here."""
    if not isinstance(model, PreservingCalibrator):
        raise InputError(
            "model",
            f"is a {type(model).__name__}",
            "pass a fitted cordcal.PreservingCalibrator, which holds the calibrator and the repair",
        )
    if not hasattr(model, "repair_"):
        raise InputError("model", "is not fitted yet", "call fit(scores, labels) first")
    calibrator, kind = model.calibrator_, model._kind()
    _check_expression(calibrator)
    if given not in (None, "logits", kind):
        raise InputError(
            "input",
            f"is {given!r} but the model was fitted on logits, which probabilities cannot stand "
            f"in for",
            "fit the model with {option}, or pass logits",
            option=("input", "probabilities"),
        )
    rule, scalars = _rule_of(model.repair_)
    recipe = Recipe(type(calibrator), kind, given or kind, model.n_classes_, rule, scalars)
    return recipe, {"log_floor_": np.asarray(calibrator.log_floor_), **calibrator._parameters()}


def _rule_of(fitted: CORD | Lift) -> tuple[Rule, tuple[float, ...]]:
    if isinstance(fitted, Lift):
        return fitted.mode, tuple(fitted.curve_)
    return "cord", tuple(np.atleast_1d(fitted.eta_).tolist())


def _check_expression(calibrator: Any) -> None:
    own = isinstance(calibrator, Calibrator)
    if own and calibrator.has_expression():
        return
    portable = [key for key in available() if calibrator_class(key).has_expression()]
    reason = f"has the calibrator {type(calibrator).__name__}, which is not cordcal's"
    if own:
        reason = (
            f"has the calibrator {calibrator.key!r}, which cannot leave NumPy: its map is no "
            f"expression of the scores alone"
        )
    raise InputError("model", reason, f"use one of {', '.join(portable)}")
