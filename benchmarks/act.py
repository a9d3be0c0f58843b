"""How often certificates are violated, and what share of the predictions they let through.

For each file of a folder with at least 5,000 labelled rows: 1,000 rows to fit on, the others are
the population.  Certification rows are drawn from it with replacement, so that the true error rate
of what goes through is known.

    python benchmarks/act.py DATA [--resamples 500] [--rows 3000] [--output act.json]
    python benchmarks/act.py --simulate
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import time
import warnings
from pathlib import Path

import numpy as np

import cordcal
from cordcal.certification import certify_rows

ERRORS = (0.01, 0.02, 0.05, 0.10)
FIT_ROWS = 1000
OPTIONS = {
    "raw": None,
    "ts": {"calibrator": "ts"},
    "mono": {"calibrator": "mono"},
    "blend + cord": {"repair": "cord"},
    "default": {},
}
MAPIE = {"default, MAPIE": "bonferroni_holm", "default, MAPIE in sequence": "fixed_sequence"}
HAS_MAPIE = importlib.util.find_spec("mapie") is not None
TITLES = (*OPTIONS, "by class", *(MAPIE if HAS_MAPIE else ()))


def read(path: Path):
    """Return scores, their kind and the labels; None for other files and small ones."""
    with np.load(path) as archive:
        key = next((key for key in ("logits", "probs") if key in archive), None)
        if key is None or "labels" not in archive or len(archive["labels"]) < 5000:
            return None
        labels, scores = archive["labels"], archive[key].astype(np.float64)
    if labels.ndim != 1 or scores.ndim != 2 or len(scores) != len(labels):
        return None
    return scores, "logits" if key == "logits" else "probabilities", labels.astype(int)


def confidences(scores, kind, labels):
    """Return the population's predictions, errors, and the confidences of each option."""
    order = np.random.default_rng(5).permutation(len(labels))
    fit, rest = order[:FIT_ROWS], order[FIT_ROWS:]
    predicted, result = scores[rest].argmax(axis=1), {}
    for name, options in OPTIONS.items():
        if options is None:
            raw = scores[rest] - scores[rest].max(axis=1, keepdims=True)
            mass = np.exp(raw) if kind == "logits" else scores[rest]
            probabilities = mass / mass.sum(axis=1, keepdims=True)
        else:
            model = cordcal.PreservingCalibrator(**options, input=kind)
            probabilities = model.fit(scores[fit], labels[fit]).predict_proba(scores[rest])
        result[name] = probabilities[np.arange(len(rest)), predicted]
    return predicted, predicted != labels[rest], result


def certified(confidence, wrong, error, part_of, names):
    """Return the certified threshold of each part; infinite where there is none."""
    parts = certify_rows(confidence, wrong, error, 0.05, part_of=part_of, names=names)
    return np.array([np.inf if part.threshold is None else part.threshold for part in parts])


def controlled(method):
    """Return a function like `certified`, for one part, by MAPIE's controller of precision."""
    from mapie.risk_control import BinaryClassificationController

    def threshold(confidence, wrong, error, part_of, names):
        controller = BinaryClassificationController(
            lambda right: np.c_[1.0 - right, right],
            risk="precision",
            target_level=1.0 - error,
            confidence_level=0.95,
            fwer_method=method,
        ).calibrate(confidence, (~wrong).astype(int))
        best = controller.best_predict_param
        return np.array([np.inf if best is None else best])

    return threshold


def trial(choose, confidence, wrong, rows, error, part_of, names):
    """Return the share let through, and whether any statement is violated."""
    levels = choose(confidence[rows], wrong[rows], error, part_of[rows], names)
    accepted = confidence.astype(np.float32) >= levels.astype(np.float32)[part_of]
    count = np.bincount(part_of[accepted], minlength=len(names))
    errors = np.bincount(part_of[accepted], wrong[accepted], minlength=len(names))
    return accepted.mean(), bool((errors > error * count + 1e-9).any())


def measure(path: Path, resamples: int, size: int):
    """Return share and violations by option and error rate."""
    data = read(path)
    if data is None:
        return None
    predicted, wrong, options = confidences(*data)
    whole = np.zeros(len(wrong), dtype=np.intp), ["all"]
    classes = predicted, [str(label) for label in range(data[0].shape[1])]
    cases = [(name, name, whole, certified) for name in options]
    cases.append(("by class", "default", classes, certified))
    if HAS_MAPIE:
        cases += [(title, "default", whole, controlled(method)) for title, method in MAPIE.items()]
    result = {}
    for title, name, (part_of, names), choose in cases:
        for error in ERRORS:
            rng = np.random.default_rng(7)  # the same rows for every option
            trials = [
                trial(choose, options[name], wrong, rows, error, part_of, names)
                for rows in rng.integers(len(wrong), size=(resamples, size))
            ]
            share, violated = np.mean(trials, axis=0)
            result[f"{title} {error}"] = (100 * share, 100 * violated)
    return result


def show(results: dict[str, dict[str, tuple[float, float]]], resamples: int) -> None:
    """Print the table of the documentation."""
    limit = 5 + 2 * 100 * math.sqrt(0.05 * 0.95 / resamples)
    print(f"{len(results)} sets; limit of violations {limit:.1f} %")
    print("| option | " + " | ".join(f"{100 * error:g} %" for error in ERRORS) + " |")
    print("|---|" + "---|" * len(ERRORS))
    for title in TITLES:
        cells = []
        for error in ERRORS:
            values = np.array([result[f"{title} {error}"] for result in results.values()])
            over = int((values[:, 1] > limit).sum())
            cells.append(
                f"{values[:, 0].mean():.1f} ({values[:, 1].mean():.1f}, "
                f"{values[:, 1].max():.1f}, {over})"
            )
        print(f"| {title} | " + " | ".join(cells) + " |")
    print("share let through in %; (mean and largest violations in %, sets over the limit)")


def simulate(parts, rows, error, good, decimals, trials):
    """Print how often any statement is violated if the bad parts just exceed the error rate."""
    rng, violations = np.random.default_rng(parts), 0
    for _ in range(trials):
        sizes = [rows] if parts == 1 else rng.integers(rows // 2, 2 * rows, size=parts)
        part_of = np.repeat(np.arange(parts), sizes)
        confidence = rng.uniform(1.0 - 2.0 * error, 1.0, len(part_of))
        if decimals is not None:
            confidence = np.round(confidence, decimals)
        is_good = rng.permutation(np.arange(parts) < good * parts)
        rate = np.where(is_good[part_of], error / 20.0, error * 1.0001)
        wrong = rng.random(len(part_of)) < rate
        levels = certified(confidence, wrong, error, part_of, list(map(str, range(parts))))
        violations += np.isfinite(levels[~is_good]).any()
    limit = 5 + 200 * math.sqrt(0.05 * 0.95 / trials)
    print(
        f"{parts} parts of about {rows} rows, {100 * error:g} %, {decimals} decimals, {good:.0%} "
        f"good: {100 * violations / trials:.1f} % violated, limit {limit:.1f} %",
        flush=True,
    )


def simulate_all():
    """Print the simulations of the documentation."""
    for parts, rows, trials in ((1, 800, 2000), (1, 3000, 2000), (10, 600, 600), (100, 600, 150)):
        for error in (0.02, 0.1):
            for decimals in (None, 2, 1):
                for good in (0.0,) if parts == 1 else (0.0, 0.5):
                    simulate(parts, rows, error, good, decimals, trials)


def main() -> None:
    """Run the sets, or the simulations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--resamples", type=int, default=500)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    if arguments.simulate:
        simulate_all()
        return
    if arguments.data is None:
        parser.error("pass DATA or --simulate")
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.full(100, 0.05), 100_000)
    labels = probabilities.argmax(axis=1)
    for by in (None, "class"):
        start = time.process_time()
        cordcal.certify(probabilities, labels, 0.02, by=by)
        print(f"100,000 × 100 rows, by={by}: {time.process_time() - start:.2f} s", flush=True)
    results = {}
    for path in sorted(arguments.data.glob("*.npz")):
        try:
            result = measure(path, arguments.resamples, arguments.rows)
        except (ValueError, OSError) as error:
            print(f"{path.name}: left out: {error}", flush=True)
            continue
        if result is not None:
            results[path.stem] = result
            print(path.stem, flush=True)
            if arguments.output is not None:
                arguments.output.write_text(json.dumps(results, indent=1))
    show(results, arguments.resamples)


if __name__ == "__main__":
    main()
