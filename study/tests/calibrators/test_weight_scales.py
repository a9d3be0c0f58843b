"""Weights of any size: most maps see ratios alone, the others tend to a limit."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest

from cordcal.calibrators import calibrator_class, make
from cordcal_study.calibrators import CLASSES

RNG = np.random.default_rng(0)
LABELS = RNG.integers(4, size=400)
LOGITS = 2.0 * np.eye(4)[LABELS] + 1.5 * RNG.normal(size=(400, 4))
WEIGHT = RNG.integers(1, 5, 400).astype(float)
NEW = 2.0 * RNG.normal(size=(100, 4))

# These weigh rows against a prior or a number of rows, so that a weight of 2 is the row twice.
COUNTING = {"cdf-spline", "spline", "top-label", "tva-histogram", "venn-abers"}
ALONE = [key for key in CLASSES if calibrator_class(key).extra is None]


def report(key: str, scale: float) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"mcct-i: ")
        return make(key).fit(LOGITS, LABELS, sample_weight=scale * WEIGHT).predict_proba(NEW)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("key", [key for key in ALONE if key not in COUNTING])
def test_the_scale_of_weights_does_not_matter(key: str) -> None:
    expected = report(key, 1.0)
    for scale in (5e-324, 1e-320, 1e-300, 0.1, 10.0, 1e300, 4e307):
        np.testing.assert_allclose(report(key, scale), expected, rtol=0.0, atol=1e-9)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("key", sorted(COUNTING))
def test_maps_that_count_rows_tend_to_a_limit(key: str) -> None:
    for scales in ((1e20, 1e100, 1e300, 4e307), (1e-20, 1e-100, 1e-320, 5e-324)):
        first, *others = (report(key, scale) for scale in scales)
        np.testing.assert_allclose(first.sum(axis=1), 1.0, rtol=0.0, atol=1e-9)
        for other in others:
            np.testing.assert_allclose(other, first, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("key", ["top-label", "cdf-spline", "tva-histogram"])
def test_large_weights_need_no_memory(key: str) -> None:
    tracemalloc.start()
    result = report(key, 1e9)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 500e6
    # So many rows are as good as any number.
    np.testing.assert_allclose(result, report(key, 2.0**20 * 1e9), rtol=0.0, atol=1e-5)
