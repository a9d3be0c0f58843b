"""The search in rounds ends at the scalar of the search by Newton steps, in ten rounds."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal.repair.construction import CalibrationRows
from cordcal.repair.solve import (
    ROUNDS,
    Bounds,
    Constraint,
    ConstraintValue,
    grid_index,
    grid_value,
    solve,
    solve_in_rounds,
)
from internals import ExactSum


def check(rows: CalibrationRows, classes: int) -> int:
    bounds = rows.tally().bounds(classes)
    expected = solve(Constraint(rows.probes, rows.next_edge, bounds, rows.search))
    result = solve_in_rounds(bounds, rows.probes)
    assert result.eta == expected.eta
    assert (result.target, result.reached.excess) == (expected.target, expected.reached.excess)
    assert result.passes <= ROUNDS
    return result.passes


@pytest.mark.parametrize("rows", [1, 3, 40, 3000])
@pytest.mark.parametrize("sharpness", [0.03, 0.5, 5.0])
def test_random_reports(rows: int, sharpness: float) -> None:
    rng = np.random.default_rng(rows)
    for classes in (2, 3, 30):
        original = rng.dirichlet(np.ones(classes), rows)
        direct = rng.dirichlet(np.full(classes, sharpness), rows)
        prediction = rng.integers(0, classes, rows)
        weight = rng.random(rows) + 1e-3
        for keep, w in ((None, None), (prediction, None), (None, weight)):
            check(CalibrationRows.of(original, direct, keep, w, 1), classes)


def test_certain_and_wrong_reports() -> None:
    rng = np.random.default_rng(0)
    original = np.eye(4)[rng.integers(0, 4, 60)]
    direct = np.eye(4)[rng.integers(0, 4, 60)]
    check(CalibrationRows.of(original, direct, None, None, 1), 4)
    check(CalibrationRows.of(original, original, None, None, 1), 4)


@pytest.mark.parametrize("jump", [1, 17, -5, grid_index(3e11), -grid_index(700.0), 2**40 + 1])
def test_a_step_without_slopes_is_found_by_sections_alone(jump: int) -> None:
    # The hardest constraint: it is constant on both sides of one jump.
    below, above = ExactSum.count(-1), ExactSum.count(1)

    def probes(etas: list[float]) -> list[ConstraintValue]:
        edge = grid_value(jump)
        # Downwards the excess is positive at zero, and the jump is met coming from above.
        met = [eta >= edge if jump > 0 else eta > edge for eta in etas]
        return [ConstraintValue(above if is_met else below, 0.0, 0, 0) for is_met in met]

    bounds = Bounds(-1000.0, 1e12, surely_attainable=True)
    result = solve_in_rounds(bounds, probes)  # type: ignore[arg-type]
    assert result.eta == grid_value(jump)
    assert result.passes <= ROUNDS
