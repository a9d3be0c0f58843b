"""Which repair the arguments ``repair=``, ``preserve=``, ``rule=`` and ``context=`` ask for."""

from __future__ import annotations

from typing import Any, Literal

from cordcal._errors import InputError
from cordcal._numeric.types import ArrayLike
from cordcal.repair.cord import CORD
from cordcal.repair.fitted import refuse_ranking
from cordcal.repair.lift import Lift, check_prefer
from cordcal.repair.lift_rule import Prefer


def new_repair(
    repair: Literal["cord", "lift"] | Lift | None,
    preserve: int | Literal["ranking"],
    *,
    default: Literal["cord", "lift"],
    rule: object = "argmax",
    prefer: Prefer | None = None,
) -> CORD | Lift:
    """Return an unfitted repair; ``default`` replaces None.

    The rule "learnt" is set later, when there are direct probabilities to learn it from.
    """
    refuse_ranking(preserve, rule)
    if prefer is not None:
        check_prefer(prefer)
    learnt = isinstance(rule, str) and rule == "learnt"
    options: dict[str, Any] = {} if learnt else {"rule": rule}
    choice = default if repair is None else repair
    if choice == "cord":
        if prefer is not None:
            raise InputError(
                "prefer",
                f"is {prefer!r} but CORD keeps the calibrator's mean confidence",
                "leave it out, or write {option}",
                option=("repair", "lift"),
            )
        return CORD(preserve, **options)
    if choice != "lift" and not isinstance(choice, Lift):
        raise InputError(
            "repair", f"is {choice!r}", "write 'cord', 'lift' or Lift(prefer='likelihood')"
        )
    if preserve != 1:
        raise InputError(
            "preserve",
            f"is {preserve!r} but Lift learns the confidence of one prediction, not of a ranking",
            "leave it out, or write {option}",
            option=("repair", "cord"),
        )
    if choice == "lift":
        return Lift(prefer or "confidence", **options)
    own = choice.get_params()
    if prefer not in (None, own["prefer"]):
        raise InputError("prefer", "is passed twice", "leave it out, or out of Lift(...)")
    if isinstance(own["rule"], str):
        own.update(options)
    elif own["rule"] is not rule and (learnt or not isinstance(rule, str)):
        raise InputError("rule", "is passed twice", "leave it out of Lift(...)")
    return Lift(**own)


def needs_context(repair: CORD | Lift, context: ArrayLike | None) -> bool:
    """Return whether `fit` had context, which must then be passed, and else must not be."""
    fitted = repair.context_ if isinstance(repair, Lift) else None
    if fitted is not None and context is None:
        names = ", ".join(map(repr, fitted.names))
        raise InputError(
            "context",
            f"is missing: fit had the columns {names}",
            "pass context= with them, or context={} if nothing is known about these rows",
        )
    if fitted is None and context is not None:
        raise InputError("context", "is not used: fit had none", "leave it out")
    return fitted is not None


def check_repair_of_context(repair: CORD | Lift) -> None:
    """Refuse context for a repair that does not learn from labels."""
    if not isinstance(repair, Lift):
        raise InputError(
            "context",
            "needs a repair that learns from labels",
            "write {option}",
            option=("repair", "lift"),
        )
