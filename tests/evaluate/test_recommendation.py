"""The advice: simple where it costs nothing, and never what another clearly beats."""

from __future__ import annotations

import json
import runpy
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import cordcal
from cordcal.calibrators import Size
from cordcal.cli._app import app
from cordcal.evaluate import recommendation


class Fixed:
    """A map that is known already: a temperature, and some rows that are wildly wrong."""

    keeps_argmax = True

    def __init__(self, key: str, numbers: int, temperature: float, wild: int = 0) -> None:
        self.key, self.title, self.size = key, key, Size(fixed=numbers)
        self.temperature, self.wild = temperature, wild

    def fit(self, scores, labels):
        return self

    def predict_proba(self, scores):
        logits = scores / self.temperature
        if self.wild:
            top = np.sort(logits, axis=1)
            least = np.argsort(top[:, -1] - top[:, -2])[: self.wild]
            logits[least] *= 1e5  # certain where it should doubt most
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        return p / p.sum(axis=1, keepdims=True)

    def get_params(self, deep=True):
        return {}

    def __sklearn_clone__(self):
        return self


def simulated(seed: int = 0, rows: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """Draw logits whose softmax at temperature 2 is the truth."""
    rng = np.random.default_rng(seed)
    logits = 3.0 * rng.normal(size=(rows, 4))
    p = np.exp(logits / 2.0)
    p /= p.sum(axis=1, keepdims=True)
    return logits, (p.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1)


def test_a_clearly_worse_simple_map_is_not_advised_beside_a_noisy_one() -> None:
    simple, true = Fixed("simple", 1, 3.2), Fixed("true", 9, 2.0)
    noisy = Fixed("noisy", 40, 2.0, wild=2)
    found = cordcal.compare(*simulated(), [simple, true, noisy])
    assert found.recommendation.key == "true"
    assert ("simple", "direct") not in found.recommendation.by_nll


def test_of_equal_maps_the_simpler_is_advised_and_its_cost_is_said() -> None:
    found = cordcal.compare(*simulated(), [Fixed("simple", 1, 2.06), Fixed("other", 9, 2.0)])
    assert found.recommendation.key == "simple"
    assert found.best["nll"].key == "other"
    assert "nats lower" in found.recommendation.reason
    assert "the simplest option that no other clearly beats" in found.recommendation.reason


def test_the_best_map_is_advised_without_a_cost_if_it_is_the_simplest() -> None:
    found = cordcal.compare(*simulated(), [Fixed("simple", 1, 2.0), Fixed("other", 9, 2.06)])
    assert found.recommendation.key == found.best["nll"].key == "simple"
    assert "nats lower" not in found.recommendation.reason


def test_a_handful_of_rows_at_the_floor_do_not_decide(monkeypatch) -> None:
    simple, good = Fixed("simple", 1, 2.0, wild=3), Fixed("good", 9, 2.0)
    found = cordcal.compare(*simulated(3, 6000), [simple, good])
    evidence = found.evidence
    assert 0 < len(evidence.at_floor(("simple", "direct"))) <= recommendation.MAX_FLOORED_ROWS
    # As if chance could not explain the rows' 27.6 nats.
    only = [("good", "direct")]
    chosen, floored = recommendation._choose(found, only, [("simple", "direct"), *only])
    assert chosen == ("simple", "direct")
    assert floored == len(evidence.at_floor(chosen))
    assert "1e-12" in recommendation._reason(found, chosen, floored)
    # A rate that would show again is no accident.
    monkeypatch.setattr(recommendation, "_FLOORED_RATE", 0.0)
    assert recommendation._choose(found, only, [("simple", "direct"), *only]) == (only[0], 0)


def test_what_is_worse_than_the_original_is_passed_over_within_chance_or_not() -> None:
    # Wild rows make chance so wide that nothing speaks clearly against the simple map.
    simple, good = Fixed("simple", 1, 2.0, wild=40), Fixed("good", 9, 2.0)
    found = cordcal.compare(*simulated(3), [simple, good])
    both = [("simple", "direct"), ("good", "direct")]
    assert found.measures("simple", "direct")["nll"] > found.uncalibrated["nll"]
    assert recommendation._choose(found, both, both) == (("good", "direct"), 0)
    # Where nothing else is left, it is not the answer either.
    left = [("uncalibrated", "original"), ("simple", "direct")]
    assert recommendation._choose(found, left, both[:1]) == (left[0], 0)


def test_where_the_scores_disagree_the_simplest_by_nll_is_advised() -> None:
    maps = [Fixed("simple", 1, 2.1), Fixed("other", 5, 2.0), Fixed("third", 9, 1.9)]
    found = cordcal.compare(*simulated(4), maps)
    by_nll = [("third", "direct"), ("other", "direct")]
    assert recommendation._choose(found, by_nll, [("simple", "direct")]) == (("other", "direct"), 0)


def test_simplicity_counts_numbers_then_repairs_and_puts_blend_last() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=600)
    logits = 3.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(600, 3))
    found = cordcal.compare(logits, labels, ["ts", "ets", "vs", "irova"])
    ordered = sorted(
        found.preserving(), key=lambda report: recommendation.simplicity(found, report)
    )
    assert ordered == [
        ("uncalibrated", "original"),
        ("ts", "direct"),
        ("ets", "direct"),
        ("vs", "repaired"),
        ("vs", "lift"),
        ("irova", "repaired"),
        ("irova", "lift"),
    ]


def test_changes_pay_only_beyond_what_the_best_of_many_shows() -> None:
    rng = np.random.default_rng(2)
    labels = rng.integers(4, size=3000)
    logits = 2.0 * np.eye(4)[labels] + rng.normal(size=(3000, 4)) + np.array([0, 0, 0, 2.0])
    assert cordcal.compare(logits, labels, ["ts", "vs"]).recommendation.changes_pay == "vs"
    honest = logits - np.array([0, 0, 0, 2.0])
    assert cordcal.compare(honest, labels, ["ts", "vs"]).recommendation.changes_pay is None


def test_the_cap_is_mentioned_where_lift_is_often_at_its_bound() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=600)
    logits = 3.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(600, 3))
    found = cordcal.compare(logits, labels, ["vs"])
    advised = replace(found.recommendation, key="vs", report="lift")
    held = replace(found.entries[0], at_bound=0.2)
    for entries, said in (((held,), True), (found.entries, found["vs"].at_bound >= 0.05)):
        other = replace(found, entries=entries)
        other.__dict__["recommendation"] = advised
        assert ('mode="cap"' in " ".join(recommendation.sentences(other))) == said


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    logits, labels = simulated(5, 1200)
    np.savez("scores.npz", logits=logits, labels=labels)
    np.savez("new.npz", logits=simulated(6, 50)[0])
    return tmp_path


def test_the_next_step_runs_as_it_is_printed(folder) -> None:
    shown = CliRunner().invoke(app, ["compare", "scores.npz", "--calibrator", "ts"])
    assert shown.exit_code == 0, shown.output
    lines = shown.output.split("next step, in a terminal or in Python:\n")[1].splitlines()
    shell = [line.strip() for line in lines if line.startswith("  cordcal ")]
    python = [line.strip() for line in lines if not line.startswith("  cordcal ")]
    assert len(shell) == 2
    assert_the_same(shell, python)


def assert_the_same(shell: Sequence[str], python: Sequence[str]) -> None:
    """Run the lines of both kinds; they report the same."""
    for line in shell:
        done = CliRunner().invoke(app, shlex.split(line)[1:])
        assert done.exit_code == 0, done.output
    with np.load("repaired.npz") as written:
        by_command = written["repaired"]
    Path("step.py").write_text("\n".join(python))
    by_python = runpy.run_path("step.py")["repaired"]
    np.testing.assert_allclose(by_command, by_python, rtol=1e-12)


@pytest.mark.parametrize("key", ["svs", "blend"])
def test_the_next_step_of_a_lift_runs_as_it_is_printed(folder, key: str) -> None:
    with np.load("scores.npz") as held:
        found = cordcal.compare(held["logits"], held["labels"], [key])
    found.__dict__["recommendation"] = replace(found.recommendation, key=key, report="lift")
    step = found.next_step("scores.npz")
    assert "--repair lift" in step.shell[0]
    assert_the_same(step.shell, step.python)
    assert isinstance(cordcal.load("model.safetensors").repair_, cordcal.Lift)


def test_an_object_of_ones_own_has_no_lines_to_paste() -> None:
    found = cordcal.compare(*simulated(0), [Fixed("mine", 1, 2.0)])
    found.__dict__["recommendation"] = replace(found.recommendation, key="mine", report="direct")
    assert found.next_step() is None


def test_an_audit_is_strict_too(folder) -> None:
    with np.load("scores.npz") as held:
        logits, labels = held["logits"], held["labels"]
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.savez("p.npz", probs=p, labels=(labels + 1) % p.shape[1])
    np.savez("q.npz", probs=p)
    run = ["audit", "--original", "p.npz", "--direct", "q.npz"]
    assert CliRunner().invoke(app, run).exit_code == 0
    shown = CliRunner().invoke(app, [*run, "--strict"])
    assert shown.exit_code == 1
    assert shown.output.splitlines()[1].startswith("! accuracy")
    told = CliRunner().invoke(app, [*run, "--strict", "--json"])
    assert told.exit_code == 1
    assert json.loads(told.stdout[told.stdout.index("{") :])["concerns"][0]["key"] == "labels"


def test_strict_fails_on_what_is_to_be_checked_and_only_then(folder) -> None:
    run = ["compare", "scores.npz", "--calibrator", "ts", "--strict"]
    assert CliRunner().invoke(app, run).exit_code == 0
    with np.load("scores.npz") as held:
        wrong = held["labels"] + 1
        np.savez("wrong.npz", logits=held["logits"][wrong < 4], labels=wrong[wrong < 4])
    run[1] = "wrong.npz"
    shown = CliRunner().invoke(app, run)
    assert shown.exit_code == 1
    assert shown.output.splitlines()[1].startswith("! accuracy")
    assert "next step" not in shown.output
    assert CliRunner().invoke(app, run[:-1]).exit_code == 0
