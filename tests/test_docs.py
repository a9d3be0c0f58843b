"""The documentation is true: pages' examples run, guides run, and no public name is missing."""

from __future__ import annotations

import os
import pkgutil
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from cordcal.calibrators import available, calibrator_class
from cordcal.calibrators.registry import DISTRIBUTIONS
from documents import ROOT, blocks, run_examples
from surface import surface

DOCS = ROOT / "docs"
# Before any test registers another calibrator.
KEYS = available()
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


def test_pages_count_the_calibrators() -> None:
    words = {20: "twenty", 14: "fourteen"}
    ours, others = words[len(KEYS)], words[len(DISTRIBUTIONS)]
    compare = (DOCS / "compare.md").read_text("utf-8")
    assert f"| {ours}, and {others} more with `cordcal-study`" in compare
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"{ours} in cordcal, {others} more in `cordcal-study`" in changes


def test_pages_name_no_machine() -> None:
    for path in [*DOCS.rglob("*.md"), *DOCS.rglob("*.py"), *GUIDES, ROOT / "README.md"]:
        if "_build" not in path.parts:
            assert not re.search(r"/(home|root|work|tmp)/", path.read_text("utf-8")), path


def test_blocks_end_where_they_should() -> None:
    assert all("```" not in code for page in PAGES for code in blocks(page, "python"))


def test_options_keep_their_hyphens() -> None:
    """A page must not turn the two hyphens of an option into a dash, nor write one itself."""
    conf = (DOCS / "conf.py").read_text("utf-8")
    (action,) = re.findall(r'^smartquotes_action = "(\w+)"', conf, re.M)
    assert "D" not in action
    for path in [*DOCS.rglob("*.md"), *GUIDES, ROOT / "README.md"]:
        if "_build" not in path.parts:
            assert not re.search(r"(?<=[\s`])[–—][a-z]", path.read_text("utf-8")), path


def test_guides_come_in_the_order_of_their_numbers() -> None:
    pytest.importorskip("sphinx_gallery")
    sys.path.insert(0, str(DOCS))
    from gallery import NumberSortKey

    names = sorted((path.name for path in GUIDES), key=NumberSortKey(""))
    numbers = [int(found[1]) for name in names if (found := re.search(r"guide_(\d+)_", name))]
    assert numbers == sorted(numbers)
    assert re.search(r"guide_\d+_", names[0])


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_every_guide_has_a_picture(guide: Path) -> None:
    text = guide.read_text("utf-8")
    assert re.search(r"\b(plt|plots)\.|sphinx_gallery_thumbnail_path", text)
    # The list of guides shows the first paragraph.
    assert re.search(r'^"""\n.+\n=+\n\n\S', text)
