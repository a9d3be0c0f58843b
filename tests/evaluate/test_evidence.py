"""Evidence of the monitor against slow references written from the definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from cordcal.evaluate import evidence
from cordcal.evaluate.evidence import (
    ALL_ROWS_SHARE,
    FAMILY_SHARE,
    N_BANDS,
    P_BINS,
    P_MEMORY,
    P_PRIOR,
    TILTS,
    CalibrationEvidence,
    DriftEvidence,
    bands_of,
    log_bets,
)

TOLERANCE = 0.02


@pytest.fixture(params=[4, 250])
def start_every(request, monkeypatch) -> int:
    """The real distance between starting points, and one at which starts matter in few rows."""
    monkeypatch.setattr(evidence, "START_EVERY", request.param)
    monkeypatch.setattr(evidence, "LOOK_EVERY", 3)
    return request.param


def rows(count: int, classes: int = 3, seed: int = 0, off: float = 0.0):
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(1 / classes, 1.0, count)
    correct = rng.random(count) < confidence - off
    return confidence, correct, rng.integers(classes, size=count), rng.integers(-1, 3, count)


@pytest.mark.parametrize("right", [-1.0, -0.5, 0.0, 0.5, 1.0])
def test_no_bet_gains_while_the_confidence_holds(right: float) -> None:
    """For every probability of being right within the tolerance, E[bet] is at most one."""
    confidence = np.concatenate([np.linspace(0.001, 1.0, 500), [1e-300, 1.0 - 1e-16]])
    p = np.clip(confidence + right * TOLERANCE, 0.0, 1.0)[:, None]
    yes = log_bets(confidence, np.ones(len(confidence), bool), TOLERANCE) / 2.0**32
    no = log_bets(confidence, np.zeros(len(confidence), bool), TOLERANCE) / 2.0**32
    assert (p * np.exp(yes) + (1.0 - p) * np.exp(no)).max() <= 1.0 + 1e-15


def test_bets_gain_beyond_the_tolerance() -> None:
    confidence = np.array([0.9])
    yes, no = (
        log_bets(confidence, np.array([answer]), TOLERANCE)[0] / 2.0**32 for answer in (True, False)
    )
    growth = 0.8 * yes + 0.2 * no
    assert growth[:3].max() > 0.02  # a bet on "too high"
    assert growth[TILTS > 0].max() < 0.0


def group_numbers(groups: np.ndarray) -> np.ndarray:
    """Renumber groups in the order of their appearance."""
    known: dict[int, int] = {}
    return np.array([-1 if g < 0 else known.setdefault(int(g), len(known)) for g in groups])


def slow_evidence(confidence, correct, predicted, groups, classes: int, start_every: int) -> float:
    """The capital of every cell, tilt and starting point on its own."""
    total = 0.0
    latest = len(confidence) // start_every + 1
    cells = [(ALL_ROWS_SHARE, np.ones(len(confidence), bool))]
    cells += [(FAMILY_SHARE / N_BANDS, bands_of(confidence) == band) for band in range(N_BANDS)]
    cells += [(FAMILY_SHARE / classes, predicted == label) for label in range(classes)]
    seen = int(groups.max(initial=-1)) + 1
    cells += [(FAMILY_SHARE / ((j + 1) * (j + 2)), groups == j) for j in range(seen)]
    for share, members in cells:
        for tilt in TILTS:
            bound = confidence - math.copysign(TOLERANCE, -tilt)
            bets = np.exp(tilt * correct) / (1.0 + bound * (math.exp(tilt) - 1.0))
            bets = np.where(members, bets, 1.0)
            started = sum(
                bets[(k - 1) * start_every :].prod() / (k * (k + 1)) for k in range(1, latest + 1)
            )
            total += share / len(TILTS) * (started + 1.0 / (latest + 1))
    return math.log(total + 1.0 - sum(share for share, _ in cells))


@pytest.mark.parametrize("count", [1, 3, 4, 249, 250, 251, 777])
@pytest.mark.parametrize("off", [0.0, 0.2])
def test_evidence_is_the_mixture_over_cells_tilts_and_starts(
    start_every, count: int, off: float
) -> None:
    confidence, correct, predicted, groups = rows(count, off=off)
    groups = group_numbers(groups)
    test = CalibrationEvidence(3, TOLERANCE)
    test.update(confidence, correct, predicted, groups)
    expected = slow_evidence(confidence, correct, predicted, groups, 3, start_every)
    # Bets are rounded down by at most 2^-32 each.
    assert expected - count * 2.0**-31 <= test.evidence <= expected + 1e-12


def test_a_group_that_appears_late_had_cash_before(start_every) -> None:
    confidence, correct, predicted, groups = rows(300, off=0.1)
    groups = np.where(np.arange(300) < 130, -1, 0)
    test = CalibrationEvidence(3, TOLERANCE)
    for batch in (slice(0, 100), slice(100, 300)):
        test.update(confidence[batch], correct[batch], predicted[batch], groups[batch])
    expected = slow_evidence(confidence, correct, predicted, groups, 3, start_every)
    assert test.evidence == pytest.approx(expected, abs=1e-7)


def test_evidence_does_not_depend_on_batches(start_every) -> None:
    data = rows(1000, off=0.05)
    data = (*data[:3], group_numbers(data[3]))
    whole = CalibrationEvidence(3, TOLERANCE)
    whole.update(*data)
    rng = np.random.default_rng(1)
    for _ in range(5):
        cuts = np.sort(rng.integers(0, 1001, 6))
        parts = CalibrationEvidence(3, TOLERANCE)
        for batch in np.split(np.arange(1000), cuts):
            parts.update(*(column[batch] for column in data))
        assert parts.evidence == whole.evidence
        assert parts.gap_interval(0.05) == whole.gap_interval(0.05)


def test_a_group_that_appears_late_does_not_depend_on_batches(start_every) -> None:
    """Its capital has the same bits if its batch begins many starting points earlier."""
    confidence, correct, predicted, _ = rows(2601, off=0.05)
    groups = np.where(np.arange(2601) < 2600, -1, 0)
    whole, parts = CalibrationEvidence(3, TOLERANCE), CalibrationEvidence(3, TOLERANCE)
    whole.update(confidence, correct, predicted, groups)
    for batch in np.split(np.arange(2601), [1, 2, 2599]):
        parts.update(confidence[batch], correct[batch], predicted[batch], groups[batch])
    assert parts.evidence == whole.evidence
    for name in ("log_capital", "sums", "best", "best_start"):
        assert np.array_equal(getattr(parts.capital, name), getattr(whole.capital, name))


def test_the_first_look_beyond_the_limit_is_returned() -> None:
    confidence, correct, predicted, _ = rows(2000, off=0.3)
    limit = math.log(40.0)
    test = CalibrationEvidence(3, TOLERANCE)
    look = test.update(confidence, correct, predicted, np.full(2000, -1), limit)
    assert look is not None
    assert look.rows % evidence.LOOK_EVERY == 0
    again = CalibrationEvidence(3, TOLERANCE)
    before = slice(0, look.rows - evidence.LOOK_EVERY)
    none = np.full(2000, -1)[before]
    assert again.update(confidence[before], correct[before], predicted[before], none, limit) is None


def slow_drift(counts: np.ndarray, predicted, bands, seed: int, start_every: int) -> float:
    """Both orders and memories, one row at a time."""
    generator = np.random.Generator(np.random.PCG64(seed))
    classes = len(counts)
    cells = [(c, b) for c in range(classes) for b in range(N_BANDS) for _ in range(counts[c, b])]
    smoothing = generator.random((len(predicted), 2))
    keys = (lambda cell: cell[1] * classes + cell[0], lambda cell: cell[0] * N_BANDS + cell[1])
    capitals = []
    for order, key in enumerate(keys):
        capital = 0.0
        bag = [key(cell) for cell in cells]
        p_values = []
        for row, cell in enumerate(zip(predicted, bands, strict=True)):
            bag.append(key(cell))
            lower = sum(other < bag[-1] for other in bag)
            equal = sum(other == bag[-1] for other in bag)
            p_values.append((lower + smoothing[row, order] * equal) / len(bag))
        bins = np.minimum((np.array(p_values) * P_BINS).astype(int), P_BINS - 1)
        for memory in P_MEMORY:
            past, bets = np.zeros(P_BINS), []
            for start in range(0, len(bins), start_every):
                stretch = bins[start : start + start_every]
                density = (past * P_BINS + P_PRIOR) / (past.sum() + P_PRIOR)
                bets += density[stretch].tolist()
                past = (past + np.bincount(stretch, minlength=P_BINS)) * memory
            latest = len(bins) // start_every + 1
            started = sum(
                np.prod(bets[(k - 1) * start_every :]) / (k * (k + 1)) for k in range(1, latest + 1)
            )
            capital += (started + 1.0 / (latest + 1)) / len(P_MEMORY)
        capitals.append(capital)
    return math.log(max(capitals) / 2.0)


@pytest.mark.parametrize("count", [1, 4, 250, 301])
def test_drift_evidence_is_the_mixture_of_its_definition(start_every, count: int) -> None:
    rng = np.random.default_rng(3)
    counts = rng.integers(0, 4, size=(3, N_BANDS))
    predicted, bands = rng.integers(3, size=count), rng.integers(N_BANDS, size=count)
    test = DriftEvidence(counts, 7)
    split = count // 3
    test.update(predicted[:split], bands[:split])
    test.update(predicted[split:], bands[split:])
    expected = slow_drift(counts, predicted, bands, 7, start_every)
    assert expected - count * 2.0**-31 <= test.evidence <= expected + 1e-9


def test_ranks_of_exchangeable_rows_are_uniform(monkeypatch) -> None:
    """The bins of p-values are equally likely, for any distribution over cells."""
    rng = np.random.default_rng(5)
    shares = rng.dirichlet(np.full(3 * N_BANDS, 0.2))
    seen = np.zeros((2, P_BINS))
    monkeypatch.setattr(evidence, "START_EVERY", 10**6)  # `recent` then counts all rows
    for seed in range(30):
        cells = rng.choice(3 * N_BANDS, size=200, p=shares)
        counts = np.bincount(cells[:100], minlength=3 * N_BANDS).reshape(3, N_BANDS)
        test = DriftEvidence(counts, seed)
        test.update(cells[100:] // N_BANDS, cells[100:] % N_BANDS)
        seen += test.recent
    assert all(stats.chisquare(order).pvalue > 1e-3 for order in seen)


def test_drift_raises_an_alarm_and_its_absence_does_not() -> None:
    rng = np.random.default_rng(0)
    counts = np.full((4, N_BANDS), 50)
    test = DriftEvidence(counts, 0)
    calm = rng.integers(4, size=5000), rng.integers(N_BANDS, size=5000)
    assert test.update(*calm, math.log(40.0)) is None
    shifted = rng.choice(4, size=2000, p=[0.7, 0.1, 0.1, 0.1]), rng.integers(N_BANDS, size=2000)
    look = test.update(*shifted, math.log(40.0))
    assert look is not None
    assert look.rows <= 6000


def test_false_alarms_are_rare_over_whole_lives() -> None:
    """At the edge of the tolerance, looked at after every 25 rows."""
    rng = np.random.default_rng(2)
    alarms = 0
    for life in range(200):
        confidence = rng.beta(6.0, 1.0 + life % 3, 2500)
        edge = TOLERANCE * (-1.0) ** life
        correct = rng.random(2500) < confidence + edge
        test = CalibrationEvidence(3, TOLERANCE)
        look = test.update(
            confidence, correct, rng.integers(3, size=2500), np.full(2500, -1), math.log(20.0)
        )
        alarms += look is not None
    assert alarms <= 10  # 5 % of 200; the expectation is far below


def test_the_gap_interval_holds_at_every_look() -> None:
    rng = np.random.default_rng(4)
    missed = 0
    for _ in range(200):
        confidence = rng.uniform(0.5, 1.0, 2000)
        correct = rng.random(2000) < confidence - 0.1
        test = CalibrationEvidence(2, TOLERANCE)
        outside = False
        for batch in np.split(np.arange(2000), 20):
            test.update(confidence[batch], correct[batch], np.zeros(100, int), np.full(100, -1))
            low, high = test.gap_interval(0.05)
            outside |= not low <= 0.1 <= high
        missed += outside
    assert missed <= 10
    assert high - low < 0.12
