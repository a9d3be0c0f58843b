"""The field's maps on the synthetic set: the figures of other runs, to the digits they give."""

from __future__ import annotations

import numpy as np
import pytest

from contract import noisy_logits, softmax
from cordcal import calibrators
from cordcal_study.calibrators.bounded import box_constrained
from cordcal_study.calibrators.venn_abers import venn_abers_knots
from errors import refused

# NLL, ECE in per cent, Brier and the share of changed predictions, on the evaluation half.
FIGURES = {
    "tva-beta": (0.415701, 1.6062, 0.203563, 0.0),
    "tva-isotonic": (0.424793, 2.0705, 0.203813, 0.0),
    "tva-histogram": (0.429066, 1.6612, 0.204675, 0.0),
    "tva-histogram of equal width": (0.446881, 1.8559, 0.211074, 0.0),
    "top-label": (0.453217, 2.3232, 0.202620, 0.0),
    "cdf-spline": (0.423695, 1.2727, 0.203555, 0.0),
    "ts-class": (0.396640, 2.8845, 0.198790, 0.0),
    "ts-class without bias": (0.399757, 2.7303, 0.198889, 0.0),
    "pb": (0.401802, 1.4557, 0.204272, 0.0),
}
PARAMS = {
    "tva-histogram of equal width": {"equal_mass": False},
    "ts-class without bias": {"bias": False},
}
# Figures of other libraries or of runs with other seeds: NLL within 2 %.
NEARBY = {"venn-abers": 0.409347}


def report_of(name: str, synth) -> tuple[calibrators.Calibrator, np.ndarray]:
    model = calibrators.make(name.split()[0], **PARAMS.get(name, {}))
    model.fit(synth.cal_logits, synth.cal_labels)
    return model, model.predict_proba(synth.eval_logits)


def expected_calibration_error(q: np.ndarray, labels: np.ndarray) -> float:
    """Return the 15-bin error in per cent, bins (lo, hi]."""
    top, right = q.max(axis=1), q.argmax(axis=1) == labels
    bins = np.searchsorted(np.linspace(0, 1, 16), top, side="left")
    gaps = [abs((top - right)[bins == b].sum()) for b in np.unique(bins)]
    return 100 * sum(gaps) / len(labels)


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


def test_spline_does_as_well_as_the_library_of_its_author(synth) -> None:
    _, q = report_of("spline", synth)
    assert nll(q, synth.eval_labels) < 0.406228  # splinecalib 0.0.13; ours has fewer knots


# Optimum on the calibration half and the parameters at it.
OPTIMA = {
    "pb": (0.38700231, {"upper_": 0.997465, "lower_": 0.0}),
    "ts-class": (
        0.36480514,
        {
            "scale_": [1.0709, 0.5256, 0.6204, 0.5101, 0.5016, 0.6167, 0.5449, 0.3709, 0.3839,
                       0.3314],
            "bias_": [0.4466, 0.1633, 0.2233, 0.0, 0.4481, 0.1967, 0.0, 0.0, 0.3793, 0.0],
        },
    ),
    "ts-class without bias": (0.36562041, {"bias_": [0.0] * 10}),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMA)
def test_optimum(name: str, synth) -> None:
    model, _ = report_of(name, synth)
    objective, parameters = OPTIMA[name]
    # No worse than the other run, and no better than its last digit allows.
    assert model.objective_ == pytest.approx(objective, abs=3e-8)
    for attribute, expected in parameters.items():
        np.testing.assert_allclose(getattr(model, attribute), expected, atol=5e-5)


def brute_venn_abers(x: np.ndarray, y: np.ndarray, new: float) -> float:
    from sklearn.isotonic import IsotonicRegression

    def value(label: float) -> float:
        model = IsotonicRegression(out_of_bounds="clip")
        return float(model.fit(np.append(x, new), np.append(y, label)).predict([new])[0])

    low, high = value(0.0), value(1.0)
    return high / (1.0 - low + high)


@pytest.mark.parametrize("seed", range(8))
def test_venn_abers_is_two_isotonic_regressions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = np.round(rng.random(25), 1 + seed % 3)
    y = rng.random(25) < x
    knots = venn_abers_knots(x, y)
    for new in (*x[:5], *rng.random(5), -0.1, 1.1):
        assert np.interp(new, *knots) == pytest.approx(brute_venn_abers(x, y, new), abs=1e-12)


def test_box_constrained_softmax() -> None:
    p = softmax(np.array([[-1.5, 1.0, -0.5]]))
    low, high = np.array([0.15, 0.2, 0.1]), np.array([1.0, 0.6, 0.5])
    np.testing.assert_allclose(
        box_constrained(p, 0.0, high, np), [[0.1076, 0.6, 0.2924]], atol=5e-5
    )
    np.testing.assert_allclose(
        box_constrained(p, low, 1.0, np), [[0.15, 0.6949, 0.1551]], atol=5e-5
    )
    np.testing.assert_allclose(box_constrained(p, low, high, np), [[0.15, 0.6, 0.25]], atol=1e-12)


@pytest.mark.parametrize(("lower", "upper"), [(0.0, 0.5), (0.05, 0.3), (0.02, 0.9), (0.0, 0.11)])
def test_caps_leave_one_factor_for_the_free_entries(lower: float, upper: float) -> None:
    p = np.random.default_rng(0).dirichlet(np.full(10, 0.3), size=300)
    q = box_constrained(p, lower, upper, np)
    assert q.min() >= lower - 1e-15
    assert q.max() <= upper + 1e-15
    np.testing.assert_allclose(q.sum(axis=1), 1.0, atol=1e-14)
    for before, after in zip(p, q, strict=True):
        factor = (after / before)[(after > lower + 1e-12) & (after < upper - 1e-12)]
        assert np.ptp(factor) <= 1e-9 * factor.max() if factor.size else True


def test_a_class_predicted_rightly_always_takes_the_shared_temperature() -> None:
    logits, labels = noisy_logits(400, 4)
    labels[logits.argmax(axis=1) == 2] = 2
    model = calibrators.make("ts-class").fit(logits, labels)
    ts = calibrators.make("ts").fit(logits, labels)
    assert model.bias_[2] == 0.0
    assert model.scale_[2] == pytest.approx(1.0 / ts.temperature_, rel=1e-9)


@pytest.mark.parametrize("key", ["tva-isotonic", "top-label", "cdf-spline"])
def test_confidence_maps_leave_the_others_in_proportion(key: str) -> None:
    logits, labels = noisy_logits(400, 4)
    q = calibrators.make(key).fit(logits, labels).predict_proba(logits)
    p = softmax(logits)
    rows, top = np.arange(400), logits.argmax(axis=1)
    p[rows, top] = q[rows, top] = 0.0
    some = q.sum(axis=1) > 0.0
    np.testing.assert_allclose(
        q[some] / q[some].sum(axis=1, keepdims=True),
        p[some] / p[some].sum(axis=1, keepdims=True),
        atol=1e-12,
    )


def test_few_predictions_keep_their_confidence() -> None:
    logits, labels = noisy_logits(400, 4)
    model = calibrators.make("top-label", rows_per_bin=500).fit(logits, labels)
    np.testing.assert_allclose(model.predict_proba(logits), softmax(logits), atol=1e-12)


@pytest.mark.parametrize(
    ("key", "params", "name"),
    [("tva-histogram", {"bins": 0}, "bins"), ("top-label", {"rows_per_bin": 0}, "rows_per_bin")],
)
def test_numbers_of_bins_are_checked(key: str, params: dict[str, int], name: str) -> None:
    logits, labels = noisy_logits(50, 3)
    with refused(name, naming="0"):
        calibrators.make(key, **params).fit(logits, labels)
