"""Many rows: sums and copies in blocks give the bits of smaller batches."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal.repair import CORD

ROWS, CLASSES = 70_000, 4  # more than two blocks of vectors, sums and copies


@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_blocks_do_not_change_a_bit(dtype: type, layout: str) -> None:
    rng = np.random.default_rng(0)
    pair = [rng.dirichlet(np.ones(CLASSES), ROWS).astype(dtype) for _ in range(2)]
    pieces = [slice(start, start + 9000) for start in range(0, ROWS, 9000)]
    if layout == "columns":
        pair = [np.asfortranarray(report) for report in pair]
    cord = CORD().fit(*pair)
    batches = CORD().construct((pair[0][at], pair[1][at]) for at in pieces)
    assert batches.eta_ == cord.eta_
    repaired = cord.transform(*pair)
    parts = [cord.transform(pair[0][at], pair[1][at]) for at in pieces]
    np.testing.assert_array_equal(np.concatenate(parts), repaired)
