"""The command itself: help, version, and what happens to mistakes and interrupts."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from scipy.special import softmax

import cordcal

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
    """Typer shows help as rich markup, in which a word in brackets is a style, not a word."""
    from rich.markup import render

    from cordcal.cli._app import app

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert "check" in commands
    texts = [cordcal.cli._app.EPILOG]
    for command in commands.values():
        texts += [command.help, command.epilog, *(parameter.help for parameter in command.params)]
    for text in filter(None, texts):
        assert render(text).plain == text
    assert len(texts) > 100


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
