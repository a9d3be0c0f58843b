"""cordcal: calibrate a multiclass classifier's confidence, never its prediction.

The public names below are loaded when they are first used, so that importing
cordcal costs little more than importing NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cordcal._version import __version__

# Each public name and the module that holds it; a value of None marks a submodule.
_EXPORTS: dict[str, str | None] = {
    "CORD": "cordcal.repair",
    "Audit": "cordcal.evaluate.audit",
    "Certificate": "cordcal.certification",
    "Comparison": "cordcal.evaluate.comparison",
    "PrecomputedProbabilities": "cordcal.calibrators.adapters",
    "Lift": "cordcal.repair",
    "Monitor": "cordcal.evaluate.monitor",
    "PredictionRule": "cordcal.repair",
    "PreservingCalibrator": "cordcal.preserving",
    "InputError": "cordcal._errors",
    "Outputs": "cordcal.preserving",
    "audit": "cordcal.evaluate.audit",
    "calibrators": None,
    "certify": "cordcal.certification",
    "check": "cordcal.evaluate.gates",
    "compare": "cordcal.evaluate.compare",
    "files": None,
    "lift_confidences": "cordcal.repair",
    "llm": None,
    "load": "cordcal.files.models",
    "metrics": None,
    "onnx": None,
    "plots": None,
    "repair": None,
    "save": "cordcal.files.models",
    "sklearn": None,
    "torch": None,
}

__all__ = [
    "CORD",
    "Audit",
    "Certificate",
    "Comparison",
    "InputError",
    "Lift",
    "Monitor",
    "Outputs",
    "PrecomputedProbabilities",
    "PredictionRule",
    "PreservingCalibrator",
    "__version__",
    "audit",
    "calibrators",
    "certify",
    "check",
    "compare",
    "files",
    "lift_confidences",
    "llm",
    "load",
    "metrics",
    "onnx",
    "plots",
    "repair",
    "save",
    "sklearn",
    "torch",
]

if TYPE_CHECKING:
    from cordcal import calibrators, files, llm, metrics, onnx, plots, repair, sklearn, torch
    from cordcal._errors import InputError
    from cordcal.calibrators.adapters import PrecomputedProbabilities
    from cordcal.certification import Certificate, certify
    from cordcal.evaluate.audit import Audit, audit
    from cordcal.evaluate.compare import compare
    from cordcal.evaluate.comparison import Comparison
    from cordcal.evaluate.gates import check
    from cordcal.evaluate.monitor import Monitor
    from cordcal.files.models import load, save
    from cordcal.preserving import Outputs, PreservingCalibrator
    from cordcal.repair import CORD, Lift, PredictionRule, lift_confidences


def __getattr__(name: str) -> Any:
    try:
        module = _EXPORTS[name]
    except KeyError:
        raise AttributeError(f"module 'cordcal' has no attribute {name!r}") from None
    if module is None:
        return import_module(f"cordcal.{name}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
