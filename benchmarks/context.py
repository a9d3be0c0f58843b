"""What columns next to the scores bring: the default with and without context.

    python benchmarks/context.py --data FOLDER [--rows 500 1000 5000] [--seeds 11 3]
    python benchmarks/context.py --noise        ten columns that mean nothing
    python benchmarks/context.py --time         fit with 20 columns and 100 categories

Calibration rows are drawn at random, at most half of a set; up to 5,000 of the others are
evaluated.  Per set, default → with context, means over the seeds:

    right   log loss of "the prediction is right"
    risk    area under the risk-coverage curve, in %
    ECE     of the confidence, in %
    gap     mean distance of confidence and accuracy per group, in %, where there are groups
    NLL     of the vector with prefer="likelihood"

The MMLU files were looked at by a prototype before; FOLDER/fresh must hold them.  In the llm6 files
some questions occur twice: all copies of a question are on one side of the split.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import cordcal
from cordcal.metrics import ece, nll, risk_coverage

EVALUATED = 5000
MMLU = ("8b_base", "8b_instruct", "70b_base", "70b_instruct")
# The larger sibling of the other kind, or the other size.
SIBLING = {"8b_base": "70b_base", "8b_instruct": "70b_base", "70b_base": "70b_instruct"}


class Task(NamedTuple):
    """Scores and labels with context; rows of one cluster stay on one side of the split."""

    kind: str
    name: str
    scores: np.ndarray
    labels: np.ndarray
    context: dict[str, Any]
    input: str = "logits"
    groups: np.ndarray | None = None
    clusters: np.ndarray | None = None


def read(path: Path) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Return scores, labels and everything in the file."""
    with np.load(path) as data:
        arrays = {name: data[name] for name in data}
    scores = arrays["logits"] if "logits" in arrays else arrays["probs"]
    return scores.astype(float), arrays["labels"].astype(int), arrays


def stored_tasks(folder: Path) -> Iterator[Task]:
    """Yield the sets of stored outputs that have something next to the scores."""
    mmlu = {name: read(folder / "fresh" / f"mmlu_llama31_{name}.npz") for name in MMLU}
    for name, (scores, labels, arrays) in mmlu.items():
        subject = arrays["groups"].astype(str)
        yield Task("subject", f"MMLU {name}", scores, labels, {"subject": subject}, groups=subject)
    for name, (scores, labels, arrays) in mmlu.items():
        other = mmlu[SIBLING.get(name, "70b_base")][0]
        subject = arrays["groups"].astype(str)
        task = Task("second opinion", f"MMLU {name}", scores, labels, {"other": other})
        yield task._replace(groups=subject)
    paths = sorted(folder.glob("llm6_*.npz"))
    models = [read(path) for path in paths]
    for i, (path, (scores, labels, _)) in enumerate(zip(paths, models, strict=True)):
        j = next(
            j % len(models)
            for j in range(i + 1, i + len(models))
            if len(models[j % len(models)][1]) == len(labels)
            and (models[j % len(models)][1] == labels).all()
        )
        _, clusters = np.unique(np.c_[scores, models[j][0]], axis=0, return_inverse=True)
        name = path.stem.removeprefix("llm6_")
        context = {"other": models[j][0]}
        yield Task("llm6", name, scores, labels, context, clusters=clusters.ravel())
    for part in ("reference", "analysis"):
        scores, labels, _ = read(folder / "fresh" / f"nannyml_cards3_{part}.npz")
        month = np.arange(len(labels)) * 12 // len(labels)
        text = np.array([f"month {value:02d}" for value in month])
        task = Task("month", f"nannyml {part}", scores, labels, {"month": text}, "probabilities")
        yield task._replace(groups=text)
    for net in ("resnet20", "resnet56"):
        scores, labels, _ = read(folder / f"c10_akamaster_{net}_test.npz")
        with np.load(folder / f"c10_akamaster_{net}_test_features.npz") as data:
            features = data[next(iter(data))].astype(float)
        context = {f"feature {i}": features[:, i] for i in range(features.shape[1])}
        yield Task("features", f"CIFAR-10 {net}", scores, labels, context)


def made_tasks() -> Iterator[Task]:
    """Yield models of tables that scikit-learn ships, and groups with known gaps."""
    digits = load_digits()
    half = digits.data.reshape(-1, 8, 8)[:, :, :4].reshape(-1, 32)
    ink = digits.data.reshape(-1, 8, 8)[:, :, 4:].sum(axis=2)
    for name, model in (("nb", GaussianNB(var_smoothing=1e-2)), ("logistic", _logistic())):
        scores = cross_val_predict(model, half, digits.target, cv=10, method="predict_proba")
        context = {f"ink {i}": ink[:, i] for i in range(8)}
        yield Task("table", f"digits {name}", scores, digits.target, context, "probabilities")
    cancer = load_breast_cancer()
    for name, columns in (("texture", [1, 4]), ("size", [8, 9])):
        scores = cross_val_predict(
            _logistic(), cancer.data[:, columns], cancer.target, cv=10, method="predict_proba"
        )
        context = {str(cancer.feature_names[i]): cancer.data[:, i] for i in (0, 5, 6, 7)}
        yield Task("table", f"cancer {name}", scores, cancer.target, context, "probabilities")
    for seed, spread in ((0, 0.3), (1, 0.6), (2, 1.0), (3, 2.0)):
        rng = np.random.default_rng(seed)
        labels, group = rng.integers(5, size=10_000), rng.integers(12, size=10_000)
        noise = np.exp(spread * rng.normal(size=12))[group, None]
        scores = 3.0 * np.eye(5)[labels] + noise * rng.normal(size=(10_000, 5))
        text = np.array([f"group {value}" for value in group])
        task = Task("synthetic", f"spread {spread}", scores, labels, {"group": text}, groups=text)
        yield task


def _logistic() -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))


def split(task: Task, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return calibration and evaluation rows."""
    n = len(task.labels)
    rng = np.random.default_rng(seed)
    rank = rng.permutation(n)
    if task.clusters is not None:
        rank = rng.permutation(task.clusters.max() + 1)[task.clusters]
    order = np.argsort(rank, kind="stable")
    end = min(rows, n // 2)
    while task.clusters is not None and rank[order[end]] == rank[order[end - 1]]:
        end += 1
    return order[:end], order[end : end + EVALUATED]


def take(context: dict[str, Any], rows: np.ndarray) -> dict[str, Any]:
    """Return some rows of a context."""
    return {name: values[rows] for name, values in context.items()}


def measure(task: Task, probabilities: np.ndarray, rows: np.ndarray) -> dict[str, float]:
    """Return the metrics of the confidence."""
    prediction, labels = task.scores[rows].argmax(axis=1), task.labels[rows]
    assert (probabilities.argmax(axis=1) == prediction).all()
    confidence = probabilities.max(axis=1)
    right = prediction == labels
    loss = -np.log(np.where(right, confidence, np.maximum(1.0 - confidence, 1e-12))).mean()
    result = {
        "right": float(loss),
        "risk": 100.0 * risk_coverage(probabilities, labels).aurc,
        "ECE": 100.0 * ece(probabilities, labels),
    }
    if task.groups is not None:
        groups = task.groups[rows]
        sums = [abs((confidence - right)[groups == g].sum()) for g in np.unique(groups)]
        result["gap"] = 100.0 * float(sum(sums)) / len(rows)
    return result


def compare(task: Task, rows: int, seed: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return the metrics without and with context."""
    fit, test = split(task, rows, seed)
    results = []
    for context in (None, task.context):
        options = {} if context is None else {"context": take(context, fit)}
        later = {} if context is None else {"context": take(context, test)}
        model = cordcal.PreservingCalibrator(input=task.input)
        model.fit(task.scores[fit], task.labels[fit], **options)
        values = measure(task, model.predict_proba(task.scores[test], **later), test)
        model = cordcal.PreservingCalibrator(input=task.input, prefer="likelihood")
        model.fit(task.scores[fit], task.labels[fit], **options)
        likelihood = model.predict_proba(task.scores[test], **later)
        values["NLL"] = nll(likelihood, task.labels[test])
        results.append(values)
    return results[0], results[1]


def run(tasks: Iterator[Task], all_rows: list[int], seeds: list[int]) -> None:
    """Print one line per set and number of rows, and a summary per kind."""
    below: dict[str, dict[str, list[bool]]] = {}
    for task in tasks:
        for rows in all_rows:
            if rows > len(task.labels) // 2 and rows != all_rows[0]:
                continue
            pairs = [compare(task, rows, seed) for seed in seeds]
            line = []
            for name in pairs[0][0]:
                before, after = (float(np.mean([pair[i][name] for pair in pairs])) for i in (0, 1))
                line.append(f"{name} {before:.4g} → {after:.4g}")
                below.setdefault(task.kind, {}).setdefault(name, []).append(after < before)
            print(f"{task.kind:15} {task.name:26} {rows:5}  {'  '.join(line)}", flush=True)
    print("\nlower with context, of the lines above")
    for kind, metrics in below.items():
        counts = "  ".join(f"{name} {sum(x)}/{len(x)}" for name, x in metrics.items())
        print(f"{kind:15} {counts}")


def noise_columns(rng: np.random.Generator, rows: int) -> dict[str, Any]:
    """Return ten columns that mean nothing: numbers, and categories few and many."""
    columns: dict[str, Any] = {f"number {i}": rng.normal(size=rows) for i in range(6)}
    for count in (2, 5, 20, 50):
        columns[f"{count} categories"] = np.array([f"c{c}" for c in rng.integers(count, size=rows)])
    return columns


def run_noise(seeds: int) -> None:
    """Print what ten columns of noise cost at 1,000 rows."""
    ratios, chosen = [], 0
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        labels = rng.integers(5, size=6000)
        scores = 2.0 * np.eye(5)[labels] + rng.normal(size=(6000, 5))
        task = Task("noise", "noise", scores, labels, noise_columns(rng, 6000))
        fit, test = np.arange(1000), np.arange(1000, 6000)
        context = take(task.context, fit)
        model = cordcal.PreservingCalibrator().fit(scores[fit], labels[fit], context=context)
        chosen += len({effect.column for effect in model.context_effects()})
        values = [
            measure(task, model.predict_proba(scores[test], context=c), test)["right"]
            for c in ({}, take(task.context, test))
        ]
        ratios.append(values[1] / values[0] - 1.0)
    print(f"ten columns of noise, 1,000 rows, {seeds} draws: {chosen / seeds:.2f} columns chosen, ")
    print(f"log loss of right {100 * np.mean(ratios):+.2f} % (worst {100 * max(ratios):+.2f} %)")


def run_time() -> None:
    """Print the time of a fit with context over one without."""
    rng = np.random.default_rng(0)
    for rows, classes in ((1000, 5), (5000, 10), (5000, 100), (50_000, 10)):
        labels = rng.integers(classes, size=rows)
        scores = 3.0 * np.eye(classes)[labels] + rng.normal(size=(rows, classes))
        context = {f"number {i}": rng.normal(size=rows) for i in range(19)}
        context["number 0"] += labels == scores.argmax(axis=1)
        context["category"] = np.array([f"c{c}" for c in rng.integers(100, size=rows)])
        categories = {
            f"categories {i}": np.array([f"c{c}" for c in rng.integers(100, size=rows)])
            for i in range(20)
        }
        contexts = {}, {"context": context}, {"context": categories}
        times: list[list[float]] = [[], [], []]
        for _ in range(3):
            for place, options in enumerate(contexts):
                start = time.process_time()
                cordcal.PreservingCalibrator().fit(scores, labels, **options)
                times[place].append(time.process_time() - start)
        without, numbers, text = map(min, times)
        print(
            f"{rows} × {classes}: {without:.2f} s, {numbers / without:.2f} × with 19 numbers and "
            f"100 categories, {text / without:.2f} × with 20 columns of 100 categories"
        )


def main() -> None:
    """Read the options and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[500, 1000, 5000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 3])
    parser.add_argument("--noise", action="store_true")
    parser.add_argument("--time", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.noise:
        run_noise(20)
    elif options.time:
        run_time()
    else:
        run(made_tasks(), options.rows, options.seeds)
        if options.data is not None:
            run(stored_tasks(options.data), options.rows, options.seeds)


if __name__ == "__main__":
    main()
