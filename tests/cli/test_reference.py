"""Every option and exit code is on the page of the command; commands on other pages exist."""

from __future__ import annotations

import re
import runpy

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
