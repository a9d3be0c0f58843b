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


def _is_threads(value: Any) -> bool:
    return _is_count(value) and 1 <= value <= _MAX_THREADS


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_range(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))


def _is_interval(value: Any) -> bool:
    """Whether a value is an estimate with the two ends of its interval."""
    return isinstance(value, list) and len(value) == 3 and all(map(_is_number, value))


# How to check a field of a dataclass, by its declared type.
_FIELD_CHECKS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "int": ("count", _is_count),
    "float": ("finite number", _is_number),
    "bool": ("truth value", lambda value: isinstance(value, bool)),
    "tuple[float, float]": ("pair of finite numbers", _is_range),
}


class CheckedFields:
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

    def record(self, name: str) -> CheckedFields:
        """Return a field that is a JSON object."""
        return CheckedFields(self.file, self.values.get(name), f"{self.path}{name}.")


def check_cord(record: CheckedFields, tensors: Tensors) -> None:
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
            CheckedFields(record.file, values, f"{inner.path}levels.{at}.")
            for at, values in enumerate(listed)
        ]
    for level in levels:
        _check_dataclass_fields(level, Construction)
    classes = levels[0].get("n_classes", "two classes or more", lambda x: x >= 2)
    if len(levels) != (classes - 1 if preserve == "ranking" else preserve):
        raise record.missing("level for each rank that is kept", f"{inner.path}levels")
    etas = [level.values["eta"] for level in levels]
    eta = tensors.get("eta")
    if eta is None or eta.dtype != np.float64 or eta.tolist() != etas:
        raise record.missing("shared scalar of its construction", "eta")
    _check_class_names(record, classes)
    if "rule" in tensors:
        _check_rule(record, tensors["rule"], classes if preserve == 1 else 0)


def _check_class_names(record: CheckedFields, classes: int) -> None:
    record.get(
        "class_names",
        f"list of {classes} class names",
        lambda x: x is None or (isinstance(x, list) and len(x) == classes),
    )


def _check_rule(record: CheckedFields, weights: NumPyArray, classes: int) -> None:
    """Check the weights of a prediction rule; only one kept rank may have one."""
    valid = weights.shape == (classes,) and weights.dtype == np.float64
    if not valid or not (np.isfinite(weights) & (weights > 0.0)).all():
        raise record.missing(f"{classes} positive weights", "rule")


def check_lift(record: CheckedFields, tensors: Tensors) -> None:
    """Check a Lift: the parameters of its curve, and its construction."""
    from cordcal.repair import LiftConstruction
    from cordcal.repair.lift_rule import Curve

    inner = record.record("construction")
    _check_dataclass_fields(inner, LiftConstruction)
    inner.get("prefer", "preference", lambda x: x in ("confidence", "likelihood"))
    curve = tensors.get("curve")
    values = [inner.values[name] for name in Curve._fields]
    if curve is None or curve.dtype != np.float64 or curve.tolist() != values:
        raise record.missing("curve of its construction", "curve")
    _check_class_names(record, inner.values["n_classes"])
    if "rule" in tensors:
        _check_rule(record, tensors["rule"], inner.values["n_classes"])


def _check_dataclass_fields(record: CheckedFields, dataclass: type[Any]) -> None:
    """Check that a record has the declared fields of a dataclass."""
    for field in fields(dataclass):
        if str(field.type) in _FIELD_CHECKS:
            record.get(field.name, *_FIELD_CHECKS[str(field.type)])


def check_calibrator(record: CheckedFields, tensors: Tensors) -> None:
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


def _check_members(record: CheckedFields, tensors: Tensors) -> dict[str, NumPyArray]:
    """Check the members of a calibrator; return the tensors that belong to none of them."""
    own = dict(tensors)
    listed = record.get("members", "list of members", lambda x: isinstance(x, list) and x != [])
    for at, values in enumerate(listed):
        member = CheckedFields(record.file, values, f"{record.path}members.{at}.")
        prefix = str(member.values.get("key")) + "/"
        inner = {name: tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        check_calibrator(
            member, {name.removeprefix(prefix): tensor for name, tensor in inner.items()}
        )
        own = {name: tensor for name, tensor in own.items() if name not in inner}
    return own


def check_preserving(record: CheckedFields, tensors: Tensors, prefix: str) -> None:
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
    _check_class_names(record, classes)
    for name, check in (("cord", check_cord), ("lift", check_lift)):
        if name in record.values:
            check(record.record(name), tensors)


FORMAT = "cordcal"
VERSION = 1
# Written before the first release, with other keys.
_UNRELEASED_FORMAT = "cordcal model"
_SAVE_AGAIN = "fit and save the model again"


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
    patterns = getattr(model, "score_columns_", None)
    extra_metadata = {"cordcal": __version__}
    if patterns is not None:
        extra_metadata["columns"] = json.dumps(list(patterns))
    measured = getattr(model, "measured_", None)
    if measured is not None:
        extra_metadata["measured"] = json.dumps(measured, allow_nan=False, sort_keys=True)
    write_state(path, kind, tensors, body, overwrite=overwrite, **extra_metadata)


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
    if not Path(path).exists():
        raise FileNotFoundError(f"{path}: there is no such {kind} file")
    if Path(path).is_file() and not is_model(path):
        raise InputError(name, f"is not the file of a {kind}", f"pass the file of a {kind}")
    try:
        arrays, metadata = _open_model(path)
        _check_digest(arrays, metadata, name)
        body = _parse_body(metadata, name)
    except InputError as error:
        raise InputError(name, error.reason, remedy) from None
    if metadata.get("kind") != kind:
        raise InputError(
            name,
            f"holds a {metadata.get('kind')!r}, not a {kind!r}",
            f"pass the file of a {kind}",
        )
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
    tensors, metadata = _open_model(path)
    kind = metadata.get("kind", "")
    model_class = _class_of(kind, name)
    _check_digest(tensors, metadata, name)
    body = _parse_body(metadata, name)
    _check_body(kind, CheckedFields(name, body), tensors)
    try:
        model = model_class.from_state(tensors, body)
        _try_out(getattr(model, "calibrator_", model))
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise InputError(
            name, f"cannot be made a working model ({error!r})", _SAVE_AGAIN
        ) from error
    if "columns" in metadata:
        model.score_columns_ = _parse_patterns(metadata["columns"], name)
    if "measured" in metadata:
        model.measured_ = _parse_measured(metadata["measured"], name)
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
    metadata = _open_model(path)[1]
    return {name: metadata[name] for name in ("version", "digest", "cordcal") if name in metadata}


def _open_model(path: str | os.PathLike[str]) -> tuple[dict[str, NumPyArray], dict[str, str]]:
    """Return the tensors and the metadata of a file of this version."""
    name = Path(path).name
    arrays, metadata = _read_safetensors(path)
    if metadata.get("format") == _UNRELEASED_FORMAT:
        raise InputError(name, "was written before cordcal's first release", _SAVE_AGAIN)
    if metadata.get("format") != FORMAT:
        raise InputError(
            name,
            "is a safetensors file but not a cordcal model",
            "pass a file that cordcal.save or `cordcal fit` wrote",
        )
    if metadata.get("version") != str(VERSION):
        raise InputError(
            name,
            f"has format version {metadata.get('version')}, this cordcal reads version {VERSION}",
            "upgrade cordcal, or save the model again with this one",
        )
    return arrays, metadata


def _parse_patterns(text: str, name: str) -> tuple[str, ...]:
    """Return the patterns of the columns that a model was fitted on."""
    try:
        patterns = json.loads(text)
    except (ValueError, RecursionError):
        patterns = None
    if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
        raise InputError(name, "has a damaged field columns", _SAVE_AGAIN)
    return tuple(patterns)


def _parse_measured(text: str, name: str) -> dict[str, Any]:
    """Return the metrics of held-out rows, checked."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    record = CheckedFields(name, values, "measured.")
    record.get("rows", "count", _is_count)
    record.get("fits", "count", _is_count)
    metrics = record.record("metrics")
    for key in metrics.values:
        metric = metrics.record(key)
        metric.get("before", "finite number", _is_number)
        metric.get("after", "finite number", _is_number)
        metric.get("change", "interval", _is_interval)
    for moment in ("before", "after"):
        record.record("confidence").get(moment, "interval", _is_interval)
    return record.values


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


def _read_safetensors(
    path: str | os.PathLike[str],
) -> tuple[dict[str, NumPyArray], dict[str, str]]:
    """Return the tensors and the metadata of a safetensors file."""
    from safetensors import SafetensorError, safe_open

    name = Path(path).name
    check_local(path)
    if Path(path).is_dir():
        raise IsADirectoryError(f"{path} is a folder; name the model file in it")
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: there is no such model file")
    if not is_model(path):
        raise InputError(
            name, "is not a model file", "pass one that cordcal.save or `cordcal fit` wrote"
        )
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            return {key: file.get_tensor(key) for key in file.keys()}, metadata  # noqa: SIM118
    except (SafetensorError, TypeError, ValueError, OverflowError) as error:
        raise InputError(
            name, f"is not a complete safetensors file ({error})", _SAVE_AGAIN
        ) from None


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


def _check_digest(
    tensors: Mapping[str, NumPyArray], metadata: Mapping[str, str], name: str
) -> None:
    if metadata.get("digest") != _digest(tensors, metadata):
        raise InputError(name, "is damaged: its contents do not match its digest", _SAVE_AGAIN)


def _parse_body(metadata: Mapping[str, str], name: str) -> Any:
    def reject_constant(constant: str) -> None:
        raise ValueError(f"{constant} is not a number")

    try:
        return json.loads(metadata.get("body", ""), parse_constant=reject_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(name, f"has a damaged field body ({error})", _SAVE_AGAIN) from error


def _check_body(kind: str, record: CheckedFields, tensors: Mapping[str, NumPyArray]) -> None:
    """Check every field of a model's metadata."""
    if kind == "cord":
        check_cord(record, tensors)
    elif kind == "lift":
        check_lift(record, tensors)
    elif kind == "preserving":
        check_preserving(record, tensors, prefix="calibrator.")
    elif kind.startswith("calibrator "):
        check_calibrator(record, tensors)


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
    kind = _read_safetensors(path)[1].get("kind")
    return kind if kind in ("monitor", "baseline") else None


def _kind_of(model: Any) -> str:
    from cordcal.repair import CORD, Lift

    if isinstance(model, CORD):
        return "cord"
    if isinstance(model, Lift):
        return "lift"
    from cordcal.calibrators import Calibrator
    from cordcal.preserving import PreservingCalibrator

    if isinstance(model, PreservingCalibrator):
        return "preserving"
    if isinstance(model, Calibrator):
        return f"calibrator {model.key}"
    raise TypeError(
        f"a {type(model).__name__} cannot be saved; pass a CORD, a Lift, a PreservingCalibrator "
        f"or a calibrator of cordcal"
    )


def _class_of(kind: str, name: str) -> Any:
    if kind == "cord":
        from cordcal.repair import CORD

        return CORD
    if kind == "lift":
        from cordcal.repair import Lift

        return Lift
    if kind == "preserving":
        from cordcal.preserving import PreservingCalibrator

        return PreservingCalibrator
    if kind.startswith("calibrator "):
        from cordcal.calibrators import calibrator_class

        return calibrator_class(kind.removeprefix("calibrator "))
    if kind == "monitor":
        raise InputError(
            name, "is the state of a monitor, not a model", "pass it to `cordcal monitor show`"
        )
    raise InputError(name, f"holds a {kind!r}, which this cordcal does not know", "upgrade cordcal")
