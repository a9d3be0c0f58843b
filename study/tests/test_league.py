"""The league: rounds that say what the library says, standings, claims, advice, pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cordcal import PreservingCalibrator, metrics
from cordcal.calibrators import calibrator_class, crossfit
from cordcal_study.chapters import Table
from cordcal_study.data import Rows, SetData, load_set
from cordcal_study.experiments import LEAGUE_EXPERIMENTS
from cordcal_study.figures import save_figure
from cordcal_study.league import fixtures
from cordcal_study.league.claims import judge, keepers
from cordcal_study.league.rounds import ORIGINAL, Played, Report, Round, RoundTask
from cordcal_study.league.standings import Losses, duels, interval, ranked, ranks, win_rates
from cordcal_study.plan import Plan
from cordcal_study.specs import Claim, League, SetSpec, Study
from cordcal_study.tidy import Result
from errors import refused

A, B, C = Report("ts"), Report("sms", "cord"), Report("sms")
NAMES = ("accuracy", "nll", "nll_1e-6", "brier", "ece", "tpcr")


def losses(values: list[list[float]], sets: str, sources: str) -> Losses:
    """Return a table of reports A, B, C with one letter a round."""
    return Losses((A, B, C), np.array(values), tuple(sets), tuple(sources))


def result(source: str, report: Report, value: float, **other: object) -> Result:
    made = Result("G", f"net {source}", source, "network", 10, "all", 0, *report, "nll", value)
    return made._replace(**other)


def test_every_source_counts_the_same_however_many_sets_it_has() -> None:
    table = losses([[1, 2, 3], [1, 2, 3], [1, 2, 3], [2, 1, 3]], "aabc", "xxxy")
    assert win_rates(table).tolist() == [[1.0, 0.5, 0.0], [0.5, 1.0, 0.0]]
    assert interval(win_rates(table)).mean.tolist() == [0.75, 0.75, 0.0]
    # Within a source every set counts the same: b has one round, a has two.
    table = losses([[1, 2, 3], [1, 2, 3], [2, 1, 3]], "aab", "xxx")
    assert duels(table)[0, 0, 1] == 0.5
    assert np.isnan(duels(table)[0, 0, 0])


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


def test_ranks_ask_for_reports_that_played_everywhere() -> None:
    table = losses([[1, 2, np.nan], [2, 1, np.nan], [3, 2, 1]], "abc", "xyz")
    there = ranked(table)
    assert there.reports == (A, B)  # the third played on one set of three
    assert ranks(there).tolist() == [[1, 2], [2, 1], [2, 1]]
    whole = ranked(
        losses([[1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 2, 3], [1, np.nan, 3]], "abcde", "vwxyz")
    )
    assert (len(whole.reports), len(whole.values)) == (3, 4)


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
    # Neither the original nor a report that changes decisions is among those that keep them.
    assert keepers(results) == {B}
    verdict = judge(Claim("", "ts", ("keepers",)), results)
    assert [duel.against for duel in verdict.duels] == [B]
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


def task(spec: SetSpec, keys: tuple[str, ...], **other: object) -> RoundTask:
    facts = load_set(spec).facts()
    at = Round("g", "net", "all", 1)
    made = RoundTask(at, spec, facts, keys, ("cord", "lift"), 200, 150, spec.file.parent / "cells")
    return replace(made, **other)  # type: ignore[arg-type]


def test_a_round_says_what_the_library_says(spec: SetSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[object] = []
    fit_calibrator = crossfit.fit_calibrator
    monkeypatch.setattr(
        crossfit,
        "fit_calibrator",
        lambda model, *rest: fits.append(model) or fit_calibrator(model, *rest),
    )
    one = task(spec, ("ts", "vs", "irova", "blend"))
    monkeypatch.setattr("cordcal.calibrators.blend._MEMBERS", ("ts", "vs", "irova"))
    assert one.stored() is None
    played = one.compute()
    # One fit on all rows and five folds of three maps: lift and blend share them.
    assert len(fits) == 3 * 6
    assert one.stored() == played
    fit, evaluation = load_set(spec).drawn(1, 200, 150)
    assert (len(fit), len(evaluation)) == (200, 150)
    decision = evaluation.scores.argmax(axis=1)
    for key in ("vs", "irova", "blend"):
        for repair in ("cord", "lift"):
            model = PreservingCalibrator(key, repair=repair).fit(fit.scores, fit.labels)
            report = model.predict_proba(evaluation.scores)
            found = played.measures[Report(key, repair)]
            assert found["nll"] == pytest.approx(metrics.nll(report, evaluation.labels), abs=1e-12)
            assert found["brier"] == pytest.approx(metrics.brier(report, evaluation.labels))
            assert found["tpcr"] == 0.0
        assert played.measures[Report(key)]["tpcr"] == metrics.tpcr(
            decision, model.direct_proba(evaluation.scores)
        )
    assert Report("ts", "cord") not in played.measures  # it keeps decisions by itself
    assert 0.0 < played.measures[Report("vs", "cord")]["at_bound"] < 1.0


def test_who_cannot_play_is_named_and_a_damaged_round_too(
    spec: SetSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("too few rows")

    monkeypatch.setattr(calibrator_class("vs"), "_fit", refuse)
    one = task(spec, ("vs", "ts"))
    played = one.compute()
    assert played.refused == {"vs": "too few rows"}
    assert Report("ts") in played.measures
    one.path().write_text("{", encoding="utf-8")
    with refused(naming=one.path().name):
        one.stored()
    assert task(spec, ("ts",)).path() != one.path() != task(spec, ("ts",), most_rows=100).path()


def plan_of(specs: tuple[SetSpec, ...], classes: int = 3, **league: object) -> Plan:
    rows = Rows(np.zeros((2000, classes)), np.zeros(2000, dtype=np.int64))
    study = Study("t", specs, league=League(**league), answers=("L",))  # type: ignore[arg-type]
    facts = {
        (spec.group, spec.name): SetData("logits", rows, rows if spec.paired else None, {}).facts()
        for spec in specs
    }
    return Plan(study, facts)


def test_fixtures_follow_the_stated_rules() -> None:
    path = Path("x.npz")
    halves = SetSpec("net", "G", path)
    pair = SetSpec("pair", "G", path, evaluation=path)
    away = SetSpec("away", "G", path, league=False)
    keys = ("ts", "sms", "adats")
    plan = plan_of((halves, pair, away), 100, calibrators=keys, most_classes={"sms": 99})
    made = [
        (task.round.set, task.round.rows, task.most_rows) for task in fixtures.tasks(plan, path)
    ]
    assert made.count(("net", "300", 300)) == 3
    assert made.count(("net", "1000", 1000)) == 0  # that is half of the rows: all
    assert made.count(("net", "all", 1000)) == 3
    assert made.count(("pair", "1000", 1000)) == 3
    assert made.count(("pair", "all", 2000)) == 1  # the same for every seed
    assert "away" not in {name for name, _, _ in made}
    league = plan.study.league
    assert league is not None
    reasons = fixtures.left_out(plan, league, halves)
    assert reasons["sms"] == "the league has it up to 99 classes, for its time"
    assert set(reasons) == {"sms", "adats"}


def rounds_of(plan: Plan, value: Callable[[Round, Report, str], float]) -> dict[Round, Played]:
    found = {}
    for each in fixtures.tasks(plan, Path("cells")):
        reports = [ORIGINAL]
        for key in each.calibrators:
            reports.append(Report(key))
            if key not in ("ts", "ets"):
                reports += [Report(key, repair) for repair in each.repairs]
        found[each.round] = Played(
            {
                report: {name: value(each.round, report, name) for name in NAMES}
                | {"at_bound": 0.25, "bound_gap": 0.2, "gap": 0.06}
                for report in reports
            }
        )
    return found


def league_value(at: Round, report: Report, measure: str) -> float:
    if measure == "tpcr":
        return 0.1 if report in (Report("sms"), Report("blend")) else 0.0
    if measure == "accuracy":
        return 0.8
    order = {"blend + lift": 0.1, "blend": 0.15, "blend + cord": 0.2, "sms + lift": 0.3}
    return order.get(report.name, 0.9 if report == ORIGINAL else 0.5)


def cells(table: Table, name: str) -> list[str]:
    return [row[table.header.index(name)][0].text for row in table.rows]


def test_the_page_says_who_wins_where_and_what_became_of_the_claims(tmp_path: Path) -> None:
    specs = tuple(
        SetSpec(f"net {source}", "G", Path("x.npz"), source=source, family=f"family {source}")
        for source in "vwxyz"
    )
    claims = (
        Claim("Blend with lift wins.", "blend + lift", ("keepers",)),
        Claim("SMS with CORD wins.", "sms + cord", ("ts",)),
    )
    plan = plan_of(specs, calibrators=("ts", "sms", "blend"), claims=claims, seeds=(0,))
    chapter = LEAGUE_EXPERIMENTS["league"](plan, rounds_of(plan, league_value))
    tables = {table.name: table for table in chapter.tables}
    assert cells(tables["claims"], "Outcome") == ["holds", "does not hold"]
    assert cells(tables["claims"], "Hardest")[0].startswith("100 % [100, 100] against ")
    when = tables["when"]
    alike = {"all", "2 to 10 classes", "300 calibration rows", "all calibration rows"}
    alike |= {"accuracy 0.7 to 0.9", *(f"family {source}" for source in "vwxyz")}
    assert set(cells(when, "Sets like")) == alike
    assert cells(when, "Keeps, by NLL")[0].startswith("Blend + lift, 100 % [100, 100]; 0 of")
    assert cells(when, "Sets (sources)")[:2] == ["5 (5)", "5 (5)"]
    standings = tables["standings-keepers"]
    assert cells(standings, "Report")[:2] == ["Blend + lift", "Blend + CORD"]
    assert cells(standings, "PHI NLL")[0] == "0.8000"
    assert "SMS" not in cells(standings, "Report")
    assert cells(tables["standings-all"], "TPCR (%)").count("10.00") == 2
    assert cells(tables["duels-blend-lift"], "Against")[0] != "Blend + lift"
    leader = "Blend + lift among those that keep every decision"
    assert any(leader in each for each in chapter.paragraphs)
    pytest.importorskip("matplotlib")
    for figure in chapter.figures:
        save_figure(figure, tmp_path / "drawn.png")
        assert (tmp_path / "drawn.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("repaired", "words"),
    [
        ({"nll": 0.4, "brier": 0.4, "ece": 0.7}, "by the proper scores, and not by ECE"),
        ({"nll": 0.4, "brier": 0.4, "ece": 0.4}, "by ECE it does not mostly lose"),
        ({"nll": 0.4, "brier": 0.7, "ece": 0.4}, "does not win by both proper scores"),
    ],
)
def test_the_account_of_answers_says_what_the_figures_say(
    repaired: dict[str, float], words: str
) -> None:
    def value(at: Round, report: Report, measure: str) -> float:
        if report.repair != "direct":
            return repaired.get(measure, 0.0)
        if measure == "tpcr":
            return 0.1 if report.calibrator in ("sms", "vs") else 0.0
        return 0.5

    specs = tuple(SetSpec(f"model {index}", "L", Path("x.npz"), source="q") for index in range(2))
    plan = plan_of(specs, calibrators=("ts", "ets", "sms", "vs"), seeds=(0,))
    chapter = LEAGUE_EXPERIMENTS["answers"](plan, rounds_of(plan, value))
    account = " ".join(chapter.paragraphs)
    assert words in account
    lost = repaired["ece"] > 0.5
    assert ("no vector with that argmax can say so" in account) == lost
    assert "there is one source, and no interval" in account
    assert f"NLL from {repaired['nll']:.3f} to {repaired['nll']:.3f}" in account
    won = chapter.tables[0]
    assert cells(won, "CORD: NLL") == ["2/2", "2/2"]
    assert cells(won, "lift: ECE") == (["0/2", "0/2"] if lost else ["2/2", "2/2"])
