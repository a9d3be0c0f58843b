"""Promises in the output dtype: strict predictions, row sums, other entries, bit-for-bit rows."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from cases import CASES, random_pair, with_zeros

import reference
from cordcal.repair import CORD

DTYPES = [np.float64, np.float32, np.float16]
UNIT = {np.float64: 2.0**-53, np.float32: 2.0**-24, np.float16: 2.0**-11}
NAMES = sorted(set(CASES) - {"not quite normalised"})
EVERY = list(product(NAMES, DTYPES))


def repaired_in(name: str, dtype: type) -> tuple[np.ndarray, np.ndarray, CORD]:
    case = CASES[name]
    cord = CORD().fit(case.original, case.direct, prediction=case.prediction)
    repaired = cord.transform(case.original, case.direct, prediction=case.prediction, dtype=dtype)
    keep = case.original.argmax(axis=1) if case.prediction is None else case.prediction
    return repaired, keep, cord


@pytest.mark.parametrize(("name", "dtype"), EVERY)
def test_prediction_is_strictly_largest(name: str, dtype: type) -> None:
    repaired, keep, _ = repaired_in(name, dtype)
    assert repaired.dtype == dtype
    rows = np.arange(len(keep))
    masses = repaired[rows, keep]
    others = repaired.copy()
    others[rows, keep] = -1.0
    assert (masses > others.max(axis=1)).all()
    assert (repaired >= 0).all()


@pytest.mark.parametrize(("name", "dtype"), EVERY)
def test_rows_sum_to_one(name: str, dtype: type) -> None:
    repaired, keep, _ = repaired_in(name, dtype)
    unit, smallest = UNIT[dtype], float(np.finfo(dtype).smallest_subnormal)
    classes = repaired.shape[1]
    for row, a in zip(repaired.astype(np.float64), keep, strict=True):
        lift = float(np.spacing(dtype(row[a])))
        bound = unit + classes * smallest / 2 + lift
        # In float64 the arithmetic itself rounds too: mass, factor and products, three times.
        bound += 3 * 2.0**-53
        assert abs(math.fsum(row) - 1.0) <= bound


@pytest.mark.parametrize(("name", "dtype"), EVERY)
def test_other_entries_are_the_exact_ones_rounded(name: str, dtype: type) -> None:
    case = CASES[name]
    repaired, keep, cord = repaired_in(name, dtype)
    exact = reference.transform(case.original, case.direct, cord.eta_, prediction=case.prediction)
    expected = np.array(exact, dtype=np.float64)
    unit, smallest = UNIT[dtype], float(np.finfo(dtype).smallest_subnormal)
    error = np.abs(repaired.astype(np.float64) - expected)
    # Eight roundings of float64 arithmetic stand before the one to the output dtype.
    allowed = np.maximum((unit + 8 * 2.0**-53) * expected, smallest / 2 + 1e-320)
    error[np.arange(len(keep)), keep] = 0.0
    assert (error <= allowed).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_untouched_rows_come_back_bit_for_bit(dtype: type) -> None:
    original = random_pair(200, 7).original
    direct = original.astype(dtype)
    if dtype is np.float16:
        direct = direct[(np.sort(direct, axis=1)[:, -1] > np.sort(direct, axis=1)[:, -2])]
        original = direct.astype(np.float64)
        original /= original.sum(axis=1, keepdims=True)
    cord = CORD().fit(original, direct)
    assert cord.eta_ == 0.0
    np.testing.assert_array_equal(cord.transform(original, direct), direct)


def test_narrow_ties_are_lifted() -> None:
    """At the lower bound the margin is 1e-12: every narrower dtype ties it."""
    original, direct = np.array([[0.6, 0.4]]), np.array([[0.1, 0.9]])
    cord = CORD().fit(original, direct)
    for dtype in (np.float32, np.float16):
        repaired = cord.transform(original, direct, dtype=dtype)
        assert repaired[0, 0] == np.nextafter(repaired[0, 1], dtype(1))


def test_float16_rounding_is_correct_on_every_half() -> None:
    """Doubles just around each half-precision midpoint land on the right side."""
    halves = np.arange(0x3C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    middles = (halves[:-1] + halves[1:]) / 2
    for values in (np.nextafter(middles, 0), middles, np.nextafter(middles, 1)):
        values = values[(values > 0) & (values < 0.5)]
        direct = np.column_stack([1.0 - values, values])
        cord = CORD().fit(direct, direct)
        cord.eta_ = 0.0
        repaired = cord.transform(direct, direct, dtype=np.float16)
        np.testing.assert_array_equal(repaired[:, 1], values.astype(np.float16))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["fortran", "strided", "read-only", "list", "reversed"])
def test_layouts_do_not_matter(dtype: type, layout: str) -> None:
    case = with_zeros(random_pair(70, 9))
    p, q = case.original.astype(dtype), case.direct.astype(dtype)
    p, q = (x / x.sum(axis=1, keepdims=True, dtype=dtype) for x in (p, q))
    cord = CORD().fit(p, q)
    expected = cord.transform(p, q)
    made = []
    for x in (p, q):
        if layout == "fortran":
            made.append(np.asfortranarray(x))
        elif layout == "strided":
            wide = np.zeros((140, 18), dtype)
            wide[::2, ::2] = x
            made.append(wide[::2, ::2])
        elif layout == "reversed":
            made.append(x[::-1].copy()[::-1])
        elif layout == "list":
            made.append(x.tolist() if dtype is np.float64 else x)
        else:
            locked = x.copy()
            locked.setflags(write=False)
            made.append(locked)
    assert CORD().fit(*made).eta_ == cord.eta_
    np.testing.assert_array_equal(cord.transform(*made), expected)
    out = np.zeros((70, 18), dtype)[:, ::2]
    assert cord.transform(*made, out=out) is out
    np.testing.assert_array_equal(out, expected)


def test_inputs_are_never_changed_and_in_place_works() -> None:
    case = with_zeros(random_pair(300, 11))
    p, q = case.original.copy(), case.direct.copy()
    cord = CORD().fit(p, q)
    expected = cord.transform(p, q)
    np.testing.assert_array_equal(p, case.original)
    np.testing.assert_array_equal(q, case.direct)
    assert cord.transform(p, q, out=q) is q
    np.testing.assert_array_equal(q, expected)
    overlapping = np.concatenate([case.direct, np.zeros((1, 11))])
    shifted = cord.transform(p, overlapping[:-1], out=overlapping[1:])
    np.testing.assert_array_equal(shifted, expected)


def test_mixed_dtypes() -> None:
    case = random_pair(50, 6)
    cord = CORD().fit(case.original, case.direct)
    narrow = case.original.astype(np.float32)
    repaired = cord.transform(narrow, case.direct)
    assert repaired.dtype == np.float64
    np.testing.assert_array_equal(repaired.argmax(axis=1), narrow.argmax(axis=1))


def test_one_row_comes_back_as_one_row() -> None:
    case = random_pair(50, 6)
    cord = CORD().fit(case.original, case.direct)
    whole = cord.transform(case.original, case.direct)
    np.testing.assert_array_equal(cord.transform(case.original[3], case.direct[3]), whole[3])
    out = np.empty(6)
    assert cord.transform(case.original[3], case.direct[3], out=out) is out
    np.testing.assert_array_equal(out, whole[3])
