"""The default keeps both promises, and says what that costs."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import cordcal
from cordcal.evaluate.gates import Gate
from cordcal.repair import ConfidenceGap, Lift
from cordcal.sklearn import PreservingCalibratedClassifierCV
from errors import refused

EVIDENCE = "predictions are kept against the evidence"


def biased(rows: int = 3000, bias: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits of a classifier that prefers its first class."""
    rng = np.random.default_rng(3)
    labels = rng.integers(5, size=rows)
    logits = 2.5 * np.eye(5)[labels] + rng.normal(size=(rows, 5))
    logits[:, 0] += bias
    return logits, labels


def test_the_confidence_of_a_biased_classifier_is_honest() -> None:
    logits, labels = biased(6000)
    fit, new = slice(0, 3000), slice(3000, 6000)
    prediction, truth = logits[new].argmax(axis=1), labels[new]
    uncalibrated = np.exp(logits[new]) / np.exp(logits[new]).sum(axis=1, keepdims=True)
    errors, losses = {}, {}
    for prefer in ("confidence", "likelihood"):
        with pytest.warns(UserWarning, match=EVIDENCE):
            model = cordcal.PreservingCalibrator(prefer=prefer).fit(logits[fit], labels[fit])
        result = model.predict_proba(logits[new])
        assert (result.argmax(axis=1) == prediction).all()
        assert (result.round(4).argmax(axis=1) == prediction).all()
        errors[prefer] = cordcal.metrics.ece(result, truth)
        losses[prefer] = cordcal.metrics.nll(result, truth)
        gap = result.max(axis=1).mean() - (prediction == truth).mean()
        assert model.confidence_.after[0] == pytest.approx(gap, abs=0.02)
        assert model.confidence_.at_bound == pytest.approx(0.27, abs=0.02)
    assert errors["confidence"] < 0.02 < cordcal.metrics.ece(uncalibrated, truth)
    assert errors["likelihood"] > 0.08
    assert losses["likelihood"] < losses["confidence"]


def test_a_classifier_that_agrees_with_the_evidence_gets_all_three() -> None:
    logits, labels = biased(bias=0.0)
    models = [
        cordcal.PreservingCalibrator(prefer=prefer).fit(logits, labels)
        for prefer in ("confidence", "likelihood")
    ]
    assert models[0].confidence_.sentence == ""
    first, second = (cordcal.metrics.nll(model.predict_proba(logits), labels) for model in models)
    assert first == pytest.approx(second, rel=0.01)


def test_the_sentence_names_what_can_be_done() -> None:
    gaps = {"before": (0.1, 0.0, 0.2), "after": (0.0, -0.1, 0.1)}
    figures = {"n": 100, "accuracy": 0.5, "at_bound": 0.2, "direct_nll": 0.5, "repaired_nll": 0.75}
    ways = {
        "confidence": 'prefer="likelihood"',
        "likelihood": 'prefer="confidence"',
        "cord": 'repair="lift"',
    }
    for repair, way in ways.items():
        text = str(ConfidenceGap(**gaps, **figures, repair=repair))
        assert way in text
        assert 'rule="learnt"' in text
        assert "costs 0.250 of NLL (0.500 → 0.750)" in text


def test_no_wrong_prediction_is_asked_about() -> None:
    logits, _ = biased(300)
    with pytest.warns(UserWarning, match="were these rows used for training"):
        cordcal.PreservingCalibrator("ts").fit(logits, logits.argmax(axis=1))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = (X[:, 0] > 0).astype(int)
    X[:, 0] += 5.0 * np.sign(X[:, 0])
    with pytest.warns(UserWarning, match="were these rows used for training"):
        PreservingCalibratedClassifierCV(LogisticRegression()).fit(X, y)


def test_a_class_without_rows_is_a_caveat() -> None:
    logits, labels = biased(300)
    some = labels != 4
    with pytest.warns(UserWarning, match="1 of 5 classes has no calibration row"):
        cordcal.PreservingCalibrator("ts").fit(logits[some], labels[some])


def test_class_weights_are_noticed_where_they_matter() -> None:
    rng = np.random.default_rng(0)
    y = (rng.random(2000) < 0.08).astype(int)
    X = np.column_stack([1.5 * y + rng.normal(size=2000), rng.normal(size=2000)])
    weighted = LogisticRegression(class_weight="balanced")
    with pytest.warns(UserWarning, match="LogisticRegression has class_weight='balanced'"):
        model = PreservingCalibratedClassifierCV(weighted).fit(X, y)
    assert model.confidence_.at_bound > 0.05
    learnt = PreservingCalibratedClassifierCV(weighted, rule="learnt").fit(X, y)
    assert learnt.confidence_.at_bound < 0.05
    likely = PreservingCalibratedClassifierCV(LogisticRegression(), prefer="likelihood").fit(X, y)
    assert likely.repair_.prefer == "likelihood"


def test_bad_preferences() -> None:
    logits, labels = biased(300)
    with refused("prefer", naming=["both", "confidence", "likelihood"]):
        cordcal.PreservingCalibrator(prefer="both").fit(logits, labels)
    with refused("prefer", naming=["CORD", "lift"]):
        cordcal.PreservingCalibrator("vs", prefer="confidence").fit(logits, labels)
    with refused("prefer", naming="twice"):
        cordcal.PreservingCalibrator(repair=Lift("likelihood"), prefer="confidence").fit(
            logits, labels
        )


def test_check_counts_what_rounding_would_move() -> None:
    rows = np.array([[0.49999, 0.50001], [0.9, 0.1], [0.50001, 0.49999]])
    checked = cordcal.check(rows, original=[1, 0, 0], gates=[Gate("tpcr", 0.0)])
    assert checked.n_moved_by_rounding == 1
    assert checked.to_dict()["n_moved_by_rounding"] == 1


def test_apply_rounds_to_decimals(
    tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    logits, labels = biased(300, bias=0.0)
    model = cordcal.PreservingCalibrator("ts").fit(logits, labels)
    cordcal.save(model, tmp_path / "m.safetensors")
    np.savez(tmp_path / "new.npz", logits=logits)
    output = tmp_path / "out.csv"
    files = (str(tmp_path / "m.safetensors"), str(tmp_path / "new.npz"), "--output", str(output))
    assert call("apply", *files, "--decimals", "2")[0] == 0
    lines = [line.split(",")[-5:] for line in output.read_text("utf-8").splitlines()[1:]]
    values = [[Decimal(cell) for cell in line] for line in lines]
    assert all(sum(row) == 1 for row in values)
    assert [row.index(max(row)) for row in values] == logits.argmax(axis=1).tolist()
    code, _, error = call("apply", *files, "--force", "--decimals", "-1")
    assert code != 0
    assert "pass a whole number" in error


def test_a_weight_of_two_is_the_row_twice() -> None:
    rng = np.random.default_rng(42)
    labels = rng.integers(0, 3, 60)
    logits = 1.2 * np.eye(3)[labels] + rng.normal(size=(60, 3))
    weight = rng.integers(0, 4, 60)
    weighted = cordcal.PreservingCalibrator().fit(
        logits, labels, sample_weight=weight.astype(float)
    )
    repeated = cordcal.PreservingCalibrator().fit(
        np.repeat(logits, weight, 0), np.repeat(labels, weight)
    )
    np.testing.assert_allclose(
        weighted.predict_proba(logits), repeated.predict_proba(logits), rtol=0, atol=1e-9
    )
