"""`cordcal.Monitor`: batches, late labels, state files and wrong input."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import cordcal
from cordcal.evaluate import monitor as module
from errors import refused


def night(rows: int, seed: int = 0, off: float = 0.0, classes: int = 3):
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.5, 1.0, rows)
    predicted = rng.integers(classes, size=rows)
    right = rng.random(rows) < confidence - off
    others = ((1.0 - confidence) / (classes - 1))[:, None]
    probabilities = np.broadcast_to(others, (rows, classes)).copy()
    probabilities[np.arange(rows), predicted] = confidence
    return probabilities, np.where(right, predicted, (predicted + 1) % classes)


@pytest.fixture
def monitor() -> cordcal.Monitor:
    return cordcal.Monitor(night(2000, seed=9)[0])


def test_verdicts(monitor: cordcal.Monitor) -> None:
    assert monitor.status.verdict == "cannot tell"
    assert monitor.add(*night(1000, seed=1)).verdict == "holds"
    status = monitor.add(*night(3000, seed=2, off=0.15), name="tuesday")
    assert status.verdict == "alarm"
    (alarm,) = status.alarms
    assert (alarm.test, alarm.batch) == ("calibration", "tuesday")
    assert 1000 < alarm.rows < 4000
    assert alarm.evidence >= status.limit == 40.0
    assert status.sources[0].name == "all predictions"
    assert status.sources[0].direction == "too high"
    assert 750 <= status.sources[0].since <= alarm.rows
    assert status.gap_interval[0] > 0.02
    assert status.lines()[0].startswith("ALARM")


def test_an_alarm_stays_until_it_is_acknowledged(monitor: cordcal.Monitor) -> None:
    monitor.add(*night(3000, seed=2, off=0.2))
    assert monitor.add(*night(5000, seed=3)).verdict == "alarm"
    monitor.acknowledge()
    assert monitor.status.verdict == "cannot tell"
    assert monitor.status.labelled == 0
    assert monitor.add(*night(2000, seed=4)).verdict == "holds"


def test_evidence_names_the_group_it_comes_from(monitor: cordcal.Monitor) -> None:
    good, bad = night(4000, seed=1), night(1500, seed=2, off=0.3)
    probabilities, labels = (np.concatenate(pair) for pair in zip(good, bad, strict=True))
    groups = np.array(["north"] * 4000 + ["south"] * 1500)
    order = np.random.default_rng(0).permutation(5500)
    status = monitor.add(probabilities[order], labels[order], groups=groups[order])
    assert status.verdict == "alarm"
    assert "group south" in [source.name for source in status.sources]


def test_overconfidence_and_underconfidence_are_distinguished(monitor: cordcal.Monitor) -> None:
    status = monitor.add(*night(4000, seed=5, off=-0.12))
    assert status.sources[0].direction == "too low"


def test_changed_inputs_without_labels(monitor: cordcal.Monitor) -> None:
    assert monitor.add(night(2000, seed=1)[0]).verdict == "holds"
    probabilities, _ = night(3000, seed=2)
    probabilities[:, [0, 1]] = np.sort(probabilities[:, [0, 1]], axis=1)  # class 0 disappears
    status = monitor.add(probabilities)
    assert [alarm.test for alarm in status.alarms] == ["inputs"]
    assert status.labelled == 0
    assert status.gap is None


def test_batches_of_one_row_and_late_labels_give_the_same_bits() -> None:
    """However rows are divided, and whenever their labels come, in the same order."""
    probabilities, labels = night(700, seed=1, off=0.1)
    probabilities = np.round(probabilities, 1)  # ties in confidence
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    groups = np.array(["a", "b"])[(np.arange(700) > 600).astype(int)]
    whole, rows, late = (cordcal.Monitor(night(500, seed=9, classes=3)[0]) for _ in range(3))
    whole.add(probabilities, labels, groups=groups)
    for row in range(700):
        at = slice(row, row + 1)
        rows.add(probabilities[at], labels[at], groups=groups[at])
    late.add(probabilities, ids=np.arange(700), groups=groups)
    for part in np.split(np.arange(700), [3, 333]):
        late.add_labels(part, labels[part])
    for other in (rows, late):
        assert other.status.calibration_evidence == whole.status.calibration_evidence
        assert other.status.input_evidence == whole.status.input_evidence
        assert other.status.gap_interval == whole.status.gap_interval
        for test, expected in whole._capitals().items():
            capital = other._capitals()[test]
            assert np.array_equal(capital.log_capital, expected.log_capital)
            assert np.array_equal(capital.sums, expected.sums)


def test_evidence_stays_if_there_is_no_alarm_to_acknowledge(monitor: cordcal.Monitor) -> None:
    status = monitor.add(*night(1000, seed=1))
    monitor.acknowledge()
    assert monitor.status == status


def test_labels_of_a_known_batch_count_without_ids(monitor: cordcal.Monitor) -> None:
    probabilities, labels = night(500, seed=1)
    before = monitor.add(probabilities)
    status = monitor.add(probabilities, labels)
    assert (status.rows, status.labelled) == (500, 500)
    assert status.input_evidence == before.input_evidence
    # Corrected labels of the same rows do not bet again.
    assert monitor.add(probabilities, 2 - labels) == status


def test_batches_of_one_row_count_each(monitor: cordcal.Monitor) -> None:
    """Equal rows of small batches are chance, under one name or several."""
    for number in range(300):
        top = (0.9, 0.8, 0.7)[number % 3]
        row = np.array([[top, (1 - top) / 2, (1 - top) / 2]])
        monitor.add(row, [0 if number % 5 < 2 else 1], name="tonight.csv")
    assert monitor.status.rows == monitor.status.labelled == 300
    assert monitor.status.verdict == "alarm"  # 40 % are right, at a confidence of 80 %


def test_a_batch_is_recognised_by_its_rows(monitor: cordcal.Monitor) -> None:
    """Whatever its name is, with ids or without, and also if its confidences are tied."""
    probabilities, labels = night(500, seed=1)
    tied = np.array([[0.8, 0.1, 0.1], [0.1, 0.6, 0.3]])[labels % 2]
    for first, ids, again in (
        (probabilities, None, np.arange(500)),
        (tied, np.arange(500, 1000), None),
        (tied[::-1], None, None),
    ):
        status = monitor.add(first, labels, ids=ids, name="monday")
        assert monitor.add(first, labels, ids=again, name="tuesday") == status
    assert status.rows == status.labelled == 1500
    other, truth = night(500, seed=2)
    assert monitor.add(other, truth, name="monday").rows == 2000


def test_rows_that_come_again_with_ids_wait_for_labels(monitor: cordcal.Monitor) -> None:
    probabilities, labels = night(500, seed=1)
    before = monitor.add(probabilities)
    status = monitor.add(probabilities, ids=np.arange(500))
    assert (status.rows, status.waiting) == (500, 500)
    assert status.input_evidence == before.input_evidence
    assert monitor.add_labels(np.arange(500), labels).labelled == 500


def test_an_id_is_its_text(monitor: cordcal.Monitor) -> None:
    probabilities, labels = night(5)
    ids = ["007", "7", "12e5", "1200000", " 7"]
    assert monitor.add(probabilities, labels, ids=ids).labelled == 5
    assert monitor.add(probabilities[:1], labels[:1], ids=[7]).labelled == 5


@pytest.mark.parametrize("missing", ["", "  ", None, float("nan")])
def test_rows_without_an_id(monitor: cordcal.Monitor, missing) -> None:
    probabilities, labels = night(15)
    ids = np.array([*"abcd", *[missing] * 11], dtype=object)
    with refused("ids", rows=range(4, 15)):
        monitor.add(probabilities, labels, ids=ids)
    with refused("ids", rows=[1]):
        monitor.add_labels(["a", missing], [0, 0])
    assert monitor.add(probabilities, labels, ids=ids, allow_missing_ids=True).labelled == 15


def test_labels_of_unknown_rows_are_counted(monitor: cordcal.Monitor) -> None:
    probabilities, labels = night(50)
    monitor.add(probabilities, ids=np.arange(50))
    with refused("ids", rows=[2]):
        monitor.add_labels([0, 1, 99], [0, 1, 2], strict=True)
    status = monitor.add_labels([*range(50), 99, 100], [*labels, 0, 0])
    assert (status.labelled, status.waiting) == (50, 0)
    assert (monitor.periods[-1].unknown, monitor.periods[-1].repeated) == (2, 0)


def test_one_row_of_a_cluster_counts(monitor: cordcal.Monitor) -> None:
    probabilities, labels = night(400, seed=1)
    users = np.arange(400) % 100
    status = monitor.add(probabilities, labels, clusters=users, ids=np.arange(400))
    assert status.rows == status.labelled == 100
    assert monitor.periods[-1].repeated == 300
    alone = cordcal.Monitor(night(2000, seed=9)[0])
    alone.add(probabilities[:100], labels[:100])
    assert status.calibration_evidence == alone.status.calibration_evidence
    # Nor do later rows of these clusters.
    assert monitor.add(*night(100, seed=2), clusters=users[:100]).labelled == 100
    late = cordcal.Monitor(night(2000, seed=9)[0])
    assert late.add(probabilities, clusters=users, ids=np.arange(400)).waiting == 100
    assert late.add_labels(np.arange(400), labels).labelled == 100
    assert late.periods[-1].unknown == 0
    whole = cordcal.Monitor(np.repeat(night(50)[0], 4, axis=0), clusters=np.arange(200) // 4)
    assert whole.baseline_rows == 50
    without_ids = cordcal.Monitor(night(2000, seed=9)[0])
    without_ids.add(probabilities, clusters=users)
    with refused("clusters"):
        without_ids.add(probabilities, labels, clusters=users)


def test_the_inputs_are_compared_with_the_baseline_or_with_the_newest_rows() -> None:
    def drifted(seed: int) -> np.ndarray:
        probabilities, _ = night(3000, seed=seed)
        probabilities[:, [0, 1]] = np.sort(probabilities[:, [0, 1]], axis=1)
        return probabilities

    for start_from, verdict in (("baseline", "alarm"), ("newest", "holds")):
        monitor = cordcal.Monitor(night(2000, seed=9)[0])
        assert monitor.add(drifted(1)).verdict == "alarm"
        monitor.acknowledge(start_from=start_from)
        assert monitor.add(drifted(2)).verdict == verdict
    with refused("start_from"):
        monitor.acknowledge(start_from="yesterday")


def test_ids_are_equal_in_any_number_format(monitor: cordcal.Monitor) -> None:
    probabilities, labels = night(3)
    monitor.add(probabilities, ids=np.array([1.0, 2.0, 3.0]))
    assert monitor.add_labels(np.array([3, 1]), labels[[2, 0]]).waiting == 1
    periods = len(monitor.periods)
    assert monitor.add_labels(["1"], labels[:1]).waiting == 1  # counted before
    assert len(monitor.periods) == periods


def test_a_batch_counts_once(monitor: cordcal.Monitor) -> None:
    first = monitor.add(*night(500, seed=1))
    assert monitor.add(*night(500, seed=1)) == first
    assert len(monitor.periods) == 1


def test_batches_do_not_matter() -> None:
    probabilities, labels = night(3000, seed=1, off=0.05)
    whole, parts = (cordcal.Monitor(night(500, seed=9)[0]) for _ in range(2))
    whole.add(probabilities, labels)
    for batch in np.split(np.arange(3000), [1, 70, 250, 999, 2100]):
        parts.add(probabilities[batch], labels[batch])
    assert whole.status.calibration_evidence == parts.status.calibration_evidence
    assert whole.status.input_evidence == parts.status.input_evidence
    assert whole.status.gap_interval == parts.status.gap_interval


def test_late_labels_bet_with_the_confidence_of_their_row() -> None:
    probabilities, labels = night(600, seed=1)
    ids = np.arange(600)
    at_once, late, again = (cordcal.Monitor(night(500, seed=9)[0]) for _ in range(3))
    at_once.add(probabilities, labels, ids=ids)
    assert late.add(probabilities, ids=ids).waiting == 600
    status = late.add_labels(ids, labels)
    assert status.waiting == 0
    assert status.calibration_evidence == at_once.status.calibration_evidence
    # The rows again, with labels and other scores: what was reported first counts.
    again.add(probabilities, ids=ids)
    again.add(np.full((600, 3), 1 / 3), labels, ids=ids)
    assert again.status.calibration_evidence == at_once.status.calibration_evidence
    assert again.status.input_evidence == at_once.status.input_evidence


def test_a_row_counts_once_by_its_id() -> None:
    probabilities, labels = night(400, seed=1)
    monitor = cordcal.Monitor(night(500, seed=9)[0])
    monitor.add(probabilities[:300], labels[:300], ids=np.arange(300))
    status = monitor.add(probabilities[200:], labels[200:], ids=np.arange(200, 400))
    assert status.labelled == status.rows == 400
    assert monitor.periods[-1].repeated == 100
    assert monitor.add_labels([5, 6], [0, 0]).labelled == 400


def test_rows_that_wait_are_limited(monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_REMEMBERED", 10)
    monitor = cordcal.Monitor(night(500, seed=9)[0])
    status = monitor.add(night(25, seed=1)[0], ids=np.arange(25))
    assert (status.waiting, status.dropped) == (10, 15)
    with refused("ids", rows=[0]):
        monitor.add_labels([14, 15], [0, 0], strict=True)
    assert monitor.add_labels([15, 24], [0, 0]).labelled == 2
    for batch in range(5):
        monitor.add(night(4, seed=batch + 2)[0], ids=np.arange(100 + 4 * batch, 104 + 4 * batch))
        monitor.add_labels(np.arange(100 + 4 * batch, 104 + 4 * batch), [0] * 4)
    assert len(monitor._remembered.counted) == 10


def test_changed_predictions_are_counted(monitor: cordcal.Monitor) -> None:
    probabilities, _ = night(100, seed=1)
    direct = probabilities.copy()
    direct[:7] = direct[:7][:, [1, 2, 0]]
    status = monitor.add(probabilities, direct=direct)
    assert status.changed == 7
    assert status.confidence == pytest.approx(probabilities.max(axis=1).mean())


def test_columns_are_matched_by_name() -> None:
    pandas = pytest.importorskip("pandas")
    probabilities, labels = night(800, seed=1)
    names = ["ant", "bee", "cat"]
    frame = pandas.DataFrame(probabilities, columns=names)
    by_name, by_position = cordcal.Monitor(frame), cordcal.Monitor(probabilities)
    by_name.add(frame[["cat", "ant", "bee"]], np.array(names)[labels])
    by_position.add(probabilities, labels)
    assert by_name.status == by_position.status
    with refused("probabilities", naming="wasp"):
        by_name.add(frame.rename(columns={"bee": "wasp"}))


def test_state_goes_through_a_file_to_the_bit(tmp_path: Path) -> None:
    groups = np.array(["north", "south"])[np.arange(700) % 2]
    monitors = [cordcal.Monitor(night(500, seed=9)[0], alpha=0.1) for _ in range(2)]
    for number, monitor in enumerate(monitors):
        monitor.add(*night(700, seed=1, off=0.1), groups=groups)
        monitor.add(night(300, seed=2)[0], ids=np.arange(300))
        if number:
            monitor.save(tmp_path / "state")
            monitors[1] = cordcal.Monitor.load(tmp_path / "state")
    for monitor in monitors:
        monitor.add(*night(2000, seed=3, off=0.1), groups=np.repeat("west", 2000))
        monitor.add_labels(np.arange(300), np.zeros(300, int))
    assert monitors[0].status == monitors[1].status
    assert monitors[0].periods == monitors[1].periods
    for monitor, name in zip(monitors, ("first", "second"), strict=True):
        monitor.save(tmp_path / name)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_a_state_that_was_cut_or_edited_is_refused(
    monitor: cordcal.Monitor, tmp_path: Path
) -> None:
    path = tmp_path / "state"
    monitor.add(*night(500, seed=1))
    monitor.save(path)
    bits = path.read_bytes()
    for damaged in (bits[:-1], bits[:100], bits.replace(b"batch 1", b"batch 2"), b""):
        path.write_bytes(damaged)
        with refused("state"):
            cordcal.Monitor.load(path)


def test_a_state_of_another_version_is_refused(
    monitor: cordcal.Monitor, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr("cordcal.evaluate.monitor._STATE_VERSION", 1)
    monitor.save(tmp_path / "old.monitor")
    monkeypatch.undo()
    with refused("old.monitor", naming=["version 1", "version 2", "cordcal monitor init"]):
        cordcal.Monitor.load(tmp_path / "old.monitor")


def test_a_model_is_not_a_state_and_a_state_is_not_a_model(
    monitor: cordcal.Monitor, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    cord = cordcal.CORD().fit(rng.dirichlet(np.ones(3), 50), rng.dirichlet(np.ones(3), 50))
    cordcal.save(cord, tmp_path / "model")
    with refused("model", naming="cord"):
        cordcal.Monitor.load(tmp_path / "model")
    monitor.save(tmp_path / "state")
    with refused("state", naming="monitor"):
        cordcal.load(tmp_path / "state")


def test_two_writers_lose_nothing(monitor: cordcal.Monitor, tmp_path: Path) -> None:
    path = tmp_path / "state"
    monitor.save(path)

    def write(seed: int) -> None:
        with cordcal.Monitor.updating(path) as shared:
            shared.add(*night(100, seed=seed), name=str(seed))

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = {period.name for period in cordcal.Monitor.load(path).periods}
    assert names == set("012345")
    assert [file.name for file in tmp_path.iterdir()] == ["state"]


def test_a_failed_update_writes_nothing(monitor: cordcal.Monitor, tmp_path: Path) -> None:
    path = tmp_path / "state"
    monitor.save(path)
    bits = path.read_bytes()
    with refused("labels", rows=[1]), cordcal.Monitor.updating(path) as shared:
        shared.add(*night(50, seed=1))
        shared.add(night(2, seed=2)[0], [0, 3])
    assert path.read_bytes() == bits
    assert [file.name for file in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize(
    ("arguments", "argument", "row"),
    [
        (((np.full((3, 3), 0.5)),), "probabilities", 0),
        ((np.full((3, 3), np.nan),), "probabilities", 0),
        ((np.full((3, 2), 0.5),), "probabilities", None),
        ((np.zeros((0, 3)),), "probabilities", None),
        ((night(3)[0], [0, 1, 5]), "labels", 2),
        ((night(3)[0], [0, 1]), "labels", None),
    ],
)
def test_bad_batches_change_nothing(
    monitor: cordcal.Monitor, arguments, argument: str, row: int | None
) -> None:
    before = monitor.status
    with refused(argument) as caught:
        monitor.add(*arguments, groups=["new"] * len(arguments[0]))
    assert row is None or caught.value.rows[0] == row
    assert monitor.status == before
    assert monitor.group_names == []


def test_bad_ids(monitor: cordcal.Monitor) -> None:
    probabilities, _ = night(3)
    with refused("ids", rows=[2], naming="7"):
        monitor.add(probabilities, ids=[7, 8, 7])
    with refused("ids"):
        monitor.add(probabilities, ids=[1, 2])
    with refused("ids", rows=[0]):
        monitor.add_labels([99], [0], strict=True)
    with refused("ids", rows=[1, 2]):  # as a text file is read
        monitor.add(probabilities, ids=[1.0, 1234567890123456780.0, 1234567890123456781.0])
    assert not monitor.periods


@pytest.mark.parametrize(
    ("options", "argument"),
    [({"alpha": 0.0}, "alpha"), ({"alpha": 1.0}, "alpha"), ({"tolerance": -0.1}, "tolerance")],
)
def test_bad_options(options: dict[str, float], argument: str) -> None:
    with refused(argument):
        cordcal.Monitor(night(5)[0], **options)
    with refused("probabilities"):
        cordcal.Monitor(np.zeros((0, 3)))


@pytest.mark.parametrize(
    "groups", [[None, "a"], ["", "a"], ["  ", "a"], [float("nan"), 1.0], [np.nan, "a"]]
)
def test_a_missing_group_has_one_name(monitor: cordcal.Monitor, groups: list) -> None:
    monitor.add(*night(2, seed=1), groups=groups)
    assert monitor.group_names == ["(no group)", str(groups[1]).removesuffix(".0")]


def test_rows_without_a_cluster_are_refused(monitor: cordcal.Monitor) -> None:
    clusters = np.array(["a", None, None, ""], dtype=object)
    with refused("clusters", rows=[1, 2, 3]):
        monitor.add(*night(4), clusters=clusters)
    with refused("clusters", rows=[1, 2, 3]):
        cordcal.Monitor(night(4)[0], clusters=clusters)


def test_rows_without_a_label_are_named(monitor: cordcal.Monitor) -> None:
    with refused("labels", rows=[1], naming="no label"):
        monitor.add(night(3)[0], [0.0, np.nan, 1.0])
