"""Logits of any size: maps that can follow their scale do, in values and in warnings."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal.calibrators import make

RNG = np.random.default_rng(0)
LABELS = RNG.integers(4, size=1000)
LOGITS = 2.0 * np.eye(4)[LABELS] + 1.8 * RNG.normal(size=(1000, 4))
NEW = 2.0 * np.eye(4)[RNG.integers(4, size=200)] + 1.8 * RNG.normal(size=(200, 4))
SCALES = [1e-8, 1e-6, 1e-3, 0.03, 0.1, 10.0, 100.0, 1e3, 3e3, 1e6, 1e8, 1e10]


def loss(key: str, scale: float) -> float:
    model = make(key).fit(scale * LOGITS, LABELS)
    own = model.predict_proba(scale * LOGITS)[np.arange(LABELS.size), LABELS]
    return float(-np.log(own).mean())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("key", ["ts", "ts-tva", "ets", "vs", "svs", "ms", "sms", "irova-ts"])
def test_the_scale_of_logits_does_not_matter(key: str) -> None:
    expected = make(key).fit(LOGITS, LABELS).predict_proba(NEW)
    for scale in SCALES:
        result = make(key).fit(scale * LOGITS, LABELS).predict_proba(scale * NEW)
        np.testing.assert_allclose(result, expected, rtol=0.0, atol=1e-5)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("key", ["hts", "mono"])
def test_maps_with_more_than_a_temperature_fit_no_worse_than_one(key: str) -> None:
    best = loss("ts", 1.0)
    for scale in SCALES:
        assert loss(key, scale) < best + 1e-3


@pytest.mark.parametrize("key", ["hts", "mono"])
def test_scales_beyond_those_of_networks_give_the_same_report(key: str) -> None:
    reports = [
        make(key).fit(scale * LOGITS, LABELS).predict_proba(scale * NEW)
        for scale in (2.0**-20, 2.0**-10, 2.0**10, 2.0**20, 2.0**27)
    ]
    for report in reports[1:]:
        np.testing.assert_allclose(report, reports[0], rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6, 1e8])
@pytest.mark.parametrize("key", ["ts", "hts", "mono"])
def test_masked_classes_keep_probability_zero(key: str, scale: float) -> None:
    masked = np.where(np.arange(4) == 3, -np.inf, scale * LOGITS)
    labels = np.where(LABELS == 3, masked.argmax(axis=1), LABELS)
    report = make(key).fit(masked, labels).predict_proba(masked)
    assert (report[:, 3] == 0.0).all()
    assert np.isfinite(report).all()


@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1.0, 1e3, 1e8])
def test_a_warning_names_what_is_wrong_at_any_scale(scale: float) -> None:
    certain = scale * (np.eye(4)[LABELS] + 0.1 * NEW[LABELS])
    certain[np.arange(LABELS.size), LABELS] = certain.max(axis=1) + scale
    with pytest.warns(UserWarning, match="classified correctly"):
        make("ts").fit(certain, LABELS)
    # Labels that are the opposite of what the scores say.
    opposite = LOGITS.argmin(axis=1)
    with pytest.warns(UserWarning, match="no information about the labels"):
        make("ts").fit(scale * LOGITS, opposite)
