"""Measure the default and its rivals on files that were never used to build it.

    python benchmarks/fresh.py measure --data FOLDER --cells CELLS --commit STAMP [--set NAME ...]
    python benchmarks/fresh.py collect --cells CELLS --commit STAMP
    python benchmarks/fresh.py render

``docs/results/fresh.toml`` names the files, the splits and the claims.  ``measure`` stores one
JSON file per set and seed in ``CELLS/STAMP`` and skips those that are there.  It uses public names
only, of this version or of commit 6090558 (``PYTHONPATH=old/src``), and measures both with the
functions below.  ``collect`` writes ``docs/results/fresh/STAMP.csv``; ``render`` writes the tables
next to it.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
import tomllib
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import cordcal
from fresh_tables import MEASURES, render

HERE = Path(__file__).resolve().parents[1] / "docs" / "results"
STUDY = tomllib.loads((HERE / "fresh.toml").read_text("utf-8"))
FLOOR, BINS = 1e-12, 15
# Calibrators that keep predictions by construction, and those that are repaired.
KEEPING = ("ts", "ets", "mono")
REPAIRED = ("sms", "boost", "boosted-blend")
PAPERS = ("vs", "svs", "ms", "sms", "dir-odir", "irova", "irova-ts")
# Since commit 6090558 some public names changed.
Model = getattr(cordcal, "PreservingCalibrator", None) or cordcal.Preserved
COMPARED = "default" if hasattr(cordcal, "PreservingCalibrator") else "all"
REPAIR_OF = {"repaired": "cord", "lift": "lift", "direct": "cord"}


def original_probabilities(scores: np.ndarray, kind: str) -> np.ndarray:
    p = scores.astype(np.float64)
    if kind == "logits":
        p = np.exp(p - p.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def measures_of(p: np.ndarray, labels: np.ndarray, prediction: np.ndarray) -> dict[str, float]:
    """Return the metrics; the same code for every version of cordcal."""
    p = np.asarray(p, dtype=np.float64)
    rows = np.arange(len(labels))
    likelihood, top = p[rows, labels], p.max(axis=1)
    right = p.argmax(axis=1) == labels
    places = np.minimum((top * BINS).astype(int), BINS - 1)
    gaps = np.bincount(places, top - right, minlength=BINS)
    return {
        "nll": -float(np.log(np.maximum(likelihood, FLOOR)).mean()),
        "nll_1e-6": -float(np.log(np.maximum(likelihood, 1e-6)).mean()),
        "brier": float((p**2).sum(axis=1).mean() - 2.0 * likelihood.mean() + 1.0),
        "ece": float(np.abs(gaps).sum() / len(labels)),
        "accuracy": float(right.mean()),
        "tpcr": float((p.argmax(axis=1) != prediction).mean()),
        "floored": float((likelihood <= FLOOR).sum()),
    }


class Rows:
    """The rows of a file: scores, labels, kind and groups."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as file:
            self.kind = "logits" if "logits" in file else "probabilities"
            self.scores = file["logits" if self.kind == "logits" else "probs"]
            self.labels = file["labels"].astype(int)
            self.groups = file.get("groups")


def split(entry: dict[str, Any], folder: Path, seed: int) -> tuple[Any, ...]:
    """Return scores, labels and groups to fit on and to evaluate on, and their kind."""
    rows = Rows(folder / entry["file"])
    if "evaluation" in entry:
        other = Rows(folder / entry["evaluation"])
        return rows.scores, rows.labels, other.scores, other.labels, None, rows.kind
    order = np.random.default_rng(seed).permutation(len(rows.labels))
    half = len(order) // 2
    fit = order[:half][: STUDY["max_rows"]]
    test = order[half:][: STUDY["max_evaluation_rows"]]
    groups = None if rows.groups is None else rows.groups[test]
    return (
        rows.scores[fit],
        rows.labels[fit],
        rows.scores[test],
        rows.labels[test],
        groups,
        rows.kind,
    )


def with_cord(fitted: Any, kind: str, scores: np.ndarray, labels: np.ndarray) -> Any:
    return Model(fitted, input=kind, prefit=True, repair="cord").fit(scores, labels)


def outputs_of(
    entry: dict[str, Any], kind: str, fit: Any, labels: Any, test: Any, *, first: bool
) -> Any:
    """Yield every output: name, probabilities of the evaluation rows, seconds of the fit."""
    classes = fit.shape[1]
    known = cordcal.calibrators.available()
    yield "original", original_probabilities(test, kind), 0.0
    for key in KEEPING:
        began = time.process_time()
        model = cordcal.calibrators.make(key, input=kind).fit(fit, labels)
        yield key, model.predict_proba(test), time.process_time() - began
    models = {"blend": Model(input=kind)}
    for key in REPAIRED:
        limit = STUDY["max_classes"].get(key, classes)
        if key in known and classes <= limit and (first or key not in STUDY["first_seed_only"]):
            models[key] = Model(key, input=kind, repair="lift")
    for key, model in models.items():
        began = time.process_time()
        model.fit(fit, labels)
        seconds = time.process_time() - began
        yield key, model.direct_proba(test), seconds
        cord = with_cord(model.calibrator_, kind, fit, labels)
        yield f"{key} + cord", cord.predict_proba(test, dtype=np.float64), seconds
        yield f"{key} + lift", model.predict_proba(test, dtype=np.float64), seconds
    if entry.get("zoo"):
        for key in (key for key in PAPERS if key != "sms"):
            began = time.process_time()
            model = Model(key, input=kind, repair="cord").fit(fit, labels)
            seconds = time.process_time() - began
            yield key, model.direct_proba(test), seconds
            yield f"{key} + cord", model.predict_proba(test, dtype=np.float64), seconds


def recommended(kind: str, fit: Any, labels: Any) -> str:
    """Return the option that `compare` recommends on the calibration rows."""
    advice = cordcal.compare(fit, labels, COMPARED, input=kind).recommendation
    output = advice.output if hasattr(advice, "output") else advice.report
    if advice.key in (None, "uncalibrated"):
        return "original"
    return advice.key if output == "direct" else f"{advice.key} + {REPAIR_OF[output]}"


def cell(entry: dict[str, Any], folder: Path, seed: int) -> dict[str, Any]:
    """Measure every output of one set and split."""
    fit, labels, test, truth, groups, kind = split(entry, folder, seed)
    prediction = test.argmax(axis=1)
    tops = np.sort(test, axis=1)[:, -2:]
    result: dict[str, Any] = {
        "set": entry["name"],
        "seed": seed,
        "classes": fit.shape[1],
        "fit_rows": len(labels),
        "evaluation_rows": len(truth),
        "fit_errors": int((fit.argmax(axis=1) != labels).sum()),
        "tied_rows": int((tops[:, 0] == tops[:, 1]).sum()),
        "rows_seen": len({row.tobytes() for row in fit} & {row.tobytes() for row in test}),
        "outputs": {},
        "groups": {},
    }
    first = seed == STUDY["seeds"][0]
    for name, p, seconds in outputs_of(entry, kind, fit, labels, test, first=first):
        measured = measures_of(p, truth, prediction)
        result["outputs"][name] = {**measured, "seconds": seconds}
        for group in () if groups is None else np.unique(groups):
            at = np.flatnonzero(groups == group)
            result["groups"].setdefault(str(group), {"rows": len(at)})[name] = {
                metric: measures_of(p[at], truth[at], prediction[at])[metric]
                for metric in ("nll", "brier", "accuracy")
            }
    if first:
        began = time.process_time()
        option = recommended(kind, fit, labels)
        seconds = time.process_time() - began
        if option not in result["outputs"]:
            key, _, repair = option.partition(" + ")
            model = Model(key, input=kind, repair=repair or "cord").fit(fit, labels)
            p = model.predict_proba(test, dtype=np.float64) if repair else model.direct_proba(test)
            result["outputs"][option] = {**measures_of(p, truth, prediction), "seconds": 0.0}
        result |= {"recommended": option, "compare_seconds": seconds}
    return result


def measure(options: argparse.Namespace) -> None:
    warnings.simplefilter("ignore")
    for entry in STUDY["set"]:
        if options.set and entry["name"] not in options.set:
            continue
        for seed in STUDY["seeds"][: 1 if "evaluation" in entry else None]:
            path = options.cells / options.commit / f"{entry['name']}-{seed}.json"
            if path.exists():
                continue
            began = time.process_time()
            result = cell(entry, options.data, seed)
            result |= {"commit": options.commit, "cpu": time.process_time() - began}
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(result))
            losses = {
                name: round(measured["nll"], 4) for name, measured in result["outputs"].items()
            }
            print(entry["name"], seed, f"{result['cpu']:.1f} s", losses, flush=True)


def collect(options: argparse.Namespace) -> None:
    """Write the cells of one commit as CSV: outputs, groups, and facts of the rows."""
    cells = [
        json.loads((options.cells / options.commit / f"{entry['name']}-{seed}.json").read_text())
        for entry in STUDY["set"]
        for seed in STUDY["seeds"][: 1 if "evaluation" in entry else None]
    ]
    lines = [
        {
            "set": cell["set"],
            "seed": cell["seed"],
            "output": name,
            "recommended": int(cell.get("recommended") == name),
            **{metric: f"{measured[metric]:.6g}" for metric in MEASURES},
        }
        for cell in cells
        for name, measured in cell["outputs"].items()
    ]
    write_csv(HERE / "fresh" / f"{options.commit}.csv", lines)
    facts = ("fit_rows", "evaluation_rows", "fit_errors", "tied_rows", "rows_seen", "cpu")
    lines = [{name: cell[name] for name in ("set", "seed", "classes", *facts)} for cell in cells]
    write_csv(HERE / "fresh" / f"{options.commit}-rows.csv", lines)
    lines = [
        {
            "set": cell["set"],
            "seed": cell["seed"],
            "group": group,
            "rows": measured["rows"],
            "output": name,
            **{metric: f"{value:.6g}" for metric, value in measured[name].items()},
        }
        for cell in cells
        for group, measured in cell["groups"].items()
        for name in measured
        if name in ("original", "ts", "mono", "sms", "blend", "blend + lift")
    ]
    write_csv(HERE / "fresh" / f"{options.commit}-groups.csv", lines)


def write_csv(path: Path, lines: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=["measure", "collect", "render"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cells", type=Path)
    parser.add_argument("--commit", default="")
    parser.add_argument("--set", action="append")
    options = parser.parse_args()
    if options.step == "render":
        render(STUDY, HERE / "fresh")
    else:
        {"measure": measure, "collect": collect}[options.step](options)


if __name__ == "__main__":
    main()
