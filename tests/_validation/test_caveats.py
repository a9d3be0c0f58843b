"""Scores and labels that look like a mistake: one warning that names it, and none otherwise."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

import cordcal
from cordcal import PreservingCalibrator
from cordcal._validation.caveats import Caveat
from cordcal._validation.data_caveats import MIN_ROWS_TO_FIT, find_caveats
from cordcal._validation.scores import CheckedScores

DATA = Path(os.environ.get("CORDCAL_TEST_DATA", "/nowhere"))


def drawn(rows=1000, classes=5, seed=0, sharp=3.0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=rows)
    return sharp * np.eye(classes)[labels] + rng.normal(size=(rows, classes)), labels


def warnings_of(scores, labels, kind="logits", **more):
    """Return the warnings of `PreservingCalibrator.fit` and `compare`, which must be the same."""
    names = more.get("class_names")
    with warnings.catch_warnings(record=True) as fitted:
        warnings.simplefilter("always")
        PreservingCalibrator("ts", input=kind, **more).fit(scores, labels)
    with warnings.catch_warnings(record=True) as compared:
        warnings.simplefilter("always")
        comparison = cordcal.compare(scores, labels, ["ts"], input=kind, class_names=names)
    sentences = [str(warning.message) for warning in fitted]
    assert [str(warning.message) for warning in compared] == sentences
    assert all(warning.filename == __file__ for warning in (*fitted, *compared))
    blocked = any(caveat.blocks_advice for caveat in comparison.caveats)
    assert blocked == (comparison.recommendation.key is None)
    return sentences


def test_sound_rows_are_not_doubted() -> None:
    logits, labels = drawn()
    assert warnings_of(logits, labels) == []
    assert warnings_of(softmax(logits, axis=1), labels, "probabilities") == []


def test_rows_sorted_by_class_are_doubted() -> None:
    logits, labels = drawn(rows=2000, classes=10)
    first = np.argsort(labels, kind="stable")[:300]
    (sentence,) = warnings_of(logits[first], labels[first])
    assert sentence.startswith("8 of 10 classes have no calibration row (2, 3, 4, …)")
    assert "sorted by class" in sentence


def test_a_shift_of_named_labels_asks_about_the_names() -> None:
    logits, labels = drawn()
    names = ["ant", "bee", "cat", "dog", "elk"]
    (sentence,) = warnings_of(logits, np.array(names)[(labels + 1) % 5], class_names=names)
    assert sentence.endswith("or are the class names in another order than the columns?")


def test_labels_from_one_without_the_last_class() -> None:
    logits, labels = drawn()
    rows = labels < 4
    (sentence,) = warnings_of(logits[rows], labels[rows] + 1)
    assert "with labels − 1 it would be 9" in sentence
    assert "below the most frequent class's share (2" in sentence


def test_reversed_columns_are_not_reported_as_a_shift() -> None:
    logits, labels = drawn(classes=10)
    (sentence,) = warnings_of(logits[:, ::-1], labels)
    assert "from the last to the first it would be 9" in sentence
    assert "− 1" not in sentence


def test_columns_in_any_other_order() -> None:
    logits, labels = drawn(2000, classes=12)
    (sentence,) = warnings_of(logits[:, sorted(range(12), key=str)], labels)
    assert "with column 2 for label 10, column 3 for label 11" in sentence
    order = [2, 3, 0, 1]
    few, truth = drawn(classes=4)
    (sentence,) = warnings_of(few[:, order], truth, class_names=list("abcd"))
    assert "with column a for label 2" in sentence


def test_shuffled_labels() -> None:
    logits, labels = drawn()
    (sentence,) = warnings_of(logits, np.random.default_rng(1).permutation(labels))
    assert "no better than with shuffled labels (20." in sentence


def test_only_changes_that_help_are_suggested() -> None:
    # Swapped columns of a classifier that is right in three rows of ten, where one class has
    # six: nothing brings it above that.
    rng = np.random.default_rng(0)
    labels = rng.choice(4, size=4000, p=[0.6, 0.2, 0.1, 0.1])
    right = rng.random(4000) < 0.3
    prediction = np.where(right, labels, (labels + rng.integers(1, 4, size=4000)) % 4)
    (sentence,) = warnings_of(4.0 * np.eye(4)[3 - prediction] + rng.normal(size=(4000, 4)), labels)
    assert "most frequent class's share (6" in sentence
    assert "would be" not in sentence


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_column_that_is_not_a_class(place: str) -> None:
    logits, labels = drawn()
    ids = np.arange(1000.0)[:, None]
    first = place == "first"
    scores = np.hstack([ids, logits] if first else [logits, ids])
    names = ["id", *"abcde"] if first else [*"abcde", "id"]
    (sentence,) = warnings_of(scores, labels, class_names=names)
    assert "without column 'id', the largest in 99." in sentence
    (by_name,) = warnings_of(scores, np.array(list("abcde"))[labels], class_names=names)
    assert "without column 'id'" in by_name


def test_a_column_that_is_not_a_class_is_named_where_one_class_dominates() -> None:
    rng = np.random.default_rng(0)
    labels = rng.choice(4, size=2000, p=[0.55, 0.25, 0.1, 0.1])
    logits = 2.0 * np.eye(4)[labels] + rng.normal(size=(2000, 4))
    scores = np.hstack([np.arange(2000.0)[:, None], logits])
    (sentence,) = warnings_of(scores, labels)
    assert "without column 0" in sentence


def test_softmax_applied_twice() -> None:
    logits, labels = drawn(sharp=6.0)
    twice = softmax(softmax(logits, axis=1), axis=1)
    for scores in (twice, twice.astype(np.float32), np.round(twice, 4)):
        (sentence,) = warnings_of(
            scores / scores.sum(axis=1, keepdims=True), labels, "probabilities"
        )
        assert "by a factor of at most 2.7" in sentence
        assert "two softmaxes" in sentence


def test_a_flat_classifier_is_not_taken_for_a_second_softmax() -> None:
    # As flat as after a second softmax, but right as often as it says.
    rng = np.random.default_rng(0)
    p = 0.27 + 0.46 * rng.random(2000)
    labels = (rng.random(2000) >= p).astype(int)
    assert warnings_of(np.column_stack([p, 1 - p]), labels, "probabilities") == []
    # Under-confident, but with more than one class above the rest.
    logits, truth = drawn()
    assert warnings_of(softmax(0.3 * logits, axis=1), truth, "probabilities") == []


@pytest.mark.parametrize("decimals", [0, 1, 6])
def test_percentages_as_logits(decimals: int) -> None:
    logits, labels = drawn()
    (sentence,) = warnings_of(np.round(100 * softmax(logits, axis=1), decimals), labels)
    assert "add up to 100 in every row" in sentence


def keys_of(caveats: list[Caveat]) -> set[str]:
    return {caveat.key for caveat in caveats}


def test_far_too_few_rows() -> None:
    logits, labels = drawn(40, classes=10)
    with pytest.warns(UserWarning, match="only 5 rows of 10 classes") as caught:
        PreservingCalibrator("ts").fit(logits[:5], labels[:5])
    assert len(caught) == 1
    with pytest.warns(UserWarning, match="only 19 rows"):
        PreservingCalibrator("ts").fit(
            logits, labels, sample_weight=np.arange(40) < MIN_ROWS_TO_FIT - 1
        )
    enough = CheckedScores.from_scores(logits[:MIN_ROWS_TO_FIT], "logits")
    assert "rows" not in keys_of(find_caveats(enough, labels[:MIN_ROWS_TO_FIT]))


def test_labels_of_one_class_are_refused_without_a_doubt() -> None:
    logits, _ = drawn(30)
    for rows in (30, 3, 1):
        with pytest.raises(cordcal.InputError) as raised:
            PreservingCalibrator("ts").fit(logits[:rows], np.full(rows, 2))
        assert raised.value.argument == "labels"


def test_constant_scores() -> None:
    _, labels = drawn()
    row = np.array([[0.1, 0.4, 0.2, 0.2, 0.1]])
    (sentence,) = warnings_of(np.repeat(row, 1000, axis=0), labels, "probabilities")
    assert "the same in all 1,000 rows" in sentence
    shifted = np.log(row) + np.arange(1000.0)[:, None]  # the same once a softmax is taken
    (sentence,) = warnings_of(shifted, labels)
    assert "the same in all 1,000 rows" in sentence
    model = cordcal.calibrators.make("ts").fit(*drawn())
    with pytest.warns(UserWarning, match="the same in all"):
        PreservingCalibrator(model, prefit=True).fit(shifted)


def test_accuracy_below_the_majority_is_doubted_and_not_below_one_in_k() -> None:
    rng = np.random.default_rng(0)
    labels = np.where(rng.random(2000) < 0.7, 0, rng.integers(1, 5, size=2000))
    prediction = np.where(rng.random(2000) < 0.5, labels, rng.integers(5, size=2000))
    logits = 3.0 * np.eye(5)[prediction] + rng.normal(size=(2000, 5)) / 5
    (sentence,) = warnings_of(logits, labels)
    assert "is below the most frequent class's share (69.7 %)" in sentence
    # Predictions that are related to the labels may be of a weighted classifier.
    assert 'rule="learnt"' in sentence
    PreservingCalibrator("ts", rule="learnt").fit(logits, labels)
    with pytest.warns(UserWarning, match="are the labels those of these rows"):
        PreservingCalibrator("ts", rule="learnt").fit(logits, rng.permutation(labels))


def test_predictions_barely_above_chance_are_doubted_unless_they_follow_a_rule() -> None:
    rng = np.random.default_rng(0)
    labels = np.where(rng.random(2000) < 0.7, 0, rng.integers(1, 5, size=2000))
    prediction = np.where(rng.random(2000) < 0.04, labels, rng.integers(5, size=2000))
    logits = 3.0 * np.eye(5)[prediction] + rng.normal(size=(2000, 5)) / 5
    (sentence,) = warnings_of(logits, labels)
    assert "are the labels those of these rows" in sentence
    PreservingCalibrator("ts", rule="learnt").fit(logits, labels)


def test_rare_classes_that_are_never_decided_for_are_not_doubted() -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random(20_000) < 0.05).astype(int)
    risk = rng.normal(size=20_000) + labels
    assert warnings_of(np.column_stack([np.full(20_000, 4.0), risk]), labels) == []


def test_ordinal_classes_that_are_often_one_off_are_not_doubted() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(1, 5, size=5000)
    prediction = labels - (rng.random(5000) < 0.55)
    (sentence,) = warnings_of(3.0 * np.eye(5)[prediction] + rng.normal(size=(5000, 5)) / 5, labels)
    assert "has no calibration row" in sentence


def test_weights_decide_which_rows_count() -> None:
    logits, labels = drawn()
    wrong = np.where(np.arange(1000) < 700, (labels + 1) % 5, labels)
    weight = np.where(np.arange(1000) < 700, 1e-3, 1e300)
    with pytest.warns(UserWarning, match="labels − 1"):
        PreservingCalibrator("ts").fit(logits, wrong)
    PreservingCalibrator("ts").fit(logits, wrong, sample_weight=weight)


def test_one_heavy_row_does_not_decide() -> None:
    logits, labels = drawn()
    weight = np.ones(1000)
    worst = np.flatnonzero(logits.argmax(axis=1) != labels)[0]
    weight[worst] = 5000.0
    PreservingCalibrator("ts").fit(logits, labels, sample_weight=weight)


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("rows", [20, 30, 60])
def test_small_sets_of_a_poor_classifier_are_not_doubted_by_chance(rows: int, classes: int) -> None:
    doubted = 0
    for seed in range(400):
        logits, labels = drawn(rows, classes, seed, sharp=1.0)
        # A class may be absent, and every prediction right, by chance: that is said.
        caveats = find_caveats(CheckedScores.from_scores(logits, "logits"), labels)
        doubted += bool(keys_of(caveats) - {"classes", "errors"})
    assert doubted == 0


def test_a_fit_warns_once_and_its_refits_do_not() -> None:
    logits, labels = drawn(400, 3)
    wrong = np.random.default_rng(0).permutation(labels)
    for model in (
        PreservingCalibrator(),
        PreservingCalibrator("ts"),
        PreservingCalibrator("irova", repair="lift"),
    ):
        with pytest.warns(UserWarning, match="shuffled labels") as caught:
            model.fit(logits, wrong)
        assert len(caught) == 1


def test_labels_of_a_foreign_calibrator_may_be_words() -> None:
    class Words:
        def fit(self, scores, labels):
            assert labels[0] in "ab"
            return self

        def predict_proba(self, scores):
            return softmax(scores, axis=1)

    logits, labels = drawn(classes=2)
    PreservingCalibrator(Words()).fit(logits, np.array(["a", "b"])[labels])


BELOW_MAJORITY = "llm6_Llama-2-7b-hf_base_icl0"


@pytest.mark.skipif(
    not (DATA / f"{BELOW_MAJORITY}.npz").is_file(),
    reason="CORDCAL_TEST_DATA does not name the folder of real outputs",
)
def test_of_the_real_sets_only_the_one_below_its_majority_is_doubted() -> None:
    doubted = {}
    for path in sorted(DATA.glob("*.npz")):
        with np.load(path) as content:
            kind = "logits" if "logits" in content else "probabilities"
            scores = content.get("logits", content.get("probs"))
            if scores is None:
                continue  # features
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a few round their probabilities coarsely
                original = CheckedScores.from_scores(scores, kind)
            caveats = find_caveats(original, content["labels"].astype(np.intp))
        if keys_of(caveats) - {"classes"}:
            doubted[path.stem] = [caveat.key for caveat in caveats]
    assert doubted == {BELOW_MAJORITY: ["majority"]}
