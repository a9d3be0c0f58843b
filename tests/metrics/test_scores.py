"""Accuracy, NLL and Brier against sums written out by hand, and the errors they raise."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from cordcal import metrics
from errors import refused

P = np.array([[0.5, 0.5, 0.0], [0.25, 0.25, 0.5], [1.0, 0.0, 0.0], [0.125, 0.75, 0.125]])
Y = np.array([1, 2, 1, 1])

MEANS = [metrics.accuracy, metrics.nll, metrics.brier]


def test_values_by_hand() -> None:
    # Row 0 is a tie that the smallest index wins, so it is wrong.
    assert metrics.accuracy(P, Y) == 0.5
    expected = -(math.log(0.5) + math.log(0.5) + math.log(1e-12) + math.log(0.75)) / 4
    assert metrics.nll(P, Y) == pytest.approx(expected, rel=1e-15)
    rows = [Fraction(1, 2), Fraction(3, 8), Fraction(2), Fraction(1, 16) + 2 * Fraction(1, 64)]
    assert metrics.brier(P, Y) == float(sum(rows) / 4)


def test_tiny_brier_is_not_lost_to_cancellation() -> None:
    assert metrics.brier([[1.0 - 2.0**-40, 2.0**-40]], [0]) == 2.0**-79


def test_probability_one_of_the_true_class_has_zero_nll() -> None:
    assert math.copysign(1.0, metrics.nll([[1.0, 0.0]], [0])) == 1.0


@pytest.mark.parametrize("metric", [*MEANS, metrics.ece])
def test_whole_weights_repeat_rows(metric) -> None:
    weights = np.array([1, 0, 3, 2])
    rows = np.repeat(np.arange(4), weights)
    assert metric(P, Y, sample_weight=weights) == pytest.approx(metric(P[rows], Y[rows]), rel=1e-15)


@pytest.mark.parametrize("metric", MEANS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_narrow_dtypes_are_read_as_the_numbers_they_hold(metric, dtype) -> None:
    assert metric(P.astype(dtype), Y) == metric(P, Y)


@pytest.mark.parametrize("metric", MEANS)
def test_other_libraries(metric) -> None:
    torch = pytest.importorskip("torch")
    expected = metric(P, Y)
    assert metric(torch.tensor(P), torch.tensor(Y)) == expected
    assert metric(torch.tensor(P, dtype=torch.bfloat16), torch.tensor(Y)) == expected
    strict = pytest.importorskip("array_api_strict")
    assert metric(strict.asarray(P), Y) == expected


@pytest.mark.parametrize(
    ("probabilities", "labels", "argument", "rows", "fact"),
    [
        ([[2.0, -1.0]], [0], "probabilities", [0], "negative"),
        ([[0.5, 0.5], [0.5, np.nan]], [0, 0], "probabilities", [1], "NaN"),
        ([[0.5, 0.5], [0.5, 0.2]], [0, 0], "probabilities", [1], "0.7"),
        ([[0.5, 0.5]], [2], "labels", [0], "0..1"),
        ([[0.5, 0.5]], [0, 1], "labels", [], "(2,)"),
        ([[0.5, 0.5]], ["cat"], "labels", [], "a data frame"),
        ([0.5, 0.5], [0], "probabilities", [], "1 dimension"),
    ],
)
def test_bad_input_names_argument_row_and_hint(probabilities, labels, argument, rows, fact) -> None:
    for metric in (*MEANS, metrics.ece):
        with refused(argument, rows=rows, naming=fact):
            metric(probabilities, labels)


@pytest.mark.parametrize("classes", [2, 1000, 20_000])
def test_float32_rows_are_accepted_by_their_sum_in_float64(classes) -> None:
    p = np.full((3, classes), 1.0 / classes, dtype=np.float32)
    largest = 1.001 + 2.0**-20  # what a row may sum to
    p[1, 0] += np.float32(largest - p[1].astype(np.float64).sum())
    while p[1].astype(np.float64).sum() > largest:
        p[1, 0] = np.nextafter(p[1, 0], np.float32(0.0))
    assert metrics.accuracy(p, [0, 0, 0]) == 1.0
    p[1, 0] += np.float32(2.0**-22)
    with refused("probabilities", rows=[1], naming="1.001"):
        metrics.accuracy(p, [0, 0, 0])
