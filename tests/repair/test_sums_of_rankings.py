"""How far from one the rows of a kept ranking sum in a narrow dtype: the bound of the docs."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal.repair import CORD


@pytest.mark.parametrize("classes", [10, 100, 1000])
def test_tied_reports_are_lifted_by_no_more_than_they_need(classes: int) -> None:
    rng = np.random.default_rng(0)
    original = rng.dirichlet(np.ones(classes), 20).astype(np.float32)
    direct = np.full_like(original, 1.0 / classes)
    repaired = CORD("ranking").fit(original, direct).transform(original, direct)
    unit = float(np.spacing(np.float32(1.0 / classes)))
    levels = classes - 1
    off = np.abs(repaired.astype(np.float64).sum(axis=1) - 1.0)
    rounding = classes * unit  # of the entries, and of the supplied rows
    assert off.max() <= levels * (levels + 1) / 2 * unit + rounding
    assert (
        np.argsort(-repaired, axis=1, kind="stable") == np.argsort(-original, axis=1, kind="stable")
    ).all()
