"""Clusters: rows of one patient, user or session are in one fold, one part and one resample."""

from __future__ import annotations

import numpy as np
import pytest
from tests.internals import CheckedScores, cluster_numbers

import cordcal
from cordcal import InputError
from cordcal.calibrators.crossfit import Folds, cross_fit_any
from cordcal.evaluate.held_out import measure_held_out
from cordcal.evaluate.splits import random_splits

COPIES = 3


def drawn(rows: int = 240, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=rows)
    return 2.0 * np.eye(3)[labels] + 1.5 * rng.normal(size=(rows, 3)), labels


def repeated(rows: int = 240, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return every row three times, not quite equal, and which row each was."""
    scores, labels = drawn(rows, seed)
    noise = 1e-4 * np.random.default_rng(1).normal(size=(COPIES * rows, 3))
    return (
        np.repeat(scores, COPIES, axis=0) + noise,
        np.repeat(labels, COPIES),
        np.repeat([f"patient {number}" for number in range(rows)], COPIES),
    )


class Memory:
    """A calibrator that knows its own rows by heart, so that a leak shows."""

    def fit(self, scores: np.ndarray, labels: np.ndarray) -> Memory:
        self.scores, self.labels = scores, labels
        return self

    def predict_proba(self, scores: np.ndarray) -> np.ndarray:
        distance = np.square(scores[:, None, :] - self.scores[None, :, :]).sum(axis=2)
        nearest = self.labels[distance.argmin(axis=1)]
        return 0.02 / 3 + 0.98 * np.eye(3)[nearest]

    def get_params(self, deep: bool = True) -> dict[str, object]:
        return {}

    def set_params(self, **params: object) -> Memory:
        return self


def test_clusters_are_held_out_whole_and_evenly() -> None:
    _, labels, patients = repeated()
    number = cluster_numbers(patients, len(patients))
    folds = Folds.of_clusters(number, labels, 5, seed=0)
    assert all(len(np.unique(folds.number[patients == name])) == 1 for name in np.unique(patients))
    counts = np.stack([np.bincount(folds.number[labels == c], minlength=5) for c in range(3)])
    assert (np.ptp(counts, axis=1) <= COPIES).all()


def test_folds_depend_on_neither_order_nor_repetition() -> None:
    _, labels, patients = repeated()
    number = cluster_numbers(patients, len(patients))
    folds = Folds.of_clusters(number, labels, 5, seed=0).number
    order = np.random.default_rng(2).permutation(len(labels))
    np.testing.assert_array_equal(
        Folds.of_clusters(number[order], labels[order], 5, seed=0).number, folds[order]
    )
    once = slice(None, None, COPIES)
    weight = np.full(len(labels) // COPIES, float(COPIES))
    np.testing.assert_array_equal(
        Folds.of_clusters(number[once], labels[once], 5, seed=0, weight=weight).number, folds[once]
    )


@pytest.mark.parametrize("key", ["ts", "vs", "irova"])
def test_held_out_masses_are_those_of_grouped_folds(key: str) -> None:
    scores, labels, patients = repeated()
    model = cordcal.PreservingCalibrator(key, repair="lift")
    model.fit(scores, labels, clusters=patients)
    folds = Folds.of_clusters(cluster_numbers(patients, len(patients)), labels, 5, seed=0)
    original = CheckedScores.from_scores(scores, "logits", fitting=True)
    by_hand = cross_fit_any(lambda: cordcal.calibrators.make(key), original, labels, None, folds)
    lift = cordcal.Lift().fit_checked(
        original.probabilities,
        model.direct_proba(scores),
        labels,
        original.prediction,
        None,
        held_out=by_hand.masses,
    )
    expected = lift.transform(
        original.probabilities, model.direct_proba(scores), prediction=original.prediction
    )
    np.testing.assert_allclose(model.predict_proba(scores), expected, atol=2e-5)


def test_without_clusters_copies_leak() -> None:
    scores, labels, patients = repeated()
    new, later = drawn(2000, seed=7)
    direct = Memory().fit(scores, labels).predict_proba(new)
    mass = direct[np.arange(len(new)), new.argmax(axis=1)]
    right = new.argmax(axis=1) == later
    truth = -np.log(np.where(right, mass, 1.0 - mass)).mean()
    losses = {}
    for name, clusters in (("leak", None), ("clusters", patients)):
        model = cordcal.PreservingCalibrator(Memory(), repair="lift")
        model.fit(scores, labels, clusters=clusters)
        losses[name] = model.construction_.loss_before
    assert losses["leak"] < 0.2 * truth
    assert abs(losses["clusters"] - truth) < 0.2 * truth


def unexplained() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows whose labels only their copies predict."""
    scores, _, patients = repeated(80)
    return scores, np.repeat(np.random.default_rng(3).integers(3, size=80), COPIES), patients


@pytest.mark.parametrize("key", ["blend", "boosted-blend"])
def test_the_default_and_boosting_hold_out_clusters(key: str) -> None:
    if key != "blend":
        pytest.importorskip("lightgbm")
    scores, labels, patients = unexplained()
    likelihood = {}
    for name, clusters in (("leak", None), ("clusters", patients)):
        model = cordcal.PreservingCalibrator(key, repair="lift")
        model.fit(scores, labels, clusters=clusters)
        likelihood[name] = model.calibrator_.held_out_.likelihood.mean()
    assert likelihood["clusters"] < likelihood["leak"] - 0.01


def test_trees_stop_early_by_other_clusters() -> None:
    pytest.importorskip("lightgbm")
    scores, labels, patients = unexplained()
    leaking, grouped = (
        cordcal.PreservingCalibrator("boost").fit(scores, labels, clusters=clusters)
        for clusters in (None, patients)
    )
    assert len(grouped.calibrator_.feature_) < len(leaking.calibrator_.feature_)


def test_naming_distinct_rows_changes_only_which_rows_share_a_fold() -> None:
    scores, labels = drawn(400)
    without = cordcal.PreservingCalibrator().fit(scores, labels)
    model = cordcal.PreservingCalibrator().fit(scores, labels, clusters=np.arange(400))
    assert np.abs(model.predict_proba(scores) - without.predict_proba(scores)).max() < 0.1


def test_a_frame_of_clusters_is_matched_by_index() -> None:
    pd = pytest.importorskip("pandas")
    scores, labels, patients = repeated(60)
    index = [f"row {number}" for number in range(len(labels))]
    frame = pd.DataFrame(scores, index=index)
    series = pd.Series(patients, index=index).iloc[::-1]
    first = cordcal.PreservingCalibrator().fit(frame, labels, clusters=series)
    second = cordcal.PreservingCalibrator().fit(scores, labels, clusters=patients)
    np.testing.assert_array_equal(first.predict_proba(scores), second.predict_proba(scores))


def test_dense_scores_have_a_cluster_per_position() -> None:
    scores, labels = drawn(256)
    images = np.repeat(np.arange(16), 16)
    model = cordcal.PreservingCalibrator().fit(scores, labels, clusters=images)
    shape = 16, 4, 4
    dense = np.moveaxis(scores.reshape(*shape, 3), -1, 1)
    again = cordcal.PreservingCalibrator().fit(
        dense, labels.reshape(shape), clusters=images.reshape(shape), axis=1
    )
    np.testing.assert_array_equal(model.predict_proba(scores), again.predict_proba(scores))


@pytest.mark.parametrize(
    ("clusters", "said"),
    [
        (np.zeros(240), "same value"),
        (np.zeros(239), "shape"),
        ([None, *["a"] * 239], "no value"),
    ],
)
def test_clusters_that_cannot_be_held_out_are_refused(clusters: object, said: str) -> None:
    scores, labels = drawn()
    with pytest.raises(InputError, match=said) as refused:
        cordcal.PreservingCalibrator().fit(scores, labels, clusters=clusters)
    assert refused.value.argument == "clusters"


def test_clusters_of_one_class_each_are_refused() -> None:
    scores, labels = drawn()
    two = labels < 2
    with pytest.raises(InputError, match="single class"):
        cordcal.PreservingCalibrator().fit(scores[two][:, :2], labels[two], clusters=labels[two])


# compare.


def test_compare_divides_clusters_into_parts() -> None:
    scores, labels, patients = repeated()
    number = cluster_numbers(patients, len(patients))
    original = CheckedScores.from_scores(scores, "logits", fitting=True)
    parts = random_splits(
        CheckedScores(original.raw, "logits", original.prediction, None, number),
        labels,
        0.5,
        3,
        0,
        None,
    )
    for part in parts:
        fit = np.setdiff1d(np.arange(len(labels)), part.rows)
        assert not np.intersect1d(number[fit], number[part.rows]).size
        assert abs(len(part.rows) - len(labels) / 2) <= COPIES


def test_compare_widens_intervals_by_clusters() -> None:
    scores, labels, patients = repeated()
    calibrators = {"memory": Memory()}
    alone = cordcal.compare(scores, labels, calibrators)
    grouped = cordcal.compare(scores, labels, calibrators, clusters=patients)
    # Without clusters, a copy of nearly every evaluated row was fitted on.
    assert alone["memory"].direct["accuracy"] > grouped["memory"].direct["accuracy"] + 0.1
    assert alone.fingerprint != grouped.fingerprint
    separate = [
        cordcal.compare(scores, labels, "irova", evaluation=(scores, labels), clusters=clusters)
        for clusters in (None, (patients, patients))
    ]
    widths = [np.ptp(result.resampled["irova", "direct"]["nll"]) for result in separate]
    assert widths[1] > 1.4 * widths[0]


def test_compare_wants_the_clusters_of_both_parts() -> None:
    scores, labels, patients = repeated()
    with pytest.raises(InputError, match="tuple") as refused:
        cordcal.compare(scores, labels, "ts", evaluation=(scores, labels), clusters=patients)
    assert refused.value.argument == "clusters"
    with pytest.raises(InputError, match="too large"):
        cordcal.compare(scores, labels, "ts", clusters=np.zeros(len(labels)))


def test_held_out_metrics_keep_clusters_together() -> None:
    scores, labels, patients = repeated()

    def new() -> cordcal.PreservingCalibrator:
        return cordcal.PreservingCalibrator(Memory())

    leaking = measure_held_out(new, scores, labels, input="logits")
    grouped = measure_held_out(new, scores, labels, input="logits", clusters=patients)
    assert grouped.repaired["nll"] > leaking.repaired["nll"] + 0.2
