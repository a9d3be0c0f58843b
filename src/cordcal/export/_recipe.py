"""What a fitted model does to a row, for modules and graphs: its map, its repair, its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._door.errors import Refusal
from cordcal._door.expressions import in_domain, shares, softmax
from cordcal._door.types import Array, Kind
from cordcal.calibrators import Calibrator, available, calibrator_class
from cordcal.calibrators._base import Held
from cordcal.export._repair import repair
from cordcal.preserved import Preserved


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a fitted `Preserved` does to a row, apart from its numbers.

    ``given`` is what it will be given; a model of probabilities may be given logits.
    """

    calibrator: type[Calibrator]
    kind: Kind
    given: Kind
    classes: int
    etas: tuple[float, ...]

    def both(
        self, scores: Array, decision: Array, held: Held, dtype: str, *, xp: Any
    ) -> tuple[Array, Array]:
        """Return the direct and the repaired report; rounding to ``dtype`` ties no decision."""
        original, direct = self.before_repair(scores, held, xp=xp)
        return direct, repair(original, direct, decision, self.etas, dtype, xp=xp)

    def before_repair(self, scores: Array, held: Held, *, xp: Any) -> tuple[Array, Array]:
        """Return the original and the direct report."""
        if self.given != self.kind:
            scores = softmax(scores, xp)
        if self.kind == "probabilities":
            scores = shares(scores, xp)
        floor = held["log_floor_"]
        original = in_domain(scores, self.kind, "probabilities", floor, xp)
        working = in_domain(scores, self.kind, self.calibrator.works_on, floor, xp)
        return original, self.calibrator._map(working, held, xp=xp)


def recipe_of(model: Any, given: Kind | None = None) -> tuple[Recipe, dict[str, npt.NDArray[Any]]]:
    """Return a fitted model's recipe and its numbers; refuse what has no map here."""
    if not isinstance(model, Preserved):
        raise Refusal(
            "model",
            f"is a {type(model).__name__}",
            "pass a fitted cordcal.Preserved, which holds the calibrator and the repair",
        )
    if not hasattr(model, "cord_"):
        raise Refusal("model", "is not fitted yet", "call fit(scores, labels) first")
    calibrator, kind = model.calibrator_, model._kind()
    _check_expression(calibrator)
    if given not in (None, "logits", kind):
        raise Refusal(
            "input",
            f"is {given!r} but the model was fitted on logits, which probabilities cannot stand "
            f"in for",
            "fit the model with {setting}, or pass logits",
            setting=("input", "probabilities"),
        )
    etas = tuple(np.atleast_1d(model.cord_.eta_).tolist())
    recipe = Recipe(type(calibrator), kind, given or kind, model.n_classes_, etas)
    return recipe, {"log_floor_": np.asarray(calibrator.log_floor_), **calibrator._held()}


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
    raise Refusal("model", reason, f"use one of {', '.join(portable)}")
