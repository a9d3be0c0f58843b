"""Every streaming form: blocks in any order add up to the whole, and bounds hold."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from cordcal import metrics
from errors import refused

# Stream, function, and whether any blocks give the same bits.
STREAMS = [
    (metrics.AccuracyStream, metrics.accuracy, True),
    (metrics.NLLStream, metrics.nll, True),
    (metrics.BrierStream, metrics.brier, True),
    (metrics.ECEStream, metrics.ece, False),
    (metrics.ClasswiseECEStream, metrics.classwise_ece, False),
]
BOUNDED = [
    (metrics.EqualMassECEStream, metrics.ece_equal_mass),
    (metrics.SmoothECEStream, metrics.smooth_ece),
    (
        lambda: metrics.SmoothECEStream("density"),
        lambda p, y, **kw: metrics.smooth_ece(p, y, normalization="density", **kw),
    ),
    (
        lambda: metrics.SmoothECEStream("corrected"),
        lambda p, y, **kw: metrics.smooth_ece(p, y, normalization="corrected", **kw),
    ),
]
BLOCKS = [slice(300, 500), slice(0, 1), slice(1, 130), slice(130, 300)]


def in_blocks(stream, p, y, w):
    """Update two streams with alternating blocks, then merge them."""
    streams = [stream(), stream()]
    for place, at in enumerate(BLOCKS):
        weight = None if w is None else w[at]
        streams[place % 2].update(p[at], y[at], sample_weight=weight)
    return streams[1].merge(streams[0])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("stream", "function", "exact"), STREAMS)
def test_blocks_add_up_to_the_whole(stream, function, exact, weighted, report) -> None:
    p, y, w = report
    w = w if weighted else None
    whole, merged = function(p, y, sample_weight=w), in_blocks(stream, p, y, w).result()
    assert merged == (whole if exact else pytest.approx(whole, rel=1e-13))


def test_reliability_blocks(report) -> None:
    p, y, w = report
    merged = in_blocks(metrics.ReliabilityStream, p, y, w).result()
    whole = metrics.reliability(p, y, sample_weight=w)
    for name, values in whole.to_dict().items():
        result = np.array(merged.to_dict()[name], dtype=float)
        np.testing.assert_allclose(result, np.array(values, dtype=float), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("stream", "function"), BOUNDED)
def test_results_stay_within_their_bound(stream, function, weighted, report) -> None:
    p, y, w = report
    w = w if weighted else None
    merged = in_blocks(stream, p, y, w)
    error = abs(merged.result() - function(p, y, sample_weight=w))
    assert error <= merged.error_bound() + 1e-12
    assert merged.error_bound() < 0.2


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("stream", "function"), BOUNDED)
def test_bounds_hold_on_many_shapes_of_confidence(stream, function, seed) -> None:
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(20, 3000))
    confidence = 0.5 + 0.5 * rng.beta(rng.uniform(0.3, 9), rng.uniform(0.1, 2), rows)
    if seed % 3 == 0:
        confidence = np.round(confidence, 2)
    p = np.stack([confidence, 1.0 - confidence], axis=1)
    y = (rng.random(rows) > confidence - rng.uniform(0, 0.2)).astype(int)
    updated = stream().update(p, y)
    assert abs(updated.result() - function(p, y)) <= updated.error_bound() + 1e-12


def test_distinct_confidences_have_a_small_bound() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1.0, 20_000)
    p = np.stack([confidence, 1.0 - confidence], axis=1)
    y = (rng.random(20_000) > confidence).astype(int)
    assert metrics.EqualMassECEStream().update(p, y).error_bound() < 2e-3
    assert metrics.SmoothECEStream().update(p, y).error_bound() < 5e-4


@pytest.mark.parametrize("stream", [row[0] for row in STREAMS + BOUNDED])
def test_no_rows_yet(stream) -> None:
    with refused("the stream"):
        stream().result()


@pytest.mark.parametrize(
    "stream",
    [
        metrics.ECEStream,
        metrics.ReliabilityStream,
        metrics.ClasswiseECEStream,
        metrics.EqualMassECEStream,
    ],
)
def test_different_bins_do_not_merge(stream) -> None:
    with refused("other", naming=["15", "10"]):
        stream().merge(stream(10))


def test_different_classes_do_not_add_up() -> None:
    stream = metrics.ClasswiseECEStream().update([[0.5, 0.5]], [0])
    with refused("probabilities", naming=["3", "2"]):
        stream.update([[0.5, 0.25, 0.25]], [0])


def test_an_empty_stream_merges_to_nothing_new(report) -> None:
    p, y, _ = report
    whole = metrics.ClasswiseECEStream().update(p, y)
    expected = whole.result()
    assert whole.merge(metrics.ClasswiseECEStream()).result() == expected
    assert metrics.ClasswiseECEStream().merge(whole).result() == expected


@pytest.mark.parametrize(
    "stream", [row[0] for row in STREAMS] + [metrics.EqualMassECEStream, metrics.SmoothECEStream]
)
def test_states_travel_between_processes(stream, report) -> None:
    p, y, _ = report
    state = stream().update(p, y)
    assert pickle.loads(pickle.dumps(state)).result() == state.result()


@pytest.mark.parametrize("kind", ["count", "density", "corrected"])
def test_bound_next_to_the_boundary(kind) -> None:
    # 0.999 is the last inner node of the density's grid; what the stream shares from it to the
    # end node counts half in the published forms.
    confidence = np.array([0.999] * 90 + [0.7] * 10)
    p, y = np.stack([confidence, 1.0 - confidence], axis=1), np.array([0] * 90 + [1] * 10)
    stream = metrics.SmoothECEStream(kind).update(p, y)
    error = abs(stream.result() - metrics.smooth_ece(p, y, normalization=kind))
    assert error <= stream.error_bound() < 0.02
