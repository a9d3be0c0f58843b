"""Whole rankings: the nested rule against its slow twin, and its promises."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import ranking_reference
from cases import CASES, Case, random_pair, with_zeros

import cordcal
from cordcal.repair import CORD

NAMES = sorted(set(CASES) - {"not quite normalised"})


def order_of(case: Case) -> np.ndarray:
    keys = case.original.copy()
    if case.prediction is not None:
        keys[np.arange(len(keys)), case.prediction] = 2.0
    return np.argsort(-keys, axis=1, kind="stable")


def some_levels(classes: int) -> list[int]:
    return sorted({k for k in (2, 3, 5, classes - 1) if 1 < k < classes and k <= 20})


@pytest.mark.parametrize("name", [name for name in NAMES if CASES[name].direct.shape[1] > 2])
def test_against_the_twin(name: str) -> None:
    case = CASES[name]
    for k in some_levels(case.direct.shape[1]):
        cord = CORD(k).fit(case.original, case.direct, prediction=case.prediction)
        assert cord.eta_.shape == (k,)
        twin = ranking_reference.construct(case.original, case.direct, k, case.prediction)
        for scalar, expected in zip(cord.eta_, twin, strict=True):
            assert abs(scalar - float(expected)) <= 1e-9 * max(1.0, abs(scalar))
        repaired = cord.transform(case.original, case.direct, prediction=case.prediction)
        expected = ranking_reference.transform(
            case.original, case.direct, cord.eta_, case.prediction
        )
        assert np.abs(repaired - np.array(expected, dtype=np.float64)).max() <= 1e-12


@pytest.mark.parametrize(
    ("name", "dtype"), list(product(NAMES, [np.float64, np.float32, np.float16]))
)
def test_order_is_kept(name: str, dtype: type) -> None:
    case = CASES[name]
    classes = case.direct.shape[1]
    for k in [*some_levels(classes), "ranking"]:
        cord = CORD(k).fit(case.original, case.direct, prediction=case.prediction)
        repaired = cord.transform(
            case.original, case.direct, prediction=case.prediction, dtype=dtype
        )
        levels = classes - 1 if k == "ranking" else k
        ranked = np.take_along_axis(repaired, order_of(case), axis=1)
        head = np.column_stack([ranked[:, :levels], ranked[:, levels:].max(axis=1)])
        if dtype is np.float16:
            assert (head[:, :-1] >= head[:, 1:]).all()
            assert (head[:, 0] > head[:, 1]).all()
        else:
            assert (head[:, :-1] > head[:, 1:]).all()
        if dtype is np.float16:
            continue  # a thousand halves do not fit below one: the order is the promise here
        # A chain of ties lifts rank l by at most as many steps as ranks lie below it.
        steps = np.arange(levels, 0, -1) * np.spacing(ranked[:, :levels]).astype(np.float64)
        bound = np.finfo(dtype).eps / 2 + steps.sum(axis=1) + levels * 2.0**-52
        bound += classes * float(np.finfo(dtype).smallest_normal)
        sums = np.array([math.fsum(row) for row in repaired.astype(np.float64)])
        assert (np.abs(sums - 1.0) <= bound).all()


def test_one_level_is_cord_to_the_bit() -> None:
    case = with_zeros(random_pair(60, 7, noise=2.0))
    one, plain = CORD(1).fit(case.original, case.direct), CORD().fit(case.original, case.direct)
    assert one.eta_ == plain.eta_
    np.testing.assert_array_equal(
        one.transform(case.original, case.direct), plain.transform(case.original, case.direct)
    )
    two = random_pair(40, 2)
    whole = CORD("ranking").fit(two.original, two.direct)
    assert whole.eta_ == CORD().fit(two.original, two.direct).eta_


def test_innermost_level_sees_the_direct_tail() -> None:
    case = random_pair(80, 9, noise=2.0)
    repaired = CORD(3).fit(case.original, case.direct).transform(case.original, case.direct)
    tail = order_of(case)[:, 3:]
    for report in (repaired, case.direct):
        picked = np.take_along_axis(report, tail, axis=1)
        share = picked / picked.sum(axis=1, keepdims=True)
        if report is repaired:
            mine = share
    np.testing.assert_allclose(mine, share, rtol=1e-12)


def test_means_of_the_conditionals_are_retained() -> None:
    case = random_pair(400, 8, noise=1.5)
    cord = CORD(4).fit(case.original, case.direct)
    repaired = cord.transform(case.original, case.direct)
    order = order_of(case)
    q = np.take_along_axis(case.direct, order, axis=1)
    p = np.take_along_axis(repaired, order, axis=1)
    left_q = q[:, ::-1].cumsum(axis=1)[:, ::-1]
    left_p = p[:, ::-1].cumsum(axis=1)[:, ::-1]
    for level, record in enumerate(cord.construction_.levels):
        weight = left_q[:, level]
        mean = np.average(p[:, level] / left_p[:, level], weights=weight)
        assert mean == pytest.approx(record.target, abs=1e-12)
        assert record.effective_n == pytest.approx(weight.sum() ** 2 / (weight**2).sum())
    # Rank 1 retains its mean mass.
    assert p[:, 0].mean() == pytest.approx(q[:, 0].mean(), abs=1e-12)


def test_ordered_reports_come_back_bit_for_bit() -> None:
    case = random_pair(50, 6)
    cord = CORD("ranking").fit(case.original, case.original)
    assert not cord.eta_.any()
    np.testing.assert_array_equal(cord.transform(case.original, case.original), case.original)


def test_integer_weights_equal_repeated_rows() -> None:
    case = with_zeros(random_pair(50, 6, noise=2.0))
    counts = np.random.default_rng(1).integers(1, 4, 50)
    weighted = CORD(3).fit(case.original, case.direct, sample_weight=counts)
    repeated = CORD(3).fit(
        np.repeat(case.original, counts, axis=0), np.repeat(case.direct, counts, axis=0)
    )
    np.testing.assert_allclose(weighted.eta_, repeated.eta_, rtol=0, atol=1e-13)


def test_order_of_rows_does_not_matter() -> None:
    case = with_zeros(random_pair(300, 6, noise=2.0))
    shuffled = np.random.default_rng(0).permutation(300)
    first = CORD("ranking").fit(case.original, case.direct)
    second = CORD("ranking").fit(case.original[shuffled], case.direct[shuffled])
    np.testing.assert_array_equal(first.eta_, second.eta_)


@pytest.mark.parametrize("classes", [7, 70])
def test_a_row_alone_has_the_bits_it_has_among_others(classes: int) -> None:
    case = with_zeros(random_pair(60, classes, noise=2.0))
    for k in (3, "ranking"):
        cord = CORD(k).fit(case.original, case.direct)
        rows = cord.transform(case.original, case.direct)
        columns = [np.asfortranarray(part) for part in (case.original, case.direct)]
        np.testing.assert_array_equal(CORD(k).fit(*columns).eta_, cord.eta_)
        np.testing.assert_array_equal(cord.transform(*columns), rows)
        alone = [cord.transform(*pair) for pair in zip(case.original, case.direct, strict=True)]
        np.testing.assert_array_equal(np.stack(alone), rows)


def tied_rows(kind: str) -> np.ndarray:
    """Make 60 reports of 70 classes with many equal or all but equal entries."""
    rng = np.random.default_rng(7)
    counts = rng.integers(0, 4, (60, 70)) + (rng.random((60, 70)) < 0.02) * 9.0
    if kind == "zeros of both signs":
        return np.where(counts, counts, rng.choice([0.0, -0.0], (60, 70))) / counts.sum(
            axis=1, keepdims=True
        )
    tied = (counts + 1.0) / (counts + 1.0).sum(axis=1, keepdims=True)
    if kind == "last bits":
        tied *= 1.0 + rng.integers(-3, 4, (60, 70)) * 2.0**-52
    return tied


@pytest.mark.parametrize("prediction_given", [False, True])
@pytest.mark.parametrize("k", [40, "ranking"])
@pytest.mark.parametrize("kind", ["equal", "last bits", "zeros of both signs"])
def test_long_rankings_with_ties(kind: str, k: object, prediction_given: bool) -> None:
    """Ranks that come from a sort: runs of equal entries, across the last rank too."""
    rng = np.random.default_rng(7)
    original = tied_rows(kind)
    direct = rng.dirichlet(np.full(70, 0.3), 60)
    prediction = rng.integers(0, 70, 60) if prediction_given else None
    cord = CORD(k).fit(original, direct, prediction=prediction)
    rows = cord.transform(original, direct, prediction=prediction)
    case = Case(original, direct, prediction)
    ranked = np.take_along_axis(rows, order_of(case), axis=1)[:, : len(cord.eta_)]
    assert (ranked[:, :-1] > ranked[:, 1:]).all()


@pytest.mark.parametrize("library", ["array_api_strict", "torch"])
def test_other_libraries(library: str) -> None:
    xp = pytest.importorskip(library)
    case = with_zeros(random_pair(40, 6, noise=2.0))
    p, q = xp.asarray(case.original), xp.asarray(case.direct)
    cord = CORD(3).fit(p, q)
    expected = CORD(3).fit(case.original, case.direct)
    np.testing.assert_allclose(cord.eta_, expected.eta_, rtol=1e-12, atol=1e-12)
    repaired = cord.transform(p, q)
    assert type(repaired) is type(q)
    expected_rows = expected.transform(case.original, case.direct)
    np.testing.assert_allclose(np.asarray(repaired), expected_rows, rtol=0, atol=1e-12)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("k", [2, 4])
def test_explanation_multiplies_out_to_the_repair(k: int, library: str) -> None:
    xp = pytest.importorskip(library)
    case = random_pair(seed=3, rows=60, classes=6)
    original, direct = case.original, case.direct
    p, q = xp.asarray(original), xp.asarray(direct)
    cord = CORD(k).fit(p, q)
    explanation = cord.explain(p, q)
    np.testing.assert_array_equal(
        explanation.prediction, np.argsort(-original, kind="stable")[:, :k]
    )
    before = np.cumprod(1.0 - explanation.repaired_mass, axis=1)
    reached = explanation.repaired_mass * np.column_stack([np.ones(60), before[:, :-1]])
    repaired = np.take_along_axis(np.asarray(cord.transform(p, q)), explanation.prediction, axis=1)
    np.testing.assert_allclose(repaired, reached, rtol=1e-12, atol=1e-15)
    share = np.take_along_axis(direct, explanation.prediction, axis=1)
    left = 1.0 - np.column_stack([np.zeros(60), np.cumsum(share, axis=1)[:, :-1]])
    np.testing.assert_allclose(explanation.direct_mass, share / left, rtol=1e-9, atol=1e-12)
    for level, record in enumerate(cord.construction_.levels):
        assert explanation.changed[:, level].sum() == record.n_changed
        assert (explanation.at_bound[:, level] < 0).sum() == record.n_at_lower
    assert list(explanation.to_dict())[:k] == [f"prediction_{rank + 1}" for rank in range(k)]
    assert f"{record.n:,} rows" in repr(explanation)


def test_save_and_load(tmp_path: Path) -> None:
    case = random_pair(40, 6, noise=2.0)
    for preserve in (3, "ranking"):
        cord = CORD(preserve).fit(case.original, case.direct)
        cordcal.save(cord, tmp_path / "m")
        loaded = cordcal.load(tmp_path / "m")
        np.testing.assert_array_equal(loaded.eta_, cord.eta_)
        assert loaded.construction_ == cord.construction_
        assert loaded.preserve == preserve
        np.testing.assert_array_equal(
            loaded.transform(case.original, case.direct),
            cord.transform(case.original, case.direct),
        )


@pytest.mark.parametrize("preserve", [0, -1, 1.5, "all", 6, None])
def test_bad_preserve(preserve: object) -> None:
    case = random_pair(5, 6)
    with pytest.raises(ValueError, match="preserve is"):
        CORD(preserve).fit(case.original, case.direct)  # type: ignore[arg-type]
