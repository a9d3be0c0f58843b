"""Certificates in models: stored, applied, renewed, and refused for rows of the fit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import cordcal
from cordcal.evaluate.evidence import ActEvidence
from errors import refused


def rows(n: int = 1500, seed: int = 0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=n)
    return 3.0 * np.eye(3)[labels] + rng.normal(size=(n, 3)), labels


@pytest.fixture(scope="module")
def model() -> cordcal.PreservingCalibrator:
    logits, labels = rows()
    fitted = cordcal.PreservingCalibrator("ts").fit(logits, labels)
    fitted.certify(*rows(seed=1), 0.02)
    return fitted


def test_the_model_accepts_what_its_certificate_accepts(model) -> None:
    logits, _ = rows(seed=2)
    accepted = model.accepts(logits)
    assert (accepted == model.certificate_.accepts(model.predict_proba(logits))).all()
    assert 0.3 < accepted.mean() < 1.0
    assert model.certificate_.caveats == ()
    again = cordcal.certify(model.predict_proba(rows(seed=1)[0]), rows(seed=1)[1], 0.02)
    assert again.parts == model.certificate_.parts


def test_the_file_keeps_the_certificate(model, tmp_path) -> None:
    cordcal.save(model, tmp_path / "model.safetensors")
    loaded = cordcal.load(tmp_path / "model.safetensors")
    logits, _ = rows(seed=2)
    assert (loaded.accepts(logits) == model.accepts(logits)).all()
    assert loaded.certificate_.model == loaded.digest() == model.digest()


def test_a_certificate_of_another_model_is_refused(model, tmp_path) -> None:
    other = cordcal.PreservingCalibrator("ts").fit(*rows(seed=5))
    other.certificate_ = model.certificate_
    cordcal.save(other, tmp_path / "model.safetensors")
    with refused(naming="another model"):
        cordcal.load(tmp_path / "model.safetensors")


def test_rows_of_the_fit_are_recognised() -> None:
    logits, labels = rows()
    model = cordcal.PreservingCalibrator("ts").fit(logits, labels)
    with refused("model", naming="no certificate"):
        model.accepts(logits)
    certificate = model.certify(logits[:500], labels[:500], 0.05)
    assert certificate.caveats[0].startswith("500 of 500 rows")
    ids = np.arange(len(labels))
    model.fit(logits, labels, ids=ids)
    assert model.certificate_ is None
    with refused("ids", rows=[0]):
        model.certify(logits[:500], labels[:500], 0.05, ids=np.r_[7, ids[1:500] + 5000])
    assert model.certificate_ is None
    assert model.certify(logits[:500], labels[:500], 0.05, ids=ids[:500] + 5000).caveats == ()


@pytest.mark.parametrize("dtype", ["float64", "int32", "object"])
def test_ids_are_recognised_in_every_dtype(dtype) -> None:
    logits, labels = rows()
    model = cordcal.PreservingCalibrator("ts").fit(logits, labels, ids=np.arange(len(labels)))
    ids = (np.arange(500) + 5000).astype(dtype)
    ids[3] = 3
    with refused("ids", rows=[3], naming="used to fit"):
        model.certify(logits[:500], labels[:500], 0.05, ids=ids)


def test_ids_that_repeat_are_a_caveat_without_clusters() -> None:
    logits, labels = rows()
    model = cordcal.PreservingCalibrator("ts").fit(logits, labels, ids=np.arange(len(labels)))
    ids = np.arange(1500) // 2 + 5000
    caveats = model.certify(*rows(seed=1), 0.05, ids=ids).caveats
    assert [caveat.startswith("750 rows repeat an id") for caveat in caveats] == [True]
    assert model.certify(*rows(seed=1), 0.05, ids=ids, clusters=ids).caveats == ()


@pytest.mark.parametrize("missing", [None, np.nan, ""])
def test_rows_without_an_id_are_refused(missing) -> None:
    logits, labels = rows()
    ids = np.array([f"r{row}" for row in range(len(labels))], dtype=object)
    ids[[2, 9]] = missing
    model = cordcal.PreservingCalibrator("ts")
    with refused("ids", rows=[2, 9], naming="no id"):
        model.fit(logits, labels, ids=ids)
    model.fit(logits, labels, ids=np.arange(len(labels)))
    with refused("ids", rows=[2, 9], naming="no id"):
        model.certify(logits, labels, 0.05, ids=ids)


@pytest.mark.parametrize(
    "options",
    [{"rule": [1, 1, 3]}, {"preserve": "ranking"}, {"repair": "lift", "prefer": "likelihood"}],
)
def test_other_options_are_certified_alike(options) -> None:
    logits, labels = rows()
    model = cordcal.PreservingCalibrator("ts", **options).fit(logits, labels)
    certificate = model.certify(*rows(seed=1), 0.05, by="class")
    new, truth = rows(4000, seed=3)
    accepted = model.accepts(new)
    assert (accepted == certificate.accepts(model.predict_proba(new))).all()
    assert (model.predict(new)[accepted] != truth[accepted]).mean() <= 0.05


@pytest.mark.parametrize("by", [None, "class"])
def test_graphs_and_modules_act_alike(by, tmp_path) -> None:
    torch, runtime = pytest.importorskip("torch"), pytest.importorskip("onnxruntime")
    import cordcal.onnx
    import cordcal.torch

    model = cordcal.PreservingCalibrator("ts").fit(*rows())
    model.certify(*rows(seed=1), 0.02, by=by)
    logits = rows(400, seed=2)[0]
    expected = model.accepts(logits)
    module = cordcal.torch.PreservingModule(model)
    assert (module.accepts(torch.tensor(logits)).numpy() == expected).all()
    half = torch.tensor(logits).half()
    assert (module.accepts(half).numpy() == model.accepts(half.numpy())).all()
    cordcal.onnx.export(model, tmp_path / "model.onnx", dtype="float64")
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"))
    assert (session.run(["act"], {"logits": logits})[0] == expected).all()
    assert 0 < expected.sum() < len(expected)


@pytest.mark.parametrize("by", [None, "class"])
def test_a_certificate_is_violated_or_renewed(model, by) -> None:
    certificate = cordcal.certify(model.predict_proba(rows(seed=1)[0]), rows(seed=1)[1], by=by)
    good, labels = rows(6000, seed=4)
    good = model.predict_proba(good)
    bad = np.where(np.random.default_rng(0).random(6000) < 0.1, (labels + 1) % 3, labels)
    assert certificate.recheck(good, labels, "violated").passed
    assert certificate.recheck(good, labels, "renewed").passed
    assert not certificate.recheck(good, bad, "violated").passed
    # Ten rows are evidence of nothing.
    assert certificate.recheck(good[:10], labels[:10], "violated").passed
    assert not certificate.recheck(good[:10], labels[:10], "renewed").passed


def test_the_monitor_watches_acted_rows(model, tmp_path) -> None:
    logits, labels = rows(3000, seed=6)
    probabilities = model.predict_proba(logits)
    monitor = cordcal.Monitor(probabilities, certificate=model.certificate_)
    assert monitor.limit == pytest.approx(60.0)
    assert monitor.add(probabilities, labels).verdict == "holds"
    assert monitor.status.acted == int(model.accepts(logits).sum())
    monitor.save(tmp_path / "state.monitor")
    monitor = cordcal.Monitor.load(tmp_path / "state.monitor")
    new, truth = rows(3000, seed=7)
    wrong = np.where(np.random.default_rng(1).random(3000) < 0.05, (truth + 1) % 3, truth)
    status = monitor.add(model.predict_proba(new), wrong)
    assert "act" in [alarm.test for alarm in status.alarms]
    assert "more acted predictions are wrong" in str(status)
    monitor.acknowledge()
    assert monitor.status.acted == 0


def test_the_third_test_finds_a_change_after_a_long_calm() -> None:
    rng = np.random.default_rng(9)
    test = ActEvidence(0.02)
    assert test.update(rng.random(20_000) < 0.01, np.log(60.0)) is None
    look = test.update(rng.random(3000) < 0.06, np.log(60.0))
    assert look is not None
    assert 20_000 < look.rows <= 23_000


def test_the_third_test_does_not_depend_on_batches() -> None:
    wrong = np.random.default_rng(10).random(1234) < 0.03
    whole, parts = ActEvidence(0.02), ActEvidence(0.02)
    looks = [whole.update(wrong, 1.0)]
    looks += [look for row in wrong if (look := parts.update(np.array([row]), 1.0)) is not None]
    assert looks[0] == looks[1]
    assert whole.evidence == parts.evidence


def test_the_third_test_keeps_its_level_at_every_look() -> None:
    rng = np.random.default_rng(8)
    alarms = sum(
        ActEvidence(0.1).update(rng.random(1500) < 0.1, np.log(20.0)) is not None
        for _ in range(400)
    )
    assert alarms <= 400 * 0.05 + 2 * (400 * 0.05 * 0.95) ** 0.5


def test_the_monitor_of_groups_needs_groups(model) -> None:
    logits, labels = rows(3000, seed=6)
    probabilities, groups = model.predict_proba(logits), np.repeat(["a", "b"], 1500)
    certificate = cordcal.certify(probabilities, labels, 0.05, by=groups)
    monitor = cordcal.Monitor(probabilities, certificate=certificate)
    with refused("groups", naming="certificate"):
        monitor.add(probabilities, labels)
    groups = np.where(np.arange(3000) < 100, None, groups)
    monitor.add(probabilities, labels, groups=groups)
    assert (
        monitor.status.acted == certificate.accepts(probabilities[100:], groups=groups[100:]).sum()
    )


def test_the_monitor_matches_columns_with_the_certificate(model) -> None:
    logits, labels = rows(3000, seed=6)
    frame = pd.DataFrame(model.predict_proba(logits), columns=["ant", "bee", "cat"])
    names = frame.columns.to_numpy()[labels]
    certificate = cordcal.certify(frame, names, 0.02, by="class")
    swapped = frame[["cat", "ant", "bee"]]
    monitor = cordcal.Monitor(swapped, certificate=certificate)
    monitor.add(swapped, names)
    assert monitor.status.acted == certificate.accepts(frame).sum()
    with refused("certificate", naming="another order"):
        cordcal.Monitor(swapped, class_names=["cat", "ant", "bee"], certificate=certificate)
    with refused("certificate"):
        cordcal.Monitor(
            frame.to_numpy()[:, :2] + 0.5 * frame.to_numpy()[:, 2:], certificate=certificate
        )


def test_the_monitor_predicts_by_the_rule_of_the_certificate(model) -> None:
    logits, labels = rows(3000, seed=6)
    probabilities, rule = model.predict_proba(logits), np.array([3.0, 1.0, 1.0])
    certificate = cordcal.certify(probabilities, labels, 0.05, rule=rule)
    monitor = cordcal.Monitor(probabilities, certificate=certificate)
    monitor.add(probabilities, labels, direct=probabilities)
    assert monitor.status.acted == certificate.accepts(probabilities).sum()
    predicted = (probabilities * rule).argmax(axis=1)
    assert monitor.periods[0].predicted == tuple(np.bincount(predicted).tolist())
    assert monitor.periods[0].changed == 0


def test_the_monitor_has_no_predictions_that_were_passed(model) -> None:
    logits, labels = rows(3000, seed=6)
    probabilities = model.predict_proba(logits)
    certificate = cordcal.certify(probabilities, labels, 0.05, prediction=logits.argmax(axis=1))
    with refused("certificate", naming="predictions"):
        cordcal.Monitor(probabilities, certificate=certificate)


def test_half_precision_does_not_decide(tmp_path) -> None:
    torch, runtime = pytest.importorskip("torch"), pytest.importorskip("onnxruntime")
    import cordcal.onnx
    import cordcal.torch

    model = cordcal.PreservingCalibrator("ts").fit(*rows())
    model.certify(*rows(3000, seed=1), 0.01)
    scores = rows(60_000, seed=5)[0].astype(np.float16)
    accepted = model.accepts(scores.astype(np.float64))
    rounded = model.certificate_.accepts(model.predict_proba(scores))
    assert (rounded != accepted).any()  # else this test shows nothing
    assert (model.accepts(scores) == accepted).all()
    module = cordcal.torch.PreservingModule(model)
    assert (module.accepts(torch.tensor(scores)).numpy() == accepted).all()
    cordcal.onnx.export(model, tmp_path / "m.onnx", dtype="float16")
    session = runtime.InferenceSession(str(tmp_path / "m.onnx"))
    assert (session.run(["act"], {"logits": scores})[0].astype(bool) == accepted).all()


def test_apply_decides_before_half_precision(call) -> None:
    model = cordcal.PreservingCalibrator("ts").fit(*rows())
    model.certify(*rows(3000, seed=1), 0.01)
    scores = rows(60_000, seed=5)[0]
    accepted = model.accepts(scores)
    halves = model.predict_proba(scores, dtype=np.float16)
    assert (model.certificate_.accepts(halves) != accepted).any()  # else this test shows nothing
    cordcal.save(model, "model.safetensors")
    pd.DataFrame(scores, columns=["s_0", "s_1", "s_2"]).to_parquet("scores.parquet")
    arguments = ("apply", "model.safetensors", "scores.parquet", "--output", "out.parquet")
    assert call(*arguments, "--dtype", "float16")[0] == 0
    assert (pd.read_parquet("out.parquet")["act"] == accepted).all()
