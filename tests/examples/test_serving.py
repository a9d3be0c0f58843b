"""The FastAPI script answers one row at a time, from two workers, and says what is wrong."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import cordcal
from documents import ROOT

httpx = pytest.importorskip("httpx")
pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

NAMES = ["ant", "bee", "wasp"]


@pytest.fixture(scope="module")
def model() -> cordcal.PreservingCalibrator:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=300)
    logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(300, 3))
    return cordcal.PreservingCalibrator("vs", class_names=NAMES).fit(logits, labels)


@pytest.fixture(scope="module")
def client(
    model: cordcal.PreservingCalibrator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[object]:
    path: Path = tmp_path_factory.mktemp("served") / "model.safetensors"
    cordcal.save(model, path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "uvicorn", "serve_fastapi:app", "--log-level", "warning"]
    command += ["--workers", "2", "--port", port, "--app-dir", str(ROOT / "examples")]
    server = subprocess.Popen(
        command,
        env={**os.environ, "CORDCAL_MODEL": str(path), "PYTHONPATH": str(ROOT / "src")},
    )
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False
        ) as client:
            _wait_for(client, server)
            yield client
    finally:
        server.terminate()
        server.wait(timeout=30)


def _wait_for(client: object, server: subprocess.Popen) -> None:
    for _ in range(600):
        assert server.poll() is None
        try:
            client.get("/openapi.json")
            return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError("the server does not answer")


def test_one_row(client, model: cordcal.PreservingCalibrator) -> None:
    for scores in np.random.default_rng(1).normal(size=(20, 3)):
        answer = client.post("/predict", json={"scores": scores.tolist()})
        assert answer.status_code == 200
        (expected,) = model.predict_proba(scores[None])
        content = answer.json()
        assert content["prediction"] == NAMES[scores.argmax()]
        assert content["probabilities"] == dict(zip(NAMES, expected.tolist(), strict=True))
        assert content["confidence"] == expected[scores.argmax()]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ('{"scores": [0.5, 0.5]}', "scores has 2 columns but fit saw 3"),
        ('{"scores": [NaN, 0.5, 1]}', "contains NaN"),
        ('{"scores": [Infinity, 0.5, 1]}', "contains +inf"),
        ('{"scores": []}', "scores has"),
    ],
)
def test_a_bad_row_gets_the_reason(client, row: str, sentence: str) -> None:
    answer = client.post("/predict", content=row, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert sentence in answer.json()["detail"]


def test_what_is_no_row_is_refused(client) -> None:
    for row in ({}, {"scores": "x"}, {"scores": [None, 1, 2]}):
        assert client.post("/predict", json=row).status_code == 422
