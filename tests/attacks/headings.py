"""CSV files with odd headings, quotes and line ends: as many rows come out as went in, or none."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

import cordcal
from attacks.promises import Rng, command, hold, logits_and_labels, untouched

ROWS = 12
TEXTS = ("plain", "two, cells", 'a "word"', "two\nlines", "", "42", "0.5", "\r\n", "é; ü\t")


def trial(rng: Rng, folder: Path) -> int:
    """Write a table in an odd way and apply a model to it, whole or in parts."""
    classes = int(rng.integers(2, 5))
    kind = str(rng.choice(["logits", "probabilities"]))
    scores = scores_of(rng, kind, classes)
    model = folder / "model.safetensors"
    sound, labels = logits_and_labels(np.random.default_rng(0), 100, classes)
    if kind == "probabilities":
        sound = np.exp(sound) / np.exp(sound).sum(axis=1, keepdims=True)
    cordcal.save(cordcal.PreservingCalibrator("ts", input=kind).fit(sound, labels), model)
    path = folder / "scores.csv"
    path.write_bytes(table(rng, scores))
    output = folder / "out.npz"
    with untouched(folder, output.name):
        options = ("--input", kind)
        done = command("apply", model, path, "--output", output, *options)
        if done.code == 0:
            # Only what was read in full may be written.
            prediction = np.load(output)["repaired"].argmax(axis=1)
            hold(len(prediction) == ROWS, f"{len(prediction)} rows of {ROWS}")
            hold((prediction == scores.argmax(axis=1)).all(), "the rows are mixed up")
        command("info", path)
    return 1


def scores_of(rng: Rng, kind: str, classes: int) -> np.ndarray:
    """Return scores, some of them the one-hot rows that trees give."""
    logits = np.round(3.0 * rng.normal(size=(ROWS, classes)), 3) + 0.0001
    if kind == "logits":
        return logits
    result = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    sure = rng.random(ROWS) < rng.choice([0.0, 0.5])
    result[sure] = np.eye(classes)[result[sure].argmax(axis=1)]
    return result


def table(rng: Rng, scores: np.ndarray) -> bytes:
    """Return the rows as CSV, under headings of some sort or none."""
    classes = scores.shape[1]
    headings = {
        "words": [f"c{at}" for at in range(classes)],
        "positions": [str(at) for at in range(classes)],
        "numbers": [str(at) for at in 10 + rng.permutation(classes)],
        "odd": [("nan", "a,b", "1_0", 'say "x"', "two\nlines")[at] for at in range(classes)],
        "none": None,
    }[str(rng.choice(["words", "positions", "numbers", "odd", "none"]))]
    style = str(rng.choice([".17g", "repr"]))
    rows = [
        [format(float(cell), style) if style != "repr" else repr(float(cell)) for cell in row]
        for row in scores
    ]
    extra = str(rng.choice(["nothing", "index", "text"]))
    place = int(rng.integers(classes + 1))
    if extra == "index":
        rows = [[str(at), *row] for at, row in enumerate(rows)]
        headings = None if headings is None else ["", *headings]
    elif extra == "text" and headings is not None:
        for row in rows:
            row.insert(place, str(rng.choice(TEXTS)))
        headings = [*headings[:place], "note", *headings[place:]]
    end = str(rng.choice(["\n", "\r\n", "\r"]))
    written = io.StringIO(newline="")
    quoting = csv.QUOTE_ALL if rng.random() < 0.2 else csv.QUOTE_MINIMAL
    writer = csv.writer(
        written, delimiter=str(rng.choice([",", ";", "\t"])), lineterminator=end, quoting=quoting
    )
    writer.writerows(rows if headings is None else [headings, *rows])
    encoding = "utf-8-sig" if rng.random() < 0.2 else "utf-8"
    return stray(rng, written.getvalue(), end).encode(encoding)


def stray(rng: Rng, text: str, end: str) -> str:
    """Put quotes where cells begin or end, or leave the text as it is."""
    if rng.random() < 0.5:
        return text
    lines = text.split(end)
    for at in rng.integers(len(lines), size=int(rng.integers(1, 4))):
        line = lines[at]
        edges = [0, len(line), *(i + 1 for i, character in enumerate(line) if character in ",;\t")]
        edge = int(rng.choice(edges))
        lines[at] = f'{line[:edge]}"{line[edge:]}'
    return end.join(lines)
