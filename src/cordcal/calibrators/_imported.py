"""Calibrators named as ``module:Class``: importing one runs its code, so only when allowed."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from cordcal._door.errors import Refusal

_FORM = re.compile(r"(?P<module>[\w.]+):(?P<name>[\w.]+)(?P<call>\(.*\))?", re.DOTALL)


@dataclass(frozen=True)
class Imported:
    """A calibrator by the place of its class, or of a function, and its parameters.

    Attributes
    ----------
    path : str
        ``"module:Class"``, or ``"module:function"`` of ``(fit_scores, fit_labels, scores)``.
    params : mapping
        What the class is called with.
    """

    path: str
    params: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str, argument: str = "calibrators") -> Imported:
        """Read ``module:Class`` or ``module:Class(C=10)``; nothing is imported yet.

        Examples
        --------
        >>> Imported.of("sklearn.linear_model:LogisticRegression(C=10)").params
        {'C': 10}
        """
        found = _FORM.fullmatch(text)
        if found is None:
            raise Refusal(
                argument, f"is {text!r}", "write module:Class, or module:Class(C=10) with numbers"
            )
        path = f"{found['module']}:{found['name']}"
        return cls(path, _parameters(found["call"] or "()", text, argument))

    def make(self, argument: str = "calibrators") -> Any:
        """Import it and return the object; a function is returned as it is."""
        module, _, name = self.path.partition(":")
        found = _import(module, self.path, argument)
        for part in name.split("."):
            if not hasattr(found, part):
                raise Refusal(
                    argument,
                    f"is {self.path!r}, but the module {module} has no {name}",
                    "check the name after the colon",
                )
            found = getattr(found, part)
        if not isinstance(found, type) and not self.params:
            return found
        try:
            return found(**self.params)
        except (TypeError, ValueError) as error:
            raise Refusal(
                argument, f"is {self.path!r}, which cannot be made: {error}", "mend its parameters"
            ) from error


def is_path(text: str) -> bool:
    """Tell whether a calibrator's name is a place to import from; no key has a colon."""
    return ":" in text


def not_allowed(text: str, argument: str, switch: str) -> Refusal:
    """Return the refusal of an import that was not asked for."""
    return Refusal(
        argument,
        f"names {text!r}, and importing it runs its code",
        f"pass {switch} if you trust it",
    )


@contextmanager
def _importing_from(folder: str) -> Iterator[None]:
    """Look for modules in a folder, too, after all other places and for this block alone.

    A console script does not look where it is started, as python -m does.
    """
    path = sys.path
    if folder in path:
        yield
        return
    path.append(folder)
    try:
        yield
    finally:
        with suppress(ValueError):  # the module may have tidied up itself
            path.remove(folder)


def _import(module: str, path: str, argument: str) -> Any:
    try:
        with _importing_from(os.getcwd()):
            return import_module(module)
    except Exception as error:  # what a module does when it is imported is its own affair
        raise Refusal(
            argument,
            f"is {path!r}, but importing {module} fails ({type(error).__name__}: {error})",
            "install it, or start where it can be imported",
        ) from error


def _parameters(call: str, text: str, argument: str) -> dict[str, Any]:
    try:
        tree = ast.parse(f"f{call}", mode="eval").body
        assert isinstance(tree, ast.Call)
        assert not tree.args
        return {str(each.arg): ast.literal_eval(each.value) for each in tree.keywords}
    except (SyntaxError, ValueError, AssertionError):
        raise Refusal(
            argument,
            f"is {text!r}, whose parameters cannot be read",
            "write them by name, with plain values: module:Class(C=10, tol=1e-4)",
        ) from None
