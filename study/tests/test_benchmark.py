"""The benchmark: trials that agree with the library, rankings, claims, tables, figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cordcal import PreservingCalibrator, metrics
from cordcal.calibrators import calibrator_class, crossfit
from cordcal_study.benchmark.ranking import (
    Losses,
    interval,
    judge,
    preserving,
    ranked,
    ranks,
    win_matrix,
    win_rates,
)
from cordcal_study.benchmark.trials import (
    ORIGINAL,
    Output,
    Trial,
    TrialResult,
    TrialTask,
    left_out,
    measure_bound,
    schedule,
)
from cordcal_study.cells import Plan
from cordcal_study.chapters import Table
from cordcal_study.data import Rows, SetData, load_set
from cordcal_study.experiments import BENCHMARK_EXPERIMENTS
from cordcal_study.experiments.benchmark import results_of
from cordcal_study.figures import save_png
from cordcal_study.specs import Benchmark, Claim, SetSpec, Study
from cordcal_study.tidy import Result
from errors import refused

A, B, C = Output("ts"), Output("sms", "cord"), Output("sms")
NAMES = ("accuracy", "nll", "nll_1e-6", "brier", "ece", "tpcr")


def losses(values: list[list[float]], sets: str, sources: str) -> Losses:
    """Return a table of outputs A, B, C with one letter per trial."""
    return Losses((A, B, C), np.array(values), tuple(sets), tuple(sources))


def result(source: str, output: Output, value: float, **other: object) -> Result:
    made = Result("G", f"net {source}", source, "network", 10, "all", 0, *output, "nll", value)
    return made._replace(**other)


def test_every_source_counts_the_same_however_many_sets_it_has() -> None:
    table = losses([[1, 2, 3], [1, 2, 3], [1, 2, 3], [2, 1, 3]], "aabc", "xxxy")
    assert win_rates(table).tolist() == [[1.0, 0.5, 0.0], [0.5, 1.0, 0.0]]
    assert interval(win_rates(table)).mean.tolist() == [0.75, 0.75, 0.0]
    # Within a source every set counts the same: b has one trial, a has two.
    table = losses([[1, 2, 3], [1, 2, 3], [2, 1, 3]], "aab", "xxx")
    assert win_matrix(table)[0, 0, 1] == 0.5
    assert np.isnan(win_matrix(table)[0, 0, 0])


def test_few_sources_have_no_interval_and_several_have() -> None:
    alone = interval(np.array([[0.2, 0.7]]))
    assert alone.mean.tolist() == [0.2, 0.7]
    assert np.isnan(alone.low).all()
    several = interval(np.array([[0.0], [1.0], [1.0], [1.0], [1.0]]))
    assert several.low[0] < several.mean[0] == 0.8 < several.high[0]
    some = np.array([[np.nan, 1.0, 0.0]] + [[0.5, 1.0, 1.0]] * 4 + [[0.5, 0.0, np.nan]] * 2)
    missing = interval(some)
    assert missing.mean.tolist() == [0.5, pytest.approx(5 / 7), 0.8]
    assert missing.low[0] == missing.high[0] == 0.5
    assert missing.low[2] < 0.8 < missing.high[2]


def test_ranks_need_outputs_that_ran_everywhere() -> None:
    table = losses([[1, 2, np.nan], [2, 1, np.nan], [3, 2, 1]], "abc", "xyz")
    common = ranked(table)
    assert common.outputs == (A, B)  # the third ran on one set of three
    assert ranks(common).tolist() == [[1, 2], [2, 1], [2, 1]]
    whole = ranked(
        losses([[1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 2, 3], [1, np.nan, 3]], "abcde", "vwxyz")
    )
    assert (len(whole.outputs), len(whole.values)) == (3, 4)


@pytest.mark.parametrize(
    ("values", "outcome"),
    [
        ([0.1, 0.1, 0.1, 0.1, 0.1], "holds"),
        ([0.1, 0.1, 0.1, 0.1, 0.9], "holds on average"),
        ([0.1, 0.9, 0.9, 0.9, 0.9], "does not hold"),
        ([0.5, 0.5, 0.5, 0.5, 0.5], "does not hold"),
        ([0.1, 0.1, 0.1, 0.1], "holds on average"),
    ],
)
def test_a_claim_holds_only_where_every_interval_is_above_one_half(
    values: list[float], outcome: str
) -> None:
    results = []
    for source, value in zip("vwxyz", values, strict=False):
        results += [result(source, A, value), result(source, B, 0.5)]
        results += [result(source, ORIGINAL, 0.05), result(source, C, 0.05)]
        results += [result(source, C, 0.1, measure="tpcr"), result(source, B, 0.0, measure="tpcr")]
    # Neither the original nor an output that changes predictions is among those that keep them.
    assert preserving(results) == {B}
    verdict = judge(Claim("", "ts", ("preserving",)), results)
    assert [comparison.against for comparison in verdict.comparisons] == [B]
    assert verdict.outcome == outcome
    assert judge(Claim("", "ts", ("all",)), results).outcome == "does not hold"
    assert judge(Claim("", "vs", ("all",)), results).outcome == "not decided"
    assert judge(Claim("", "ts", ("all",), groups=("H",)), results).outcome == "not decided"


@pytest.fixture
def spec(tmp_path: Path) -> SetSpec:
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=600)
    logits = 2.0 * np.eye(4)[labels] + np.array([1.0, 0, 0, 0]) + 1.5 * rng.normal(size=(600, 4))
    np.savez(tmp_path / "a.npz", logits=logits, labels=labels)
    return SetSpec("net", "g", tmp_path / "a.npz", source="s")


def task(spec: SetSpec, keys: tuple[str, ...], **other: object) -> TrialTask:
    facts = load_set(spec).facts()
    at = Trial("g", "net", "all", 1)
    made = TrialTask(at, spec, facts, keys, ("cord", "lift"), 200, 150, spec.file.parent / "cells")
    return replace(made, **other)  # type: ignore[arg-type]


def test_a_trial_agrees_with_the_library(spec: SetSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[object] = []
    on_all_rows, on_folds = crossfit.FitCache._fit, crossfit.cross_fit
    monkeypatch.setattr(
        crossfit.FitCache,
        "_fit",
        lambda self, model: fits.append(model) or on_all_rows(self, model),
    )
    monkeypatch.setattr(
        crossfit, "cross_fit", lambda model, *rows: fits.append(model) or on_folds(model, *rows)
    )
    one = task(spec, ("ts", "vs", "irova", "blend"))
    monkeypatch.setattr("cordcal.calibrators.blend._MEMBERS", ("ts", "vs", "irova"))
    assert one.stored() is None
    result = one.compute()
    # Three calibrators, each on all rows and on the folds: lift and blend share these fits, except
    # those of vs, which the blend fits on log-probabilities.
    assert len(fits) == 3 * 2 + 2
    assert one.stored() == result
    fit, evaluation = load_set(spec).drawn(1, 200, 150)
    assert (len(fit), len(evaluation)) == (200, 150)
    prediction = evaluation.scores.argmax(axis=1)
    for key in ("vs", "irova", "blend"):
        for repair in ("cord", "lift"):
            model = PreservingCalibrator(key, repair=repair).fit(fit.scores, fit.labels)
            output = model.predict_proba(evaluation.scores)
            values = result.measures[Output(key, repair)]
            assert values["nll"] == pytest.approx(metrics.nll(output, evaluation.labels), abs=1e-12)
            assert values["brier"] == pytest.approx(metrics.brier(output, evaluation.labels))
            assert values["tpcr"] == 0.0
        assert result.measures[Output(key)]["tpcr"] == metrics.tpcr(
            prediction, model.direct_proba(evaluation.scores)
        )
    assert Output("ts", "cord") not in result.measures  # it keeps predictions by itself
    assert 0.0 < result.measures[Output("vs", "cord")]["at_bound"] < 1.0


def test_rows_at_the_bound_are_measured() -> None:
    direct = np.array([[0.2, 0.8, 0.0], [0.6, 0.4, 0.0], [0.3, 0.35, 0.35]])
    prediction = np.zeros(3, dtype=np.intp)
    # With the others' proportions kept, the least masses are 1/2, 1/2 and 1/3.
    repaired = np.array([[0.5, 0.5, 0.0], [0.6, 0.4, 0.0], [0.4, 0.3, 0.3]])
    measured = measure_bound(repaired, direct, prediction, np.array([0, 1, 2]))
    assert measured == pytest.approx({"at_bound": 1 / 3, "bound_gap": -0.5, "gap": 1.5 / 3 - 1 / 3})


def test_failures_and_damaged_trials_are_named(
    spec: SetSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("too few rows")

    monkeypatch.setattr(calibrator_class("vs"), "fit_parameters", refuse)
    one = task(spec, ("vs", "ts"))
    result = one.compute()
    assert result.refused == {"vs": "too few rows"}
    assert Output("ts") in result.measures
    one.path().write_text("{", encoding="utf-8")
    with refused(naming=one.path().name):
        one.stored()
    assert task(spec, ("ts",)).path() != one.path() != task(spec, ("ts",), max_rows=100).path()


def plan_of(specs: tuple[SetSpec, ...], classes: int = 3, **benchmark: object) -> Plan:
    rows = Rows(np.zeros((2000, classes)), np.zeros(2000, dtype=np.int64))
    study = Study("t", specs, benchmark=Benchmark(**benchmark), answers=("L",))  # type: ignore[arg-type]
    facts = {
        (spec.group, spec.name): SetData("logits", rows, rows if spec.paired else None, {}).facts()
        for spec in specs
    }
    return Plan(study, facts)


def test_the_schedule_follows_the_stated_rules() -> None:
    path = Path("x.npz")
    halves = SetSpec("net", "G", path)
    pair = SetSpec("pair", "G", path, evaluation=path)
    away = SetSpec("away", "G", path, benchmark=False)
    keys = ("ts", "sms", "adats")
    plan = plan_of((halves, pair, away), 100, calibrators=keys, max_classes={"sms": 99})
    made = [(task.trial.set, task.trial.rows, task.max_rows) for task in schedule(plan, path)]
    assert made.count(("net", "300", 300)) == 3
    assert made.count(("net", "1000", 1000)) == 0  # that is half of the rows: all
    assert made.count(("net", "all", 1000)) == 3
    assert made.count(("pair", "1000", 1000)) == 3
    assert made.count(("pair", "all", 2000)) == 1  # the same for every seed
    assert "away" not in {name for name, _, _ in made}
    benchmark = plan.study.benchmark
    assert benchmark is not None
    reasons = left_out(plan, benchmark, halves)
    assert reasons["sms"] == "takes too long beyond 99 classes"
    assert set(reasons) == {"sms", "adats"}


def trials_of(plan: Plan, value: Callable[[Trial, Output, str], float]) -> list[Result]:
    trials = {}
    for entry in schedule(plan, Path("cells")):
        outputs = [ORIGINAL]
        for key in entry.calibrators:
            outputs.append(Output(key))
            if key not in ("ts", "ets"):
                outputs += [Output(key, repair) for repair in entry.repairs]
        trials[entry.trial] = TrialResult(
            {
                output: {name: value(entry.trial, output, name) for name in NAMES}
                | {"at_bound": 0.25, "bound_gap": 0.2, "gap": 0.06}
                for output in outputs
            }
        )
    return results_of(plan, trials)


def benchmark_value(at: Trial, output: Output, measure: str) -> float:
    if measure == "tpcr":
        return 0.1 if output in (Output("sms"), Output("blend")) else 0.0
    if measure == "accuracy":
        return 0.8
    order = {"blend + lift": 0.1, "blend": 0.15, "blend + cord": 0.2, "sms + lift": 0.3}
    return order.get(output.name, 0.9 if output == ORIGINAL else 0.5)


def cells(table: Table, name: str) -> list[str]:
    return [row[table.header.index(name)][0].text for row in table.rows]


def test_the_chapter_shows_the_best_by_kind_and_the_outcomes_of_claims(tmp_path: Path) -> None:
    specs = tuple(
        SetSpec(f"net {source}", "G", Path("x.npz"), source=source, family=f"family {source}")
        for source in "vwxyz"
    )
    claims = (
        Claim("Blend with lift wins.", "blend + lift", ("preserving",)),
        Claim("SMS with CORD wins.", "sms + cord", ("ts",)),
    )
    plan = plan_of(specs, calibrators=("ts", "sms", "blend"), claims=claims, seeds=(0,))
    chapter = BENCHMARK_EXPERIMENTS["benchmark"](plan, trials_of(plan, benchmark_value))
    tables = {table.name: table for table in chapter.tables}
    assert cells(tables["claims"], "Outcome") == ["holds", "does not hold"]
    assert cells(tables["claims"], "Hardest")[0].startswith("100 % [100, 100] against ")
    when = tables["when"]
    alike = {"all", "2 to 10 classes", "300 calibration rows", "all calibration rows"}
    alike |= {"accuracy 0.7 to 0.9", *(f"family {source}" for source in "vwxyz")}
    assert set(cells(when, "Sets like")) == alike
    assert cells(when, "Keeps predictions, by NLL")[0].startswith(
        "Blend + lift, 100 % [100, 100]; 0 of"
    )
    assert cells(when, "Sets (sources)")[:2] == ["5 (5)", "5 (5)"]
    ranking = tables["ranking-preserving"]
    assert cells(ranking, "Output")[:2] == ["Blend + lift", "Blend + CORD"]
    assert cells(ranking, "NLL gain")[0] == "0.8000"
    assert "SMS" not in cells(ranking, "Output")
    assert cells(tables["ranking-all"], "Predictions changed (%)").count("10.00") == 2
    assert cells(tables["comparisons-blend-lift"], "Against")[0] != "Blend + lift"
    leader = "Blend + lift among those that keep every prediction"
    assert any(leader in paragraph for paragraph in chapter.paragraphs)
    pytest.importorskip("matplotlib")
    for figure in chapter.figures:
        save_png(figure, tmp_path / "drawn.png")
        assert (tmp_path / "drawn.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("repaired", "words"),
    [
        ({"nll": 0.4, "brier": 0.4, "ece": 0.7}, "by the proper scores, and not by ECE"),
        ({"nll": 0.4, "brier": 0.4, "ece": 0.4}, "by ECE do not mostly lose"),
        ({"nll": 0.4, "brier": 0.7, "ece": 0.4}, "do not win by both proper scores"),
    ],
)
def test_the_account_of_answers_says_what_the_figures_say(
    repaired: dict[str, float], words: str
) -> None:
    def value(at: Trial, output: Output, measure: str) -> float:
        if output.repair != "direct":
            return repaired.get(measure, 0.0)
        if measure == "tpcr":
            return 0.1 if output.calibrator in ("sms", "vs") else 0.0
        return 0.5

    specs = tuple(SetSpec(f"model {index}", "L", Path("x.npz"), source="q") for index in range(2))
    plan = plan_of(specs, calibrators=("ts", "ets", "sms", "vs"), seeds=(0,))
    chapter = BENCHMARK_EXPERIMENTS["answers"](plan, trials_of(plan, value))
    account = " ".join(chapter.paragraphs)
    assert words in account
    lost = repaired["ece"] > 0.5
    assert ("no vector with that argmax can show it" in account) == lost
    assert "there is one source, and no interval" in account
    assert f"NLL from {repaired['nll']:.3f} to {repaired['nll']:.3f}" in account
    won = chapter.tables[0]
    assert cells(won, "CORD: NLL") == ["2/2", "2/2"]
    assert cells(won, "lift: ECE") == (["0/2", "0/2"] if lost else ["2/2", "2/2"])
