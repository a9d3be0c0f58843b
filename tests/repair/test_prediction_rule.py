"""`PredictionRule`: its weights, what it predicts, and where weights come from."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from cordcal import PredictionRule
from cordcal.repair.prediction_rule import check_rule
from errors import refused


def test_weights_keep_their_ratios_to_the_bit() -> None:
    raw = np.random.default_rng(0).lognormal(sigma=3.0, size=50)
    weights = PredictionRule(raw).weights
    factor = weights / raw
    assert (factor == factor[0]).all()
    assert np.frexp(factor[0])[0] == 0.5
    assert np.log2(weights.max() * weights.min()) == pytest.approx(0.0, abs=1.0)


def test_scaling_again_changes_nothing() -> None:
    weights = PredictionRule([3.0, 0.7, 1e6]).weights
    np.testing.assert_array_equal(PredictionRule(weights).weights, weights)


@pytest.mark.parametrize("value", [1e-300, 0.3, 3.0, 1e300])
def test_equal_weights_are_ones_and_the_rule_is_the_argmax(value: float) -> None:
    rule = PredictionRule([value] * 3)
    assert rule.is_argmax
    assert (rule.weights == 1.0).all()
    assert not PredictionRule([1, 1, 2]).is_argmax


def test_the_largest_ratio_is_normal_in_float16() -> None:
    weights = PredictionRule([1.0, 1e8, 3e3]).weights.astype(np.float16)
    assert (weights >= np.finfo(np.float16).smallest_normal).all()
    assert np.isfinite(weights).all()


def test_predictions_are_the_argmax_of_the_callers_own_products() -> None:
    rng = np.random.default_rng(1)
    weights, rows = rng.lognormal(size=5), rng.dirichlet(np.ones(5), size=500)
    np.testing.assert_array_equal(PredictionRule(weights).predict(rows), (weights * rows).argmax(1))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_predictions_in_every_dtype_and_on_ties(dtype: str) -> None:
    rows = np.array([[0.75, 0.25], [0.5, 0.5], [0.8125, 0.1875]], dtype)
    np.testing.assert_array_equal(PredictionRule([1, 3]).predict(rows), [0, 1, 0])
    assert PredictionRule([1, 3]).predict(rows[1]) == 1
    assert PredictionRule([1, 3]).predict([[0.75, 0.25]]).tolist() == [0]


def test_predictions_of_tensors_and_frames() -> None:
    torch = pytest.importorskip("torch")
    rows = np.random.default_rng(2).dirichlet(np.ones(4), size=100)
    rule = PredictionRule([1, 2, 3, 0.5])
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        tensor = torch.asarray(rows, dtype=dtype)
        prediction = rule.predict(tensor)
        assert isinstance(prediction, torch.Tensor)
        np.testing.assert_array_equal(prediction, rule.predict(tensor.double().numpy()))
    pandas = pytest.importorskip("pandas")
    np.testing.assert_array_equal(rule.predict(pandas.DataFrame(rows)), rule.predict(rows))


def test_a_rule_survives_pickle_and_copy() -> None:
    rule = PredictionRule([1, 19])
    for other in (pickle.loads(pickle.dumps(rule)), copy.deepcopy(rule)):
        np.testing.assert_array_equal(other.weights, rule.weights)


def test_priors_give_the_classifier_of_the_training_rows() -> None:
    training, deployment = np.array([0.2, 0.3, 0.5]), np.array([900, 90, 10])
    trained = np.random.default_rng(3).dirichlet(np.ones(3), size=300)
    deployed = trained * deployment / training
    deployed /= deployed.sum(axis=1, keepdims=True)
    rule = PredictionRule.from_priors(training, deployment)
    np.testing.assert_array_equal(rule.predict(deployed), trained.argmax(axis=1))


@pytest.mark.parametrize(
    "costs",
    [
        [1.0, 5.0, 2.0],
        [[0, 1, 1], [5, 0, 5], [2, 2, 0]],
        [[-1, 0, 0], [7, 2, 7], [1.5, 1.5, -0.5]],
        [[0.5, 3], [9, 1]],
    ],
)
def test_costs_give_the_prediction_of_least_expected_cost(costs: list[float]) -> None:
    matrix = np.array(costs, dtype=float)
    if matrix.ndim == 1:
        matrix = matrix[:, None] * ~np.eye(len(matrix), dtype=bool)
    rows = np.random.default_rng(4).dirichlet(np.ones(len(matrix)), size=300)
    rule = PredictionRule.from_costs(costs)
    np.testing.assert_array_equal(rule.predict(rows), (rows @ matrix).argmin(axis=1))


def test_a_threshold_of_two_classes() -> None:
    rows = np.linspace(0.001, 0.999, 998)
    rule = PredictionRule.from_threshold(0.0625)
    np.testing.assert_array_equal(rule.predict(np.stack([1 - rows, rows], 1)), rows > 0.0625)


def test_costs_that_weights_cannot_express_are_refused() -> None:
    with refused("costs", naming="true class 1"):
        PredictionRule.from_costs([[0, 1, 1], [5, 0, 4], [2, 2, 0]])
    with refused("costs", naming="(2, 3)"):
        PredictionRule.from_costs([[0, 1, 1], [5, 0, 4]])
    with refused("costs", naming="class 1"):  # an error is cheaper than the right prediction
        PredictionRule.from_costs([[0, 1], [1, 2]])


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_weights_that_are_not_positive_and_finite_are_refused(bad: float) -> None:
    with refused("weights", naming=[str(bad), "class 1"]):
        PredictionRule([1.0, bad, 2.0])
    with refused("rule", naming=[str(bad), "class 1"]):
        check_rule([1.0, bad, 2.0], 3)
    with refused("training", naming="class 0"):
        PredictionRule.from_priors([bad, 1.0], [0.5, 0.5])


@pytest.mark.parametrize("bad", [[1.0], [], 3.0, [[1.0, 2.0]], ["a", "b"], None])
def test_weights_of_another_shape_or_kind_are_refused(bad: object) -> None:
    with refused("weights"):
        PredictionRule(bad)


def test_ratios_that_leave_no_interval_are_refused() -> None:
    with refused("weights", naming="1e+08"):
        PredictionRule([1.0, 1.01e8])
    with refused("weights", naming="1e+08"):
        PredictionRule([1e-300, 1e300])


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.5, np.nan, [0.2, 0.3], "half"])
def test_thresholds_outside_the_unit_interval_are_refused(bad: object) -> None:
    with refused("threshold"):
        PredictionRule.from_threshold(bad)


def test_rules_of_another_length_are_refused() -> None:
    with refused("rule", naming=["2 weights", "3 classes"]):
        PredictionRule([1, 2]).predict([[0.2, 0.3, 0.5]])
    with refused("rule", naming=["2 weights", "3 classes"]):
        check_rule(PredictionRule([1, 2]), 3)
    with refused("training", naming=["2", "3"]):
        PredictionRule.from_priors([0.5, 0.5], [0.2, 0.3, 0.5])
    with refused("probabilities", rows=[1]):
        PredictionRule([1, 2]).predict([[0.5, 0.5], [np.nan, 0.5]])


@pytest.mark.parametrize("bad", ["learned", "", None])
def test_rules_that_are_not_a_word_or_weights_are_refused(bad: object) -> None:
    with refused("rule", naming=repr(bad)):
        check_rule(bad, 2)
