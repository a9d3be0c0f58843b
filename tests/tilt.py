"""A calibrator that is not part of cordcal."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from cordcal.calibrators import Calibrator, Size
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
    _parameter_names: ClassVar[tuple[str, ...]] = ("bias_",)

    def _fit(self, scores: Any, labels: Any, weight: Any) -> None:
        counts = np.bincount(labels, weight, scores.shape[1])
        self.bias_ = np.log((counts + 1.0) / (counts + 1.0).sum())

    @classmethod
    def _map(cls, scores: Any, params: Any, *, xp: Any) -> Any:
        return expressions.softmax(expressions.plus(scores, params["bias_"], xp), xp)
