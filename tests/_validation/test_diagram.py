"""What a notebook shows of an estimator."""

from __future__ import annotations

import numpy as np

import cordcal
from cordcal import CORD, PreservingCalibrator

RNG = np.random.default_rng(0)
LABELS = RNG.integers(3, size=300)
LOGITS = 2.0 * np.eye(3)[LABELS] + RNG.normal(size=(300, 3)) * [1.0, 2.0, 3.0]


def test_a_fitted_model_shows_its_parts_and_their_state() -> None:
    model = PreservingCalibrator("vs", input="logits").fit(LOGITS, LABELS)
    shown = model._repr_html_()
    assert "<em>calibrator</em> VectorScaling</summary>" in shown
    assert "300 rows × 3 classes" in shown
    assert "Confidence minus accuracy" in shown
    assert "VectorScaling" in shown
    assert f"{model.repair_.construction_.n_changed:,} (" in shown
    assert "not fitted" not in shown


def test_a_blend_shows_its_shares() -> None:
    blend = cordcal.calibrators.make("blend", members=("ts", "vs")).fit(LOGITS, LABELS)
    shown = blend._repr_html_()
    for share, key in zip(blend.weights_, blend.members_, strict=True):
        assert f"<summary><em>{100 * share:.1f} % {key}</em>" in shown


def test_an_unfitted_model_is_shown_as_such() -> None:
    assert "not fitted yet" in CORD()._repr_html_()


def test_names_of_others_are_escaped() -> None:
    class Odd:
        def fit(self, scores, labels):
            return self

        def predict_proba(self, scores):
            return np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)

        def __repr__(self) -> str:
            return "<script>Odd"

    shown = PreservingCalibrator(Odd(), input="logits").fit(LOGITS, LABELS)._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;Odd" in shown
