"""Gates: what passes, what fails, and that what could not run never passes."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from cordcal import metrics
from cordcal.evaluate.gates import Gate, check
from cordcal.metrics import METRICS
from errors import refused


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    report = rng.dirichlet(np.full(3, 0.5), 600)
    return report, np.array([rng.choice(3, p=row) for row in report])


@pytest.mark.parametrize("name", ["nll", "brier", "ece", "classwise_ece"])
def test_a_measure_is_held_against_its_limit(rows, name: str) -> None:
    report, labels = rows
    value = getattr(metrics, name)(report, labels)
    for limit, outcome in ((value, "passed"), (np.nextafter(value, 0.0), "failed")):
        (verdict,) = check(report, labels, gates=[Gate(name, limit)]).verdicts
        assert (verdict.outcome, verdict.value) == (outcome, value)


def test_a_smallest_value(rows) -> None:
    report, labels = rows
    gates = [Gate.parse("accuracy", 0.99, "min"), Gate.parse("accuracy", 0.2, "min")]
    outcomes = [each.outcome for each in check(report, labels, gates=gates).verdicts]
    assert outcomes == ["failed", "passed"]


def test_decisions_that_must_stay(rows) -> None:
    report, _ = rows
    moved = report.copy()
    moved[0] = np.roll(moved[0], 1)
    assert check(report, original=report, gates=[Gate("tpcr", 0.0)]).outcome == "passed"
    found = check(moved, original=report, gates=[Gate("tpcr", 0.0)])
    assert found.outcome == "failed"
    assert found.verdicts[0].value == pytest.approx(1 / 600)
    decided = check(moved, original=report.argmax(axis=1), gates=[Gate("tpcr", 0.0)])
    assert decided.verdicts[0].value == found.verdicts[0].value


def test_the_worst_class_and_the_worst_group(rows) -> None:
    report, labels = rows
    by = report.argmax(axis=1)
    worst = max(metrics.nll(report[by == each], labels[by == each]) for each in range(3))
    (verdict,) = check(report, labels, gates=[Gate.parse("nll.class", 9.0)]).verdicts
    assert verdict.value == worst
    groups = np.where(np.arange(600) < 10, "few", np.where(np.arange(600) < 300, "a", "b"))
    (verdict,) = check(report, labels, groups=groups, gates=[Gate.parse("nll.group", 9.0)]).verdicts
    own = {each: metrics.nll(report[groups == each], labels[groups == each]) for each in "ab"}
    assert verdict.value == max(own.values())
    assert f"for the group {max(own, key=own.get)} (" in verdict.reading


def test_a_change_against_a_baseline(rows) -> None:
    report, labels = rows
    before = check(report, labels, gates=[Gate("nll", 9.0)]).to_dict()
    worse = 0.2 * report + 0.8 / 3
    gates = [Gate.parse("nll.increase", 0.2), Gate.parse("accuracy.increase", 0.2)]
    same = check(report, labels, gates=gates, baseline=before)
    assert same.outcome == "passed"
    # Both sides have their own error: the upper end lies above zero although nothing changed.
    assert 0.0 < same.verdicts[0].value < 0.2
    found = check(worse, labels, gates=gates[:1], baseline=before)
    change = metrics.nll(worse, labels) - metrics.nll(report, labels)
    assert found.verdicts[0].value > change > 0.2
    assert found.outcome == "failed"


@pytest.mark.parametrize(
    ("gate", "given", "words"),
    [
        ("nll", {}, "nll needs labels"),
        ("tpcr", {}, "needs the original scores"),
        ("nll.group", {"labels": True}, "needs groups"),
        ("nll.increase", {"labels": True}, "needs a baseline"),
        ("tpcr.class", {}, "needs the original"),
        ("tpcr.increase", {}, "TPCR compares with predictions"),
    ],
)
def test_what_could_not_run_never_passes(rows, gate: str, given: dict, words: str) -> None:
    report, labels = rows
    truth = labels if given else None
    found = check(report, truth, gates=[Gate.parse(gate, 1e9)])
    assert found.outcome == "not evaluated"
    assert words in found.verdicts[0].reading


def test_groups_too_small_to_judge(rows) -> None:
    report, labels = rows
    found = check(report, labels, groups=np.arange(600), gates=[Gate.parse("nll.group", 9.0)])
    assert found.outcome == "not evaluated"


def test_no_gates_are_no_success(rows) -> None:
    assert check(rows[0], gates=[]).outcome == "not evaluated"


def test_a_failure_outweighs_what_could_not_run(rows) -> None:
    found = check(*rows, gates=[Gate("nll", 0.0), Gate("tpcr", 0.0)])
    assert found.outcome == "failed"
    suite = ElementTree.fromstring(found.to_junit())
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
    found = check(*rows, groups=[name] * 600, gates=[Gate.parse("nll.group", 0.0)])
    suite = ElementTree.fromstring(found.to_junit().encode())
    assert f"for the group {written} (600 rows)" in suite[0][0].attrib["message"]


@pytest.mark.parametrize(
    ("name", "limit", "facts"),
    [
        ("auc", 1.0, ("'auc'", "tpcr, accuracy")),
        ("nll.row", 1.0, ("nll.class", "nll.group", "nll.increase")),
        ("nll", "much", ("'much'",)),
    ],
)
def test_mistakes(name: str, limit: object, facts: tuple[str, ...]) -> None:
    with refused("gate", naming=facts):
        Gate.parse(name, limit)


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


def test_a_group_without_a_number_hides_behind_no_other(rows, monkeypatch) -> None:
    """Neither max nor min sees NaN: the gate over groups must, wherever it stands."""
    report, labels = rows
    groups = np.repeat(["a", "b", "c"], 200)
    whole = METRICS["nll"]

    def broken(p: np.ndarray, y: np.ndarray) -> float:
        middle = len(y) == 200 and (y == labels[200:400]).all()
        return float("nan") if middle else whole.function(p, y)

    monkeypatch.setitem(METRICS, "nll", replace(whole, function=broken))
    for bound, limit in (("max", 99.0), ("min", 0.0)):
        found = check(report, labels, gates=[Gate("nll", limit, bound, "group")], groups=groups)
        assert found.outcome == "not evaluated"


def test_groups_that_are_too_small_are_counted_aloud(rows) -> None:
    groups = np.array(["many"] * 580 + ["few"] * 20)
    found = check(*rows, gates=[Gate("nll", 9.0, over="group")], groups=groups)
    assert "for the group many (580 rows; 1 smaller ignored)" in (found.verdicts[0].reading)
