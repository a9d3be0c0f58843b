"""What comes from files cannot steer the terminal, nor a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.table import Table

from cordcal.cli import _console

HOSTILE = "cat\x1b[2J\x9b1m\u202e\x07[red]"


def safe(text: str) -> bool:
    return all(character.isprintable() or character == "\n" for character in text)


@pytest.mark.parametrize("printed", [_console.echo, _console.show, _console.echo_info])
def test_lines_are_printable(printed, capsys: pytest.CaptureFixture[str]) -> None:
    printed(HOSTILE)
    result = capsys.readouterr()
    assert safe(result.out + result.err)
    assert "cat\\x1b[2J" in result.out + result.err


def test_a_terminal_breaks_lines_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands stay whole, to be copied, and so does text for a pipe."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "60")
    command = f"next: cordcal apply {'m' * 40} {'n' * 40}"
    for name, printed in (("stdout", _console.echo), ("stderr", _console.echo_error)):
        for stream, widest in ((Terminal(), 60), (io.StringIO(), 203)):
            monkeypatch.setattr(sys, name, stream)
            printed("word " * 40 + "end")
            printed(command)
            *lines, last = stream.getvalue().splitlines()
            assert last == command
            assert " ".join(lines).split() == ["word"] * 40 + ["end"]
            assert widest - 5 < max(map(len, lines)) <= widest


def test_tables_are_printable(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(HOSTILE)
    table.add_row(HOSTILE)
    _console.show(table)
    result = capsys.readouterr().out
    assert safe(result)
    assert result.count("x1b[2J") == 2


def test_json_is_printable_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    _console.show_json({HOSTILE: "ü 猫"})
    result = capsys.readouterr().out
    assert safe(result)
    assert "ü 猫" in result
    assert json.loads(result) == {HOSTILE: "ü 猫"}


def test_the_progress_bar_reads_no_markup() -> None:
    bar = _console._bar()
    bar.add_task("[/nowhere]", total=1)
    assert "[/nowhere]" in "".join(
        segment.text for segment in bar.console.render(bar.get_renderable())
    )


def test_the_progress_bar_counts_what_is_known() -> None:
    bar = _console._bar()
    task = bar.add_task("fitting", total=None)

    def shown() -> str:
        return "".join(segment.text for segment in bar.console.render(bar.get_renderable()))

    assert "None" not in shown()
    bar.update(task, completed=500, total=2000)
    assert "500/2,000" in shown()


def test_no_command_lets_a_name_through(
    call, tmp_path: Path, logits: np.ndarray, labels: np.ndarray
) -> None:
    names = [HOSTILE, "dog", "=cmd()"]
    np.savez(tmp_path / "s.npz", logits=logits, labels=labels, class_names=names)
    np.savez(tmp_path / "k.npz", **{HOSTILE: logits, "other": logits})
    fitted = call("fit", "s.npz", "--calibrator", "ts", "--output", f"m{HOSTILE[3:8]}.safetensors")
    assert fitted[0] == 0
    for arguments in (
        ("info", "s.npz"),
        ("info", "s.npz", "--json"),
        ("info", "k.npz"),
        ("compare", "k.npz"),
        ("compare", "s.npz", "--columns", HOSTILE),
        ("compare", f"no{HOSTILE}.npz"),
        ("info", f"m{HOSTILE[3:8]}.safetensors"),
    ):
        fitted = (*fitted, *call(*arguments)[1:])
    assert all(map(safe, fitted[1:]))


def test_formulas_for_a_spreadsheet(
    call, tmp_path: Path, logits: np.ndarray, labels: np.ndarray
) -> None:
    names = ["=1+1", "@sum", "-dog"]
    np.savez(tmp_path / "s.npz", logits=logits, labels=labels, class_names=names)
    call("fit", "s.npz", "--calibrator", "ts", "--output", "m.safetensors")
    for options, mark in ((), ""), (("--spreadsheet",), "'"):
        output = ("--output", "out.csv", "--force", *options)
        assert call("apply", "m.safetensors", "s.npz", *output)[0] == 0
        with (tmp_path / "out.csv").open(newline="") as file:
            header, *rows = csv.reader(file)
        assert header[3:] == [f"p_{name}" for name in names]  # no cell of formulas
        assert {row[1] for row in rows} == {mark + name for name in names}


def test_examples_in_the_help_are_unbroken(call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied from a narrow terminal, an example runs."""
    monkeypatch.setenv("COLUMNS", "60")
    _, out, _ = call("monitor", "add", "--help")
    example = "Example: cordcal monitor add state.monitor tonight.csv --columns 'p*' --id-column id"
    assert example in [line.strip() for line in out.splitlines()]
    assert max(map(len, out.partition("Example")[0].splitlines())) <= 60
