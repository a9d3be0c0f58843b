"""Model files: whole round trips, and clear words about files that are not models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import cordcal


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


def test_given_decisions_are_remembered(pair: tuple, tmp_path: Path) -> None:
    cord = cordcal.CORD().fit(*pair, decision=pair[0].argmin(axis=1))
    cordcal.save(cord, tmp_path / "m")
    with pytest.raises(ValueError, match="decision is missing"):
        cordcal.load(tmp_path / "m").transform(*pair)


def test_calibrator_and_preserved(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, 200)
    logits = (2.0 * np.eye(3)[labels] + rng.normal(size=(200, 3))).astype(np.float32)
    model = cordcal.Preserved("irova", class_names=["a", "b", "c"]).fit(logits, labels)
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
        with pytest.raises(ValueError, match=r"cord\.safetensors is not a whole safetensors file"):
            cordcal.load(path)
    for other in (b"", whole[:5], b"PK\x03\x04" + bytes(100), b"a,b\n0.5,0.5\n"):
        path.write_bytes(other)
        with pytest.raises(ValueError, match=r"cord\.safetensors is no model file; pass one that"):
            cordcal.load(path)
    with pytest.raises(IsADirectoryError, match="is a folder; name the model file in it"):
        cordcal.load(tmp_path)
    save_file({"x": np.zeros(2)}, path)
    with pytest.raises(ValueError, match="not a cordcal model"):
        cordcal.load(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": "99"}, "format version 99, this cordcal reads version 1; upgrade"),
        ({"kind": "oracle"}, "holds a 'oracle', which this cordcal does not know"),
    ],
)
def test_files_of_the_future(change: dict, words: str, tmp_path: Path) -> None:
    metadata = {"format": "cordcal model", "version": "1", "kind": "cord", "body": json.dumps({})}
    save_file({"eta": np.zeros(1)}, tmp_path / "m", metadata={**metadata, **change})
    with pytest.raises(ValueError, match=words):
        cordcal.load(tmp_path / "m")
