"""What a report draws: classes, moves, groups and abstention, against plain counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import cordcal
from cordcal import metrics
from cordcal.evaluate import pictures
from cordcal.evaluate.results.pictures import MIN_ROWS_PER_GROUP
from cordcal.metrics.base import ProbabilityMatrix
from cordcal.metrics.risk import aurc_influence, risk_curve
from errors import refused


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    labels = rng.integers(5, size=900)
    logits = 2.0 * np.eye(5)[labels] + 1.6 * rng.normal(size=(900, 5)) + [0.8, 0, 0, 0, -0.8]
    groups = np.array(["north", "south", "öst"])[rng.integers(3, size=900)]
    groups[:4] = "rare"
    return logits, labels, groups


@pytest.fixture(scope="module")
def comparison(rows):
    logits, labels, groups = rows
    return cordcal.compare(
        logits[:450],
        labels[:450],
        ["ts", "irova"],
        evaluation=(logits[450:], labels[450:]),
        groups=np.where(np.arange(450) < 4, "rare", groups[450:]),
        class_names=list("abcde"),
    )


@pytest.fixture(scope="module")
def reports(rows):
    """The irova reports of the comparison, fitted again by hand."""
    logits, labels, _ = rows
    model = cordcal.PreservingCalibrator("irova").fit(logits[:450], labels[:450])
    return model.predict_both(logits[450:]), labels[450:]


def test_classes_are_counted_and_measured(comparison, reports) -> None:
    both, labels = reports
    classes = comparison["irova"].pictures.classes.to_list(every_class=True)
    assert [record.name for record in classes] == list("abcde")
    moved = both.direct.argmax(axis=1)
    for index, record in enumerate(classes):
        assert record.rows == np.sum(labels == index)
        assert record.decided == np.sum(both.prediction == index)
        assert record.left == np.sum((both.prediction == index) & (moved != index))
        assert record.joined == np.sum((both.prediction != index) & (moved == index))
        for report, values in (("direct", both.direct), ("repaired", both.repaired)):
            diagram = metrics.class_reliability(values, labels, index)
            assert record.ece[report] == pytest.approx(diagram.ece, abs=1e-12)
            coarse = metrics.class_reliability(values, labels, index, bins=5)
            filled = coarse.count > 0
            bins = np.array(record.bins[report])
            assert bins[:, 2] == pytest.approx(coarse.count[filled])
            assert bins[:, 0] == pytest.approx(coarse.confidence[filled], abs=1e-4)
            assert bins[:, 1] == pytest.approx(coarse.accuracy[filled], abs=1e-4)
    mean = np.mean([record.ece["repaired"] for record in classes])
    assert mean == pytest.approx(comparison["irova"].repaired["classwise_ece"], abs=1e-12)


def test_moves_are_the_changes_and_each_has_a_row(comparison) -> None:
    pictures, changes = comparison["irova"].pictures, comparison["irova"].changes
    assert sum(move.count for move in pictures.moves) == changes.n_changed
    assert sum(move.gained for move in pictures.moves) == changes.n_gained
    assert sum(move.lost for move in pictures.moves) == changes.n_lost
    counts = [move.count for move in pictures.moves]
    assert counts == sorted(counts, reverse=True)
    shown = {(row.prediction, row.direct_prediction) for row in pictures.rows[: len(counts)]}
    assert shown == {(move.source, move.target) for move in pictures.moves}


def test_abstention_is_the_curve(comparison, reports) -> None:
    both, labels = reports
    selection = comparison["irova"].pictures.selection
    for report, values in (("direct", both.direct), ("repaired", both.repaired)):
        curve, selected = metrics.risk_coverage(values, labels), selection.outputs[report]
        assert selected.aurc == curve.aurc
        assert selected.low < selected.aurc < selected.high
        assert selected.at[3][1:] == curve.at(0.9)
        assert selected.risk[-1] == pytest.approx(np.mean(values.argmax(axis=1) != labels))
    estimate, low, high = selection.change["repaired"]
    assert estimate == selection.outputs["repaired"].aurc - selection.outputs["direct"].aurc
    assert low < estimate < high
    assert "repaired" not in comparison["ts"].pictures.selection.outputs


@pytest.mark.parametrize("digits", [16, 1])
def test_the_error_of_the_area_is_the_bootstraps(digits: int) -> None:
    rng = np.random.default_rng(5)
    top = np.round(rng.beta(4, 1, 400), digits)
    report = ProbabilityMatrix.from_array(np.column_stack([top, 1 - top]), "report")
    labels = (rng.random(400) > top).astype(np.intp)
    rows = report.reduce(labels)
    influence = aurc_influence(rows)
    assert influence.mean() == pytest.approx(0.0, abs=1e-12)
    draws = [risk_curve(rows.take(rng.integers(400, size=400))).aurc for _ in range(1000)]
    assert influence.std() / 20 == pytest.approx(np.std(draws), rel=0.1)


def test_groups_are_measured_the_worst_first(comparison, reports, rows) -> None:
    both, labels = reports
    groups = np.where(np.arange(450) < 4, "rare", rows[2][450:])
    shown = comparison["irova"].pictures.groups
    assert shown[-1].name == "rare"
    assert shown[-1].small
    assert shown[-1].n < MIN_ROWS_PER_GROUP
    values = [group.measures["repaired"]["nll"] for group in shown[:-1]]
    assert values == sorted(values, reverse=True)
    for group in shown:
        inside = groups == group.name
        assert group.n == inside.sum()
        moved = both.direct[inside].argmax(axis=1) != both.prediction[inside]
        assert group.tpcr == pytest.approx(moved.mean())
        expected = metrics.ece(both.repaired[inside], labels[inside])
        assert group.measures["repaired"]["ece"] == pytest.approx(expected)
    assert sum(group.n for group in shown) == 450


def test_groups_that_are_no_groups_are_refused(rows) -> None:
    logits, labels, groups = rows
    with refused("groups", naming="900"):
        cordcal.compare(logits, labels, ["ts"], groups=np.arange(900))
    with refused("groups", naming="900 rows"):
        cordcal.compare(logits, labels, ["ts"], groups=groups[1:])


def test_many_classes_are_whole_for_the_best_while_there_is_room(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(40, size=1200)
    logits = 4.0 * np.eye(40)[labels] + 1.5 * rng.normal(size=(1200, 40))
    comparison = cordcal.compare(logits, labels, ["ts", "vs", "irova"])
    data = comparison.to_dict()
    assert all(len(entry["classes"]) == 40 for entry in data["calibrators"])
    assert all(entry["classes"][0]["bins"] for entry in data["calibrators"])
    # With room for two, the first looked at and the best of the others by NLL are whole.
    monkeypatch.setattr(pictures, "_MAX_LINES", 7 * 100 + 4 * 40)
    other = replace(comparison).to_dict()
    best = sorted(
        {entry.key: (entry.lift or entry.repaired)["nll"] for entry in comparison}.items(),
        key=lambda pair: (pair[0] != data["focus"], pair[1]),
    )
    for entry in other["calibrators"]:
        whole = entry["key"] in [key for key, _ in best[:2]]
        assert all(bool(record["bins"]) == whole for record in entry["classes"])
        assert whole or all(record["left"] + record["joined"] for record in entry["classes"])


def test_a_blend_tells_its_shares(rows) -> None:
    logits, labels, _ = rows
    entry = cordcal.compare(logits, labels, {"blend": "blend"})["blend"]
    assert sum(entry.shares.values()) == pytest.approx(1.0)
    assert list(entry.shares.values()) == sorted(entry.shares.values(), reverse=True)
    assert entry.lift_gain["nll"].estimate == pytest.approx(entry.direct["nll"] - entry.lift["nll"])
