"""Names that would steer a terminal: none reaches it, whatever the command says of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from attacks.promises import Rng, command, logits_and_labels, untouched

CLASSES = 3
PIECES = (
    "\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\r", "\b\b", "\u202e", "\u2066", "\x00", "\x7f",
    "[red]", "[/]", "=1+1", "@x", "<b>", "cat", "猫", "%s", "{0}", "\n", "'", '"',
)  # fmt: skip


def trial(rng: Rng, folder: Path) -> int:
    """Give every command the same hostile class names, key and file name."""
    logits, labels = logits_and_labels(rng, 60, CLASSES)
    names = [f"{index}{name(rng)}" for index in range(CLASSES)]
    file = name(rng).replace("/", "").replace("\x00", "") or "scores"
    path = folder / f"{file}.npz"
    keys = {"logits" if rng.random() < 0.5 else f"{name(rng)}.": logits}
    np.savez(path, labels=labels, class_names=np.array(names), **keys)
    made = folder / "model.safetensors"
    with untouched(folder, made.name, "out.csv", "page.html", f"{file}.missing"):
        command("info", path)
        command("fit", path, "--calibrator", "vs", "--output", made, "--columns", next(iter(keys)))
        command("apply", made, path, "--columns", next(iter(keys)), "--output", folder / "out.csv")
        command("info", made)
        command("audit", "--original", path, "--direct", path, "--report", folder / "page.html")
        command("info", folder / f"{file}.missing")
        command("fit", path, "--calibrator", name(rng), "--columns", name(rng))
    return 7


def name(rng: Rng) -> str:
    return "".join(rng.choice(PIECES, int(rng.integers(1, 4))))
