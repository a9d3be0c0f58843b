"""An InputError has fields: the argument, all rows with the same reason, the reason, the hint."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from cordcal import CORD, InputError, PreservingCalibrator, calibrators, metrics
from cordcal._errors import merge_errors, raise_first, renumber_rows, write_options_as
from cordcal._validation.scores import score_errors
from cordcal.repair.engine import pair_errors

ROWS, CLASSES = 60_000, 10  # several blocks of 2 MB
RNG = np.random.default_rng(3)
SOUND = RNG.dirichlet(np.ones(CLASSES), ROWS)
LABELS = RNG.integers(CLASSES, size=ROWS)
BAD = np.array([5, 26_500, 59_999])


def spoiled(value: float, rows: np.ndarray = BAD) -> np.ndarray:
    array = SOUND.copy()
    array[rows, 3] = value
    return array


def error_of(function, *arguments, **named) -> InputError:
    with pytest.raises(InputError) as caught:
        function(*arguments, **named)
    return caught.value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (np.nan, "contains NaN"),
        (np.inf, "contains an infinite value"),
        (-0.5, "contains a negative number"),
        (7.0, "does not sum to 1"),
    ],
)
@pytest.mark.parametrize("preserve", [1, 2])
def test_repair_reports_all_rows_per_reason(value: float, reason: str, preserve: int) -> None:
    bad = spoiled(value)
    bad[100, 0] = np.nan if reason != "contains NaN" else np.inf
    fitted = CORD(preserve, threads=2).fit(SOUND[:50], SOUND[50:100])
    for call in (CORD(preserve).fit, fitted.transform):
        error = error_of(call, SOUND, bad)
        assert (error.argument, error.reason) == ("direct", reason)
        np.testing.assert_array_equal(error.rows, BAD)
        assert str(error).startswith("direct: row 5 ")


def test_score_checks_report_all_rows_per_reason() -> None:
    logits = np.log(SOUND)
    logits[BAD, 2] = np.nan
    logits[7, 2] = np.inf
    for call in (PreservingCalibrator("ts").fit, calibrators.make("ts").fit):
        error = error_of(call, logits, LABELS)
        assert (error.argument, error.reason) == ("scores", "contains NaN")
        np.testing.assert_array_equal(error.rows, BAD)


def test_metrics_report_all_rows_per_reason() -> None:
    error = error_of(metrics.nll, spoiled(np.nan), LABELS)
    assert (error.argument, error.reason) == ("probabilities", "contains NaN")
    np.testing.assert_array_equal(error.rows, BAD)
    error = error_of(metrics.tpcr, SOUND, spoiled(np.nan))
    np.testing.assert_array_equal(error.rows, BAD)


def test_rows_of_dense_arrays_are_numbered_as_positions() -> None:
    pixels = spoiled(np.nan, BAD[1:]).reshape(6, 100, 100, CLASSES)
    images = np.ascontiguousarray(np.moveaxis(pixels, -1, 1))
    error = error_of(metrics.nll, images, LABELS.reshape(6, 100, 100), axis=1)
    # One image is a block of its own: the third is the first that has a bad row.
    np.testing.assert_array_equal(error.rows, BAD[1:2])


def test_all_reasons_are_returned_for_callers_that_skip_rows() -> None:
    bad = spoiled(np.nan, BAD[:1])
    bad[9] *= 2.0
    bad[26_500, 0] = -1.0
    rows = {error.reason: error.rows.tolist() for error in pair_errors(SOUND, bad)}
    assert rows == {
        "contains NaN": [5],
        "does not sum to 1": [9],
        "contains a negative number": [26_500],
    }
    same = score_errors(bad, "probabilities")
    assert {error.reason: error.rows.tolist() for error in same} == rows


def test_a_row_is_refused_once() -> None:
    one = np.array([[np.nan, np.inf, -1.0], [np.inf, -2.0, 0.0], [0.2, 0.3, 0.5]])
    errors = pair_errors(np.full((3, 3), 1 / 3), one)
    assert sorted(np.concatenate([error.rows for error in errors])) == [0, 1]


def test_the_earliest_row_is_named() -> None:
    late = InputError("scores", "contains NaN", "drop such rows", rows=[8, 9])
    early = InputError("scores", "contains +inf", "drop such rows", rows=[3])
    with pytest.raises(InputError, match="row 3 contains"):
        raise_first(late, None, early)
    raise_first(None)


def test_rows_of_blocks_are_renumbered() -> None:
    error = InputError("scores", "contains NaN", "drop such rows", rows=[1, 2])
    with pytest.raises(InputError) as caught, renumber_rows(1000):
        raise error
    assert caught.value.rows.tolist() == [1001, 1002]
    with pytest.raises(InputError) as caught, renumber_rows([7, 11, 13]):
        raise error
    assert caught.value.rows.tolist() == [11, 13]
    (joined,) = merge_errors([error.offset_rows(10), error])
    assert joined.rows.tolist() == [1, 2, 11, 12]


def test_an_option_is_formatted_in_the_syntax_of_the_caller() -> None:
    error = error_of(calibrators.make("ts").fit, SOUND[:50], LABELS[:50])
    assert 'write input="probabilities"' in str(error)
    with write_options_as(lambda name, to: f"--{name} {to}"):
        assert "write --input probabilities" in str(error)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda p, y: metrics.ece(y, p), "the order is (probabilities, labels)"),
        (lambda p, y: metrics.ece(p, y[:, None]), "labels.ravel()"),
        (lambda p, y: metrics.ece(p, np.eye(2, dtype=int)[y]), "labels.argmax(axis=1)"),
        (lambda p, y: metrics.ece(p[0], y), "probabilities[None]"),
        (lambda p, y: metrics.ece(p[:, 1:], y), "np.column_stack([1 - probabilities"),
        (lambda p, y: calibrators.make("ts").fit(y, p), "the order is (scores, labels)"),
        (lambda p, y: calibrators.make("ts").fit(p, p), "the order is (scores, labels)"),
    ],
)
def test_mistakes_of_shape_name_the_fix(call, words: str) -> None:
    probabilities, labels = np.array([[0.2, 0.8], [0.6, 0.4], [0.3, 0.7]]), np.array([1, 0, 0])
    assert words in str(error_of(call, probabilities, labels))


def test_errors_can_be_pickled() -> None:
    error = InputError("scores", "contains NaN", "drop such rows", rows=[3], detail="holds NaN")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
