"""The command itself: help, version, and what happens to mistakes and interrupts."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from scipy.special import softmax

import cordcal
from cordcal.cli._app import app, registered_commands

from .conftest import Run


def test_version(run: Run) -> None:
    assert run("--version").stdout == f"cordcal {cordcal.__version__}\n"


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_lists_the_commands(run: Run, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.returncode == 0
    assert "demo" in result.stdout
    assert "130 interrupted" in " ".join(result.stdout.split())  # lines are wrapped


def test_no_help_is_read_as_markup() -> None:
    """A word in brackets would be a style, and vanish."""
    assert app.rich_markup_mode is None
    assert command_of("").rich_markup_mode is None
    assert command_of("monitor").rich_markup_mode is None
    assert command_of("fit").rich_markup_mode is None


COMMANDS = [*registered_commands(), "monitor", ""]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_readable_on_80_columns(
    monkeypatch: pytest.MonkeyPatch, call, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = call(*command.split(), "--help")[1].splitlines()
    # A terminal folds an example, which is copied whole.
    assert max(len(line) for line in lines if "Example: " not in line) <= 80
    options = lines[lines.index("Options:") + 1 :]
    options = options[: options.index("")] if "" in options else options
    names = " ".join(line for line in options if line[2] == "-")
    parameters = command_of(command).params
    for parameter in parameters:
        if parameter.param_type_name == "option":
            assert all(name in names for name in parameter.opts)
    starts = {len(line) - len(line.lstrip()) for line in options if line[2] != "-"}
    assert all(80 - start >= 45 for start in starts)


def command_of(name: str) -> Any:
    """Return a command by its words; the application for no word."""
    command: Any = typer.main.get_command(app)
    for word in name.split():
        command = command.get_command(typer.Context(command), word)
    return command


def test_a_list_of_commands_says_all_of_each(monkeypatch: pytest.MonkeyPatch, call) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listed = call("--help")[1].partition("Commands:")[2]
    assert "compare" in listed
    assert "..." not in listed


@pytest.mark.parametrize("command", ["apply", "answers", "fit", "study"])
def test_outputs_have_a_short_option(call, command: str) -> None:
    assert "-o, --output" in call(command, "--help")[1]


@pytest.mark.parametrize("arguments", [("nothing",), ("demo", "--nothing")])
def test_a_wrong_option_is_one_sentence(run: Run, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("cordcal: No such ")
    assert result.stderr.count("\n") == 1


def test_ctrl_c_ends_with_130(tmp_path: Path, environment: dict[str, str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "cordcal", "demo"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("cordcal demo")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


def test_a_warning_is_printed_once(run: Run, tmp_path: Path, logits: np.ndarray) -> None:
    probabilities = softmax(logits, axis=1)
    np.save(tmp_path / "p.npy", probabilities)
    np.savetxt(
        tmp_path / "q.csv", probabilities, delimiter=",", fmt="%.4f", header="0,1,2", comments=""
    )
    done = run("audit", "--original", "p.npy", "--direct", "q.csv")
    assert done.returncode == 0
    assert done.stderr.count("some rows sum to one only within") == 1


def test_an_interrupt_at_start_up(run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the command is being imported ends it without a traceback."""
    script = (
        "import sys, builtins\n"
        "real = builtins.__import__\n"
        "def stop(name, *rest):\n"
        "    if name == 'typer':\n"
        "        raise KeyboardInterrupt\n"
        "    return real(name, *rest)\n"
        "builtins.__import__ = stop\n"
        "from cordcal.cli import main\n"
        "sys.exit(main(['--version']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "")


def test_a_warning_made_an_error_is_one_sentence(
    run: Run, environment: dict[str, str], tmp_path: Path, logits: np.ndarray
) -> None:
    probabilities = softmax(logits, axis=1)
    np.save(tmp_path / "p.npy", probabilities)
    np.savetxt(
        tmp_path / "q.csv", probabilities, delimiter=",", fmt="%.4f", header="0,1,2", comments=""
    )
    environment["PYTHONWARNINGS"] = "error::UserWarning"
    done = run("audit", "--original", "p.npy", "--direct", "q.csv")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("cordcal: direct: some rows sum to one")
    environment["PYTHONWARNINGS"] = "ignore"
    done = run("audit", "--original", "p.npy", "--direct", "q.csv")
    assert (done.returncode, "sum to one" in done.stderr) == (0, False)
