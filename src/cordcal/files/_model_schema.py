"""Validate the metadata of a model file, field by field.

Every field is checked before it is used: a file may be damaged, or malicious.  Errors name
the file and the field.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError

Tensors = Mapping[str, npt.NDArray[Any]]
_HINT = "the file is damaged, or not a model of this version; fit and save the model again"

# More than any machine has: a file must not be able to request a million threads.
_MAX_THREADS = 4096


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_threads(value: Any) -> bool:
    return _is_count(value) and 1 <= value <= _MAX_THREADS


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_range(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))


# How to check a field of a dataclass, by its declared type.
_FIELD_CHECKS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "int": ("count", _is_count),
    "float": ("finite number", _is_number),
    "bool": ("truth value", lambda value: isinstance(value, bool)),
    "tuple[float, float]": ("pair of finite numbers", _is_range),
}


class Record:
    """A JSON object of a model file, with checked access to its fields."""

    def __init__(self, file: str, values: Any, path: str = "") -> None:
        self.file, self.path = file, path
        if not isinstance(values, dict):
            raise self.missing("fields", path or "body")
        self.values: dict[str, Any] = values

    def missing(self, what: str, field: str) -> InputError:
        """Return the error for a field that is missing or invalid."""
        return InputError(self.file, f"has no {what} in its field {field}", _HINT)

    def get(self, name: str, what: str, is_valid: Callable[[Any], bool]) -> Any:
        """Return a field for which ``is_valid`` is true."""
        value = self.values.get(name)
        if not is_valid(value):
            raise self.missing(what, self.path + name)
        return value

    def record(self, name: str) -> Record:
        """Return a field that is a JSON object."""
        return Record(self.file, self.values.get(name), f"{self.path}{name}.")


def check_cord(record: Record, tensors: Tensors) -> None:
    """Check a CORD: one shared scalar per rank that it keeps, and its construction."""
    from cordcal.repair import Construction

    preserve = record.get(
        "preserve", "number of classes or 'ranking'", lambda x: x == "ranking" or _is_count(x)
    )
    if "threads" in record.values:
        record.get("threads", f"number of threads up to {_MAX_THREADS}", _is_threads)
    inner = record.record("construction")
    levels = [inner]
    if preserve != 1:
        listed = inner.get("levels", "list of levels", lambda x: isinstance(x, list) and x != [])
        levels = [
            Record(record.file, values, f"{inner.path}levels.{at}.")
            for at, values in enumerate(listed)
        ]
    for level in levels:
        _check_fields(level, Construction)
    classes = levels[0].get("n_classes", "two classes or more", lambda x: x >= 2)
    if len(levels) != (classes - 1 if preserve == "ranking" else preserve):
        raise record.missing("level for each rank that is kept", f"{inner.path}levels")
    etas = [level.values["eta"] for level in levels]
    eta = tensors.get("eta")
    if eta is None or eta.dtype != np.float64 or eta.tolist() != etas:
        raise record.missing("shared scalar of its construction", "eta")


def check_lift(record: Record, tensors: Tensors) -> None:
    """Check a Lift: the three numbers of its curve, and its construction."""
    from cordcal.repair import LiftConstruction

    inner = record.record("construction")
    _check_fields(inner, LiftConstruction)
    inner.get("mode", "mode of lifting", lambda x: x in ("raise", "cap"))
    curve = tensors.get("curve")
    values = [inner.values[name] for name in ("alpha", "beta", "gamma")]
    if curve is None or curve.dtype != np.float64 or curve.tolist() != values:
        raise record.missing("curve of its construction", "curve")


def _check_fields(record: Record, dataclass: type[Any]) -> None:
    """Check that a record has the declared fields of a dataclass."""
    for field in fields(dataclass):
        if str(field.type) in _FIELD_CHECKS:
            record.get(field.name, *_FIELD_CHECKS[str(field.type)])


def check_calibrator(record: Record, tensors: Tensors) -> None:
    """Check a calibrator: known parameters, fitted values, and numeric tensors."""
    from cordcal.calibrators import calibrator_class

    key = record.get("key", "calibrator's key", lambda x: isinstance(x, str))
    known = calibrator_class(key)().get_params()
    for name in record.record("params").values:
        if name not in known:
            raise record.missing(f"parameter of {key!r}", f"{record.path}params.{name}")
    fitted = record.record("fitted")
    fitted.get("n_classes_", "number of classes", lambda x: _is_count(x) and x >= 2)
    own = dict(tensors)
    if "members" in record.values:
        own = _check_members(record, tensors)
    for name in (*fitted.values, *own):
        if not (name.endswith("_") and name.isidentifier() and not name.startswith("_")):
            raise record.missing("fitted value", fitted.path + name)
    for name, values in own.items():
        if values.dtype.kind not in "fiub" or np.isnan(values).any():
            raise record.missing("numbers", name)


def _check_members(record: Record, tensors: Tensors) -> dict[str, npt.NDArray[Any]]:
    """Check the members of a calibrator; return the tensors that belong to none of them."""
    own = dict(tensors)
    listed = record.get("members", "list of members", lambda x: isinstance(x, list) and x != [])
    for at, values in enumerate(listed):
        member = Record(record.file, values, f"{record.path}members.{at}.")
        prefix = str(member.values.get("key")) + "/"
        inner = {name: tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        check_calibrator(
            member, {name.removeprefix(prefix): tensor for name, tensor in inner.items()}
        )
        own = {name: tensor for name, tensor in own.items() if name not in inner}
    return own


def check_preserved(record: Record, tensors: Tensors, prefix: str) -> None:
    """Check a calibrator joined with a repair; ``prefix`` marks the calibrator's tensors."""
    inner = {
        name.removeprefix(prefix): values
        for name, values in tensors.items()
        if name.startswith(prefix)
    }
    calibrator = record.record("calibrator")
    check_calibrator(calibrator, inner)
    record.get("input", "kind of scores", lambda x: x in ("logits", "probabilities"))
    classes = calibrator.values["fitted"]["n_classes_"]
    record.get(
        "class_names",
        f"list of {classes} class names",
        lambda x: x is None or (isinstance(x, list) and len(x) == classes),
    )
    for name, check in (("cord", check_cord), ("lift", check_lift)):
        if name in record.values:
            check(record.record(name), tensors)
