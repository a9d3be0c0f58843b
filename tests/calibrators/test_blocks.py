"""Large sets are worked on in blocks of rows; their size does not change a result."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest

import cordcal
from cordcal import calibrators
from cordcal.calibrators import _base, temperature

from .conftest import BRIEF, make_map, noisy_logits

ROWS, CLASSES = 230, 5
ENTRIES = 64  # blocks of 12 rows, the last one shorter


@pytest.mark.parametrize("key", calibrators.available())
def test_a_calibrator_in_blocks(
    key: str, block_entries: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, labels = noisy_logits(ROWS, CLASSES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # networks with little training do not converge
        whole = make_map(key).fit(scores, labels)
        expected = whole.predict_proba(scores)
        block_entries(ENTRIES)
        monkeypatch.setattr(_base, "CACHED_ENTRIES", ENTRIES)
        if key not in BRIEF:  # fits that converge, from a start on every fifth row
            monkeypatch.setattr(temperature, "_SUBSAMPLE_ENTRIES", ROWS * CLASSES // 5)
        np.testing.assert_allclose(whole.predict_proba(scores), expected, rtol=1e-12)
        again = make_map(key).fit(scores, labels)
    np.testing.assert_allclose(again.predict_proba(scores), expected, atol=1e-6)


def test_the_default_in_blocks(block_entries: Callable[[int], None]) -> None:
    scores, labels = noisy_logits(ROWS, CLASSES)
    expected = cordcal.PreservingCalibrator().fit(scores, labels).predict_proba(scores)
    block_entries(ENTRIES)
    again = cordcal.PreservingCalibrator().fit(scores, labels).predict_proba(scores)
    np.testing.assert_allclose(again, expected, atol=1e-6)


def test_confidences_in_blocks(block_entries: Callable[[int], None]) -> None:
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(CLASSES), ROWS)
    confidence, prediction = rng.uniform(0.25, 1.0, ROWS), rng.integers(CLASSES, size=ROWS)
    expected = cordcal.lift_confidences(confidence, prediction, probabilities)
    block_entries(ENTRIES)
    result = cordcal.lift_confidences(confidence, prediction, probabilities)
    np.testing.assert_array_equal(result, expected)
