"""A module that begins with an underscore is private to its package, and to its tests."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
PACKAGE = ROOT / "src" / "cordcal"
STUDY = ROOT / "study" / "src" / "cordcal_study"
STUDY_TESTS = ROOT / "study" / "tests"
# Modules that lie directly in cordcal and serve every package.
SHARED = {"_errors", "_version", "_numeric", "_validation"}
# A folder of tests may import the private modules of the package of its name, and these.
OWN_FILES = {"_validation": {"_errors"}}
# Methods of named tuples begin with an underscore and are public.
NAMED_TUPLES = {"_asdict", "_fields", "_replace"}
# Files directly in tests/ that import private modules for tests of several packages.
HELPERS = {"conftest.py", "internals.py"}


def private_imports(path: Path) -> list[tuple[str, ...]]:
    """Return the private modules of cordcal that a file imports, lazily or not, or patches."""
    named = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            named += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            named += [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named.append(node.value)  # of monkeypatch.setattr
    private = []
    for name in named:
        top, *parts = name.split(".")
        if top != "cordcal":
            continue
        steps = [PACKAGE.joinpath(*parts[: at + 1]) for at in range(len(parts))]
        modules = tuple(
            step.name for step in steps if step.is_dir() or step.with_suffix(".py").is_file()
        )
        if any(module.startswith("_") for module in modules):
            private.append(modules)
    return private


def package_of(path: Path) -> str:
    """Return the package whose private modules a file may import.

    The study's calibrators, and their tests, are written like those of cordcal; the study is
    released together with it.
    """
    for root in (PACKAGE, STUDY, TESTS, STUDY_TESTS):
        if path.is_relative_to(root):
            first = path.relative_to(root).parts[0]
            return first if root in (PACKAGE, TESTS) or first == "calibrators" else "study"
    raise AssertionError(path)


def foreign_private_imports(path: Path) -> list[str]:
    """Return the private modules of other packages that a module imports."""
    package = package_of(path)
    return [
        ".".join(modules)
        for modules in private_imports(path)
        if modules[0] not in {package, *SHARED}
    ]


def test_private_modules_are_used_by_their_package_only() -> None:
    paths = sorted([*PACKAGE.rglob("*.py"), *STUDY.rglob("*.py")])
    assert len(paths) > 100
    result = {
        path.relative_to(ROOT).as_posix(): names
        for path in paths
        if (names := foreign_private_imports(path))
    }
    assert result == {}


def private_attributes(path: Path) -> tuple[set[str], list[tuple[str, int]]]:
    """Return the private names that a file defines, and those it uses of other objects."""
    defined: set[str] = set()
    used = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            defined.add(node.attr)
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not is_own and not node.attr.startswith("__"):
                used.append((node.attr, node.lineno))
    return {name for name in defined if name.startswith("_")}, used


def test_private_methods_are_used_by_their_package_only() -> None:
    """What one package needs of another is a public method on checked values."""
    paths = sorted(PACKAGE.rglob("*.py"))
    attributes = {path: private_attributes(path) for path in paths}
    by_package: dict[str, set[str]] = {}
    for path, (defined, _) in attributes.items():
        by_package.setdefault(package_of(path), set()).update(defined)
    ours = set().union(*by_package.values())
    foreign = [
        f"{path.relative_to(ROOT).as_posix()}:{line} {name}"
        for path, (_, used) in attributes.items()
        for name, line in used
        if name in ours - NAMED_TUPLES and name not in by_package[package_of(path)]
    ]
    assert foreign == []


def test_private_modules_are_tested_in_the_folder_of_their_package() -> None:
    """Other tests use public names, so that a private module can change with its own tests."""
    paths = sorted([*TESTS.rglob("*.py"), *STUDY_TESTS.rglob("*.py")])
    assert len(paths) > 200
    result = {}
    for path in paths:
        folder = package_of(path)
        if folder in HELPERS:
            continue
        own = {folder, *OWN_FILES.get(folder, ())}
        names = {".".join(modules) for modules in private_imports(path) if modules[0] not in own}
        if names:
            result[path.relative_to(ROOT).as_posix()] = sorted(names)
    assert result == {}
