"""A fitted calibrator and its repair as the arrays and the metadata of a model file."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from cordcal.calibrators import Calibrator, calibrator_class
from cordcal.repair import CORD, Lift

Arrays = dict[str, npt.NDArray[Any]]
# Names of the calibrator's arrays begin with this.
_PREFIX = "calibrator."


def packed(calibrator: Any, repair: CORD | Lift) -> tuple[Arrays, dict[str, Any]]:
    """Return arrays and JSON-able metadata of both."""
    if not isinstance(calibrator, Calibrator):
        raise ValueError(
            f"a model file cannot hold the foreign calibrator {type(calibrator).__name__}; save "
            f"model.repair_, which is all the repair needs, and keep the calibrator in its own "
            f"format"
        )
    held, meta = calibrator._state()
    arrays, record = repair._state()
    name = "lift" if isinstance(repair, Lift) else "cord"
    arrays = {**arrays, **{_PREFIX + key: value for key, value in held.items()}}
    return arrays, {"calibrator": meta, name: record}


def unpacked(held: Arrays, meta: dict[str, Any]) -> tuple[Calibrator, CORD | Lift]:
    """Return the calibrator and the repair again."""
    inner = {
        name.removeprefix(_PREFIX): value
        for name, value in held.items()
        if name.startswith(_PREFIX)
    }
    record = meta["calibrator"]
    calibrator = calibrator_class(record["key"])._from_state(inner, record)
    if "lift" in meta:
        return calibrator, Lift._from_state(held, meta["lift"])
    return calibrator, CORD._from_state(held, meta["cord"])
