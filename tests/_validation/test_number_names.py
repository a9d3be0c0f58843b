"""Class names that are numbers: a label, a name and a prediction mean one thing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import cordcal
from cordcal import InputError, PreservingCalibrator, audit, compare
from cordcal._validation.labels import as_indices
from cordcal.evaluate.gates import Gate, check

RNG = np.random.default_rng(3)
PLACES = RNG.integers(3, size=300)
LOGITS = 2.0 * np.eye(3)[PLACES] + RNG.normal(size=(300, 3))
P = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
PREDICTION = LOGITS.argmax(axis=1)

NAMES: dict[str, list[Any]] = {
    "from 1": [1, 2, 3],
    "in another order": [2, 0, 1],
    "large": [10**6, 10**6 + 1, 10**6 + 2],
    "negative": [-1, 0, 1],
    "of NumPy": [np.int64(4), np.int64(5), np.int64(9)],
    "whole floats": [1.0, 2.0, 3.0],
}


@pytest.fixture(params=NAMES)
def names(request: pytest.FixtureRequest) -> list[Any]:
    return NAMES[request.param]


def test_labels_are_names_in_fit_and_predict(names: list[Any]) -> None:
    expected = PreservingCalibrator("ts").fit(LOGITS, PLACES)
    model = PreservingCalibrator("ts", class_names=names).fit(LOGITS, np.array(names)[PLACES])
    assert model.calibrator_.temperature_ == expected.calibrator_.temperature_
    np.testing.assert_array_equal(model.predict(LOGITS), np.array(names)[PREDICTION])


def test_labels_are_names_in_compare_audit_and_check(names: list[Any]) -> None:
    labels = np.array(names)[PLACES].tolist()
    kinds: dict[str, Any] = {"input": "probabilities", "class_names": names}
    compared = compare(P, labels, ["ts"], **kinds)
    assert compared.uncalibrated == compare(P, PLACES, ["ts"], input="probabilities").uncalibrated
    rows = compare(P, labels, ["ts"], **kinds, evaluation=(P, labels))
    assert rows.uncalibrated["accuracy"] == np.mean(PREDICTION == PLACES)
    audited = audit(P, P, labels, class_names=names)
    assert audited.measures == audit(P, P, PLACES).measures
    gates = [Gate("accuracy", 0.0, "min")]
    assert check(P, labels, gates=gates, class_names=names) == check(P, PLACES, gates=gates)


def test_a_label_that_is_not_a_name_is_refused() -> None:
    labels = PLACES + 1
    labels[7] = 0  # a column, but not a name
    for function in (
        PreservingCalibrator("ts", class_names=[1, 2, 3]).fit,
        lambda *rows: compare(*rows, ["ts"], class_names=[1, 2, 3]),
        PreservingCalibrator("ts").fit,
    ):
        scores = pd.DataFrame(LOGITS, columns=[1, 2, 3])
        with pytest.raises(InputError, match="the label 0") as caught:
            function(scores, labels)
        assert (caught.value.argument, caught.value.rows.tolist()) == ("labels", [7])


@pytest.mark.parametrize("wrong", [1.5, np.nan])
def test_a_label_between_names_is_refused(wrong: float) -> None:
    labels = PLACES + 1.0
    labels[[5, 8]] = wrong
    with pytest.raises(InputError) as caught:
        PreservingCalibrator("ts", class_names=[1, 2, 3]).fit(LOGITS, labels)
    assert caught.value.rows.tolist() == [5, 8]


def test_headings_of_a_frame_that_are_numbers_are_names(tmp_path: Path) -> None:
    headings = [10**6, 10**6 + 1, 7]
    frame, labels = pd.DataFrame(LOGITS, columns=headings), np.array(headings)[PLACES]
    expected = PreservingCalibrator("ts").fit(LOGITS, PLACES)
    model = PreservingCalibrator("ts").fit(frame, labels)
    assert model.calibrator_.temperature_ == expected.calibrator_.temperature_
    cordcal.save(model, tmp_path / "model.safetensors")
    for loaded in (model, cordcal.load(tmp_path / "model.safetensors")):
        np.testing.assert_array_equal(loaded.predict(frame), np.array(headings)[PREDICTION])
        np.testing.assert_array_equal(loaded.predict(LOGITS), np.array(headings)[PREDICTION])
    model.fit(LOGITS, PLACES)  # the next fit has its own headings: none
    np.testing.assert_array_equal(model.predict(LOGITS), PREDICTION)
    report = pd.DataFrame(P, columns=headings)
    compared = compare(report, labels, ["ts"], input="probabilities")
    assert compared.class_names == ("1000000", "1000001", "7")
    assert compared.uncalibrated == compare(P, PLACES, ["ts"], input="probabilities").uncalibrated
    assert audit(report, P, labels).measures == audit(P, P, PLACES).measures
    gates = [Gate("accuracy", 0.0, "min")]
    assert check(report, labels, gates=gates) == check(P, PLACES, gates=gates)


def test_a_frame_without_names_of_its_own_has_column_indices() -> None:
    model = PreservingCalibrator("ts").fit(pd.DataFrame(LOGITS), PLACES)
    np.testing.assert_array_equal(model.predict(LOGITS), PREDICTION)
    named = PreservingCalibrator("ts", class_names=[0, 1, 2]).fit(LOGITS, PLACES)
    np.testing.assert_array_equal(named.predict(LOGITS), PREDICTION)


def test_truth_values_as_names_in_either_order() -> None:
    for names in ([False, True], [True, False]):
        model = PreservingCalibrator("ts", class_names=names)
        model.fit(LOGITS[:, :2], np.array(names)[LOGITS[::-1, :2].argmax(axis=1)])
        expected = PreservingCalibrator("ts").fit(LOGITS[:, :2], LOGITS[::-1, :2].argmax(axis=1))
        assert model.calibrator_.temperature_ == expected.calibrator_.temperature_


def test_text_of_digits_is_a_name_and_a_number_next_to_it_a_column() -> None:
    names = ["3", "1", "2"]
    text = np.array(names)[PLACES]
    expected = PreservingCalibrator("ts").fit(LOGITS, PLACES).calibrator_.temperature_
    for labels in (text, text.tolist(), pd.Series(text), pd.Series(text, dtype=object), PLACES):
        model = PreservingCalibrator("ts", class_names=names).fit(LOGITS, labels)
        assert model.calibrator_.temperature_ == expected
        assert model.predict(LOGITS).tolist() == [names[at] for at in PREDICTION]


@pytest.mark.parametrize("dtype", [np.int64, np.float64, np.uint32])
def test_headings_of_files_from_a_million_on(dtype: type) -> None:
    names = ("1000000", "1234567", "4000000000")
    labels = np.array([4_000_000_000, 1_000_000, 1_234_567], dtype=dtype)
    assert as_indices(labels, (3, 3), names, "scores.csv").tolist() == [2, 0, 1]
    with pytest.raises(InputError) as caught:
        as_indices(labels + dtype(1), (3, 3), names, "scores.csv")
    assert (caught.value.argument, caught.value.rows.tolist()) == ("scores.csv", [0, 1, 2])


def test_a_file_with_headings_from_a_million_on_is_fitted(tmp_path: Path) -> None:
    from cordcal.cli import main

    headings = [10**6, 10**6 + 1, 10**6 + 2]
    frame = pd.DataFrame(LOGITS, columns=headings).assign(label=np.array(headings)[PLACES])
    frame.to_csv(tmp_path / "scores.csv", index=False)
    made = tmp_path / "model.safetensors"
    columns = ",".join(map(str, headings))
    arguments = ["fit", tmp_path / "scores.csv", "--header", "--columns", columns]
    arguments += ["--calibrator", "ts", "--output", made]
    assert main(list(map(str, arguments))) == 0
    model = cordcal.load(made)
    expected = PreservingCalibrator("ts").fit(LOGITS, PLACES)
    assert model.calibrator_.temperature_ == pytest.approx(expected.calibrator_.temperature_)
