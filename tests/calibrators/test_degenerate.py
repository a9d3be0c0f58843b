"""Fits without an optimum, and searches that stop early, say so."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from contract import noisy_logits, sound
from cordcal import calibrators


def test_scores_without_information() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=300)
    logits = -5.0 * np.eye(3)[labels] + rng.normal(size=(300, 3))
    with pytest.warns(ConvergenceWarning, match="no information about the labels"):
        model = calibrators.make("ts").fit(logits, labels)
    np.testing.assert_allclose(model.predict_proba(logits), 1 / 3, atol=1e-5)


def test_a_capped_fit_warns_with_its_gradient_norm() -> None:
    logits, labels = noisy_logits(400, 4)
    with pytest.warns(ConvergenceWarning, match="vs: stopped after 1 steps with a gradient"):
        model = calibrators.make("vs", max_iter=1).fit(logits, labels)
    assert not np.allclose(model.scale_, 1.0)


def test_many_classes_stop_by_the_rule() -> None:
    logits, labels = noisy_logits(400, 40)
    with pytest.warns(ConvergenceWarning, match=r"ms: stopped after 7 steps with a gradient norm"):
        model = calibrators.make("ms", max_iter=7).fit(logits, labels)
    assert model.n_iter_ == 7
    assert not np.allclose(model.weight_, np.eye(40))


def test_a_class_that_is_separable_does_not_keep_a_search_from_its_end() -> None:
    logits, labels = noisy_logits(600, 3)
    logits[:, 2] += np.where(labels == 2, 30.0, -30.0)
    model, longer = (
        calibrators.make("ms", max_iter=most).fit(logits, labels) for most in (60, 999)
    )
    # No warning, and no digit that hangs on how many steps there may be.
    assert model.n_iter_ < 60
    np.testing.assert_array_equal(model.weight_, longer.weight_)
    others = labels < 2
    alone = calibrators.make("ms").fit(logits[others], labels[others])
    assert model.objective_ == pytest.approx(alone.objective_ * others.mean(), rel=1e-8)


def test_separable_rows_of_many_classes_are_named() -> None:
    logits, labels = noisy_logits(200, 40)
    with pytest.warns(ConvergenceWarning, match="ms: the calibration rows are perfectly separable"):
        model = calibrators.make("ms").fit(logits, labels)
    assert (model.predict_proba(logits).argmax(axis=1) == labels).all()


def test_a_weight_without_penalty_that_runs_away() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=300)
    logits = (8.0 + rng.normal(size=(300, 1))) * np.eye(3)[labels]
    # Where class 1 is meant, class 2 is certain too, only a little less than in its own rows.
    logits[:, 2] = np.choose(labels, [-5.0, logits[:, 1] + 14.0, 60.0])
    with pytest.warns(ConvergenceWarning, match="class 2's own"):
        model = calibrators.make("dir-odir").fit(logits, labels)
    assert model.weight_[2, 2] > 1e6
    sound(model.predict_proba(logits))
