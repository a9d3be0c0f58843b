"""Proposition 1, statement by statement, and the identity case, over dtype × K × layout."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cordcal import PredictionRule
from cordcal.repair import CORD
from reference import mean_step

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11}


@st.composite
def pairs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Original and direct reports with zeros, ties, saturation and any layout."""
    rows, classes = draw(st.integers(1, 12)), draw(st.integers(2, 20))
    dtype = draw(st.sampled_from(["float64", "float32", "float16"]))
    seed = draw(st.integers(0, 2**32 - 1))
    sharpness = draw(st.sampled_from([0.0, 0.3, 1.0, 5.0, 40.0]))
    levels = draw(st.sampled_from([0, 4, 100]))  # a few levels make ties and exact zeros
    order = draw(st.sampled_from(["C", "F", "strided"]))
    rng = np.random.default_rng(seed)

    def report() -> np.ndarray:
        scores = sharpness * rng.normal(size=(rows, classes))
        values = np.exp(scores - scores.max(axis=1, keepdims=True))
        if levels:
            values = np.round(values * levels) / levels
        values = (values / values.sum(axis=1, keepdims=True)).astype(dtype)
        if order == "strided":
            wide = np.zeros((2 * rows, 2 * classes), dtype)
            wide[::2, ::2] = values
            return wide[::2, ::2]
        return np.asarray(values, order=order)

    return report(), report()


def split(report: np.ndarray, keep: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows = np.arange(len(keep))
    tail = report.astype(np.float64)
    mass = tail[rows, keep].copy()
    tail[rows, keep] = 0.0
    return mass, tail


@settings(max_examples=150, deadline=None)
@given(pairs())
def test_statements(pair: tuple[np.ndarray, np.ndarray]) -> None:
    original, direct = pair
    assume((np.abs(direct.sum(axis=1, dtype=float) - 1) < 1e-3).all())
    assume((np.abs(original.sum(axis=1, dtype=float) - 1) < 1e-3).all())
    cord = CORD().fit(original, direct)
    repaired = cord.transform(original, direct)
    keep = original.argmax(axis=1)
    mass, tail = split(repaired, keep)
    unit = UNIT[direct.dtype.name]

    # 1: a distribution.
    assert (repaired >= 0).all()
    spare = repaired.shape[1] * float(np.finfo(direct.dtype).smallest_subnormal)
    same = (repaired == direct).all(axis=1)  # bit for bit, sums included
    off = np.abs(repaired.sum(axis=1, dtype=float) - 1.0)
    assert (off[~same] <= 3 * unit + spare + 1e-15).all()
    # 2: the prediction, strictly.
    assert (mass > tail.max(axis=1)).all()
    # 3: the conditional distribution of the (stabilised) direct report.
    q_mass, q_tail = split(direct, keep)
    total = (q_mass + q_tail.sum(axis=1))[:, None]
    boundary = (direct == 0).any(axis=1)[:, None]
    inner = np.where(boundary, (1 - 1e-10) * q_tail / total + 1e-10 / direct.shape[1], q_tail)
    inner[np.arange(len(keep)), keep] = 0.0
    expected = inner / inner.sum(axis=1, keepdims=True)
    scale = tail.sum(axis=1, keepdims=True)
    assert (np.abs(tail - expected * scale) <= 4 * unit * expected * scale + spare + 1e-14).all()
    # 4: the mean, on the calibration rows, before rounding to the dtype.
    record = cord.construction_
    off = abs(cord.explain(original, direct).repaired_mass.mean() - record.target)
    assert off <= mean_step(cord.eta_) + 1e-15


@settings(max_examples=100, deadline=None)
@given(pairs())
def test_identity_iff_every_mass_is_in_its_interval(pair: tuple[np.ndarray, np.ndarray]) -> None:
    original, direct = pair
    assume((direct > 0).all())
    assume((np.abs(direct.sum(axis=1, dtype=float) - 1) < 1e-3).all())
    assume((np.abs(original.sum(axis=1, dtype=float) - 1) < 1e-3).all())
    cord = CORD().fit(original, direct)
    explanation = cord.explain(original, direct)
    q_mass, q_tail = split(direct, explanation.prediction)
    rest = q_tail.sum(axis=1) / (q_mass + q_tail.sum(axis=1))
    inside = (explanation.direct_mass >= explanation.lower) & (rest >= 1e-12)
    if inside.all():
        assert cord.eta_ == 0.0
        np.testing.assert_array_equal(cord.transform(original, direct), direct)
    else:
        assert not (explanation.repaired_mass == explanation.direct_mass).all()


@settings(max_examples=150, deadline=None)
@given(pairs(), st.sampled_from([2.0, 50.0, 1e4]), st.integers(0, 2**32 - 1))
def test_statements_under_a_rule(
    pair: tuple[np.ndarray, np.ndarray], steepness: float, seed: int
) -> None:
    """With class weights, statement 2 is about the argmax of weight times probability."""
    original, direct = pair
    assume((np.abs(direct.sum(axis=1, dtype=float) - 1) < 1e-3).all())
    assume((np.abs(original.sum(axis=1, dtype=float) - 1) < 1e-3).all())
    classes = direct.shape[1]
    rng = np.random.default_rng(seed)
    weights = PredictionRule(steepness ** rng.uniform(-0.5, 0.5, classes)).weights
    keep = rng.integers(classes, size=len(direct))
    cord = CORD(rule=weights).fit(original, direct, prediction=keep)
    repaired = cord.transform(original, direct, prediction=keep)
    unit = UNIT[direct.dtype.name]

    assert (repaired >= 0).all()
    spare = classes * float(np.finfo(direct.dtype).smallest_subnormal)
    same = (repaired == direct).all(axis=1)  # bit for bit, sums included
    off = np.abs(repaired.sum(axis=1, dtype=float) - 1.0)
    assert (off[~same] <= 10 * unit + spare + 1e-15).all()
    for products in (repaired.astype(float) * weights, repaired * weights.astype(direct.dtype)):
        mass, tail = split(products, keep)
        assert (mass > tail.max(axis=1)).all()
    record = cord.construction_
    explanation = cord.explain(original, direct, prediction=keep)
    assert abs(explanation.repaired_mass.mean() - record.target) <= mean_step(cord.eta_) + 1e-15
