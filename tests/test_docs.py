"""The documentation is true: pages' examples run, guides run, and no public name is missing."""

from __future__ import annotations

import os
import pkgutil
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from cordcal.calibrators import available, calibrator_class
from documents import ROOT, blocks, run_examples
from surface import surface

DOCS = ROOT / "docs"
PAGES = sorted(
    path
    for path in DOCS.rglob("*.md")
    if "_build" not in path.parts and "\n>>> " in path.read_text("utf-8")
)
GUIDES = sorted((ROOT / "examples").glob("guide_*.py"))
# What a guide cannot do without.
NEEDS = {
    "guide_5_deploy": ("torch", "onnxruntime"),
    "guide_6_large": ("dask",),
    "guide_13_serving": ("onnxruntime", "mlflow", "fastapi", "uvicorn", "httpx"),
    "guide_14_boosters": ("lightgbm", "xgboost", "catboost"),
}
# MLflow warns of its own type hints when it is imported.
ALLOWED = {"guide_13_serving": ("ignore::UserWarning", "ignore::DeprecationWarning")}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_page(page: Path) -> None:
    assert run_examples(page) > 0


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_guide(guide: Path, tmp_path: Path) -> None:
    for package in NEEDS.get(guide.stem, ()):
        if find_spec(package) is None:  # not importorskip: MLflow warns when it is imported
            pytest.skip(f"needs {package}")
    allowed = [part for warning in ALLOWED.get(guide.stem, ()) for part in ("-W", warning)]
    done = subprocess.run(
        [sys.executable, "-W", "error", *allowed, str(guide)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())  # a guide leaves nothing behind


def test_every_public_name_has_its_place_in_the_api() -> None:
    for extra in ("onnx", "torch"):
        pytest.importorskip(extra)
    listed = set(re.findall(r"^   ([\w.]+)$", (DOCS / "api" / "index.rst").read_text(), re.M))
    listed = {name.split(".")[-1] for name in listed}
    # The page of the calibrators is written from the registry.
    listed |= {calibrator_class(key).__name__ for key in available()}
    names = {re.sub(r"\(.*", "", line).split(".")[-1] for line in surface() if _is_top(line)}
    assert names - {"__version__"} <= listed


def _is_top(line: str) -> bool:
    """Whether a line of the surface is a name of its own, not a method of a class."""
    path = re.sub(r"\(.*", "", line).split(".")
    return not any(part[:1].isupper() for part in path[:-1])


def test_contributing_names_every_part() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    package = ROOT / "src" / "cordcal"
    parts = [
        *package.glob("[!_]*.py"),
        *package.glob("_[!_]*.py"),
        *package.glob("repair/_[!_]*.py"),
    ]
    assert parts
    assert not [path.name for path in parts if f"`{path.name}`" not in text]
    folders = [path.parent.name for path in package.glob("*/__init__.py")]
    assert not [name for name in folders if f"`{name}/`" not in text]


def test_files_and_names_in_code_font_exist() -> None:
    folders = ("src", "tests", "docs", "benchmarks", "examples")
    texts = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    scripts = {path.name for path in texts}
    texts += [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]
    counted = 0
    for path in texts:
        if "_build" in path.parts or path == Path(__file__):
            continue
        text = path.read_text("utf-8")
        for name in re.findall(r"`((?:\w+/)*\w+\.py)`", text):
            assert name.rsplit("/", 1)[-1] in scripts, f"{path} names {name}"
        for name in re.findall(r"`((?:cordcal|_validation|_numeric)(?:\.\w+)+)`", text):
            if name.endswith(".py"):
                continue
            try:
                pkgutil.resolve_name(f"cordcal.{name.removeprefix('cordcal.')}")
            except ImportError as error:
                if (error.name or "").startswith("cordcal"):  # else a library is not installed
                    raise
            counted += 1
    assert counted > 10


def test_pages_name_no_machine() -> None:
    for path in [*DOCS.rglob("*.md"), *DOCS.rglob("*.py"), *GUIDES, ROOT / "README.md"]:
        if "_build" not in path.parts:
            assert not re.search(r"/(home|root|work|tmp)/", path.read_text("utf-8")), path


def test_blocks_end_where_they_should() -> None:
    assert all("```" not in code for page in PAGES for code in blocks(page, "python"))


def test_tables_of_unused_files_are_those_of_their_numbers(tmp_path: Path) -> None:
    stored = DOCS / "results" / "fresh"
    for path in stored.glob("*.csv"):
        shutil.copy(path, tmp_path)
    study = tomllib.loads((stored.parent / "fresh.toml").read_text("utf-8"))
    runpy.run_path(str(ROOT / "benchmarks" / "fresh_tables.py"))["render"](study, tmp_path)
    tables = sorted(path.name for path in stored.glob("*.md"))
    assert len(tables) > 10
    assert tables == sorted(path.name for path in tmp_path.glob("*.md"))
    for name in tables:
        assert (tmp_path / name).read_text("utf-8") == (stored / name).read_text("utf-8"), name
    account = (stored.parent / "README.md").read_text("utf-8")
    for name in ("summary", "claims", "boosting", "regret", "worst-sms", "worst-ts", "paper"):
        assert (stored / f"{name}.md").read_text("utf-8").split("\n\n")[0] in account, name
