"""Parts with differing schemas and orders: every row under its own names, or a sentence."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import cordcal
from attacks.promises import Rng, command, hold, logits_and_labels

CLASSES = ("ant", "bee", "cat", "dove")
INPUTS = ("csv", "jsonl", "parquet", "feather")
OUTPUTS = ("csv", "jsonl", "parquet", "feather")
PREFIXES = ("", "logit_")
# What becomes of a part's columns, the harmless twice as often.
CHANGES = ("none", "none", "permute", "permute", "rename", "drop", "add", "other", "type", "less")


def trial(rng: Rng, folder: Path) -> int:
    """Apply a model to parts, into a folder or into one file, and look at every row."""
    prefix, kind = str(rng.choice(PREFIXES)), str(rng.choice(INPUTS))
    model = folder / "model.safetensors"
    fit(model, prefix, folder)
    written: dict[str, dict[str, Any]] = {}
    for at in range(int(rng.integers(2, 5))):
        write_part(rng, folder / "in" / f"{at}.{kind}", prefix, written, at)
    together = rng.random() < 0.6
    output = folder / (f"out.{rng.choice(OUTPUTS)}" if together else "out")
    explicit = ("--columns", f"{prefix}*") if prefix and rng.random() < 0.5 else ()
    # A list is read in its own order; without one the trial is what its number always was.
    source = sorted((folder / "in").iterdir(), reverse=True) if len(written) % 3 == 0 else ()
    done = command("apply", model, *(source or [folder / "in"]), *explicit, "--output", output)
    if done.code:
        # Of a folder, the parts before the one that is refused may be there.
        hold(not (together and output.exists()), "an output and an error")
        return 1
    files = [output] if together else sorted(output.glob("[0-9]*"))
    rows = [row for file in files for row in rows_of(file)]
    hold(len(rows) == len(written), f"{len(rows)} rows of {len(written)}")
    for row in rows:
        check_row(row, written[str(row["key"])])
    return 1


def fit(model: Path, prefix: str, folder: Path) -> None:
    """Write a model that knows its classes, and its pattern where there is one."""
    scores, labels = logits_and_labels(np.random.default_rng(0), 100, len(CLASSES))
    path = folder / "cal.csv"
    head = ",".join([*(prefix + name for name in CLASSES), "label"])
    np.savetxt(path, np.column_stack([scores, labels]), delimiter=",", header=head, comments="")
    pattern = ("--columns", f"{prefix}*" if prefix else ",".join(CLASSES))
    done = command("fit", path, *pattern, "--calibrator", "ts", "--output", model)
    hold(done.code == 0 and cordcal.load(model).class_names is not None, f"no model: {done.err}")


def write_part(rng: Rng, path: Path, prefix: str, written: dict[str, Any], part: int) -> None:
    """Write a part, changed at random, and remember each of its rows by its key."""
    path.parent.mkdir(exist_ok=True)
    names, change = list(CLASSES), str(rng.choice(CHANGES))
    if change == "permute":
        names = rng.permutation(names).tolist()
    elif change == "rename":
        names[int(rng.integers(len(names)))] = "wolf"
    elif change == "drop":
        names.pop(int(rng.integers(len(names))))
    elif change == "add":
        names.insert(int(rng.integers(len(names))), "wolf")
    others = {"key": str, "site": str, "count": int}
    if change == "other":
        others = {"site": str, "count": int, "key": str, "more": str}
    elif change == "less":
        del others["site"]
    elif change == "type":
        others["count"] = float if rng.random() < 0.5 else np.int32
    elif rng.random() < 0.3:
        others = dict(reversed(others.items()))
    rows = []
    for at in range(int(rng.integers(1, 30))):
        scores = dict(zip(names, rng.normal(size=len(names)).tolist(), strict=True))
        cells = {"key": f"{part}-{at}", "site": f"s{part}", "count": 3 * at + part, "more": "x"}
        passed_through = {name: others[name](cells[name]) for name in others}
        written[f"{part}-{at}"] = {"scores": scores, "others": passed_through}
        rows.append({**passed_through, **{prefix + name: score for name, score in scores.items()}})
    write_rows(path, rows)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows in the format that the suffix names."""
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".jsonl":
        plain = [{key: _plain(value) for key, value in row.items()} for row in rows]
        path.write_text("".join(json.dumps(row) + "\n" for row in plain))
    else:
        import pyarrow
        from pyarrow import feather, parquet

        columns = {key: [row[key] for row in rows] for key in rows[0]}
        arrays = {
            key: np.array(values) if isinstance(values[0], np.generic) else values
            for key, values in columns.items()
        }
        table = pyarrow.table(arrays)
        if path.suffix == ".parquet":
            parquet.write_table(table, path)
        else:
            feather.write_feather(table, path)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """Read what was written with somebody else's reader."""
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            yield from csv.DictReader(file)
    elif path.suffix == ".jsonl":
        yield from map(json.loads, path.read_text().splitlines())
    else:
        from pyarrow import feather, parquet

        read = parquet.read_table if path.suffix == ".parquet" else feather.read_table
        yield from read(path).to_pylist()


def check_row(row: dict[str, Any], written: dict[str, Any]) -> None:
    """Ask that a row has its own prediction, under its own name, and its other columns."""
    scores = written["scores"]
    hold(set(CLASSES) <= scores.keys(), f"{row} has no score of every class")
    top = max(CLASSES, key=lambda name: scores[name])
    repaired = {name: float(row[f"p_{name}"]) for name in CLASSES}
    hold(max(CLASSES, key=repaired.__getitem__) == top, f"{row} is not {top}")
    hold(row["prediction_name"] == top, f"{row} decides otherwise")
    for name, value in written["others"].items():
        own = float(row[name]) if name == "count" else row[name]
        hold(own == value, f"{name} is {row[name]!r}, not {value!r}")
