"""`PreservingCalibrator` under a prediction rule: given, learnt, with predictions passed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cordcal
from cordcal import CORD, Lift, PredictionRule, PreservingCalibrator
from cordcal.cli import main
from cordcal.evaluate.gates import Gate
from errors import refused


def imbalanced(rows: int = 1500, classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores of a classifier trained with balanced class weights, and labels."""
    rng = np.random.default_rng(seed)
    shares = 0.5 ** np.arange(classes)
    labels = rng.choice(classes, size=rows, p=shares / shares.sum())
    features = 1.5 * np.eye(classes)[labels] + rng.normal(size=(rows, classes))
    return 1.5 * features, labels  # log-likelihoods without the prior: balanced


SCORES, LABELS = imbalanced()
NEW, NEW_LABELS = imbalanced(seed=1)


def nll(probabilities: np.ndarray, labels: np.ndarray) -> float:
    return float(-np.log(probabilities[np.arange(len(labels)), labels]).mean())


@pytest.mark.parametrize("repair", ["cord", "lift", Lift("likelihood")])
@pytest.mark.parametrize("rule", ["learnt", (1.0, 2.0, 4.0)])
def test_predictions_are_kept_by_the_rule(repair: object, rule: object) -> None:
    model = PreservingCalibrator("vs", repair=repair, rule=rule).fit(SCORES, LABELS)
    assert isinstance(model.rule_, PredictionRule)
    assert (model.learnt_rule_ is not None) == (rule == "learnt")
    prediction = NEW.argmax(axis=1)
    np.testing.assert_array_equal(model.predict(NEW), prediction)
    for dtype in ("float64", "float32", "float16"):
        rows = model.predict_proba(NEW, dtype=dtype)
        assert rows.dtype == dtype
        np.testing.assert_array_equal(model.rule_.predict(rows), prediction)
        narrow = rows * model.rule_.weights.astype(dtype)
        np.testing.assert_array_equal(narrow.argmax(axis=1), prediction)
    assert (model.predict_proba(NEW).argmax(axis=1) != prediction).any()


def test_a_learnt_rule_costs_less_than_the_argmax() -> None:
    direct = PreservingCalibrator("vs").fit(SCORES, LABELS).direct_proba(NEW)
    losses = {
        rule: nll(
            PreservingCalibrator("vs", rule=rule).fit(SCORES, LABELS).predict_proba(NEW),
            NEW_LABELS,
        )
        for rule in ("argmax", "learnt")
    }
    assert losses["learnt"] < 1.005 * nll(direct, NEW_LABELS) < losses["argmax"]


def test_the_default_is_the_argmax() -> None:
    plain = PreservingCalibrator("irova").fit(SCORES, LABELS)
    assert plain.rule_ is None
    assert plain.learnt_rule_ is None
    equal = PreservingCalibrator("irova", rule=[2, 2, 2]).fit(SCORES, LABELS)
    np.testing.assert_array_equal(equal.predict_proba(NEW), plain.predict_proba(NEW))


@pytest.mark.parametrize("repair", ["cord", "lift"])
def test_predictions_that_are_not_the_argmax(repair: str) -> None:
    """A threshold of 0.2 on the probability of the second class."""
    scores, labels = imbalanced(classes=2)
    new, _ = imbalanced(classes=2, seed=1)
    decide = [(x[:, 1] - x[:, 0] > np.log(0.25)).astype(int) for x in (scores, new)]
    model = PreservingCalibrator("vs", repair=repair, rule="learnt")
    model.fit(scores, labels, prediction=decide[0])
    outputs = model.predict_both(new, prediction=decide[1])
    np.testing.assert_array_equal(outputs.prediction, decide[1])
    np.testing.assert_array_equal(model.rule_.predict(outputs.repaired), decide[1])
    np.testing.assert_array_equal(model.predict(new, prediction=decide[1]), decide[1])
    np.testing.assert_array_equal(model.direct_proba(new), outputs.direct)
    for call in (model.predict, model.predict_proba, model.predict_both):
        with refused("prediction"):
            call(new)
    with refused("prediction", rows=[3]):
        model.predict_proba(new[:5], prediction=[0, 1, 1, 2, 0])
    with refused("prediction"):
        model.fit(scores, labels, prediction=decide[0][:-1])


def test_predictions_by_name_and_in_dense_arrays() -> None:
    pd = pytest.importorskip("pandas")
    names = np.array(["no", "maybe", "yes"])
    frame = pd.DataFrame(SCORES, columns=names)
    prediction = (SCORES * [1.0, 1.2, 1.0]).argmax(axis=1)
    model = PreservingCalibrator("vs", rule="learnt")
    model.fit(frame, names[LABELS], prediction=pd.Series(names[prediction]))
    by_index = PreservingCalibrator("vs", rule="learnt").fit(SCORES, LABELS, prediction=prediction)
    np.testing.assert_array_equal(
        model.predict_proba(frame, prediction=names[prediction]),
        by_index.predict_proba(SCORES, prediction=prediction),
    )
    assert model.predict(frame, prediction=prediction).tolist() == names[prediction].tolist()
    with refused("prediction", naming="perhaps"):
        model.predict_proba(frame[:1], prediction=["perhaps"])
    images = SCORES.reshape(15, 10, 10, 3).transpose(0, 3, 1, 2)
    labels, keep = LABELS.reshape(15, 10, 10), prediction.reshape(15, 10, 10)
    dense = PreservingCalibrator("vs", rule="learnt")
    dense.fit(images, np.where(labels == labels, labels, 0), prediction=keep, axis=1)
    outputs = dense.predict_both(images, prediction=keep, axis=1)
    np.testing.assert_array_equal(outputs.prediction, keep)
    np.testing.assert_array_equal(dense.direct_proba(images, axis=1), outputs.direct)
    np.testing.assert_array_equal(dense.predict(images, prediction=keep, axis=1), keep)


@pytest.mark.parametrize("repair", ["cord", "lift"])
@pytest.mark.parametrize("prediction_given", [False, True])
def test_model_files(repair: str, prediction_given: bool, tmp_path: Path) -> None:
    options = {"prediction": SCORES.argmax(axis=1)} if prediction_given else {}
    model = PreservingCalibrator("vs", repair=repair, rule="learnt")
    model.fit(SCORES, LABELS, **options)
    for saved in (model, model.repair_):
        path = tmp_path / "model.safetensors"
        cordcal.save(saved, path)
        loaded = cordcal.load(path)
        np.testing.assert_array_equal(loaded.rule_.weights, model.rule_.weights)
    cordcal.save(model, path)
    loaded = cordcal.load(path)
    keep = {"prediction": NEW.argmax(axis=1)} if prediction_given else {}
    np.testing.assert_array_equal(
        loaded.predict_proba(NEW, **keep), model.predict_proba(NEW, **keep)
    )
    if prediction_given:
        with refused("prediction"):
            loaded.predict(NEW)
    # Fitting the loaded model's repair again keeps its rule.
    again = loaded.fit(SCORES, LABELS)
    np.testing.assert_array_equal(again.rule_.weights, model.rule_.weights)


def test_bad_rules() -> None:
    for rule in ([1, 2], [1, 0, 2], [1, np.nan, 2], "balanced", None, [1, 1, 1e9]):
        with refused():
            PreservingCalibrator("vs", rule=rule).fit(SCORES, LABELS)
    for rule in ("learnt", [1, 2, 3]):
        with refused("preserve", option="rule"):
            PreservingCalibrator("vs", rule=rule, preserve=2).fit(SCORES, LABELS)
        with refused("rule"):
            PreservingCalibrator("vs", repair=Lift(rule=[1, 2, 3]), rule=rule).fit(SCORES, LABELS)


def test_the_rule_of_a_repair_is_used() -> None:
    model = PreservingCalibrator("vs", repair=Lift(rule=[1, 2, 3])).fit(SCORES, LABELS)
    np.testing.assert_array_equal(model.rule_.weights, PredictionRule([1, 2, 3]).weights)
    assert "rule=" in repr(CORD(rule=[1, 2]))


def test_audits_count_changes_under_the_rule() -> None:
    model = PreservingCalibrator("vs", rule="learnt").fit(SCORES, LABELS)
    outputs = model.predict_both(NEW)
    moved = model.rule_.predict(outputs.direct) != outputs.prediction
    result = cordcal.audit(NEW, outputs.direct, NEW_LABELS, input="logits", repair=model)
    likeliest = outputs.direct.argmax(axis=1) != outputs.prediction
    assert result.changes.n_changed == moved.sum() < likeliest.sum()
    accuracy = {line.measure: line for line in result.measures}["accuracy"]
    assert accuracy.repaired == (NEW.argmax(axis=1) == NEW_LABELS).mean()
    fitted_here = cordcal.audit(NEW, outputs.direct, NEW_LABELS, input="logits", rule=model.rule_)
    assert fitted_here.changes == result.changes
    with refused("rule"):
        cordcal.audit(NEW, outputs.direct, input="logits", repair=model, rule=[1, 2, 3])
    with pytest.warns(UserWarning, match="fitted on"):
        cordcal.audit(SCORES, model.direct_proba(SCORES), input="logits", repair=model)


def test_checks_count_changes_under_the_rule() -> None:
    model = PreservingCalibrator("vs", rule="learnt").fit(SCORES, LABELS)
    gates = [Gate("tpcr", 0.0), Gate("tpcr", 0.0, over="class")]
    repaired = model.predict_proba(NEW)
    assert cordcal.check(repaired, original=NEW, gates=gates).outcome == "failed"
    checked = cordcal.check(repaired, original=NEW, gates=gates, rule=model.rule_)
    assert (checked.outcome, checked.n_changed) == ("passed", 0)
    with refused("rule"):
        cordcal.check(repaired, original=NEW, gates=gates, rule=[1, 2])


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """fit, apply and check: the model file carries the rule."""

    def run(*arguments: object, code: int = 0) -> str:
        assert main([str(argument) for argument in arguments]) == code
        return capsys.readouterr().out

    np.savez(tmp_path / "fit.npz", logits=SCORES, labels=LABELS)
    np.savez(tmp_path / "new.npz", logits=NEW, labels=NEW_LABELS)
    model, new, out = (tmp_path / name for name in ("m.safetensors", "new.npz", "out.npz"))
    fit = ("fit", tmp_path / "fit.npz", "--calibrator", "vs", "--output", model)
    assert "weight" in run(*fit, "--rule", "learnt")
    run("apply", model, new, "--output", out)
    loaded = cordcal.load(model)
    with np.load(out) as written:
        repaired, prediction = written["repaired"], written["prediction"]
    np.testing.assert_array_equal(loaded.rule_.predict(repaired), prediction)
    np.testing.assert_array_equal(prediction, NEW.argmax(axis=1))
    check = ("check", out, "--original", new, "--max", "tpcr=0")
    run(*check, "--model", model)
    assert "pass it as --model" in run(*check, code=1)
    run(*fit, "--force", "--rule", "1,2,4")
    np.testing.assert_array_equal(
        cordcal.load(model).rule_.weights, PredictionRule([1, 2, 4]).weights
    )
    run(*fit, "--force", "--rule", "balanced", code=2)
    run(*fit, "--force", "--rule", "1,2", code=2)
    run(*fit, "--force", "--rule", "learnt", "--preserve", "2", code=2)


def test_damaged_rules_in_model_files(tmp_path: Path) -> None:
    from cordcal.files.models import write_state

    case = PreservingCalibrator("vs", rule=[1, 2, 4]).fit(SCORES, LABELS).repair_
    tensors, body = case.to_state()
    path = tmp_path / "cord.safetensors"
    for weights in ([1.0, 2.0], [1.0, 0.0, 2.0], [1.0, np.inf, 2.0], [1.0, 1.0, 1e9]):
        write_state(path, "cord", {**tensors, "rule": np.array(weights)}, body)
        with refused():
            cordcal.load(path)
