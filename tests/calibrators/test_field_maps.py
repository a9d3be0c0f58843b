"""The field's maps on the synthetic set: the figures of other runs, to the digits they give."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal import calibrators
from cordcal.calibrators._curves import interpolate
from cordcal.expressions import Parameters

from .conftest import noisy_logits, softmax
from .test_optima import expected_calibration_error

# NLL, ECE in per cent, Brier and the share of changed predictions, on the evaluation half.
FIGURES = {
    "tva-platt": (0.416366, 1.8271, 0.203860, 0.0),
    "hts": (0.400316, 1.8241, 0.204348, 0.0),
    "platt": (0.388542, 1.8006, 0.194787, 2.50),
}
# Figures of other libraries or of runs with other seeds: NLL within 2 %.
NEARBY = {"mono": 0.402287, "beta": 0.390817}


def report_of(name: str, synth) -> tuple[calibrators.Calibrator, np.ndarray]:
    model = calibrators.make(name)
    model.fit(synth.cal_logits, synth.cal_labels)
    return model, model.predict_proba(synth.eval_logits)


def nll(q: np.ndarray, labels: np.ndarray) -> float:
    return float(-np.log(np.maximum(q[np.arange(len(q)), labels], 1e-12)).mean())


@pytest.mark.parametrize("name", FIGURES)
def test_figures_to_the_digits_given(name: str, synth) -> None:
    _, q = report_of(name, synth)
    labels = synth.eval_labels
    changed = 100 * (q.argmax(axis=1) != synth.eval_logits.argmax(axis=1)).mean()
    figures = (
        round(nll(q, labels), 6),
        round(expected_calibration_error(q, labels), 4),
        round(((q - np.eye(10)[labels]) ** 2).sum(axis=1).mean(), 6),
        round(changed, 2),
    )
    assert figures == FIGURES[name]


@pytest.mark.parametrize("name", NEARBY)
def test_figures_nearby(name: str, synth) -> None:
    _, q = report_of(name, synth)
    assert nll(q, synth.eval_labels) == pytest.approx(NEARBY[name], rel=0.02)


# Optimum on the calibration half and the parameters at it.
OPTIMA = {
    "hts": (0.38510244, {"slope_": -0.07073, "intercept_": 1.61203}),
    "tva-platt": (0.28118624, {"coefficients_": [0.425695, -0.151676]}),
}


@pytest.mark.parametrize("name", OPTIMA)
def test_optimum(name: str, synth) -> None:
    model, _ = report_of(name, synth)
    objective, parameters = OPTIMA[name]
    # No worse than the other run, and no better than its last digit allows.
    assert model.objective_ == pytest.approx(objective, abs=3e-8)
    for attribute, expected in parameters.items():
        np.testing.assert_allclose(getattr(model, attribute), expected, atol=5e-5)


def test_mono_is_at_a_minimum(synth) -> None:
    model, _ = report_of("mono", synth)
    assert model.gradient_norm_ < 1e-9
    assert (model.slopes_ > 1e-3).all()


def test_mono_does_not_decrease_at_a_knot(synth) -> None:
    model, _ = report_of("mono", synth)
    params = model.parameters()
    near = model.knots_[:-1] * (1.0 + 2.0**-53 * np.arange(-40, 41)[:, None])
    levels = np.sort(near.ravel())
    assert (np.diff(interpolate(levels[None], Parameters(params), np)[0]) >= 0.0).all()


def test_mono_with_stiff_slopes_is_temperature_scaling(synth) -> None:
    stiff = calibrators.make("mono", smoothness=1e9).fit(synth.cal_logits, synth.cal_labels)
    ts = calibrators.make("ts").fit(synth.cal_logits, synth.cal_labels)
    np.testing.assert_allclose(stiff.slopes_, 1.0 / ts.temperature_, rtol=1e-6)


def test_mono_beats_temperature_scaling_where_it_is_fitted(synth) -> None:
    ts, _ = report_of("ts", synth)
    mono, _ = report_of("mono", synth)
    assert mono.objective_ < ts.objective_


def test_centred_isotonic_rises_where_isotonic_is_flat() -> None:
    logits, labels = noisy_logits(300, 3)
    p = softmax(logits)
    cir = calibrators.make("cir", input="probabilities").fit(p, labels)
    first, end = cir.knot_start_[:2]
    assert (np.diff(cir.knot_x_[first:end]) > 0.0).all()
    assert (np.diff(cir.knot_y_[first:end]) > 0.0).all()


def test_a_confidence_map_leaves_the_others_in_proportion() -> None:
    logits, labels = noisy_logits(400, 4)
    q = calibrators.make("tva-platt").fit(logits, labels).predict_proba(logits)
    p = softmax(logits)
    rows, top = np.arange(400), logits.argmax(axis=1)
    p[rows, top] = q[rows, top] = 0.0
    some = q.sum(axis=1) > 0.0
    np.testing.assert_allclose(
        q[some] / q[some].sum(axis=1, keepdims=True),
        p[some] / p[some].sum(axis=1, keepdims=True),
        atol=1e-12,
    )
