"""Terminals that cannot show every character: the same exit codes, and data that stay whole."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import numpy as np

from attacks.promises import Rng, hold, logits_and_labels, plain_warnings, untouched
from cordcal.cli import main

CLASSES = 3
ENCODINGS = (
    "ascii", "latin-1", "cp1252", "cp437", "cp1251", "koi8-r", "shift_jis", "gb2312", "euc-kr",
    "utf-8", "utf-16",
)  # fmt: skip
LETTERS = "aä→✓✗−×ßиλ猫🐝é…│─\u0301\u200d\u202e\x1b,\"'="


def trial(rng: Rng, folder: Path) -> int:
    """Print the same results on a terminal of some encoding and on one of UTF-8."""
    logits, labels = logits_and_labels(rng, 60, CLASSES)
    names = [f"{index}{name(rng)}" for index in range(CLASSES)]
    path, made = folder / f"s{name(rng)}.npz", folder / "model.safetensors"
    np.savez(path, logits=logits, labels=labels, class_names=np.array(names))
    encoding = str(rng.choice(ENCODINGS))
    limit = rng.choice(["nll=9", "nll=0", "nonsense=1"])
    commands: list[tuple[object, ...]] = [
        ("fit", path, "--calibrator", "ts", "--output", made, "--force"),
        ("info", path),
        ("info", path, "--json"),
        ("check", path, "--max", limit),
        ("check", path, "--max", limit, "--json"),
        ("audit", "--original", path, "--direct", path, "--verbose"),
        ("apply", made, path),
        ("info", folder / f"{name(rng)}.missing", "--json"),
    ]
    with untouched(folder, made.name):
        for arguments in commands:
            compare(arguments, encoding)
    return len(commands)


def compare(arguments: tuple[object, ...], encoding: str) -> None:
    code, out, err = printed(arguments, encoding)
    expected, whole, _ = printed(arguments, "utf-8")
    what = f"{arguments} on a terminal of {encoding}"
    hold(code == expected, f"{what}: exit code {code} instead of {expected}: {err!r}")
    if arguments[0] == "apply":
        hold(out == whole, f"{what}: other data")
        return
    text = out.decode(encoding)  # fails if this terminal cannot show it
    err.decode(encoding)
    if arguments[-1] == "--json":
        documents = [json.loads(document) for document in (text, whole)]
        for document in documents:
            document.get("facts", {}).pop("date", None)  # of two runs
        hold(documents[0] == documents[1], f"{what}: another document")
    else:
        hold(bool(text) == bool(whole), f"{what}: {text!r}")


def printed(arguments: tuple[object, ...], encoding: str) -> tuple[int, bytes, bytes]:
    """Run a command in this process; return its exit code and what it printed, in bytes."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2)]
    out, err = streams
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), plain_warnings():
        code = main([str(argument) for argument in arguments])
    for stream in streams:
        stream.flush()
    first, second = (stream.buffer.getvalue() for stream in streams)  # type: ignore[attr-defined]
    return code, first, second


def name(rng: Rng) -> str:
    return "".join(rng.choice(list(LETTERS), int(rng.integers(1, 6))))
