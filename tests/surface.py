"""The public surface, one name per line; ``python tests/surface.py`` writes the frozen list."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import cordcal

FROZEN = Path(__file__).parent / "data" / "api.txt"
# Modules whose public names are those of their ``__all__``.
PACKAGES = ("calibrators", "expressions", "files", "llm", "metrics", "plots", "repair", "report")
# Adapters: the names that their own framework's users import.
ADAPTERS = {
    "onnx": ("Export", "export"),
    "sklearn": ("PreservingCalibratedClassifierCV",),
    "torch": ("PreservingModule",),
}


def surface() -> Iterator[str]:
    """Yield each public name with its signature, one a line."""
    for name in dir(cordcal):
        if not inspect.ismodule(getattr(cordcal, name)):
            yield from _described(f"cordcal.{name}", getattr(cordcal, name))
    for package in PACKAGES:
        module = import_module(f"cordcal.{package}")
        for name in module.__all__:
            yield from _described(f"cordcal.{package}.{name}", getattr(module, name))
    for key in cordcal.calibrators.available():
        result = cordcal.calibrators.calibrator_class(key)
        yield from _described(f"{result.__module__}.{result.__name__}", result)
    for adapter, names in ADAPTERS.items():
        module = import_module(f"cordcal.{adapter}")
        for name in names:
            yield from _described(f"cordcal.{adapter}.{name}", getattr(module, name))


def _described(path: str, member: Any) -> Iterator[str]:
    if not callable(member):
        yield path
        return
    yield path + _signature(member)
    if not inspect.isclass(member):
        return
    own = [base for base in member.__mro__ if base.__module__.startswith("cordcal")]
    methods = {name for base in own for name in vars(base) if not name.startswith("_")}
    for name in sorted(methods):
        method = inspect.getattr_static(member, name)
        if isinstance(method, classmethod | staticmethod):
            method = method.__func__
        if inspect.isfunction(method):
            yield f"{path}.{name}{_signature(method)}"
        elif isinstance(method, property):
            yield f"{path}.{name}"


def _signature(function: Any) -> str:
    """Return the parameters and defaults, without annotations."""
    passed = inspect.signature(function)
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in passed.parameters.values()
    ]
    return str(passed.replace(parameters=bare, return_annotation=inspect.Signature.empty))


if __name__ == "__main__":
    FROZEN.write_text("\n".join(surface()) + "\n", "utf-8")
    print(f"{FROZEN}: written")
