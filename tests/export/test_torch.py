"""The torch module: the library's numbers, exact predictions in every dtype, export, pickling."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest
import torch

import cordcal
from cordcal.torch import PreservingModule
from errors import refused
from precision import UNIT_ROUNDOFF
from products import product, some

from .conftest import (
    FAMILIES,
    KEYS,
    KINDS,
    fitted,
    hard_rows,
    library,
    lifted,
    noisy_scores,
    steepness,
)

DTYPES = ("float64", "float32", "float16", "bfloat16")
TRACED = ("ts", "svs", "irova", "blend")


@pytest.fixture
def fresh_compiler() -> None:
    """Forget earlier compilations: torch counts them for each code object."""
    torch.compiler.reset()


def as_given(scores: np.ndarray, dtype: str) -> tuple[torch.Tensor, np.ndarray]:
    """Return scores in a dtype, and the same numbers in float64 for the library."""
    tensor = torch.tensor(scores).to(getattr(torch, dtype))
    return tensor, tensor.double().numpy()


def assert_on_top(repaired: torch.Tensor, prediction: np.ndarray) -> None:
    """The prediction is strictly the largest entry, in the tensor's own dtype."""
    mass = repaired.gather(1, torch.tensor(prediction)[:, None])
    assert int((repaired >= mass).sum()) == len(prediction)
    assert np.array_equal(repaired.argmax(dim=1).numpy(), prediction)


@pytest.mark.parametrize(("key", "kind"), product(KEYS, KINDS, whole=FAMILIES))
def test_float64_is_the_library(key: str, kind: str) -> None:
    model = fitted(key, kind)
    scores, _ = noisy_scores(400, kind, seed=1)
    expected = library(model, scores)
    module = PreservingModule(model)
    tolerance = 1e-14 * steepness(model)
    tensor = torch.tensor(scores)
    np.testing.assert_allclose(module.direct(tensor).numpy(), expected.direct, atol=tolerance)
    np.testing.assert_allclose(module(tensor).numpy(), expected.repaired, atol=tolerance)


@pytest.mark.parametrize(("key", "kind", "dtype"), product(KEYS, KINDS, DTYPES, whole=FAMILIES))
def test_predictions_are_exact_in_every_dtype(key: str, kind: str, dtype: str) -> None:
    model = fitted(key, kind)
    tensor, wide = as_given(np.concatenate([hard_rows(kind), noisy_scores(200, kind)[0]]), dtype)
    repaired = PreservingModule(model)(tensor)
    assert repaired.dtype == tensor.dtype
    assert_on_top(repaired, wide.argmax(axis=1))
    sums = repaired.double().sum(dim=1).numpy()
    assert np.abs(sums - 1.0).max() <= 8.0 * UNIT_ROUNDOFF[dtype] + 1e-11


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prefer", ["confidence", "likelihood"])
def test_lifted_reports(prefer: str, kind: str) -> None:
    model = lifted(prefer, kind)
    scores, _ = noisy_scores(400, kind, seed=1)
    module = PreservingModule(model)
    result = module(torch.tensor(scores)).numpy()
    np.testing.assert_allclose(result, library(model, scores).repaired, atol=1e-13)
    for dtype in DTYPES:
        tensor, wide = as_given(np.concatenate([hard_rows(kind), scores]), dtype)
        assert_on_top(module(tensor), wide.argmax(axis=1))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("key", ["ts", "svs", "ms", "irova"])
def test_narrow_dtypes_agree_to_their_rounding(key: str, dtype: str) -> None:
    model = fitted(key)
    tensor, wide = as_given(noisy_scores(300, "logits", seed=2)[0], dtype)
    expected = library(model, wide, dtype).repaired.astype(np.float64)
    result = PreservingModule(model)(tensor).double().numpy()
    # One rounding each, and a tie is broken by up to two gaps instead of one.
    np.testing.assert_allclose(result, expected, rtol=4 * UNIT_ROUNDOFF[dtype], atol=1e-7)


def test_uniform_half_precision_rows_of_many_classes() -> None:
    # 1/20000 is a subnormal float16.
    rng = np.random.default_rng(0)
    labels = rng.integers(20_000, size=40)
    scores = rng.normal(size=(40, 20_000))
    scores[np.arange(40), labels] += 4.0
    module = PreservingModule(cordcal.PreservingCalibrator("ts").fit(scores, labels))
    repaired = module(torch.zeros(2, 20_000, dtype=torch.float16))
    assert_on_top(repaired, np.zeros(2, dtype=np.int64))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("preserve", [2, 4, "ranking"])
@pytest.mark.parametrize("key", ["vs", "irova"])
def test_kept_ranks(key: str, preserve: int | str, dtype: str) -> None:
    scores, labels = noisy_scores(500, "logits")
    model = cordcal.PreservingCalibrator(key, preserve=preserve).fit(scores, labels)
    tensor, wide = as_given(noisy_scores(300, "logits", seed=1)[0], dtype)
    result = PreservingModule(model)(tensor).double().numpy()
    tolerance = 1e-13 * steepness(model) + 8.0 * UNIT_ROUNDOFF[dtype]
    np.testing.assert_allclose(result, model.predict_proba(wide), rtol=0, atol=tolerance)
    order = np.argsort(-wide, axis=1, kind="stable")
    ranked = np.take_along_axis(result, order, axis=1)
    levels = scores.shape[1] - 1 if preserve == "ranking" else preserve
    above, below = ranked[:, : levels - 1], ranked[:, 1:levels]
    assert (above > below).all() if dtype in ("float64", "float32") else (above >= below).all()
    assert (ranked[:, :1] > ranked[:, 1:]).all()
    assert (ranked[:, levels - 1, None] >= ranked[:, levels:]).all()


def test_strict_order_where_float32_underflows() -> None:
    scores, labels = noisy_scores(500, "logits")
    module = PreservingModule(
        cordcal.PreservingCalibrator("ts", preserve="ranking").fit(scores, labels)
    )
    logits = torch.arange(6, dtype=torch.float32).flip(0)[None, :] * 100.0
    ranked = module(logits)[0]
    assert (ranked[:-1] > ranked[1:]).all()


def test_any_batch_shape() -> None:
    model = fitted("irova")
    scores = torch.tensor(noisy_scores(24, "logits")[0])
    flat = PreservingModule(model)(scores)
    images = scores.reshape(2, 3, 4, -1).movedim(-1, 1)
    dense = PreservingModule(model, axis=1)
    assert images.shape == dense(images).shape == dense.direct(images).shape
    assert torch.equal(dense(images).movedim(1, -1).reshape(24, -1), flat)
    assert torch.equal(PreservingModule(model)(scores[0]), flat[0])
    assert PreservingModule(model)(scores[:0]).shape == (0, scores.shape[1])


def test_casting_a_network_leaves_the_state_wide() -> None:
    scores = torch.tensor(noisy_scores(50, "logits")[0])
    module = PreservingModule(fitted("svs"))
    expected = module(scores)
    for cast in ("half", "bfloat16", "float", "double"):
        network = getattr(torch.nn.Sequential(torch.nn.Identity(), module), cast)()
        assert torch.equal(network(scores), expected)
    assert not list(module.parameters())


def test_state_travels_by_state_dict_pickle_and_copy() -> None:
    scores = torch.tensor(noisy_scores(50, "logits")[0])
    module = PreservingModule(fitted("vs"))
    expected = module(scores)
    labels = np.random.default_rng(5).integers(6, size=50)
    other = PreservingModule(cordcal.PreservingCalibrator("vs").fit(scores.numpy(), labels))
    assert not torch.equal(other(scores), expected)
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(scores), expected)
    assert torch.equal(copy.deepcopy(module)(scores), expected)
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(scores), expected)


@pytest.mark.parametrize("key", ["ms", "irova"])
def test_autocast_changes_nothing(key: str) -> None:
    module = PreservingModule(fitted(key))
    scores = torch.tensor(noisy_scores(50, "logits")[0]).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = module(scores)
    assert inside.dtype == torch.bfloat16
    assert torch.equal(inside, module(scores))


@pytest.mark.parametrize("key", FAMILIES)
def test_exports_with_any_batch_size(key: str) -> None:
    module = PreservingModule(fitted(key)).eval()
    scores = torch.tensor(hard_rows("logits")).float()
    batch = torch.export.Dim("batch")
    program = torch.export.export(module, (scores,), dynamic_shapes=({0: batch},))
    for rows in (1, 33):
        assert torch.equal(program.module()(scores[:rows]), module(scores[:rows]))


# `test_exports_with_any_batch_size` traces every family; compiling takes several times as long.
@pytest.mark.parametrize("key", some(FAMILIES, TRACED))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.usefixtures("fresh_compiler")
def test_traces_whole(key: str) -> None:
    module = PreservingModule(fitted(key)).eval()
    scores = torch.tensor(hard_rows("logits")).float()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(scores), module(scores))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("key", ["svs", "irova"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_code_keeps_predictions(key: str, dtype: str) -> None:
    tensor, wide = as_given(hard_rows("logits"), dtype)
    compiled = torch.compile(PreservingModule(fitted(key)).eval(), fullgraph=True)
    assert_on_top(compiled(tensor), wide.argmax(axis=1))


class TestBadInput:
    def test_integers(self) -> None:
        with refused("logits", naming="torch.int64"):
            PreservingModule(fitted("ts"))(torch.zeros(2, 6, dtype=torch.int64))

    def test_numpy_arrays(self) -> None:
        for report in (PreservingModule(fitted("ts")), PreservingModule(fitted("ts")).direct):
            with refused("logits", naming="ndarray"):
                report(np.zeros((2, 6), np.float32))

    def test_axis_out_of_range(self) -> None:
        with refused("axis", naming=["is 2", "2 dimension"]):
            PreservingModule(fitted("ts"), axis=2)(torch.zeros(2, 6))

    def test_wrong_number_of_classes(self) -> None:
        with refused("logits", naming=["5 entries", "axis -1"]):
            PreservingModule(fitted("ts"))(torch.zeros(2, 5))

    def test_not_a_model(self) -> None:
        with refused("model", naming=["CORD", "cordcal.PreservingCalibrator"]):
            PreservingModule(cordcal.CORD())

    def test_not_fitted(self) -> None:
        with refused("model", naming="fit"):
            PreservingModule(cordcal.PreservingCalibrator("ts"))

    def test_foreign_calibrator(self) -> None:
        class Softmax:
            def predict_proba(self, scores: np.ndarray) -> np.ndarray:
                return np.full(scores.shape, 1.0 / scores.shape[1])

        scores = noisy_scores(20, "logits")[0]
        model = cordcal.PreservingCalibrator(Softmax(), prefit=True).fit(scores)
        with refused("model", naming="Softmax"):
            PreservingModule(model)


@pytest.mark.parametrize("preserve", [2, 3])
@pytest.mark.parametrize("classes", [4, 10])
def test_tied_logits_keep_the_smaller_index_first(classes: int, preserve: int) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(classes, size=600)
    logits = 2.0 * np.eye(classes)[labels] + 1.5 * rng.normal(size=(600, classes))
    model = cordcal.PreservingCalibrator("ts", preserve=preserve).fit(logits, labels)
    tied = np.round(rng.normal(size=(500, classes)))
    result = PreservingModule(model)(torch.tensor(tied)).numpy()
    np.testing.assert_allclose(result, model.predict_proba(tied), rtol=0.0, atol=1e-9)
