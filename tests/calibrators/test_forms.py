"""The forms in which scores, labels and weights may come, and what `fit` leaves alone."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from scipy import sparse

import cordcal
from cordcal import calibrators
from products import product

from .conftest import noisy_logits, one_of_each_family

ROWS, CLASSES = 120, 4
LOGITS, LABELS = noisy_logits(ROWS, CLASSES)
WEIGHT = np.random.default_rng(1).integers(1, 4, ROWS).astype(np.float64)
MODELS = (*one_of_each_family(), "preserved")
# Forms are read, and refused, before a map is fitted.
WHOLE = ("ts", "irova", "preserved")


def make(name: str) -> calibrators.Calibrator | cordcal.PreservingCalibrator:
    return cordcal.PreservingCalibrator("ts") if name == "preserved" else calibrators.make(name)


def report(name: str, scores: object = LOGITS, labels: object = LABELS, **weight: object):
    """Return what a model fitted on these says of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(name).fit(scores, labels, **weight).predict_proba(scores)


def memory_mapped(array: np.ndarray) -> np.ndarray:
    with tempfile.TemporaryFile() as file:
        file.write(array.tobytes())
        return np.memmap(file, array.dtype, mode="r", shape=array.shape)


def read_only(array: np.ndarray) -> np.ndarray:
    copy = array.copy()
    copy.setflags(write=False)
    return copy


def every_other(array: np.ndarray) -> np.ndarray:
    """Return the array as a view with steps in memory."""
    return np.repeat(array, 2, axis=0)[::2]


def framed(array: np.ndarray) -> object:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(array) if array.ndim == 2 else pandas.Series(array)


FORMS: dict[str, Callable[[np.ndarray], object]] = {
    "lists": np.ndarray.tolist,
    "memory map": memory_mapped,
    "read only": read_only,
    "in columns": np.asfortranarray,
    "with steps": every_other,
    "pandas": framed,
}


@pytest.mark.parametrize(("name", "form"), product(MODELS, list(FORMS), whole=WHOLE))
def test_the_form_does_not_matter(name: str, form: str) -> None:
    given = FORMS[form]
    found = report(name, given(LOGITS), given(LABELS), sample_weight=given(WEIGHT))
    np.testing.assert_array_equal(found, report(name, sample_weight=WEIGHT))


@pytest.mark.parametrize("name", MODELS)
def test_fit_returns_self_and_leaves_all_it_is_given(name: str) -> None:
    model = make(name)
    before, weight = model.get_params(), WEIGHT.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert model.fit(LOGITS, LABELS, sample_weight=weight) is model
    assert model.get_params() == before
    np.testing.assert_array_equal(weight, WEIGHT)


@pytest.mark.parametrize("name", MODELS)
def test_weights_of_one_are_no_weights(name: str) -> None:
    found = report(name, sample_weight=np.ones(ROWS))
    np.testing.assert_allclose(found, report(name), atol=1e-9)


BAD_WEIGHTS = {
    "two columns": (np.ones((ROWS, 2)), r"sample_weight has shape \(120, 2\)"),
    "one row less": (np.ones(ROWS - 1), r"sample_weight has shape \(119,\)"),
    "zero": (np.zeros(ROWS), "sample_weight is zero in every row"),
}


@pytest.mark.parametrize(("name", "what"), product(MODELS, list(BAD_WEIGHTS), whole=WHOLE))
def test_weights_that_do_not_fit(name: str, what: str) -> None:
    weight, message = BAD_WEIGHTS[what]
    with pytest.raises(ValueError, match=message):
        report(name, sample_weight=weight)


BAD_SCORES = {
    "complex": (LOGITS + 1j, "scores has dtype complex128"),
    "objects": (LOGITS.astype(object), "scores has dtype object"),
    "sparse": (sparse.csr_array(LOGITS), "scores"),
    "no rows": (LOGITS[:0], "scores has no rows"),
    "one class": (LOGITS[:, :1], "scores has 1 class"),
}


@pytest.mark.parametrize(("name", "what"), product(MODELS, list(BAD_SCORES), whole=WHOLE))
def test_scores_that_are_none(name: str, what: str) -> None:
    scores, message = BAD_SCORES[what]
    with pytest.raises((ValueError, TypeError), match=message):
        report(name, scores, LABELS[: scores.shape[0]])


@pytest.mark.parametrize("name", MODELS)
def test_a_row_is_not_a_matrix(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make(name).fit(LOGITS, LABELS)
    with pytest.raises(ValueError, match="scores has 1 dimension"):
        model.predict_proba(LOGITS[0])
    with pytest.raises(ValueError, match="at least two classes"):
        make(name).fit(LOGITS[:1], LABELS[:1])
