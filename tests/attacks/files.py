"""Damaged files of every format: a sentence or a result, and no other file touched."""

from __future__ import annotations

import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import cordcal
from attacks.promises import Rng, command, damaged, hold, logits_and_labels, strictly_top, untouched

ROWS, CLASSES = 40, 3
FORMATS = ("npz", "npy", "csv", "parquet", "feather", "jsonl", "h5", "pt")
NEEDS = {"h5": "h5py", "pt": "torch"}
OUTPUTS = ("npz", "npy", "csv", "parquet", "feather", "jsonl")


def trial(rng: Rng, folder: Path) -> int:
    """Damage a file and give it to a command that reads such files."""
    kind = str(rng.choice(FORMATS))
    if kind in NEEDS and find_spec(NEEDS[kind]) is None:
        return 0
    path = write(folder, kind, rng)
    path.write_bytes(damaged(path.read_bytes(), rng))
    model = folder / "model.safetensors"
    sound = logits_and_labels(np.random.default_rng(0), 100, CLASSES)
    cordcal.save(cordcal.PreservingCalibrator("ts").fit(*sound), model)
    output = folder / ("out." + str(rng.choice(OUTPUTS)))
    with untouched(folder, output.name, "fitted.safetensors"):
        match int(rng.integers(4)):
            case 0:
                command("info", path)
            case 1:
                command("audit", "--original", path, "--direct", path)
            case 2:
                command(
                    "fit", path, "--calibrator", "ts", "--output", folder / "fitted.safetensors"
                )
            case 3:
                skip = ("--on-error", "skip") if rng.random() < 0.5 else ()
                done = command("apply", model, path, "--output", output, *skip)
                hold(output.exists() == (done.code == 0), "an output and an error, or neither")
                if done.code == 0:
                    check_output(output)
    return 1


def import_formats() -> None:
    """Import the libraries of all formats, which do not count as part of a trial."""
    for module in ("pyarrow.feather", "pyarrow.parquet", *NEEDS.values()):
        if find_spec(module) is not None:
            import_module(module)


def write(folder: Path, kind: str, rng: Rng) -> Path:
    """Write scores and labels as a sound file."""
    logits, labels = logits_and_labels(rng, ROWS, CLASSES)
    path = folder / f"scores.{kind}"
    if kind == "npy":
        np.save(path, logits)
    elif kind == "npz":
        save = np.savez_compressed if rng.random() < 0.5 else np.savez
        save(path, logits=logits, labels=labels, class_names=np.array(["a", "b", "c"]))
    elif kind == "csv":
        head = "p_a,p_b,p_c,label" if rng.random() < 0.5 else ""
        table = np.column_stack([logits, labels])
        np.savetxt(path, table, delimiter=",", fmt="%.6g", header=head, comments="")
    elif kind == "jsonl":
        rows = (
            {"id": at, "logits": row.tolist(), "label": int(label)}
            for at, (row, label) in enumerate(zip(logits, labels, strict=True))
        )
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif kind == "h5":
        import h5py

        with h5py.File(path, "w") as file:
            file["logits"], file["labels"] = logits, labels
            file["class_names"] = ["a", "b", "c"]
    elif kind == "pt":
        import torch

        tensors = {"logits": torch.tensor(logits), "labels": torch.tensor(labels)}
        torch.save({**tensors, "class_names": ["a", "b", "c"]}, path)
    else:
        write_table(path, logits, labels, rng)
    return path


def write_table(path: Path, logits: np.ndarray, labels: np.ndarray, rng: Rng) -> None:
    """Write a Parquet or Feather file, wide or with lists, and a column of words."""
    import pyarrow
    from pyarrow import feather, parquet

    columns = {f"p_{name}": logits[:, index] for index, name in enumerate("abc")}
    if rng.random() < 0.5:
        columns = {"logits": pyarrow.array(logits.tolist())}
    words = [f"row {index}" for index in range(len(labels))]
    table = pyarrow.table({"key": words, **columns, "label": labels})
    size = int(rng.integers(5, 50))
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=size)
    else:
        packed = str(rng.choice(["uncompressed", "lz4"]))
        feather.write_feather(table, path, compression=packed, chunksize=size)


def check_output(output: Path) -> None:
    """Ask that what was written are reports that keep their predictions."""
    # A damaged label passes through: apply does not read labels.
    result = cordcal.files.open_scores(output, role="repaired").without_labels()
    for batch in result.batches():
        report = np.asarray(batch.values)
        hold(strictly_top(report, report.argmax(axis=1)), f"{output.name} holds no reports")
