"""Measure what following the recommendation of `compare` costs, on rows it has not seen.

Run with ``OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/advice.py FOLDER``.
From each file of scores in the folder it draws ``--rows`` rows.  Half of them fit calibrators,
the other half choose an option, and the remaining rows of the file are unseen.  The regret is
the NLL of the chosen option on the unseen rows minus that of the best option in hindsight.
"The default on all rows" uses both halves to fit, since it has nothing to choose: its regret
can be negative.  Every cell is printed when it is done; ``--cells F.jsonl`` keeps it, and a
later run continues from there.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypedDict

import numpy as np

import cordcal
from cordcal._validation.scores import original_probabilities
from cordcal.evaluate.comparison import Comparison
from cordcal.evaluate.results.values import ORIGINAL, Output
from cordcal.preserving import PreservingCalibrator
from stored import append_cell, read_cells

# The default and its members, so that every option is a simpler rival of the default.
CALIBRATORS = (
    *("ts", "ets", "mono", "vs", "svs", "irova", "irova-ts", "irm", "sms", "dir-odir"),
    "blend",
)
DEFAULT: Output = ("blend", "lift")
ALL_ROWS = "the default on all rows"
MIN_UNSEEN, MAX_UNSEEN = 500, 20_000


def recommended(comparison: Comparison) -> Output:
    advice = comparison.recommendation
    if advice.key is None or advice.output is None:
        return ORIGINAL  # without a recommendation, nothing is changed
    return advice.key, advice.output


def lowest_estimate(comparison: Comparison) -> Output:
    return min(comparison.preserving(), key=lambda option: comparison.measures(*option)["nll"])


RULES: dict[str, Callable[[Comparison], Output]] = {
    "the recommendation": recommended,
    "always the default": lambda comparison: DEFAULT,
    "lowest estimate": lowest_estimate,
    "always ts": lambda comparison: ("ts", "direct"),
    "always sms + CORD": lambda comparison: ("sms", "repaired"),
}


class Cell(TypedDict):
    """One file, one number of rows, one seed."""

    set: str
    classes: int
    rows: int
    seed: int
    seconds: float
    chosen: dict[str, Output]
    regret: dict[str, float]


def measure(
    values: np.ndarray, labels: np.ndarray, kind: str, rows: int, seed: int
) -> tuple[dict[str, Output], dict[str, float]]:
    """Return what every rule chooses on some rows of a file, and its regret on the others."""
    order = np.random.default_rng(seed).permutation(len(labels))
    fit, test, unseen = np.split(order[: rows + MAX_UNSEEN], [rows // 2, rows])

    def unseen_nll(calibrator: str | None, repair: str | None, on: np.ndarray) -> float:
        model = PreservingCalibrator(calibrator, input=kind, repair=repair)
        model.fit(values[on], labels[on])
        return cordcal.metrics.nll(model.predict_proba(values[unseen]), labels[unseen])

    comparison = cordcal.compare(
        values[fit], labels[fit], CALIBRATORS, input=kind, evaluation=(values[test], labels[test])
    )
    truth = {
        (key, output): unseen_nll(key, "lift" if output == "lift" else "cord", fit)
        for key, output in comparison.preserving()
        if key != ORIGINAL[0]
    }
    plain = original_probabilities(values[unseen], kind)
    truth[ORIGINAL] = cordcal.metrics.nll(plain, labels[unseen])
    best = min(truth.values())
    chosen = {name: rule(comparison) for name, rule in RULES.items()}
    regret = {name: truth[option] - best for name, option in chosen.items()}
    regret[ALL_ROWS] = unseen_nll(None, None, order[:rows]) - best
    return chosen, regret


def cells(
    folder: Path, sizes: list[int], seeds: list[int], max_classes: int, done: set[object]
) -> Iterator[Cell]:
    for seed in seeds:
        for path in sorted(folder.glob("*.npz"), key=lambda path: path.stat().st_size):
            if "features" in path.name:
                continue
            scores = cordcal.files.read_scores(path)
            if scores.labels is None or scores.values.shape[1] > max_classes:
                continue
            for rows in sizes:
                enough = len(scores.labels) >= rows + MIN_UNSEEN
                if not enough or (path.stem, rows, seed) in done:
                    continue
                began = time.perf_counter()
                try:
                    chosen, regret = measure(scores.values, scores.labels, scores.kind, rows, seed)
                except ValueError as error:
                    print(f"{path.stem} {rows} {seed}: {error}", flush=True)
                    continue
                yield {
                    "set": path.stem,
                    "classes": scores.values.shape[1],
                    "rows": rows,
                    "seed": seed,
                    "seconds": time.perf_counter() - began,
                    "chosen": chosen,
                    "regret": regret,
                }


def show(title: str, some: list[Cell]) -> None:
    print(title)
    for name in some[0]["regret"]:
        values = [cell["regret"][name] for cell in some]
        worst = max(some, key=lambda cell: cell["regret"][name])
        print(
            f"  {name:24} mean {np.mean(values):+.4f}  worst {max(values):+.4f} "
            f"({worst['set']} {worst['seed']})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, action="append", help="by default 1000 and 3000")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--max-classes", type=int, default=200, help="more take minutes a fit")
    parser.add_argument("--cells", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results: list[Cell] = read_cells(options.cells)
    done: set[object] = {(cell["set"], cell["rows"], cell["seed"]) for cell in results}
    sizes = options.rows or [1000, 3000]
    seeds = list(range(options.first_seed, options.first_seed + options.seeds))
    for cell in cells(options.folder, sizes, seeds, options.max_classes, done):
        results.append(cell)
        regret = {name: round(value, 4) for name, value in cell["regret"].items()}
        option = cell["chosen"]["the recommendation"]
        print(f"{cell['set']} {cell['rows']} {cell['seed']}: {option} {regret}", flush=True)
        append_cell(options.cells, cell)
    for rows in sizes:
        some = [cell for cell in results if cell["rows"] == rows]
        if some:
            sets = len({cell["set"] for cell in some})
            show(f"regret in nats, {rows} rows, {len(some)} cells, {sets} files", some)


if __name__ == "__main__":
    main()
