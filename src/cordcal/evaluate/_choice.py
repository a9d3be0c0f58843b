"""Which calibrators a comparison runs: keys, names, objects of others, and what cannot run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cordcal._door.errors import Refusal
from cordcal._door.types import Kind
from cordcal.calibrators import available, calibrator_class
from cordcal.calibrators._foreign import adapted
from cordcal.calibrators._registry import is_network
from cordcal.evaluate.given import Given


@dataclass(frozen=True)
class _Chosen:
    """The calibrators to run by name, and whether the caller named them."""

    maps: dict[str, Any]
    explicit: bool

    @property
    def has_given(self) -> bool:
        """Whether some of them are reports that were computed elsewhere."""
        return any(isinstance(each, Given) for each in self.maps.values())


def choose(calibrators: Any, input: Kind) -> _Chosen:
    if isinstance(calibrators, str) and calibrators in ("all", "every"):
        keys = [key for key in available() if calibrators == "every" or not is_network(key)]
        return _Chosen({key: key for key in keys}, explicit=False)
    maps: dict[str, Any] = {}
    for name, each in _named(calibrators):
        if name in maps:
            raise Refusal("calibrators", f"names {name!r} twice", "name each once")
        if isinstance(each, str):
            calibrator_class(each)  # refuses an unknown key before anything is fitted
        elif not isinstance(each, Given):
            each = adapted(each, input, f"calibrators[{name!r}]")
        maps[name] = each
    return _Chosen(maps, explicit=True)


def _named(calibrators: Any) -> list[tuple[str, Any]]:
    """Return the calibrators with their names; objects without one are called as their class."""
    if isinstance(calibrators, Mapping):
        pairs = [(str(name), each) for name, each in calibrators.items()]
    else:
        single = isinstance(calibrators, str) or not isinstance(calibrators, Iterable)
        wanted = [calibrators] if single else list(calibrators)
        pairs = [each if _is_pair(each) else ("", each) for each in wanted]
    if not pairs:
        raise Refusal("calibrators", "is empty", 'pass keys such as ["ts", "svs"], or "all"')
    counts = Counter(_own_name(each) for name, each in pairs if not name)
    numbers: Counter[str] = Counter()
    named = []
    for name, each in pairs:
        own = name or _own_name(each)
        if not name and counts[own] > 1 and not isinstance(each, str):
            numbers[own] += 1
            own = f"{own} {numbers[own]}"
        named.append((own, each))
    return named


def _is_pair(each: Any) -> bool:
    return isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str)


def _own_name(each: Any) -> str:
    if isinstance(each, str):
        return each
    return str(getattr(each, "key", getattr(each, "__name__", type(each).__name__)))


def left_out_by(maps: Iterable[str], classes: int, has_features: bool) -> dict[str, str]:
    """Return the calibrators that the data do not allow, each with the reason."""
    reasons = {key: calibrator_class(key).unsuited(classes, features=has_features) for key in maps}
    return {key: reason for key, reason in reasons.items() if reason is not None}
