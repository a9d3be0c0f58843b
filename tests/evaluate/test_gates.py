"""Gates: what passes, what fails, and that what could not run never passes."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import stats

import cordcal
from cordcal import PredictionRule, metrics
from cordcal.evaluate.baseline import Baseline
from cordcal.evaluate.bounds import upper_mean
from cordcal.evaluate.gates import Gate, check
from cordcal.metrics import METRICS
from cordcal.metrics.base import LabelledRows, ProbabilityMatrix
from errors import refused


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    report = rng.dirichlet(np.full(3, 0.5), 600)
    return report, np.array([rng.choice(3, p=row) for row in report])


@pytest.mark.parametrize("name", ["nll", "brier", "ece", "classwise_ece"])
def test_a_metric_is_compared_with_its_limit(rows, name: str) -> None:
    report, labels = rows
    value = getattr(metrics, name)(report, labels)
    for limit, outcome in ((value, "passed"), (np.nextafter(value, 0.0), "failed")):
        (verdict,) = check(report, labels, gates=[Gate(name, limit)]).verdicts
        assert (verdict.outcome, verdict.value) == (outcome, value)


def test_a_smallest_value(rows) -> None:
    report, labels = rows
    gates = [Gate.parse("accuracy", 0.99, "min"), Gate.parse("accuracy", 0.2, "min")]
    outcomes = [verdict.outcome for verdict in check(report, labels, gates=gates).verdicts]
    assert outcomes == ["failed", "passed"]


def test_predictions_that_must_stay(rows) -> None:
    report, _ = rows
    moved = report.copy()
    moved[0] = np.roll(moved[0], 1)
    assert check(report, original=report, gates=[Gate("tpcr", 0.0)]).outcome == "passed"
    result = check(moved, original=report, gates=[Gate("tpcr", 0.0)])
    assert result.outcome == "failed"
    assert result.verdicts[0].value == pytest.approx(1 / 600)
    decided = check(moved, original=report.argmax(axis=1), gates=[Gate("tpcr", 0.0)])
    assert decided.verdicts[0].value == result.verdicts[0].value


def test_the_worst_class_and_the_worst_group(rows) -> None:
    report, labels = rows
    groups = np.where(np.arange(600) < 10, "few", np.where(np.arange(600) < 300, "a", "b"))
    for over, parts in (("class", report.argmax(axis=1)), ("group", groups)):
        gate = Gate.parse(f"nll.{over}", 9.0)
        (verdict,) = check(report, labels, groups=groups, gates=[gate]).verdicts
        own = {
            str(name): metrics.nll(report[parts == name], labels[parts == name])
            for name in np.unique(parts)
        }
        name = next(name for name in own if f"for the {over} {name} (" in verdict.reading)
        assert verdict.estimate == own[name]
        assert verdict.value == verdict.estimate - verdict.chance
        assert verdict.chance > 0.0


def test_a_calibrated_small_class_passes_and_a_broken_one_fails() -> None:
    """The error of a calibrated class of 30 rows is chance; it passes a limit of 1 %."""
    gate = Gate.parse("ece.class", "1%")
    failures = broken = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        report = rng.dirichlet(np.ones(2), 130)
        report[30:] = np.sort(report[30:], axis=1)  # class 1
        report[:30] = np.sort(report[:30], axis=1)[:, ::-1]  # class 0, 30 rows
        labels = (rng.random(130) > report[:, 0]).astype(int)
        (verdict,) = check(report, labels, gates=[gate], seed=seed).verdicts
        assert verdict.estimate > 0.01
        failures += verdict.outcome == "failed"
        labels[:30] = 1
        broken += check(report, labels, gates=[gate], seed=seed).outcome == "failed"
    assert failures <= 4
    assert broken == 40


@pytest.mark.parametrize("name", [name for name in METRICS if name != "accuracy"])
def test_drawn_values_are_the_metrics_of_drawn_labels(name: str) -> None:
    """Many draws at once have the distribution of one draw at a time, and the stated moments."""
    from cordcal.evaluate.chance import _Draws

    rng = np.random.default_rng(0)
    report = rng.dirichlet(np.full(4, 0.5), 120)
    matrix = ProbabilityMatrix.from_array(report, "probabilities")
    draws = _Draws(matrix, np.array([0, 60, 120]), None)
    at_once, moments = draws.of(replace(METRICS[name], draws=400), 0.05, rng)
    part = report[60:]
    truth = [(part.cumsum(axis=1) > rng.random((60, 1))).argmax(axis=1) for _ in range(400)]
    one_by_one = np.array([METRICS[name].function(part, labels) for labels in truth])
    assert stats.ks_2samp(at_once[1], one_by_one).pvalue > 0.01
    if not METRICS[name].calibration_error:
        error = at_once.std(axis=1) / np.sqrt(400)
        assert np.abs(at_once.mean(axis=1) - moments.mean).max() < 4 * error.max()
        assert at_once.var(axis=1) == pytest.approx(moments.variance, rel=0.3)
        third = ((at_once - moments.mean[:, None]) ** 3).mean(axis=1)
        assert third / moments.variance == pytest.approx(moments.jump, rel=1.0)


@pytest.mark.parametrize("name", ["ece", "ece_equal_mass", "smooth_ece"])
@pytest.mark.parametrize("lowest", [0.3, 0.9, 0.9999])
def test_errors_of_many_draws_are_those_of_each(name: str, lowest: float) -> None:
    rng = np.random.default_rng(0)
    confidence = np.r_[rng.uniform(lowest, 1.0, 200), 1.0, 1.0]
    right = rng.random((202, 5)) < confidence[:, None]
    zeros, predicted = np.zeros(202), np.zeros(202, dtype=np.intp)
    expected = [
        METRICS[name].value(
            LabelledRows(confidence, predicted, zeros, zeros, (~column).astype(np.intp), None)
        )
        for column in right.T
    ]
    assert METRICS[name].of_correct(confidence, right) == pytest.approx(expected, abs=1e-14)


def test_a_class_that_is_always_right_passes() -> None:
    """Its estimate is within any limit, and chance never counts against it."""
    rng = np.random.default_rng(0)
    top = np.r_[np.full(30, 0.9984), rng.uniform(0.5, 1.0, 300)]
    report = np.column_stack([top, 1.0 - top])
    report[30:] = report[30:, ::-1]
    labels = report.argmax(axis=1)
    gate = Gate.parse("accuracy.class", "99.9%", "min")
    (verdict,) = check(report, labels, gates=[gate]).verdicts
    assert (verdict.outcome, verdict.value, verdict.chance) == ("passed", 1.0, 0.0)


def test_the_allowance_for_accuracy_is_clopper_and_pearsons() -> None:
    """It does not depend on how sure the model is."""
    labels = np.r_[np.ones(5, int), np.zeros(95, int)]
    for confidence in (0.6, 0.9999):
        report = np.tile([confidence, 1.0 - confidence], (100, 1))
        gate = Gate.parse("accuracy.group", 0.99, "min")
        (verdict,) = check(report, labels, groups=labels * 0, gates=[gate]).verdicts
        exact = stats.binomtest(95, 100, alternative="less").proportion_ci(0.95, "exact")
        assert verdict.value == pytest.approx(exact.high, rel=1e-9)
        assert verdict.outcome == "failed"


@pytest.mark.parametrize(("count", "confidence"), [(1000, 0.9999), (100, 0.9)])
def test_many_calibrated_groups_rarely_fail(count: int, confidence: float) -> None:
    """Hardly a draw shows an error in a given group, but many show one in some group."""
    failures = 0
    report = np.tile([confidence, 1.0 - confidence], (30 * count, 1))
    groups = np.repeat(np.arange(count), 30)
    for seed in range(20):
        labels = (np.random.default_rng(seed).random(len(report)) > confidence).astype(int)
        gates = [Gate.parse("ece.group", 0.0)]
        failures += check(report, labels, groups=groups, gates=gates, seed=seed).outcome == "failed"
    assert failures <= 4


@pytest.mark.parametrize("name", ["ece", "nll", "brier"])
def test_nearly_certain_groups_do_not_widen_the_allowance_of_others(name: str) -> None:
    rng = np.random.default_rng(0)
    plain = np.full(3000, 0.7)
    mixed = np.r_[plain, np.full(3000, 1.0 - 1e-6)]
    chances = []
    for top in (plain, mixed):
        labels = (rng.random(len(top)) > top).astype(int)
        labels[:30] = 1  # group 0 is the worst
        report = np.column_stack([top, 1.0 - top])
        gate = Gate.parse(f"{name}.group", 0.0)
        groups = np.arange(len(top)) // 30
        (verdict,) = check(report, labels, groups=groups, gates=[gate]).verdicts
        assert "for the group 0 (" in verdict.reading
        chances.append(verdict.chance)
    assert chances[1] == pytest.approx(chances[0], rel=0.2)


def test_figures_stay_in_the_range_of_their_metric(rows) -> None:
    report = np.tile([0.999, 0.001], (60, 1))
    for name in ("nll", "brier", "ece"):
        gate = Gate.parse(f"{name}.class", 0.001)
        (verdict,) = check(report, np.zeros(60, int), gates=[gate]).verdicts
        assert verdict.outcome == "passed"
        assert verdict.value >= 0.0
        assert verdict.chance >= 0.0


def test_calibrated_classes_rarely_fail_together() -> None:
    """With many classes the level of each is far in the tail of the draws."""
    failures = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        report = rng.dirichlet(np.full(40, 0.2), 4000)
        labels = (report.cumsum(axis=1) > rng.random((4000, 1))).argmax(axis=1)
        gates = [Gate.parse("ece.class", 0.0)]
        failures += check(report, labels, gates=gates, seed=seed).outcome == "failed"
    assert failures <= 4  # 5 % of 20 are expected


def test_chance_scales_with_the_number_of_rows(monkeypatch) -> None:
    """Beyond the rows that are drawn, the level is scaled by the root of their number."""
    from cordcal.evaluate import chance as module

    rng = np.random.default_rng(0)
    report = rng.dirichlet(np.ones(3), 3000)
    labels = np.array([rng.choice(3, p=row) for row in report])
    gate = [Gate.parse("ece.group", 1.0)]
    whole = check(report, labels, groups=np.zeros(3000), gates=gate).verdicts[0]
    monkeypatch.setattr(module, "_CHANCE_ROWS", 500)
    part = check(report, labels, groups=np.zeros(3000), gates=gate).verdicts[0]
    assert part.chance == pytest.approx(whole.chance, rel=0.25)


def test_a_class_that_lost_its_predictions_is_seen() -> None:
    original = np.repeat([0, 1, 2], [50, 500, 450])
    moved = np.where(original == 0, 1, original)
    report = np.eye(3)[moved] * 0.7 + 0.1
    (verdict,) = check(report, original=original, gates=[Gate.parse("tpcr.class", 0.05)]).verdicts
    assert (verdict.outcome, verdict.value) == ("failed", 1.0)
    assert "for the class 0 (50 rows)" in verdict.reading
    options = {"original": original, "class_names": ["ant", "bee", "cat"]}
    (verdict,) = check(report, gates=[Gate.parse("tpcr.class", 0.05)], **options).verdicts
    assert "for the class ant (50 rows)" in verdict.reading


@pytest.mark.parametrize("name", [name for name in METRICS if name != "classwise_ece"])
def test_a_file_and_its_own_baseline(rows, name: str) -> None:
    """Nothing increased; how much could have, without a row that shows it, has a bound."""
    report, labels = rows
    before = check(report, labels, gates=[]).baseline
    order = np.random.default_rng(0).permutation(600)
    gates = [Gate.parse(f"{name}.increase", 0.1)]
    (verdict,) = check(report[order], labels[order], gates=gates, baseline=before).verdicts
    assert verdict.outcome == "passed"
    assert verdict.estimate == pytest.approx(0.0, abs=1e-15)
    largest = {"accuracy": 1.0, "brier": 2.0, "nll": np.log(1e4)}.get(name, 0.0)
    # Hardly longer than the rule of three, 3.69 at 97.5 %.
    assert 3.68 * largest / 600 <= verdict.value <= 1.4 * 3.69 * largest / 600 + 1e-12
    assert "600 rows in pairs" in verdict.reading


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1])
def test_upper_ends_cover_also_where_hardly_a_row_changed(share: float) -> None:
    covered = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        loss = (rng.random(1000) < share) * rng.choice([1.0, -1.0], 1000, p=[0.8, 0.2])
        covered += upper_mean(loss, -1.0, 1.0, 0.025) >= 0.6 * share
    assert covered >= 400 * 0.975 - 2 * np.sqrt(400 * 0.975 * 0.025)


def test_upper_ends_between_two_samples_cover() -> None:
    """New rows, five times as many as before, of which one in 1,000 is wrong and none was."""
    gate, covered = [Gate("accuracy", 0.5, "max", "increase")], 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        scores = [np.tile([0.9, 0.1], (rows, 1)) for rows in (400, 2000)]
        before = check(scores[0], np.zeros(400, int), gates=[], ids=np.arange(400))
        (verdict,) = check(
            scores[1],
            (rng.random(2000) < 0.001).astype(int),
            gates=gate,
            ids=np.arange(10_000, 12_000),
            baseline=before.baseline,
        ).verdicts
        assert "two samples" in verdict.reading
        covered += verdict.value >= 0.001
    assert covered >= 200 * 0.975 - 2 * np.sqrt(200 * 0.975 * 0.025)


def test_upper_means_are_bets_that_would_have_won() -> None:
    rng = np.random.default_rng(0)
    for values, lowest, largest in (
        (rng.integers(-1, 2, 800).astype(float), -1.0, 1.0),
        (rng.exponential(size=2000).clip(0, 9.0), 0.0, 9.0),
    ):
        bound = upper_mean(values, lowest, largest, 0.025)
        normal = 1.96 * values.std() / np.sqrt(len(values))
        # A bet needs log(1/0.025) = 3.69, a normal tail 1.96²/2 = 1.92.
        assert 1.0 < (bound - values.mean()) / normal < 1.6
        # The same in other units.
        other = upper_mean(2.0 * values + 3.0, 2.0 * lowest + 3.0, 2.0 * largest + 3.0, 0.025)
        assert other == pytest.approx(2.0 * bound + 3.0)
    assert upper_mean(np.ones(5), -1.0, 1.0, 0.025) == 1.0
    assert upper_mean(np.zeros(1), -1.0, 1.0, 0.025) == 1.0


def test_ids_that_repeat_or_are_empty_pair_nothing(rows) -> None:
    report, labels = rows
    gate = [Gate.parse("nll.increase", 9.0)]
    for ids in (["same"] * 600, np.arange(600) // 2):
        before = check(report, labels, ids=ids, gates=[])
        assert "repeat an id" in before.caveats[0]
        (verdict,) = check(report, labels, ids=ids, gates=gate, baseline=before.baseline).verdicts
        assert "two samples" in verdict.reading
        assert not check(report, labels, ids=ids, clusters=ids, gates=[]).caveats
    for missing in ("", " ", None, float("nan")):
        with refused("ids", rows=[7]):
            check(report, labels, ids=[*range(7), missing, *range(8, 600)], gates=[])


def test_clusters_count_as_one_row() -> None:
    """Each row ten times has the allowance, the bounds and the intervals of the rows alone."""
    rng = np.random.default_rng(0)
    report = rng.dirichlet(np.full(3, 0.5), 300)
    labels = np.array([rng.choice(3, p=row) for row in report])
    worse = np.clip(0.9 * report + 0.1 / 3, 0, 1)
    names = ("ece.group", "nll.group", "accuracy.group", "nll.increase", "ece.increase")
    gates = [Gate.parse(name, 0.99, "min" if "acc" in name else "max") for name in names]

    def run(times: int, clusters) -> list[float]:
        def many(rows):
            return np.repeat(rows, times, axis=0)

        options = {"clusters": clusters, "ids": np.arange(300 * times)}
        before = check(many(report), many(labels), gates=[], **options).baseline
        groups = many(np.zeros(300))
        checked = check(
            many(worse), many(labels), gates=gates, groups=groups, baseline=before, **options
        )
        assert f"{300 * times:,} rows in pairs" in checked.verdicts[-1].reading
        chances = [v.chance if v.chance is not None else v.value for v in checked.verdicts]
        return [*chances, checked.certified[0].bound]

    alone, together = run(1, None), run(10, np.repeat(np.arange(300), 10))
    rates = [2, 5]  # Chernoff's bound is wider than Clopper and Pearson's
    for index, (one, ten) in enumerate(zip(alone, together, strict=True)):
        assert one <= ten <= 1.6 * one if index in rates else ten == pytest.approx(one, rel=0.25)
    apart = run(10, None)
    assert all(apart[index] < 0.6 * alone[index] for index in (0, 1, 2))


def test_clusters_rarely_fail_by_chance() -> None:
    failures = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        top = np.repeat(rng.uniform(0.5, 1.0, 300), 10)
        labels = (np.repeat(rng.random(300), 10) > top).astype(int)
        report, cluster = np.column_stack([top, 1.0 - top]), np.repeat(np.arange(300), 10)
        gates = [Gate.parse("ece.group", 0.0)]
        groups = cluster % 5
        options = {"groups": groups, "gates": gates, "seed": seed}
        failures += check(report, labels, clusters=cluster, **options).outcome == "failed"
    assert failures <= 6


def test_rows_with_equal_scores_are_paired() -> None:
    report = np.repeat([[0.7, 0.3], [0.4, 0.6]], 100, axis=0)
    labels = np.random.default_rng(0).integers(2, size=200)
    before = check(report, labels, gates=[]).baseline
    order = np.random.default_rng(1).permutation(200)
    gate = [Gate.parse("nll.increase", 9.0)]
    (verdict,) = check(report[order], labels[order], gates=gate, baseline=before).verdicts
    assert verdict.estimate == pytest.approx(0.0, abs=1e-15)
    assert "200 rows in pairs" in verdict.reading


def test_rows_are_not_paired_by_their_predictions_alone(rows) -> None:
    report, labels = rows
    predictions = report.argmax(axis=1)
    before = check(report, labels, original=predictions, gates=[]).baseline
    other = 0.9 * report + 0.1 / 3
    gate = [Gate.parse("nll.increase", 1.0)]
    checked = check(other, labels, original=predictions, gates=gate, baseline=before)
    assert "two samples" in checked.verdicts[0].reading
    same = check(report, labels, original=predictions, gates=gate, baseline=before)
    assert "600 rows in pairs" in same.verdicts[0].reading


def test_a_change_on_the_same_rows_is_paired(rows) -> None:
    report, labels = rows
    before = check(report, labels, original=report, gates=[]).baseline
    slightly = 0.98 * report + 0.02 / 3
    gate = [Gate.parse("brier.increase", 1.0)]
    paired = check(slightly, labels, original=report, gates=gate, baseline=before).verdicts[0]
    change = metrics.brier(slightly, labels) - metrics.brier(report, labels)
    assert paired.estimate == pytest.approx(change, abs=1e-12)
    unpaired = check(slightly, labels, gates=gate, baseline=before).verdicts[0]
    assert "two samples" in unpaired.reading
    assert unpaired.estimate == pytest.approx(change, abs=1e-12)
    # The interval of the pairs is far narrower: little more than a row that nobody has seen.
    assert paired.value - change < 0.3 * (unpaired.value - change)


def test_rows_are_matched_by_id(rows) -> None:
    report, labels = rows
    before = check(report, labels, ids=np.arange(600), gates=[]).baseline
    other = 0.9 * report + 0.1 / 3
    order = np.random.default_rng(2).permutation(600)[:400]
    gate = [Gate.parse("brier.increase", 1.0)]
    checked = check(other[order], labels[order], ids=order, gates=gate, baseline=before)
    assert "400 rows in pairs" in checked.verdicts[0].reading
    few = order[:200]
    checked = check(other[few], labels[few], ids=few, gates=gate, baseline=before)
    assert "two samples" in checked.verdicts[0].reading


def test_a_worse_output_fails_against_the_baseline(rows) -> None:
    report, labels = rows
    before = check(report, labels, gates=[]).baseline
    worse = 0.2 * report + 0.8 / 3
    gate = Gate.parse("nll.increase", 0.2)
    checked = check(worse, labels, gates=[gate], baseline=before)
    change = metrics.nll(worse, labels) - metrics.nll(report, labels)
    assert checked.verdicts[0].value > change > 0.2
    assert checked.outcome == "failed"


def test_a_baseline_goes_through_a_file(rows, tmp_path) -> None:
    report, labels = rows
    before = check(report, labels, gates=[], class_names=["ant", "bee", "cat"]).baseline
    before.save(tmp_path / "b")
    again = Baseline.load(tmp_path / "b")
    assert again.class_names == ("ant", "bee", "cat")
    gate = [Gate.parse("nll.increase", 0.0)]
    assert check(report, labels, gates=gate, baseline=again).verdicts[0].estimate == 0.0
    (tmp_path / "b").write_bytes((tmp_path / "b").read_bytes()[:-2])
    with refused("b"):
        Baseline.load(tmp_path / "b")


@pytest.mark.parametrize(
    ("gate", "arguments", "words"),
    [
        ("nll", {}, "nll needs labels"),
        ("tpcr", {}, "needs the original scores"),
        ("nll.group", {"labels": True}, "needs groups"),
        ("nll.increase", {"labels": True}, "needs a baseline"),
        ("tpcr.class", {}, "needs the original"),
    ],
)
def test_what_could_not_run_never_passes(rows, gate: str, arguments: dict, words: str) -> None:
    report, labels = rows
    truth = labels if arguments else None
    limit = 1.0 if "tpcr" in gate else 1e9
    result = check(report, truth, gates=[Gate.parse(gate, limit)])
    assert result.outcome == "not evaluated"
    assert words in result.verdicts[0].reading


def test_groups_too_small_to_judge(rows) -> None:
    report, labels = rows
    result = check(report, labels, groups=np.arange(600), gates=[Gate.parse("nll.group", 9.0)])
    assert result.outcome == "not evaluated"


def test_no_gates_are_no_success(rows) -> None:
    assert check(rows[0], gates=[]).outcome == "not evaluated"


def test_what_is_no_gate_is_refused(rows) -> None:
    with refused("gates", naming="Gate.parse"):
        check(*rows, gates={"nll": 0.5})
    with refused("gates"):
        check(*rows, gates=["nll"])


def test_a_failure_outweighs_what_could_not_run(rows) -> None:
    result = check(*rows, gates=[Gate("nll", 0.0), Gate("tpcr", 0.0)])
    assert result.outcome == "failed"
    suite = ElementTree.fromstring(result.to_junit())
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "1")


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("a\x07\x1b[31m", "a\ufffd\ufffd[31m"),
        ("b\x0b\ufffe\ud800", "b\ufffd\ufffd\ufffd"),
        ("c\t&<>\"' \U0001f41c", "c\t&<>\"' \U0001f41c"),
    ],
)
def test_junit_is_xml_whatever_a_group_is_called(rows, name: str, written: str) -> None:
    result = check(*rows, groups=[name] * 600, gates=[Gate.parse("nll.group", 0.0)])
    suite = ElementTree.fromstring(result.to_junit().encode())
    assert f"for the group {written} (600 rows)" in suite[0][0].attrib["message"]


@pytest.mark.parametrize(
    ("name", "limit", "facts"),
    [
        ("auc", 1.0, ("'auc'", "tpcr, accuracy")),
        ("nll.row", 1.0, ("nll.class", "nll.group", "nll.increase")),
        ("nll", "much", ("'much'",)),
        ("nll", True, ("True",)),
        ("ece", 5, ("5%", "0.05")),
        ("tpcr.class", 50, ("50%", "0.5")),
        ("ece", -0.1, ("from 0 to 1", "write such a limit")),
        ("ece.increase", -2, ("from -1 to 1",)),
        ("tpcr.increase", 0.1, ("not available", 'Gate("tpcr", …)')),
        ("classwise_ece.increase", 0.1, ("not available", 'Gate("classwise_ece", …)')),
    ],
)
def test_mistakes(name: str, limit: object, facts: tuple[str, ...]) -> None:
    with refused(naming=facts):
        Gate.parse(name, limit)


@pytest.mark.parametrize(
    ("name", "bound"), [("nll", "min"), ("nll.increase", "min"), ("accuracy", "max")]
)
def test_a_limit_on_the_good_side_is_refused(name: str, bound: str) -> None:
    with refused("gate", naming=name):
        Gate.parse(name, 0.5, bound)


def test_limits_are_read_as_written() -> None:
    assert Gate.parse("ece", "5%").limit == Gate.parse("ece", "0.05").limit == 0.05


@pytest.mark.parametrize(
    ("fields", "argument", "allowed"),
    [
        ({"measure": "auc"}, "gate", "nll"),
        ({"bound": "maximum"}, "bound", "max"),  # would be taken for the smallest value
        ({"over": "groups"}, "over", "group"),  # would be taken for all rows
    ],
)
def test_a_gate_is_checked_when_it_is_made(fields: dict, argument: str, allowed: str) -> None:
    with refused(argument) as caught:
        Gate(**{"measure": "nll", "limit": 1.0, **fields})
    assert allowed in caught.value.hint


def test_an_original_of_other_rows_is_no_success(rows) -> None:
    report, _ = rows
    for original in (report[:-1], np.r_[report.argmax(axis=1), 0], np.vstack([report, report])):
        with refused("original", naming=("shape", "600 rows")):
            check(report, original=original, gates=[Gate("tpcr", 1.0)])


def test_labels_are_checked_and_lists_will_do(rows) -> None:
    report, labels = rows
    assert check(report.tolist(), labels.tolist(), gates=[Gate("nll", 9.0)]).outcome == "passed"
    assert check([[0.7, 0.3]], [0], gates=[Gate("nll", 9.0)]).outcome == "passed"
    with refused("labels", naming="0..2"):
        check(report, labels + 1, gates=[Gate("nll", 9.0)])


@pytest.mark.parametrize("limit", [99.0, 1e-4])
def test_a_group_without_a_number_is_never_hidden(rows, limit: float, monkeypatch) -> None:
    """Neither max nor min sees NaN: the gate must, whether the other groups pass or fail."""
    report, labels = rows
    groups = np.repeat(["a", "b", "c"], 200)
    whole = METRICS["nll"]

    def broken(rows: LabelledRows) -> float:
        middle = len(rows) == 200 and (rows.labels == labels[200:400]).all()
        return float("nan") if middle else whole.value(rows)

    monkeypatch.setitem(METRICS, "nll", replace(whole, of_rows=broken))
    result = check(report, labels, gates=[Gate("nll", limit, over="group")], groups=groups)
    assert result.outcome == "not evaluated"


def test_groups_that_are_too_small_are_counted_aloud(rows) -> None:
    groups = np.array(["many"] * 580 + ["few"] * 20)
    result = check(*rows, gates=[Gate("nll", 9.0, over="group")], groups=groups)
    assert "for the group many (580 rows; 1 smaller ignored)" in (result.verdicts[0].reading)


def test_under_a_rule_metrics_are_those_of_its_predictions() -> None:
    rng = np.random.default_rng(4)
    probabilities = rng.dirichlet([4.0, 2.0, 1.0], size=900)
    labels = np.array([rng.choice(3, p=row) for row in probabilities])
    rule = PredictionRule([1.0, 2.0, 4.0])
    predicted = rule.predict(probabilities)
    confidence = probabilities[np.arange(900), predicted]
    right = predicted == labels
    gates = [Gate.parse("accuracy", 0.01, "min"), Gate.parse("accuracy.class", 0.99, "min")]
    checked = check(probabilities, labels, gates=gates, rule=rule)
    assert checked.verdicts[0].value == pytest.approx(right.mean())
    assert checked.measures["accuracy"] == pytest.approx(right.mean())
    assert checked.measures["nll"] == pytest.approx(metrics.nll(probabilities, labels))
    assert checked.measures["classwise_ece"] == metrics.classwise_ece(probabilities, labels)
    worst = min(right[predicted == index].mean() for index in range(3))
    assert checked.verdicts[1].estimate == pytest.approx(worst)
    for rate in checked.certified:
        above = confidence >= rate.threshold
        assert (rate.n, rate.errors) == (above.sum(), (above & ~right).sum())
    ece = Gate.parse("ece.class", 0.001, "max")
    assert check(probabilities, labels, gates=[ece], rule=rule).verdicts[0].chance > 0.01


def test_a_missing_group_is_named_like_in_an_audit_and_a_comparison(rows) -> None:
    report, labels = rows
    groups = np.array([None, "", float("nan"), "a"], dtype=object)[np.arange(600) % 4]
    names = {"(no group)", "a"}
    checked = check(report, labels, groups=groups, gates=[Gate.parse("nll.group", 9.0)])
    assert {group.name for group in checked.groups} == names
    fitted = cordcal.compare(report, labels, ["vs"], input="probabilities", groups=groups)["vs"]
    assert {group.name for group in fitted.pictures.groups} == names
