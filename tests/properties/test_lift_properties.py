"""The guarantees of Lift, stated like Proposition 1, over dtype × K × layout."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cordcal.repair import Lift, lift_confidences
from cordcal.repair.lift_rule import Curve
from properties.test_proposition import UNIT, pairs, split

preferences = st.sampled_from(["confidence", "likelihood"])
curves = st.builds(
    lambda alpha, beta, gamma: Curve(alpha, beta, gamma),
    st.floats(0.0, 5.0),
    st.floats(0.0, 5.0),
    st.floats(-8.0, 8.0),
)


def fitted(prefer: str, curve: Curve, original: np.ndarray, direct: np.ndarray) -> Lift:
    """A Lift with these numbers, whatever labels would say."""
    model = Lift(prefer).fit(original, direct, np.zeros(len(direct), int))
    model.curve_ = curve
    return model


def normal(report: np.ndarray) -> bool:
    return bool((np.abs(report.sum(axis=1, dtype=float) - 1) < 1e-3).all())


@settings(max_examples=120, deadline=None)
@given(pairs(), curves, preferences)
def test_statements(pair: tuple[np.ndarray, np.ndarray], curve: Curve, prefer: str) -> None:
    original, direct = pair
    if not (normal(original) and normal(direct)):
        return
    model = fitted(prefer, curve, original, direct)
    repaired = model.transform(original, direct)
    keep = original.argmax(axis=1)
    mass, tail = split(repaired, keep)
    unit = UNIT[direct.dtype.name]
    spare = repaired.shape[1] * float(np.finfo(direct.dtype).smallest_subnormal)

    # 1: a distribution.
    assert (repaired >= 0).all()
    assert (np.abs(repaired.sum(axis=1, dtype=float) - 1.0) <= 3 * unit + spare + 1e-15).all()
    # 2: the prediction, strictly.
    assert (mass > tail.max(axis=1)).all()
    explanation = model.explain(original, direct)
    # Rounding, and the step that unties.
    close = 4 * unit * np.maximum(explanation.repaired_mass, mass) + spare + 1e-14
    inside = explanation.at_bound >= 0
    # 3: the confidence of the curve, or what keeps the prediction.
    assert (np.abs(mass - explanation.repaired_mass) <= close).all()
    if prefer == "likelihood":
        # 4: the conditional distribution of the (stabilised) direct report, inside.
        q_mass, q_tail = split(direct, keep)
        total = (q_mass + q_tail.sum(axis=1))[:, None]
        boundary = (direct == 0).any(axis=1)[:, None]
        inner = np.where(boundary, (1 - 1e-10) * q_tail / total + 1e-10 / direct.shape[1], q_tail)
        inner[np.arange(len(keep)), keep] = 0.0
        expected = inner / inner.sum(axis=1, keepdims=True) * tail.sum(axis=1, keepdims=True)
        assert (np.abs(tail - expected) <= 4 * unit * expected + spare + 1e-14)[inside].all()
    else:
        # 4: the curve's confidence wherever K shares below it hold the rest, and no class that
        # the direct report ranks higher falls behind another.
        roomy = explanation.reference > 1.02 / direct.shape[1] + 2e-4
        stored = roomy & (explanation.reference < 1 - 1e-12)
        assert (np.abs(mass - explanation.reference) <= close)[stored].all()
        order = np.argsort(np.where(tail > 0, direct.astype(float), -1.0), axis=1, kind="stable")
        assert (np.diff(np.take_along_axis(tail, order, axis=1), axis=1) >= 0).all()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 12),
    curves,
    st.sampled_from(["confidence", "likelihood"]),
)
def test_more_direct_mass_is_never_less_confidence(
    seed: int, classes: int, curve: Curve, prefer: str
) -> None:
    rng = np.random.default_rng(seed)
    others = rng.dirichlet(np.ones(classes - 1))
    mass = np.sort(rng.beta(0.3, 0.3, 60).clip(1e-12, 1 - 1e-12))
    direct = np.column_stack([mass, (1.0 - mass)[:, None] * others])
    original = np.tile(np.eye(classes)[0], (60, 1))
    repaired = fitted(prefer, curve, original, direct).transform(original, direct)[:, 0]
    # A unit in the last place is all that rounding takes back.
    assert (np.diff(repaired) >= -4e-16).all()


@settings(max_examples=60, deadline=None)
@given(pairs(), st.integers(0, 2**32 - 1), preferences)
def test_a_lifted_scalar_is_on_top(
    pair: tuple[np.ndarray, np.ndarray], seed: int, prefer: str
) -> None:
    _, rest = pair
    rng = np.random.default_rng(seed)
    rows, classes = rest.shape
    # Everything, except for the cap's own minimum, of which it warns.
    confidence = rng.uniform(0.0 if prefer == "likelihood" else 1.02 / classes + 2e-4, 1.0, rows)
    prediction = rng.integers(classes, size=rows)
    report = lift_confidences(confidence, prediction, rest, prefer)
    mass, tail = split(report, prediction)
    assert report.dtype == rest.dtype
    assert (mass > tail.max(axis=1)).all()
    unit = UNIT[rest.dtype.name]
    spare = classes * float(np.finfo(rest.dtype).smallest_subnormal)
    assert (np.abs(report.sum(axis=1, dtype=float) - 1.0) <= 3 * unit + spare + 1e-15).all()
    if prefer == "confidence":
        # Half precision may raise it by a unit, to be on top.
        np.testing.assert_allclose(mass, np.minimum(confidence, 1 - 1e-12), rtol=4 * unit)
