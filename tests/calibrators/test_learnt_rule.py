"""`learn_rule`: weights from predictions, shrinkage, certificates and degenerate rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from cordcal.calibrators.learnt_rule import _Problem, learn_rule

Rows = tuple[NDArray[np.float64], NDArray[np.intp]]


def ruled(weights: list[float], rows: int, *, noise: float = 0.0, seed: int = 0) -> Rows:
    """Return probabilities and predictions by these weights, with noise in the logarithms."""
    rng = np.random.default_rng(seed)
    direct = rng.dirichlet(np.ones(len(weights)), size=rows)
    blurred = np.log(direct) + noise * rng.normal(size=direct.shape)
    return direct, (blurred + np.log(weights)).argmax(axis=1)


def log_ratios(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    logs = np.log(weights)
    return logs - logs.mean()


@pytest.mark.parametrize("weights", [[1.0, 19.0], [1.0, 2.0, 0.3], [5.0, 1.0, 1.0, 0.2, 2.0]])
def test_known_weights_are_recovered(weights: list[float]) -> None:
    direct, prediction = ruled(weights, 3000)
    rule, record = learn_rule(direct, prediction)
    np.testing.assert_allclose(log_ratios(rule.weights), log_ratios(np.array(weights)), atol=0.02)
    assert record.n_explained >= 2998
    assert record.max_shift < 1e-3
    assert record.gap < 1e-9


def test_weights_are_recovered_through_noise_and_other_rows_are_counted() -> None:
    direct, prediction = ruled([1.0, 4.0, 0.5], 20_000, noise=0.5)
    with pytest.warns(UserWarning, match="of 20,000 rows") as caught:
        rule, record = learn_rule(direct, prediction)
    assert f"in {record.n - record.n_explained:,} of" in str(caught[0].message)
    np.testing.assert_allclose(
        log_ratios(rule.weights), log_ratios(np.array([1, 4, 0.5])), atol=0.05
    )
    explained = (rule.weights * direct).argmax(axis=1) == prediction
    assert record.n_explained == explained.sum() > record.n_argmax
    row = int(np.flatnonzero(~explained)[0])
    assert 0.0 < record.mean_shift < record.max_shift < 1.0
    q, a = direct[row], prediction[row]
    others = np.delete(q, a) / (1.0 - q[a])
    least = (np.delete(rule.weights, a) * others).max()
    assert least / (least + rule.weights[a]) - q[a] <= record.max_shift


def test_predictions_by_the_argmax_give_equal_weights_exactly() -> None:
    direct, prediction = ruled([1.0, 1.0, 1.0], 50)
    rule, record = learn_rule(direct, prediction)
    assert rule.is_argmax
    assert record.n_explained == record.n == 50
    assert record.gap == 0.0


def test_the_middle_of_the_weights_that_explain_all() -> None:
    # Every threshold between 0.1 and 0.2 explains these rows; the middle of their log odds.
    positive = np.array([0.05, 0.1, 0.2, 0.3])
    direct = np.stack([1 - positive, positive], axis=1)
    rule, _ = learn_rule(direct, (positive > 0.15).astype(int))
    odds = rule.weights[0] / rule.weights[1]
    low, high = math.log(0.1 / 0.9), math.log(0.2 / 0.8)
    assert math.log(odds) == pytest.approx((low + high) / 2, abs=0.1 * (high - low))


def test_weights_that_save_next_to_nothing_are_equal() -> None:
    direct, prediction = ruled([1.0, 1.1, 1.0], 2000)
    rule, record = learn_rule(direct, prediction)
    assert rule.is_argmax
    assert record.n_explained == record.n_argmax < 2000
    assert 0.0 < record.mean_shift < record.max_shift < 0.1


def test_one_odd_prediction_among_many_does_not_move_the_weights() -> None:
    direct, prediction = ruled([1.0, 3.0, 1.0], 2000)
    before, _ = learn_rule(direct, prediction)
    prediction[0] = (prediction[0] + 1) % 3
    after, record = learn_rule(direct, prediction)
    np.testing.assert_allclose(log_ratios(after.weights), log_ratios(before.weights), atol=0.02)
    assert record.n_explained >= 1990


def test_a_class_that_is_never_predicted_is_lowered_and_reported() -> None:
    rng = np.random.default_rng(1)
    direct = rng.dirichlet(np.ones(3), size=500)
    prediction = direct[:, :2].argmax(axis=1)
    with pytest.warns(UserWarning, match=r"1 class\(es\) \(2\) are never predicted"):
        rule, record = learn_rule(direct, prediction)
    assert record.never_predicted == (2,)
    assert rule.predict(direct).max() == 1
    assert rule.weights[0] == pytest.approx(rule.weights[1], rel=0.05)


def test_equal_weights_report_a_class_that_is_never_predicted() -> None:
    direct = np.random.default_rng(1).dirichlet(np.ones(3), size=500)
    direct = direct[direct.argmax(axis=1) < 2]
    with pytest.warns(UserWarning, match="never predicted.*the same weight as the others"):
        rule, record = learn_rule(direct, direct.argmax(axis=1))
    assert rule.is_argmax
    assert record.never_predicted == (2,)


def test_constant_predictions_of_two_classes() -> None:
    positive = np.linspace(0.1, 0.9, 50)
    direct = np.stack([1 - positive, positive], axis=1)
    with pytest.warns(UserWarning, match="never predicted"):
        rule, record = learn_rule(direct, np.zeros(50, int))
    assert record.n_explained == 50
    assert 9.0 < rule.weights[0] / rule.weights[1] < 1e3


@pytest.mark.filterwarnings("ignore:rule. 1 class")
def test_one_row() -> None:
    rule, record = learn_rule(np.array([[0.7, 0.3]]), np.array([1]))
    assert (record.n_explained, record.n) == (1, 1)
    assert rule.weights[1] / rule.weights[0] > 0.7 / 0.3


@pytest.mark.filterwarnings("ignore:rule. 1 class")
def test_ratios_stay_within_the_largest_that_a_rule_may_have() -> None:
    direct = np.array([[1.0 - 1e-11, 1e-11], [1.0, 0.0]])
    rule, record = learn_rule(direct, np.array([1, 1]))
    assert rule.weights[1] / rule.weights[0] == pytest.approx(1e8, rel=1e-6)
    assert record.n_explained == 0
    assert record.max_shift == pytest.approx(1e-8, rel=0.01)


def test_certain_rows_have_no_say() -> None:
    direct, prediction = ruled([1.0, 3.0, 1.0], 500)
    expected, _ = learn_rule(direct, prediction)
    certain = np.eye(3)[[0, 1, 2, 1]]
    rule, record = learn_rule(
        np.concatenate([direct, certain]), np.append(prediction, [0, 1, 2, 1])
    )
    np.testing.assert_allclose(rule.weights, expected.weights, rtol=1e-6)
    assert record.n_explained == 504


@pytest.mark.filterwarnings("ignore:rule. no weights")
def test_weight_two_is_the_row_twice_and_weight_zero_is_no_row() -> None:
    direct, prediction = ruled([1.0, 3.0, 2.0], 200, noise=0.4)
    count = np.random.default_rng(2).integers(3, size=200)
    twice = np.repeat(np.arange(200), count)
    weighted, _ = learn_rule(direct, prediction, count.astype(float))
    repeated, _ = learn_rule(direct[twice], prediction[twice])
    np.testing.assert_allclose(weighted.weights, repeated.weights, rtol=1e-6)


def test_derivatives_and_the_certificate() -> None:
    direct, prediction = ruled([1.0, 3.0, 2.0], 100, noise=0.5)
    problem = _Problem(direct, prediction, np.linspace(0.5, 2.0, 100))
    theta, direction = np.array([2.0, 0.3, -0.2, 0.5]), np.array([0.3, -1.0, 0.5, 0.7])

    def at(step: float) -> tuple[float, NDArray[np.float64]]:
        return problem.evaluate(theta + step * direction)

    value, gradient = at(0.0)
    problem.refresh()
    product, gap = problem.product(direction), problem.gap()
    (up, up_gradient), (down, down_gradient) = at(1e-5), at(-1e-5)
    assert (up - down) / 2e-5 == pytest.approx(gradient @ direction, rel=1e-8)
    np.testing.assert_allclose((up_gradient - down_gradient) / 2e-5, product, rtol=1e-6)
    assert gap > value - problem.evaluate(np.array([2.3, 0.2, 0.9, 0.6]))[0]
