"""Every error names the argument, the row and a remedy."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from cases import random_pair
from sklearn.exceptions import NotFittedError

from cordcal import InputError
from cordcal.repair import CORD
from errors import refused

GOOD = random_pair(20, 4)
P, Q = GOOD.original, GOOD.direct


def spoiled(value: float, row: int = 7, column: int = 2) -> np.ndarray:
    bad = P.copy()
    bad[row, column] = value
    return bad


@pytest.mark.parametrize(
    ("value", "naming"),
    [(np.nan, "NaN"), (np.inf, "infinite"), (-np.inf, "infinite"), (-0.1, "softmax")],
)
@pytest.mark.parametrize("name", ["original", "direct"])
def test_bad_entries(name: str, value: float, naming: str) -> None:
    pair = {"original": P, "direct": Q, name: spoiled(value)}
    with refused(name, rows=[7], naming=naming):
        CORD().fit(**pair)
    with refused(name, rows=[7], naming=naming):
        CORD().fit(P, Q).transform(**pair)


def test_first_bad_row_is_named() -> None:
    bad = np.tile(P, (200, 1))
    bad[3210, 1] = np.nan
    bad[3990, 1] = np.nan
    with refused("direct", rows=[3210, 3990], naming="row 3210"):
        CORD().fit(np.tile(P, (200, 1)), bad)


@pytest.mark.parametrize("name", ["original", "direct"])
def test_rows_that_are_no_distributions(name: str) -> None:
    bad = P.copy()
    bad[5] *= 1.5
    pair = {"original": P, "direct": Q, name: bad}
    with refused(name, rows=[5], naming=["1.5", "softmax"]):
        CORD().fit(**pair)
    bad[5] = 0.0
    with refused(name, rows=[5], naming="sums to 0"):
        CORD().fit(**pair)


def test_logits_are_refused_with_the_remedy() -> None:
    with refused("direct", naming=["row 0", "logits", "softmax"]):
        CORD().fit(P, np.log(Q))


@pytest.mark.parametrize(
    ("original", "direct", "naming"),
    [
        (P, Q[:-1], ["(20, 4)", "(19, 4)"]),
        (P, Q[:, :-1], ["(20, 4)", "(20, 3)"]),
        (P[:, :1], Q[:, :1], "2 columns"),
        (P[:0], Q[:0], "no rows"),
        (P[0], Q[0], "2-D"),
        (P[None], Q[None], "3 dimension"),
        ([["a", "b"]], Q, ["original", "dtype"]),
        (P + 0j, Q, ["original", "complex128"]),
    ],
)
def test_bad_shapes(original: object, direct: object, naming: str | list[str]) -> None:
    with refused(naming=naming):
        CORD().fit(original, direct)


@pytest.mark.parametrize(
    ("prediction", "rows", "naming"),
    [
        (np.zeros(19, int), [], ["(19,)", "20 rows"]),
        (np.full(20, 4), range(20), ["4", "0..3"]),
        (np.array([0] * 19 + [-1]), [19], "-1"),
        (np.full(20, 0.5), [], ["float64", "0..3"]),
        (np.array(["a"] * 20), [], "0..3"),
    ],
)
def test_bad_predictions(prediction: np.ndarray, rows: list[int], naming: str | list[str]) -> None:
    with refused("prediction", rows=rows, naming=naming):
        CORD().fit(P, Q, prediction=prediction)


@pytest.mark.parametrize(
    ("weight", "rows", "naming"),
    [
        (np.ones(3), [], ["(3,)", "20 rows"]),
        (np.array([1.0] * 4 + [-1.0] + [1.0] * 15), [4], "-1.0"),
        (np.array([np.nan] + [1.0] * 19), [0], "nan"),
        (np.zeros(20), None, "zero"),
    ],
)
def test_bad_weights(weight: np.ndarray, rows: list[int] | None, naming: str | list[str]) -> None:
    with refused("sample_weight", rows=rows, naming=naming):
        CORD().fit(P, Q, sample_weight=weight)


def test_bad_outputs() -> None:
    cord = CORD().fit(P, Q)
    with refused("out", naming=["(3, 4)", "(20, 4)"]):
        cord.transform(P, Q, out=np.empty((3, 4)))
    with refused("out", naming="int64"):
        cord.transform(P, Q, out=np.empty((20, 4), int))
    with refused("out", naming="dtype=float32"):
        cord.transform(P, Q, out=np.empty((20, 4)), dtype=np.float32)
    with refused("dtype", naming="int32"):
        cord.transform(P, Q, dtype=np.int32)
    locked = np.empty((20, 4))
    locked.setflags(write=False)
    with refused("out", naming="read-only"):
        cord.transform(P, Q, out=locked)


def test_transform_before_fit() -> None:
    with pytest.raises(NotFittedError, match=r"call fit\(original, direct\) first"):
        CORD().transform(P, Q)
    with pytest.raises(NotFittedError):
        CORD().explain(P, Q)


def test_transform_with_other_classes() -> None:
    other = random_pair(3, 6)
    with refused("direct", naming=["6 classes", "4"]):
        CORD().fit(P, Q).transform(other.original, other.direct)


def test_predictions_once_passed_are_needed_again() -> None:
    keep = P.argmin(axis=1)
    cord = CORD().fit(P, Q, prediction=keep)
    assert cord.construction_.prediction_given
    with refused("prediction", rows=[]):
        cord.transform(P, Q)
    repaired = cord.transform(P, Q, prediction=keep)
    np.testing.assert_array_equal(repaired.argmax(axis=1), keep)


def test_bad_threads() -> None:
    with refused("threads", naming="0"):
        CORD(threads=0).fit(P, Q)


def test_inexact_sums_warn_once_and_are_normalised() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cord = CORD().fit(P, Q * (1 + 1e-5))
    assert len(caught) == 1
    assert "direct: some rows sum to one only within 1e-05" in str(caught[0].message)
    assert caught[0].filename == __file__
    assert cord.eta_ == pytest.approx(CORD().fit(P, Q).eta_, abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_rounded_softmax_does_not_warn(dtype: type) -> None:
    case = random_pair(50, 300)
    p, q = case.original.astype(dtype), case.direct.astype(dtype)
    CORD().fit(p, q).transform(p, q)


def test_negative_zero_is_zero() -> None:
    bad = Q.copy()
    bad[3, 1] = 0.0
    bad /= bad.sum(axis=1, keepdims=True)
    signed = np.where(bad == 0.0, -0.0, bad)
    expected = CORD().fit(P, bad)
    result = CORD().fit(P, signed)
    assert result.eta_ == expected.eta_
    np.testing.assert_array_equal(result.transform(P, signed), expected.transform(P, bad))


def test_columns_are_matched_by_name() -> None:
    names = [f"class {at}" for at in range(P.shape[1])]
    original, direct = pd.DataFrame(P, columns=names), pd.DataFrame(Q, columns=names)
    assert CORD().fit(original, direct).eta_ == CORD().fit(P, Q).eta_
    assert CORD().fit(original, pd.DataFrame(Q)).eta_ == CORD().fit(P, Q).eta_
    cord = CORD().fit(P, Q)
    assert CORD().fit(pd.DataFrame(P), pd.DataFrame(Q)[[3, 2, 1, 0]]).eta_ == cord.eta_
    assert CORD().fit(original, direct[names[::-1]]).eta_ == cord.eta_
    # The order of the output is that of the original report.
    np.testing.assert_array_equal(
        cord.transform(original, direct[names[::-1]]), cord.transform(P, Q)
    )
    with refused("direct", naming=["'else'", "'class 0'"]):
        CORD().fit(original, direct.rename(columns={"class 0": "else"}))


def test_masked_entries_are_refused() -> None:
    masked = np.ma.masked_less(Q, np.median(Q))
    with pytest.raises(InputError) as caught:
        CORD().fit(P, masked)
    assert (caught.value.argument, caught.value.reason) == ("direct", "has masked entries")
    np.testing.assert_array_equal(caught.value.rows, np.flatnonzero(masked.mask.any(axis=1)))
    assert CORD().fit(P, np.ma.array(Q)).eta_ == CORD().fit(P, Q).eta_


def test_integers_of_numpy_are_integers_and_truth_values_are_not() -> None:
    cord = CORD(np.int64(2), threads=np.int64(1)).fit(P, Q)
    np.testing.assert_array_equal(cord.eta_, CORD(2, threads=1).fit(P, Q).eta_)
    with refused("preserve", naming="True"):
        CORD(True).fit(P, Q)
    with refused("threads", naming="True"):
        CORD(threads=True).fit(P, Q)


def test_dtypes_of_any_library() -> None:
    torch = pytest.importorskip("torch", reason="tensors need torch")
    cord = CORD().fit(P, Q)
    expected = cord.transform(P, Q, dtype=np.float32)
    tensors = torch.tensor(P), torch.tensor(Q)
    np.testing.assert_array_equal(cord.transform(P, Q, dtype=torch.float32), expected)
    for dtype in ("float32", np.float32, torch.float32):
        assert cord.transform(*tensors, dtype=dtype).dtype == torch.float32
    with refused("dtype", naming=["bfloat16", "float64", "float32"]):
        cord.transform(P, Q, dtype="bfloat16")
    with refused("dtype", naming=["int32", "bfloat16"]):
        cord.transform(*tensors, dtype=torch.int32)


def test_one_row_is_explained_as_a_table_of_one() -> None:
    cord = CORD().fit(P, Q)
    alone = cord.explain(P[3], Q[3])
    assert alone.repaired_mass.tolist() == cord.explain(P, Q).repaired_mass[3:4].tolist()
