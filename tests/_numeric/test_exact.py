"""The exact sum against fsum and fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordcal._numeric.exact import ExactSum

doubles = st.floats(allow_nan=False, allow_infinity=False, width=64)


@given(st.lists(doubles, max_size=60))
def test_equals_fsum(values: list[float]) -> None:
    total = ExactSum.of(np.array(values, dtype=np.float64))
    exact = sum(map(Fraction, values), Fraction(0))
    if abs(exact) < Fraction(1.7e308):
        assert float(total) == float(exact)
    # fsum overflows on the way where the sum itself does not.
    if sum(abs(Fraction(value)) for value in values) < Fraction(1.7e308):
        assert float(total) == math.fsum(values)


@given(st.lists(doubles, min_size=1, max_size=40), st.randoms())
def test_order_and_blocks_do_not_matter(values: list[float], random) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(values)
    random.shuffle(shuffled)
    cut = random.randrange(len(values) + 1)
    parts = ExactSum.of(np.array(shuffled[:cut])) + ExactSum.of(np.array(shuffled[cut:]))
    assert parts == ExactSum.of(np.array(values))


@given(
    st.lists(
        st.tuples(
            st.floats(1e-100, 1.0), st.floats(-1.0, 1.0).filter(lambda x: x == 0 or abs(x) > 1e-100)
        ),
        max_size=30,
    )
)
def test_products_are_not_rounded(pairs: list[tuple[float, float]]) -> None:
    weights, values = (np.array(x) for x in zip(*pairs, strict=True)) if pairs else ([], [])
    total = ExactSum.of_products(np.array(weights), np.array(values))
    exact = sum((Fraction(w) * Fraction(v) for w, v in pairs), Fraction(0))
    assert Fraction(total.units, 1 << 1126) == exact


def test_mean_is_rounded_once() -> None:
    values = np.array([0.1] * 10)
    assert ExactSum.of(values).mean(ExactSum.count(10)) == 0.1
    assert values.mean() == pytest.approx(0.1)
