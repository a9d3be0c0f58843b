"""Labelled probabilities with ties, exact edges, ones, and a class that is never the label."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def report() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(11)
    p = rng.dirichlet(np.full(6, 0.3), 500)
    p[:60] = np.eye(6)[rng.integers(0, 6, 60)]
    p[60:120] = rng.multinomial(15, np.full(6, 1 / 6), 60) / 15
    labels = np.where(rng.random(500) < 0.7, p.argmax(axis=1), rng.integers(0, 5, 500))
    labels[labels == 5] = 4
    return p, labels, rng.random(500)
