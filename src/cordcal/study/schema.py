"""The study file: what it may say, and what is wrong with it, by line, before any work starts."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn, cast, get_args

from cordcal.calibrators import available, calibrator_class
from cordcal.calibrators._registry import of_role
from cordcal.study._lines import Place, find_lines, line_of

Kind = Literal["logits", "probabilities"]

EXPERIMENTS = (
    "main",
    "paired",
    "floor",
    "minimal",
    "targets",
    "lambda",
    "ranking",
    "size",
    "shift",
    "rivals",
    "runtime",
)
Unit = Literal["classifiers", "conditions"]
"""What intervals over many conditions resample."""
UNITS = get_args(Unit)
SEEDS = (0, 1, 2, 3, 4)
FRACTIONS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

_STUDY_FIELDS = (
    "title",
    "data",
    "seeds",
    "calibrators",
    "rivals",
    "rival_groups",
    "resample",
    "experiments",
    "format",
    "size",
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
    "shifted",
)
_SHIFTED_FIELDS = ("file", "kind", "severity")
_SIZE_FIELDS = ("fractions", "groups", "calibrators")


def usual_rivals() -> tuple[str, ...]:
    """Return the rivals of a study that names none: no network that scores alone would train."""
    classes = {key: calibrator_class(key) for key in of_role("rival")}
    return tuple(
        key for key, found in classes.items() if found.needs_features or not found.needs_torch
    )


@dataclass(frozen=True)
class Shifted:
    """The same rows as its set's, in the same order, under a shift.

    A file may hold several severities below each other; ``part`` and ``parts`` say which of
    how many this is.
    """

    kind: str
    severity: int
    file: Path
    part: int = 0
    parts: int = 1

    @property
    def name(self) -> str:
        """What the evaluation is called in tables."""
        return f"{self.kind} {self.severity}"


@dataclass(frozen=True)
class SetSpec:
    """One set of outputs: a classifier on a data set.

    Attributes
    ----------
    name, group : str
        The classifier, and the data set it belongs to in tables.
    file : Path
        The rows to split, or to calibrate on where ``evaluation`` is given.
    evaluation : Path or None
        The rows to evaluate on; then there is one split, the given one.
    input : str or None
        What the scores are, where the file does not make it plain.
    key, labels : str or None
        Where the scores and labels are, as for `cordcal.files.read_scores`.
    features : Path or None
        A file of penultimate features of the same rows.
    scale : float
        What the logits are multiplied by.
    seeds : tuple of int or None
        The splits of this set, where not the study's.
    calibrators : tuple of str or None
        The bases to run here, where not the study's.
    shifted : tuple of Shifted
        Files for the experiment ``shift``.
    place : str
        Where the study file speaks of it, for messages.
    """

    name: str
    group: str
    file: Path
    evaluation: Path | None = None
    input: Kind | None = None
    key: str | None = None
    labels: str | None = None
    features: Path | None = None
    scale: float = 1.0
    seeds: tuple[int, ...] | None = None
    calibrators: tuple[str, ...] | None = None
    shifted: tuple[Shifted, ...] = ()
    place: str = ""


@dataclass(frozen=True)
class Study:
    """A whole study file, checked but for the contents of its data files."""

    title: str
    sets: tuple[SetSpec, ...]
    seeds: tuple[int, ...] = SEEDS
    calibrators: tuple[str, ...] = field(default_factory=lambda: of_role("base"))
    rivals: tuple[str, ...] = field(default_factory=usual_rivals)
    experiments: tuple[str, ...] = EXPERIMENTS
    format: Literal["csv", "parquet"] = "csv"
    fractions: tuple[float, ...] = FRACTIONS
    size_groups: tuple[str, ...] | None = None
    size_calibrators: tuple[str, ...] | None = None
    rival_groups: tuple[str, ...] | None = None
    resample: Unit = "classifiers"

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups, in the order of the file."""
        return tuple(dict.fromkeys(each.group for each in self.sets))

    def in_group(self, group: str) -> tuple[SetSpec, ...]:
        """Return the sets of one group."""
        return tuple(each for each in self.sets if each.group == group)


def read_study(
    path: str | os.PathLike[str], *, data: str | os.PathLike[str] | None = None
) -> Study:
    """Read a study file and check all that can be checked without its data.

    Parameters
    ----------
    path : path
        A TOML file; its paths are relative to its ``data``, which is relative to the file.
    data : path, optional
        The folder of the data files, where it is not what the file says.

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
    return _Reader(file, content, find_lines(text)).study(data)


class _Reader:
    """Reads the parsed file piece by piece and says where a piece is wrong."""

    def __init__(self, file: Path, content: dict[str, Any], lines: dict[Place, int]) -> None:
        self.file = file
        self.content = content
        self.lines = lines
        self.folder = file.parent

    def place(self, *place: str | int) -> str:
        return f"{self.file.name}, line {line_of(self.lines, place)}"

    def fail(self, place: Place, problem: str) -> NoReturn:
        raise ValueError(f"{self.place(*place)}: {problem}")

    def study(self, data: str | os.PathLike[str] | None) -> Study:
        content = self.content
        self.known(content, (), _STUDY_FIELDS)
        named = self.file.parent / self.text(content, (), "data", ".")
        self.folder = named if data is None else Path(data)
        if not self.folder.is_dir():
            self.fail(
                ("data",), f"the folder {self.folder} does not exist; name the folder of the files"
            )
        size = self.table(content, "size", _SIZE_FIELDS)
        sets = self.sets()
        groups = tuple(dict.fromkeys(each.group for each in sets))
        return Study(
            title=self.text(content, (), "title", self.file.stem),
            sets=sets,
            seeds=self.seeds(content, ()) or SEEDS,
            calibrators=self.choices(content, (), "calibrators", available()) or of_role("base"),
            rivals=self.choices(content, (), "rivals", available()) or usual_rivals(),
            experiments=self.choices(content, (), "experiments", EXPERIMENTS) or EXPERIMENTS,
            format=cast(
                Literal["csv", "parquet"],
                self.choice(content, (), "format", ("csv", "parquet")) or "csv",
            ),
            fractions=self.fractions(size),
            size_groups=self.choices(size, ("size",), "groups", groups),
            size_calibrators=self.choices(size, ("size",), "calibrators", available()),
            rival_groups=self.choices(content, (), "rival_groups", groups),
            resample=cast(Unit, self.choice(content, (), "resample", UNITS) or "classifiers"),
        )

    def sets(self) -> tuple[SetSpec, ...]:
        given = self.content.get("set")
        if not isinstance(given, list) or not given:
            self.fail(("set",), "there is no data set; add one or more tables [[set]]")
        sets: list[SetSpec] = []
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
        if not _is_number(scale) or scale <= 0:
            self.fail((*place, "scale"), f"scale is {scale!r}; write a number above 0")
        shifted = self.shifted(table, place)
        if shifted and evaluation is not None:
            self.fail(
                (*place, "shifted"),
                "a set with an evaluation file of its own has no rows that shifted files could "
                "share; name the shifted files in a set that is split at random",
            )
        return SetSpec(
            name=self.text(table, place, "name", file.stem),
            group=self.text(table, place, "group", "all"),
            file=file,
            evaluation=evaluation,
            input=cast(Kind | None, kind),
            key=self.text(table, place, "key", None),
            labels=self.text(table, place, "labels", None),
            features=self.existing(table, place, "features"),
            scale=float(scale),
            seeds=self.seeds(table, place),
            calibrators=self.choices(table, place, "calibrators", available()),
            shifted=shifted,
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

    def seeds(self, table: dict[str, Any], place: Place) -> tuple[int, ...] | None:
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

    def fractions(self, size: dict[str, Any]) -> tuple[float, ...]:
        given = size.get("fractions", list(FRACTIONS))
        fine = isinstance(given, list) and all(_is_number(each) and 0 < each <= 1 for each in given)
        if not fine or not given or list(given) != sorted(set(given)):
            self.fail(
                ("size", "fractions"),
                f"fractions is {given!r}; write increasing shares such as [0.1, 0.5, 1.0]",
            )
        return tuple(float(each) for each in given)

    def table(self, content: dict[str, Any], name: str, fields: Sequence[str]) -> dict[str, Any]:
        found = content.get(name, {})
        if not isinstance(found, dict):
            self.fail((name,), f"{name} is a table; write [{name}] and its fields below")
        self.known(found, (name,), fields)
        return found

    def known(self, table: Mapping[str, Any], place: Place, fields: Sequence[str]) -> None:
        for name in table:
            if name not in fields:
                self.fail(
                    (*place, name),
                    f"unknown field {name!r}; {_near(name, fields)}there are {', '.join(fields)}",
                )

    def text(self, table: dict[str, Any], place: Place, name: str, default: Any) -> Any:
        value = table.get(name, default)
        if value is not default and (not isinstance(value, str) or not value):
            self.fail((*place, name), f'{name} is {value!r}; write words in quotes, {name} = "…"')
        return value

    def existing(self, table: dict[str, Any], place: Place, name: str) -> Path | None:
        given = self.text(table, place, name, None)
        if given is None:
            return None
        file = self.folder / str(given)
        if not file.is_file():
            files = [each.name for each in self.folder.iterdir()] if self.folder.is_dir() else []
            self.fail(
                (*place, name),
                f"the file {given} does not exist in {self.folder}; {_near(str(given), files)}"
                f"paths are relative to the folder that data names",
            )
        return file

    def choice(
        self, table: dict[str, Any], place: Place, name: str, known: Sequence[str]
    ) -> str | None:
        given = table.get(name)
        if given is not None and given not in known:
            self.fail(
                (*place, name), f"{name} is {given!r}; write one of {', '.join(map(repr, known))}"
            )
        return cast(str | None, given)

    def choices(
        self, table: dict[str, Any], place: Place, name: str, known: Sequence[str]
    ) -> tuple[str, ...] | None:
        given = table.get(name)
        if given is None:
            return None
        if not isinstance(given, list) or not given:
            self.fail((*place, name), f'{name} is {given!r}; write a list such as ["{known[0]}"]')
        for each in given:
            if each not in known:
                self.fail(
                    (*place, name),
                    f"{name} names {each!r}, which there is not; {_near(str(each), known)}"
                    f"there are {', '.join(known)}",
                )
        return tuple(dict.fromkeys(given))


def _near(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}? " if near else ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
