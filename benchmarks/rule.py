"""Predictions under a rule: models with class weights, resampled rows and thresholds.

    python benchmarks/rule.py [--problems 3] [--cells F.jsonl]
    python benchmarks/rule.py --data FOLDER [--cells F.jsonl]
    python benchmarks/rule.py --time

The first run makes imbalanced problems and fits weighted learners to them: a third of the rows each
to train, to calibrate (a blend, then the repairs) and to evaluate.  It prints the log loss of the
direct probabilities, of CORD and Lift that keep the argmax, and of both under the learnt rule; the
area under the ROC curve; the share of rows that the rule explains; and how many predictions are not
recovered in float64, float32 and float16, by torch and by ONNX.  ``--data`` compares CORD with and
without a learnt rule on stored outputs of ordinary classifiers, ``--time`` the time of a repair.
``--cells`` keeps each line as it ends; a later run goes on from there.
"""

from __future__ import annotations

import argparse
import importlib.util
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import (
    FixedThresholdClassifier,
    TunedThresholdClassifierCV,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cordcal import CORD, Lift, PreservingCalibrator
from cordcal._validation.scores import CheckedScores
from cordcal.calibrators import make
from cordcal.calibrators.adapters import fit_calibrator
from cordcal.calibrators.blend import Blend
from cordcal.calibrators.learnt_rule import learn_rule
from cordcal.metrics import nll
from repair import make_pair
from stored import append_cell, output_files, read_cells, read_outputs

Rows = tuple[np.ndarray, np.ndarray]
Cell = dict[str, Any]


def synthetic(shares: list[float], rows: int, seed: int, class_sep: float = 0.8) -> Rows:
    """Return a problem of scikit-learn's generator with these shares of the classes."""
    return datasets.make_classification(
        rows,
        n_features=20,
        n_informative=8,
        n_classes=len(shares),
        n_clusters_per_class=2 if len(shares) < 8 else 1,
        weights=shares,
        flip_y=0.02,
        class_sep=class_sep,
        random_state=seed,
    )


def thinned(rows: Rows, shares: np.ndarray | list[float]) -> Rows:
    """Return a share of the rows of each class."""
    X, y = rows
    chosen = np.random.default_rng(0).random(len(y)) < np.asarray(shares)[y]
    return X[chosen], y[chosen]


def binary(rows: Rows, positive: float) -> Rows:
    """Return the rows with labels 1 for one class and 0 for the others."""
    return rows[0], (rows[1] == positive).astype(int)


TAIL = [0.4, 0.2, 0.13, 0.09, 0.06, 0.045, 0.03, 0.02, 0.015, 0.01]
PROBLEMS: dict[str, Callable[[], Rows]] = {
    "2 classes, 5 %": lambda: synthetic([0.95, 0.05], 12_000, 0),
    "2 classes, 2 %": lambda: synthetic([0.98, 0.02], 20_000, 1),
    "2 classes, 10 %, overlap": lambda: synthetic([0.9, 0.1], 12_000, 2, 0.4),
    "3 classes, 90/8/2": lambda: synthetic([0.9, 0.08, 0.02], 12_000, 3),
    "5 classes, long tail": lambda: synthetic([0.6, 0.25, 0.1, 0.04, 0.01], 12_000, 4),
    "10 classes, long tail": lambda: synthetic(TAIL, 12_000, 5),
    "moons, 5 %": lambda: datasets.make_moons((9500, 500), noise=0.35, random_state=0),
    "blobs, 83/13/3": lambda: datasets.make_blobs(
        [5000, 800, 200], n_features=5, cluster_std=5.0, random_state=1
    ),
    "hastie, 8 %": lambda: thinned(
        binary(datasets.make_hastie_10_2(16_000, random_state=0), 1.0), [1.0, 0.09]
    ),
    "quantiles, 4 classes": lambda: thinned(
        datasets.make_gaussian_quantiles(
            n_samples=12_000, n_features=6, n_classes=4, random_state=0
        ),
        [1.0, 0.4, 0.15, 0.05],
    ),
    "digits, eight or not": lambda: binary(datasets.load_digits(return_X_y=True), 8),
    "digits, long tail": lambda: thinned(
        datasets.load_digits(return_X_y=True), 0.75 ** np.arange(10)
    ),
    "breast cancer, 16 %": lambda: thinned(
        binary(datasets.load_breast_cancer(return_X_y=True), 0), [1.0, 0.3]
    ),
}


def learners(classes: int) -> dict[str, Any]:
    """Return weighted learners, and with two classes thresholds."""

    def logistic(**arguments: Any) -> Any:
        return make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000, **arguments))

    def forest(**arguments: Any) -> Any:
        return RandomForestClassifier(min_samples_leaf=5, random_state=0, **arguments)

    estimators = {
        "logistic": logistic(class_weight="balanced"),
        "forest": forest(class_weight="balanced"),
        "boosting": HistGradientBoostingClassifier(class_weight="balanced", random_state=0),
    }
    if importlib.util.find_spec("imblearn"):
        from imblearn.over_sampling import RandomOverSampler
        from imblearn.pipeline import make_pipeline as make_sampled

        estimators["oversampled"] = make_sampled(
            RandomOverSampler(random_state=0), StandardScaler(), LogisticRegression(max_iter=2000)
        )
    if classes == 2:
        estimators["threshold 0.1"] = FixedThresholdClassifier(
            logistic(), threshold=0.1, response_method="predict_proba"
        )
        estimators["tuned threshold"] = TunedThresholdClassifierCV(forest(), cv=3)
    return estimators


def measure(estimator: Any, rows: Rows) -> Cell:
    """Fit an estimator, a blend and the repairs; return their figures on other rows."""
    X, y = rows
    classes = int(y.max()) + 1
    rest, X_test, y_rest, y_test = train_test_split(
        X, y, test_size=1 / 3, stratify=y, random_state=0
    )
    X_train, X_fit, y_train, y_fit = train_test_split(
        rest, y_rest, test_size=1 / 2, stratify=y_rest, random_state=0
    )
    estimator.fit(X_train, y_train)
    fit, test = (estimator.predict_proba(part) for part in (X_fit, X_test))
    keep, keep_test = (estimator.predict(part) for part in (X_fit, X_test))
    # The held-out masses that Lift needs are those on the estimator's predictions.
    checked = replace(
        CheckedScores.from_scores(fit, "probabilities", fitting=True), prediction=keep
    )
    blend = Blend(input="probabilities")
    fit_calibrator(blend, checked, y_fit, None)
    direct, direct_test = blend.predict_proba(fit), blend.predict_proba(test)
    rule, record = learn_rule(direct, keep)
    masses = blend.held_out_.masses
    repaired = {"direct": direct_test}
    for name, prediction_rule in (("", "argmax"), (" rule", rule)):
        repairs = {
            "CORD": CORD(rule=prediction_rule).fit(fit, direct, prediction=keep),
            "lift": Lift(rule=prediction_rule).fit_checked(
                fit, direct, y_fit, keep, None, held_out=masses
            ),
        }
        for key, repair in repairs.items():
            repaired[key + name] = repair.transform(test, direct_test, prediction=keep_test)
    assert (repaired["CORD"].argmax(axis=1) == keep_test).all()
    return {
        "rows": len(y_fit),
        "classes": classes,
        "nll": {name: float(nll(p, y_test)) for name, p in repaired.items()},
        "auc": {name: area(p, y_test) for name, p in repaired.items()},
        "explained": record.n_explained / record.n,
        "argmax": record.n_argmax / record.n,
        "gap": record.gap,
        "otherwise": float(np.mean(repaired["lift rule"].argmax(axis=1) != keep_test)),
        "lost": lost(blend, fit, keep, test, keep_test),
    }


def area(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Return the area under the ROC curve, with more classes the mean of one against the rest."""
    if probabilities.shape[1] == 2:
        return float(roc_auc_score(labels, probabilities[:, 1]))
    return float(roc_auc_score(labels, probabilities, multi_class="ovr"))


def lost(
    blend: Blend, fit: np.ndarray, keep: np.ndarray, test: np.ndarray, expected: np.ndarray
) -> dict[str, int]:
    """Return how many predictions are not strictly recovered, by dtype and export.

    A graph or module reads its predictions from the scores, so those of a threshold have none.
    """
    needs_prediction = (fit.argmax(axis=1) != keep).any() or (test.argmax(axis=1) != expected).any()
    model = PreservingCalibrator(blend, input="probabilities", prefit=True, rule="learnt")
    model.fit(fit, prediction=keep if needs_prediction else None)
    passed = {"prediction": expected} if needs_prediction else {}
    outputs = {
        dtype: model.predict_proba(test, dtype=dtype, **passed)
        for dtype in ("float64", "float32", "float16")
    }
    if not needs_prediction:
        import onnxruntime
        import torch

        from cordcal import onnx
        from cordcal.torch import PreservingModule

        outputs["torch"] = PreservingModule(model)(torch.as_tensor(test)).numpy()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            onnx.export(model, path, dtype="float64")
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        outputs["onnx"] = session.run(["repaired"], {name: test})[0]
    return {
        name: int(np.count_nonzero(~strictly_first(repaired, expected, model.rule_.weights)))
        for name, repaired in outputs.items()
    }


def strictly_first(repaired: np.ndarray, prediction: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return where weight times probability is strictly largest at the prediction.

    Both with the weights in float64 and with weights and products in the dtype of the vectors.
    """
    strict = np.ones(len(repaired), dtype=bool)
    for dtype in (np.float64, repaired.dtype):
        products = repaired.astype(dtype) * weights.astype(dtype)
        own = np.take_along_axis(products, prediction[:, None], axis=1)
        strict &= (products >= own).sum(axis=1) == 1
    return strict


def cell_of(name: str, path: Path | None, compute: Callable[[], Cell]) -> Cell:
    """Return a cell of an earlier run, or compute and store it."""
    known = next((cell for cell in read_cells(path) if cell["name"] == name), None)
    if known is not None:
        return known
    cell = {"name": name, **compute()}
    append_cell(path, cell)
    return cell


def weighted_problems(count: int | None, cells: Path | None) -> None:
    """Measure every learner on every problem and print the figures."""
    results = []
    header = (
        f"{'problem':26}{'learner':17}{'direct':>8}{'CORD':>8}{'lift':>8}{'CORD':>8}{'lift':>8}"
    )
    print(f"{'':59}      argmax          rule")
    print(f"{header}{'ratio':>7}{'AUC':>8}{'explained':>11}{'other argmax':>13}  lost")
    for problem, make_rows in list(PROBLEMS.items())[:count]:
        rows = make_rows()
        for learner, estimator in learners(int(rows[1].max()) + 1).items():
            name = f"{problem} / {learner}"
            cell = cell_of(name, cells, partial(measure, estimator, rows))
            results.append(cell)
            values = "".join(f"{value:8.4f}" for value in cell["nll"].values())
            print(
                f"{problem:26}{learner:17}{values}{ratio(cell):7.3f}{auc_loss(cell):+8.4f}"
                f"{cell['explained']:11.2%}{cell['otherwise']:13.1%}  {sum(cell['lost'].values())}",
                flush=True,
            )
    for repair in ("CORD rule", "lift rule"):
        near = [ratio(cell, repair) <= 1.02 for cell in results]
        ordered = [auc_loss(cell, repair) <= 0.002 for cell in results]
        print(
            f"{repair}: NLL within 2 % of direct in {sum(near)} of {len(results)}, AUC within "
            f"0.002 in {sum(ordered)}; worst "
            f"{max(ratio(cell, repair) for cell in results):.3f} and "
            f"{max(auc_loss(cell, repair) for cell in results):.4f}"
        )
    print(f"predictions lost: {sum(sum(cell['lost'].values()) for cell in results)}")


MOST_ROWS = 2500


def stored_outputs(folder: Path, keys: list[str], cells: Path | None) -> None:
    """Compare CORD with and without a learnt rule on stored outputs, whose argmax is kept."""
    results = []
    print(
        f"{'set':40}{'calibrator':12}{'direct':>8}{'CORD':>8}{'rule':>8}{'ratio':>8}{'explained':>11}"
    )
    for path in output_files(folder):
        for key in keys:
            name = f"{path.stem} / {key}"
            cell = cell_of(name, cells, partial(measure_stored, path, key))
            results.append(cell)
            values = "".join(f"{value:8.4f}" for value in cell["nll"].values())
            print(
                f"{path.stem:40}{key:12}{values}{cell['nll']['rule'] / cell['nll']['CORD']:8.4f}"
                f"{cell['explained']:11.2%}",
                flush=True,
            )
    direct, cord, rule = (
        np.array([cell["nll"][name] for cell in results]) for name in ("direct", "CORD", "rule")
    )
    means = f"CORD {np.mean(cord / direct) - 1:.2%}, rule {np.mean(rule / direct) - 1:.2%}"
    print(f"mean loss over direct: {means}")
    print(f"largest ratio of rule to CORD: {np.max(rule / cord):.4f}")
    otherwise = np.mean([cell["otherwise"] for cell in results])
    print(f"rows with another argmax under the rule: {otherwise:.1%}")


def measure_stored(path: Path, key: str) -> Cell:
    """Return the figures of one calibrator on one set."""
    scores, labels, kind = read_outputs(path)
    order = np.random.default_rng(0).permutation(len(labels))
    half = len(order) // 2
    fit, test = order[:half][:MOST_ROWS], order[half:][:MOST_ROWS]
    original, evaluated = (CheckedScores.from_scores(scores[rows], kind) for rows in (fit, test))
    calibrator = make(key, input=kind)
    calibrator.fit(scores[fit], labels[fit])
    direct, direct_test = (calibrator.predict_proba(scores[rows]) for rows in (fit, test))
    rule, record = learn_rule(direct, original.prediction)
    repaired = {"direct": direct_test}
    for name, prediction_rule in (("CORD", "argmax"), ("rule", rule)):
        cord = CORD(rule=prediction_rule).fit(
            original.probabilities, direct, prediction=original.prediction
        )
        repaired[name] = cord.transform(
            evaluated.probabilities, direct_test, prediction=evaluated.prediction
        )
    return {
        "nll": {name: float(nll(p, labels[test])) for name, p in repaired.items()},
        "explained": record.n_explained / record.n,
        "argmax": record.n_argmax / record.n,
        "gap": record.gap,
        "otherwise": float(np.mean(repaired["rule"].argmax(axis=1) != evaluated.prediction)),
    }


def timings() -> None:
    """Print the time of a fit and of a repair under a rule over those without."""
    rng = np.random.default_rng(0)
    for rows, classes in ((5_000, 2), (5_000, 10), (5_000, 100), (25_000, 1000)):
        original, direct = make_pair(rows, classes)
        weights = np.exp(0.5 * rng.normal(size=classes))
        prediction, out = (weights * original).argmax(axis=1), np.empty_like(direct)
        repairs = {"argmax": CORD(threads=1), "rule": CORD(rule=weights, threads=1)}
        times: dict[tuple[str, str], list[float]] = {}
        for _ in range(15):
            for name, cord in repairs.items():
                started = time.process_time()
                cord.fit(original, direct, prediction=prediction)
                fitted = time.process_time()
                cord.transform(original, direct, prediction=prediction, out=out)
                times.setdefault((name, "fit"), []).append(fitted - started)
                times.setdefault((name, "transform"), []).append(time.process_time() - fitted)
        ratios = [
            f"{step} {min(times['rule', step]) / min(times['argmax', step]):.2f} ×"
            for step in ("fit", "transform")
        ]
        print(f"{rows} × {classes}: {', '.join(ratios)}")


def ratio(cell: Cell, name: str = "lift rule") -> float:
    """Return a repair's NLL over that of the direct probabilities."""
    return float(cell["nll"][name] / cell["nll"]["direct"])


def auc_loss(cell: Cell, name: str = "lift rule") -> float:
    """Return how far a repair's AUC is below that of the direct probabilities."""
    return float(cell["auc"]["direct"] - cell["auc"][name])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--calibrators", nargs="+", default=["vs", "irova", "blend"])
    parser.add_argument("--cells", type=Path)
    parser.add_argument("--time", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.time:
        timings()
    elif options.data is not None:
        stored_outputs(options.data, options.calibrators, options.cells)
    else:
        weighted_problems(options.problems, options.cells)


if __name__ == "__main__":
    main()
