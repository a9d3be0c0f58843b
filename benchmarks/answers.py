"""What calibration does for multiple choice: the table of the guide on language models.

    python benchmarks/answers.py FILE.npz … [--splits 5] [--calibrator svs]

Each file has ``logits`` (one column per option), ``labels`` and optionally ``groups`` (the subject
of each question).  Half of the questions are drawn to fit on, the other half is evaluated; figures
are means over the splits.  Before and after have the same accuracy, because every answer is kept.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean

import numpy as np
import numpy.typing as npt

import cordcal
from cordcal.metrics import ece, nll

Probabilities = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Figures:
    """What one set of probabilities is worth."""

    accuracy: float
    nll: float
    ece: float
    surest_half: float
    worst_subject: float

    @classmethod
    def of(
        cls, probabilities: Probabilities, labels: Labels, groups: npt.NDArray[np.str_] | None
    ) -> Figures:
        """Measure probabilities; ``surest_half`` is the accuracy of the more confident half."""
        right = probabilities.argmax(axis=1) == labels
        surest = np.argsort(-probabilities.max(axis=1), kind="stable")[: len(labels) // 2]
        subjects = () if groups is None else np.unique(groups)
        by_subject = [
            ece(probabilities[groups == name], labels[groups == name]) for name in subjects
        ]
        return cls(
            float(right.mean()),
            nll(probabilities, labels),
            ece(probabilities, labels),
            float(right[surest].mean()),
            max(by_subject, default=float("nan")),
        )


def one_split(path: Path, seed: int, calibrator: str | None) -> tuple[Figures, Figures]:
    """Fit on one half of the questions; return the figures of the other, before and after."""
    with np.load(path) as content:
        scores, labels = content["logits"], content["labels"]
        groups = content["groups"].astype(str) if "groups" in content else None
    order = np.random.default_rng(seed).permutation(len(labels))
    fit, test = np.split(order, [len(order) // 2])
    model = cordcal.PreservingCalibrator(calibrator).fit(scores[fit], labels[fit])
    outputs = model.predict_proba(scores[test], dtype=np.float64)
    shifted = scores[test].astype(np.float64)
    shifted -= shifted.max(axis=1, keepdims=True)
    original = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
    assert (outputs.argmax(axis=1) == scores[test].argmax(axis=1)).all()
    subjects = None if groups is None else groups[test]
    return Figures.of(original, labels[test], subjects), Figures.of(outputs, labels[test], subjects)


def main() -> None:
    """Print one row per file, before → after."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--calibrator")
    arguments = parser.parse_args()
    names = [field.name for field in fields(Figures)]
    print(f"{'file':40} " + " ".join(f"{name:>17}" for name in names))
    for path in arguments.files:
        pairs = [one_split(path, seed, arguments.calibrator) for seed in range(arguments.splits)]
        cells = []
        for name in names:
            before, after = (fmean(getattr(pair[side], name) for pair in pairs) for side in (0, 1))
            scale, digits = (1, 4) if name == "nll" else (100, 2)
            shown = f"{scale * before:.{digits}f} → {scale * after:.{digits}f}"
            cells.append("–" if np.isnan(before) else shown)
        print(f"{path.stem:40} " + " ".join(f"{cell:>17}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
