"""Lift against its slow twin, at its edges, and in every layout, dtype and library."""

from __future__ import annotations

from dataclasses import replace

import lift_reference
import numpy as np
import pytest
from cases import CASES

import cordcal
from cordcal.repair import CORD, Lift, LiftConstruction, lift_confidences, lift_rule
from cordcal.repair.lift import Masses
from cordcal.repair.rule import rounding_margin
from errors import refused

pytestmark = pytest.mark.filterwarnings("ignore:.*sum to one only within")


def labels_of(report: np.ndarray, seed: int = 0) -> np.ndarray:
    """Labels drawn from a report."""
    rng = np.random.default_rng(seed)
    return (
        (report.cumsum(axis=1) < rng.random((len(report), 1)))
        .sum(axis=1)
        .clip(max=report.shape[1] - 1)
    )


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    case = CASES["random K=10"]
    return case.original, case.direct, labels_of(case.original)


@pytest.mark.parametrize("labels", ["drawn", "against"])
@pytest.mark.parametrize("prefer", ["confidence", "likelihood"])
@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].prediction is None])
def test_transform_is_the_twins(name: str, prefer: str, labels: str) -> None:
    """With labels against the predictions all rows are at the bound."""
    case = CASES[name]
    truth = labels_of(case.original)
    if labels == "against":
        truth = (case.original.argmax(axis=1) + 1) % case.original.shape[1]
    model = Lift(prefer).fit(case.original, case.direct, truth)
    result = model.transform(case.original, case.direct)
    some = np.linspace(0, len(result) - 1, min(len(result), 6)).astype(int)  # the twin is slow
    for p, q, row in zip(case.original[some], case.direct[some], result[some], strict=True):
        expected = np.array(lift_reference.transform(p, q, model.curve_, prefer), dtype=float)
        np.testing.assert_allclose(row, expected, rtol=1e-11, atol=3e-16)


@pytest.mark.parametrize("prefer", ["confidence", "likelihood"])
@pytest.mark.parametrize("weights", [[1.0, 2.0, 3.0, 4.0, 5.0], [1e3, 1.0, 1.0, 1e-3, 1.0]])
def test_transform_under_a_rule_is_the_twins(weights: list[float], prefer: str) -> None:
    rng = np.random.default_rng(0)
    original, direct = rng.dirichlet(np.ones(5), 60), rng.dirichlet(np.ones(5), 60)
    model = Lift(prefer, rule=weights).fit(original, direct, rng.integers(5, size=60))
    w = model.rule_.weights
    factor, slack = rounding_margin(float(w.max()), np.float64)
    result = model.transform(original, direct)
    for p, q, row in zip(original, direct, result, strict=True):
        expected = lift_reference.transform(
            p, q, model.curve_, prefer, rule=w, margin=(factor - 1.0, slack)
        )
        np.testing.assert_allclose(row, np.array(expected, dtype=float), rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("weights", ["none", "counts", "huge"])
@pytest.mark.parametrize("name", list(CASES))
def test_the_twins_slope_vanishes_at_the_fit(name: str, weights: str) -> None:
    case = CASES[name]
    labels = labels_of(case.original, 1)
    weight = None if weights == "none" else np.arange(len(labels)) % 3 * 2.0 + 1.0
    if weights == "huge" and weight is not None:
        weight *= 1e200
    model = Lift().fit(
        case.original, case.direct, labels, prediction=case.prediction, sample_weight=weight
    )
    explanation = model.explain(case.original, case.direct, prediction=case.prediction)
    right = labels == explanation.prediction
    expected = [
        (*lift_reference.masses(p, q, int(a)), bool(y))
        for p, q, a, y in zip(
            case.original, case.direct, explanation.prediction, right, strict=True
        )
    ]
    ridge = model.construction_.ridge
    # Larger weights count as 2^40 rows, which the ridge does not reach either.
    weight = weight / weight.max() * 2.0**40 if weights == "huge" else weight
    total = len(labels) if weight is None else weight.sum()
    identity, credibility = np.array([1.0, 1.0, 0.0]), model.construction_.credibility
    errors = np.sum(~right if weight is None else weight[~right])
    assert credibility == pytest.approx(errors / (errors + 2.0), rel=1e-12)
    if not errors:
        assert model.curve_[:3] == tuple(identity)
        return
    # The curve lies between the identity and the optimum, at which the slope vanishes.
    optimum = identity + (np.array(model.curve_[:3]) - identity) / credibility
    optimum[:2] = np.where(np.abs(optimum[:2]) < 1e-12, 0.0, optimum[:2])
    slope = np.array(lift_reference.gradient(optimum, expected, weight, ridge), dtype=float)
    assert min(optimum[:2]) >= 0.0
    at_zero = np.array([optimum[0] == 0.0, optimum[1] == 0.0, False])
    assert (np.abs(slope[~at_zero]) <= 1e-9 * total).all()
    assert (slope[at_zero] >= 0.0).all()
    # The bound divides by the ridge, which is tiny in units of huge weights.
    assert 0.0 <= model.construction_.gap <= (1e-14 if weights == "huge" else 1e-16)


def test_the_evidence_for_a_ridge_is_an_integral() -> None:
    rng = np.random.default_rng(0)
    mass = rng.uniform(0.3, 0.95, 400)
    problem = lift_rule._Problem.of(mass, 1.0 - mass, rng.random(400) < mass**2, None)

    def integrated(ridge: float) -> float:
        rows = replace(problem, ridge=ridge)
        best = rows.solve()
        scatter = np.linalg.cholesky(np.linalg.inv(rows.evaluate(best)[2]))
        # A product of Gauss rules around the optimum, in coordinates where it is round.
        nodes, weights = np.polynomial.hermite_e.hermegauss(9)
        at = np.stack(np.meshgrid(nodes, nodes, nodes), axis=-1).reshape(-1, 3)
        w = np.prod(np.meshgrid(weights, weights, weights), axis=0).ravel()
        values = np.array([rows.evaluate(best + scatter @ x)[0] for x in at])
        total = w @ np.exp(rows.evaluate(best)[0] - values + 0.5 * (at * at).sum(axis=1))
        inside = total * np.linalg.det(scatter) / (2.0 * np.pi) ** 1.5
        return float(np.log(inside * ridge**1.5) - rows.evaluate(best)[0])

    for ridge in lift_rule.RIDGES:
        rows = replace(problem, ridge=ridge)
        assert rows.evidence(rows.solve()) == pytest.approx(integrated(ridge), abs=0.05)


@pytest.mark.parametrize(("power", "ridge"), [(1.0, lift_rule.RIDGES[-1]), (3.0, 5.0)])
def test_masses_that_are_right_are_pulled_on_more_than_wrong_ones(power, ridge) -> None:
    rng = np.random.default_rng(1)
    mass = rng.uniform(0.3, 0.99, 2000)
    curve = lift_rule.fit_curve(mass, 1.0 - mass, rng.random(2000) < mass**power, None)
    assert curve.ridge == ridge


@pytest.mark.parametrize("outcome", ["every prediction right", "every one wrong"])
def test_a_fit_exists_when_outcomes_do_not_vary(rows, outcome: str) -> None:
    original, direct, _ = rows
    prediction = original.argmax(axis=1)
    labels = prediction if outcome == "every prediction right" else (prediction + 1) % 10
    record = Lift().fit(original, direct, labels).construction_
    assert record.n_right in (0, len(labels))
    assert np.isfinite(record.curve).all()
    if outcome == "every prediction right":
        assert record.curve[:3] == lift_rule.IDENTITY[:3]  # nothing is known about errors
    else:
        assert record.loss_after < record.loss_before


def test_a_fit_exists_where_b_is_constant_or_zero() -> None:
    original = np.tile([0.5, 0.3, 0.2], (20, 1))
    even = np.full((20, 3), 1 / 3)
    assert np.isfinite(Lift().fit(original, even, np.arange(20) % 3).curve_).all()
    impossible = np.tile([0.0, 1.0, 0.0], (20, 1))
    model = Lift().fit(original, impossible, np.zeros(20, int))
    assert np.isfinite(model.curve_).all()
    assert (model.transform(original, impossible).argmax(axis=1) == 0).all()


def test_held_out_masses_replace_those_of_the_reports(rows) -> None:
    original, direct, labels = rows
    fitted = Lift().fit(original, direct, labels)
    mass = fitted.explain(original, direct).direct_mass
    same = Lift().fit_checked(
        original, direct, labels, None, None, held_out=Masses(mass, 1.0 - mass)
    )
    np.testing.assert_allclose(same.curve_, fitted.curve_, rtol=1e-9)
    assert same.construction_.cross_fitted
    assert not fitted.construction_.cross_fitted


def test_order_blocks_and_weights_do_not_show(rows, block_entries) -> None:
    original, direct, labels = rows
    whole = Lift().fit(original, direct, labels)
    report = whole.transform(original, direct)
    shuffle = np.random.default_rng(0).permutation(len(labels))
    again = Lift().fit(original[shuffle], direct[shuffle], labels[shuffle])
    assert again.curve_ == whole.curve_
    block_entries(30)
    assert Lift().fit(original, direct, labels).curve_ == whole.curve_
    np.testing.assert_array_equal(whole.transform(original, direct), report)
    rowwise = [whole.transform(p, q) for p, q in zip(original, direct, strict=True)]
    np.testing.assert_array_equal(np.stack(rowwise), report)
    doubled = Lift().fit(original, direct, labels, sample_weight=np.full(len(labels), 2.0))
    twice = Lift().fit(*(np.concatenate([x, x]) for x in (original, direct, labels)))
    np.testing.assert_allclose(doubled.curve_, twice.curve_, rtol=1e-12)
    none = np.where(np.arange(len(labels)) < 30, 1.0, 0.0)
    part = Lift().fit(original[:30], direct[:30], labels[:30])
    assert Lift().fit(original, direct, labels, sample_weight=none).curve_ == part.curve_


def test_dense_reports_are_rows(rows) -> None:
    original, direct, labels = rows
    p, q = (np.moveaxis(x.reshape(6, 2, 5, 10), -1, 1) for x in (original, direct))
    flat = Lift().fit(original, direct, labels)
    model = Lift().fit(p, q, labels.reshape(6, 2, 5), axis=1)
    assert model.curve_ == flat.curve_
    expected = np.moveaxis(flat.transform(original, direct).reshape(6, 2, 5, 10), -1, 1)
    np.testing.assert_array_equal(model.transform(p, q, axis=1), expected)


@pytest.mark.parametrize("prefer", ["confidence", "likelihood"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_torch_rows_are_numpys_within_rounding(rows, prefer: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    original, direct, labels = rows
    model = Lift(prefer).fit(original, direct, labels)
    p, q = torch.tensor(original), torch.tensor(direct)
    result = model.transform(p, q, dtype=getattr(torch, dtype))
    assert result.dtype == getattr(torch, dtype)
    rest = result.to(torch.float64).numpy().copy()
    keep = original.argmax(axis=1)
    mass = rest[np.arange(len(keep)), keep].copy()
    rest[np.arange(len(keep)), keep] = 0.0
    assert (mass > rest.max(axis=1)).all()
    unit = {"float64": 2.0**-50, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
    expected = model.transform(original, direct)
    np.testing.assert_allclose(result.to(torch.float64).numpy(), expected, atol=unit[dtype])
    assert Lift(prefer).fit(p, q, labels).curve_ == pytest.approx(model.curve_, rel=1e-9)


def test_out_may_be_the_input(rows) -> None:
    original, direct, labels = rows
    model = Lift().fit(original, direct, labels)
    expected = model.transform(original, direct)
    room = direct.copy()
    assert model.transform(original, room, out=room) is room
    np.testing.assert_array_equal(room, expected)


def test_a_model_file_keeps_the_numbers(rows, tmp_path) -> None:
    original, direct, labels = rows
    model = Lift("likelihood").fit(original, direct, labels)
    cordcal.save(model, tmp_path / "lift.safetensors")
    again = cordcal.load(tmp_path / "lift.safetensors")
    assert (again.prefer, again.curve_, again.construction_) == (
        "likelihood",
        model.curve_,
        model.construction_,
    )
    assert LiftConstruction.from_dict(model.construction_.to_dict()) == model.construction_


def test_explain_tells_the_transform(rows) -> None:
    original, direct, labels = rows
    model = Lift("likelihood").fit(original, direct, labels)
    explanation = model.explain(original, direct)
    record = model.construction_
    assert (explanation.at_bound < 0).sum() == record.n_at_lower > 0
    repaired = model.transform(original, direct)
    mass = repaired[np.arange(len(labels)), explanation.prediction]
    np.testing.assert_allclose(mass, explanation.repaired_mass, rtol=1e-15)
    assert (explanation.repaired_mass >= explanation.reference)[explanation.at_bound < 0].all()
    equal = CORD().fit(original, direct).explain(original, direct).lower
    np.testing.assert_allclose(explanation.lower, equal + 1.01e-4 * (1.0 - equal), rtol=1e-12)


def test_bad_arguments_are_named(rows) -> None:
    original, direct, labels = rows
    with refused("prefer", naming=["half", "confidence", "likelihood"]):
        Lift("half").fit(original, direct, labels)
    with refused("labels", rows=[]):
        Lift().fit(original, direct, None)
    with refused("labels", naming=["row 0", "10", "0..9"]):
        Lift().fit(original, direct, labels * 0 + 10)
    with refused("sample_weight", naming="zero"):
        Lift().fit(original, direct, labels, sample_weight=labels * 0.0)
    with pytest.raises(ValueError, match="preserve is not a parameter of Lift"):
        Lift().set_params(preserve=2)
    with pytest.raises(ValueError, match="not fitted"):
        Lift().transform(original, direct)


# The scalar that becomes a vector.


def test_lift_keeps_a_confidence_that_is_large_enough() -> None:
    report = lift_confidences([0.8, 0.0], [1, 0], [[3.0, 9.0, 1.0], [0.0, 0.0, 0.0]], "likelihood")
    np.testing.assert_allclose(report[0], [0.15, 0.8, 0.05], rtol=1e-15)
    np.testing.assert_allclose(report[1], [1 / 3] * 3, rtol=3e-4)
    assert (report[1, 0] > report[1, 1:]).all()


@pytest.fixture(scope="module")
def low() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Confidences that are too low for their predictions, and how the rest is shared."""
    rng = np.random.default_rng(0)
    rest = rng.dirichlet(np.full(6, 0.4), 500)
    prediction = rng.integers(6, size=500)
    rest[np.arange(500), prediction] = 0.0
    rest /= rest.sum(axis=1, keepdims=True)
    largest = rest.max(axis=1) / (1.0 + rest.max(axis=1))
    return rng.uniform(0.18, largest), prediction, rest


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_confidence_is_kept_and_so_is_the_order(low, dtype: str) -> None:
    confidence, prediction, rest = low
    report = lift_confidences(confidence, prediction, rest, "confidence", dtype=dtype)
    unit = float(np.finfo(dtype).eps)
    at = np.arange(len(rest))
    np.testing.assert_allclose(report[at, prediction], confidence, rtol=2 * unit)
    order = np.argsort(rest, axis=1)[:, 1:]
    steps = np.diff(np.take_along_axis(report, order, axis=1).astype(float), axis=1)
    assert (steps > 0.0).all() if dtype == "float64" else (steps >= 0.0).all()
    # Of the largest rival the report knows still: the second place is not a tie.
    assert (steps[:, -1] > 0.0).mean() > 0.9


def test_likelihood_is_the_best_that_the_lifted_vector_expects(low) -> None:
    """The conditions of Karush, Kuhn and Tucker, and no vector with this argmax that is better."""
    confidence, prediction, rest = low
    at = np.arange(len(rest))
    lifted = (1.0 - confidence)[:, None] * rest
    lifted[at, prediction] = confidence
    report = lift_confidences(confidence, prediction, rest, "likelihood")
    # Without the margin, which moves it by 1e-4, the pooled entries are their mean.
    own = report[at, prediction][:, None]
    pooled = own - report <= 1.02e-4
    mean = (lifted * pooled).sum(axis=1) / pooled.sum(axis=1)
    exact = np.where(pooled, mean[:, None], lifted)
    np.testing.assert_allclose(report, exact, atol=1.02e-4)
    # The margin may pool another rival that is next to the level; leave such rows out.
    clear = (np.abs(lifted - mean[:, None]) > 3e-4).all(axis=1)
    assert clear.mean() > 0.9
    at = np.arange(clear.sum())
    lifted, exact, pooled, prediction, rest = (
        x[clear] for x in (lifted, exact, pooled, prediction, rest)
    )
    rivals = pooled.copy()
    rivals[at, prediction] = False
    multipliers = lifted / exact - 1.0
    assert (multipliers[rivals] >= -1e-12).all()
    np.testing.assert_allclose(multipliers[~pooled], 0.0, atol=1e-12)
    np.testing.assert_allclose(
        (multipliers * rivals).sum(axis=1), -multipliers[at, prediction], atol=1e-12
    )

    def expected(vectors: np.ndarray) -> np.ndarray:
        return -(lifted * np.log(np.maximum(vectors, 1e-300))).sum(axis=1)

    def distance(vectors: np.ndarray) -> np.ndarray:
        return ((vectors - lifted) ** 2).sum(axis=1)

    largest = rest.max(axis=1) / (1.0 + rest.max(axis=1))
    raised = (1.0 - largest)[:, None] * rest  # the bound with the ratios kept
    raised[at, prediction] = largest
    rng = np.random.default_rng(1)
    for other in (raised, *(rng.dirichlet(np.ones(6), len(rest)) for _ in range(20))):
        on_top = other.copy()
        on_top[at, prediction] = other.max(axis=1)
        on_top /= on_top.sum(axis=1, keepdims=True)
        for mixed in (on_top, 0.99 * exact + 0.01 * on_top):
            assert (expected(exact) <= expected(mixed) + 1e-12).all()
            assert (distance(exact) <= distance(mixed) + 1e-12).all()


@pytest.mark.parametrize("prefer", ["confidence", "likelihood"])
def test_rounding_to_four_decimals_moves_no_prediction(prefer: str) -> None:
    rng, classes = np.random.default_rng(2), 10
    many = rng.dirichlet(np.full(classes, 0.5), 20_000)
    keep = rng.integers(classes, size=20_000)
    report = lift_confidences(
        rng.uniform(1.2 / classes, 1.0, 20_000), keep, many, prefer, dtype="float32"
    )
    assert (report.round(4).argmax(axis=1) == keep).all()
    assert (report.astype(float).round(4).argmax(axis=1) == keep).all()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("classes", [2, 3, 10, 1000, 30_000])
def test_too_little_confidence_is_raised_just_enough(dtype: str, classes: int) -> None:
    rest = np.random.default_rng(1).random((3, classes))
    with pytest.warns(UserWarning, match="in 3 of 3 rows, too little"):
        report = lift_confidences([0.0, 0.5 / classes, 1 / classes], [0, 1, 1], rest, dtype=dtype)
    top = report[[0, 1, 2], [0, 1, 1]]
    assert ((report >= top[:, None]).sum(axis=1) == 1).all()
    unit, smallest = float(np.finfo(dtype).eps), float(np.finfo(dtype).smallest_subnormal)
    # The margin and the steps of one percent.
    least = (1.0 + 5 * unit) * (1.01 / classes + 1.01e-4) + 4 * smallest
    assert (top.astype(float) <= least).all()
    off = np.abs(report.sum(axis=1, dtype=float) - 1.0)
    assert (off <= 2 * unit + classes * smallest + 1e-14).all()


def test_nearly_empty_shares_still_sum_to_one() -> None:
    report = lift_confidences([0.34], [0], [[0.0, 1.0, 1e-320]])
    np.testing.assert_allclose(report, [[0.34, 0.34 - 1.01e-4, 0.32 + 1.01e-4]], rtol=1e-13)


def test_low_rows_share_their_mean() -> None:
    """The prediction is right as often as its confidence says, also below 1/K."""
    rng = np.random.default_rng(0)
    classes, rows = 5, 4000
    direct = rng.dirichlet(np.full(classes, 0.5), rows)
    prediction = np.where(rng.random(rows) < 0.7, direct.argmax(axis=1), 0)
    labels = labels_of(direct)
    model = Lift().fit(np.eye(classes)[prediction], direct, labels)
    curve, record = model.curve_, model.construction_
    assert record.n_pooled > 500
    report = model.transform(np.eye(classes)[prediction], direct)
    mass = report[np.arange(rows), prediction]
    s, _ = lift_rule.confidence(curve, *(x for x in _masses_of(direct, prediction)))
    least = float(lift_rule.Margin(classes).least(prediction, xp=np))
    pooled = s <= curve.pooled_below
    assert pooled.sum() == record.n_pooled
    np.testing.assert_allclose(mass[pooled], s[pooled].mean(), rtol=1e-12)
    assert s[pooled].mean() >= 1.1 * least
    np.testing.assert_allclose(mass[~pooled], np.minimum(s[~pooled], 1 - 1e-12), rtol=1e-9)
    right = labels == prediction
    assert abs(right[pooled].mean() - mass[pooled][0]) < 3 * 0.4 / np.sqrt(pooled.sum())
    original = np.eye(classes)[prediction]
    doubled = Lift().fit(original, direct, labels, sample_weight=np.full(rows, 2.0))
    twice = Lift().fit(*(np.concatenate([x, x]) for x in (original, direct, labels)))
    np.testing.assert_allclose(doubled.curve_, twice.curve_, rtol=1e-9)


def _masses_of(direct: np.ndarray, prediction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mass = direct[np.arange(len(direct)), prediction]
    return mass, 1.0 - mass


def test_one_row_alone() -> None:
    assert lift_confidences(0.7, 1, [0.2, 0.2, 0.6]).shape == (3,)


@pytest.mark.parametrize(
    ("confidence", "prediction", "rest", "argument", "rows", "naming"),
    [
        ([0.5], [0, 1], np.ones((2, 3)), "confidence", [], ["(1,)", "2 rows"]),
        ([0.5, 1.5], [0, 1], np.ones((2, 3)), "confidence", [1], "1.5"),
        ([0.5, np.nan], [0, 1], np.ones((2, 3)), "confidence", [1], "nan"),
        ([0.5], [3], np.ones((1, 3)), "prediction", [0], ["3", "0..2"]),
        ([0.5], [0], -np.ones((1, 3)), "rest", [0], "negative"),
    ],
)
def test_bad_confidences(confidence, prediction, rest, argument, rows, naming) -> None:
    with refused(argument, rows=rows, naming=naming):
        lift_confidences(confidence, prediction, rest)


def test_confidence_carries_complements() -> None:
    identity = lift_rule.IDENTITY
    mass, rest = lift_rule.confidence(identity, np.array([1.0, 1e-300]), np.array([1e-300, 1.0]))
    np.testing.assert_allclose(mass, [1.0, 1e-300], rtol=1e-12)
    np.testing.assert_allclose(rest, [1e-300, 1.0], rtol=1e-12)
