"""Every calibrator of cordcal does what `contract` asks, and the registry lists it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from contract import cases
from cordcal import calibrators
from errors import refused

KEYS = calibrators.available()


@pytest.mark.parametrize(("check", "key"), cases(KEYS))
def test_contract(check: Callable[[str], None], key: str) -> None:
    check(key)


def test_registry() -> None:
    table = calibrators.describe()
    assert table.to_dict()["key"] == list(KEYS)
    assert all(key in repr(table) for key in KEYS)
    with refused("calibrator", naming=["'bbq'", "ts, ts-tva"]):
        calibrators.make("bbq")
    with refused("calibrator 'ts'", naming=["'inptu'", "input"]):
        calibrators.make("ts", inptu="logits")


def test_a_key_of_another_distribution_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = calibrators.registry
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    monkeypatch.setattr(registry, "_LOADED", {})
    for key, distribution in registry.DISTRIBUTIONS.items():
        assert key not in KEYS
        with refused("calibrator", naming=[repr(key), f"pip install {distribution}"]):
            calibrators.make(key)
