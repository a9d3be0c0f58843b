"""Commands of other packages: found by their entry points, and never in the way of others."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints

import pytest
import typer

from cordcal.cli import plugins
from cordcal.cli.plugins import GROUP, add_command, echo

Call = Callable[..., tuple[int, str, str]]


def hello(name: str) -> None:
    """Greet someone."""
    echo(f"hello {name}")


def register(app: typer.Typer) -> None:
    add_command(app, hello, "hello you")


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Entry points of the group by name, instead of those that are installed."""
    entries: dict[str, str] = {}

    def entry_points(**select: str) -> EntryPoints:
        return EntryPoints(
            EntryPoint(name, value, GROUP) for name, value in entries.items()
        ).select(**select)

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    return entries


def test_a_command_of_another_package_is_listed_and_runs(
    call: Call, entries: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "greetings", __import__("types").ModuleType("g"))
    monkeypatch.setattr("greetings.register", register, raising=False)
    entries["hello"] = "greetings:register"
    code, out, _ = call("--help")
    assert code == 0
    assert "Greet someone." in out
    assert call("hello", "you") == (0, "hello you\n", "")
    assert call("hello", "--quiet", "you")[0] == 0
    code, out, _ = call("hello", "--help")
    assert (code, "Example: cordcal hello you" in out) == (0, True)
    assert call("hello")[0] == 2


def test_a_broken_package_is_one_sentence_and_other_commands_run(
    call: Call, entries: dict[str, str]
) -> None:
    entries["hello"] = "no_such_package.command:register"
    code, out, _ = call("--help")
    assert code == 0
    assert "Not available" in out
    assert "compare" in out
    for arguments in ((), ("--help",), ("a", "--option", "b")):
        code, out, errors = call("hello", *arguments)
        assert (code, out) == (2, "")
        assert errors.startswith("cordcal: cordcal hello cannot be loaded from no_such_package")
        assert "ModuleNotFoundError" in errors
        assert "pip install --upgrade no_such_package" in " ".join(errors.split())
    assert call("--version")[0] == 0


def test_a_package_that_is_not_installed_is_named(call: Call, entries: dict[str, str]) -> None:
    assert "study" not in call("--help")[1].split()
    code, out, errors = call("study", "study.toml", "--output", "results")
    assert (code, out) == (2, "")
    message = " ".join(errors.split())
    assert "pip install cordcal-study, or make study in a checkout" in message
    assert call("stud")[0] == 2


def test_own_commands_come_first_and_read_no_entry_points(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "entry_points", None)
    assert call("--version")[0] == 0
    assert call("compare", "--help")[0] == 0
