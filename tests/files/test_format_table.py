"""Messages, help and documentation agree with the table of formats."""

from __future__ import annotations

import re
from pathlib import Path

from cordcal.files.formats import FORMATS, readable_formats, written_suffixes

DOCS = Path(__file__).parents[2] / "docs" / "files.md"


def test_the_documentation_has_every_format() -> None:
    lines = [line for line in DOCS.read_text("utf-8").splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    table = {cells[0]: cells for cells in rows if len(cells) == 5}
    assert set(table) >= {format_.name for format_ in FORMATS}
    for format_ in FORMATS:
        _, suffixes, in_pieces, written, other_columns = table[format_.name]
        assert tuple(re.findall(r"\.\w+", suffixes)) == format_.suffixes, format_.name
        assert (in_pieces == "✓") == format_.in_pieces, format_.name
        assert (written == "✓") == (format_.encoder is not None), format_.name
        assert (other_columns == "pass through") == format_.is_table, format_.name


def test_the_help_of_apply_names_every_output_format(call) -> None:
    code, help_text, _ = call("apply", "--help")
    assert code == 0
    text = " ".join(help_text.split())
    for suffix in written_suffixes():
        assert re.search(rf"\b{suffix[1:]}\b", text), suffix


def test_every_name_is_in_the_message() -> None:
    assert all(format_.name in readable_formats() for format_ in FORMATS)
    assert len({suffix for format_ in FORMATS for suffix in format_.suffixes}) == sum(
        len(format_.suffixes) for format_ in FORMATS
    )
