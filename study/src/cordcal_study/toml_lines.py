"""The lines of tables and keys in a TOML file, which the standard parser does not keep."""

from __future__ import annotations

import re

Place = tuple[str | int, ...]
"""A path into the parsed file, such as ``("set", 2, "file")``."""

_HEADER = re.compile(r"^\s*(\[\[?)\s*([\w-]+(?:\.[\w-]+)*)\s*\]\]?\s*(?:#.*)?$")
_ENTRY = re.compile(r"""^\s*(?:([\w-]+)|"([^"]*)"|'([^']*)')\s*=""")


def find_lines(text: str) -> dict[Place, int]:
    r"""Return the line, counted from 1, of every table and of every key that begins a line.

    Examples
    --------
    >>> lines = find_lines('title = "t"\n[[set]]\nfile = "a"\n[[set]]\nfile = "b"')
    >>> lines[("title",)], lines[("set", 1)], lines[("set", 1, "file")]
    (1, 4, 5)
    """
    lines: dict[Place, int] = {(): 1}
    counts: dict[Place, int] = {}
    table: Place = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.match(line)
        if header is not None:
            *parents, last = header[2].split(".")
            table = ()
            for name in parents:  # a parent that is an array of tables means its latest entry
                table = (*table, name)
                if table in counts:
                    table = (*table, counts[table])
            table = (*table, last)
            if header[1] == "[[":
                lines.setdefault(table, number)
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            lines[table] = number
            continue
        entry = _ENTRY.match(line)
        if entry is not None:
            name = next(group for group in entry.groups() if group is not None)
            lines.setdefault((*table, name), number)
    return lines


def line_of(lines: dict[Place, int], place: Place) -> int:
    """Return the line of a place, or of the nearest thing around it that has one."""
    while place not in lines:
        place = place[:-1]
    return lines[place]
