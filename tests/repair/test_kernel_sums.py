"""Sums over rows in the kernels are exact."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba")

from cordcal.repair.kernels._engine import exact_sums
from cordcal.repair.kernels._scan import SUM_ROWS
from internals import ExactSum


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("lowest", [0, -100, -300])
def test_the_compiled_sum_is_the_same_integer(lowest: int, weighted: bool) -> None:
    rng = np.random.default_rng(0)
    for rows in (0, 1, 63, 64, 65, SUM_ROWS):
        values = rng.uniform(-2.0, 2.0, (2, rows)) * 10.0 ** rng.integers(lowest, 1, (2, rows))
        weight = rng.random(rows) if weighted else np.empty(0)
        compiled = exact_sums(values, weight)
        expected = [ExactSum.of_products(weight, x) if weighted else ExactSum.of(x) for x in values]
        assert compiled == expected
