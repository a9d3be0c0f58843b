"""Labelled probabilities away from ties and edges, where all libraries should agree."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(params=[2, 10, 200])
def report(request: pytest.FixtureRequest) -> tuple[np.ndarray, np.ndarray]:
    classes = request.param
    rng = np.random.default_rng(classes)
    p = rng.dirichlet(np.full(classes, 2.0 / classes), 3000)
    p = (p + 1e-6) / (1 + classes * 1e-6)  # no zeros, no ones
    wrong = rng.integers(0, classes, 3000)
    return p, np.where(rng.random(3000) < 0.7, p.argmax(axis=1), wrong)
