"""Changed predictions: counted by hand, split by labels, read from scores or predictions."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal import metrics
from errors import refused

ORIGINAL = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.5, 0.4, 0.1], [0.1, 0.2, 0.7]])
EVALUATED = np.array([[0.4, 0.5, 0.1], [0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.1, 0.2, 0.7]])
LABELS = np.array([0, 0, 1, 2])


def test_counts_by_hand() -> None:
    changes = metrics.prediction_changes(ORIGINAL, EVALUATED, LABELS)
    assert (changes.n, changes.n_changed, changes.tpcr) == (4, 3, 0.75)
    assert (changes.n_gained, changes.n_lost, changes.n_neutral) == (1, 1, 1)
    assert changes.delta_accuracy == 0.0


def test_weights_enter_rates_but_not_counts() -> None:
    changes = metrics.prediction_changes(ORIGINAL, EVALUATED, LABELS, sample_weight=[1, 5, 2, 8])
    assert changes.n_changed == 3
    assert (changes.tpcr, changes.gained, changes.lost, changes.neutral) == (
        0.5,
        5 / 16,
        1 / 16,
        1 / 8,
    )
    assert changes.delta_accuracy == 0.25


def test_delta_accuracy_is_the_difference_of_accuracies() -> None:
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.ones(5), 500), rng.dirichlet(np.ones(5), 500)
    y = rng.integers(0, 5, 500)
    changes = metrics.prediction_changes(p, q, y)
    assert changes.delta_accuracy == pytest.approx(
        metrics.accuracy(q, y) - metrics.accuracy(p, y), abs=1e-15
    )
    assert changes.n_gained + changes.n_lost + changes.n_neutral == changes.n_changed


def test_without_labels_the_split_is_unknown() -> None:
    changes = metrics.prediction_changes(ORIGINAL, EVALUATED)
    assert changes.n_changed == 3
    assert changes.n_gained is changes.lost is changes.delta_accuracy is None


def test_predictions_can_replace_scores_on_either_side() -> None:
    before, after = ORIGINAL.argmax(axis=1), EVALUATED.argmax(axis=1)
    whole = metrics.prediction_changes(ORIGINAL, EVALUATED, LABELS)
    assert metrics.prediction_changes(before, EVALUATED, LABELS) == whole
    assert metrics.prediction_changes(ORIGINAL, after, LABELS) == whole
    assert metrics.prediction_changes(before, after, LABELS) == whole


def test_ties_go_to_the_smallest_index_and_logits_are_accepted() -> None:
    assert metrics.tpcr([[0.5, 0.5]], [0]) == 0.0
    assert metrics.tpcr([[-3.0, 2.0], [4.0, -np.inf]], [[0.1, 0.9], [0.2, 0.8]]) == 0.5


def test_blocks_merge_to_the_whole() -> None:
    rng = np.random.default_rng(2)
    p, q = rng.dirichlet(np.ones(4), 300), rng.dirichlet(np.ones(4), 300)
    y, w = rng.integers(0, 4, 300), rng.random(300)
    parts = [
        metrics.PredictionChangesStream().update(p[at], q[at], y[at], sample_weight=w[at])
        for at in (slice(200, 300), slice(0, 17), slice(17, 200))
    ]
    merged = parts[0].merge(parts[1]).merge(parts[2]).result()
    assert merged == metrics.prediction_changes(p, q, y, sample_weight=w)


def test_one_unlabelled_block_makes_the_split_unknown() -> None:
    stream = metrics.PredictionChangesStream().update(ORIGINAL, EVALUATED, LABELS)
    assert stream.update(ORIGINAL, EVALUATED).result().gained is None
    other = metrics.PredictionChangesStream().update(ORIGINAL, EVALUATED, LABELS)
    assert other.merge(stream).result().n == 12


@pytest.mark.parametrize(
    ("original", "evaluated", "rows", "facts"),
    [
        (ORIGINAL, EVALUATED[:3], [], ["(4, 3)", "(3, 3)"]),
        (ORIGINAL, EVALUATED[:, :2], [], ["(4, 3)", "(4, 2)"]),
        ([0, 1, 2], EVALUATED, [], ["(3,)", "(4, 3)"]),
        ([0, 1, 2, 3], EVALUATED, [3], ["3", "0..2"]),
        ([0, -1, 2, 2], EVALUATED, [1], ["-1"]),
        (["a", "b", "c", "d"], EVALUATED, [], []),
        ([0.5, 0.25, 0.25], EVALUATED, [], ["(3,)", "float64"]),
        ([], EVALUATED, [], ["(0,)"]),
        ([[0.5, np.nan]], [[0.5, 0.5]], [0], ["NaN"]),
    ],
)
def test_bad_input(original, evaluated, rows, facts) -> None:
    with refused("original", rows=rows, naming=facts):
        metrics.tpcr(original, evaluated)


def test_no_rows_yet() -> None:
    with refused("the stream"):
        metrics.PredictionChangesStream().result()
