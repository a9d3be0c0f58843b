"""Caveats of comparisons and audits, which come before any advice."""

from __future__ import annotations

import re

import numpy as np
import pytest

import cordcal
from cordcal._validation.data_caveats import audit_caveats, overlap, split_caveats


def rows(count: int = 800, classes: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=count)
    return 3.0 * np.eye(classes)[labels] + rng.normal(size=(count, classes)), labels


def caveats(logits, labels, classes=5, names=None):
    return audit_caveats(logits.argmax(axis=1), labels, classes=classes, names=names)


def test_sound_rows_raise_no_caveat() -> None:
    logits, labels = rows()
    assert caveats(logits, labels) == []
    assert overlap(logits[:400], logits[400:]) == []
    assert cordcal.compare(logits, labels, ["ts", "vs"]).data_caveats == ()


@pytest.mark.parametrize(("shift", "words"), [(1, "with labels − 1"), (-1, "with labels + 1")])
def test_shifted_labels_are_reported_with_the_accuracy_they_would_have(shift, words) -> None:
    logits, labels = rows()
    inside = (labels + shift >= 0) & (labels + shift < 5)
    with pytest.warns(UserWarning, match=re.escape(f"{words} it would be")) as caught:
        comparison = cordcal.compare(logits[inside], labels[inside] + shift, ["ts", "vs"])
    assert len(caught) == 1
    assert caught[0].filename == __file__
    caveat = comparison.caveats[0]
    assert caveat.key == "labels"
    assert words in caveat.sentence
    assert caveat.figures["accuracy_with_shift"] > 0.85 > 0.2 > caveat.figures["accuracy"]
    assert f"{100 * caveat.figures['accuracy_with_shift']:.1f} %" in caveat.sentence
    # Loud: no advice, nothing worth having, and it comes first.
    assert comparison.recommendation.key is None
    assert comparison.recommendation.changing is None
    assert "may change" not in comparison.interpret()
    assert comparison.interpret().startswith("No recommendation. Check first: accuracy")
    assert comparison.to_dict()["caveats"][0]["blocks_advice"]


def test_columns_in_another_order_than_their_names_suggest() -> None:
    logits, labels = rows(classes=12)
    names = [str(index) for index in range(12)]  # sorted as words: 0, 1, 10, 11, 2, ...
    encoded = np.argsort(np.argsort(names))[labels]
    (caveat,) = caveats(logits, encoded, 12, names)
    assert caveat.key == "columns"
    assert "in the order of their sorted names" in caveat.sentence
    by_number = caveats(logits[:, np.argsort(names)], labels, 12, sorted(names))
    assert "by the numbers that are their names" in by_number[0].sentence
    assert caveats(logits, labels, 12, names) == []


def test_a_data_frames_names_suggest_an_order() -> None:
    pd = pytest.importorskip("pandas")
    logits, labels = rows(classes=12)
    names = [str(index) for index in range(12)]
    encoded = np.argsort(np.argsort(names))[labels]
    with pytest.warns(UserWarning, match="sorted names"):
        comparison = cordcal.compare(pd.DataFrame(logits, columns=names), encoded, ["ts"])
    assert comparison.caveats[0].key == "columns"


def test_an_audit_says_first_what_to_check() -> None:
    logits, labels = rows()
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    sound = cordcal.audit(p, p**0.5 / (p**0.5).sum(axis=1, keepdims=True), labels)
    assert sound.caveats == ()
    wrong = cordcal.audit(p, p, (labels + 1) % 5)
    assert wrong.caveats[0].key == "labels"
    assert wrong.interpret().startswith("Check first: accuracy")
    assert wrong.to_dict()["caveats"][0]["figures"]["shift"] == -1
    few = cordcal.audit(p[:30], p[:30], labels[:30])
    assert few.caveats[0].figures == {"evaluation": 30, "needed": 100}
    assert cordcal.audit(p[:30], p[:30]).caveats == ()


def test_a_comparison_doubts_the_labels_of_its_evaluation_rows_too() -> None:
    (logits, labels), (others, _) = rows(), rows(seed=1)
    wrong = np.random.default_rng(0).permutation(rows(seed=1)[1])
    with pytest.warns(UserWarning, match="shuffled labels") as caught:
        comparison = cordcal.compare(logits, labels, ["ts"], evaluation=(others, wrong))
    assert len(caught) == 1
    assert [caveat.key for caveat in comparison.caveats] == ["chance"]
    assert comparison.recommendation.key is None


def test_an_audit_counts_weighted_rows() -> None:
    logits, labels = rows()
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    mixed = np.where(np.arange(800) < 700, (labels + 1) % 5, labels)
    weight = np.where(np.arange(800) < 700, 0.0, 1.0)
    assert cordcal.audit(p, p, mixed).caveats[0].key == "labels"
    assert cordcal.audit(p, p, mixed, sample_weight=weight).caveats == ()


def test_few_rows_give_measures_and_no_advice() -> None:
    comparison = cordcal.compare(*rows(150), ["ts", "vs"])
    assert [caveat.key for caveat in comparison.caveats] == ["rows"]
    assert comparison.recommendation.key is None
    assert comparison.next_step() is None
    gap = comparison.difference(("vs", "repaired"), ("ts", "direct"), "nll")
    assert gap.low < gap.estimate < gap.high


def test_absent_classes_are_counted_and_named() -> None:
    _, labels = rows()
    keep = labels != 3
    caveats = split_caveats(labels[keep], labels[keep], classes=5, names=list("abcde"))
    assert [caveat.sentence for caveat in caveats] == [
        "1 of 5 classes has no calibration row (d)",
        "1 of 5 classes has no evaluation row (d)",
    ]
    assert not any(caveat.blocks_advice for caveat in caveats)


def test_rows_in_both_parts_are_reported() -> None:
    logits, labels = rows()
    comparison = cordcal.compare(logits, labels, ["ts"], evaluation=(logits[::2], labels[::2]))
    (caveat,) = comparison.caveats
    assert caveat.key == "overlap"
    assert caveat.figures["shared"] == 1.0
    assert comparison.recommendation.key is None


def test_duplicates_of_either_part_explain_shared_rows() -> None:
    scores = np.random.default_rng(5).random((3000, 3))
    fitted, other = scores[:1000], scores[1000:]
    shared = fitted[:30]  # 3 % of the evaluation rows
    assert overlap(fitted, np.concatenate([shared, other[:970]])) != []
    assert overlap(fitted, np.concatenate([shared, other[:900], other[:70]])) == []


def test_rows_of_a_coarse_classifier_coincide_without_alarm() -> None:
    rng = np.random.default_rng(4)
    votes = rng.multinomial(10, [0.8, 0.15, 0.05], size=2000) / 10
    assert overlap(votes[:1000], votes[1000:]) == []
    many = rng.multinomial(100, np.full(20, 0.05), size=1000) / 100
    assert overlap(many, many[:500]) != []


def test_options_that_do_not_differ_are_reported() -> None:
    rng = np.random.default_rng(9)
    probabilities = rng.dirichlet(np.ones(3), 300)
    labels = (probabilities.cumsum(axis=1) < rng.random((300, 1))).sum(axis=1)
    comparison = cordcal.compare(probabilities, labels, ["ts"], input="probabilities")
    assert [caveat.key for caveat in comparison.caveats] == ["indistinct"]
    assert not comparison.caveats[0].blocks_advice
    simplest = min(comparison.preserving(), key=lambda option: comparison.measures(*option)["nll"])
    assert (comparison.recommendation.key, comparison.recommendation.output) == simplest
