"""Model files: one safetensors file, JSON metadata, a format version; nothing is executed on load.

Any object with ``to_state()`` (arrays and JSON-able metadata) and ``from_state`` can be
stored; the metadata name its kind.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.types import NumPyArray
from cordcal._version import __version__
from cordcal.files.disk import check_local, replacing

State = TypeVar("State")

Tensors = Mapping[str, NumPyArray]
_HINT = "the file is damaged, or not a model of this version; fit and save the model again"

# More than any machine has: a file must not be able to request a million threads.
_MAX_THREADS = 4096


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _are_numbers(count: int) -> Callable[[Any], bool]:
    def are_numbers(value: Any) -> bool:
        return isinstance(value, list) and len(value) == count and all(map(_is_number, value))

    return are_numbers


def _is_class_count(value: Any) -> bool:
    return _is_count(value) and value >= 2


# An estimate with the two ends of its interval.
_is_interval = _are_numbers(3)

# How to check a field of a dataclass, by its declared type.
_DECLARED: dict[str, Callable[[Any], bool]] = {
    "int": _is_count,
    "float": _is_number,
    "bool": lambda value: isinstance(value, bool),
    "tuple[float, float]": _are_numbers(2),
}


class _Fields:
    """A JSON object of a model file, with checked access to its fields."""

    def __init__(self, file: str, values: Any, path: str = "") -> None:
        self.file, self.path = file, path
        if not isinstance(values, dict):
            raise self.invalid(path or "body")
        self.values: dict[str, Any] = values

    def invalid(self, field: str) -> InputError:
        """Return the error for a field that is missing or invalid."""
        return InputError(self.file, f"has no valid value in its field {field}", _HINT)

    def get(self, name: str, is_valid: Callable[[Any], bool]) -> Any:
        """Return a field for which ``is_valid`` is true."""
        value = self.values.get(name)
        if not is_valid(value):
            raise self.invalid(self.path + name)
        return value

    def record(self, name: str) -> _Fields:
        """Return a field that is a JSON object."""
        return _Fields(self.file, self.values.get(name), f"{self.path}{name}.")

    def records(self, name: str) -> list[_Fields]:
        """Return a field that is a list of JSON objects."""
        listed = self.get(name, lambda value: isinstance(value, list) and value != [])
        return [
            _Fields(self.file, values, f"{self.path}{name}.{at}.")
            for at, values in enumerate(listed)
        ]

    def check_declared(self, dataclass: type[Any]) -> None:
        """Check the fields that a dataclass declares."""
        for field in fields(dataclass):
            if str(field.type) in _DECLARED:
                self.get(field.name, _DECLARED[str(field.type)])

    def check_class_names(self, classes: int) -> None:
        """Check the names, one for each class if there are any."""
        names = self.values.get("class_names", "missing")
        if names is not None and not (isinstance(names, list) and len(names) == classes):
            raise self.invalid(f"{self.path}class_names")


def _check_cord(record: _Fields, tensors: Tensors) -> None:
    """Check a CORD: one shared scalar per rank that it keeps, and its construction."""
    from cordcal.repair import Construction

    preserve = record.get("preserve", lambda value: value == "ranking" or _is_count(value))
    if "threads" in record.values:
        record.get("threads", lambda value: _is_count(value) and 1 <= value <= _MAX_THREADS)
    inner = record.record("construction")
    levels = [inner] if preserve == 1 else inner.records("levels")
    for level in levels:
        level.check_declared(Construction)
    classes = levels[0].get("n_classes", _is_class_count)
    if len(levels) != (classes - 1 if preserve == "ranking" else preserve):
        raise record.invalid(f"{inner.path}levels")
    etas = [level.values["eta"] for level in levels]
    _check_repair(record, tensors, classes, "eta", etas)
    if "rule" in tensors and preserve != 1:
        raise record.invalid("rule")  # only one kept rank may have one


def _check_lift(record: _Fields, tensors: Tensors) -> None:
    """Check a Lift: the parameters of its curve, and its construction."""
    from cordcal.repair import LiftConstruction
    from cordcal.repair.lift_rule import Curve

    inner = record.record("construction")
    inner.check_declared(LiftConstruction)
    inner.get("prefer", lambda value: value in ("confidence", "likelihood"))
    curve = [inner.values[name] for name in Curve._fields]
    _check_repair(record, tensors, inner.values["n_classes"], "curve", curve)


def _check_repair(
    record: _Fields, tensors: Tensors, classes: int, name: str, constructed: list[float]
) -> None:
    """Check the parameters of a repair, its class names, and the weights of its rule."""
    stored = tensors.get(name)
    if stored is None or stored.dtype != np.float64 or stored.tolist() != constructed:
        raise record.invalid(name)
    record.check_class_names(classes)
    rule = tensors.get("rule")
    if rule is not None:
        valid = rule.shape == (classes,) and rule.dtype == np.float64
        if not valid or not (np.isfinite(rule) & (rule > 0.0)).all():
            raise record.invalid("rule")


def _check_calibrator(record: _Fields, tensors: Tensors) -> None:
    """Check a calibrator: known parameters, fitted values, and numeric tensors."""
    from cordcal.calibrators import calibrator_class

    key = record.get("key", lambda value: isinstance(value, str))
    known = calibrator_class(key)().get_params()
    for name in record.record("params").values:
        if name not in known:
            raise record.invalid(f"{record.path}params.{name}")
    fitted = record.record("fitted")
    fitted.get("n_classes_", _is_class_count)
    own = dict(tensors)
    for member in record.records("members") if "members" in record.values else ():
        prefix = f"{member.values.get('key')}/"
        _check_calibrator(member, _below(prefix, tensors))
        own = {name: values for name, values in own.items() if not name.startswith(prefix)}
    for name in (*fitted.values, *own):
        if not (name.endswith("_") and name.isidentifier() and not name.startswith("_")):
            raise record.invalid(fitted.path + name)
    for name, values in own.items():
        if values.dtype.kind not in "fiub" or np.isnan(values).any():
            raise record.invalid(name)


def _below(prefix: str, tensors: Tensors) -> Tensors:
    """Return the tensors whose names have a prefix, without it."""
    return {
        name.removeprefix(prefix): values
        for name, values in tensors.items()
        if name.startswith(prefix)
    }


def _check_preserving(record: _Fields, tensors: Tensors) -> None:
    """Check a calibrator joined with a repair."""
    calibrator = record.record("calibrator")
    _check_calibrator(calibrator, _below("calibrator.", tensors))
    record.get("input", lambda value: value in ("logits", "probabilities"))
    record.check_class_names(calibrator.values["fitted"]["n_classes_"])
    for name in ("cord", "lift"):
        if name in record.values:
            _CHECKS[name](record.record(name), tensors)


_CHECKS = {
    "cord": _check_cord,
    "lift": _check_lift,
    "preserving": _check_preserving,
    "calibrator": _check_calibrator,
}
"""What checks the fields of a model, by the first word of its kind."""


def _check_measured(record: _Fields) -> None:
    """Check the metrics of held-out rows."""
    record.get("rows", _is_count)
    record.get("fits", _is_count)
    metrics = record.record("metrics")
    for key in metrics.values:
        metric = metrics.record(key)
        metric.get("before", _is_number)
        metric.get("after", _is_number)
        metric.get("change", _is_interval)
    for moment in ("before", "after"):
        record.record("confidence").get(moment, _is_interval)


FORMAT = "cordcal"
VERSION = 1
# Written before the first release, with other keys.
_UNRELEASED_FORMAT = "cordcal model"
_SAVE_AGAIN = "fit and save the model again"
_PASS_A_MODEL = "pass a file that cordcal.save or `cordcal fit` wrote"


def save(model: Any, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
    """Write a fitted model to one file.

    Parameters
    ----------
    model : CORD, Lift, PreservingCalibrator or a calibrator of cordcal
        What to store; it must be fitted.  The patterns of the columns that ``cordcal fit`` read
        the scores from (``score_columns_``), and the metrics that it measured on rows held out
        (``measured_``), are stored with it.  Of a
        `cordcal.sklearn.PreservingCalibratedClassifierCV` the calibration is stored
        (``to_calibrator()``).  The estimator is not in the file: keep it in its own format, and
        pass its scores to the loaded model.
    path : path
        Where to; conventionally ending in ``.safetensors``.  An existing file is replaced
        when the new one is complete.
    overwrite : bool
        Whether a file of that name may be replaced.

    Examples
    --------
    >>> import tempfile, numpy as np, cordcal
    >>> rng = np.random.default_rng(0)
    >>> original, direct = rng.dirichlet(np.ones(3), 50), rng.dirichlet(np.ones(3), 50)
    >>> cord = cordcal.CORD().fit(original, direct)
    >>> path = tempfile.mkdtemp() + "/cord.safetensors"
    >>> save(cord, path)
    >>> load(path).eta_ == cord.eta_
    True
    """
    if hasattr(model, "to_calibrator"):
        model = model.to_calibrator()
    kind = _kind_of(model)
    tensors, body = model.to_state()
    facts = {
        "columns": getattr(model, "score_columns_", None),
        "measured": getattr(model, "measured_", None),
    }
    stored = {
        name: json.dumps(fact, allow_nan=False, sort_keys=True)
        for name, fact in facts.items()
        if fact is not None
    }
    write_state(path, kind, tensors, body, overwrite=overwrite, cordcal=__version__, **stored)


def write_state(
    path: str | os.PathLike[str],
    kind: str,
    arrays: Mapping[str, NumPyArray],
    body: Mapping[str, Any],
    *,
    overwrite: bool = True,
    **extra_metadata: str,
) -> None:
    """Write arrays and JSON values to one file with a version and a digest.

    The file takes its name when it is complete.

    Parameters
    ----------
    path : path
        Where to.
    kind : str
        Kind of the contents.
    arrays : mapping of str to ndarray
        Stored exactly.
    body : mapping
        Values for JSON; no NaN.
    overwrite : bool
        Whether a file of that name may be replaced.
    **further : str
        Further metadata.
    """
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "kind": kind,
        "body": json.dumps(body, allow_nan=False, sort_keys=True),
        **extra_metadata,
    }
    data = _encode_safetensors(arrays, {**metadata, "digest": _digest(arrays, metadata)})
    with replacing(path, overwrite=overwrite) as temporary:
        temporary.write_bytes(data)


def read_state(
    path: str | os.PathLike[str],
    kind: str,
    build: Callable[[dict[str, NumPyArray], dict[str, Any]], State],
    *,
    remedy: str,
) -> State:
    """Read what `write_state` wrote; a file of another kind, or with gaps, is refused.

    Parameters
    ----------
    path : path
        The file.
    kind : str
        Expected kind of the contents.
    build : callable
        Makes the state from the arrays and the body that were passed to `write_state`.
    remedy : str
        What to do about a damaged file.

    Returns
    -------
    state : object
        What ``build`` returned.
    """
    name = Path(path).name
    try:
        arrays, metadata = _open(path, kind, f"pass the file of a {kind}")
        body = _parse(metadata, "body", name)
    except InputError as error:
        hint = remedy if error.hint == _SAVE_AGAIN else error.hint
        raise InputError(name, error.reason, hint) from None
    if metadata.get("kind") != kind:
        reason = f"holds a {metadata.get('kind')!r}, not a {kind!r}"
        raise InputError(name, reason, f"pass the file of a {kind}")
    try:
        return build(arrays, body)
    except InputError as error:
        raise error.with_argument(name) from None
    except (LookupError, TypeError, ValueError) as error:
        raise InputError(name, f"is not a whole {kind} ({error!r})", remedy) from error


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model that `save` wrote.

    Parameters
    ----------
    path : path
        The model file.

    Returns
    -------
    model : CORD, Lift, PreservingCalibrator or Calibrator
        The fitted model, its shared scalar the same to the bit.
    """
    name = Path(path).name
    tensors, metadata = _open(path)
    kind = metadata.get("kind", "")
    model_class = _class_of(kind, name)
    body = _parse(metadata, "body", name)
    _CHECKS[kind.split()[0]](_Fields(name, body), tensors)
    try:
        model = model_class.from_state(tensors, body)
        _try_out(getattr(model, "calibrator_", model))
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise InputError(
            name, f"cannot be made a working model ({error!r})", _SAVE_AGAIN
        ) from error
    if "columns" in metadata:
        patterns = _parse(metadata, "columns", name)
        if not isinstance(patterns, list) or not all(isinstance(text, str) for text in patterns):
            raise InputError(name, "has a damaged field columns", _SAVE_AGAIN)
        model.score_columns_ = tuple(patterns)
    if "measured" in metadata:
        model.measured_ = _parse(metadata, "measured", name)
        _check_measured(_Fields(name, model.measured_, "measured."))
    return model


def facts_of(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return what a model file says of itself: ``version``, ``digest`` and the writing ``cordcal``.

    Parameters
    ----------
    path : path
        The model file, which `load` has accepted.

    Returns
    -------
    facts : dict of str to str
        ``cordcal`` is missing in files that do not say it.
    """
    metadata = _open(path)[1]
    return {name: metadata[name] for name in ("version", "digest", "cordcal") if name in metadata}


def _open(
    path: str | os.PathLike[str], what: str = "model", hint: str = _PASS_A_MODEL
) -> tuple[dict[str, NumPyArray], dict[str, str]]:
    """Return the tensors and the metadata of a whole file of this version."""
    from safetensors import SafetensorError, safe_open

    name = Path(path).name
    check_local(path)
    if Path(path).is_dir():
        raise IsADirectoryError(f"{path} is a folder; name the {what} file in it")
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: there is no such {what} file")
    if not is_model(path):
        raise InputError(name, f"is not a {what} file", hint)
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, TypeError, ValueError, OverflowError) as error:
        reason = f"is not a complete safetensors file ({error})"
        raise InputError(name, reason, _SAVE_AGAIN) from None
    if metadata.get("format") == _UNRELEASED_FORMAT:
        raise InputError(name, "was written before cordcal's first release", _SAVE_AGAIN)
    if metadata.get("format") != FORMAT:
        raise InputError(name, "is a safetensors file but not a cordcal model", hint)
    if metadata.get("version") != str(VERSION):
        raise InputError(
            name,
            f"has format version {metadata.get('version')}, this cordcal reads version {VERSION}",
            "upgrade cordcal, or save the model again with this one",
        )
    if metadata.get("digest") != _digest(tensors, metadata):
        raise InputError(name, "is damaged: its contents do not match its digest", _SAVE_AGAIN)
    return tensors, metadata


def _try_out(model: Any) -> None:
    """Apply a calibrator to one row, so that a broken model fails when it is loaded."""
    from cordcal.calibrators import Calibrator

    if not isinstance(model, Calibrator) or not model.is_complete():
        return
    row = np.arange(float(model.n_classes_))[None, :]
    if model.input == "probabilities":
        row = (row + 1.0) / (row + 1.0).sum()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        probabilities = model.predict_proba(row)
    if probabilities.shape != row.shape or not np.isfinite(probabilities).all():
        raise ValueError("it does not return probabilities")


def _encode_safetensors(tensors: Mapping[str, NumPyArray], metadata: dict[str, str]) -> bytes:
    """Encode a safetensors file, byte for byte the same for the same model."""
    from safetensors.numpy import save as encode

    data = encode({name: np.ascontiguousarray(tensors[name]) for name in sorted(tensors)}, metadata)
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.dumps(json.loads(data[8:start]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # tensors begin at multiples of eight bytes
    return len(header).to_bytes(8, "little") + header + data[start:]


def _digest(tensors: Mapping[str, NumPyArray], metadata: Mapping[str, str]) -> str:
    """Return a SHA-256 of the tensors and the metadata."""
    fields = sorted((name, text) for name, text in metadata.items() if name != "digest")
    digest = hashlib.sha256(json.dumps(fields).encode())
    for name in sorted(tensors):
        values = np.ascontiguousarray(tensors[name])
        digest.update(json.dumps([name, values.dtype.str, values.shape]).encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


def _parse(metadata: Mapping[str, str], field: str, name: str) -> Any:
    """Return what a field of the metadata stores as JSON."""

    def reject_constant(constant: str) -> None:
        raise ValueError(f"{constant} is not a number")

    try:
        return json.loads(metadata.get(field, ""), parse_constant=reject_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(name, f"has a damaged field {field} ({error})", _SAVE_AGAIN) from error


def is_model(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins like a model file; it may still be damaged."""
    with Path(path).open("rb") as file:
        head = file.read(9)
    # The length of a JSON object in eight bytes, then the object.
    return head[7:] == b"\0{"


def state_kind(path: str | os.PathLike[str]) -> str | None:
    """Return the kind of a file that `write_state` wrote, None of a model or another file."""
    if str(path) == "-" or not Path(path).is_file() or not is_model(path):
        return None
    kind = _open(path)[1].get("kind")
    return kind if kind in ("monitor", "baseline") else None


def _classes() -> dict[str, Any]:
    """Return the classes of models by their kinds; calibrators have a key besides."""
    from cordcal.preserving import PreservingCalibrator
    from cordcal.repair import CORD, Lift

    return {"cord": CORD, "lift": Lift, "preserving": PreservingCalibrator}


def _kind_of(model: Any) -> str:
    from cordcal.calibrators import Calibrator

    for kind, model_class in _classes().items():
        if isinstance(model, model_class):
            return kind
    if isinstance(model, Calibrator):
        return f"calibrator {model.key}"
    raise TypeError(
        f"a {type(model).__name__} cannot be saved; pass a CORD, a Lift, a PreservingCalibrator "
        f"or a calibrator of cordcal"
    )


def _class_of(kind: str, name: str) -> Any:
    if kind.startswith("calibrator "):
        from cordcal.calibrators import calibrator_class

        return calibrator_class(kind.removeprefix("calibrator "))
    if kind == "monitor":
        raise InputError(
            name, "is the state of a monitor, not a model", "pass it to `cordcal monitor show`"
        )
    if kind not in _classes():
        reason = f"holds a {kind!r}, which this cordcal does not know"
        raise InputError(name, reason, "upgrade cordcal")
    return _classes()[kind]
