"""A fit that is refused or interrupted leaves the model as the last one made it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from cordcal import CORD, InputError, Lift, PreservingCalibrator, calibrators
from cordcal.calibrators.adapters import adapted
from cordcal.repair.construction import ConstructionState
from cordcal.sklearn import PreservingCalibratedClassifierCV

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
    "key", [key for key in calibrators.available() if calibrators.make(key).extra is None]
)
def test_calibrators(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = calibrators.make(key).fit(LOGITS, LABELS)
    before = state_of(model)
    with pytest.raises(InputError):
        model.fit(MORE, np.full(200, 9))
    learn = type(model).fit_parameters

    def half(self: Any, *rows: Any) -> None:
        learn(self, *rows)
        raise KeyboardInterrupt

    monkeypatch.setattr(type(model), "fit_parameters", half)
    with pytest.raises(KeyboardInterrupt):
        model.fit(MORE, MORE_LABELS)
    assert unchanged(model, before)
    assert model.n_classes_ == 3


@pytest.mark.filterwarnings("ignore")
def test_preserved(monkeypatch: pytest.MonkeyPatch) -> None:
    model = PreservingCalibrator("irova").fit(LOGITS, LABELS)
    before, expected = state_of(model), model.predict_proba(LOGITS)
    with pytest.raises(InputError):
        model.fit(MORE, None)
    monkeypatch.setattr(ConstructionState, "construct", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(MORE, MORE_LABELS)
    assert unchanged(model, before)
    np.testing.assert_array_equal(model.predict_proba(LOGITS), expected)


@pytest.mark.parametrize("prefer", ["confidence", "likelihood"])
def test_lift(prefer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lift = Lift(prefer).fit(P, Q, LABELS[:50])
    before = state_of(lift)
    other = RNG.dirichlet(np.ones(4), 50)
    with pytest.raises(InputError):
        lift.fit(other, other * 2.0, MORE_LABELS[:50])
    # The last thing that a fit computes.
    monkeypatch.setattr("cordcal.repair.lift._effective", interrupt)
    with pytest.raises(KeyboardInterrupt):
        lift.fit(other, other, MORE_LABELS[:50])
    assert unchanged(lift, before)


def test_foreign_calibrators() -> None:
    class Once:
        def fit(self, scores: Any, labels: Any) -> None:
            if scores.shape[1] != 3:
                raise KeyboardInterrupt

        def predict_proba(self, scores: Any) -> Any:
            return scores

    model = adapted(Once(), "logits", "calibrator")
    model.fit(LOGITS, LABELS)
    before = state_of(model)
    with pytest.raises(KeyboardInterrupt):
        model.fit(MORE, MORE_LABELS)
    assert unchanged(model, before)


def test_classifier(monkeypatch: pytest.MonkeyPatch) -> None:
    model = PreservingCalibratedClassifierCV(LogisticRegression(), method="ts", cv=2)
    model.fit(LOGITS, LABELS)
    before, expected = state_of(model), model.predict_proba(LOGITS)
    with pytest.raises(ValueError, match="class"):
        model.fit(MORE, np.zeros(200))
    monkeypatch.setattr(ConstructionState, "construct", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(MORE, MORE_LABELS)
    assert unchanged(model, before)
    np.testing.assert_array_equal(model.predict_proba(LOGITS), expected)


@pytest.mark.parametrize("repair", [CORD(), CORD(2)], ids=repr)
def test_repairs(repair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    repair.fit(P, Q)
    before = state_of(repair)
    bad = RNG.dirichlet(np.ones(4), 50)
    with pytest.raises(InputError):
        repair.fit(bad, bad * 2.0)
    monkeypatch.setattr(ConstructionState, "construct", interrupt)
    with pytest.raises(KeyboardInterrupt):
        repair.fit(bad, bad)
    assert unchanged(repair, before)


def test_a_second_fit_leaves_nothing_of_the_first() -> None:
    model = calibrators.make("ts").fit(LOGITS, LABELS)
    model.left_behind_ = 1
    assert "left_behind_" not in vars(model.fit(LOGITS, LABELS))
    assert isinstance(model, calibrators.Calibrator)
