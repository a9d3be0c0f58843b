"""Model files: round trips, and clear errors about files that are not models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from sklearn.base import clone

import cordcal
from cordcal.files import models
from errors import refused


@pytest.fixture
def pair() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.dirichlet(np.ones(4), 60), rng.dirichlet(np.ones(4), 60)


def test_cord_survives_bit_for_bit(pair: tuple, tmp_path: Path) -> None:
    cord = cordcal.CORD().fit(*pair)
    cordcal.save(cord, tmp_path / "cord.safetensors")
    loaded = cordcal.load(tmp_path / "cord.safetensors")
    assert loaded.eta_ == cord.eta_
    assert loaded.construction_ == cord.construction_
    np.testing.assert_array_equal(loaded.transform(*pair), cord.transform(*pair))
    assert [file.name for file in tmp_path.iterdir()] == ["cord.safetensors"]


@pytest.mark.parametrize("preserve", [1, 2, "ranking"])
@pytest.mark.parametrize("threads", [None, 3])
def test_parameters_survive(pair: tuple, tmp_path: Path, preserve: object, threads: object) -> None:
    cord = cordcal.CORD(preserve, threads=threads)  # type: ignore[arg-type]
    for copy in (cord, clone(cord)):
        assert copy.get_params() == {"preserve": preserve, "rule": "argmax", "threads": threads}
        assert ("threads=3" in repr(copy)) == (threads == 3)
    cordcal.save(cord.fit(*pair), tmp_path / "m")
    loaded = cordcal.load(tmp_path / "m")
    assert loaded.get_params() == cord.get_params()
    assert repr(loaded) == repr(cord)


def test_a_file_cannot_ask_for_any_number_of_threads(pair: tuple, tmp_path: Path) -> None:
    cord = cordcal.CORD(threads=2).fit(*pair)
    for threads in (10**6, 0):
        cord.threads = threads
        cordcal.save(cord, tmp_path / "m")
        with pytest.raises(cordcal.InputError) as error:
            cordcal.load(tmp_path / "m")
        assert "threads" in error.value.reason


def test_predictions_that_are_passed_are_remembered(pair: tuple, tmp_path: Path) -> None:
    cord = cordcal.CORD().fit(*pair, prediction=pair[0].argmin(axis=1))
    cordcal.save(cord, tmp_path / "m")
    with refused("prediction"):
        cordcal.load(tmp_path / "m").transform(*pair)


def test_calibrator_and_preserved(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, 200)
    logits = (2.0 * np.eye(3)[labels] + rng.normal(size=(200, 3))).astype(np.float32)
    model = cordcal.PreservingCalibrator("irova", class_names=["a", "b", "c"]).fit(logits, labels)
    for part, name in ((model, "model"), (model.calibrator_, "map")):
        cordcal.save(part, tmp_path / name)
        loaded = cordcal.load(tmp_path / name)
        np.testing.assert_array_equal(loaded.predict_proba(logits), part.predict_proba(logits))
    assert set(cordcal.load(tmp_path / "model").predict(logits)) == {"a", "b", "c"}


def test_unfitted_and_foreign_objects(tmp_path: Path) -> None:
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        cordcal.save(cordcal.CORD(), tmp_path / "m")
    with pytest.raises(TypeError, match="a dict cannot be saved"):
        cordcal.save({}, tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_files_that_are_not_models(pair: tuple, tmp_path: Path) -> None:
    path = tmp_path / "cord.safetensors"
    with pytest.raises(FileNotFoundError, match="no such model file"):
        cordcal.load(path)
    cordcal.save(cordcal.CORD().fit(*pair), path)
    whole = path.read_bytes()
    for size in (40, len(whole) - 3):
        path.write_bytes(whole[:size])
        with refused(naming="cord.safetensors"):
            cordcal.load(path)
    for other in (b"", whole[:5], b"PK\x03\x04" + bytes(100), b"a,b\n0.5,0.5\n"):
        path.write_bytes(other)
        with refused(naming=["cord.safetensors", "model file"]):
            cordcal.load(path)
    with pytest.raises(IsADirectoryError, match="is a folder; name the model file in it"):
        cordcal.load(tmp_path)
    save_file({"x": np.zeros(2)}, path)
    with refused(naming="not a cordcal model"):
        cordcal.load(path)


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"version": "99"}, ["version 99", "version 1", "upgrade"]),
        ({"kind": "oracle"}, ["'oracle'"]),
    ],
)
def test_files_of_the_future(change: dict, facts: list[str], tmp_path: Path) -> None:
    content = {"eta": np.zeros(1)}
    metadata = {"format": "cordcal", "version": "1", "kind": "cord", "body": "{}", **change}
    metadata["digest"] = models._digest(content, metadata)
    save_file(content, tmp_path / "m", metadata=metadata)
    with refused(naming=facts):
        cordcal.load(tmp_path / "m")


def test_files_from_before_the_first_release(tmp_path: Path) -> None:
    metadata = {"format": "cordcal model", "version": "1", "kind": "cord", "body": "{}"}
    save_file({"eta": np.zeros(1)}, tmp_path / "m", metadata=metadata)
    with refused(naming=["before cordcal's first release", "fit and save the model again"]):
        cordcal.load(tmp_path / "m")


def rewritten(path: Path, change: object) -> None:
    """Write a model's file again with another body, and the digest that goes with it."""
    content, metadata = models._open(path)
    body = json.loads(metadata["body"])
    body = change(content, body) or body  # type: ignore[operator]
    metadata = {**metadata, "body": body if isinstance(body, str) else json.dumps(body)}
    metadata["digest"] = models._digest(content, metadata)
    path.write_bytes(models._encode_safetensors(content, metadata))


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, 200)
    logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(200, 3))
    cordcal.save(cordcal.PreservingCalibrator("vs").fit(logits, labels), tmp_path / "m.safetensors")
    return tmp_path / "m.safetensors"


def put(*keys: str, value: object) -> object:
    def change(content: dict, body: dict) -> None:
        for key in keys[:-1]:
            body = body[key]
        body[keys[-1]] = value

    return change


def drop(*keys: str) -> object:
    def change(content: dict, body: dict) -> None:
        for key in keys[:-1]:
            body = body[key]
        del body[keys[-1]]

    return change


def nan_eta(tensors: dict, body: dict) -> None:
    tensors["eta"] = np.array([np.nan])


def no_tensor(tensors: dict, body: dict) -> None:
    del tensors[next(name for name in tensors if name.startswith("calibrator."))]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (nan_eta, "no valid value in its field eta"),
        (put("cord", "preserve", value=3), "no valid value in its field cord.construction"),
        (put("cord", "preserve", value="all"), "in its field cord.preserve"),
        (drop("cord", "construction"), "no valid value in its field cord.construction"),
        (drop("cord", "construction", "n"), "no valid value in its field cord.construction.n;"),
        (put("cord", "construction", "n", value="9"), "no valid value in its field cord.constr"),
        (put("cord", "construction", "eta", value=True), "no valid value in its field"),
        (put("input", value="odds"), "no valid value in its field input"),
        (put("class_names", value=["a"]), "no valid value in its field class_names"),
        (drop("calibrator", "fitted"), "no valid value in its field calibrator.fitted"),
        (put("calibrator", "params", "fit", value=1), "no valid value in its field calib"),
        (put("calibrator", "fitted", "__class__", value=1), "no valid value in its field calib"),
        (no_tensor, "cannot be made a working model"),
        (lambda content, body: '{"cord": ' + "[" * 100_000, "has a damaged field body"),
        (lambda content, body: '{"cord": NaN}', "has a damaged field body"),
        (lambda content, body: "[]", "no valid value in its field body"),
    ],
)
def test_every_field_is_looked_at(stored: Path, change: object, words: str) -> None:
    rewritten(stored, change)
    with refused("m.safetensors") as caught:
        cordcal.load(stored)
    assert words in str(caught.value)


def test_damage_is_noticed(stored: Path) -> None:
    whole = stored.read_bytes()
    for at in (len(whole) - 3, whole.index(b'\\"n\\": 200') + 8):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        stored.write_bytes(damaged)
        with refused(naming="digest"):
            cordcal.load(stored)


def test_a_file_without_a_digest_is_refused(stored: Path) -> None:
    content, metadata = models._open(stored)
    del metadata["digest"]
    stored.write_bytes(models._encode_safetensors(content, metadata))
    with refused(naming="digest"):
        cordcal.load(stored)


def test_the_same_model_is_the_same_file(stored: Path) -> None:
    model = cordcal.load(stored)
    for name in "ab":
        cordcal.save(model, stored.with_name(name))
    whole = stored.read_bytes()
    assert [stored.with_name(name).read_bytes() for name in "ab"] == [whole, whole]
    # The order of the metadata is that of no hash.
    header = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])
    assert list(header) == sorted(header)
    assert list(header["__metadata__"]) == sorted(header["__metadata__"])


def test_a_calibrator_alone_can_be_looked_at(stored: Path) -> None:
    cordcal.save(cordcal.load(stored).calibrator_, stored)
    assert cordcal.files.inspect(stored)["calibration_rows"] is None
