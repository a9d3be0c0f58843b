"""Hostile models: a sentence on loading, or reports that keep every prediction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

import cordcal
from attacks.promises import Rng, command, damaged, hold, logits_and_labels, strictly_top, untouched

CLASSES = 4
KEYS = ("ts", "vs", "ms", "irova", "ets")
HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 3, 2**70, 1e308, -1e-320, "", "x\x1b[2J", "probabilities", [], [1, [2]],
    {}, {"a": {}}, [0.5] * 4, "__import__('os')",
)  # fmt: skip
NUMBERS = (np.nan, np.inf, -np.inf, 1e308, -1e308, 0.0, 1e-320)


def trial(rng: Rng, folder: Path) -> int:
    """Change a model file's bytes, metadata or tensors, and use it."""
    logits, labels = logits_and_labels(rng, 120, CLASSES)
    path = folder / "model.safetensors"
    model = cordcal.PreservingCalibrator(str(rng.choice(KEYS)), preserve=int(rng.integers(1, 3)))
    cordcal.save(model.fit(np.abs(logits), labels), path)
    rewrite = [as_bytes, as_metadata, as_tensors][int(rng.integers(3))]
    rewrite(path, rng)
    scores = np.abs(logits[:50]).astype(np.float32)
    np.save(folder / "scores.npy", scores)
    with untouched(folder, "out.npy"):
        command("info", path)
        done = command("apply", path, folder / "scores.npy", "--output", folder / "out.npy")
    if done.code == 0:
        report = np.load(folder / "out.npy")
        hold(strictly_top(report, scores.argmax(axis=1)), "a hostile model changed a prediction")
    return 1


def as_bytes(path: Path, rng: Rng) -> None:
    path.write_bytes(damaged(path.read_bytes(), rng))


def as_metadata(path: Path, rng: Rng) -> None:
    """Change one field, at any depth, and leave the digest out, as an old file would."""
    stored, metadata = opened(path)
    body = json.loads(metadata["body"])
    places = list(fields(body))
    owner, name = places[int(rng.integers(len(places)))]
    if rng.random() < 0.3:
        del owner[name]
    else:
        owner[name] = HOSTILE[int(rng.integers(len(HOSTILE)))]
    save_file(stored, path, {**metadata, "body": json.dumps(body)})


def as_tensors(path: Path, rng: Rng) -> None:
    """Drop, reshape or spoil one tensor, and leave the digest out."""
    stored, metadata = opened(path)
    name = sorted(stored)[int(rng.integers(len(stored)))]
    values = stored[name]
    match int(rng.integers(4)):
        case 0:
            del stored[name]
        case 1:
            stored[name] = np.repeat(values.reshape(-1), 2)
        case 2:
            stored[name] = values.astype(np.float32)
        case 3 if values.size and values.dtype.kind == "f":
            spoiled = values.copy().reshape(-1)
            spoiled[int(rng.integers(spoiled.size))] = rng.choice(NUMBERS)
            stored[name] = spoiled.reshape(values.shape)
    save_file(stored, path, metadata)


def opened(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return a model's tensors, and its metadata without the digest."""
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    metadata = dict(header["__metadata__"])
    metadata.pop("digest", None)
    return load_file(path), metadata


def fields(value: Any) -> list[tuple[Any, Any]]:
    """Return the place of each field: what holds it, and its name there."""
    if not isinstance(value, dict | list):
        return []
    names = list(value) if isinstance(value, dict) else list(range(len(value)))
    inner = [place for name in names for place in fields(value[name])]
    return [(value, name) for name in names] + inner
