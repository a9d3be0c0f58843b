"""Boosted trees: LightGBM's own probabilities, weights as copies, no LightGBM to predict."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import cordcal
from cordcal.calibrators import boosting, make
from errors import refused

from .conftest import noisy_logits, softmax

lightgbm = pytest.importorskip("lightgbm", reason="boost is trained with lightgbm")


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    return np.log(softmax(logits))


def test_the_trees_are_those_of_lightgbm(monkeypatch: pytest.MonkeyPatch) -> None:
    boosters = []
    train = lightgbm.train

    def recorded(*arguments: object, **options: object) -> object:
        boosters.append(train(*arguments, **options))
        return boosters[-1]

    monkeypatch.setattr(lightgbm, "train", recorded)
    logits, labels = noisy_logits(600, 4)
    labels[:150] = 2  # something that a temperature cannot express
    model = make("boost", rounds=30).fit(logits, labels)
    new = log_probabilities(noisy_logits(50, 4, seed=1)[0])
    expected = np.mean(
        [
            softmax(
                new / model.temperature_
                + booster.predict(new, raw_score=True, num_iteration=booster.best_iteration)
            )
            for booster in boosters
        ],
        axis=0,
    )
    assert len(boosters) == 8
    assert np.abs(expected - softmax(new / model.temperature_)).max() > 0.05
    np.testing.assert_allclose(model.predict_proba(new), expected, rtol=0.0, atol=1e-13)


def test_rows_in_another_order_give_the_same_trees() -> None:
    logits, labels = noisy_logits(400, 3)
    order = np.random.default_rng(0).permutation(400)
    first, second = (
        make("boost", rounds=10).fit(logits[rows], labels[rows]) for rows in (slice(None), order)
    )
    np.testing.assert_array_equal(first.feature_, second.feature_)
    np.testing.assert_allclose(first.value_, second.value_, rtol=0.0, atol=1e-12)


def test_a_tree_with_few_leaves_is_filled_up() -> None:
    leaf = [{"leaf_value": value} for value in (1.0, 2.0, 3.0)]
    inner = {"split_feature": 1, "threshold": 0.5, "left_child": leaf[1], "right_child": leaf[2]}
    root = {"split_feature": 0, "threshold": 0.0, "left_child": leaf[0], "right_child": inner}
    model = {"tree_info": [{"tree_structure": root}, {"tree_structure": {"leaf_value": 7.0}}]}
    feature, threshold, value = boosting._tables(model)
    trees = boosting.Trees(feature, threshold, value, np.array([0, 2]))
    rows = np.array([[0.0, 9.0], [1.0, 0.5], [1.0, 0.6]])
    np.testing.assert_array_equal(trees._sums(0, rows), [[1.0, 7.0], [2.0, 7.0], [3.0, 7.0]])


def test_a_saved_model_needs_no_lightgbm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = noisy_logits(300, 3)
    model = cordcal.PreservingCalibrator(make("boost", rounds=5), repair="lift").fit(logits, labels)
    cordcal.save(model, tmp_path / "boost.safetensors")
    monkeypatch.setitem(__import__("sys").modules, "lightgbm", None)
    loaded = cordcal.load(tmp_path / "boost.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(logits), model.predict_proba(logits))
    np.testing.assert_array_equal(loaded.predict(logits), logits.argmax(axis=1))
    with pytest.raises(ImportError, match=r"'boost'.*pip install lightgbm"):
        make("boost").fit(logits, labels)


@pytest.mark.parametrize("name", ["feature_", "start_"])
def test_a_file_with_impossible_trees_is_refused(name: str) -> None:
    logits, labels = noisy_logits(300, 3)
    arrays, meta = make("boost", rounds=5).fit(logits, labels).to_state()
    arrays[name] = arrays[name] + 10_000
    damaged = boosting.BoostedTemperature.from_state(arrays, json.loads(json.dumps(meta)))
    with pytest.raises((LookupError, ValueError)):
        damaged.predict_proba(logits)


def test_it_says_that_it_cannot_be_exported() -> None:
    pytest.importorskip("torch")
    import cordcal.torch

    logits, labels = noisy_logits(300, 3)
    model = cordcal.PreservingCalibrator(make("boost", rounds=2)).fit(logits, labels)
    with refused("model", naming=["'boost'", "cannot be exported"]):
        cordcal.torch.PreservingModule(model)


def test_the_number_of_rounds_is_checked() -> None:
    logits, labels = noisy_logits(50, 3)
    with refused("rounds", naming="0"):
        make("boost", rounds=0).fit(logits, labels)


def test_a_boosted_blend_starts_from_the_blend() -> None:
    logits, labels = noisy_logits(600, 4)
    labels[:150] = 2
    blend = make("blend").fit(logits, labels)
    boosted = make("boosted-blend", rounds=30).fit(logits, labels)
    np.testing.assert_array_equal(boosted.weights_, blend.weights_)
    assert boosted.value_.any()
    boosted.value_[:] = 0.0
    np.testing.assert_allclose(
        boosted.predict_proba(logits), blend.predict_proba(logits), rtol=0.0, atol=1e-11
    )


def test_half_of_a_boosted_blend_is_the_blend() -> None:
    logits, labels = noisy_logits(600, 4)
    labels[:150] = 2
    model = make("boosted-blend", rounds=30).fit(logits, labels)
    blend = make("blend").fit(logits, labels).predict_proba(logits)
    trees = boosting.Trees.of(model)
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    boosted = trees.boosted(log_probabilities, np.log(blend))
    assert np.abs(boosted - blend).max() > 0.01
    np.testing.assert_allclose(
        model.predict_proba(logits), (blend + boosted) / 2.0, rtol=0.0, atol=1e-9
    )


def test_a_lift_of_a_boosted_blend_uses_rows_that_were_held_out() -> None:
    logits, labels = noisy_logits(600, 4)
    model = cordcal.PreservingCalibrator("boosted-blend", repair="lift").fit(logits, labels)
    own, blend = model.calibrator_, make("blend").fit(logits, labels)
    rows = np.arange(600)
    in_sample = own.predict_proba(logits)[rows, labels]
    assert np.log(own.held_out_.likelihood).mean() < np.log(in_sample).mean() - 0.01
    assert np.abs(own.held_out_.masses.mass - blend.held_out_.masses.mass).max() > 0.0
    compared = cordcal.compare(logits, labels, ["boosted-blend"], evaluation=(logits, labels))
    expected = cordcal.metrics.nll(model.predict_proba(logits), labels)
    assert compared["boosted-blend"].lift["nll"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("members", [("blend",), ("boosted-blend", "ts")])
def test_a_blend_is_not_a_member(members: tuple[str, ...]) -> None:
    logits, labels = noisy_logits(60, 3)
    with refused("members", naming=f"'{members[0]}'"):
        make("boosted-blend", members=members).fit(logits, labels)
