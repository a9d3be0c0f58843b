"""A calibrator, a metric and a module with classes that are not part of cordcal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from cordcal.calibrators import Calibrator, Size
from cordcal.metrics import Metric
from cordcal.metrics.base import LabelledRows, MeanStream, Vector
from internals import expressions


class Tilt(Calibrator):
    """Adds the logarithm of each class's share of the labels to its logit."""

    key = "tilt"
    title = "Tilted logits"
    short = "Tilt"
    size = Size(per_class=1)
    works_on = "shifted"
    keeps_argmax = False
    keeps_order = False
    takes_masked = True
    role = "base"
    cost = "O(n)"
    reference = "this test"
    parameter_names: ClassVar[tuple[str, ...]] = ("bias_",)

    def fit_parameters(self, scores: Any, labels: Any, weight: Any) -> None:
        counts = np.bincount(labels, weight, scores.shape[1])
        self.bias_ = np.log((counts + 1.0) / (counts + 1.0).sum())

    @classmethod
    def probabilities(cls, scores: Any, params: Any, *, xp: Any) -> Any:
        return expressions.softmax(expressions.add_in_place(scores, params["bias_"], xp), xp)


class TrueMassStream(MeanStream):
    @staticmethod
    def of_rows(rows: LabelledRows) -> Vector:
        return rows.true_mass


def true_mass(probabilities: Any, labels: Any) -> float:
    return TrueMassStream().update(probabilities, labels).result()


TRUE_MASS = Metric(
    "true_mass",
    "mass on the true class",
    "true mass",
    "The mean probability of the true class.",
    true_mass,
    TrueMassStream,
    unit="%",
    digits=1,
    lower_is_better=False,
    leading=True,
)

SOFT_MAPS = """
import numpy as np

open("imported", "w").close()

class Soft:
    def __init__(self, share=0.1):
        self.share = share
    def fit(self, scores, labels):
        return self
    def predict_proba(self, scores):
        e = np.exp(scores - scores.max(axis=1, keepdims=True))
        return (1.0 - self.share) * e / e.sum(axis=1, keepdims=True) + self.share / e.shape[1]

class Broken(Soft):
    def fit(self, scores, labels):
        raise AttributeError("no such thing")
"""


def write_soft_maps(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go to a folder with the module soft_maps, which is not imported yet, and scores."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "soft_maps", raising=False)
    (folder / "soft_maps.py").write_text(SOFT_MAPS)
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=200)
    logits = 3.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(200, 3))
    np.savez(folder / "s.npz", logits=logits, labels=labels)
