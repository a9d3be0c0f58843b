"""Mean retention: by hand, and zero where CORD was fitted."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal import CORD, metrics
from errors import refused


def test_by_hand_with_weights_and_predictions() -> None:
    direct, repaired = [[0.4, 0.6], [0.1, 0.9]], [[0.5, 0.5], [0.25, 0.75]]
    assert metrics.mean_retention([0, 1], direct, repaired, sample_weight=[3, 1]) == pytest.approx(
        abs((3 * 0.5 + 0.75) - (3 * 0.4 + 0.9)) / 4, rel=1e-12
    )


def test_zero_on_the_rows_of_the_fit(report) -> None:
    p, _, w = report
    direct = np.roll(p, 1, axis=0) * 0.3 + p * 0.7
    repaired = CORD().fit(p, direct, sample_weight=w).transform(p, direct)
    assert metrics.mean_retention(p, direct, repaired, sample_weight=w) < 1e-9
    assert metrics.mean_retention(p, direct, np.roll(repaired, 3, axis=0)) > 1e-3


def test_blocks_merge(report) -> None:
    p, _, w = report
    q, r = np.roll(p, 1, axis=0), np.roll(p, 2, axis=0)
    whole = metrics.mean_retention(p, q, r, sample_weight=w)
    streams = [
        metrics.MeanRetentionStream().update(p[at], q[at], r[at], sample_weight=w[at])
        for at in (slice(123, 500), slice(123))
    ]
    assert streams[0].merge(streams[1]).result() == whole


def test_shapes_must_agree() -> None:
    with refused("direct", rows=[], naming=["(1, 2)", "(1, 3)"]):
        metrics.mean_retention([0], [[0.5, 0.5]], [[0.5, 0.25, 0.25]])
    with refused("original", rows=[]):
        metrics.mean_retention([0, 1], [[0.5, 0.5]], [[0.5, 0.5]])
