"""The study's calibrators do what cordcal's do: the contract, blocks, folds, and every place."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cordcal
from contract import BRIEF, cases, make_map, noisy_logits
from cordcal import calibrators
from cordcal.calibrators import temperature
from cordcal.calibrators.crossfit import Folds, cross_fit, cross_fit_any
from cordcal.calibrators.registry import DISTRIBUTIONS
from cordcal_study.calibrators import CLASSES, available
from internals import CheckedScores, set_block_entries


def test_the_core_knows_the_names() -> None:
    assert dict.fromkeys(CLASSES, "cordcal-study") == DISTRIBUTIONS
    assert not {*CLASSES} & {*calibrators.available()}
    assert {*available()} == {*CLASSES, *calibrators.available()}
    for key in CLASSES:
        assert calibrators.calibrator_class(key).key == key


@pytest.mark.parametrize(("check", "key"), cases(CLASSES))
def test_contract(check: Callable[[str], None], key: str) -> None:
    check(key)


@pytest.mark.parametrize("key", CLASSES)
def test_blocks_do_not_change_a_result(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scores, labels = noisy_logits(230, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # networks with little training do not converge
        whole = make_map(key).fit(scores, labels)
        expected = whole.predict_proba(scores)
        set_block_entries(monkeypatch, 64)
        if key not in BRIEF:  # fits that converge, from a start on every fifth row
            monkeypatch.setattr(temperature, "_SUBSAMPLE_ENTRIES", 230)
        np.testing.assert_allclose(whole.predict_proba(scores), expected, rtol=1e-12)
        again = make_map(key).fit(scores, labels)
    np.testing.assert_allclose(again.predict_proba(scores), expected, atol=1e-6)


@pytest.mark.parametrize(("key", "tolerance"), [("spline", 1e-3), ("venn-abers", 1e-9)])
def test_folds_of_a_curve_are_such_curves(
    key: str, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cordcal.calibrators._base.MIN_ENTRIES_TO_SHARE", 1)
    scores, labels = noisy_logits(600, 5)
    original, folds = CheckedScores.from_scores(scores, "logits"), Folds.of(scores, labels, 5, 0)
    fitted = calibrators.make(key).fit(scores, labels)
    near = cross_fit(fitted, folds.rows(original, labels, None)).likelihood
    cold = cross_fit_any(lambda: calibrators.make(key), original, labels, None, folds).likelihood
    assert np.abs(near - cold).max() < tolerance


@pytest.mark.parametrize("key", CLASSES)
def test_repairs_keep_predictions_and_files_hold_the_model(key: str, tmp_path: Path) -> None:
    scores, labels = noisy_logits(300, 4)
    for repair in ("cord", "lift"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # lift finds predictions kept
            model = cordcal.PreservingCalibrator(make_map(key), repair=repair).fit(scores, labels)
        expected = model.predict_proba(scores)
        np.testing.assert_array_equal(expected.argmax(axis=1), scores.argmax(axis=1))
        path = tmp_path / f"{repair}.safetensors"
        cordcal.save(model, path)
        loaded = cordcal.load(path)
        if key == "adats":
            loaded.calibrator_.set_params(features=BRIEF[key]["features"])
        np.testing.assert_array_equal(loaded.predict_proba(scores), expected)


def test_a_comparison_a_blend_and_the_command_take_the_keys(tmp_path: Path) -> None:
    scores, labels = noisy_logits(300, 4)
    comparison = cordcal.compare(scores, labels, ["ts", "spline", "top-label"])
    assert comparison.keys() == ["ts", "spline", "top-label"]
    blend = calibrators.make("blend", members=("ts", "pb")).fit(scores, labels)
    cordcal.save(blend, tmp_path / "blend.safetensors")
    np.testing.assert_array_equal(
        cordcal.load(tmp_path / "blend.safetensors").predict_proba(scores),
        blend.predict_proba(scores),
    )
    np.savez(tmp_path / "s.npz", logits=scores, labels=labels)
    done = subprocess.run(
        [sys.executable, "-m", "cordcal", "fit", "s.npz", "--calibrator", "ts-class",
         "--output", "m.safetensors"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert cordcal.load(tmp_path / "m.safetensors").calibrator_.key == "ts-class"


def test_cordcal_imports_the_study_only_for_its_keys() -> None:
    script = """
import sys, warnings
import numpy as np, cordcal
labels = np.arange(60) % 3
logits = 2.0 * np.eye(3)[labels] + np.random.default_rng(0).normal(size=(60, 3))
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    cordcal.compare(logits, labels, ["ts", "vs"])
cordcal.calibrators.describe()
assert not any(name.startswith("cordcal_study") for name in sys.modules)
cordcal.calibrators.make("pb")
assert "cordcal_study.calibrators.bounded" in sys.modules
assert not {"torch", "pydantic"} & {*sys.modules}
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
