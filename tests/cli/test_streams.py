"""Standard streams that are closed, full, left by their reader or not UTF-8."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import cordcal.cli
from cordcal.cli import _console
from cordcal.cli._app import BUG, EXIT_CODES, NO_READER
from products import some

NAMES = ["ant", "bée", "猫"]
TS = ("--calibrator", "ts")
COMMANDS = {
    "info": ("info", "s.npz"),
    "compare": ("compare", "s.npz", "--calibrator", "ts,vs"),
    "passing check": ("check", "s.npz", "--max", "nll=9"),
    "failing check": ("check", "s.npz", "--max", "nll=0"),
    "check --json": ("check", "s.npz", "--max", "nll=9", "--json"),
    "audit": ("audit", "--original", "s.npz", "--direct", "p.npz"),
    "apply": ("apply", "m.safetensors", "s.npz"),
    "fit": ("fit", "s.npz", *TS, "--output", "new.safetensors"),
    "help": ("fit", "--help"),
}
CODES = {"failing check": 1}
# These write a table, data, help, and an exit code of their own; each other command meets some
# of the situations.
WHOLE = ("compare", "failing check", "apply", "help")


def commands(situation: int) -> pytest.MarkDecorator:
    others = [key for key in COMMANDS if key not in WHOLE]
    return pytest.mark.parametrize("key", some(COMMANDS, {*WHOLE, others[situation]}))


STDIN = {"info stdin": ("info", "-"), "fit stdin": ("fit", "-", *TS)}


@pytest.fixture
def folder(tmp_path: Path, logits: np.ndarray, labels: np.ndarray) -> Path:
    from scipy.special import softmax

    names = np.array(NAMES)
    np.savez(tmp_path / "s.npz", logits=logits, labels=labels, class_names=names)
    np.savez(tmp_path / "p.npz", probs=softmax(logits / 2, axis=1), class_names=names)
    model = cordcal.PreservingCalibrator("ts", class_names=NAMES).fit(logits, labels)
    cordcal.save(model, tmp_path / "m.safetensors")
    return tmp_path


@pytest.fixture
def shell(folder: Path, environment: dict[str, str]):
    """Run a command behind redirections of a shell; return its code, stdout and stderr."""
    if sys.platform == "win32":
        pytest.skip("needs a POSIX shell")

    def shell(key: str, redirections: str, **variables: str) -> tuple[int, bytes, str]:
        arguments = [sys.executable, "-m", "cordcal", *(COMMANDS | STDIN)[key]]
        done = subprocess.run(
            ["sh", "-c", f'"$@" {redirections}', "sh", *arguments],
            cwd=folder,
            env={**environment, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr.decode(errors="replace")

    return shell


@commands(0)
def test_a_closed_stdout_is_an_output_error(shell, key: str) -> None:
    code, _, errors = shell(key, ">&-")
    assert code == 2
    assert errors.splitlines()[-1] == "cordcal: stdout is closed"
    assert "Traceback" not in errors


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@commands(1)
def test_a_full_stdout_is_an_output_error(shell, key: str) -> None:
    code, _, errors = shell(key, ">/dev/full")
    assert code == 2
    assert "no space" in errors.splitlines()[-1].lower()
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors


@commands(2)
def test_closed_streams_that_are_not_needed(shell, key: str) -> None:
    code, printed, _ = shell(key, "<&- 2>&-")
    assert code == CODES.get(key, 0)
    assert printed


def test_every_stream_closed(shell, folder: Path) -> None:
    assert shell("passing check", "<&- >&- 2>&-")[0] == 2
    # Its result goes to a file, under whatever descriptor that is.
    before = (folder / "s.npz").read_bytes()
    redirected = "--output out.csv <&- >&- 2>&-"
    assert shell("apply", redirected)[0] == 0
    assert len((folder / "out.csv").read_text(encoding="utf-8").splitlines()) == 401
    assert (folder / "s.npz").read_bytes() == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_full_stderr_changes_no_exit_code(shell) -> None:
    assert shell("passing check", "2>/dev/full")[0] == 0
    assert shell("failing check", "2>/dev/full")[0] == 1


@pytest.mark.parametrize("key", ["info stdin", "fit stdin"])
def test_reading_a_closed_stdin_is_one_sentence(shell, key: str) -> None:
    code, _, errors = shell(key, "<&-")
    assert code == 2
    assert "stdin is closed" in errors.splitlines()[-1]
    assert "Traceback" not in errors


@commands(3)
def test_a_reader_that_is_gone(folder: Path, environment: dict[str, str], key: str) -> None:
    """What ``| head`` does: every command ends quietly with the same exit code."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cordcal", *COMMANDS[key]],
            cwd=folder,
            env=environment,
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=120,
            check=False,
            text=True,
        )
    finally:
        os.close(writing)
    assert done.returncode == NO_READER
    assert "Traceback" not in done.stderr
    assert "pipe" not in done.stderr.lower()


ENCODINGS = [
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "latin-1"},
    {"PYTHONIOENCODING": "cp1252:strict"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
]


@commands(4)
def test_a_terminal_of_ascii(shell, key: str) -> None:
    code, printed, errors = shell(key, "", PYTHONIOENCODING="ascii")
    assert code == CODES.get(key, 0), errors
    assert printed.isascii() == (key != "apply")  # data are UTF-8, as in a file


@pytest.mark.parametrize(
    "variables", ENCODINGS[1:], ids=lambda variables: "-".join(variables.values())
)
@pytest.mark.parametrize("key", ["compare", "failing check"])
def test_terminals_that_are_not_utf8(shell, key: str, variables: dict[str, str]) -> None:
    code, printed, errors = shell(key, "", **variables)
    assert code == CODES.get(key, 0), errors
    assert printed.decode(variables.get("PYTHONIOENCODING", "ascii").partition(":")[0])


def test_signs_and_tables_in_ascii(shell) -> None:
    ascii = {"PYTHONIOENCODING": "ascii"}
    assert shell("passing check", "", **ascii)[1].startswith(b"ok nll")
    assert shell("failing check", "", **ascii)[1].startswith(b"FAILED nll")
    table = shell("compare", "", **ascii)[1].decode("ascii")
    assert "\\u" not in table.replace("\\u732b", "")


def test_data_on_stdout_is_utf8_on_every_terminal(shell) -> None:
    expected = shell("apply", "")[1]
    header = next(csv.reader(io.StringIO(expected.decode())))
    assert header[3:] == [f"p_{name}" for name in NAMES]
    for variables in ENCODINGS:
        assert shell("apply", "", **variables)[1] == expected


def test_json_is_the_same_document_on_every_terminal(
    run, folder: Path, environment: dict[str, str]
) -> None:
    expected = json.loads(run("info", "s.npz", "--json", text=False).stdout)
    assert expected["class_names"] == NAMES
    for encoding in ("ascii", "latin-1"):
        environment["PYTHONIOENCODING"] = encoding
        assert json.loads(run("info", "s.npz", "--json", text=False).stdout) == expected


def test_main_leaves_the_process_as_it_was(call, folder: Path) -> None:
    shown, streams = warnings.showwarning, (sys.stdin, sys.stdout, sys.stderr)
    filters = list(warnings.filters)
    assert call("info", "s.npz")[0] == 0
    assert call("info", "missing.npz")[0] == 2
    assert warnings.showwarning is shown
    assert (sys.stdin, sys.stdout, sys.stderr) == streams
    assert warnings.filters == filters


def test_the_encoding_errors_of_stdout_are_put_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", errors="strict")
    monkeypatch.setattr(sys, "stdout", stream)
    assert cordcal.cli.main(["check", "s.npz", "--max", "nll=9", "--quiet"]) == 0
    assert raw.getvalue().startswith(b"ok nll")
    assert stream.errors == "strict"


def test_a_bug_is_not_a_failed_gate(call, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise AssertionError("never so")

    monkeypatch.setattr("cordcal.evaluate.gates.check", broken)
    code, _, errors = call("check", "s.npz", "--max", "nll=9")
    assert code == BUG
    assert "AssertionError: never so" in errors


def test_exit_codes_are_documented() -> None:
    assert {0, 1, 2, BUG, 130, NO_READER} == set(EXIT_CODES)


def test_stderr_that_fails_is_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stderr", Full())
    _console.echo_error("nobody hears this")


def test_the_page_on_files_has_every_exit_code() -> None:
    text = (Path(__file__).parents[2] / "docs" / "files.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {int(row.split("|")[1]) for row in rows if row.split("|")[1].strip().isdecimal()} == set(
        EXIT_CODES
    )
