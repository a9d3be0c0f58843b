"""The recommendation: the default, unless another option is clearly better."""

from __future__ import annotations

import json
import runpy
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cordcal
from cordcal.calibrators import Size
from cordcal.evaluate import recommendation
from cordcal.evaluate.results.recommendation import format_interval
from cordcal.evaluate.statistics import joint_lower_bounds


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


DEFAULT = ("blend", "lift")


def recommended(comparison) -> tuple[str | None, str | None]:
    return comparison.recommendation.key, comparison.recommendation.output


@pytest.fixture(scope="module")
def comparison() -> cordcal.evaluate.comparison.Comparison:
    return cordcal.compare(*simulated(), ["ts", "vs", "blend"])


def test_the_default_is_recommended_though_another_is_lower_within_noise(comparison) -> None:
    assert comparison.best["nll"].key != "blend"
    advice = comparison.recommendation
    assert recommended(comparison) == DEFAULT
    assert advice.is_default
    assert advice.blocking == ()
    assert advice.before == comparison.uncalibrated
    assert advice.after == comparison["blend"].lift


def test_it_prints_as_prose_one_statement_per_line(comparison) -> None:
    lines = str(comparison.recommendation).splitlines()
    assert lines[0] == (
        "Recommended: blend + lift (the default). No other option is clearly better."
    )
    before, after = comparison.uncalibrated, comparison["blend"].lift
    assert lines[1] == (
        f"Predictions changed: 0 of 1,000. NLL {before['nll']:.4f} → {after['nll']:.4f}, "
        f"ECE {100 * before['ece']:.2f} % → {100 * after['ece']:.2f} %."
    )
    assert lines[2] == comparison.recommendation.confidence
    assert lines[3].startswith("Simpler alternatives, as good within noise: ts, vs + ")
    assert lines[4] == "If predictions may change: no calibrator is clearly more accurate."
    assert len(lines) == 5


def test_it_is_plain_json_with_its_texts(comparison) -> None:
    advice = comparison.recommendation
    data = json.loads(json.dumps(advice.to_dict()))
    assert (data["key"], data["output"], data["name"]) == (*DEFAULT, "blend + lift")
    assert data["headline"] == "Recommended: blend + lift (the default)"
    assert data["alternatives"][0]["key"] == "ts"
    assert data["alternatives"][0]["difference"]["low"] <= 0.0
    texts = ("figures", "confidence", "simpler", "if_changing")
    assert "\n".join(data[text] for text in texts) in str(advice)


def test_a_learnt_rule_is_offered_with_its_cost_where_it_clearly_pays(comparison) -> None:
    assert comparison.recommendation.rule is None
    assert comparison.recommendation.with_rule == ""
    rng = np.random.default_rng(0)
    labels = (rng.random(2000) < 0.08).astype(int)
    risk = 1.5 * labels + rng.normal(size=2000) - 0.75  # log odds of a balanced training set
    scores = np.column_stack([np.zeros(2000), 1.5 * risk])
    with pytest.warns(UserWarning, match="trained with class weights"):
        weighted = cordcal.compare(scores, labels, ["vs", "blend"])
    advice, lift = weighted.recommendation, weighted["blend"].lift["nll"]
    assert recommended(weighted) == DEFAULT
    assert advice.rule.nll + advice.rule.saving.estimate == pytest.approx(lift, abs=1e-9)
    assert 0.01 * advice.rule.nll < advice.rule.saving.low < advice.rule.saving.high
    assert abs(advice.rule.nll - weighted["blend"].direct["nll"]) < 0.01
    model = cordcal.PreservingCalibrator(rule="learnt").fit(scores[:1000], labels[:1000])
    otherwise = model.predict_proba(scores).argmax(axis=1) != scores.argmax(axis=1)
    assert advice.rule.share == pytest.approx(otherwise.mean(), abs=0.02)
    assert 'with rule="learnt"' in advice.headline
    line = next(line for line in str(advice).splitlines() if line.startswith("With rule="))
    assert f"In {100 * advice.rule.share:.0f} % of the rows" in line
    assert line.endswith("use the predictions, not the argmax.")
    assert json.loads(json.dumps(advice.to_dict()))["with_rule"] == line
    assert line.partition(": ")[2] in str(weighted.report_data().advice)


def test_an_option_that_clearly_beats_the_default_is_recommended(comparison) -> None:
    result = with_lead(comparison, lead=0.02, noise=0.004)
    assert recommended(result) == ("ts", "direct")
    assert not result.recommendation.is_default
    assert result.recommendation.headline == "Recommended: ts"
    gap = result.difference(DEFAULT, ("ts", "direct"), "nll")
    assert f"beats blend + lift: its NLL is lower by {gap.estimate:.4f}" in str(
        result.recommendation
    )


def test_a_lead_within_noise_is_not_enough(comparison) -> None:
    assert recommended(with_lead(comparison, lead=0.02, noise=0.02)) == DEFAULT


def with_lead(comparison, *, lead: float, noise: float):
    """Return the comparison as if ``ts`` led the default, with so much noise in the lead."""
    reference = comparison["blend"].lift["nll"]
    drawn = comparison.resampled["blend", "lift"]["nll"] - lead
    drawn = drawn + noise * np.random.default_rng(0).normal(size=len(drawn))
    ts = {**comparison["ts"].direct, "nll": reference - lead}
    entries = [replace(e, direct=ts, repaired=ts) if e.key == "ts" else e for e in comparison]
    resampled = dict(comparison.resampled)
    resampled["ts", "direct"] = {**resampled["ts", "direct"], "nll": drawn}
    return replace(comparison, entries=tuple(entries), resampled=resampled)


def test_without_the_default_the_lowest_is_recommended() -> None:
    comparison = cordcal.compare(*simulated(), [Fixed("simple", 1, 2.06), Fixed("other", 9, 2.0)])
    assert comparison.recommendation.key == comparison.best["nll"].key == "other"
    assert not comparison.recommendation.is_default
    assert "lowest NLL of the 3 options" in comparison.recommendation.reason
    assert "blend + lift, was not compared" in comparison.recommendation.reason
    assert [option.key for option in comparison.recommendation.alternatives] == ["simple"]


def test_a_default_that_could_not_run_is_named_with_the_reason() -> None:
    comparison = cordcal.compare(*simulated(rows=400), ["ts", "vs"])
    left_out = replace(comparison, left_out={"blend": "there are too few rows"})
    assert "could not run (there are too few rows)" in left_out.recommendation.reason


def test_a_ranking_is_kept_by_the_blend_with_cord() -> None:
    comparison = cordcal.compare(*simulated(rows=600), ["ts", "blend"], preserve=2)
    assert recommended(comparison) == ("blend", "repaired")
    assert not comparison.recommendation.is_default
    assert "The default, blend + lift, could not run." in comparison.recommendation.reason


def test_a_calibrator_that_is_clearly_worse_is_not_an_alternative() -> None:
    simple, true = Fixed("simple", 1, 3.2), Fixed("true", 9, 2.0)
    noisy = Fixed("noisy", 40, 2.0, wild=2)
    comparison = cordcal.compare(*simulated(), [simple, true, noisy])
    assert comparison.recommendation.key == "true"
    assert comparison.recommendation.alternatives == ()
    assert comparison.recommendation.simpler == ""


def test_many_alternatives_are_counted_and_a_calibrator_is_named_once() -> None:
    comparison = cordcal.compare(*simulated(), ["ts", "ets", "vs", "svs", "blend"])
    names = [option.name for option in comparison.recommendation.alternatives]
    keys = [option.key for option in comparison.recommendation.alternatives]
    assert keys == ["ts", "ets", "vs", "svs"]
    assert comparison.recommendation.simpler.endswith(
        f"{names[0]}, {names[1]}, {names[2]} and 1 more."
    )


def test_simplicity_counts_numbers_then_repairs_and_puts_blend_last() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=600)
    logits = 3.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(600, 3))
    comparison = cordcal.compare(logits, labels, ["blend", "ts", "ets", "vs", "irova"])
    ordered = sorted(
        comparison.preserving(), key=lambda report: recommendation.simplicity(comparison, report)
    )
    assert ordered == [
        ("uncalibrated", "original"),
        ("ts", "direct"),
        ("ets", "direct"),
        ("vs", "repaired"),
        ("vs", "lift"),
        ("irova", "repaired"),
        ("irova", "lift"),
        ("blend", "repaired"),
        ("blend", "lift"),
    ]


def test_changes_pay_only_beyond_what_the_best_of_many_shows() -> None:
    rng = np.random.default_rng(2)
    labels = rng.integers(4, size=3000)
    logits = 2.0 * np.eye(4)[labels] + rng.normal(size=(3000, 4)) + np.array([0, 0, 0, 2.0])
    comparison = cordcal.compare(logits, labels, ["ts", "vs"])
    changing = comparison.recommendation.changing
    assert changing.key == "vs"
    assert changing.n_changed == comparison["vs"].changes.n_changed
    assert changing.accuracy.low > 0.0
    gain = format_interval(changing.accuracy, scale=100, unit=" points")
    assert comparison.recommendation.if_changing == (
        f"If predictions may change: vs (direct) changes {changing.n_changed} of them and improves "
        f"accuracy by {gain}."
    )
    honest = logits - np.array([0, 0, 0, 2.0])
    assert cordcal.compare(honest, labels, ["ts", "vs"]).recommendation.changing is None


def test_one_option_more_can_make_a_lead_unclear() -> None:
    # Two standard errors are clear for one option, not for the best of many.
    rng = np.random.default_rng(1)
    drawn = rng.normal(size=(4000, 40))
    estimates = np.r_[2.0, np.zeros(39)]
    alone = joint_lower_bounds(estimates[:1], estimates[:1] + drawn[:, :1])
    together = joint_lower_bounds(estimates, estimates + drawn)
    assert together[0] < 0.0 < alone[0]


@pytest.mark.parametrize("seed", range(5))
def test_joint_bounds_are_those_of_the_slow_twin(seed: int) -> None:
    rng = np.random.default_rng(seed)
    estimates = rng.normal(size=4)
    drawn = estimates + rng.normal(size=(60, 4)) @ rng.normal(size=(4, 4))
    errors = [np.sqrt(np.mean((drawn[:, k] - estimates[k]) ** 2)) for k in range(4)]
    largest = sorted(max((row[k] - estimates[k]) / errors[k] for k in range(4)) for row in drawn)
    widest = np.quantile(largest, 0.9)
    expected = [estimates[k] - widest * errors[k] for k in range(4)]
    np.testing.assert_allclose(joint_lower_bounds(estimates, drawn, 0.9), expected, rtol=1e-12)


def test_joint_bounds_hold_together_as_often_as_they_promise() -> None:
    # Of 300 draws, binomial(300, 0.95) below 270 has a probability of 2e-4.
    hold = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(200, 10)) + rng.normal(size=(200, 1))
        counts = rng.multinomial(200, np.full(200, 1 / 200), size=400)
        hold += (joint_lower_bounds(rows.mean(axis=0), counts @ rows / 200) <= 0.0).all()
    assert hold >= 270


def test_a_constant_lead_is_its_own_bound() -> None:
    estimates = np.array([0.5, 0.0])
    drawn = np.broadcast_to(estimates, (50, 2))
    np.testing.assert_array_equal(joint_lower_bounds(estimates, drawn), estimates)


def test_the_ways_out_are_named_where_many_predictions_are_kept_against_the_evidence() -> None:
    rng = np.random.default_rng(3)
    labels = rng.integers(5, size=3000)
    agreeing = 2.5 * np.eye(5)[labels] + rng.normal(size=(3000, 5))
    for bias, many in ((2.0, True), (0.0, False)):
        comparison = cordcal.compare(agreeing + bias * np.eye(5)[0], labels, ["ts", "blend"])
        kept = comparison["blend"].kept
        assert (kept.gap.at_bound >= 0.05) == many
        assert abs(kept.gap.after[0]) < 0.02
        low, high = kept.gap.after[1:]
        assert low < kept.gap.after[0] < high
        text = str(comparison.recommendation)
        assert "Confidence minus accuracy" in text
        assert f"{100 * kept.gap.at_bound:.1f} % of the predictions are kept" in text
        for way in ('prefer="likelihood" (NLL', 'rule="learnt"', "direct (NLL"):
            assert (way in text) == many
        assert kept.likelihood["nll"] <= comparison["blend"].lift["nll"] + 1e-3
        if many:
            assert kept.likelihood["ece"] > comparison["blend"].lift["ece"] + 0.05


def test_a_lower_nll_with_a_clearly_higher_ece_does_not_beat_the_default() -> None:
    rng = np.random.default_rng(3)
    labels = rng.integers(5, size=4000)
    logits = 2.5 * np.eye(5)[labels] + rng.normal(size=(4000, 5)) + 2.0 * np.eye(5)[0]
    comparison = cordcal.compare(logits, labels, ["vs", "blend"])
    cord = ("vs", "repaired")
    assert comparison.measures(*cord)["nll"] < comparison.measures(*DEFAULT)["nll"]
    assert cord not in recommendation.as_honest(comparison, DEFAULT, comparison.preserving())
    assert recommended(comparison) == DEFAULT
    assert "vs + CORD" not in comparison.recommendation.simpler


def test_with_few_errors_the_default_is_recommended() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=500)
    logits = 9.0 * np.eye(3)[labels] + rng.normal(size=(500, 3))
    logits[:6] = logits[:6, ::-1]
    comparison = cordcal.compare(logits, labels, ["ts", "vs", "blend"])
    assert 0 < recommendation.errors_of(comparison) < 10
    assert recommended(comparison) == DEFAULT
    assert "too few to tell options apart" in comparison.recommendation.reason


def test_without_errors_there_is_no_recommendation() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(400, 3))
    with pytest.warns(UserWarning, match="every prediction is right"):
        comparison = cordcal.compare(logits, logits.argmax(axis=1), ["ts", "blend"])
    assert comparison.recommendation.key is None
    assert "used for training" in comparison.recommendation.reason


def test_copies_of_a_row_are_on_one_side() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=250)
    logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(250, 3))
    logits[246:], labels[246:] = logits[:4], labels[:4]
    comparison = cordcal.compare(logits, labels, ["ts", "blend"])
    assert "overlap" not in [caveat.key for caveat in comparison.caveats]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    logits, labels = simulated(5, 1200)
    np.savez("scores.npz", logits=logits, labels=labels)
    np.savez("new.npz", logits=simulated(6, 50)[0])
    return tmp_path


def test_the_next_step_runs_as_it_is_printed(folder, call) -> None:
    code, output, errors = call("compare", "scores.npz", "--calibrator", "ts")
    assert code == 0, errors
    lines = output.split("Next\n")[1].splitlines()
    shell = [line.strip() for line in lines if line.startswith("  cordcal ")]
    assert len(shell) == 2
    with np.load("scores.npz") as scores:
        step = cordcal.compare(scores["logits"], scores["labels"], ["ts"]).next_step()
        for_table = cordcal.compare(scores["logits"], scores["labels"], ["ts"]).next_step("a.csv")
    assert shell == list(step.shell)
    assert_the_same(call, shell, step.python)
    assert for_table.shell[1].split()[-3:] == ["new.csv", "--output", "repaired.csv"]


def assert_the_same(call, shell: Sequence[str], python: Sequence[str]) -> None:
    """Run the lines of both kinds; they report the same."""
    for line in shell:
        code, _, errors = call(*shlex.split(line)[1:])
        assert code == 0, errors
    with np.load("repaired.npz") as written:
        by_command = written["repaired"]
    Path("step.py").write_text("\n".join(python))
    by_python = runpy.run_path("step.py")["repaired"]
    np.testing.assert_allclose(by_command, by_python, rtol=1e-12)


@pytest.mark.parametrize("key", ["svs", "blend"])
def test_the_next_step_of_a_lift_runs_as_it_is_printed(folder, call, key: str) -> None:
    with np.load("scores.npz") as arrays:
        comparison = cordcal.compare(arrays["logits"], arrays["labels"], [key])
    comparison.__dict__["recommendation"] = replace(
        comparison.recommendation, key=key, output="lift", is_default=key == "blend"
    )
    step = comparison.next_step("scores.npz")
    # The default needs no options.
    assert ("--repair lift" in step.shell[0]) == (key != "blend")
    assert ("--calibrator" in step.shell[0]) == (key != "blend")
    assert_the_same(call, step.shell, step.python)
    assert isinstance(cordcal.load("model.safetensors").repair_, cordcal.Lift)


def test_an_object_of_ones_own_has_no_lines_to_paste() -> None:
    comparison = cordcal.compare(*simulated(0), [Fixed("mine", 1, 2.0)])
    comparison.__dict__["recommendation"] = replace(
        comparison.recommendation, key="mine", output="direct"
    )
    assert comparison.next_step() is None


def test_an_audit_is_strict_too(folder, call) -> None:
    with np.load("scores.npz") as arrays:
        logits, labels = arrays["logits"], arrays["labels"]
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.savez("p.npz", probs=p, labels=(labels + 1) % p.shape[1])
    np.savez("q.npz", probs=p)
    run = ["audit", "--original", "p.npz", "--direct", "q.npz"]
    assert call(*run)[0] == 0
    code, output, _ = call(*run, "--strict")
    assert code == 1
    assert output.splitlines()[1].startswith("! accuracy")
    code, output, _ = call(*run, "--strict", "--json")
    assert code == 1
    assert json.loads(output)["caveats"][0]["key"] == "labels"


def test_strict_fails_on_what_is_to_be_checked_and_only_then(folder, call) -> None:
    run = ["compare", "scores.npz", "--calibrator", "ts", "--strict"]
    assert call(*run)[0] == 0
    with np.load("scores.npz") as arrays:
        wrong = arrays["labels"] + 1
        np.savez("wrong.npz", logits=arrays["logits"][wrong < 4], labels=wrong[wrong < 4])
    run[1] = "wrong.npz"
    code, output, _ = call(*run)
    assert code == 1
    assert output.splitlines()[1].startswith("! accuracy")
    assert "next step" not in output
    assert call(*run[:-1])[0] == 0
