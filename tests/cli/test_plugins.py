"""Commands of other distributions: known by name, and never in the way of others."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

import pytest
import typer

from cordcal.cli import plugins
from cordcal.cli.plugins import add_command, echo

Call = Callable[..., tuple[int, str, str]]


def hello(name: str) -> None:
    """Greet someone."""
    echo(f"hello {name}")


def register(app: typer.Typer) -> None:
    add_command(app, hello, "hello you")


@pytest.fixture
def greetings(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A distribution with the command ``hello``; its module ``greetings.command``."""
    module = ModuleType("greetings.command")
    monkeypatch.setattr(plugins, "_DISTRIBUTIONS", {"hello": "greetings"})
    monkeypatch.setattr(plugins, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "greetings", ModuleType("greetings"))
    monkeypatch.setitem(sys.modules, "greetings.command", module)
    return module


def test_a_command_of_another_distribution_is_listed_and_runs(
    call: Call, greetings: ModuleType
) -> None:
    greetings.register = register  # type: ignore[attr-defined]
    code, out, _ = call("--help")
    assert code == 0
    assert "Greet someone." in out
    assert call("hello", "you") == (0, "hello you\n", "")
    assert call("hello", "--quiet", "you")[0] == 0
    code, out, _ = call("hello", "--help")
    assert (code, "Example: cordcal hello you" in out) == (0, True)
    assert call("hello")[0] == 2


@pytest.mark.usefixtures("greetings")
def test_a_broken_distribution_is_one_sentence_and_other_commands_run(call: Call) -> None:
    code, out, _ = call("--help")
    assert code == 0
    assert "Not available" in out
    assert "compare" in out
    for arguments in ((), ("--help",), ("a", "--option", "b")):
        code, out, errors = call("hello", *arguments)
        assert (code, out) == (2, "")
        assert errors.startswith("cordcal: cordcal hello cannot be loaded from greetings")
        assert "AttributeError" in errors
        assert "pip install --upgrade greetings" in " ".join(errors.split())
    assert call("--version")[0] == 0


def test_a_distribution_that_is_not_installed_is_named(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "find_spec", lambda name: None)
    assert "study" not in call("--help")[1].split()
    code, out, errors = call("study", "study.toml", "--output", "results")
    assert (code, out) == (2, "")
    message = " ".join(errors.split())
    assert "pip install cordcal-study, or make study in a checkout" in message
    assert call("stud")[0] == 2


def test_own_commands_import_no_other_distribution(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "import_module", None)
    monkeypatch.setattr(plugins, "find_spec", None)
    assert call("--version")[0] == 0
    assert call("compare", "--help")[0] == 0
