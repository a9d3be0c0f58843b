"""Dense outputs: any axis gives what the rows give, without copies where strides allow."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal import CORD, Lift, PreservingCalibrator, audit, metrics
from cordcal._validation import layouts
from errors import refused

IGNORED = -100
RNG = np.random.default_rng(0)
SHAPE, CLASSES = (3, 8, 5), 6


def at_axis(rows: np.ndarray, axis: int) -> np.ndarray:
    """Put the classes of (*SHAPE, CLASSES) at an axis, in one piece of memory."""
    return np.ascontiguousarray(np.moveaxis(rows, -1, axis))


def flat(rows: np.ndarray) -> np.ndarray:
    return rows.reshape(-1, CLASSES)


ORIGINAL, DIRECT = RNG.dirichlet(np.ones(CLASSES), (2, *SHAPE))
LABELS = RNG.integers(0, CLASSES, SHAPE)
HOLES = np.where(RNG.random(SHAPE) < 0.3, IGNORED, LABELS)
KEPT = HOLES.reshape(-1) != IGNORED


@pytest.mark.parametrize(("axis", "views"), [(0, 1), (1, 3), (3, 1), (-1, 1), (-3, 3)])
def test_views_share_the_memory(axis: int, views: int) -> None:
    array = at_axis(ORIGINAL, axis)
    views_of_rows = list(layouts.row_views(axis, [array]))
    assert len(views_of_rows) == views
    for _, (view,), _ in views_of_rows:
        assert np.shares_memory(view, array)
    joined = np.concatenate([view for _, (view,), _ in views_of_rows])
    np.testing.assert_array_equal(joined, flat(ORIGINAL))


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1])
@pytest.mark.parametrize("preserve", [1, 2])
def test_the_repair_is_that_of_the_rows(axis: int, preserve: int) -> None:
    original, direct = at_axis(ORIGINAL, axis), at_axis(DIRECT, axis).astype(np.float32)
    rows = flat(ORIGINAL), flat(DIRECT).astype(np.float32)
    expected = CORD(preserve).fit(*rows)
    cord = CORD(preserve).fit(original, direct, axis=axis)
    assert cord.construction_ == expected.construction_
    repaired = cord.transform(original, direct, axis=axis)
    assert (repaired.shape, repaired.dtype) == (direct.shape, np.float32)
    np.testing.assert_array_equal(flat(np.moveaxis(repaired, axis, -1)), expected.transform(*rows))
    again = cord.transform(original, direct, axis=axis, out=direct)
    assert again is direct
    np.testing.assert_array_equal(direct, repaired)


def test_predictions_and_weights_have_the_positions_shape() -> None:
    weight = RNG.random(SHAPE)
    weight[0] = 0.0
    vectors = {"prediction": LABELS, "sample_weight": weight}
    original, direct = at_axis(ORIGINAL, 1), at_axis(DIRECT, 1)
    cord = CORD().fit(original, direct, axis=1, **vectors)
    ravelled = {name: values.reshape(-1) for name, values in vectors.items()}
    assert cord.eta_ == CORD().fit(flat(ORIGINAL), flat(DIRECT), **ravelled).eta_
    repaired = cord.transform(original, direct, axis=1, prediction=LABELS)
    np.testing.assert_array_equal(repaired.argmax(axis=1), LABELS)


def test_torch_stays_torch() -> None:
    torch = pytest.importorskip("torch")
    original, direct = (torch.tensor(at_axis(x, 1)) for x in (ORIGINAL, DIRECT))
    cord = CORD().fit(original, direct, axis=1)
    repaired = cord.transform(original, direct, axis=1)
    assert isinstance(repaired, torch.Tensor)
    expected = cord.transform(at_axis(ORIGINAL, 1), at_axis(DIRECT, 1), axis=1)
    np.testing.assert_allclose(repaired.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize(
    "name",
    ["accuracy", "nll", "brier", "ece", "ece_equal_mass", "smooth_ece", "classwise_ece"],
)
def test_metrics(name: str, axis: int) -> None:
    measure = getattr(metrics, name)
    expected = measure(flat(DIRECT)[KEPT], LABELS.reshape(-1)[KEPT])
    result = measure(at_axis(DIRECT, axis), HOLES, axis=axis, ignore_index=IGNORED)
    assert result == pytest.approx(expected, rel=1e-12)
    rows = measure(flat(DIRECT), HOLES.reshape(-1), ignore_index=IGNORED)
    assert rows == pytest.approx(expected, rel=1e-12)


def test_changes() -> None:
    original, direct = at_axis(ORIGINAL, 1), at_axis(DIRECT, 1)
    expected = metrics.prediction_changes(
        flat(ORIGINAL)[KEPT], flat(DIRECT)[KEPT], LABELS.reshape(-1)[KEPT]
    )
    for before in (original, original.argmax(axis=1)):  # a report, or predictions in its place
        result = metrics.prediction_changes(before, direct, HOLES, axis=1, ignore_index=IGNORED)
        assert result == expected
    assert metrics.tpcr(original, direct, axis=1) == metrics.tpcr(flat(ORIGINAL), flat(DIRECT))
    assert metrics.topk_changes(original, direct, 2, axis=1) == metrics.topk_changes(
        flat(ORIGINAL), flat(DIRECT), 2
    )


def test_preserved() -> None:
    logits = 2.0 * np.eye(CLASSES)[LABELS] + RNG.normal(size=(*SHAPE, CLASSES))
    images = at_axis(logits, 1)
    model = PreservingCalibrator("vs").fit(images, HOLES, axis=1, ignore_index=IGNORED)
    expected = PreservingCalibrator("vs").fit(flat(logits)[KEPT], LABELS.reshape(-1)[KEPT])
    assert model.repair_.eta_ == expected.repair_.eta_
    repaired = model.predict_proba(images, dtype=np.float32, axis=1)
    assert repaired.shape == images.shape
    rows = flat(np.moveaxis(repaired, 1, -1))
    np.testing.assert_array_equal(rows, expected.predict_proba(flat(logits), dtype=np.float32))
    np.testing.assert_array_equal(model.predict(images, axis=1), images.argmax(axis=1))
    direct = flat(np.moveaxis(model.direct_proba(images, axis=1), 1, -1))
    np.testing.assert_allclose(direct, expected.direct_proba(flat(logits)), rtol=1e-13)


def test_bad_arguments() -> None:
    images = at_axis(DIRECT, 1)
    with refused("axis", naming="4"):
        CORD().fit(images, images, axis=4)
    with refused("axis", naming="'K'"):
        metrics.ece(images, LABELS, axis="K")
    with refused(naming="(3, 8)"):
        metrics.ece(images, LABELS[:, :, 0], axis=1)
    with refused("ignore_index", naming="labels"):
        metrics.prediction_changes(images, images, axis=1, ignore_index=0)
    bad = images.copy()
    bad[1, :, 2, 3] = np.nan
    row = 1 * 40 + 2 * 5 + 3
    with refused("direct", rows=[row], naming="NaN"):
        CORD().fit(images, bad, axis=1)
    with refused("probabilities", rows=[row], naming="NaN"):
        metrics.ece(bad, LABELS, axis=1)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_explanations_and_audits_of_dense_arrays_are_those_of_their_rows(axis: int) -> None:
    original, direct = at_axis(ORIGINAL, axis), at_axis(DIRECT, axis)
    rows = flat(ORIGINAL), flat(DIRECT)
    lift = Lift().fit(*rows, LABELS.reshape(-1))
    for repair in (CORD().fit(*rows), lift):
        result, expected = repair.explain(original, direct, axis=axis), repair.explain(*rows)
        np.testing.assert_array_equal(result.repaired_mass, expected.repaired_mass)
    result = audit(original, direct, LABELS, axis=axis, resamples=5)
    expected = audit(*rows, LABELS.reshape(-1), resamples=5)
    assert result.to_dict() == expected.to_dict()
