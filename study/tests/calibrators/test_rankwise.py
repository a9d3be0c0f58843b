"""MCCT-I: its optimum, its constraints, ties, and the warning about shifts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from contract import noisy_logits, softmax
from cordcal import calibrators


def reference_loss(logits: np.ndarray, labels: np.ndarray) -> float:
    """Solve the published problem, in t and b, with SLSQP and numeric differentiation."""
    classes = logits.shape[1]
    order = np.argsort(logits, axis=1)
    s = np.take_along_axis(logits, order, axis=1)
    rank = (order == labels[:, None]).argmax(axis=1)

    def loss(theta: np.ndarray) -> float:
        p = softmax(s / theta[:classes] + theta[classes:])
        return -np.log(p[np.arange(len(p)), rank]).mean()

    rising = {"type": "ineq", "fun": lambda x: np.diff(x[classes:])}
    falling = {"type": "ineq", "fun": lambda x: -np.diff(x[:classes])}
    start = np.concatenate([np.ones(classes), np.zeros(classes)])
    bounds = [(1e-3, None)] * classes + [(None, None)] * classes
    options = {"maxiter": 300, "ftol": 1e-12}
    return minimize(
        loss, start, method="SLSQP", bounds=bounds, constraints=[rising, falling], options=options
    ).fun


def test_published_optimum(synth) -> None:
    with pytest.warns(UserWarning, match="66 row"):
        model = calibrators.make("mcct-i").fit(synth.cal_logits, synth.cal_labels)
    assert model.objective_ == pytest.approx(0.385566, abs=1e-6)
    with pytest.warns(UserWarning, match="not invariant to shifts"):
        q = model.predict_proba(synth.eval_logits)
    nll = -np.log(q[np.arange(2000), synth.eval_labels]).mean()
    assert nll == pytest.approx(0.399879, abs=1e-6)
    # The smallest logit is never the label's: its own parameters are free.
    inverse = [3.34743, 3.01796] + [2.27606] * 7
    np.testing.assert_allclose(1 / model.scale_[1:], inverse, atol=5e-5)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_no_worse_than_a_general_solver(classes: int) -> None:
    logits, labels = noisy_logits(300, classes, seed=classes)
    model = calibrators.make("mcct-i").fit(logits, labels)
    assert (np.diff(model.scale_) >= -1e-12).all()
    assert model.scale_[0] >= 0.0
    assert (np.diff(model.bias_) >= -1e-12).all()
    assert model.objective_ <= reference_loss(logits, labels) + 1e-9
    q = model.predict_proba(logits)
    own = -np.log(q[np.arange(300), labels]).mean()
    assert own == pytest.approx(model.objective_, rel=1e-12)


def test_order_of_positive_logits_is_kept_and_ties_go_to_the_smallest_index() -> None:
    logits, labels = noisy_logits(400, 5)
    model = calibrators.make("mcct-i").fit(logits, labels)
    q = model.predict_proba(logits)
    order = np.argsort(logits, axis=1)
    assert (np.diff(np.take_along_axis(q, order, axis=1), axis=1) >= 0.0).all()
    tied = np.round(logits)
    assert (np.sort(tied, axis=1)[:, -1] == np.sort(tied, axis=1)[:, -2]).any()
    np.testing.assert_array_equal(model.predict_proba(tied).argmax(axis=1), tied.argmax(axis=1))
