"""Fingerprints recognise the same rows in any order, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal.evaluate import baseline
from cordcal.evaluate.baseline import Fingerprint, codes_of

ROWS = np.random.default_rng(0).dirichlet(np.ones(7), 200)


def test_order_blocks_and_layout_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Fingerprint.of(ROWS)
    shuffled = ROWS[np.random.default_rng(1).permutation(200)]
    assert Fingerprint.of(shuffled) == whole
    assert Fingerprint.of(np.asfortranarray(ROWS)) == whole
    assert Fingerprint.of(ROWS[:77]) + Fingerprint.of(ROWS[77:]) == whole
    monkeypatch.setattr(baseline, "_BLOCK_ENTRIES", 100)
    assert Fingerprint.of(ROWS) == whole


def test_the_same_numbers_in_another_dtype() -> None:
    narrow = ROWS.astype(np.float32)
    assert Fingerprint.of(narrow) == Fingerprint.of(narrow.astype(np.float64))
    assert Fingerprint.of([[0.0, 1.0]]) == Fingerprint.of([[-0.0, 1.0]])


def test_any_difference_shows() -> None:
    whole = Fingerprint.of(ROWS)
    nudged = ROWS.copy()
    nudged[3, 2] = np.nextafter(nudged[3, 2], 1.0)
    columns_swapped = ROWS[:, ::-1]
    traded = ROWS.copy()  # the same entries, some traded between two rows
    traded[[0, 1], 0] = traded[[1, 0], 0]
    repeated = np.concatenate([ROWS[:199], ROWS[:1]])
    for other in (nudged, columns_swapped, traded, repeated, ROWS[:199]):
        assert Fingerprint.of(other) != whole


def test_labels_and_weights_are_part_of_a_row() -> None:
    labels = np.arange(200) % 7
    whole = Fingerprint.of(ROWS, labels)
    assert whole != Fingerprint.of(ROWS)
    assert Fingerprint.of(ROWS, labels[::-1]) != whole
    assert Fingerprint.of(ROWS[::-1], labels[::-1]) == whole
    assert Fingerprint.of(np.column_stack([ROWS, labels])) == whole
    blocks = Fingerprint.of(ROWS[:9], labels[:9]) + Fingerprint.of(ROWS[9:], labels[9:])
    assert blocks == whole
    names = codes_of(np.array(["a", "b\ud800"]))
    assert names[0] != names[1]
    assert names[1] == codes_of(np.array(["b\ud800"]))[0]
