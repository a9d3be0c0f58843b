"""Remote addresses are refused with one sentence, and nothing is made in their name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

S3 = "s3://bucket/scores.parquet"


@pytest.fixture
def folder(tmp_path: Path, logits: np.ndarray, labels: np.ndarray) -> Path:
    np.savez(tmp_path / "s.npz", logits=logits, labels=labels)
    (tmp_path / "parts").mkdir()
    np.save(tmp_path / "parts/1.npy", logits)
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        ("info", S3),
        ("fit", S3, "--output", "m2.safetensors"),
        ("fit", "s.npz", "--output", "gs://bucket/m.safetensors"),
        ("apply", "m.safetensors", "s3://bucket/*.parquet", "--output", "o.csv"),
        ("apply", "m.safetensors", "s.npz", "--output", S3),
        ("apply", "m.safetensors", "parts", "--output", "s3://bucket/out"),
        ("apply", "https://example.org/m.safetensors", "s.npz", "--output", "o.csv"),
        ("compare", S3),
    ],
)
def test_a_remote_address(call, folder: Path, command: tuple[str, ...]) -> None:
    assert call("fit", "s.npz", "--calibrator", "ts", "--output", "m.safetensors")[0] == 0
    before = sorted(path.name for path in folder.iterdir())
    code, _, errors = call(*command)
    assert code == 2
    assert "is a remote address" in errors
    assert "copy the files to this machine, or mount the storage" in errors
    assert sorted(path.name for path in folder.iterdir()) == before
