"""The grid of candidates, and the search for the nearest-zero solution on it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from cases import CASES, Case, random_pair, with_zeros
from hypothesis import given
from hypothesis import strategies as st

from cordcal.repair import CORD, rule
from cordcal.repair.construction import CalibrationRows, construct
from cordcal.repair.solve import GRID_BITS, grid_index, grid_value


@given(st.integers(-(2**53), 2**53))
def test_grid_round_trip(index: int) -> None:
    value = grid_value(index)
    assert math.copysign(grid_index(abs(value)), index) == index or index == 0
    assert grid_value(index + 1) > value


@given(st.floats(0.0, 1e13))
def test_grid_index_is_the_first_point_at_or_above(value: float) -> None:
    index = grid_index(value)
    assert grid_value(index) >= value
    assert index == 0 or grid_value(index - 1) < value


@given(
    st.floats(1e-6, 1.0 - 1e-12),
    st.floats(-200.0, 1e6),
    st.floats(0.0, 0.5),
)
def test_response_rises_from_one_grid_point_to_the_next(g: float, eta: float, low: float) -> None:
    """The promise the whole search stands on, for one row, where noise does not average out."""
    index = int(math.copysign(grid_index(abs(eta)), eta))
    rows = np.array([g]), np.array([1.0 - g]), np.array([max(low, 1e-6)])
    excess = []
    for step in range(4):
        mass, rest, _ = rule.response(grid_value(index + step), *rows)
        excess.append(float(rule.gap(mass, rest, *rows[:2])[0]))
    assert excess == sorted(excess)


def neighbours(case: Case) -> tuple[float, float, float]:
    """The constraint just before, at, and far from the solution."""
    rows = CalibrationRows.of(case.original, case.direct, case.prediction, None, 1)
    record = construct([rows], prediction_given=False)
    step = 2.0**-GRID_BITS * max(1.0, 2.0 ** math.floor(math.log2(max(abs(record.eta), 1e-300))))
    before = record.eta - math.copysign(step, record.eta)
    reached, ahead = (probe.excess for probe in rows.probes([record.eta, before]))
    target = (record.target - record.direct_mean) * len(rows)
    return float(ahead), float(reached), target


# Warns by design; its sums are compared with the reference.
NAMES = sorted(set(CASES) - {"not quite normalised"})


@pytest.mark.parametrize("name", NAMES)
def test_solution_is_the_nearest_to_zero(name: str) -> None:
    case = CASES[name]
    eta = CORD().fit(case.original, case.direct, prediction=case.prediction).eta_
    if eta == 0.0:
        return
    ahead, reached, target = neighbours(case)
    sign = math.copysign(1.0, eta)
    slack = 1e-15 * len(case.direct)
    assert sign * (reached - target) >= -slack
    assert sign * (ahead - target) < slack


@pytest.mark.parametrize("name", NAMES)
def test_few_passes(name: str) -> None:
    case = CASES[name]
    assert (
        CORD().fit(case.original, case.direct, prediction=case.prediction).construction_.passes
        <= 30
    )


def test_few_passes_on_ordinary_rows() -> None:
    for seed in range(20):
        case = random_pair(500, 10, noise=0.5, seed=seed)
        assert CORD().fit(case.original, case.direct).construction_.passes <= 12


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_order_threads_and_chunks_do_not_matter(
    threads: int, thread_entries: Callable[[int], None]
) -> None:
    case = with_zeros(random_pair(5000, 9, noise=2.0))
    expected = CORD(threads=1).fit(case.original, case.direct).construction_
    thread_entries(2000)
    order = np.random.default_rng(threads).permutation(5000)
    result = CORD(threads=threads).fit(case.original[order], case.direct[order]).construction_
    assert result == expected


def test_every_row_changed_does_not_depend_on_the_order() -> None:
    """Sets where every row changes: ordinary sums jump between zero and a far scalar."""
    rng = np.random.default_rng(4)
    original = rng.dirichlet(np.ones(5), 4000)
    direct = np.roll(original, 2, axis=1)
    etas = set()
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(4000)
        etas.add(CORD().fit(original[order], direct[order]).eta_)
    assert len(etas) == 1
