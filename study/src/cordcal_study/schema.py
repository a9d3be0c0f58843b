"""The study file: what it may say, and what is wrong with it, by line, before any work starts."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, Literal, cast

from cordcal._numeric.types import Kind
from cordcal.calibrators import available
from cordcal.calibrators.registry import of_role
from cordcal_study._league_schema import calarena_sets, read_league
from cordcal_study._lines import Place, find_lines
from cordcal_study._own_schema import read_own
from cordcal_study._reader import Reader, is_number
from cordcal_study.specs import (
    EXPERIMENTS,
    FRACTIONS,
    OWN_EXPERIMENTS,
    SEEDS,
    UNITS,
    SetSpec,
    Shifted,
    Study,
    Unit,
    usual_rivals,
)

_STUDY_FIELDS = (
    "title",
    "data",
    "seeds",
    "calibrators",
    "rivals",
    "rival_groups",
    "calibrator",
    "resample",
    "experiments",
    "format",
    "size",
    "league",
    "answers",
    "families",
    "calarena",
    "set",
)
_SET_FIELDS = (
    "name",
    "group",
    "file",
    "evaluation",
    "input",
    "key",
    "labels",
    "features",
    "scale",
    "seeds",
    "calibrators",
    "source",
    "family",
    "league",
    "networks",
    "shifted",
)
_SHIFTED_FIELDS = ("file", "kind", "severity")
_SIZE_FIELDS = ("fractions", "groups", "calibrators")
_ANSWERS_FIELDS = ("groups",)


def read_study(
    path: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    allow_import: bool = False,
) -> Study:
    """Read a study file and check all that can be checked without its data.

    Parameters
    ----------
    path : path
        A TOML file; its paths are relative to its ``data``, which is relative to the file.
    data : path, optional
        The folder of the data files, where it is not what the file says.
    allow_import : bool
        Whether the file may name calibrators to import, which runs their code.

    Returns
    -------
    study : Study
        The settings, with every default filled in.
    """
    file = Path(path)
    text = file.read_text(encoding="utf-8")
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file.name} is not valid TOML: {error}; fix the syntax there") from None
    reader = _StudyReader(file, content, find_lines(text))
    return reader.study(data, allow_import=allow_import)


class _StudyReader(Reader):
    """Reads a whole study file."""

    # Keys that the file may name, its own calibrators among them.
    keys: tuple[str, ...]

    def study(self, data: str | os.PathLike[str] | None, *, allow_import: bool) -> Study:
        content = self.content
        self.known(content, (), _STUDY_FIELDS)
        named = self.file.parent / self.text(content, (), "data", ".")
        self.folder = named if data is None else Path(data)
        if not self.folder.is_dir():
            self.fail(
                ("data",), f"the folder {self.folder} does not exist; name the folder of the files"
            )
        size = self.table(content, "size", _SIZE_FIELDS)
        answers = self.table(content, "answers", _ANSWERS_FIELDS)
        imported = read_own(self, allow_import=allow_import)
        self.keys = (*available(), *imported)
        sets = self.sets()
        groups = tuple(dict.fromkeys(each.group for each in sets))
        league = read_league(self, groups)
        if answers and league is None:
            self.fail(("answers",), "answers are told from the league; add a table [league]")
        own = [name for name in OWN_EXPERIMENTS if name in content]
        return Study(
            title=self.text(content, (), "title", self.file.stem),
            sets=sets,
            seeds=self.seeds(content, ()) or SEEDS,
            calibrators=self.choices(content, (), "calibrators", self.keys) or of_role("base"),
            rivals=self.choices(content, (), "rivals", self.keys) or usual_rivals(),
            experiments=self.choices(content, (), "experiments", (*EXPERIMENTS, *own))
            or (*EXPERIMENTS, *own),
            format=cast(
                Literal["csv", "parquet"],
                self.choice(content, (), "format", ("csv", "parquet")) or "csv",
            ),
            fractions=self.fractions(size),
            size_groups=self.choices(size, ("size",), "groups", groups),
            size_calibrators=self.choices(size, ("size",), "calibrators", self.keys),
            rival_groups=self.choices(content, (), "rival_groups", groups),
            own=imported,
            league=league,
            answers=self.choices(answers, ("answers",), "groups", groups) or (),
            resample=cast(Unit, self.choice(content, (), "resample", UNITS) or "classifiers"),
        )

    def sets(self) -> tuple[SetSpec, ...]:
        sets = calarena_sets(self)
        given = self.content.get("set", [])
        if not isinstance(given, list) or not (given or sets):
            self.fail(("set",), "there is no data set; add one or more tables [[set]]")
        for index, table in enumerate(given):
            spec = self.one_set(table, ("set", index))
            if any((spec.group, spec.name) == (other.group, other.name) for other in sets):
                self.fail(
                    ("set", index, "name"),
                    f"the group {spec.group!r} has a set {spec.name!r} already; "
                    f"give each set of a group its own name",
                )
            sets.append(spec)
        return tuple(sets)

    def one_set(self, table: dict[str, Any], place: Place) -> SetSpec:
        self.known(table, place, _SET_FIELDS)
        if "file" not in table:
            self.fail(place, 'this set names no file; add file = "…"')
        file = self.existing(table, place, "file")
        assert file is not None
        evaluation = self.existing(table, place, "evaluation")
        kind = self.choice(table, place, "input", ("logits", "probabilities"))
        scale = table.get("scale", 1.0)
        if not is_number(scale) or scale <= 0:
            self.fail((*place, "scale"), f"scale is {scale!r}; write a number above 0")
        shifted = self.shifted(table, place)
        if shifted and evaluation is not None:
            self.fail(
                (*place, "shifted"),
                "a set with an evaluation file of its own has no rows that shifted files could "
                "share; name the shifted files in a set that is split at random",
            )
        for switch in ("league", "networks"):
            if not isinstance(table.get(switch, True), bool):
                self.fail((*place, switch), f"{switch} is {table[switch]!r}; write true or false")
        name = self.text(table, place, "name", file.stem)
        group = self.text(table, place, "group", "all")
        return SetSpec(
            name=name,
            group=group,
            file=file,
            evaluation=evaluation,
            input=cast(Kind | None, kind),
            key=self.text(table, place, "key", None),
            labels=self.text(table, place, "labels", None),
            features=self.existing(table, place, "features"),
            scale=float(scale),
            seeds=self.seeds(table, place),
            calibrators=self.choices(table, place, "calibrators", self.keys),
            shifted=shifted,
            source=self.text(table, place, "source", f"{group}, {name}"),
            family=self.text(table, place, "family", "not stated"),
            league=table.get("league", True),
            networks=table.get("networks", False),
            place=self.place(*place),
        )

    def shifted(self, table: dict[str, Any], place: Place) -> tuple[Shifted, ...]:
        found = []
        for index, entry in enumerate(table.get("shifted", [])):
            here = (*place, "shifted", index)
            if not isinstance(entry, dict):
                self.fail(here, "shifted files are tables [[set.shifted]]; write one for each file")
            self.known(entry, here, _SHIFTED_FIELDS)
            for name in _SHIFTED_FIELDS:
                if name not in entry:
                    self.fail(here, f"this shifted file has no {name}; add {name} = …")
            severities = self.severities(entry, here)
            file = self.existing(entry, here, "file")
            assert file is not None
            kind = str(self.text(entry, here, "kind", ""))
            parts = len(severities)
            found += [
                Shifted(kind, severity, file, part, parts)
                for part, severity in enumerate(severities)
            ]
        return tuple(found)

    def severities(self, entry: dict[str, Any], place: Place) -> list[int]:
        """Return the severity of a file, or those that it stacks."""
        given = entry["severity"]
        severities = given if isinstance(given, list) else [given]
        whole = all(isinstance(each, int) and not isinstance(each, bool) for each in severities)
        if not whole or not severities or len(set(severities)) != len(severities):
            self.fail(
                (*place, "severity"),
                f"severity is {given!r}; write a whole number, or a list such as [1, 2, 3] for a "
                f"file that stacks them",
            )
        return severities

    def fractions(self, size: dict[str, Any]) -> tuple[float, ...]:
        given = size.get("fractions", list(FRACTIONS))
        fine = isinstance(given, list) and all(is_number(each) and 0 < each <= 1 for each in given)
        if not fine or not given or list(given) != sorted(set(given)):
            self.fail(
                ("size", "fractions"),
                f"fractions is {given!r}; write increasing shares such as [0.1, 0.5, 1.0]",
            )
        return tuple(float(each) for each in given)
