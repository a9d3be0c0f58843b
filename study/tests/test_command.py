"""The command is there once the package is installed, and costs other commands nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import cordcal_study

# Without pydantic, which typer itself loads for the help of a command.
HEAVY = {"matplotlib", "scipy", "sklearn", "pyarrow", "h5py"}


@pytest.mark.parametrize(
    ("arguments", "shown", "loaded"),
    [
        (["--help"], "study", "cordcal_study.command"),
        (["study", "--help"], "--render", "cordcal_study.command"),
        (["--version"], "cordcal 0", None),
    ],
)
def test_help_shows_the_command_and_loads_nothing_heavy(
    arguments: list[str], shown: str, loaded: str | None
) -> None:
    code = f"import sys; from cordcal.cli import main; main({arguments}); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    *lines, modules = done.stdout.splitlines()
    assert shown in "\n".join(lines)
    assert not {name.split(".")[0] for name in modules.split()} & HEAVY
    own = {name for name in modules.split() if name.startswith("cordcal_study")}
    assert own == ({"cordcal_study", loaded} if loaded else set())


def test_every_public_name_resolves() -> None:
    for name in cordcal_study.__all__:
        assert getattr(cordcal_study, name) is not None
    assert not hasattr(cordcal_study, "nonsense")
