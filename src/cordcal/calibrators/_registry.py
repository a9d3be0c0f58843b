"""The short keys: which calibrators there are, how to make one, and a table of their facts."""

from __future__ import annotations

import difflib
import inspect
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

from cordcal.calibrators._base import Calibrator

# Each key, its class and the file of its family, in the order of the documentation.
_CLASSES: dict[str, tuple[str, str]] = {
    "ts": ("temperature", "TemperatureScaling"),
    "ts-tva": ("temperature", "TopVersusAllTemperature"),
    "ets": ("ensemble", "EnsembleTemperature"),
    "vs": ("vector", "VectorScaling"),
    "svs": ("vector", "StructuredVectorScaling"),
    "ms": ("matrix", "MatrixScaling"),
    "sms": ("matrix", "StructuredMatrixScaling"),
    "dir-odir": ("matrix", "DirichletODIR"),
    "irova": ("isotonic", "IsotonicOneVsAll"),
    "irova-ts": ("isotonic", "IsotonicOneVsAllTempered"),
    "irm": ("isotonic", "IsotonicPooled"),
    "mcct-i": ("rankwise", "RankwiseTransformation"),
    "adats": ("adaptive", "AdaptiveTemperature"),
}

# The domains in a reader's words; a map of shifted logits does not see a row's shift.
_WORKS_ON = {
    "logits": "raw logits",
    "shifted": "logits",
    "log-probabilities": "log-probabilities",
    "probabilities": "probabilities",
}


def available() -> tuple[str, ...]:
    """Return the keys of all calibrators.

    Examples
    --------
    >>> "ts" in available()
    True
    """
    return tuple(_CLASSES)


def calibrator_class(key: str) -> type[Calibrator]:
    """Return the class behind a key."""
    try:
        module, name = _CLASSES[key]
    except (KeyError, TypeError):
        near = difflib.get_close_matches(str(key).lower(), _CLASSES, n=1)
        hint = f"did you mean {near[0]!r}? There are" if near else "choose one of"
        raise ValueError(f"there is no calibrator {key!r}; {hint} {', '.join(_CLASSES)}") from None
    found: type[Calibrator] = getattr(import_module(f"cordcal.calibrators.{module}"), name)
    return found


def takes_features(calibrator: Any) -> bool:
    """Tell whether a calibrator, or the one behind a key, is fitted on features as well.

    Examples
    --------
    >>> takes_features("ts"), takes_features("adats")
    (False, True)
    """
    found = calibrator_class(calibrator) if isinstance(calibrator, str) else type(calibrator)
    return "features" in inspect.signature(found.fit).parameters


def make(key: str, **params: Any) -> Calibrator:
    """Return a new, unfitted calibrator.

    Parameters
    ----------
    key : str
        One of `available`.
    **params
        The calibrator's own parameters, such as ``input="probabilities"``.

    Examples
    --------
    >>> make("ts", input="probabilities")
    TemperatureScaling(input='probabilities')
    """
    found = calibrator_class(key)
    known = found._get_param_names()
    unknown = sorted(set(params) - set(known))
    if unknown:
        raise ValueError(
            f"calibrator {key!r} has no parameter {unknown[0]!r}; it has {', '.join(known)}"
        )
    return found(**params)


@dataclass(frozen=True)
class Facts:
    """What there is to know about a calibrator before using it."""

    key: str
    title: str
    parameters: str
    works_on: str
    keeps_argmax: bool
    keeps_order: bool
    takes_masked: bool
    cost: str
    reference: str

    def to_dict(self) -> dict[str, Any]:
        """Return the facts by name."""
        return asdict(self)


class FactTable(tuple[Facts, ...]):
    """The facts of several calibrators; prints as a table."""

    __slots__ = ()

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns by name, ready for a data frame."""
        rows = [facts.to_dict() for facts in self]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def __repr__(self) -> str:
        columns = {
            name.replace("_", " "): [_cell(value) for value in values]
            for name, values in self.to_dict().items()
        }
        widths = {name: max(map(len, [name, *values])) for name, values in columns.items()}
        lines = ["  ".join(name.ljust(width) for name, width in widths.items())]
        lines.append("  ".join("-" * width for width in widths.values()))
        for row in zip(*columns.values(), strict=True):
            cells = zip(row, widths.values(), strict=True)
            lines.append("  ".join(cell.ljust(width) for cell, width in cells))
        return "\n".join(line.rstrip() for line in lines)


def _cell(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def describe() -> FactTable:
    """Return a table of facts: what each calibrator keeps, takes and costs.

    Examples
    --------
    >>> [facts.key for facts in describe() if facts.keeps_argmax][:1]
    ['ts']
    """
    names = Facts.__dataclass_fields__
    rows = [{name: getattr(calibrator_class(key), name) for name in names} for key in available()]
    return FactTable(Facts(**{**row, "works_on": _WORKS_ON[row["works_on"]]}) for row in rows)
