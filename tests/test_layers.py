"""A module that begins with an underscore is private to its package."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "cordcal"
STUDY = ROOT / "study" / "src" / "cordcal_study"
# Modules that lie directly in cordcal and serve every package.
SHARED = {"_errors", "_version", "_numeric", "_validation"}


def foreign_private_imports(path: Path) -> list[str]:
    """Return the private modules of other packages that a module imports, lazily or not."""
    package = path.relative_to(PACKAGE).parts[0] if path.is_relative_to(PACKAGE) else "study"
    imported = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("cordcal."):
            continue
        for alias in node.names:
            parts = [*node.module.split(".")[1:], alias.name]
            steps = [PACKAGE.joinpath(*parts[: at + 1]) for at in range(len(parts))]
            modules = [
                step.name for step in steps if step.is_dir() or step.with_suffix(".py").is_file()
            ]
            owner, *inner = modules
            if owner == package or owner in SHARED:
                continue
            if any(name.startswith("_") for name in inner):
                imported.append(".".join(modules))
    return imported


def test_private_modules_are_used_by_their_package_only() -> None:
    paths = sorted([*PACKAGE.rglob("*.py"), *STUDY.rglob("*.py")])
    assert len(paths) > 100
    result = {
        path.relative_to(ROOT).as_posix(): names
        for path in paths
        if (names := foreign_private_imports(path))
    }
    assert result == {}
