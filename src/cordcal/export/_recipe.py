"""A fitted model as array expressions, shared by the torch module and the ONNX graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.expressions import in_domain, shares, softmax
from cordcal._numeric.types import Array, Kind, Parameters
from cordcal.calibrators import Calibrator, available, calibrator_class
from cordcal.export._repair import Namespace, RuleWeights, lift, repair
from cordcal.preserving import PreservingCalibrator
from cordcal.repair import CORD, Lift
from cordcal.repair.lift_rule import Curve

Rule = Literal["cord", "raise", "cap"]
Arrays = dict[str, npt.NDArray[np.generic]]
"""The fitted arrays of a calibrator by name."""


class HasCalibrator(Protocol):
    """A fitted classifier that can return its calibration alone, as scikit-learn's adapter."""

    def to_calibrator(self) -> PreservingCalibrator:
        """Return the calibration."""
        ...


@dataclass(frozen=True, slots=True)
class Recipe:
    """The expressions of a fitted `PreservingCalibrator`, without its parameter arrays.

    ``kind`` is what the model was fitted on and ``input`` what the module or graph receives:
    logits are allowed for a model fitted on probabilities.  ``scalars`` are CORD's shared
    scalars, one per preserved rank, or the three of a Lift.  ``heaviest`` is the largest weight
    of a prediction rule, whose weights are the parameter ``rule_weights``.
    """

    calibrator: type[Calibrator]
    kind: Kind
    input: Kind
    classes: int
    rule: Rule
    scalars: tuple[float, ...]
    heaviest: float | None = None

    def both(
        self, scores: Array, decision: Array, parameters: Parameters, dtype: str, *, xp: Namespace
    ) -> tuple[Array, Array]:
        """Return direct and repaired probabilities; the latter do not tie in ``dtype``."""
        original, direct = self.before_repair(scores, parameters, xp=xp)
        weights = None
        if self.heaviest is not None:
            weights = RuleWeights(parameters["rule_weights"], self.heaviest)
        if self.rule == "cord":
            return direct, repair(original, direct, decision, self.scalars, dtype, weights, xp=xp)
        curve = Curve(*self.scalars)
        return direct, lift(direct, decision, curve, self.rule, dtype, weights, xp=xp)

    def before_repair(
        self, scores: Array, parameters: Parameters, *, xp: Namespace
    ) -> tuple[Array, Array]:
        """Return the original and the direct probabilities."""
        if self.input != self.kind:
            scores = softmax(scores, xp)
        if self.kind == "probabilities":
            scores = shares(scores, xp)
        original = in_domain(scores, self.kind, "probabilities", parameters["log_floor_"], xp)
        return original, self.calibrator._direct_proba(scores, self.kind, parameters, xp=xp)


def calibration_of(model: PreservingCalibrator | HasCalibrator) -> PreservingCalibrator:
    """Return a fitted model, or the calibration of a fitted classifier."""
    if isinstance(model, PreservingCalibrator):
        return model
    if hasattr(model, "to_calibrator"):
        return model.to_calibrator()
    raise InputError(
        "model",
        f"is a {type(model).__name__}",
        "pass a fitted cordcal.PreservingCalibrator, which holds the calibrator and the repair",
    )


def recipe_of(model: PreservingCalibrator, input: Kind | None = None) -> tuple[Recipe, Arrays]:
    """Return a fitted model's recipe and parameters; refuse models without an expression."""
    if not hasattr(model, "repair_"):
        raise InputError("model", "is not fitted yet", "call fit(scores, labels) first")
    calibrator, kind = model.calibrator_, model._kind()
    _check_expression(calibrator)
    if input not in (None, "logits", kind):
        raise InputError(
            "input",
            f"is {input!r} but the model was fitted on logits, which cannot be recovered from "
            f"probabilities",
            "fit the model with {option}, or pass logits",
            option=("input", "probabilities"),
        )
    if model._decision_given:
        raise InputError(
            "model",
            "was fitted with decision=, and the scores alone do not determine such predictions",
            "export a model whose predictions are the argmax of the scores",
        )
    rule, scalars = _rule_of(model.repair_)
    weights = model.repair_._fitted_weights()
    parameters: Arrays = {
        "log_floor_": np.asarray(calibrator.log_floor_),
        **calibrator._parameters(),
    }
    heaviest = None
    if weights is not None:
        parameters["rule_weights"], heaviest = weights, float(weights.max())
    shape = (type(calibrator), kind, input or kind, model.n_classes_)
    return Recipe(*shape, rule, scalars, heaviest), parameters


def _rule_of(fitted: CORD | Lift) -> tuple[Rule, tuple[float, ...]]:
    if isinstance(fitted, Lift):
        return fitted.mode, tuple(fitted.curve_)
    return "cord", tuple(np.atleast_1d(fitted.eta_).tolist())


def _check_expression(calibrator: object) -> None:
    reason = f"has the calibrator {type(calibrator).__name__}, which is not cordcal's"
    if isinstance(calibrator, Calibrator):
        if calibrator.has_expression():
            return
        reason = (
            f"has the calibrator {calibrator.key!r}, which cannot be exported: its map is not one "
            f"expression of the scores"
        )
    portable = [key for key in available() if calibrator_class(key).has_expression()]
    raise InputError("model", reason, f"use one of {', '.join(portable)}")
