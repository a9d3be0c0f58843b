"""The table of formats is what messages, help and documentation say."""

from __future__ import annotations

import re
from pathlib import Path

from typer.testing import CliRunner

from cordcal.cli._app import app
from cordcal.files.formats import FORMATS, readable_formats, written_suffixes

DOCS = Path(__file__).parents[2] / "docs" / "files.md"


def test_the_documentation_has_every_format() -> None:
    lines = [line for line in DOCS.read_text("utf-8").splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    table = {cells[0]: cells for cells in rows if len(cells) == 5}
    assert set(table) >= {each.name for each in FORMATS}
    for each in FORMATS:
        _, suffixes, in_pieces, written, other_columns = table[each.name]
        assert tuple(re.findall(r"\.\w+", suffixes)) == each.suffixes, each.name
        assert (in_pieces == "✓") == each.in_pieces, each.name
        assert (written == "✓") == (each.encoder is not None), each.name
        assert (other_columns == "pass through") == each.is_table, each.name


def test_the_help_of_apply_names_every_output_format() -> None:
    result = CliRunner().invoke(app, ["apply", "--help"], env={"COLUMNS": "300", "TERM": "dumb"})
    text = " ".join(result.output.split())
    for suffix in written_suffixes():
        assert re.search(rf"\b{suffix[1:]}\b", text), suffix


def test_every_name_is_in_the_message() -> None:
    assert all(each.name in readable_formats() for each in FORMATS)
    assert len({suffix for each in FORMATS for suffix in each.suffixes}) == sum(
        len(each.suffixes) for each in FORMATS
    )
