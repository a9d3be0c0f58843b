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
