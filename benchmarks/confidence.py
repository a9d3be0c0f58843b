"""Is the confidence honest, and what does that cost?  The default on stored outputs.

    python benchmarks/confidence.py --data FOLDER [--rows 1000] [--seeds 11 3 29] [--cells F.jsonl]
    python benchmarks/confidence.py --data FOLDER --few [--write F.json] [--against F.json]

Sets of at most 60 classes.  Calibration rows are drawn at random, at most half of a set; up to
5,000 of the others are evaluated.  NLL and Brier are geometric means of ratios to temperature
scaling, the others means; all but these two in percent:

    ECE             15 bins of the confidence in the prediction
    class           classwise ECE
    |c − a|         distance of mean confidence and accuracy
    risk            area under the risk-coverage curve: errors among the most confident rows
    top-2           share of labels among the two most likely classes; ties count in part
    at bound        predictions kept against the evidence
    round(4)        predictions that rounding to four decimals moves

``--few`` compares the log loss by the number of wrong calibration predictions, at 30 to 500 rows,
with what ``--write`` stored of another version.  It prefers the likelihood where a version can
choose, so that figures of versions that always did are comparable.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from pathlib import Path

import numpy as np

import cordcal
from cordcal.metrics import brier, classwise_ece, ece, nll, risk_coverage
from stored import append_cell, read_cells

CLASSES, EVALUATED = 60, 5000
FEW_ROWS = (30, 100, 200, 500)
FEW_SEEDS = (11, 3, 29, 5, 6, 7)
ERRORS = {"none": (0, 0), "1-2": (1, 2), "3-9": (3, 9), "10 or more": (10, 10**9)}
MEASURES = ("nll", "brier", "ece", "class", "|c - a|", "risk", "top-2")
# Two classes this close count as tied.
TIED = 1e-9


def outputs(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray, str]]:
    """Return scores, labels and kind of the sets with few classes, by name."""
    sets = {}
    for path in sorted(folder.glob("*.npz")):
        if "features" in path.name:
            continue
        with np.load(path) as data:
            kind = "logits" if "logits" in data else "probabilities"
            scores = data["logits" if kind == "logits" else "probs"]
            if scores.shape[1] <= CLASSES:
                sets[path.stem] = scores.astype(float), data["labels"].astype(int), kind
    return sets


def split(labels: np.ndarray, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return calibration and evaluation rows."""
    order = np.random.default_rng(seed).permutation(len(labels))
    rows = min(rows, len(labels) // 2)
    return order[:rows], order[rows:][:EVALUATED]


def measured(scores: np.ndarray, labels: np.ndarray, kind: str, rows: int, seed: int) -> dict:
    """Return the measures of every option on one split of one set."""
    fit, test = split(labels, rows, seed)
    x, y, prediction = scores[test], labels[test], scores[test].argmax(axis=1)
    models = {
        "ts": cordcal.PreservingCalibrator("ts", input=kind),
        "mono": cordcal.PreservingCalibrator("mono", input=kind),
        "blend + CORD": cordcal.PreservingCalibrator("blend", input=kind),
        "likelihood": cordcal.PreservingCalibrator(input=kind, prefer="likelihood"),
        "confidence": cordcal.PreservingCalibrator(input=kind),
    }
    cell: dict = {"classes": scores.shape[1], "options": {}}
    for name, model in models.items():
        model.fit(scores[fit], labels[fit])
        probabilities = model.predict_proba(x)
        assert (probabilities.argmax(axis=1) == prediction).all()
        cell["options"][name] = measures(probabilities, prediction, y)
        moved = (probabilities.round(4).argmax(axis=1) != prediction).mean()
        cell["options"][name]["round(4)"] = float(moved)
    construction = models["confidence"].construction_
    cell["at bound"] = construction.n_at_lower / construction.n
    cell["pooled"] = construction.n_pooled / construction.n
    cell["direct"] = nll(models["confidence"].direct_proba(x), y)
    return cell


def measures(
    probabilities: np.ndarray, prediction: np.ndarray, labels: np.ndarray
) -> dict[str, float]:
    """Return the measures of one option."""
    at = np.arange(len(labels))
    confidence, right = probabilities[at, prediction], prediction == labels
    others = probabilities.copy()
    others[at, prediction] = -1.0
    second = others >= others.max(axis=1, keepdims=True) - TIED
    top = np.where(right, 1.0, second[at, labels] / second.sum(axis=1))
    return {
        "nll": float(nll(probabilities, labels)),
        "brier": float(brier(probabilities, labels)),
        "ece": 100 * float(ece(probabilities, labels)),
        "class": 100 * float(classwise_ece(probabilities, labels)),
        "|c - a|": 100 * abs(float(confidence.mean() - right.mean())),
        "risk": 100 * float(risk_coverage(probabilities, labels).aurc),
        "top-2": 100 * float(top.mean()),
    }


def summary(cells: list[dict]) -> None:
    """Print the table, and what honest confidence costs per set."""
    base = [cell["options"]["ts"] for cell in cells]
    print(f"{len({cell['set'] for cell in cells})} sets, {len(cells)} runs")
    print(f"{'':14}" + "".join(f"{name:>9}" for name in (*MEASURES, "round(4)")))
    for option in cells[0]["options"]:
        values = [cell["options"][option] for cell in cells]
        line = ""
        for name in MEASURES:
            column = np.array([value[name] for value in values])
            if name in ("nll", "brier"):
                ratio = np.log(column / [value[name] for value in base])
                line += f"{np.exp(ratio.mean()):9.4f}"
            else:
                line += f"{column.mean():9.2f}"
        moved = 100 * np.mean([value["round(4)"] for value in values])
        print(f"{option:14}{line}{moved:9.3f}")
    print(f"\n{'set':44}{'K':>4}{'at bound':>9}{'pooled':>8}  NLL: honest/likelihood  direct  ECE")
    for name in dict.fromkeys(cell["set"] for cell in cells):
        own = [cell for cell in cells if cell["set"] == name]
        mean = {
            option: np.mean([cell["options"][option]["nll"] for cell in own])
            for option in ("confidence", "likelihood")
        }
        honest, likely = (
            np.mean([cell["options"][option]["ece"] for cell in own]) for option in mean
        )
        bound, pooled, direct = (
            np.mean([cell[key] for cell in own]) for key in ("at bound", "pooled", "direct")
        )
        print(
            f"{name:44}{own[0]['classes']:4}{100 * bound:8.1f}%{100 * pooled:7.1f}%"
            f"{mean['confidence'] / mean['likelihood']:14.3f}{mean['confidence'] / direct:18.3f}"
            f"   {honest:.1f} / {likely:.1f}"
        )


def few_errors(folder: Path, write: Path | None, against: Path | None) -> None:
    """Print the log loss by the number of errors, against another version's."""
    losses: dict[str, tuple[int, float]] = {}
    chooses = "prefer" in cordcal.PreservingCalibrator().get_params()
    options = {"prefer": "likelihood"} if chooses else {}
    for name, (scores, labels, kind) in outputs(folder).items():
        for rows in FEW_ROWS:
            for seed in FEW_SEEDS:
                fit, test = split(labels, rows, seed)
                model = cordcal.PreservingCalibrator(input=kind, **options)
                model.fit(scores[fit], labels[fit])
                errors = int((scores[fit].argmax(axis=1) != labels[fit]).sum())
                loss = float(nll(model.predict_proba(scores[test]), labels[test]))
                losses[f"{name} {rows} {seed}"] = errors, loss
    if write is not None:
        write.write_text(json.dumps(losses), "utf-8")
    if against is None:
        return
    other = json.loads(against.read_text("utf-8"))
    print("errors      runs   mean ratio   worst")
    for name, (low, high) in ERRORS.items():
        ratios = [
            loss / other[key][1] for key, (errors, loss) in losses.items() if low <= errors <= high
        ]
        print(f"{name:10}{len(ratios):6}{np.mean(ratios):12.3f}{np.max(ratios):9.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    folder = os.environ.get("CORDCAL_TEST_DATA")
    parser.add_argument("--data", type=Path, default=folder, required=folder is None)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 3, 29])
    parser.add_argument("--cells", type=Path, help="keep each run in this file, and go on from it")
    parser.add_argument("--few", action="store_true", help="log loss by the number of errors")
    parser.add_argument("--write", type=Path, help="with --few: store the log losses")
    parser.add_argument("--against", type=Path, help="with --few: the log losses to compare with")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.few:
        few_errors(Path(arguments.data), arguments.write, arguments.against)
        return
    cells = read_cells(arguments.cells)
    known = {(cell["set"], cell["rows"], cell["seed"]) for cell in cells}
    for name, (scores, labels, kind) in outputs(Path(arguments.data)).items():
        for seed in arguments.seeds:
            if (name, arguments.rows, seed) not in known:
                cell = measured(scores, labels, kind, arguments.rows, seed)
                cell |= {"set": name, "rows": arguments.rows, "seed": seed}
                append_cell(arguments.cells, cell)
                cells.append(cell)
    summary([cell for cell in cells if cell["rows"] == arguments.rows])


if __name__ == "__main__":
    main()
