"""A fit that is refused or interrupted leaves the model as the last one made it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from cordcal import CORD, Preserved, Refusal, calibrators
from cordcal.calibrators import _base
from cordcal.repair import VariantCORD
from cordcal.repair._state import ConstructionState

RNG = np.random.default_rng(5)
LABELS = RNG.integers(3, size=200)
LOGITS = 2.0 * np.eye(3)[LABELS] + RNG.normal(size=(200, 3))
MORE_LABELS = RNG.integers(4, size=200)
MORE = 2.0 * np.eye(4)[MORE_LABELS] + RNG.normal(size=(200, 4))
P, Q = RNG.dirichlet(np.ones(3), (2, 50))


def state_of(model: Any) -> dict[str, Any]:
    return {name: copy.deepcopy(value) for name, value in vars(model).items()}


def unchanged(model: Any, before: dict[str, Any]) -> bool:
    now = vars(model)
    return set(now) == set(before) and all(
        np.array_equal(now[name], value) or repr(now[name]) == repr(value)
        for name, value in before.items()
    )


def interrupt(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "key", [key for key in calibrators.available() if not calibrators.make(key).needs_torch]
)
def test_calibrators(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = calibrators.make(key).fit(LOGITS, LABELS)
    before = state_of(model)
    with pytest.raises(Refusal):
        model.fit(MORE, np.full(200, 9))
    learn = type(model)._fit

    def half(self: Any, *rows: Any) -> None:
        learn(self, *rows)
        raise KeyboardInterrupt

    monkeypatch.setattr(type(model), "_fit", half)
    with pytest.raises(KeyboardInterrupt):
        model.fit(MORE, MORE_LABELS)
    assert unchanged(model, before)
    assert model.n_classes_ == 3


@pytest.mark.filterwarnings("ignore")
def test_preserved(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Preserved("irova").fit(LOGITS, LABELS)
    before, expected = state_of(model), model.predict_proba(LOGITS)
    with pytest.raises(Refusal):
        model.fit(MORE, None)
    monkeypatch.setattr(ConstructionState, "construct", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(MORE, MORE_LABELS)
    assert unchanged(model, before)
    np.testing.assert_array_equal(model.predict_proba(LOGITS), expected)


@pytest.mark.parametrize("repair", [CORD(), CORD(2), VariantCORD()], ids=repr)
def test_repairs(repair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    repair.fit(P, Q)
    before = state_of(repair)
    bad = RNG.dirichlet(np.ones(4), 50)
    with pytest.raises(Refusal):
        repair.fit(bad, bad * 2.0)
    monkeypatch.setattr(ConstructionState, "construct", interrupt)
    monkeypatch.setattr("cordcal.repair._variants.CalibrationRows.construct", interrupt)
    with pytest.raises(KeyboardInterrupt):
        repair.fit(bad, bad)
    assert unchanged(repair, before)


def test_a_learner_is_no_copy_of_the_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    model = calibrators.make("ts").fit(LOGITS, LABELS)
    model.left_behind_ = 1
    assert "left_behind_" not in vars(model.fit(LOGITS, LABELS))
    assert isinstance(model, _base.Calibrator)
