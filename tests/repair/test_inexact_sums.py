"""Rows that sum to one only approximately are normalised, with a warning."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from cordcal.repair import CORD
from precision import sum_tolerance, sum_warning_level

ROWS, CLASSES = 60, 11


def kept_pair(dtype: Any, rows: int = ROWS, classes: int = CLASSES) -> np.ndarray:
    """Return an original whose direct report, itself, needs no change: η* is zero."""
    values = np.random.default_rng(0).dirichlet(np.ones(classes), rows)
    stored = values.astype(dtype)
    wide = stored.astype(np.float64)
    # A sum that is one to the last bit of float64, so that no deviation comes from rounding.
    return (wide / wide.sum(axis=1, keepdims=True)).astype(dtype)


def off_by(report: np.ndarray, factors: np.ndarray) -> np.ndarray:
    return (report.astype(np.float64) * factors[:, None]).astype(report.dtype)


def transformed(cord: Any, *arrays: np.ndarray, **options: Any) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        repaired = cord.transform(*arrays, **options)
    return repaired, [str(warning.message) for warning in caught]


@pytest.mark.parametrize("preserve", [1, 2])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_rows_are_normalised_if_a_warning_says_so(dtype: Any, preserve: int) -> None:
    original = kept_pair(dtype)
    inexact = np.arange(ROWS) % 3 == 0
    direct = off_by(original, np.where(inexact, 1.0008, 1.0))
    cord = CORD(preserve).fit(original, original)
    assert not np.any(cord.eta_)
    repaired, words = transformed(cord, original, direct)
    in_place = direct.copy()
    _, words_in_place = transformed(cord, original, in_place, out=in_place)
    assert words_in_place == words
    assert in_place.tobytes() == repaired.tobytes()
    assert repaired[~inexact].tobytes() == direct[~inexact].tobytes()
    off = np.abs(repaired[inexact].sum(axis=1, dtype=np.float64) - 1.0)
    if dtype is np.float16:  # half precision explains such sums: no word, and no change
        assert not words
        assert repaired.tobytes() == direct.tobytes()
    else:
        assert len(words) == 1
        assert words[0].startswith("direct: some rows sum to one only within 0.0008; they are ")
        assert off.max() <= 3 * np.finfo(dtype).eps


@pytest.mark.parametrize("preserve", [1, 2])
def test_torch_and_dask_normalise_the_same_rows(preserve: int) -> None:
    torch = pytest.importorskip("torch")
    dask = pytest.importorskip("dask.array")
    original = kept_pair(np.float64)
    direct = off_by(original, np.where(np.arange(ROWS) % 2 == 0, 0.9993, 1.0))
    cord = CORD(preserve).fit(original, original)
    expected, words = transformed(cord, original, direct)
    result, torch_words = transformed(cord, torch.from_numpy(original), torch.from_numpy(direct))
    np.testing.assert_allclose(result.numpy(), expected, rtol=0, atol=1e-12)
    assert torch_words == words
    lazy = [dask.from_array(report, chunks=(20, -1)) for report in (original, direct)]
    with pytest.warns(UserWarning, match="direct: some rows sum to one only within 0.0007"):
        computed = cord.transform(*lazy).compute()
    assert computed.tobytes() == expected.tobytes()


@pytest.mark.parametrize("classes", [2, 7, 64, 300])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_at_the_edges(dtype: Any, classes: int) -> None:
    """Sums within a few roundings of the level of a warning, and of the tolerance."""
    original = kept_pair(dtype, 40, classes)
    steps = np.random.default_rng(classes).integers(-12, 13, 40) * np.finfo(dtype).eps / 8
    sign = np.where(np.arange(40) % 2 == 0, 1.0, -1.0)
    for preserve in {1, min(2, classes - 1)}:
        cord = CORD(preserve).fit(original, original)
        for level in (sum_warning_level(dtype, classes), sum_tolerance(dtype)):
            direct = off_by(original, 1.0 + sign * (level + steps))
            ends = [outcome(cord, *pair) for pair in zip(original, direct, strict=True)]
            assert len(set(ends)) == 2, "one side of the edge only"


def outcome(cord: CORD, original: np.ndarray, direct: np.ndarray) -> str:
    """Repair a row, which is normalised if there is a warning; say how that ended."""
    try:
        repaired, words = transformed(cord, original, direct)
    except ValueError:
        return "refused"
    if words:
        assert abs(repaired.sum(dtype=np.float64) - 1.0) <= 3 * np.finfo(repaired.dtype).eps
    return "warned" if words else "silent"
