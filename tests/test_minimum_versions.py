"""`make test-min` runs with the lowest versions that pyproject.toml claims to support."""

from __future__ import annotations

import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import cordcal
from documents import ROOT

# Extras that the small environment leaves out; `make test` has them.
LEFT_OUT = ("dask", "torch", "boost", "onnx", "all")


def test_constraints_are_the_lowest_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].items()
    study = tomllib.loads((ROOT / "study" / "pyproject.toml").read_text("utf-8"))["project"]
    own = f"cordcal[figures,hdf5]=={cordcal.__version__}"
    assert own in study["dependencies"]
    assert study["version"] == cordcal.__version__
    claimed = [
        *project["dependencies"],
        *(text for text in study["dependencies"] if text != own),
        *(text for extra, texts in extras if extra not in LEFT_OUT for text in texts),
    ]
    pinned = {
        canonicalize_name(requirement.name): Version(next(iter(requirement.specifier)).version)
        for requirement in map(Requirement, _lines("constraints-min.txt"))
    }
    for requirement in map(Requirement, claimed):
        (lowest,) = requirement.specifier
        assert lowest.operator == ">="
        assert pinned[canonicalize_name(requirement.name)] == Version(lowest.version), (
            requirement.name
        )


def _lines(name: str) -> list[str]:
    text = (ROOT / name).read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]
