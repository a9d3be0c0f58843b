"""Moves of predictions between classes, and the reliability of one class."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal.metrics import class_reliability, prediction_changes, prediction_flows, reliability
from errors import refused


def test_flows_are_the_changes() -> None:
    rng = np.random.default_rng(0)
    original, direct = rng.dirichlet(np.ones(5), (2, 400))
    result = prediction_flows(original, direct)
    assert result.count.sum() == prediction_changes(original, direct).n_changed
    assert (np.diff(result.count) <= 0).all()
    before, after = original.argmax(axis=1), direct.argmax(axis=1)
    expected = np.zeros((5, 5), dtype=int)
    np.add.at(expected, (before, after), 1)
    np.fill_diagonal(expected, 0)
    np.testing.assert_array_equal(result.matrix(), expected)
    again = prediction_flows(before, direct)
    np.testing.assert_array_equal(again.matrix(), expected)


def test_nothing_moves() -> None:
    probabilities = np.array([[0.6, 0.4], [0.3, 0.7]])
    result = prediction_flows(probabilities, probabilities)
    assert result.count.size == 0
    assert not result.matrix().any()
    assert result.to_dict()["count"] == []


def test_a_class_against_the_rest() -> None:
    rng = np.random.default_rng(1)
    probabilities = rng.dirichlet(np.ones(3), 300)
    labels = np.array([rng.choice(3, p=row) for row in probabilities])
    result = class_reliability(probabilities, labels, 2, bins=10)
    inside = (probabilities[:, 2] > 0.2) & (probabilities[:, 2] <= 0.3)
    assert result.count[2] == inside.sum()
    assert result.accuracy[2] == pytest.approx((labels[inside] == 2).mean())
    assert result.confidence[2] == pytest.approx(probabilities[inside, 2].mean())


def test_of_two_classes_the_likelier_is_the_top() -> None:
    rng = np.random.default_rng(2)
    p = rng.uniform(0.5, 1.0, 200)
    probabilities, labels = np.stack([1 - p, p], axis=1), (rng.random(200) < p).astype(int)
    top = reliability(probabilities, labels)
    second_class = class_reliability(probabilities, labels, 1)
    np.testing.assert_array_equal(top.count, second_class.count)


def test_a_class_that_is_not_there() -> None:
    with refused("index", naming="0..1"):
        class_reliability([[0.5, 0.5]], [0], 2)


def test_labels_of_one_class_are_checked() -> None:
    with refused("labels", rows=[0], naming="0..1"):
        class_reliability([[0.5, 0.5]], [2], 0)
    with refused("sample_weight", rows=[0]):
        class_reliability([[0.5, 0.5]], [1], 0, sample_weight=[-1.0])
