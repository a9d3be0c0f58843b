"""Every option and exit code is on the page of the command; commands on other pages exist."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterator

import pytest
import typer

from cordcal.cli._app import EXIT_CODES, app
from documents import ROOT

MODULE = runpy.run_path(str(ROOT / "docs" / "command_reference.py"))
PAGE = MODULE["page"]()
SECTIONS = dict(
    re.findall(r"^cordcal ([\w ]+)\n-+\n(.*?)(?=^cordcal [\w ]+\n-+$|\Z)", PAGE, re.M | re.S)
)
GROUP = typer.main.get_command(app)
COMMANDS = dict(MODULE["all_commands"](GROUP, typer.Context(GROUP)))


def test_every_command_has_a_section() -> None:
    assert set(SECTIONS) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_named_with_its_help(name: str) -> None:
    section = SECTIONS[name]
    for parameter in COMMANDS[name].params:
        for written in (*parameter.opts, *parameter.secondary_opts):
            assert f"``{written}``" in section
    assert "``--quiet``, ``-q``" in section
    assert "$ cordcal " in section


def test_every_exit_code_is_explained() -> None:
    for code, meaning in EXIT_CODES.items():
        assert re.search(rf"^   \* - {code}\n     - {re.escape(meaning)}$", PAGE, re.M)


def test_commands_on_other_pages_exist() -> None:
    pages = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/guide_*.py"), ROOT / "README.md"]
    shown = {name for page in pages for name in re.findall(r"\$ cordcal (\w+)", page.read_text())}
    assert shown
    # The study is the command of cordcal-study.
    assert shown <= {name.split()[0] for name in COMMANDS} | {"study"}


def shown_commands() -> Iterator[tuple[str, list[str]]]:
    """Yield the pages' lines of the command, unbroken: the page's name, and the words."""
    pages = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/guide_*.py"), ROOT / "README.md"]
    for page in pages:
        lines = re.sub(r"\\\n#? *", " ", page.read_text())
        for line in re.findall(r"^[# ]*\$ cordcal (.*)$", lines, re.M):
            yield page.name, line.split()


def test_options_on_other_pages_exist() -> None:
    count = 0
    for page, words in shown_commands():
        name = " ".join(words[:2]) if words[0] == "monitor" else words[0]
        if name not in COMMANDS:  # the study, and folders of the tests
            continue
        known = {word for parameter in COMMANDS[name].params for word in parameter.opts}
        known |= {word for parameter in COMMANDS[name].params for word in parameter.secondary_opts}
        options = {word.partition("=")[0] for word in words if word.startswith("-") and word != "-"}
        assert options <= known | {"--help"}, (page, words)
        count += len(options)
    assert count > 50


def test_options_in_messages_exist() -> None:
    """An option between words of a sentence in the package is one that some command has."""
    known = {"--help", "--version", "--log_samples", "--upgrade"}
    for command in COMMANDS.values():
        for parameter in command.params:
            known |= {*parameter.opts, *parameter.secondary_opts}
    for file in ROOT.glob("src/cordcal/**/*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = set(re.findall(r"(?<![\w(-])--[a-z][a-z_-]+(?![\w(:-])", node.value))
                assert named <= known, (file.name, node.lineno)
