"""Keeping more than the first rank: what it costs in time, and what it does to the report.

    python benchmarks/ranking.py                 speed against k = 1 and against np.argsort
    python benchmarks/ranking.py FOLDER          quality on every npz file of a folder

The quality table fits each calibrator on a random half of a file and evaluates on the
other half: accuracy, share of rows whose top-5 order changes, NLL, Brier and ECE.  Beside
CORD stand the two minimal repairs: of the prediction, and of the whole ranking (the KL
projection onto the order).
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy.special import softmax

from cordcal import CORD, calibrators, metrics
from cordcal_study.repairs import MinimalRepair, RankingProjection
from repair import least, make_pair
from stored import read_outputs

KEPT = (1, 2, 5, "ranking")
MAPS = ("vs", "ms", "irova")
MINIMAL = {"minimal": MinimalRepair(), "projection": RankingProjection()}


def speed() -> None:
    p, q = make_pair(20_000, 100)
    out = np.empty_like(q)
    cords = {k: CORD(k, threads=1).fit(p[:500], q[:500]) for k in KEPT}
    runs = {str(k): lambda cord=cord: cord.transform(p, q, out=out) for k, cord in cords.items()}
    times = least({**runs, "argsort": lambda: np.argsort(p, axis=1, kind="stable")}, 4)
    print("20,000 × 100, one thread")
    for k in KEPT:
        print(
            f"  preserve={k!s:<8} {1e3 * times[str(k)]:8.1f} ms"
            f"   {times[str(k)] / times['1']:5.2f} × k=1"
            f"   {times[str(k)] / times['argsort']:5.2f} × np.argsort"
        )


def quality(folder: Path) -> None:
    print(
        f"{'set':<43}{'map':<9}{'kept':<12}{'acc %':>8}{'top-5 %':>9}"
        f"{'NLL':>9}{'Brier':>9}{'ECE %':>8}"
    )
    for path in sorted(folder.glob("*.npz")):
        if path.stem.endswith("_features"):
            continue
        scores, labels, kind = read_outputs(path)
        if scores.shape[1] > 200:
            continue
        order = np.random.default_rng(0).permutation(len(labels))
        cal, ev = np.array_split(order, 2)
        original = scores.astype(float)
        original = softmax(original, axis=1) if kind == "logits" else original
        original = original / original.sum(axis=1, keepdims=True)
        prediction = scores.argmax(axis=1)
        for key in MAPS:
            if key == "ms" and scores.shape[1] > 100:
                continue  # K² numbers take minutes to fit
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted = calibrators.make(key, input=kind).fit(scores[cal], labels[cal])
                direct = fitted.predict_proba(scores)
            rows = {"direct": direct[ev]}
            for k in KEPT:
                if k != "ranking" and k >= scores.shape[1]:
                    continue
                cord = CORD(k).fit(original[cal], direct[cal], prediction=prediction[cal])
                rows[f"k={k}"] = cord.transform(original[ev], direct[ev], prediction=prediction[ev])
            for name, repair in MINIMAL.items():
                rows[name] = repair.transform(original[ev], direct[ev], prediction=prediction[ev])
            for name, report in rows.items():
                top = min(5, scores.shape[1])
                moved = metrics.topk_changes(original[ev], report, top).order_changed
                print(
                    f"{path.stem:<43}{key:<9}{name:<12}"
                    f"{100 * metrics.accuracy(report, labels[ev]):>8.2f}{100 * moved:>9.2f}"
                    f"{metrics.nll(report, labels[ev]):>9.4f}"
                    f"{metrics.brier(report, labels[ev]):>9.4f}"
                    f"{100 * metrics.ece(report, labels[ev]):>8.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        quality(Path(sys.argv[1]))
    else:
        speed()
