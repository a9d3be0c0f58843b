"""ECE in both kinds of bins against netcal, and where its equal-mass bins differ."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal import metrics

ECE = pytest.importorskip("netcal.metrics").ECE


def their_ece(p: np.ndarray, y: np.ndarray, bins: int, **kind: bool) -> float:
    # From whole rows netcal infers a binary task if only two labels occur, and then measures the
    # second class; from confidence and correctness it measures the top label.
    correct = (p.argmax(axis=1) == y).astype(int)
    return float(ECE(bins, **kind).measure(p.max(axis=1), correct))


@pytest.mark.parametrize("bins", [10, 15])
def test_equal_width(report, bins) -> None:
    p, y = report
    assert metrics.ece(p, y, bins=bins) == pytest.approx(their_ece(p, y, bins), rel=1e-9)


def test_equal_mass_where_edges_fall_between_the_same_rows(report) -> None:
    p, y = report  # distinct confidences, and 15 divides the 3000 rows
    theirs = their_ece(p, y, 15, equal_intervals=False)
    assert metrics.ece_equal_mass(p, y) == pytest.approx(theirs, rel=1e-9)


def test_netcal_keeps_ties_in_one_bin() -> None:
    """netcal's edges are quantiles: rows of equal confidence share a bin, and masses differ.

    Ours are ranks: ties are split by position, and every bin has the same number of rows.
    """
    p = np.array([[0.6, 0.4]] * 4 + [[0.9, 0.1]] * 2)
    y = np.array([0, 0, 1, 1, 0, 1])
    # Ranks 0-2 | 3-5: two right of three at 0.6; one right of 0.6, 0.9, 0.9.
    ranked = (abs(1.8 - 2) + abs(2.4 - 1)) / 6
    assert metrics.ece_equal_mass(p, y, bins=2) == pytest.approx(ranked)
    # The median is 0.6, so all six rows fall in [0.6, 1].
    together = abs(4.2 - 3) / 6
    assert their_ece(p, y, 2, equal_intervals=False) == pytest.approx(together)
