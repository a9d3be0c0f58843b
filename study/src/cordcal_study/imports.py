"""Calibrators of one's own: a study file names them as ``module:Class``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from cordcal._errors import InputError

_PATH = re.compile(r"[\w.]+:[\w.]+")


@dataclass(frozen=True)
class Imported:
    """A calibrator to import: the path of a class or function, and its parameters.

    Attributes
    ----------
    path : str
        ``"module:Class"``, or ``"module:function"`` of ``(fit_scores, fit_labels, scores)``.
    params : mapping
        Constructor arguments of the class.
    """

    path: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def make(self) -> Any:
        """Import the class and return an instance; a function is returned unchanged."""
        if _PATH.fullmatch(self.path) is None:
            raise InputError(
                "class", f"is {self.path!r}", "write module:Class, and a line for each parameter"
            )
        module, _, name = self.path.partition(":")
        target = _import(module, self.path)
        for part in name.split("."):
            if not hasattr(target, part):
                raise InputError(
                    "class",
                    f"is {self.path!r}, but the module {module} has no {name}",
                    "check the name after the colon",
                )
            target = getattr(target, part)
        if not isinstance(target, type) and not self.params:
            return target
        try:
            return target(**self.params)
        except (TypeError, ValueError) as error:
            raise InputError(
                "class",
                f"is {self.path!r}, but calling it fails: {error}",
                "correct its parameters",
            ) from error


@contextmanager
def _importing_from(folder: str) -> Iterator[None]:
    """Temporarily add a folder at the end of ``sys.path``.

    A console script does not search the current folder, unlike ``python -m``.
    """
    path = sys.path
    if folder in path:
        yield
        return
    path.append(folder)
    try:
        yield
    finally:
        with suppress(ValueError):  # the module may have removed it already
            path.remove(folder)


def _import(module: str, path: str) -> Any:
    try:
        with _importing_from(os.getcwd()):
            return import_module(module)
    except Exception as error:  # an imported module may raise anything
        raise InputError(
            "class",
            f"is {path!r}, but importing {module} fails ({type(error).__name__}: {error})",
            "install it, or run from a folder where it can be imported",
        ) from error
