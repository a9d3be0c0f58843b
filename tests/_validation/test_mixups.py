"""Mistakes that are easy to make: each has its error; labels may be names, seeds generators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cordcal
from cordcal.evaluate.gates import Gate, check
from cordcal.report import write_html
from errors import refused

NAMES = ["ant", "bee", "cow"]
RNG = np.random.default_rng(0)
LABELS = RNG.integers(3, size=120)
LOGITS = 3.0 * np.eye(3)[LABELS] + 2.0 * RNG.normal(size=(120, 3))
WORDS = np.array(NAMES)[LABELS]


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


P, Q = softmax(LOGITS), softmax(LOGITS / 2.0)


def test_labels_as_names() -> None:
    result = cordcal.audit(P, Q, WORDS, class_names=NAMES).to_dict()
    assert result == cordcal.audit(P, Q, LABELS, class_names=NAMES).to_dict()
    gates = [Gate("nll", 9.0)]
    named = check(Q, WORDS, gates=gates, class_names=NAMES)
    assert named.to_dict() == check(Q, LABELS, gates=gates).to_dict()


def test_a_generator_as_seed_is_kept_as_a_number(tmp_path: Path) -> None:
    seed, members = np.random.default_rng(4), ("ts", "vs")
    model = cordcal.calibrators.make("blend", seed=seed, members=members).fit(LOGITS, LABELS)
    again = cordcal.calibrators.make("blend", seed=model.seed, members=members).fit(LOGITS, LABELS)
    np.testing.assert_array_equal(model.predict_proba(LOGITS), again.predict_proba(LOGITS))
    cordcal.save(model, tmp_path / "model.safetensors")


def test_a_generator_as_seed_of_resampling() -> None:
    seed = int(np.random.default_rng(4).integers(2**32))
    drawn = cordcal.audit(P, Q, LABELS, seed=np.random.default_rng(4))
    assert drawn.to_dict() == cordcal.audit(P, Q, LABELS, seed=seed).to_dict()


ALONE = [
    key
    for key in cordcal.calibrators.available()
    if cordcal.calibrators.calibrator_class(key).extra is None
]


@pytest.mark.parametrize("key", ALONE)
def test_rounded_probabilities_are_not_taken_for_logits(key: str) -> None:
    rounded = np.round(P, 3)
    assert not np.allclose(rounded.sum(axis=1), 1.0, rtol=0.0, atol=1e-9)
    with refused("scores", naming='input="probabilities"', option="input"):
        cordcal.calibrators.make(key).fit(rounded, LABELS)


COMPARISON = cordcal.compare(LOGITS, LABELS, "ts")


@pytest.mark.parametrize(
    ("mistake", "argument", "fact"),
    [
        (lambda: write_html("r.html", COMPARISON, title="t"), "path", "Comparison"),
        (lambda: write_html(COMPARISON.to_dict(), "r.html"), "data", "dict"),
        (lambda: cordcal.compare(LOGITS, LABELS, "ts", seed="0"), "seed", "'0'"),
        (lambda: cordcal.audit(P, Q, LABELS, seed=-1), "seed", "-1"),
    ],
)
def test_swapped_arguments_and_bad_seeds_are_refused(
    mistake: Callable[[], object], argument: str, fact: str
) -> None:
    with refused(argument, naming=fact):
        mistake()


def test_single_half_precision_logits_that_sum_to_one_are_logits() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=300)
    model = cordcal.PreservingCalibrator("ts").fit(
        2.0 * np.eye(2)[labels] + rng.normal(size=(300, 2)), labels
    )
    first = rng.random((50, 1))
    rows = np.hstack([first, 1.0 - first]).astype(np.float16)
    batch = np.vstack([rows, [[3.0, -3.0]]]).astype(np.float16)
    alone = np.vstack([model.predict_proba(row[None]) for row in rows])
    np.testing.assert_array_equal(alone, model.predict_proba(batch)[:50])
    with refused("scores", option="input"):
        model.predict_proba(rows)


@pytest.fixture(scope="module")
def logit_model() -> cordcal.PreservingCalibrator:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=300)
    logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(300, 3))
    return cordcal.PreservingCalibrator("ts", input="logits").fit(logits, labels)


@pytest.mark.parametrize(
    ("row", "dtype"),
    [
        ([0.2, 0.3, 0.5], "float64"),
        ([0.2, 0.3, 0.5], "float32"),
        ([0.25, 0.125, 0.625], "float32"),
        ([0.31, 0.24, 0.45], "float16"),
        ([0.7, 0.21, 0.09], "float64"),
        ([1.0, 0.0, 0.0], "float64"),
    ],
)
def test_few_short_logits_that_sum_to_one_are_what_the_model_says(logit_model, row, dtype) -> None:
    rows = np.array([row], dtype=dtype)
    one = logit_model.predict_proba(rows)
    # Copies of a row are no more evidence than the row.
    assert (logit_model.predict_proba(np.repeat(rows, 1000, axis=0)) == one).all()


@pytest.mark.parametrize(("dtype", "rows"), [("float64", 1), ("float32", 1), ("float16", 2)])
def test_few_rows_of_a_softmax_are_plainly_no_logits(logit_model, dtype: str, rows: int) -> None:
    probabilities = np.random.default_rng(1).dirichlet(np.ones(3), 500).astype(dtype)
    for start in range(0, 500, rows):
        with refused("scores", option="input"):
            logit_model.predict_proba(probabilities[start : start + rows])


def test_logits_rarely_look_like_probabilities_by_chance(logit_model) -> None:
    rng = np.random.default_rng(2)
    for digits in (1, 2, 3):
        first = rng.random(2000).round(digits)
        for row in np.column_stack([first, np.zeros(2000), 1.0 - first]).round(digits):
            logit_model.predict_proba(row[None])


def test_weights_that_are_text_are_refused() -> None:
    with refused("sample_weight", naming="dtype"):
        cordcal.PreservingCalibrator("ts").fit(LOGITS, LABELS, sample_weight=["a"] * len(LABELS))
