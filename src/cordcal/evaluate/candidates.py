"""Which calibrators a comparison runs, and how they are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cordcal._errors import InputError
from cordcal._numeric.types import Kind
from cordcal.calibrators import available, calibrator_class
from cordcal.calibrators.adapters import PrecomputedProbabilities, adapted
from cordcal.calibrators.registry import canonical_key, default_keys

AnyCalibrator = object
"""A key, or an object of any library that `compare` can fit."""


@dataclass(frozen=True)
class _Selection:
    """The calibrators to run by name, and whether the caller named them."""

    by_name: dict[str, AnyCalibrator]
    explicit: bool

    @property
    def has_precomputed(self) -> bool:
        """Whether some of them are probabilities that were computed elsewhere."""
        return any(isinstance(item, PrecomputedProbabilities) for item in self.by_name.values())


def choose_calibrators(calibrators: AnyCalibrator, input: Kind) -> _Selection:
    """Return the calibrators to compare, by name."""
    if isinstance(calibrators, str) and calibrators in ("default", "all"):
        keys = available() if calibrators == "all" else default_keys()
        return _Selection({key: key for key in keys}, explicit=False)
    by_name: dict[str, AnyCalibrator] = {}
    for name, calibrator in _named(calibrators):
        if name in by_name:
            raise InputError("calibrators", f"names {name!r} twice", "name each once")
        if isinstance(calibrator, str):
            calibrator = canonical_key(calibrator)
        elif not isinstance(calibrator, PrecomputedProbabilities):
            calibrator = adapted(calibrator, input, f"calibrators[{name!r}]")
        by_name[name] = calibrator
    return _Selection(by_name, explicit=True)


def _named(calibrators: AnyCalibrator) -> list[tuple[str, AnyCalibrator]]:
    """Return pairs of name and calibrator; an object without a name gets its class's name."""
    if isinstance(calibrators, Mapping):
        pairs = [(str(name), calibrator) for name, calibrator in calibrators.items()]
    elif isinstance(calibrators, Iterable) and not isinstance(calibrators, str):
        pairs = [_as_pair(item) for item in calibrators]
    else:
        pairs = [("", calibrators)]
    if not pairs:
        raise InputError("calibrators", "is empty", 'pass keys such as ["ts", "svs"], or "default"')
    counts = Counter(_default_name(calibrator) for name, calibrator in pairs if not name)
    numbers: Counter[str] = Counter()
    named = []
    for name, calibrator in pairs:
        full_name = name or _default_name(calibrator)
        if not name and counts[full_name] > 1 and not isinstance(calibrator, str):
            numbers[full_name] += 1
            full_name = f"{full_name} {numbers[full_name]}"
        named.append((full_name, calibrator))
    return named


def _as_pair(item: AnyCalibrator) -> tuple[str, AnyCalibrator]:
    """Return a pair of name and calibrator as it is, and a calibrator with an empty name."""
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
        return item
    return "", item


def _default_name(calibrator: AnyCalibrator) -> str:
    if isinstance(calibrator, str):
        return canonical_key(calibrator)  # an unknown key fails before anything is fitted
    class_name = type(calibrator).__name__
    return str(getattr(calibrator, "key", getattr(calibrator, "__name__", class_name)))


def unsuited_calibrators(keys: Iterable[str], classes: int) -> dict[str, str]:
    """Return the calibrators that the data do not allow, each with the reason."""
    reasons = {key: calibrator_class(key).unsuited(classes) for key in keys}
    return {key: reason for key, reason in reasons.items() if reason is not None}
