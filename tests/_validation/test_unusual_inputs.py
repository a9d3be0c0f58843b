"""Unusual but valid inputs work; others have an error of their own."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.naive_bayes import GaussianNB

from cordcal import CORD, InputError, PreservingCalibrator, calibrators
from errors import refused

RNG = np.random.default_rng(7)
P, Q = RNG.dirichlet(np.ones(4), (2, 60))
LABELS = RNG.integers(4, size=60)
LOGITS = 2.0 * np.eye(4)[LABELS] + RNG.normal(size=(60, 4))


def test_predictions_that_are_a_column_of_a_table() -> None:
    prediction = P.argmin(axis=1)
    table = np.stack([prediction, prediction], axis=1)
    cord = CORD().fit(P, Q, prediction=table[:, 0])
    expected = CORD().fit(P, Q, prediction=prediction).transform(P, Q, prediction=prediction)
    np.testing.assert_array_equal(cord.transform(P, Q, prediction=table[:, 1]), expected)


@pytest.mark.parametrize("preserve", [1, 2])
def test_bfloat16_rows_are_taken_at_their_own_tolerance(preserve: int) -> None:
    torch = pytest.importorskip("torch", reason="bfloat16 needs torch")
    rng = np.random.default_rng(0)
    p, q = (torch.tensor(rng.dirichlet(np.ones(3), 400)).to(torch.bfloat16) for _ in range(2))
    assert abs(p.double().sum(dim=1) - 1.0).max() > 1.5e-3  # beyond float64's tolerance
    CORD(preserve).fit(p, q).transform(p, q)


def test_predictions_are_read_in_their_own_dtype() -> None:
    fine = np.array([[0.5, 0.5], [0.25, 0.75]], dtype=np.longdouble)
    fine[0] += np.array([-1, 1], dtype=np.longdouble) * np.longdouble(2) ** -60
    if fine[0, 0] == fine[0, 1]:
        pytest.skip("longdouble is double here")
    direct = np.array([[0.9, 0.1], [0.2, 0.8]])
    assert CORD().fit(fine, direct).transform(fine, direct).argmax(axis=1).tolist() == [1, 1]
    large = np.array([[2**53, 2**53 + 1], [3, 1], [1, 2], [5, 4]])
    model = PreservingCalibrator("ts").fit(LOGITS[:, :2], LABELS % 2)
    assert model.predict(large).tolist() == [1, 0, 1, 0]
    assert model.predict_proba(large).argmax(axis=1).tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("key", ["ts", "vs", "irova", "ets"])
def test_weights_whose_sum_overflows(key: str) -> None:
    weight = np.where(np.arange(60) % 2, 1.0, 0.5)
    expected = calibrators.make(key).fit(LOGITS, LABELS, sample_weight=weight)
    fitted = calibrators.make(key).fit(LOGITS, LABELS, sample_weight=weight * 1.7e308)
    np.testing.assert_allclose(
        fitted.predict_proba(LOGITS), expected.predict_proba(LOGITS), rtol=1e-9
    )


def test_duplicate_names() -> None:
    with refused("class_names", naming="'a'"):
        PreservingCalibrator("ts", class_names=["a", "b", "a", "c"]).fit(LOGITS, LABELS)


def test_truth_values() -> None:
    with refused("scores", rows=[], naming=".astype(float)"):
        calibrators.make("ts").fit(LOGITS > 0.0, LABELS)


def test_arrow_tables_and_nullable_frames() -> None:
    pa = pytest.importorskip("pyarrow", reason="Arrow tables need pyarrow")
    names = ["a", "b", "c", "d"]
    expected = PreservingCalibrator("ts").fit(LOGITS, LABELS).predict_proba(LOGITS)
    frame = pd.DataFrame(LOGITS, columns=names)
    for scores in (pa.Table.from_pandas(frame), frame.astype("Float64")):
        model = PreservingCalibrator("ts").fit(scores, pd.Series(LABELS, dtype="Int64"))
        assert model.columns_ == names
        np.testing.assert_array_equal(model.predict_proba(scores), expected)
    holed = frame.astype("Float64")
    holed.iloc[3, 1] = pd.NA
    with refused("scores", rows=[3], naming="NaN"):
        PreservingCalibrator("ts").fit(holed, LABELS)


def test_three_decimals() -> None:
    rows = np.array([[0.334, 0.334, 0.333], [0.333, 0.333, 0.333]])
    for dtype in (np.float64, np.float32):
        with pytest.warns(UserWarning, match="some rows sum to one only within"):
            CORD().fit(rows.astype(dtype), rows.astype(dtype))


@pytest.mark.filterwarnings("ignore:.*some rows sum")
def test_a_row_alone_and_others_around_it_are_held_to_the_same_sum() -> None:
    cord, outcomes = CORD().fit(P, Q), []
    for ulps in range(-8, 9):
        row = np.array([[0.25, 0.25, 0.25, 0.25 + 1e-3 + 2.0**-20 + ulps * 2.0**-54]])
        accepted = []
        for direct in (row, np.asfortranarray(np.concatenate([Q[:9], row, Q[9:20]]))):
            try:
                cord.transform(P[: len(direct)], direct)
                accepted.append(True)
            except InputError:
                accepted.append(False)
        assert accepted[0] == accepted[1]
        outcomes += accepted
    assert {True, False} == set(outcomes)


def test_in_place_repairs_warn_too() -> None:
    cord, direct = CORD().fit(P, Q), Q * (1.0 + 1e-5)
    with pytest.warns(UserWarning, match="direct: some rows sum to one only within"):
        cord.transform(P, direct, out=direct)


@pytest.mark.parametrize("stored", ["naive Bayes", "float32 as float64"])
def test_rounding_alone_does_not_warn(stored: str) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 10
    if stored == "naive Bayes":
        rows = rng.normal(size=(300, 64)) * 5.0 + labels[:, None]
        proba = GaussianNB().fit(rows, labels).predict_proba(rows)
    else:
        near = [rng.dirichlet(1.0 + 5.0 * np.eye(10)[label]) for label in labels]
        proba = np.array(near).astype(np.float32).astype(np.float64)
    assert 0.0 < np.abs(proba.sum(axis=1) - 1.0).max() < 1e-6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CORD().fit(proba, proba)
        calibrators.make("ts", input="probabilities").fit(proba, labels)
