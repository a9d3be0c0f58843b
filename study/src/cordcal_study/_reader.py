"""Reading a TOML file piece by piece, and saying where a piece is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

from cordcal_study._lines import Place, line_of


class Reader:
    """The parsed file, and what each kind of field must look like."""

    def __init__(self, file: Path, content: dict[str, Any], lines: dict[Place, int]) -> None:
        self.file = file
        self.content = content
        self.lines = lines
        self.folder = file.parent

    def place(self, *place: str | int) -> str:
        """Return where the file speaks of something, for messages."""
        return f"{self.file.name}, line {line_of(self.lines, place)}"

    def fail(self, place: Place, problem: str) -> NoReturn:
        """Refuse what stands at a place."""
        raise ValueError(f"{self.place(*place)}: {problem}")

    def seeds(self, table: dict[str, Any], place: Place) -> tuple[int, ...] | None:
        """Return distinct seeds, or None."""
        seeds = table.get("seeds")
        if seeds is None:
            return None
        fine = isinstance(seeds, list) and all(
            isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 for seed in seeds
        )
        if not fine or not seeds or len(set(seeds)) != len(seeds):
            self.fail(
                (*place, "seeds"),
                f"seeds is {seeds!r}; write distinct whole numbers such as [0, 1, 2]",
            )
        return tuple(seeds)

    def table(self, content: dict[str, Any], name: str, fields: Sequence[str]) -> dict[str, Any]:
        """Return a table whose fields are all known."""
        found = content.get(name, {})
        if not isinstance(found, dict):
            self.fail((name,), f"{name} is a table; write [{name}] and its fields below")
        self.known(found, (name,), fields)
        return found

    def known(self, table: Mapping[str, Any], place: Place, fields: Sequence[str]) -> None:
        """Refuse a field that there is not."""
        for name in table:
            if name not in fields:
                self.fail(
                    (*place, name),
                    f"unknown field {name!r}; {near(name, fields)}there are {', '.join(fields)}",
                )

    def text(self, table: dict[str, Any], place: Place, name: str, default: Any) -> Any:
        """Return words."""
        value = table.get(name, default)
        if value is not default and (not isinstance(value, str) or not value):
            self.fail((*place, name), f'{name} is {value!r}; write words in quotes, {name} = "…"')
        return value

    def existing(self, table: dict[str, Any], place: Place, name: str) -> Path | None:
        """Return a file that exists."""
        given = self.text(table, place, name, None)
        if given is None:
            return None
        file = self.folder / str(given)
        if not file.is_file():
            files = [each.name for each in self.folder.iterdir()] if self.folder.is_dir() else []
            self.fail(
                (*place, name),
                f"the file {given} does not exist in {self.folder}; {near(str(given), files)}"
                f"paths are relative to the folder that data names",
            )
        return file

    def choice(
        self, table: dict[str, Any], place: Place, name: str, known: Sequence[str]
    ) -> str | None:
        """Return one of the known words, or None."""
        given = table.get(name)
        if given is not None and given not in known:
            self.fail(
                (*place, name), f"{name} is {given!r}; write one of {', '.join(map(repr, known))}"
            )
        return cast(str | None, given)

    def choices(
        self, table: dict[str, Any], place: Place, name: str, known: Sequence[str]
    ) -> tuple[str, ...] | None:
        """Return some of the known words, or None."""
        given = table.get(name)
        if given is None:
            return None
        if not isinstance(given, list) or not given:
            self.fail((*place, name), f'{name} is {given!r}; write a list such as ["{known[0]}"]')
        for each in given:
            if each not in known:
                self.fail(
                    (*place, name),
                    f"{name} names {each!r}, which there is not; {near(str(each), known)}"
                    f"there are {', '.join(known)}",
                )
        return tuple(dict.fromkeys(given))


def near(name: str, known: Sequence[str]) -> str:
    """Return the known name that was probably meant, as the beginning of a remedy."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}? " if near else ""


def is_number(value: Any) -> bool:
    """Tell whether a value is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)
