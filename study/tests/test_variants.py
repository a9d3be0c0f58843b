"""The paper's variants against the slow twin and against CORD."""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cases import random_pair, with_zeros
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import cordcal
import reference
from cordcal import InputError
from cordcal.repair import CORD
from cordcal_study.repairs import MinimalRepair, RankingProjection, VariantCORD
from errors import refused

CASE = with_zeros(random_pair(40, 6, noise=2.0))
P, Q = CASE.original, CASE.direct
KEEP = P.argmax(axis=1)


def rows(weight: str = "0.5") -> list[reference.Row]:
    return [reference.describe(p, q, weight=Decimal(weight)) for p, q in zip(P, Q, strict=True)]


def test_default_is_cord_to_the_bit() -> None:
    cord, variant = CORD().fit(P, Q), VariantCORD().fit(P, Q)
    assert variant.construction_ == cord.construction_
    np.testing.assert_array_equal(variant.transform(P, Q), cord.transform(P, Q))


@pytest.mark.parametrize("weight", ["0", "0.1", "0.3", "0.7", "1"])
def test_reference_weight(weight: str) -> None:
    variant = VariantCORD(reference_weight=float(weight)).fit(P, Q)
    with localcontext(prec=reference.DIGITS):
        described = rows(weight)
        assert variant.eta_ == pytest.approx(float(reference.shared_scalar(described)), abs=1e-9)
        expected = [reference.repair(row, Decimal(variant.eta_)) for row in described]
    result = variant.transform(P, Q)
    assert np.abs(result - np.array(expected, dtype=float)).max() <= 1e-13
    np.testing.assert_array_equal(result.argmax(axis=1), KEEP)


def mean_of(target: str) -> float:
    described = rows()
    if target == "reference":
        return float(sum(row.g for row in described)) / len(described)
    return float(sum(min(max(row.b, row.lower), row.upper) for row in described)) / len(described)


@pytest.mark.parametrize("target", ["reference", "projected"])
def test_mean_targets(target: str) -> None:
    variant = VariantCORD(target=target).fit(P, Q)
    masses = variant.transform(P, Q)[np.arange(40), KEEP]
    low, high = variant.construction_.attainable
    expected = min(max(mean_of(target), low), high)
    assert variant.construction_.target == pytest.approx(expected, abs=1e-14)
    assert masses.mean() == pytest.approx(expected, abs=1e-14)


def test_no_target_projects_each_row() -> None:
    variant = VariantCORD(target="none").fit(P, Q)
    assert variant.eta_ == 0.0
    expected = [min(max(row.g, row.lower), row.upper) for row in rows()]
    masses = variant.transform(P, Q)[np.arange(40), KEEP]
    np.testing.assert_allclose(masses, np.array(expected, dtype=float), rtol=0, atol=1e-14)


def test_minimal_repair() -> None:
    repaired = MinimalRepair().fit(P, Q).transform(P, Q)
    unchanged = Q.argmax(axis=1) == KEEP
    assert 0 < unchanged.sum() < 40
    np.testing.assert_array_equal(repaired[unchanged], Q[unchanged])
    np.testing.assert_array_equal(repaired.argmax(axis=1), KEEP)
    expected = np.array([row.lower for row in rows()], dtype=float)
    masses = repaired[np.arange(40), KEEP]
    np.testing.assert_allclose(masses[~unchanged], expected[~unchanged], rtol=0, atol=1e-14)
    narrow = MinimalRepair().transform(P, Q, dtype=np.float16)
    np.testing.assert_array_equal(narrow.argmax(axis=1), KEEP)


def test_ranking_projection_keeps_the_order_in_every_dtype() -> None:
    order = np.argsort(-P, axis=1, kind="stable")
    for dtype in (np.float64, np.float32):
        ranked = np.take_along_axis(
            RankingProjection().fit(P, Q).transform(P, Q, dtype=dtype), order, axis=1
        )
        assert (np.diff(ranked, axis=1) < 0).all()
        np.testing.assert_allclose(ranked.sum(axis=1), 1.0, rtol=0, atol=8 * np.finfo(dtype).eps)
    narrow = RankingProjection().transform(P, Q, dtype=np.float16)
    np.testing.assert_array_equal(narrow.argmax(axis=1), KEEP)


def test_ranking_projection_returns_rows_in_order_as_they_are() -> None:
    strict = P[(P > 0).all(axis=1)]  # exact zeros tie, and ties are separated
    assert 0 < len(strict) < len(P)
    np.testing.assert_array_equal(RankingProjection().transform(strict, strict), strict)


def test_ranking_projection_minimises_the_divergence() -> None:
    repaired = RankingProjection().transform(P, Q)
    order = np.argsort(-P, axis=1, kind="stable")
    rng = np.random.default_rng(0)

    def divergence(u: np.ndarray) -> np.ndarray:
        return -(Q * np.log(np.maximum(u, 1e-300))).sum(axis=1)

    best = divergence(repaired)
    for _ in range(200):  # other rows in the same order, near and far
        steps = np.sort(rng.dirichlet(np.ones(6), len(P)), axis=1)[:, ::-1]
        other = np.empty_like(steps)
        np.put_along_axis(other, order, steps, axis=1)
        mixed = repaired + rng.choice([1e-3, 0.1, 1.0]) * (other - repaired)
        assert (divergence(mixed) >= best - 1e-12).all()


def test_ranking_projection_with_a_prediction_puts_it_first() -> None:
    prediction = (KEEP + 1) % 6
    repaired = RankingProjection().transform(P, Q, prediction=prediction)
    np.testing.assert_array_equal(repaired.argmax(axis=1), prediction)


@pytest.mark.parametrize(
    ("options", "argument", "naming"),
    [
        ({"target": "mean"}, "target", "'mean'"),
        ({"reference_weight": 1.5}, "reference_weight", "1.5"),
    ],
)
def test_bad_options(options: dict, argument: str, naming: str) -> None:
    with refused(argument, naming=naming):
        VariantCORD(**options).fit(P, Q)


def test_minimal_repair_keeps_ties_of_narrow_dtypes() -> None:
    original = np.array([[0.5, 0.3, 0.2], [0.3, 0.4, 0.3]])
    tied = np.array([[0.4, 0.4, 0.2], [0.4, 0.4 + 1e-9, 0.2 - 1e-9]])
    for dtype in (np.float64, np.float32, np.float16):
        repaired = MinimalRepair().transform(original, tied, dtype=dtype)
        ahead = repaired[[0, 1], [0, 1]]
        assert (ahead > np.delete(repaired, [0, 4]).reshape(2, 2).max(axis=1)).all()


@pytest.mark.parametrize("variant", [VariantCORD(target="reference"), MinimalRepair()])
def test_other_libraries_come_back_as_numpy(variant: VariantCORD | MinimalRepair) -> None:
    torch = pytest.importorskip("torch", reason="tensors need torch")
    case = random_pair(20, 4, noise=2.0)
    expected = variant.fit(case.original, case.direct).transform(case.original, case.direct)
    tensors = torch.tensor(case.original), torch.tensor(case.direct)
    np.testing.assert_array_equal(variant.fit(*tensors).transform(*tensors), expected)


def test_a_variant_does_what_cord_refuses_and_no_more() -> None:
    case = random_pair(20, 4, noise=2.0)
    with pytest.raises(NotFittedError, match="this VariantCORD is not fitted yet"):
        VariantCORD().transform(case.original, case.direct)
    fitted = VariantCORD(target="none").fit(case.original, case.direct)
    with refused("direct", naming=["3 classes", "4"]):
        fitted.transform(case.original[:, :3], case.direct[:, :3])
    with pytest.raises(TypeError, match="a VariantCORD cannot be saved"):
        cordcal.save(fitted, "unwritten.safetensors")
    assert repr(fitted) == "VariantCORD(target='none', reference_weight=0.5)"


@pytest.mark.parametrize(
    "repair",
    [VariantCORD(target="none", reference_weight=0.25), MinimalRepair(), RankingProjection()],
)
def test_a_clone_has_the_parameters_and_no_fit(repair: Any) -> None:
    copy = clone(repair.fit(P, Q))
    assert copy is not repair
    assert copy.get_params() == repair.get_params()
    assert not hasattr(copy, "eta_")


def test_repairs_without_a_fit_take_weights() -> None:
    weight = np.arange(len(P), dtype=float)
    repaired = MinimalRepair().fit(P, Q, sample_weight=weight).transform(P, Q)
    np.testing.assert_array_equal(repaired, MinimalRepair().fit(P, Q).transform(P, Q))


def test_an_interrupted_fit_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    variant = VariantCORD().fit(P, Q)
    before = dict(vars(variant))
    monkeypatch.setattr("cordcal_study.repairs.construct", interrupt)
    with pytest.raises(KeyboardInterrupt):
        variant.fit(Q, P)
    with pytest.raises(InputError):
        variant.fit(P, 2.0 * Q)
    assert vars(variant) == before


@pytest.mark.parametrize("repair", [VariantCORD(), MinimalRepair(), RankingProjection()])
def test_rows_are_matched_by_their_index(repair: Any) -> None:
    names = [f"row {number}" for number in range(len(P))]
    original, direct = pd.DataFrame(P, index=names), pd.DataFrame(Q, index=names)
    shuffled = direct.sample(frac=1.0, random_state=0)
    expected = repair.fit(P, Q).transform(P, Q)
    np.testing.assert_array_equal(
        repair.fit(original, shuffled).transform(original, shuffled), expected
    )
    with pytest.raises(InputError, match="another row"):
        repair.transform(original, direct.rename({names[3]: "another row"}))


@pytest.mark.parametrize("repair", [MinimalRepair(), RankingProjection()])
def test_rows_that_sum_to_one_only_about_are_normalised(repair: Any) -> None:
    original = np.random.default_rng(0).dirichlet(np.ones(11), 60)
    original /= original.sum(axis=1, keepdims=True)
    with pytest.warns(UserWarning, match="they are normalised"):
        repaired = repair.fit(original, 0.9995 * original).transform(original, 0.9995 * original)
    np.testing.assert_allclose(repaired.sum(axis=1), 1.0, rtol=0, atol=1e-15)
    assert repair.transform(original, original).tobytes() == original.tobytes()
