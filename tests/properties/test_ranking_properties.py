"""Kept rankings: the order per dtype, the simplex, and one level equal to CORD."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cordcal.repair import CORD


@st.composite
def pairs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    """Reports with ties and exact zeros, and how many ranks to keep."""
    rows, classes = draw(st.integers(1, 10)), draw(st.integers(3, 12))
    levels = draw(st.integers(2, classes - 1))
    sharpness = draw(st.sampled_from([0.0, 0.5, 3.0, 30.0]))
    coarse = draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def report() -> np.ndarray:
        scores = sharpness * rng.normal(size=(rows, classes))
        values = np.exp(scores - scores.max(axis=1, keepdims=True))
        if coarse:
            values = np.round(8 * values) / 8
        return values / values.sum(axis=1, keepdims=True)

    return report(), report(), levels


@settings(max_examples=80, deadline=None)
@given(pairs(), st.sampled_from(["float64", "float32", "float16"]))
def test_order_and_simplex(drawn: tuple[np.ndarray, np.ndarray, int], dtype: str) -> None:
    original, direct, levels = drawn
    cord = CORD(levels).fit(original, direct)
    repaired = cord.transform(original, direct, dtype=dtype)
    assert repaired.dtype == dtype
    assert (repaired >= 0).all()
    order = np.argsort(-original, axis=1, kind="stable")
    ranked = np.take_along_axis(repaired, order, axis=1)
    head = np.column_stack([ranked[:, :levels], ranked[:, levels:].max(axis=1)])
    gaps = np.diff(head.astype(np.float64), axis=1)
    assert (gaps[:, 0] < 0).all()
    if dtype == "float16":
        assert (gaps <= 0).all()
    else:
        assert (gaps < 0).all()
        off = np.abs(repaired.sum(axis=1, dtype=np.float64) - 1.0)
        assert (off <= levels * levels * np.finfo(dtype).eps).all()


@settings(max_examples=60, deadline=None)
@given(pairs())
def test_one_level_is_cord(drawn: tuple[np.ndarray, np.ndarray, int]) -> None:
    original, direct, _ = drawn
    one, plain = CORD(preserve=1).fit(original, direct), CORD().fit(original, direct)
    assert one.construction_ == plain.construction_
    np.testing.assert_array_equal(
        one.transform(original, direct), plain.transform(original, direct)
    )
