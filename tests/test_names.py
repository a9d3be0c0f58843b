"""Class names, array libraries and dtypes: what comes in goes out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

import cordcal
from errors import refused

pd = pytest.importorskip("pandas")

NAMES = np.array(["cat", "dog", "owl"])
REORDERED = ["owl", "cat", "dog"]


def rows(seed: int = 0, count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=count)
    return 3.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(count, 3)), labels


LOGITS, LABELS = rows()
FRAME = pd.DataFrame(LOGITS, columns=NAMES)
PROBABILITIES = pd.DataFrame(softmax(LOGITS, axis=1), columns=NAMES)
WORDS = NAMES[LABELS]


@pytest.mark.parametrize("words", [WORDS, list(WORDS), pd.Series(WORDS), pd.Categorical(WORDS)])
def test_a_model_learns_names_from_a_frame_and_predicts_them(words) -> None:
    model = cordcal.PreservingCalibrator("vs").fit(FRAME, words)
    by_index = cordcal.PreservingCalibrator("vs").fit(LOGITS, LABELS)
    np.testing.assert_array_equal(model.predict_proba(FRAME), by_index.predict_proba(LOGITS))
    np.testing.assert_array_equal(model.classes_, NAMES)
    np.testing.assert_array_equal(model.predict(FRAME), NAMES[LOGITS.argmax(axis=1)])
    np.testing.assert_array_equal(model.predict(FRAME[REORDERED]), model.predict(FRAME))


def test_predictions_are_of_the_kind_of_the_labels(tmp_path) -> None:
    by_index = cordcal.PreservingCalibrator("ts").fit(FRAME, LABELS)
    np.testing.assert_array_equal(by_index.classes_, [0, 1, 2])
    np.testing.assert_array_equal(by_index.predict(FRAME), LOGITS.argmax(axis=1))
    named = cordcal.PreservingCalibrator("ts", class_names=list(NAMES)).fit(LOGITS, LABELS)
    np.testing.assert_array_equal(named.classes_, NAMES)
    by_name = cordcal.PreservingCalibrator("ts").fit(FRAME, WORDS)
    for model in (by_index, named, by_name):
        cordcal.save(model, tmp_path / "m.safetensors", overwrite=True)
        loaded = cordcal.load(tmp_path / "m.safetensors")
        np.testing.assert_array_equal(loaded.classes_, model.classes_)
        np.testing.assert_array_equal(loaded.predict(FRAME), model.predict(FRAME))


def test_compare_takes_names_and_shows_them() -> None:
    named = cordcal.compare(FRAME, WORDS, ["ts", "vs"])
    plain = cordcal.compare(LOGITS, LABELS, ["ts", "vs"])
    assert named.class_names == tuple(NAMES)
    assert named["vs"].repaired == plain["vs"].repaired
    assert named.fingerprint == plain.fingerprint
    apart = cordcal.compare(
        FRAME, WORDS, ["ts"], evaluation=(FRAME[REORDERED].iloc[:100], WORDS[:100])
    )
    same = cordcal.compare(LOGITS, LABELS, ["ts"], evaluation=(LOGITS[:100], LABELS[:100]))
    assert apart["ts"].direct == same["ts"].direct
    with refused("scores", naming="class_names"):
        cordcal.compare(FRAME, WORDS, ["ts"], class_names=REORDERED)


def test_audit_takes_names_and_matches_columns() -> None:
    direct = cordcal.PreservingCalibrator("vs").fit(LOGITS, LABELS).direct_proba(LOGITS)
    frame = pd.DataFrame(direct, columns=NAMES)[REORDERED]
    named = cordcal.audit(PROBABILITIES, frame, WORDS)
    plain = cordcal.audit(PROBABILITIES.to_numpy(), direct, LABELS)
    assert named.changes == plain.changes
    for first, second in zip(named.measures, plain.measures, strict=True):
        # The order of additions follows the layout in memory.
        assert first.direct == pytest.approx(second.direct, rel=1e-12)
    assert {group.group for group in named.by_class} <= set(NAMES)


@pytest.mark.parametrize(
    "metric",
    [
        cordcal.metrics.nll,
        cordcal.metrics.brier,
        cordcal.metrics.ece,
        cordcal.metrics.classwise_ece,
        cordcal.metrics.accuracy,
    ],
)
def test_metrics_take_names_in_any_order_of_the_columns(metric) -> None:
    expected = metric(PROBABILITIES.to_numpy(), LABELS)
    assert metric(PROBABILITIES, WORDS) == expected
    assert metric(PROBABILITIES[REORDERED], WORDS) == pytest.approx(expected, rel=1e-12)


def test_metrics_read_numbers_as_names_where_the_columns_are_numbers() -> None:
    numbered = PROBABILITIES.set_axis([10, 20, 30], axis=1)
    labels = np.array([10, 20, 30])[LABELS]
    expected = cordcal.metrics.nll(PROBABILITIES.to_numpy(), LABELS)
    assert cordcal.metrics.nll(numbered, labels) == expected
    ignored = np.where(np.arange(400) % 5 == 0, -1, labels)
    rest = np.arange(400) % 5 != 0
    assert cordcal.metrics.nll(numbered, ignored, ignore_index=-1) == pytest.approx(
        cordcal.metrics.nll(PROBABILITIES.to_numpy()[rest], LABELS[rest]), rel=1e-12
    )


def test_changes_and_diagrams_take_names() -> None:
    other = pd.DataFrame(softmax(1.5 * LOGITS + [0.5, 0, 0], axis=1), columns=NAMES)
    changes = cordcal.metrics.prediction_changes(PROBABILITIES, other[REORDERED], WORDS)
    assert changes == cordcal.metrics.prediction_changes(
        PROBABILITIES.to_numpy(), other.to_numpy(), LABELS
    )
    repaired = other[REORDERED[::-1]]
    assert cordcal.metrics.topk_changes(PROBABILITIES, repaired, 2) == (
        cordcal.metrics.topk_changes(PROBABILITIES.to_numpy(), other.to_numpy(), 2)
    )
    moves = cordcal.metrics.prediction_flows(PROBABILITIES, repaired).matrix()
    np.testing.assert_array_equal(
        moves, cordcal.metrics.prediction_flows(PROBABILITIES.to_numpy(), other.to_numpy()).matrix()
    )
    plots = pytest.importorskip("cordcal.plots")
    pytest.importorskip("matplotlib")
    axes = plots.reliability_diagram(PROBABILITIES, WORDS, of_class="dog")
    assert axes.get_ylabel() == "share of class dog"
    by_name = cordcal.metrics.class_reliability(PROBABILITIES, WORDS, "dog")
    by_index = cordcal.metrics.class_reliability(PROBABILITIES.to_numpy(), LABELS, 1)
    np.testing.assert_array_equal(by_name.accuracy, by_index.accuracy)
    with refused("index", naming="'cow'"):
        cordcal.metrics.class_reliability(PROBABILITIES, WORDS, "cow")


def test_words_without_column_names_are_refused_with_the_remedy() -> None:
    for call in (
        lambda: cordcal.PreservingCalibrator("ts").fit(LOGITS, WORDS),
        lambda: cordcal.compare(LOGITS, WORDS, ["ts"]),
    ):
        with refused("labels", naming="class_names="):
            call()
    with refused("labels", naming="data frame"):
        cordcal.metrics.nll(PROBABILITIES.to_numpy(), WORDS)
    with refused("labels", naming="'logit_*'"):
        cordcal.PreservingCalibrator("ts").fit(FRAME.add_prefix("logit_"), WORDS)
    twice = pd.DataFrame(LOGITS, columns=["cat", "cat", "owl"])
    with refused("scores", naming="two columns called 'cat'"):
        cordcal.PreservingCalibrator("ts").fit(twice, WORDS)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_probabilities_have_the_dtype_of_the_scores(dtype) -> None:
    model = cordcal.PreservingCalibrator("vs").fit(LOGITS, LABELS)
    scores = LOGITS.astype(dtype)
    for passed in (scores, FRAME.astype(dtype)):
        assert model.predict_proba(passed).dtype == dtype
        assert model.predict_both(passed).repaired.dtype == dtype
        assert model.predict_proba(passed, dtype=np.float64).dtype == np.float64
    np.testing.assert_array_equal(model.predict_proba(scores).argmax(axis=1), scores.argmax(axis=1))
    images = np.moveaxis(scores.reshape(4, 100, 3), -1, 1)
    assert model.predict_proba(images, axis=1).dtype == dtype


def test_whole_numbers_give_float64() -> None:
    model = cordcal.PreservingCalibrator("vs").fit(LOGITS, LABELS)
    assert model.predict_proba([[1, 2, 3]]).dtype == np.float64


def test_torch_in_torch_out() -> None:
    torch = pytest.importorskip("torch")
    model = cordcal.PreservingCalibrator("vs").fit(torch.tensor(LOGITS), torch.tensor(LABELS))
    expected = model.predict_both(LOGITS.astype(np.float32))
    scores = torch.tensor(LOGITS, dtype=torch.float32, requires_grad=True)
    outputs = model.predict_both(scores)
    assert outputs.repaired.dtype == torch.float32
    np.testing.assert_array_equal(outputs.repaired.numpy(), expected.repaired)
    np.testing.assert_array_equal(model.direct_proba(scores).numpy(), expected.direct)
    np.testing.assert_array_equal(model.predict(scores).numpy(), expected.prediction)
    assert model.predict_proba(scores, dtype=torch.float64).dtype == torch.float64
    # NumPy has no bfloat16; float32 contains it.
    assert model.predict_proba(scores.bfloat16()).dtype == torch.float32
    images = scores.reshape(4, 100, 3).movedim(-1, 1)
    assert isinstance(model.predict_proba(images, axis=1), torch.Tensor)
    audit = cordcal.audit(torch.softmax(scores, 1), outputs.direct)
    assert audit.changes.n_changed > 0


def test_jax_in_jax_out() -> None:
    jax = pytest.importorskip("jax")
    model = cordcal.PreservingCalibrator("vs").fit(LOGITS, LABELS)
    scores = jax.numpy.asarray(LOGITS, dtype=jax.numpy.float32)
    result = model.predict_proba(scores)
    assert isinstance(result, jax.Array)
    assert result.dtype == jax.numpy.float32
