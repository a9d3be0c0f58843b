"""Repairs under a prediction rule: against the decimal twin, in every dtype."""

from __future__ import annotations

import warnings
from decimal import Decimal

import numpy as np
import pytest
from cases import CASES, Case, random_pair, with_zeros

import reference
from cordcal import PredictionRule
from cordcal.repair import CORD, Lift, dispatch
from cordcal.repair.construction import ConstructionState
from errors import refused
from products import product

STEEPNESS = (3.0, 1e4, 1e8)
ETAS = (0.0, 0.3, -4.0, 1e6, -1e3)


# Cases that every combination of parameters runs on; the others run on one of them.
WHOLE = ("K=2", "boundary rows", "prediction given", "random K=5", "subnormal tails")


@pytest.fixture(autouse=True)
def no_warnings() -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "not quite normalised" warns on purpose
        yield


def weights_for(classes: int, steepness: float) -> np.ndarray:
    """Class weights whose extremes have this ratio."""
    rng = np.random.default_rng([classes, int(steepness)])
    weights = steepness ** rng.uniform(0.0, 1.0, classes)
    weights[rng.permutation(classes)[:2]] = 1.0, steepness
    return PredictionRule(weights).weights


def predictions(case: Case) -> np.ndarray:
    return case.original.argmax(axis=1) if case.prediction is None else case.prediction


def fit(case: Case, weights: np.ndarray, **options: object) -> CORD:
    return CORD(rule=weights).fit(case.original, case.direct, prediction=case.prediction, **options)


def assert_strictly_first(rows: np.ndarray, keep: np.ndarray, weights: np.ndarray) -> None:
    """The prediction has the largest product, with weights in float64 and in the rows' dtype."""
    for products in (rows.astype(np.float64) * weights, rows * weights.astype(rows.dtype)):
        own = np.take_along_axis(products, keep[:, None], axis=1)
        assert ((products >= own).sum(axis=1) == 1).all()


def representable(weights: np.ndarray, dtype: type) -> bool:
    """Whether `test_steep_rules_do_not_fit_into_float16` does not caveat these weights."""
    return dtype is not np.float16 or (
        1.0 / (1.0 / weights).sum() > 6.2e-5 and weights.max() + 1.0 <= 2.0**14 * weights.min()
    )


@pytest.mark.parametrize(("name", "steepness"), product(sorted(CASES), STEEPNESS, whole=WHOLE))
def test_shared_scalar_and_rows(name: str, steepness: float) -> None:
    case = CASES[name]
    weights = weights_for(case.direct.shape[1], steepness)
    cord = fit(case, weights)
    expected = reference.construct(
        case.original, case.direct, prediction=case.prediction, rule=weights
    )
    assert abs(cord.eta_ - float(expected)) <= 1e-9 * max(1.0, abs(cord.eta_))
    for eta in (cord.eta_, *ETAS):
        cord.eta_ = eta
        repaired = cord.transform(case.original, case.direct, prediction=case.prediction)
        rows = reference.transform(
            case.original, case.direct, eta, prediction=case.prediction, rule=weights
        )
        assert_strictly_first(repaired, predictions(case), weights)
        if eta == 0.0:  # kept rows come back as they were passed, sums included
            repaired = repaired / repaired.sum(axis=1, keepdims=True)
        assert np.abs(repaired - np.array(rows, dtype=np.float64)).max() <= 2e-13


@pytest.mark.parametrize("steepness", [1.0, *STEEPNESS])
@pytest.mark.parametrize("name", sorted(CASES))
def test_the_engine_does_what_the_specification_says(name: str, steepness: float) -> None:
    case = CASES[name]
    weights = weights_for(case.direct.shape[1], steepness)
    keep, cord = predictions(case), fit(case, weights)
    plain = CORD().fit(case.original, case.direct, prediction=case.prediction)
    rows = case.original, case.direct
    state, _, _ = dispatch.describe_foreign(*rows, case.prediction, weights)
    explanation = cord.explain(*rows, prediction=case.prediction)
    np.testing.assert_array_equal(explanation.changed, state.changed)
    np.testing.assert_allclose(explanation.lower, state.lower, rtol=1e-15 * steepness + 1e-14)
    for eta in ETAS:
        cord.eta_ = plain.eta_ = eta
        for dtype in (np.float64, np.float32, np.float16):
            if not representable(weights, dtype):
                continue
            out = cord.transform(*rows, prediction=case.prediction, dtype=dtype)
            assert_strictly_first(out, keep, weights)
            specified = dispatch.repair_foreign(
                *rows, case.prediction, eta, np.dtype(dtype), weights
            )
            # A mass near its bound is 1 - lower, which weights magnify; rivals may fall a step.
            off = np.abs(out.astype(np.float64) - specified)
            assert off.max() <= 8 * np.finfo(dtype).eps + 1e-13
            if steepness == 1.0:  # equal weights are the paper's rule, bit for bit
                same = plain.transform(*rows, prediction=case.prediction, dtype=dtype)
                np.testing.assert_array_equal(out, same)


def test_one_rule_whatever_the_scale() -> None:
    case = random_pair(40, 4)
    plain = CORD().fit(case.original, case.direct)
    equal = CORD(rule=[7.0] * 4).fit(case.original, case.direct)
    assert equal.construction_ == plain.construction_
    assert equal.rule_ is not None
    assert equal.rule_.is_argmax
    rule = CORD(rule=[1.0, 2.0, 3.0, 4.0]).fit(case.original, case.direct)
    scaled = CORD(rule=PredictionRule([8.0, 16.0, 24.0, 32.0])).fit(case.original, case.direct)
    assert rule.construction_ == scaled.construction_


def test_streamed_and_merged_constructions() -> None:
    case = with_zeros(random_pair(90, 5, noise=2.0))
    weights = weights_for(5, 100.0)
    whole = fit(case, weights)
    halves = list(zip(np.split(case.original, 3), np.split(case.direct, 3), strict=True))
    assert CORD(rule=weights).construct(halves).eta_ == whole.eta_
    states = [ConstructionState(1, 1, class_weights=weights).add(p, q) for p, q in halves]
    assert CORD(rule=weights).merge_states(states).construction_ == whole.construction_
    with refused("states"):
        CORD().merge_states(states)
    states[1] = ConstructionState(1, 1).add(*halves[1])
    with refused("states"):
        CORD(rule=weights).merge_states(states)


def test_explanation_counts_changes_under_the_rule() -> None:
    case, weights = random_pair(200, 4), np.array([1.0, 2.0, 4.0, 8.0])
    cord = fit(case, weights)
    explanation = cord.explain(case.original, case.direct)
    moved = (case.direct * weights).argmax(axis=1) != predictions(case)
    np.testing.assert_array_equal(explanation.changed, moved)
    assert cord.construction_.n_changed == moved.sum()
    repaired = cord.transform(case.original, case.direct)
    inside = repaired[np.arange(200), predictions(case)]
    np.testing.assert_allclose(explanation.repaired_mass, inside, atol=1e-15)


@pytest.mark.parametrize(
    ("name", "prefer", "steepness"),
    product(sorted(CASES), ["confidence", "likelihood"], [1.0, *STEEPNESS], whole=WHOLE),
)
def test_lift(name: str, prefer: str, steepness: float) -> None:
    """Confidences far too small, so that every row meets its bound."""
    case = CASES[name]
    keep, classes = predictions(case), case.direct.shape[1]
    weights = weights_for(classes, steepness)
    labels = (keep + 1) % classes
    lift = Lift(prefer, rule=weights)
    lift.fit(case.original, case.direct, labels, prediction=keep)
    for dtype in (np.float64, np.float32, np.float16):
        if not representable(weights, dtype):
            continue
        rows = lift.transform(case.original, case.direct, prediction=keep, dtype=dtype)
        assert_strictly_first(rows, keep, weights)
        unit = np.finfo(dtype).eps
        spare = classes * float(np.finfo(dtype).smallest_subnormal)
        assert np.abs(rows.sum(axis=1, dtype=float) - 1.0).max() <= 8 * unit + spare + 1e-14
    if prefer == "confidence":
        explanation = lift.explain(case.original, case.direct, prediction=keep)
        own = lift.transform(case.original, case.direct, prediction=keep)[
            np.arange(len(keep)), keep
        ]
        np.testing.assert_allclose(own, explanation.repaired_mass, rtol=1e-12)


def test_projected_rows_have_the_smallest_mass_that_leads() -> None:
    """With direct shares 1/w, all classes meet at s = 1 / (w_a Σ 1/w)."""
    weights = np.array([0.5, 1.0, 2.0])
    shares = (1.0 / weights) / (1.0 / weights).sum()
    direct, keep = np.tile(shares, (3, 1)), np.arange(3)
    lift = Lift("likelihood", rule=weights).fit(direct, direct, (keep + 1) % 3, prediction=keep)
    lift.curve_ = lift.curve_._replace(gamma=-50.0)
    repaired = lift.transform(direct, direct, prediction=keep)
    np.testing.assert_allclose(repaired, direct, rtol=1e-12)
    assert_strictly_first(repaired, keep, weights)


@pytest.mark.parametrize("library", ["torch", "array_api_strict"])
@pytest.mark.parametrize("steepness", STEEPNESS)
def test_other_libraries(library: str, steepness: float) -> None:
    xp = pytest.importorskip(library)
    case = with_zeros(random_pair(60, 7, noise=2.0))
    keep, weights = predictions(case), weights_for(7, steepness)
    p, q = xp.asarray(case.original), xp.asarray(case.direct)
    cord = fit(case, weights)
    foreign = CORD(rule=weights).fit(p, q)
    assert abs(foreign.eta_ - cord.eta_) <= 1e-12 * max(1.0, abs(cord.eta_))
    assert foreign.construction_.n_changed == cord.construction_.n_changed
    expected = cord.transform(case.original, case.direct)
    np.testing.assert_allclose(np.asarray(foreign.transform(p, q)), expected, rtol=0, atol=1e-12)
    lift = Lift("likelihood", rule=weights).fit(case.original, case.direct, (keep + 1) % 7)
    np.testing.assert_allclose(
        np.asarray(lift.transform(p, q)), lift.transform(case.original, case.direct), atol=1e-12
    )
    for name in ["float32"] + ["float16", "bfloat16"] * (library == "torch"):
        if name == "float16" and not representable(weights, np.float16):
            continue
        for repair in (foreign, lift):
            rows = repair.transform(p, q, dtype=getattr(xp, name))
            narrow = rows * xp.asarray(weights, dtype=rows.dtype)
            wide = xp.asarray(rows, dtype=xp.float64) * xp.asarray(weights)
            for products in (narrow, wide):
                values = np.asarray(xp.asarray(products, dtype=xp.float64))
                own = np.take_along_axis(values, keep[:, None], axis=1)
                assert ((values >= own).sum(axis=1) == 1).all()


def test_the_interval_is_never_empty() -> None:
    """The steepest rule against a prediction of the smallest weight."""
    original, direct = np.array([[1.0, 0.0]]), np.array([[1e-12, 1.0 - 1e-12]])
    cord = CORD(rule=[1.0, 1e8]).fit(original, direct)
    lower = cord.explain(original, direct).lower[0]
    assert Decimal(lower) < 1 - reference.EPSILON
    assert_strictly_first(cord.transform(original, direct), np.array([0]), cord.rule_.weights)


@pytest.mark.parametrize(
    "rule",
    [[1.0, 0.0, 1.0], [1.0, -2.0, 1.0], [1.0, np.nan, 1.0], [1.0, np.inf, 1.0], [1.0, 2.0],
     [1.0, 1.0, 1.1e8], "likeliest", None],
)  # fmt: skip
@pytest.mark.parametrize("repair", [CORD, Lift])
def test_bad_rules(rule: object, repair: type) -> None:
    rows = random_pair(6, 3)
    labels = {"labels": [0, 1, 2, 0, 1, 2]} if repair is Lift else {}
    with refused():
        repair(rule=rule).fit(rows.original, rows.direct, **labels)


def test_a_rule_keeps_one_prediction() -> None:
    rows = random_pair(6, 3)
    for preserve in (2, "ranking"):
        with refused("preserve", option="rule"):
            CORD(preserve, rule=[1, 2, 3]).fit(rows.original, rows.direct)


def test_steep_rules_do_not_fit_into_float16() -> None:
    case = random_pair(10, 4)
    for weights in ([1.0, 1.0, 1.0, 1e5], [1.0, 1e8, 1e8, 1e8]):
        cord = CORD(rule=weights).fit(case.original, case.direct)
        with refused("dtype", naming="float32"):
            cord.transform(case.original, case.direct, dtype=np.float16)
        cord.transform(case.original, case.direct, dtype=np.float32)
    CORD(rule=[1, 2, 3, 1e4]).fit(case.original, case.direct).transform(
        case.original, case.direct, dtype=np.float16
    )


@pytest.mark.parametrize("chunk", [7, 40])
def test_rules_on_dask_collections(chunk: int) -> None:
    da = pytest.importorskip("dask.array")
    case, weights = with_zeros(random_pair(90, 5, noise=2.0)), weights_for(5, 1e6)
    p, q = (da.from_array(rows, chunks=(chunk, 5)) for rows in (case.original, case.direct))
    cord = fit(case, weights)
    lazy = CORD(rule=weights).fit(p, q)
    assert lazy.construction_ == cord.construction_
    np.testing.assert_array_equal(
        lazy.transform(p, q).compute(), cord.transform(case.original, case.direct)
    )
    labels = (predictions(case) + 1) % 5
    lift = Lift(rule=weights).fit(p, q, da.from_array(labels, chunks=chunk))
    assert (
        lift.construction_
        == Lift(rule=weights).fit(case.original, case.direct, labels).construction_
    )
