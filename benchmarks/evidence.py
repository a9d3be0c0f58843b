"""Measure the default and its rivals on public classifier outputs.

    python benchmarks/evidence.py measure --data FOLDER --cells CELLS --commit STAMP [--set NAME]
    python benchmarks/evidence.py small   --data FOLDER --cells CELLS --commit STAMP [--set NAME]
    python benchmarks/evidence.py cases   --cells CELLS --commit STAMP
    python benchmarks/evidence.py boosted --data FOLDER --cells CELLS --commit STAMP
    python benchmarks/evidence.py collect --cells CELLS
    python benchmarks/evidence.py render

``docs/results/evidence.toml`` names the files, the splits, the commits and the claims;
``benchmarks/fetch.md`` says where the files come from.  ``measure`` compares outputs on halves of
each set, ``small`` at 30 to 500 calibration rows, ``cases`` on data made for one question each,
``boosted`` the boosted blend where it prefers the likelihood.
Each stores one JSON file per set and seed in ``CELLS/STAMP`` and skips those that are there.  They
use public names only, of this version or of commit 90480f4 (``PYTHONPATH=old/src``), and the
functions below measure both.  ``collect`` writes CSV files to ``docs/results/evidence``; ``render``
writes tables and figures next to them.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import inspect
import json
import os
import time
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import cordcal
from cordcal import PreservingCalibrator as Model

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
STUDY = tomllib.loads((RESULTS / "evidence.toml").read_text("utf-8"))
FLOOR, BINS = 1e-12, 15
# Calibrators that keep predictions by construction.
KEEPING = ("ts", "ets", "mono", "irm", "hts", "ts-tva")
# Commit 90480f4 has one default, which prefers neither; only what the claims compare is measured.
HONEST = "prefer" in inspect.signature(Model).parameters
# Whose certified shares are measured.
ACTING = ("original", "ts", "mono", "blend + cord", "default", "likelihood")
GROUPED = ("original", "ts", "mono", "default", "likelihood")
# What is measured with few rows and on the cases.
FORMER_OPTIONS: dict[str, dict[str, Any]] = {"ts": {"calibrator": "ts"}, "default": {}}
OPTIONS = FORMER_OPTIONS | {
    "mono": {"calibrator": "mono"},
    "sms + cord": {"calibrator": "sms"},
    "blend + cord": {"calibrator": "blend"},
    "likelihood": {"prefer": "likelihood"},
}
SMALL_ROWS = (30, 100, 200, 500)

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, "np.ndarray | None"]


def original_probabilities(scores: np.ndarray, kind: str) -> np.ndarray:
    p = scores.astype(np.float64)
    if kind == "logits":
        p = np.exp(p - p.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def measures_of(p: np.ndarray, labels: np.ndarray, prediction: np.ndarray) -> dict[str, float]:
    """Return the metrics of one output; the same code for every version of cordcal."""
    p = np.asarray(p, dtype=np.float64)
    rows, own = np.arange(len(labels)), p.argmax(axis=1)
    likelihood, top, right = p[rows, labels], p[rows, own], own == labels
    others = p.copy()
    others[rows, own] = -1.0
    # Classes this close count as tied for the second place; ties count in part.
    second = others >= others.max(axis=1, keepdims=True) - 1e-9
    return {
        "nll": -float(np.log(np.maximum(likelihood, FLOOR)).mean()),
        "nll_1e-6": -float(np.log(np.maximum(likelihood, 1e-6)).mean()),
        "brier": float((p**2).sum(axis=1).mean() - 2.0 * likelihood.mean() + 1.0),
        "ece": calibration_error(top, right),
        "classwise": float(
            np.mean([calibration_error(column, labels == k) for k, column in enumerate(p.T)])
        ),
        "gap": float(top.mean() - right.mean()),
        "risk": area_under_risk(top, right),
        "top2": float(np.where(right, 1.0, second[rows, labels] / second.sum(axis=1)).mean()),
        "accuracy": float(right.mean()),
        "tpcr": float((own != prediction).mean()),
        "floored": float((likelihood <= FLOOR).sum()),
    }


def calibration_error(confidence: np.ndarray, right: np.ndarray) -> float:
    """Return the ECE with equal-width bins."""
    places = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = np.bincount(places, confidence - right, minlength=BINS)
    return float(np.abs(gaps).sum() / len(right))


def area_under_risk(confidence: np.ndarray, right: np.ndarray) -> float:
    """Return the mean error rate of the most confident rows; tied rows share their errors."""
    _, tie, count = np.unique(-confidence, return_inverse=True, return_counts=True)
    errors = (np.bincount(tie, ~right) / count)[np.sort(tie)]
    return float((np.cumsum(errors) / np.arange(1, len(errors) + 1)).mean())


class Rows:
    """The rows of a file: scores, labels, kind and groups."""

    def __init__(self, folder: Path, name: str) -> None:
        with np.load(folder / name) as file:
            self.kind = "logits" if "logits" in file else "probabilities"
            self.scores = file["logits" if self.kind == "logits" else "probs"]
            self.labels = file["labels"].astype(int)
            self.groups = file.get("groups")
        (entry,) = (entry for entry in STUDY["file"] if entry["name"] == name)
        if content_digest(self.scores, self.labels) != entry["content"]:
            raise SystemExit(f"{name}: other rows than those of docs/results/evidence.toml")


def content_digest(scores: np.ndarray, labels: np.ndarray) -> str:
    """Return the SHA-256 of the scores and labels, whatever file they are in."""
    digest = hashlib.sha256(np.ascontiguousarray(scores, "<f4").tobytes())
    digest.update(np.ascontiguousarray(labels, "<i8").tobytes())
    return digest.hexdigest()


def split(entry: dict[str, Any], folder: Path, seed: int) -> tuple[Split, str]:
    """Return scores and labels to fit on and to evaluate on, groups of the latter, and the kind."""
    rows = Rows(folder, entry["file"])
    if "evaluation" in entry:
        other = Rows(folder, entry["evaluation"])
        return (rows.scores, rows.labels, other.scores, other.labels, None), rows.kind
    order = np.random.default_rng(seed).permutation(len(rows.labels))
    half = len(order) // 2
    fit = order[:half][: STUDY["max_rows"]]
    test = order[half:][: STUDY["max_evaluation_rows"]]
    groups = None if rows.groups is None else rows.groups[test]
    return (
        (rows.scores[fit], rows.labels[fit], rows.scores[test], rows.labels[test], groups),
        rows.kind,
    )


def outputs_of(kind: str, rows: Split, *, boosted: bool) -> Iterator[tuple[str, Any, float]]:
    """Yield every output: name, probabilities of the evaluation rows, seconds of the fit."""
    fit, labels, test, *_ = rows
    yield "original", original_probabilities(test, kind), 0.0
    for key in KEEPING if HONEST else ("ts",):
        began = time.process_time()
        model = cordcal.calibrators.make(key, input=kind).fit(fit, labels)
        yield key, model.predict_proba(test), time.process_time() - began
    keys = ["blend"]
    if HONEST and fit.shape[1] <= STUDY["max_classes"]["sms"]:
        keys.append("sms")
    if HONEST and boosted:
        keys.append("boosted-blend")
    repaired: dict[str, np.ndarray] = {}
    for key in keys:
        began = time.process_time()
        model = Model(key, input=kind, repair="lift").fit(fit, labels)
        seconds = time.process_time() - began
        yield key, model.direct_proba(test), seconds
        cord = Model(model.calibrator_, input=kind, prefit=True, repair="cord").fit(fit, labels)
        yield f"{key} + cord", cord.predict_proba(test, dtype=np.float64), seconds
        repaired[key] = model.predict_proba(test, dtype=np.float64)
        yield "default" if key == "blend" else f"{key} + lift", repaired[key], seconds
    if HONEST:
        likely = Model(input=kind, prefer="likelihood").fit(fit, labels)
        yield "likelihood", likely.predict_proba(test, dtype=np.float64), 0.0
    if "boosted-blend" in repaired:
        yield "mean of both", (repaired["blend"] + repaired["boosted-blend"]) / 2.0, 0.0


def recommended(kind: str, fit: Any, labels: Any) -> str:
    """Return the option that `compare` recommends on the calibration rows."""
    advice = cordcal.compare(fit, labels, input=kind).recommendation
    if advice.key in (None, "uncalibrated"):
        return "original"
    if advice.is_default:
        return "default"
    suffix = {"direct": "", "repaired": " + cord", "lift": " + lift"}[advice.output]
    return f"{advice.key}{suffix}"


def option(name: str, kind: str, rows: Split) -> np.ndarray:
    """Return the probabilities of an option that `compare` recommends."""
    fit, labels, test, *_ = rows
    key, _, output = name.partition(" + ")
    repair = "lift" if output == "lift" else "cord"
    model = Model(key, input=kind, repair=repair).fit(fit, labels)
    return model.predict_proba(test, dtype=np.float64) if output else model.direct_proba(test)


def certified_shares(
    p: np.ndarray, labels: np.ndarray, prediction: np.ndarray, seed: int
) -> list[dict[str, float]]:
    """Certify on half of the rows; return what goes through in the other half, per error rate."""
    order = np.random.default_rng(seed).permutation(len(labels))
    certify, count = np.array_split(order, 2)
    shares = []
    for error in STUDY["certified_errors"]:
        certificate = cordcal.certify(p[certify], labels[certify], error)
        acted = certificate.accepts(p[count])
        wrong = prediction[count][acted] != labels[count][acted]
        shares.append(
            {"error": error, "share": float(acted.mean()), "wrong": int(wrong.sum())}
            | {"acted": int(acted.sum())}
        )
    return shares


def cell(entry: dict[str, Any], folder: Path, seed: int) -> dict[str, Any]:
    """Measure every output of one set and split."""
    rows, kind = split(entry, folder, seed)
    fit, labels, test, truth, groups = rows
    prediction = test.argmax(axis=1)
    tops = np.sort(test, axis=1)[:, -2:]
    first = seed == STUDY["seeds"][0]
    result: dict[str, Any] = {
        "classes": fit.shape[1],
        "fit_rows": len(labels),
        "evaluation_rows": len(truth),
        "fit_errors": int((fit.argmax(axis=1) != labels).sum()),
        "tied_rows": int((tops[:, 0] == tops[:, 1]).sum()),
        "rows_seen": len({row.tobytes() for row in fit} & {row.tobytes() for row in test}),
        "outputs": {},
        "groups": {},
        "act": {},
    }
    acting = HONEST and len(labels) + len(truth) >= STUDY["min_rows_to_act"]
    boosted = first and fit.shape[1] <= STUDY["max_classes"]["boosted-blend"]
    for name, p, seconds in outputs_of(kind, rows, boosted=boosted):
        result["outputs"][name] = {**measures_of(p, truth, prediction), "seconds": seconds}
        if groups is not None and name in GROUPED:
            for group in np.unique(groups):
                at = np.flatnonzero(groups == group)
                result["groups"].setdefault(str(group), {"rows": len(at)})[name] = {
                    metric: measures_of(p[at], truth[at], prediction[at])[metric]
                    for metric in ("nll", "gap")
                }
        if acting and name in ACTING:
            result["act"][name] = certified_shares(p, truth, prediction, seed)
    if first and HONEST:
        choice = recommended(kind, fit, labels)
        if choice not in result["outputs"]:
            p = option(choice, kind, rows)
            result["outputs"][choice] = {**measures_of(p, truth, prediction), "seconds": 0.0}
        result["recommended"] = choice
    return result


def small_cell(entry: dict[str, Any], folder: Path, seed: int) -> dict[str, Any]:
    """Measure the default with few calibration rows, the first of each split."""
    (fit, labels, test, truth, _), kind = split(entry, folder, seed)
    prediction = test.argmax(axis=1)
    if "evaluation" in entry:
        order = np.random.default_rng(seed).permutation(len(labels))
        fit, labels = fit[order], labels[order]
    result: dict[str, Any] = {}
    for rows in SMALL_ROWS:
        few, few_labels = fit[:rows], labels[:rows]
        outputs = {"original": original_probabilities(test, kind)}
        for name, keywords in (OPTIONS if HONEST else FORMER_OPTIONS).items():
            model = Model(**keywords, input=kind).fit(few, few_labels)
            outputs[name] = model.predict_proba(test, dtype=np.float64)
        result[str(rows)] = {
            "errors": int((few.argmax(axis=1) != few_labels).sum()),
            "outputs": {name: measures_of(p, truth, prediction) for name, p in outputs.items()},
        }
    return {"rows": result}


def boosted_cell(entry: dict[str, Any], folder: Path, seed: int) -> dict[str, Any]:
    """Measure the boosted blend if it prefers the likelihood; `cell` has the other outputs."""
    (fit, labels, test, truth, _), kind = split(entry, folder, seed)
    model = Model("boosted-blend", repair="lift", prefer="likelihood", input=kind)
    p = model.fit(fit, labels).predict_proba(test, dtype=np.float64)
    measured = measures_of(p, truth, test.argmax(axis=1))
    return {"outputs": {"boosted-blend + lift, likelihood": {**measured, "seconds": 0.0}}}


# ---- Data made for one question each

Case = tuple[str, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def calibrated(seed: int) -> Iterator[Case]:
    """Yield a classifier whose probabilities are the truth: labels are drawn from them."""
    rng = np.random.default_rng(seed)
    for classes in (3, 10, 100):
        for rows in (200, 1000, 5000):
            p = original_probabilities(3.0 * rng.normal(size=(rows + 20_000, classes)), "logits")
            labels = (p.cumsum(axis=1) < rng.random((len(p), 1))).sum(axis=1).clip(max=classes - 1)
            name = f"{classes} classes, {rows:,} rows"
            yield name, p[:rows], labels[:rows], p[rows:], labels[rows:]


def tied(seed: int) -> Iterator[Case]:
    """Yield trees and a forest with few leaves, which have few distinct score vectors."""
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.tree import DecisionTreeClassifier

    values, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    train, fit, test = np.array_split(order, 3)
    one_leaf = (labels == 0).astype(int) + 2 * (labels == 1)
    classifiers = {
        "tree of 16 leaves": (DecisionTreeClassifier(max_leaf_nodes=16, random_state=seed), labels),
        "three classes, one with 80 % of the rows": (
            DecisionTreeClassifier(max_leaf_nodes=3, random_state=seed),
            one_leaf,
        ),
        "forest of 5 trees": (
            RandomForestClassifier(5, max_depth=4, random_state=seed),
            labels,
        ),
    }
    for name, (classifier, truth) in classifiers.items():
        classifier.fit(values[train], truth[train])
        fitted, tested = (classifier.predict_proba(values[at]) for at in (fit, test))
        yield name, fitted, truth[fit], tested, truth[test]


def absent(seed: int) -> Iterator[Case]:
    """Yield calibration rows without one of the classes, which new rows have."""
    rng = np.random.default_rng(seed)
    for classes in (3, 10, 30):
        labels = rng.integers(classes, size=1000 + 10_000)
        scores = 3.0 * np.eye(classes)[labels] + 1.5 * rng.normal(size=(len(labels), classes))
        p = original_probabilities(2.0 * scores, "logits")
        fit = np.flatnonzero(labels[:1000] != classes - 1)
        name = f"one of {classes} classes"
        yield name, p[fit], labels[fit], p[1000:], labels[1000:]


CASES: dict[str, Callable[[int], Iterator[Case]]] = {
    "calibrated": calibrated,
    "ties": tied,
    "absent": absent,
}


def case_cell(question: str, seed: int) -> dict[str, Any]:
    """Measure the options on every case of a question."""
    result: dict[str, Any] = {}
    for name, fit, labels, test, truth in CASES[question](seed):
        outputs = {"original": test}
        for key, keywords in OPTIONS.items():
            model = Model(**keywords, input="probabilities").fit(fit, labels)
            outputs[key] = model.predict_proba(test)
        prediction = test.argmax(axis=1)
        result[name] = {key: measures_of(p, truth, prediction) for key, p in outputs.items()}
    return {"cases": result}


# ---- Running and collecting


def run(
    options: argparse.Namespace,
    jobs: Iterable[tuple[str, int, Callable[[], dict[str, Any]]]],
) -> None:
    """Compute and store the cells that are missing."""
    warnings.simplefilter("ignore")
    for name, seed, job in jobs:
        path = options.cells / options.commit / f"{options.step}-{name}-{seed}.json"
        if path.exists() or (options.set and name not in options.set):
            continue
        began = time.process_time()
        result = {"set": name, "seed": seed, **job()}
        result |= {"commit": options.commit, "cpu": time.process_time() - began}
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(result))
        temporary.rename(path)
        print(options.step, name, seed, f"{result['cpu']:.1f} s", flush=True)


def splits() -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the sets and the seeds of their splits; sets that come in two files have one."""
    for entry in STUDY["set"]:
        for seed in STUDY["seeds"][: 1 if "evaluation" in entry else None]:
            yield entry, seed


def jobs_of(options: argparse.Namespace) -> Iterator[tuple[str, int, Callable[[], dict[str, Any]]]]:
    if options.step == "cases":
        for question in CASES:
            for seed in STUDY["seeds"]:
                yield question, seed, lambda q=question, s=seed: case_cell(q, s)
        return
    limits = STUDY["max_classes"]
    compute, classes, seeds = {
        "measure": (cell, np.inf, STUDY["seeds"]),
        "small": (small_cell, limits["small"], STUDY["seeds"]),
        "boosted": (boosted_cell, limits["boosted-blend"], STUDY["seeds"][:1]),
    }[options.step]
    for entry, seed in splits():
        if entry["classes"] <= classes and seed in seeds:
            yield entry["name"], seed, lambda e=entry, s=seed: compute(e, options.data, s)


# What is kept of the earlier commits: all that the claims compare.
CLAIMED = ("outputs", "act", "small")


def collect(options: argparse.Namespace) -> None:
    """Write the cells of each commit as CSV files."""
    present = STUDY["present"]
    for commit in (*STUDY["commits"], present):
        cells = [
            json.loads(path.read_text()) for path in sorted((options.cells / commit).glob("*.json"))
        ]
        order = {entry["name"]: place for place, entry in enumerate(STUDY["set"])}
        cells.sort(key=lambda cell: (order.get(cell["set"], 0), cell["seed"]))
        full = [cell for cell in cells if "outputs" in cell]
        for name, lines in {
            "outputs": (
                {"set": cell["set"], "seed": cell["seed"], "output": output}
                | {"recommended": int(cell.get("recommended") == output), **rounded(measured)}
                for cell in full
                for output, measured in cell["outputs"].items()
            ),
            "sets": ({key: cell[key] for key in FACTS} for cell in full if "act" in cell),
            "groups": (
                {"set": cell["set"], "seed": cell["seed"], "group": group}
                | {"rows": measured["rows"], "output": output, **rounded(measured[output])}
                for cell in full
                for group, measured in cell.get("groups", {}).items()
                for output in measured
                if output != "rows"
            ),
            "act": (
                {"set": cell["set"], "seed": cell["seed"], "output": output, **rounded(share)}
                for cell in full
                for output, shares in cell.get("act", {}).items()
                for share in shares
            ),
            "small": (
                {"set": cell["set"], "seed": cell["seed"], "rows": rows}
                | {"errors": measured["errors"], "output": output, **rounded(values)}
                for cell in cells
                if "rows" in cell
                for rows, measured in cell["rows"].items()
                for output, values in measured["outputs"].items()
            ),
            "cases": (
                {"question": cell["set"], "seed": cell["seed"], "case": case}
                | {"output": output, **rounded(measured)}
                for cell in cells
                if "cases" in cell
                for case, outputs in cell["cases"].items()
                for output, measured in outputs.items()
            ),
        }.items():
            if commit != present and name not in CLAIMED:
                continue
            write_csv(RESULTS / "evidence" / f"{commit}-{name}.csv", list(lines))


FACTS = (
    "set", "seed", "classes", "fit_rows", "evaluation_rows", "fit_errors", "tied_rows",
    "rows_seen", "cpu",
)  # fmt: skip


def rounded(values: dict[str, float]) -> dict[str, str]:
    return {name: f"{value:.5g}" for name, value in values.items()}


def write_csv(path: Path, lines: list[dict[str, Any]]) -> None:
    if not lines:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "step", choices=["measure", "small", "cases", "boosted", "collect", "render"]
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cells", type=Path)
    parser.add_argument("--commit", default="")
    parser.add_argument("--set", action="append", help="only this set")
    options = parser.parse_args()
    if options.step == "render":
        from evidence_tables import render

        render(STUDY, RESULTS / "evidence")
    elif options.step == "collect":
        collect(options)
    else:
        run(options, jobs_of(options))


if __name__ == "__main__":
    main()
