"""Risk against coverage: the textbook sum, whatever the order and the ties."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from cordcal.metrics import risk_coverage


def textbook(confidence: np.ndarray, wrong: np.ndarray) -> float:
    order = np.argsort(-confidence, kind="stable")
    return float(np.mean(np.cumsum(wrong[order]) / np.arange(1, len(wrong) + 1)))


def two_class(confidence: np.ndarray) -> np.ndarray:
    return np.stack([confidence, 1.0 - confidence], axis=1)


def test_distinct_confidences_give_the_textbook_area() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.51, 1.0, 200)
    labels = (rng.random(200) > confidence).astype(int)
    curve = risk_coverage(two_class(confidence), labels)
    assert curve.aurc == pytest.approx(textbook(confidence, labels), abs=1e-12)
    assert curve.coverage[-1] == 1.0
    assert curve.risk[-1] == pytest.approx(labels.mean())


def test_ties_are_the_mean_over_their_orders() -> None:
    confidence = np.array([0.9, 0.8, 0.8, 0.8, 0.6])
    labels = np.array([0, 1, 0, 0, 1])
    areas = [
        textbook(np.arange(5, 0, -1.0), labels[[0, *order, 4]])
        for order in itertools.permutations((1, 2, 3))
    ]
    curve = risk_coverage(two_class(confidence), labels)
    assert curve.aurc == pytest.approx(np.mean(areas), abs=1e-12)
    assert len(curve.confidence) == 3


def test_a_weight_counts_rows() -> None:
    confidence, labels = np.array([0.9, 0.7, 0.7]), np.array([0, 1, 0])
    weighted = risk_coverage(two_class(confidence), labels, sample_weight=[2.0, 1.0, 3.0])
    again = np.repeat(np.arange(3), [2, 1, 3])
    repeated = risk_coverage(two_class(confidence[again]), labels[again])
    assert weighted.aurc == pytest.approx(repeated.aurc, abs=1e-12)
    np.testing.assert_allclose(weighted.risk, repeated.risk)


def test_thresholds() -> None:
    curve = risk_coverage(two_class(np.array([0.9, 0.8, 0.6])), [0, 1, 0])
    assert curve.at(0.8) == (pytest.approx(2 / 3), 0.5)
    assert curve.at(0.95)[0] == 0.0
    assert math.isnan(curve.at(0.95)[1])
    assert curve.at(0.0) == (1.0, pytest.approx(2 / 3))
    assert set(curve.to_dict()) == {"confidence", "coverage", "risk", "aurc"}


def test_one_row() -> None:
    assert risk_coverage([[0.7, 0.3]], [1]).aurc == 1.0
    assert risk_coverage([[0.7, 0.3]], [0]).aurc == 0.0
