"""CORD against the slow decimal twin, on random, degenerate and real pairs."""

from __future__ import annotations

import warnings
from decimal import Decimal

import numpy as np
import pytest
from cases import CASES, Case, random_pair, with_zeros

import reference
from cordcal.repair import CORD, dispatch


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def fit(case: Case, **options: object) -> CORD:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "not quite normalised" warns on purpose
        return CORD().fit(case.original, case.direct, prediction=case.prediction, **options)


def transform(cord: CORD, case: Case, **options: object) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return cord.transform(case.original, case.direct, prediction=case.prediction, **options)


def predictions(case: Case) -> np.ndarray:
    return case.original.argmax(axis=1) if case.prediction is None else case.prediction


def assert_same_scalar(result: float, expected: Decimal) -> None:
    assert abs(result - float(expected)) <= 1e-9 * max(1.0, abs(result))


def test_shared_scalar(case: Case) -> None:
    expected = reference.construct(case.original, case.direct, prediction=case.prediction)
    assert_same_scalar(fit(case).eta_, expected)


def test_repaired_rows(case: Case) -> None:
    cord = fit(case)
    for eta in (cord.eta_, 0.0, 0.3, -0.7, 1.0, -1.0, 2.5, -4.0, 1e6, -1e3):
        cord.eta_ = eta
        repaired = transform(cord, case)
        expected = reference.transform(case.original, case.direct, eta, prediction=case.prediction)
        if eta == 0.0:  # kept rows come back as they were given, sums included
            repaired = repaired / repaired.sum(axis=1, keepdims=True)
        assert np.abs(repaired - np.array(expected, dtype=np.float64)).max() <= 1e-13
        np.testing.assert_array_equal(repaired.argmax(axis=1), predictions(case))


def test_mean_is_retained(case: Case) -> None:
    cord = fit(case)
    record = cord.construction_
    mean = cord_explain(cord, case).repaired_mass.mean()
    assert abs(mean - record.target) <= reference.mean_step(cord.eta_) + 1e-15
    assert record.attainable[0] <= record.target + 1e-15
    assert record.target <= record.attainable[1] + 1e-15


def cord_explain(cord: CORD, case: Case):  # type: ignore[no-untyped-def]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return cord.explain(case.original, case.direct, prediction=case.prediction)


@pytest.mark.filterwarnings("ignore:.*sum to one only within")
def test_the_engine_does_what_the_specification_says(case: Case) -> None:
    cord = fit(case)
    for eta in (cord.eta_, 0.0, 0.4, -3.0, 7.0):
        cord.eta_ = eta
        for dtype in (np.float64, np.float32, np.float16):
            rows = transform(cord, case, dtype=dtype)
            specified = dispatch.repair_foreign(
                case.original, case.direct, case.prediction, eta, np.dtype(dtype)
            )
            unit, smallest = np.finfo(dtype).eps, float(np.finfo(dtype).smallest_subnormal)
            # Sums in another order may round to a neighbour in the dtype.
            off = np.abs(rows.astype(np.float64) - specified)
            assert (off <= (unit + 2.0**-48) * specified + smallest).all()


@pytest.mark.parametrize("seed", range(6))
def test_random_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pair = random_pair(
        int(rng.integers(1, 40)), int(rng.integers(2, 30)), noise=rng.uniform(0, 4), seed=seed
    )
    case = with_zeros(pair, 0.2) if seed % 2 else pair
    weights = rng.exponential(size=len(case.direct))
    expected = reference.construct(case.original, case.direct, weights=weights)
    assert_same_scalar(fit(case, sample_weight=weights).eta_, expected)


def test_integer_weights_equal_repeated_rows() -> None:
    case = with_zeros(random_pair(50, 7, noise=2.0))
    counts = np.random.default_rng(1).integers(0, 5, 50)
    weighted = fit(case, sample_weight=counts)
    repeated = CORD().fit(
        np.repeat(case.original, counts, axis=0), np.repeat(case.direct, counts, axis=0)
    )
    assert weighted.eta_ == repeated.eta_
    assert weighted.construction_.direct_mean == repeated.construction_.direct_mean
    assert weighted.construction_.attained == repeated.construction_.attained


def test_real_rows(real_set) -> None:  # type: ignore[no-untyped-def]
    """Sixty rows of each real set, an isotonic-like direct report with zeros and ties."""
    rows = np.random.default_rng(0).choice(len(real_set.labels), 60, replace=False)
    original = real_set.probabilities()[rows]
    rounded = np.round(original**0.7, 2)
    total = rounded.sum(axis=1, keepdims=True)
    direct = np.where(total > 0, rounded / np.where(total > 0, total, 1.0), original)
    case = Case(original, direct)
    if original.shape[1] > 200:
        case = Case(original[:12], direct[:12])
    cord = fit(case)
    assert_same_scalar(cord.eta_, reference.construct(case.original, case.direct))
    expected = reference.transform(case.original, case.direct, cord.eta_)
    assert np.abs(transform(cord, case) - np.array(expected, dtype=np.float64)).max() <= 1e-13
