"""Compare calibrators on many data sets: the paper's experiments and the benchmark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

# Loaded on first use, because `cordcal --help` imports the command of this package.
_MODULES = {
    "Study": "specs",
    "StudyResult": "run",
    "read_study": "schema",
    "render_study": "run",
    "run_study": "run",
    "write_study": "page",
}

__all__ = ["Study", "StudyResult", "read_study", "render_study", "run_study", "write_study"]

if TYPE_CHECKING:
    from cordcal_study.page import write_study
    from cordcal_study.run import StudyResult, render_study, run_study
    from cordcal_study.schema import read_study
    from cordcal_study.specs import Study


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'cordcal_study' has no attribute {name!r}")
    return getattr(import_module(f"cordcal_study.{_MODULES[name]}"), name)
