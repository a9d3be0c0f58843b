"""``cordcal monitor``: verdicts, exit codes, late labels, models and mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

import cordcal


def night(rows: int, seed: int, off: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.5, 1.0, rows)
    right = rng.random(rows) < confidence - off
    return np.column_stack([confidence, 1.0 - confidence]), np.where(right, 0, 1)


@pytest.fixture
def state(call, tmp_path: Path) -> Path:
    np.savez(tmp_path / "base.npz", probabilities=night(1000, 9)[0])
    for name, rows, seed, off in (("calm", 1500, 1, 0.0), ("off", 3000, 2, 0.15)):
        probabilities, labels = night(rows, seed, off)
        np.savez(tmp_path / f"{name}.npz", probabilities=probabilities, labels=labels)
    assert call("monitor", "init", "s.monitor", "--baseline", "base.npz")[0] == 0
    return tmp_path / "s.monitor"


def test_exit_codes(call, state: Path) -> None:
    assert call("monitor", "show", state)[0] == 2
    code, out, _ = call("monitor", "add", state, "calm.npz")
    assert code == 0
    assert "alarm needs 40" in out
    code, out, _ = call("monitor", "add", state, "off.npz")
    assert code == 1
    assert out.startswith("ALARM")
    assert call("monitor", "add", state, "calm.npz")[0] == 1  # until it is acknowledged
    assert call("monitor", "acknowledge", state)[0] == 0
    assert call("monitor", "show", state)[0] == 2
    bits = state.read_bytes()
    code, out, _ = call("monitor", "acknowledge", state)
    assert code == 0
    assert "no alarm" in out
    assert state.read_bytes() == bits


def test_json(call, state: Path) -> None:
    code, out, _ = call("monitor", "add", state, "off.npz", "--json")
    status = json.loads(out)
    assert code == 1
    assert status["verdict"] == "alarm"
    assert status["alarms"][0]["batch"] == "off.npz"


def test_a_batch_twice_is_named(call, state: Path) -> None:
    call("monitor", "add", state, "calm.npz")
    bits = state.read_bytes()
    code, _, errors = call("monitor", "add", state, "calm.npz")
    assert code == 0
    assert "calm.npz was added before" in errors
    assert state.read_bytes() == bits


def test_labels_that_come_later(call, tmp_path: Path) -> None:
    probabilities, labels = night(300, 3)
    names = np.array(["ok", "no"])
    rows = [f"r{i},{p!r},{1 - p!r}" for i, p in enumerate(probabilities[:, 0].tolist())]
    (tmp_path / "new.csv").write_text("\n".join(["id,ok,no", *rows]))
    order = np.random.default_rng(0).permutation(300)
    late = [f"r{i},{names[labels[i]]}" for i in order]
    (tmp_path / "late.csv").write_text("\n".join(["id,label", *late]))
    columns = ("--columns", "ok,no")
    assert call("monitor", "init", "s", "--baseline", "new.csv", *columns)[0] == 0
    code, out, _ = call("monitor", "add", "s", "new.csv", *columns, "--id-column", "id")
    assert code == 0
    assert "300 rows wait" in out
    code, out, _ = call("monitor", "label", "s", "late.csv", "--id-column", "id")
    assert code == 0
    assert "300 labelled rows" in out
    assert "wait" not in out


def test_scores_with_a_model(call, tmp_path: Path, logits, labels) -> None:
    model = cordcal.PreservingCalibrator("vs").fit(logits, labels)
    cordcal.save(model, tmp_path / "m")
    cordcal.save(cordcal.PreservingCalibrator("ts").fit(logits, labels), tmp_path / "other")
    np.savez(tmp_path / "scores.npz", logits=logits, labels=labels)
    assert call("monitor", "init", "s", "--baseline", "scores.npz", "--model", "m")[0] == 0
    code, out, _ = call("monitor", "add", "s", "scores.npz", "--model", "m", "--json")
    assert code == 0
    outputs = model.predict_both(logits)
    changed = int((outputs.direct.argmax(axis=1) != outputs.prediction).sum())
    assert json.loads(out)["changed"] == changed > 0
    code, _, errors = call("monitor", "add", "s", "scores.npz", "--model", "other")
    assert code == 2
    assert "another model" in errors
    code, _, errors = call("monitor", "add", "s", "scores.npz")
    assert code == 2
    assert "--model" in errors
    # Raw probabilities look like those of the model; they would raise a false alarm.
    np.savez(tmp_path / "raw.npz", probs=model.predict_proba(logits), labels=labels)
    code, _, errors = call("monitor", "add", "s", "raw.npz")
    assert code == 2
    assert "--model FILE" in errors
    np.savez(tmp_path / "applied.npz", repaired=model.predict_proba(logits), labels=labels)
    assert call("monitor", "add", "s", "applied.npz")[0] == 0
    cordcal.save(cordcal.CORD().fit(softmax(logits, axis=1), softmax(logits, axis=1)), "repair")
    code, _, errors = call("monitor", "add", "s", "scores.npz", "--model", "repair")
    assert code == 2
    assert "repair alone" in errors


def test_a_renewed_certificate_is_no_other_model(call, tmp_path: Path, logits, labels) -> None:
    model = cordcal.PreservingCalibrator("ts").fit(logits, labels)
    model.certify(logits, labels, 0.3)
    cordcal.save(model, tmp_path / "m")
    np.savez(tmp_path / "scores.npz", logits=logits, labels=labels)
    np.savez(tmp_path / "later.npz", logits=logits[:100] + 1e-3, labels=labels[:100])
    assert call("monitor", "init", "s", "--baseline", "scores.npz", "--model", "m")[0] == 0
    code, _, errors = call("monitor", "add", "s", "scores.npz", "--model", "m")
    assert (code, "certified again" in errors) == (0, False)
    assert call("certify", "scores.npz", "--model", "m", "--error", "20%")[0] == 0
    code, _, errors = call("monitor", "add", "s", "later.npz", "--model", "m")
    assert (code, "certified again" in errors) == (0, True)


@pytest.mark.parametrize("names", ["0,1", "p_cat,p_dog"])
def test_partial_labels_get_a_way_to_add_them(call, tmp_path: Path, names: str) -> None:
    lines = [f"{names},label", "0.9,0.1,", f"0.2,0.8,{names.split(',')[1].removeprefix('p_')}"]
    (tmp_path / "p.csv").write_text("\n".join(lines) + "\n")
    np.savez(tmp_path / "b.npz", probs=[[0.9, 0.1], [0.2, 0.8]] * 50)
    assert call("monitor", "init", "s", "--baseline", "b.npz")[0] == 0
    code, _, errors = call("monitor", "add", "s", "p.csv")
    assert code == 2
    assert "row 0 has no label" in errors
    assert "monitor label" in errors


def test_a_missing_state_is_not_called_a_model(call) -> None:
    code, _, errors = call("monitor", "show", "none.monitor")
    assert code == 2
    assert "no such monitor file" in errors


def test_info_describes_the_state_of_a_monitor(call, tmp_path: Path, logits, labels) -> None:
    probs = cordcal.PreservingCalibrator("ts").fit(logits, labels).predict_proba(logits)
    np.savez(tmp_path / "p.npz", probs=probs, labels=labels)
    assert call("monitor", "init", "s.monitor", "--baseline", "p.npz")[0] == 0
    code, out, _ = call("info", "s.monitor", "--json")
    assert code == 0
    described = json.loads(out)
    assert described["baseline_rows"] == len(labels)
    assert described["verdict"] == "cannot tell"
    written = ("--max", "nll=9", "--output", "b.baseline")
    assert call("check", "p.npz", *written)[0] == 0
    code, out, _ = call("info", "b.baseline", "--json")
    assert code == 0
    assert json.loads(out)["rows"] == len(labels)


def test_columns_are_matched_to_the_models_classes(call, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=400)
    scores = rng.normal(size=(400, 3)) + 2.0 * np.eye(3)[truth]
    names = ["ant", "bee", "cat"]
    for file, order in (("fit.csv", [0, 1, 2]), ("other.csv", [2, 0, 1])):
        lines = [",".join([*(names[i] for i in order), "label"])]
        for row, label in zip(scores.tolist(), truth.tolist(), strict=True):
            lines.append(",".join([*(repr(row[i]) for i in order), names[label]]))
        (tmp_path / file).write_text("\n".join(lines))
    assert call("fit", "fit.csv", "--calibrator", "vs", "--output", "m")[0] == 0
    statuses = []
    for file in ("fit.csv", "other.csv"):
        assert call("monitor", "init", file + ".s", "--baseline", file, "--model", "m")[0] == 0
        code, out, _ = call("monitor", "add", file + ".s", file, "--model", "m", "--json")
        assert code == 0
        statuses.append(out.replace(file, "night.csv"))
    assert statuses[0] == statuses[1]


def test_labels_of_the_baseline_are_tested(call, state: Path) -> None:
    code, out, errors = call("monitor", "init", "a", "--baseline", "calm.npz")
    assert code == 0
    assert "in the baseline" in out
    assert "warning" not in errors
    code, _, errors = call("monitor", "init", "b", "--baseline", "off.npz")
    assert code == 0
    assert "does not hold in the baseline" in errors


def test_mistakes_leave_the_state_as_it_was(call, state: Path, tmp_path: Path) -> None:
    bits = state.read_bytes()
    np.savez(tmp_path / "three.npz", probabilities=softmax(np.zeros((5, 3)), axis=1))
    np.savez(tmp_path / "none.npz", probabilities=np.zeros((0, 2)))
    np.savez(tmp_path / "label.npz", probabilities=np.full((4, 2), 0.5), labels=[0, 1, 2, 0])
    for arguments in (
        ("three.npz",),
        ("none.npz",),
        ("label.npz",),
        ("missing.npz",),
        ("calm.npz", "three.npz"),
        ("calm.npz", "--id-column", "nobody"),
        ("calm.npz", "off.npz", "--labels", "y.npy"),
    ):
        code, _, errors = call("monitor", "add", state, *arguments)
        assert code == 2, arguments
        assert errors.strip()
        assert state.read_bytes() == bits
    state.write_bytes(bits[:-3])
    assert call("monitor", "add", state, "calm.npz")[0] == 2
    assert call("monitor", "show", "base.npz")[0] == 2
    assert call("monitor", "show", "nowhere")[0] == 2


def test_init_never_replaces_its_baseline(call, state: Path) -> None:
    assert call("monitor", "init", state, "--baseline", "base.npz")[0] == 2
    code, _, errors = call("monitor", "init", "base.npz", "--baseline", "base.npz", "--force")
    assert code == 2
    assert "the same command reads" in errors


def csv(path: Path, ids: list[str], labelled: bool = True, seed: int = 3) -> None:
    probabilities, labels = night(len(ids), seed)
    lines = ["id,0,1,label" if labelled else "id,0,1"]
    for name, (a, b), label in zip(ids, probabilities.tolist(), labels.tolist(), strict=True):
        lines.append(f"{name},{a!r},{b!r}" + (f",{label}" if labelled else ""))
    path.write_text("\n".join(lines) + "\n")


def test_what_is_not_counted_is_printed(call, state: Path, tmp_path: Path) -> None:
    csv(tmp_path / "a.csv", [f"r{i}" for i in range(40)], labelled=False)
    add = ("monitor", "add", state, "--columns", "0,1", "--id-column", "id")
    assert call(*add, "a.csv")[0] == 0
    csv(tmp_path / "b.csv", [f"r{i}" for i in range(30, 60)], labelled=False, seed=4)
    code, _, errors = call(*add, "b.csv")
    assert code == 0
    assert "10 rows are not counted" in errors
    (tmp_path / "l.csv").write_text("id,label\nr1,0\nr2,1\nx,0\ny,0\n")
    label = ("monitor", "label", state, "l.csv", "--id-column", "id")
    assert call(*label, "--strict")[0] == 2
    code, _, errors = call(*label)
    assert code == 0
    assert "2 labels are not used" in errors


def test_rows_without_an_id_are_refused(call, state: Path, tmp_path: Path) -> None:
    csv(tmp_path / "a.csv", ["a", "b", "c", "", "", "", ""])
    add = ("monitor", "add", state, "a.csv", "--columns", "0,1", "--id-column", "id")
    code, _, errors = call(*add)
    assert code == 2
    assert "has no id" in errors


def test_an_acknowledged_alarm_says_what_is_compared(call, state: Path) -> None:
    for options, words in (((), "the baseline"), (("--baseline", "newest"), "the newest rows")):
        assert call("monitor", "add", state, "off.npz")[0] == 1
        code, out, _ = call("monitor", "acknowledge", state, *options)
        assert code == 0
        assert f"compared with {words}" in out
        state.unlink()
        assert call("monitor", "init", "s.monitor", "--baseline", "base.npz")[0] == 0
    assert call("monitor", "acknowledge", state, "--baseline", "base.npz")[0] == 2


@pytest.mark.parametrize("suffix", ["npz", "csv", "parquet"])
def test_what_apply_wrote_is_watched_with_the_models_certificate(
    call, tmp_path: Path, logits, labels, suffix: str
) -> None:
    model = cordcal.PreservingCalibrator("ts").fit(logits, labels)
    model.certify(logits, labels, 0.3)
    cordcal.save(model, tmp_path / "m")
    np.savez(tmp_path / "scores.npz", logits=logits, labels=labels)
    np.savez(tmp_path / "labels.npz", labels=labels)
    applied = f"applied.{suffix}"
    assert call("apply", "m", "scores.npz", "--output", applied)[0] == 0
    begin = ("monitor", "init", "s", "--baseline", applied, "--model", "m")
    code, _, errors = call(*begin)
    assert code == 0, errors
    add = ("monitor", "add", "s", applied, "--labels", "labels.npz", "--json")
    for options in ((), ("--model", "m")):
        code, out, errors = call(*add, *options)
        assert code == 0, errors
        assert json.loads(out)["acted"] == int(model.accepts(logits).sum())
    # The same rows as scores are the same batch.
    code, _, errors = call("monitor", "add", "s", "scores.npz", "--model", "m")
    assert (code, "added before" in errors) == (0, True)


def test_probabilities_may_be_those_of_apply_or_of_the_classifier(
    call, tmp_path: Path, logits, labels
) -> None:
    probs = softmax(logits, axis=1)
    model = cordcal.PreservingCalibrator("ts", input="probabilities").fit(probs, labels)
    cordcal.save(model, tmp_path / "m")
    np.savez(tmp_path / "probs.npz", probs=probs, labels=labels)
    call("apply", "m", "probs.npz", "--output", "applied.csv")
    init = ("monitor", "init", "s", "--model", "m", "--baseline")
    code, _, errors = call(*init, "applied.csv")
    assert (code, "--columns" in errors, "without --model" in errors) == (2, True, True)
    assert call(*init, "applied.csv", "--columns", "p_*")[0] == 0
    call("apply", "m", "probs.npz", "--output", "applied.npz")
    assert call("apply", "m", "applied.npz", "--output", "twice.npz")[0] == 2
    assert (
        call("apply", "m", "applied.npz", "--columns", "repaired", "--output", "twice.npz")[0] == 0
    )


def test_a_certificate_of_groups_needs_their_column(call, tmp_path: Path, logits, labels) -> None:
    groups = np.resize(["a", "b"], len(labels))
    model = cordcal.PreservingCalibrator("ts").fit(logits, labels)
    model.certify(logits, labels, 0.3, by=groups)
    cordcal.save(model, tmp_path / "m")
    np.savez(tmp_path / "scores.npz", logits=logits, labels=labels, region=groups)
    assert call("monitor", "init", "s", "--baseline", "scores.npz", "--model", "m")[0] == 0
    add = ("monitor", "add", "s", "scores.npz", "--model", "m", "--json")
    code, _, errors = call(*add)
    assert (code, "--groups" in errors) == (2, True)
    code, out, _ = call(*add, "--groups", "region")
    assert json.loads(out)["acted"] == int(model.accepts(logits, groups=groups).sum())
