"""A fitted model as array expressions, shared by the torch module and the ONNX graph.

The NumPy engine rounds first and then raises the prediction if needed.  A traced graph cannot
inspect rounded values, so here the prediction is raised by a sufficient margin beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.arrays import UNIT_ROUNDOFF
from cordcal._numeric.types import Array, Kind
from cordcal._validation.scores import sum_warning_level
from cordcal.calibrators import Calibrator, available, calibrator_class
from cordcal.expressions import Parameters, in_domain, maximum, shares, softmax
from cordcal.preserving import PreservingCalibrator
from cordcal.repair import CORD, Lift, lift_rule, ranking, rule
from cordcal.repair.lift_rule import Curve, Margin, Prefer
from cordcal.repair.ranking import RankedRows
from cordcal.repair.rule import SMALLEST, chosen_entries

Namespace = Any
"""The array namespace that an expression runs in: torch's, or a `Graph`, which records it."""

# The smallest normal number per dtype.
_SMALLEST_NORMAL = {
    "float64": 2.0**-1022,
    "float32": 2.0**-126,
    "float16": 2.0**-14,
    "bfloat16": 2.0**-126,
}


class RuleWeights(NamedTuple):
    """The class weights of a prediction rule as an array, and the largest as a number."""

    values: Array
    heaviest: float

    def margin(self, dtype: str) -> tuple[float, float]:
        """Return `rule.rounding_margin`."""
        return rule.rounding_margin(self.heaviest, dtype)


def repair(
    original: Array,
    direct: Array,
    prediction: Array,
    etas: Sequence[float],
    dtype: str,
    rule_weights: RuleWeights | None = None,
    *,
    xp: Namespace,
) -> Array:
    """Return repaired probabilities in float64; once rounded, the prediction is strictly largest.

    With several scalars, the order of the first ranks is preserved as well.  Under a rule the
    prediction's weight times probability is strictly the largest.
    """
    # Not the cached function: torch.compile warns of caches in what it traces.
    level = sum_warning_level.__wrapped__(dtype, direct.shape[1])
    if len(etas) > 1:
        order = ranking.kept_order(original, prediction, xp=xp)
        rows = ranking.rank_rows(original, direct, order, len(etas), xp=xp)
        repaired = ranking.repair_rows(direct, rows, etas, level, xp=xp)
        return strictly_ordered(repaired, rows, len(etas), dtype, xp=xp)
    (eta,) = etas
    weights = None if rule_weights is None else rule_weights.values
    products = direct if weights is None else direct * weights[None, :]
    moved = xp.argmax(products, axis=1) != prediction
    state, part = rule.row_state(original, direct, prediction, moved, weights, xp=xp)
    repaired = rule.repair_rows(direct, state, part, eta, level, xp=xp)
    return strictly_first(repaired, prediction, dtype, rule_weights, xp=xp)


def lift(
    direct: Array,
    prediction: Array,
    curve: Curve,
    prefer: Prefer,
    dtype: str,
    rule_weights: RuleWeights | None = None,
    *,
    xp: Namespace,
) -> Array:
    """Return a Lift's probabilities in float64; rounded, the prediction is strictly largest."""
    weights, heaviest = rule_weights or (None, None)
    part = rule.split(direct, prediction, weights, xp=xp)
    mass, rest = lift_rule.confidence(curve, *rule.normalised(part), xp=xp)
    mass, rest = lift_rule.pool(curve, mass, rest, xp=xp)
    margin = Margin.under_rule(direct.shape[1], weights, dtype, heaviest)
    lower = rule.lower_of(part)
    inside, inside_rest, _, _ = rule.clip_to_interval(mass, rest, lower, xp=xp)
    lifted = rule.rebuild(direct, prediction, part, inside, inside_rest, xp=xp)
    at_bound = lift_rule.rows_at_bound(direct, prediction, mass, prefer, margin, xp=xp)
    is_low = mass < margin.bound(lower, prediction, xp=xp)
    repaired = xp.where(is_low[:, None], at_bound, lifted)
    return strictly_first(repaired, prediction, dtype, rule_weights, xp=xp)


def strictly_first(
    repaired: Array,
    prediction: Array,
    dtype: str,
    rule_weights: RuleWeights | None,
    *,
    xp: Namespace,
) -> Array:
    """Separate the prediction from its rivals by more than rounding to ``dtype`` can close.

    Under a rule that is `rule.enforce_rule` with a margin: the prediction rises, or its rivals
    fall if it has more than half of the mass.
    """
    if rule_weights is None:
        return strictly_top(repaired, prediction, dtype, xp=xp)
    weights, margin = rule_weights.values, rule_weights.margin(dtype)
    own = rule.at_prediction(weights, repaired, prediction, xp=xp)
    mass, others = rule.take_out(repaired, prediction, xp=xp)
    rival = xp.max(others * weights[None, :], axis=1)
    factor, slack = margin
    # Not a factor near one: onnxruntime would treat it as one and drop it.
    separated = (rival + rival * (factor - 1.0) + slack) / own
    half = mass <= 0.5
    raised = xp.where(half & (mass < separated), separated, mass)
    product = mass * own
    caps = (product - product * (factor - 1.0) - slack)[:, None] / weights[None, :]
    lowered = xp.where(~half[:, None] & (others > caps), caps, others)
    chosen = rule.chosen_entries(repaired, prediction, xp=xp)
    return xp.where(chosen, raised[:, None], lowered)


def strictly_top(repaired: Array, prediction: Array, dtype: str, *, xp: Namespace) -> Array:
    """Raise the prediction until rounding to ``dtype`` cannot tie it with a rival."""
    chosen = rule.chosen_entries(repaired, prediction, xp=xp)
    zeros = xp.zeros_like(repaired)
    rival = xp.max(xp.where(chosen, zeros, repaired), axis=1)
    mass = xp.max(xp.where(chosen, repaired, zeros), axis=1)
    mass = safely_above(mass, rival, dtype, xp)
    return xp.where(chosen, mass[:, None], repaired)


def strictly_ordered(
    repaired: Array, rows: RankedRows, levels: int, dtype: str, *, xp: Namespace
) -> Array:
    """Raise the preserved ranks until rounding to ``dtype`` cannot tie them.

    Half precision is too coarse for that: only the first rank is strict there, and rounding may
    tie the others but not invert them.
    """
    strict = ranking.strict_dtype(dtype)
    below = rows.rank >= levels
    zeros = xp.zeros_like(repaired)
    ranked = xp.take_along_axis(repaired, rows.order[:, :levels], axis=1)
    bound = xp.max(xp.where(below, repaired, zeros), axis=1)
    raised: list[Array] = []
    for level in range(levels - 1, -1, -1):
        mass = maximum(ranked[:, level], bound, xp)
        if strict or level == 0:
            mass = safely_above(mass, bound, dtype, xp)
            # Many devices flush subnormal numbers to zero.
            mass = maximum(mass, _SMALLEST_NORMAL[dtype], xp)
        raised.insert(0, mass)
        bound = mass
    head = xp.stack(raised, axis=1)
    position = xp.where(below, xp.zeros_like(rows.rank), rows.rank)
    return xp.where(below, repaired, xp.take_along_axis(head, position, axis=1))


def safely_above(mass: Array, rival: Array, dtype: str, xp: Namespace) -> Array:
    """Return ``mass``, or a little more, such that it rounds to a larger number than ``rival``.

    Two numbers further apart than the gap of the larger one's binade round apart, and
    that gap is at most 2u times the larger.  The margin is applied before the rounding,
    because compilers and graph optimisers may drop a rounding in the middle.
    """
    # The factor 1 + 4u covers "larger" and an intermediate rounding to float32.
    unit = UNIT_ROUNDOFF[dtype]
    # Not rival * (1 + …): onnxruntime drops factors near one.
    separated = rival + rival * (2.0 * unit * (1.0 + 4.0 * unit))
    return maximum(maximum(mass, separated, xp), rival + 1.25 * SMALLEST[dtype], xp)


# The whole model.

Rule = Literal["cord", "confidence", "likelihood"]


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
    scalars, one per preserved rank, or the curve of a Lift.  ``heaviest`` is the largest weight
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
        self, scores: Array, prediction: Array, parameters: Parameters, dtype: str, *, xp: Namespace
    ) -> tuple[Array, Array]:
        """Return direct and repaired probabilities; the latter do not tie in ``dtype``."""
        original, direct = self.before_repair(scores, parameters, xp=xp)
        return direct, self.repaired(original, direct, prediction, parameters, dtype, xp=xp)

    def repaired(
        self,
        original: Array,
        direct: Array,
        prediction: Array,
        parameters: Parameters,
        dtype: str,
        *,
        xp: Namespace,
    ) -> Array:
        """Return repaired probabilities that do not tie in ``dtype``."""
        weights = None
        if self.heaviest is not None:
            weights = RuleWeights(parameters["rule_weights"], self.heaviest)
        if self.rule == "cord":
            return repair(original, direct, prediction, self.scalars, dtype, weights, xp=xp)
        return lift(direct, prediction, Curve(*self.scalars), self.rule, dtype, weights, xp=xp)

    def before_repair(
        self, scores: Array, parameters: Parameters, *, xp: Namespace
    ) -> tuple[Array, Array]:
        """Return the original and the direct probabilities."""
        if self.input != self.kind:
            scores = softmax(scores, xp)
        if self.kind == "probabilities":
            scores = shares(scores, xp)
        original = in_domain(scores, self.kind, "probabilities", parameters["log_floor_"], xp)
        return original, self.calibrator.map_scores(scores, self.kind, parameters, xp=xp)


def reaches_threshold(
    repaired: Array, prediction: Array, thresholds: Array, *, xp: Namespace
) -> Array:
    """Return for each row whether the probability of its prediction reaches its threshold.

    Both are float32, as in `Certificate.accepts`.
    """
    chosen = chosen_entries(repaired, prediction, xp=xp)
    return xp.any(chosen & (repaired >= thresholds[None, :]), axis=1)


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


def recipe_of(model: PreservingCalibrator, input: Kind | None = None) -> tuple[Recipe, Parameters]:
    """Return a fitted model's recipe and parameters; refuse models without an expression."""
    if not hasattr(model, "repair_"):
        raise InputError("model", "is not fitted yet", "call fit(scores, labels) first")
    calibrator, kind = model.calibrator_, model.score_kind()
    _check_expression(calibrator)
    if input not in (None, "logits", kind):
        raise InputError(
            "input",
            f"is {input!r} but the model was fitted on logits, which cannot be recovered from "
            f"probabilities",
            "fit the model with {option}, or pass logits",
            option=("input", "probabilities"),
        )
    if model.needs_prediction_:
        raise InputError(
            "model",
            "was fitted with predictions that the scores alone do not determine",
            "export a model whose predictions are the argmax of the scores",
        )
    if isinstance(model.repair_, Lift) and model.repair_.context_ is not None:
        raise InputError(
            "model",
            "was fitted with context, which exports do not take",
            "export a model fitted without it, or serve this one in Python",
        )
    rule, scalars = _rule_of(model.repair_)
    weights = model.repair_.fitted_weights()
    parameters = calibrator.map_parameters()
    heaviest = None
    if weights is not None:
        parameters.arrays = {**parameters.arrays, "rule_weights": weights}
        heaviest = float(weights.max())
    shape = (type(calibrator), kind, input or kind, model.n_classes_)
    return Recipe(*shape, rule, scalars, heaviest), parameters


def _rule_of(fitted: CORD | Lift) -> tuple[Rule, tuple[float, ...]]:
    if isinstance(fitted, Lift):
        return fitted.prefer, tuple(fitted.curve_)
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
