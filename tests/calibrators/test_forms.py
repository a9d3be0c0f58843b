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
from errors import refused
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


def predict(name: str, scores: object = LOGITS, labels: object = LABELS, **weight: object):
    """Return the probabilities of a model for the rows it is fitted on."""
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
    convert = FORMS[form]
    result = predict(name, convert(LOGITS), convert(LABELS), sample_weight=convert(WEIGHT))
    np.testing.assert_array_equal(result, predict(name, sample_weight=WEIGHT))


@pytest.mark.parametrize("name", MODELS)
def test_fit_returns_self_and_does_not_change_its_arguments(name: str) -> None:
    model = make(name)
    before, weight = model.get_params(), WEIGHT.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert model.fit(LOGITS, LABELS, sample_weight=weight) is model
    assert model.get_params() == before
    np.testing.assert_array_equal(weight, WEIGHT)


@pytest.mark.parametrize("name", MODELS)
def test_weights_of_one_are_no_weights(name: str) -> None:
    result = predict(name, sample_weight=np.ones(ROWS))
    np.testing.assert_allclose(result, predict(name), atol=1e-9)


BAD_WEIGHTS = {
    "two columns": (np.ones((ROWS, 2)), "(120, 2)"),
    "one row less": (np.ones(ROWS - 1), "(119,)"),
    "zero": (np.zeros(ROWS), "zero"),
}


@pytest.mark.parametrize(("name", "what"), product(MODELS, list(BAD_WEIGHTS), whole=WHOLE))
def test_weights_that_do_not_fit(name: str, what: str) -> None:
    weight, fact = BAD_WEIGHTS[what]
    with refused("sample_weight", rows=[], naming=fact):
        predict(name, sample_weight=weight)


BAD_SCORES = {
    "complex": (LOGITS + 1j, "dtype complex128"),
    "objects": (LOGITS.astype(object), "dtype object"),
    "no rows": (LOGITS[:0], "no rows"),
    "one class": (LOGITS[:, :1], "1 class"),
}


@pytest.mark.parametrize(("name", "what"), product(MODELS, list(BAD_SCORES), whole=WHOLE))
def test_invalid_scores(name: str, what: str) -> None:
    scores, fact = BAD_SCORES[what]
    with refused("scores", rows=[], naming=fact):
        predict(name, scores, LABELS[: scores.shape[0]])


@pytest.mark.parametrize("name", MODELS)
def test_sparse_scores(name: str) -> None:
    with pytest.raises((ValueError, TypeError), match="scores"):
        predict(name, sparse.csr_array(LOGITS))


@pytest.mark.parametrize("name", MODELS)
def test_a_row_is_not_a_matrix(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make(name).fit(LOGITS, LABELS)
    with refused("scores", rows=[], naming="1 dimension"):
        model.predict_proba(LOGITS[0])
    with refused("labels", rows=[]):
        make(name).fit(LOGITS[:1], LABELS[:1])
