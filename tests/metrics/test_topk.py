"""Top-k changes against sorting every row, with ties at the last place."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal import metrics
from errors import refused


def slow_best(row: np.ndarray, k: int) -> list[int]:
    return sorted(range(len(row)), key=lambda j: (-row[j], j))[:k]


@pytest.mark.parametrize("k", [1, 2, 5, 8])
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_against_sorting(k, dtype) -> None:
    rng = np.random.default_rng(k)
    # Eighths tie often, also across the k-th place.
    p = (rng.multinomial(8, np.full(8, 1 / 8), 300) / 8).astype(dtype)
    q = np.where(rng.random((300, 1)) < 0.5, p, p[:, rng.permutation(8)])
    pairs = [(slow_best(a, k), slow_best(b, k)) for a, b in zip(p, q, strict=True)]
    weight = rng.random(300)
    order = np.array([a != b for a, b in pairs])
    members = np.array([set(a) != set(b) for a, b in pairs])
    changes = metrics.topk_changes(p, q, k, sample_weight=weight)
    assert (changes.n_set_changed, changes.n_order_changed) == (members.sum(), order.sum())
    assert changes.set_changed == pytest.approx(weight @ members / weight.sum(), rel=1e-12)
    assert changes.order_changed == pytest.approx(weight @ order / weight.sum(), rel=1e-12)


def test_top_one_is_the_prediction() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(4), 100), rng.dirichlet(np.ones(4), 100)
    changes = metrics.topk_changes(p, q, 1)
    assert changes.set_changed == changes.order_changed == metrics.tpcr(p, q)


def test_blocks_merge() -> None:
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.ones(4), 100), rng.dirichlet(np.ones(4), 100)
    parts = [
        metrics.TopkChangesStream(2).update(p[at], q[at]) for at in (slice(60), slice(60, 100))
    ]
    assert parts[0].merge(parts[1]).result() == metrics.topk_changes(p, q, 2)
    with refused("other", naming=["k = 2", "k = 3"]):
        parts[0].merge(metrics.TopkChangesStream(3))


@pytest.mark.parametrize("k", [0, 3, 1.5, True])
def test_k_must_fit(k) -> None:
    with refused("k", naming=repr(k)):
        metrics.topk_changes([[0.5, 0.5]], [[0.5, 0.5]], k)


def test_nan_is_refused() -> None:
    with refused("evaluated", rows=[1], naming="NaN"):
        metrics.topk_changes([[0.5, 0.5]] * 2, [[0.5, 0.5], [np.nan, 0.5]], 1)
