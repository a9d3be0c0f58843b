"""The networks of scores: their figures, their losses, seeds, interruption and order."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import cordcal
from contract import BRIEF, make_map, noisy_logits
from cordcal import calibrators
from errors import refused

torch = pytest.importorskip("torch", reason="networks are trained with torch")

KEYS = ("pts", "smart", "diag")
# NLL of other runs on the evaluation half, with three seeds of their own.
FIGURES = {
    "pts": (0.399596, 0.409339, 0.414738),
    "smart": (0.400656, 0.402194, 0.401781),
    "smart soft-ece": (0.400611, 0.402117, 0.405470),
    "diag": (0.39680, 0.39552, 0.39895),
}


def nll(q: np.ndarray, labels: np.ndarray) -> float:
    return float(-np.log(np.maximum(q[np.arange(len(q)), labels], 1e-12)).mean())


@pytest.mark.parametrize("name", FIGURES)
def test_figures_nearby(name: str, synth) -> None:
    key, *loss = name.split()
    model = calibrators.make(key, **({"loss": loss[0]} if loss else {}))
    q = model.fit(synth.cal_logits, synth.cal_labels).predict_proba(synth.eval_logits)
    # No seed of ours is one of theirs: within 2 % of their mean.
    assert nll(q, synth.eval_labels) == pytest.approx(np.mean(FIGURES[name]), rel=0.02)
    np.testing.assert_array_equal(q.argmax(axis=1), synth.eval_logits.argmax(axis=1))


@pytest.mark.parametrize("key", KEYS)
def test_training_does_better_than_one_temperature(key: str, synth) -> None:
    ts = calibrators.make("ts").fit(synth.cal_logits, synth.cal_labels)
    model = calibrators.make(key, **({"steps": 200} if key != "smart" else {}))
    q = model.fit(synth.cal_logits, synth.cal_labels).predict_proba(synth.cal_logits)
    assert nll(q, synth.cal_labels) < ts.objective_ - 1e-3


@pytest.mark.parametrize("key", KEYS)
def test_another_seed_is_another_network(key: str) -> None:
    logits, labels = noisy_logits(200, 4)
    one, same, other = (make_map(key, seed=seed).fit(logits, labels) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.weights_, same.weights_)
    assert not np.allclose(one.weights_, other.weights_)


@pytest.mark.parametrize(("key", "published"), [("pts", "mse"), ("smart", "soft-ece")])
def test_the_published_loss_is_another(key: str, published: str) -> None:
    logits, labels = noisy_logits(200, 4)
    ours = make_map(key).fit(logits, labels)
    theirs = make_map(key, loss=published).fit(logits, labels)
    assert not np.allclose(ours.weights_, theirs.weights_)
    with refused("loss", naming=["'mae'", "ce", published]):
        make_map(key, loss="mae").fit(logits, labels)


@pytest.mark.parametrize("key", KEYS)
def test_a_class_keeps_predictions_and_fits_in_a_file(key: str, tmp_path: Path) -> None:
    logits, labels = noisy_logits(200, 4)
    model = cordcal.PreservingCalibrator(make_map(key)).fit(logits, labels)
    cordcal.save(model, tmp_path / "model.safetensors")
    repaired = cordcal.load(tmp_path / "model.safetensors").predict_proba(logits)
    np.testing.assert_array_equal(repaired, model.predict_proba(logits))
    np.testing.assert_array_equal(repaired.argmax(axis=1), logits.argmax(axis=1))


@pytest.mark.parametrize("key", [*KEYS, "adats"])
def test_an_interrupted_training_changes_nothing(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = noisy_logits(200, 4)
    model = make_map(key).fit(logits, labels)
    before = model.predict_proba(logits)
    step = torch.optim.Adam.step

    def interrupted(self: object, *rest: object) -> None:
        step(self, *rest)
        raise KeyboardInterrupt

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(torch.optim.Adam, "step", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            model.fit(logits[::-1], labels[::-1])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_array_equal(model.predict_proba(logits), before)


@pytest.mark.parametrize("key", KEYS)
def test_a_fitted_network_needs_no_torch(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = noisy_logits(200, 4)
    model = make_map(key).fit(logits, labels)
    before = model.predict_proba(logits)
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    np.testing.assert_array_equal(model.predict_proba(logits), before)
    with pytest.raises(ImportError, match=rf"'{key}'.*pip install torch"):
        model.fit(logits, labels)


@pytest.mark.parametrize(
    ("key", "name"), [("pts", "steps"), ("smart", "epochs"), ("diag", "batch_size")]
)
def test_numbers_of_the_training_are_checked(key: str, name: str) -> None:
    logits, labels = noisy_logits(50, 3)
    with refused(name, naming="0"):
        calibrators.make(key, **{**BRIEF[key], name: 0}).fit(logits, labels)


def test_a_training_that_diverges_is_an_input_error() -> None:
    logits, labels = noisy_logits(50, 3)
    with refused("learning_rate", naming="'pts'"):
        calibrators.make("pts", steps=50, learning_rate=np.inf).fit(logits, labels)


@pytest.mark.parametrize("key", KEYS)
def test_neighbouring_numbers_stay_in_order(key: str) -> None:
    logits, labels = noisy_logits(300, 4)
    model = make_map(key).fit(logits, labels)
    knots = model.knot_x_ if key == "diag" else np.linspace(0.0, 9.0, 37)
    below, above = np.nextafter(knots, -np.inf), np.nextafter(knots, np.inf)
    rows = np.stack([below, knots, above, knots - 3.0], axis=1)
    q = model.predict_proba(rows)
    assert (np.diff(q[:, :3], axis=1) >= 0.0).all()


def test_weights_decide_which_rows_count() -> None:
    logits, labels = noisy_logits(400, 4)
    weight = np.zeros(400)
    weight[:200] = 2.0
    for key in KEYS:
        weighted = make_map(key).fit(logits, labels, sample_weight=weight)
        alone = make_map(key).fit(logits[:200], labels[:200])
        np.testing.assert_allclose(
            weighted.predict_proba(logits), alone.predict_proba(logits), atol=1e-9
        )


@pytest.mark.parametrize("key", KEYS)
def test_networks_say_when_they_cannot_follow(key: str) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=1000)
    logits = 2.0 * np.eye(4)[labels] + 1.8 * rng.normal(size=(1000, 4))
    params = {"smart": {"epochs": 1}}.get(key, {"steps": 2})
    with pytest.warns(UserWarning, match="outside"):
        calibrators.make(key, **params).fit(1e9 * logits, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calibrators.make(key, **params).fit(logits, labels)
