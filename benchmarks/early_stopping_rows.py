"""What calibrating on the rows of early stopping costs, against as many fresh ones.

LightGBM on noisy digits as in ``examples/guide_14_boosters.py``, over many splits: the mean NLL on
new rows, and the paired difference to as many fresh rows with twice its standard error.
"""

from __future__ import annotations

import argparse
import warnings

import lightgbm
import numpy as np
from sklearn.datasets import load_digits

import cordcal
from cordcal import metrics


def measure(seed: int) -> dict[str, float]:
    """Return the NLL on new rows for each choice of rows to calibrate on."""
    pixels, digit = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    X = pixels + 4.0 * rng.normal(size=pixels.shape)
    train, stop, fresh, new = np.split(rng.permutation(len(digit)), [500, 800, 1100])
    booster = lightgbm.LGBMClassifier(
        n_estimators=200, learning_rate=0.2, verbose=-1, n_jobs=1, random_state=0
    )
    booster.fit(
        X[train],
        digit[train],
        eval_X=X[stop],
        eval_y=digit[stop],
        callbacks=[lightgbm.early_stopping(10, verbose=False)],
    )
    scores = booster.predict(X, raw_score=True)
    losses = {}
    choices = {"train": train, "stop": stop, "fresh": fresh, "both": np.r_[stop, fresh]}
    for name, rows in choices.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = cordcal.PreservingCalibrator().fit(scores[rows], digit[rows])
        losses[name] = metrics.nll(model.predict_proba(scores[new]), digit[new])
    return losses


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=20)
    splits = parser.parse_args().splits
    runs = [measure(seed) for seed in range(splits)]
    for name in runs[0]:
        losses = np.array([run[name] for run in runs])
        difference = losses - np.array([run["fresh"] for run in runs])
        error = 2.0 * difference.std(ddof=1) / np.sqrt(splits)
        print(f"{name:<6} {losses.mean():.4f}  {difference.mean():+.4f} ± {error:.4f}")


if __name__ == "__main__":
    main()
