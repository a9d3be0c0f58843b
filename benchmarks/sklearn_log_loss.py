"""Log loss of `PreservingCalibratedClassifierCV` and scikit-learn's `CalibratedClassifierCV`.

    python benchmarks/sklearn_log_loss.py            # all problems, ten seeds, some minutes
    python benchmarks/sklearn_log_loss.py --seeds 2 --data iris,wine

Both classes are used without arguments, on the same training rows.  Each line is one problem: the
mean log loss on held-out rows over the seeds, and the paired difference with its 95 % interval
(Student's t).  A problem is *clearly above* if the whole interval is above zero.  The last columns
count the predictions that each class changes against the estimator fitted on all training rows.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable
from dataclasses import astuple, dataclass

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy import stats
from sklearn.base import BaseEstimator, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_iris,
    load_wine,
    make_classification,
)
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cordcal import metrics
from cordcal.sklearn import PreservingCalibratedClassifierCV

Data = tuple[np.ndarray, np.ndarray]


def synthetic(classes: int, rows: int, weights: list[float] | None = None) -> Callable[[], Data]:
    return lambda: make_classification(
        rows, 20, n_informative=12, n_classes=classes, n_clusters_per_class=1, weights=weights,
        random_state=0,
    )  # fmt: skip


DATA: dict[str, Callable[[], Data]] = {
    "digits": lambda: load_digits(return_X_y=True),
    "wine": lambda: load_wine(return_X_y=True),
    "breast cancer": lambda: load_breast_cancer(return_X_y=True),
    "iris": lambda: load_iris(return_X_y=True),
    "imbalanced": synthetic(4, 1500, [0.8, 0.12, 0.05, 0.03]),
    "30 classes": synthetic(30, 3000),
}


def estimators(seed: int) -> dict[str, BaseEstimator]:
    return {
        "naive Bayes": GaussianNB(),
        "forest": RandomForestClassifier(100, random_state=seed),
        "boosting": HistGradientBoostingClassifier(max_iter=30, random_state=seed),
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression()),
    }


@dataclass(frozen=True)
class Split:
    """Results on one split: log losses, and shares of predictions changed."""

    theirs: float
    ours: float
    changed_theirs: float
    changed_ours: float


def run(estimator: BaseEstimator, X: np.ndarray, y: np.ndarray, seed: int) -> Split:
    fit_X, new_X, fit_y, new_y = train_test_split(X, y, stratify=y, random_state=seed)
    predictions = clone(estimator).fit(fit_X, fit_y).predict(new_X)
    losses, changed = [], []
    for model in (CalibratedClassifierCV(estimator), PreservingCalibratedClassifierCV(estimator)):
        model.fit(fit_X, fit_y)
        losses.append(metrics.nll(model.predict_proba(new_X), new_y))
        changed.append(float(np.mean(model.predict(new_X) != predictions)))
    return Split(*losses, *changed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--data", default=",".join(DATA), help="comma-separated names")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        "| data | estimator | `CalibratedClassifierCV` | this class | difference, 95 % interval "
        "| predictions changed |\n|---|---|---:|---:|---:|---:|"
    )
    above = lower = problems = 0
    for data in options.data.split(","):
        X, y = DATA[data]()
        for name in estimators(0):
            splits = [run(estimators(seed)[name], X, y, seed) for seed in range(options.seeds)]
            columns = zip(*(astuple(split) for split in splits), strict=True)
            theirs, ours, changed_theirs, changed_ours = map(np.array, columns)
            difference = ours - theirs
            half = stats.t.ppf(0.975, len(splits) - 1) * stats.sem(difference)
            low, high = difference.mean() - half, difference.mean() + half
            problems, above, lower = problems + 1, above + (low > 0.0), lower + (high < 0.0)
            print(
                f"| {data} | {name} | {theirs.mean():.3f} | {ours.mean():.3f} "
                f"| {difference.mean():+.3f} ({low:+.3f} to {high:+.3f}){' *' if low > 0 else ''} "
                f"| {changed_theirs.mean():.1%} → {changed_ours.mean():.1%} |",
                flush=True,
            )
    print(f"\nclearly lower on {lower} of {problems} problems, clearly above on {above}")


if __name__ == "__main__":
    main()
