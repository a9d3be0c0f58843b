"""Certificates: the thresholds of a slow reference, and the promised level in simulations."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import cordcal
from cordcal.certification import Certificate, certify_rows
from errors import refused


def draw(rng: np.random.Generator, n: int, classes: int = 3, decimals: int = 2):
    """Return calibrated probabilities with ties, and labels."""
    top = np.round(rng.uniform(0.6, 1.0, n), decimals)
    predicted = rng.integers(classes, size=n)
    probabilities = np.repeat(((1.0 - top) / (classes - 1))[:, None], classes, axis=1)
    probabilities[np.arange(n), predicted] = top
    wrong = rng.random(n) > top
    return probabilities, np.where(wrong, (predicted + 1) % classes, predicted)


def reference(confidence, wrong, error, delta):
    """Test one part from the definition, row by row; return the accepted rows and errors."""
    n = len(confidence)
    least = math.ceil(math.log(delta) / math.log(1.0 - error))
    if n < least:
        return None
    ordered = sorted(confidence, reverse=True)
    counts = set()
    for count in np.linspace(least, n, 60).round().astype(int):
        counts.add(sum(value >= ordered[count - 1] for value in confidence))
    counts = sorted(counts)
    chances = []
    for count in counts:
        allowed = -1
        while stats.binom.cdf(allowed + 1, count, error) <= delta:
            allowed += 1
        expected = sum(1.0 - value for value in ordered[:count]) / count
        chances.append(stats.binom.cdf(allowed, count, expected))
    best = None
    for count in counts[int(np.argmax(chances)) :]:
        errors = int(wrong[confidence >= ordered[count - 1]].sum())
        if stats.binom.cdf(errors, count, error) > delta:
            break
        best = (count, errors)
    return best


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("error", [0.02, 0.1])
def test_one_part_is_that_of_the_slow_reference(seed, error) -> None:
    rng = np.random.default_rng(seed)
    confidence = np.round(rng.uniform(0.6, 1.0, 700) ** 0.3, 3)
    wrong = rng.random(700) > confidence
    (part,) = certify_rows(confidence, wrong, error, 0.05)
    expected = reference(confidence, wrong, error, 0.05)
    assert (None if part.threshold is None else (part.accepted, part.errors)) == expected
    if expected:
        assert int((confidence >= part.threshold).sum()) == part.accepted


@pytest.mark.parametrize("by", [None, "class"])
def test_statements_are_violated_no_more_often_than_promised(by) -> None:
    rng, violated, shares = np.random.default_rng(1), 0, []
    population, truth = draw(rng, 20_000)
    wrong = population.argmax(axis=1) != truth
    for _ in range(300):
        rows = rng.integers(len(truth), size=800)
        certificate = cordcal.certify(population[rows], truth[rows], 0.1, by=by)
        accepted = certificate.accepts(population)
        shares.append(accepted.mean())
        parts = population.argmax(axis=1) if by else np.zeros(len(truth))
        rates = [wrong[accepted & (parts == part)] for part in np.unique(parts)]
        violated += any(len(rate) > 0 and rate.mean() > 0.1 for rate in rates)
    assert violated <= 300 * (0.05 + 2 * math.sqrt(0.05 * 0.95 / 300))
    assert np.mean(shares) > 0.0  # power: test_certified.py


def test_dependent_rows_keep_the_level_with_clusters() -> None:
    rng, violated = np.random.default_rng(2), 0
    for _ in range(200):
        # Eight copies of each row; at the threshold 0 the error rate is 11 %.
        confidence, wrong = np.full(150, 0.95), rng.random(150) < 0.11
        (part,) = certify_rows(
            np.repeat(confidence, 8),
            np.repeat(wrong, 8),
            0.1,
            0.05,
            clusters=np.repeat(np.arange(150), 8),
        )
        violated += part.threshold is not None
    assert violated <= 10


def test_a_complete_part_passes_its_share_on() -> None:
    """Alone, 40 rows certify 10 % at 0.025 but not with an error; at 0.05 one error needs 46."""
    confidence, wrong = np.full(146, 0.99), np.zeros(146, dtype=bool)
    wrong[100] = True
    parts = np.r_[np.zeros(100, dtype=int), np.ones(46, dtype=int)]
    names = ["large", "small"]
    large, small = certify_rows(confidence, wrong, 0.1, 0.05, part_of=parts, names=names)
    assert large.threshold == small.threshold == 0.0
    wrong[:40] = True
    large, small = certify_rows(confidence, wrong, 0.1, 0.05, part_of=parts, names=names)
    assert large.threshold is small.threshold is None


def test_small_parts_are_known_without_labels() -> None:
    probabilities, labels = draw(np.random.default_rng(3), 400, classes=4)
    few = np.flatnonzero(probabilities.argmax(axis=1) != 3)
    certificate = cordcal.certify(probabilities[few], labels[few], 0.1, by="class")
    again = cordcal.certify(probabilities[few], (labels[few] + 1) % 4, 0.1, by="class")
    assert [part.needed for part in certificate.parts] == [part.needed for part in again.parts]
    assert certificate.parts[3].rows == 0
    assert certificate.parts[3].threshold is None
    assert "0 rows, but a statement needs" in str(certificate)
    row = np.eye(4)[[3]]
    assert not certificate.accepts(row).any()


def test_groups_that_are_new_never_go_through() -> None:
    probabilities, labels = draw(np.random.default_rng(4), 3000)
    groups = np.where(np.arange(3000) % 2, "north", "south")
    certificate = cordcal.certify(probabilities, labels, 0.1, by=groups)
    sure = np.array([[0.999, 0.0005, 0.0005]] * 2)
    assert certificate.accepts(sure, groups=["north", "west"]).tolist() == [True, False]
    with refused("groups"):
        certificate.accepts(sure)
    assert Certificate.from_dict(certificate.to_state()).accepts(
        sure, groups=["south", "new"]
    ).tolist() == [True, False]


def test_rows_without_a_group_never_go_through() -> None:
    probabilities, labels = draw(np.random.default_rng(4), 3000)
    numbers = np.arange(3000) % 2
    certificate = cordcal.certify(probabilities, labels, 0.1, by=numbers)
    sure = np.array([[0.999, 0.0005, 0.0005]] * 2)
    assert certificate.accepts(sure, groups=[1.0, np.nan]).tolist() == [True, False]
    assert certificate.accepts(sure, groups=np.array([1, None])).tolist() == [True, False]
    for missing in (None, "", " "):
        groups = np.where(numbers == 1, "north", "south").astype(object)
        groups[7] = missing
        with refused("groups", rows=[7]):
            cordcal.certify(probabilities, labels, 0.1, by=groups)


@pytest.mark.parametrize("seed", range(5))
def test_a_stored_confidence_acts_alike(seed) -> None:
    """At the threshold itself: in float64, in float32, and read back from text of either."""
    probabilities, labels = draw(np.random.default_rng(seed), 4000)
    certificate = cordcal.certify(probabilities, labels, 0.1)
    certificate = replace(
        certificate, parts=(replace(certificate.parts[0], threshold=round(0.8 + seed / 100, 2)),)
    )
    expected = certificate.accepts(probabilities)
    stored = probabilities.astype(np.float32)
    text = [[float(str(value)) for value in row] for row in stored]
    assert (certificate.accepts(stored) == expected).all()
    assert (certificate.accepts(text) == expected).all()


@pytest.mark.parametrize("dtype", ["int64", "float64", "object"])
def test_groups_of_whole_numbers_have_one_name(dtype) -> None:
    probabilities, labels = draw(np.random.default_rng(4), 3000)
    groups = np.arange(3000) % 2 + 1
    certificate = cordcal.certify(probabilities, labels, 0.1, by=groups.astype(dtype))
    assert [part.name for part in certificate.parts] == ["1", "2"]
    sure = np.array([[0.999, 0.0005, 0.0005]] * 3)
    for missing in (np.nan, None, ""):
        later = np.array([1.0, 2, missing], dtype=object)
        assert certificate.accepts(sure, groups=later).tolist() == [True, True, False]
    assert certificate.accepts(sure, groups=[1.0, 2.0, np.nan]).tolist() == [True, True, False]


@pytest.mark.parametrize("missing", [None, np.nan, ""])
def test_rows_without_a_group_are_refused(missing) -> None:
    probabilities, labels = draw(np.random.default_rng(4), 3000)
    groups = np.where(np.arange(3000) % 2, "north", "south").astype(object)
    groups[7] = missing
    with refused("groups", rows=[7]):
        cordcal.certify(probabilities, labels, 0.1, by=groups)


def test_clusters_of_any_kind_and_never_missing() -> None:
    probabilities, labels = draw(np.random.default_rng(4), 3000)
    clusters = (np.arange(3000) // 3).astype(object)
    whole = cordcal.certify(probabilities, labels, 0.2, clusters=clusters)
    clusters[:3] = "first"
    assert cordcal.certify(probabilities, labels, 0.2, clusters=clusters) == whole
    for missing in (None, np.nan):
        clusters[5] = missing
        with refused("clusters", rows=[5]):
            cordcal.certify(probabilities, labels, 0.2, clusters=clusters)


@pytest.mark.parametrize("question", ["violated", "renewed"])
def test_copies_of_rows_answer_like_these_rows(question) -> None:
    probabilities, labels = draw(np.random.default_rng(4), 4000)
    certificate = cordcal.certify(probabilities, labels, 0.1)
    few, labels = np.repeat(np.eye(3), 8, axis=0), np.repeat(np.arange(3), 8)
    if question == "violated":
        labels[:5] = 1
    many, copies, clusters = np.repeat(few, 30, axis=0), np.repeat(labels, 30), np.arange(24 * 30)
    assert certificate.recheck(many, copies, question).passed == (question == "renewed")
    alone = certificate.recheck(few, labels, question)
    grouped = certificate.recheck(many, copies, question, clusters=clusters // 30)
    assert alone.passed == grouped.passed == (question == "violated")
    assert certificate.recheck(few, labels, question, clusters=clusters[:24]) == alone


def test_no_acted_row_answers_nothing() -> None:
    probabilities, labels = draw(np.random.default_rng(4), 3000)
    groups = np.where(np.arange(3000) % 2, "north", "south")
    certificate = cordcal.certify(probabilities, labels, 0.1, by=groups)
    for question in ("violated", "renewed"):
        recheck = certificate.recheck(probabilities, labels, question, groups=np.full(3000, "west"))
        assert not recheck.passed
        assert "no acted row" in str(recheck)


@pytest.mark.parametrize("change", [lambda p: 100 * p, lambda p: 0.5 * p, np.log])
def test_later_rows_are_probabilities(change) -> None:
    probabilities, labels = draw(np.random.default_rng(4), 3000)
    certificate = cordcal.certify(probabilities, labels, 0.1)
    probabilities = np.clip(probabilities, 0.01, 0.98)
    with refused("probabilities"):
        certificate.accepts(change(probabilities))
    with refused("probabilities"):
        cordcal.certify(change(probabilities), labels, 0.1)
    with refused("probabilities"):
        certificate.recheck(change(probabilities), labels, "violated")


def test_what_float32_cannot_separate_goes_through_together() -> None:
    rng = np.random.default_rng(0)
    confidence = 1.0 - 10.0 ** -rng.uniform(1.0, 12.0, 3000)
    wrong = rng.random(3000) < np.where(confidence > 1.0 - 1e-8, 0.0, 0.3)
    (part,) = certify_rows(confidence, wrong, 0.1, 0.05)
    accepted = confidence.astype(np.float32) >= np.float32(part.threshold)
    assert (part.accepted, part.errors) == (int(accepted.sum()), int(wrong[accepted].sum()))


def test_rules_and_predictions_decide_what_is_wrong() -> None:
    probabilities, labels = draw(np.random.default_rng(5), 2000)
    by_rule = cordcal.certify(probabilities, labels, 0.2, rule=[1, 1, 1])
    assert by_rule.parts == cordcal.certify(probabilities, labels, 0.2).parts
    given = cordcal.certify(probabilities, labels, 0.2, prediction=probabilities.argmax(axis=1))
    assert given.parts == by_rule.parts
    with refused("prediction"):
        given.accepts(probabilities)


def test_bad_inputs_are_refused() -> None:
    probabilities, labels = draw(np.random.default_rng(6), 100)
    for error in (0.0, 1.0, -1.0):
        with refused("error"):
            cordcal.certify(probabilities, labels, error)
    for confidence in (0.3, 1.0):
        with refused("confidence"):
            cordcal.certify(probabilities, labels, 0.1, confidence=confidence)
    for text in ("2%", None, [0.1]):
        with refused("error", naming="a number"):
            cordcal.certify(probabilities, labels, text)
    with refused("confidence", naming="a number"):
        cordcal.certify(probabilities, labels, 0.1, confidence="95%")
    with refused("labels", naming="149"):
        cordcal.certify(probabilities, labels, 0.02)
    with refused("by"):
        cordcal.certify(probabilities, labels, 0.1, by="group")
    certificate = cordcal.certify(probabilities, labels, 0.1)
    with refused("probabilities"):
        certificate.accepts(probabilities[:, :2])
    assert "<table>" in certificate._repr_html_()
