"""Write a model file of each kind, its inputs and its outputs: ``python make.py``.

The files are those of the version that wrote them and stay: later versions read them and give
the same reports.  Run this only to add a kind, under a new name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import cordcal
from cordcal import CORD, Lift, PreservingCalibrator, calibrators

HERE = Path(__file__).parent
ROWS, CLASSES = 120, 4
RULE = (1.0, 3.0, 0.4, 12.0)
# Few trees.
SMALL: dict[str, dict[str, Any]] = {
    "boost": {"rounds": 3},
    "boosted-blend": {"rounds": 3, "members": ("ts", "vs")},
}


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def made_inputs() -> dict[str, np.ndarray]:
    """Return what models are fitted on, and new rows, with ties and large scores among them."""
    rng = np.random.default_rng(0)
    labels = rng.integers(CLASSES, size=ROWS)
    logits = 2.0 * np.eye(CLASSES)[labels] + rng.normal(size=(ROWS, CLASSES))
    new = 2.0 * rng.normal(size=(24, CLASSES))
    new[:4] = [[0, 0, 0, 0], [1, 2, 2, 1], [-40, 30, 0, 29.5], [0.5, 0.5, -3, 0.25]]
    bias = np.array([0.0, 0.8, -0.5, 0.3])
    return {
        "logits": logits,
        "labels": labels,
        "original": softmax(logits),
        "direct": softmax(0.5 * logits + bias),
        "new_logits": new,
        "new_original": softmax(new),
        "new_direct": softmax(0.5 * new + bias),
    }


def made_models(inputs: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return a fitted model of each kind by its file's name."""
    pair = inputs["original"], inputs["direct"]
    models: dict[str, Any] = {
        "cord": CORD().fit(*pair),
        "cord-preserve-3": CORD(3).fit(*pair),
        "cord-ranking": CORD("ranking").fit(*pair),
        "lift-confidence": Lift("confidence").fit(*pair, inputs["labels"]),
        "lift-likelihood": Lift("likelihood").fit(*pair, inputs["labels"]),
        "cord-rule": CORD(rule=RULE).fit(*pair),
        "lift-rule": Lift("likelihood", rule=RULE).fit(*pair, inputs["labels"]),
    }
    scores, labels = inputs["logits"], inputs["labels"]
    for key in calibrators.available():
        made = calibrators.make(key, **SMALL.get(key, {}))
        models[f"preserving-{key}"] = PreservingCalibrator(made, repair="cord").fit(scores, labels)
    names = ["ant", "bee", "wasp", 'Ω, "fly"']
    models["preserving-default"] = PreservingCalibrator().fit(scores, labels)
    models["preserving-names"] = PreservingCalibrator("vs", class_names=names).fit(scores, labels)
    models["preserving-preserve-2"] = PreservingCalibrator("vs", preserve=2).fit(scores, labels)
    models["preserving-rule"] = PreservingCalibrator("vs", rule="learnt").fit(scores, labels)
    models["preserving-lift"] = PreservingCalibrator("vs", repair="lift").fit(scores, labels)
    probabilities = PreservingCalibrator("dir-odir", input="probabilities")
    models["preserving-probabilities"] = probabilities.fit(inputs["original"], labels)
    return models


def outputs(model: Any, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Return the repaired reports of the new rows."""
    if not hasattr(model, "calibrator_"):
        return model.transform(inputs["new_original"], inputs["new_direct"])
    kind = "new_logits" if model.calibrator_.input == "logits" else "new_original"
    return model.predict_proba(inputs[kind])


def main() -> None:
    inputs = made_inputs()
    reports = {}
    for name, model in made_models(inputs).items():
        cordcal.save(model, HERE / f"{name}.safetensors")
        reports[name] = outputs(model, inputs)
    needed = {name: array for name, array in inputs.items() if name.startswith("new_")}
    np.savez_compressed(HERE / "inputs.npz", **needed)
    np.savez_compressed(HERE / "outputs.npz", **reports)


if __name__ == "__main__":
    main()
