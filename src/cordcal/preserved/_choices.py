"""What a `Preserved` is asked for: its kind of scores, a new repair, a new calibrator."""

from __future__ import annotations

from typing import Any, Literal

from cordcal._door.errors import Refusal
from cordcal._door.scores import check_kind
from cordcal._door.types import Kind
from cordcal.calibrators import Calibrator, make
from cordcal.calibrators._foreign import adapted
from cordcal.repair import CORD, Lift


def kind_of(calibrator: Any, wanted: Kind | None) -> Kind:
    """Return what the scores are: as asked for, else as the calibrator has them, else logits."""
    own: Kind | None = None
    if isinstance(calibrator, Calibrator):
        own = calibrator.input
        if wanted is not None and wanted != own:
            raise Refusal(
                "input",
                f'is {wanted!r} but the calibrator was made with input="{own}"',
                "write the same for both, or only the calibrator's",
            )
    kind = wanted or own or "logits"
    check_kind(kind)
    return kind


def new_repair(wanted: Any, preserve: int | Literal["ranking"], *, default: str) -> CORD | Lift:
    """Return a repair to fit, or say why there is none.

    Parameters
    ----------
    wanted : {"cord", "lift"} or Lift or None
        The repair.
    preserve : int or "ranking"
        How many of the original's first ranks to keep.
    default : {"cord", "lift"}
        What None means.
    """
    wanted = default if wanted is None else wanted
    if wanted == "cord":
        return CORD(preserve)
    if wanted != "lift" and not isinstance(wanted, Lift):
        raise Refusal("repair", f"is {wanted!r}", "write 'cord', 'lift' or Lift(mode='cap')")
    if preserve != 1:
        raise Refusal(
            "preserve",
            f"is {preserve!r} but Lift learns how sure to be of one decision, not of a ranking",
            "leave preserve out, or write {setting}",
            setting=("repair", "cord"),
        )
    return Lift() if wanted == "lift" else Lift(**wanted.get_params())


def new_calibrator(wanted: Any, kind: Kind, *, prefit: bool) -> Any:
    """Return a calibrator to fit, or one that is fitted already: a key, or any object's own."""
    if wanted is None or isinstance(wanted, str):
        key = wanted or "blend"
        if prefit:
            raise Refusal(
                "prefit=True",
                f"needs a fitted calibrator, not the key {key!r}",
                "pass the fitted object, or leave prefit out",
            )
        return make(key, input=kind)
    if prefit and hasattr(wanted, "predict_proba"):
        return wanted
    calibrator = adapted(wanted, kind)
    if prefit:
        return calibrator
    from sklearn.base import clone

    return clone(calibrator, safe=False)
