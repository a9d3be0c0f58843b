"""Read a study file: its tables as pydantic models, and errors that name the line and a remedy."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from cordcal import InputError
from cordcal._numeric.types import Kind
from cordcal.calibrators.adapters import adapted
from cordcal_study.benchmark.trials import ALL, PRESERVING, possible_outputs
from cordcal_study.calarena import experiments_in
from cordcal_study.calibrators import available
from cordcal_study.data import open_array_file
from cordcal_study.imports import Imported
from cordcal_study.specs import (
    EXPERIMENTS,
    FRACTIONS,
    OWN_EXPERIMENTS,
    SEEDS,
    Benchmark,
    Claim,
    ClaimMetric,
    SetSpec,
    Shifted,
    Study,
    Unit,
    usual_keys,
)
from cordcal_study.tidy import Format

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


Item = TypeVar("Item")


def _distinct(values: list[Item]) -> list[Item]:
    if len(set(values)) != len(values):
        raise ValueError("an entry occurs twice")
    return values


def _increasing(values: list[float]) -> list[float]:
    if values != sorted(set(values)):
        raise ValueError("not increasing")
    return values


# The description of a field completes the sentence "x is …; write …" if its value is wrong.
Text = Annotated[str, Field(min_length=1, description='text in quotes, such as "…"')]
Names = Annotated[list[str], Field(min_length=1, description='a list such as ["…", "…"]')]
Count = Annotated[int, Field(gt=1, description="a whole number above 1")]
Seeds = Annotated[
    list[Annotated[int, Field(ge=0)]],
    AfterValidator(_distinct),
    Field(min_length=1, description="distinct whole numbers such as [0, 1, 2]"),
]
Sizes = Annotated[
    list[Annotated[int, Field(gt=1)] | Literal["all"]],
    AfterValidator(_distinct),
    Field(min_length=1, description='distinct counts such as [300, 1000, "all"]'),
]
Fractions = Annotated[
    list[Annotated[float, Field(gt=0, le=1)]],
    AfterValidator(_increasing),
    Field(min_length=1, description="increasing shares such as [0.1, 0.5, 1.0]"),
]
Severities = Annotated[
    int | Annotated[list[int], AfterValidator(_distinct), Field(min_length=1)],
    Field(description="a whole number, or [1, 2, 3] for a file that stacks them"),
]
Switch = Annotated[bool, Field(description="true or false")]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _ShiftedTable(_Table):
    file: Text
    kind: Text
    severity: Severities


class _SetTable(_Table):
    file: Text
    name: Text | None = None
    group: Text = "all"
    evaluation: Text | None = None
    input: Kind | None = None
    key: Text | None = None
    labels: Text | None = None
    features: Text | None = None
    scale: Annotated[float, Field(gt=0, description="a number above 0")] = 1.0
    seeds: Seeds | None = None
    calibrators: Names | None = None
    source: Text | None = None
    family: Text = "not stated"
    benchmark: Switch = True
    networks: Switch = False
    shifted: Annotated[list[_ShiftedTable], Field(description="a table [[set.shifted]]")] = []


class _SizeTable(_Table):
    fractions: Fractions = list(FRACTIONS)
    groups: Names | None = None
    calibrators: Names | None = None


class _ClaimTable(_Table):
    text: Text
    output: Text
    against: Names
    metric: ClaimMetric = "nll"
    groups: Names | None = None


class _BenchmarkTable(_Table):
    rows: Sizes | None = None
    seeds: Seeds | None = None
    calibrators: Names | None = None
    max_rows: Count = Benchmark.max_rows
    max_evaluation_rows: Count = Benchmark.max_evaluation_rows
    max_classes: Annotated[
        dict[str, Count], Field(description="a table [benchmark.max_classes]")
    ] = {}
    comparisons: Names | None = None
    claim: Annotated[list[_ClaimTable], Field(description="a table [[benchmark.claim]]")] = []


class _AnswersTable(_Table):
    groups: Names


class _CalArenaTable(_Table):
    file: Text
    group: Text | None = None


class _CalibratorTable(BaseModel):
    """A calibrator to import; all other fields are its parameters."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    path: Annotated[str, Field(alias="class", description='the place of a class, "module:Class"')]


class _StudyFile(_Table):
    title: Text | None = None
    data: Text = "."
    seeds: Seeds = list(SEEDS)
    calibrators: Names | None = None
    rivals: Names | None = None
    rival_groups: Names | None = None
    calibrator: Annotated[
        dict[str, _CalibratorTable], Field(description="a table [calibrator.mine]")
    ] = {}
    resample: Unit = "classifiers"
    experiments: Names | None = None
    format: Format = "csv"
    size: Annotated[_SizeTable, Field(description="a table [size]")] = _SizeTable()
    benchmark: Annotated[_BenchmarkTable | None, Field(description="a table [benchmark]")] = None
    answers: Annotated[_AnswersTable | None, Field(description="a table [answers]")] = None
    families: Annotated[
        dict[str, str], Field(description='a table [families] with lines model = "family"')
    ] = {}
    calarena: Annotated[list[_CalArenaTable], Field(description="a table [[calarena]]")] = []
    set: Annotated[list[_SetTable], Field(description="a table [[set]]")] = []


def read_study(
    path: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    allow_import: bool = False,
    check_files: bool = True,
) -> Study:
    """Read a study file and check everything that can be checked without its data.

    Parameters
    ----------
    path : path
        A TOML file; its paths are relative to its ``data``, which is relative to the file.
    data : path, optional
        The folder of the data files, instead of the one in the file.
    allow_import : bool
        Whether the file may name calibrators to import, which runs their code.
    check_files : bool
        Whether the data files must exist.

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
    lines = find_lines(text)
    try:
        tables = _StudyFile.model_validate(content)
    except ValidationError as error:
        raise ValueError(_first_problem(file, content, lines, error)) from None
    folder = file.parent / tables.data if data is None else Path(data)
    return _Reader(file, lines, tables, folder, check_files).study(allow_import=allow_import)


_TABLES: dict[str, type[BaseModel]] = {
    "set": _SetTable,
    "shifted": _ShiftedTable,
    "size": _SizeTable,
    "benchmark": _BenchmarkTable,
    "claim": _ClaimTable,
    "answers": _AnswersTable,
    "calarena": _CalArenaTable,
    "calibrator": _CalibratorTable,
}


def _first_problem(
    file: Path, content: dict[str, Any], lines: dict[Place, int], error: ValidationError
) -> str:
    """Return the message for the first line with a problem."""
    problems = [
        (_field_place(content, problem["loc"]), problem)
        for problem in error.errors(include_url=False)
    ]
    place, problem = min(problems, key=lambda entry: line_of(lines, entry[0]))
    where = f"{file.name}, line {line_of(lines, place)}"
    *above, name = (part for part in place if isinstance(part, str))
    tables: list[type[BaseModel]] = [
        _StudyFile,
        *(_TABLES[part] for part in above if part in _TABLES),
    ]
    fields = [
        {field.alias or key: field for key, field in table.model_fields.items()}
        for table in reversed(tables)
    ]
    if problem["type"] == "extra_forbidden":
        known = list(fields[0])
        return (
            f"{where}: unknown field {name!r}; {_near(name, known)}write one of {', '.join(known)}"
        )
    if problem["type"] == "missing":
        kind = next(part for part in reversed(above) if part in _TABLES)
        return (
            f"{where}: this {kind} has no {name}; add {name} = … ({_description(fields[0][name])})"
        )
    if problem["type"] == "literal_error":
        remedy = f"one of {problem['ctx']['expected'].replace(' or ', ', ')}"
    else:
        # The keys of a table such as [benchmark.max_classes] are not fields, but the table is.
        names = (name, *reversed(above))
        remedy = next(_description(table[key]) for key in names for table in fields if key in table)
    value: Any = content
    for step in place:
        value = value[step]
    return f"{where}: {name} is {value!r}; write {remedy}"


def _field_place(content: Any, location: Iterable[str | int]) -> Place:
    """Return the place of the field at which validation failed, without the parts of its type."""
    place: list[str | int] = []
    for part in location:
        known = part in content if isinstance(content, dict) else isinstance(part, int)
        if isinstance(content, dict) and not known:
            place.append(part)  # a missing field
        if not known or not isinstance(content, dict | list):
            break
        place.append(part)
        content = content[part]  # type: ignore[index]
    while place and isinstance(place[-1], int):
        place.pop()
    return tuple(place)


def _description(annotated: Any) -> str:
    """Return the description of a field, which may stand inside an optional type."""
    if getattr(annotated, "description", None):
        return str(annotated.description)
    inner = (*getattr(annotated, "__metadata__", ()), *get_args(annotated))
    inner += (getattr(annotated, "annotation", None),) if hasattr(annotated, "annotation") else ()
    return next(filter(None, map(_description, inner)), "")


def _near(name: str, known: Iterable[str]) -> str:
    """Return the known name that was probably meant, as the beginning of a remedy."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]!r}? " if near else ""


@dataclass(frozen=True, eq=False)
class _Reader:
    """Turns the tables of a study file into a study; checks what concerns several of them."""

    file: Path
    lines: dict[Place, int]
    tables: _StudyFile
    folder: Path
    check_files: bool

    def study(self, *, allow_import: bool) -> Study:
        tables = self.tables
        if self.check_files and not self.folder.is_dir():
            self.fail(
                ("data",), f"the folder {self.folder} does not exist; name the folder of the files"
            )
        own = self.imported(allow_import=allow_import)
        keys = (*available(), *own)
        sets = self.sets(keys)
        groups = tuple(dict.fromkeys(spec.group for spec in sets))
        if tables.answers is not None and tables.benchmark is None:
            self.fail(("answers",), "answers use the trials of the benchmark; add [benchmark]")
        experiments = (
            *EXPERIMENTS,
            *(name for name in OWN_EXPERIMENTS if getattr(tables, name) is not None),
        )
        size = tables.size
        answers = None if tables.answers is None else tables.answers.groups
        return Study(
            title=tables.title or self.file.stem,
            sets=sets,
            seeds=tuple(tables.seeds),
            calibrators=self.choices(tables.calibrators, keys, "calibrators") or usual_keys("base"),
            rivals=self.choices(tables.rivals, keys, "rivals") or usual_keys("rival"),
            experiments=self.choices(tables.experiments, experiments, "experiments") or experiments,
            format=tables.format,
            fractions=tuple(size.fractions),
            size_groups=self.choices(size.groups, groups, "size", "groups"),
            size_calibrators=self.choices(size.calibrators, keys, "size", "calibrators"),
            rival_groups=self.choices(tables.rival_groups, groups, "rival_groups"),
            own=own,
            benchmark=self.benchmark(groups),
            answers=self.choices(answers, groups, "answers", "groups") or (),
            resample=tables.resample,
        )

    def fail(self, place: Place, problem: str) -> NoReturn:
        raise ValueError(f"{self.where(place)}: {problem}")

    def where(self, place: Place) -> str:
        return f"{self.file.name}, line {line_of(self.lines, place)}"

    def choices(
        self, names: Sequence[str] | None, known: Sequence[str], *place: str | int
    ) -> tuple[str, ...] | None:
        """Return the names if all of them are known."""
        for name in names or ():
            if name not in known:
                self.fail(
                    place,
                    f"unknown name {name!r} in {place[-1]}; {_near(name, known)}"
                    f"write one of {', '.join(known)}",
                )
        return None if names is None else tuple(dict.fromkeys(names))

    def existing(self, name: str, *place: str | int) -> Path:
        """Return the path of a data file, which must exist."""
        path = self.folder / name
        if self.check_files and not path.is_file():
            files = [file.name for file in self.folder.iterdir()]
            self.fail(
                place,
                f"the file {name} does not exist in {self.folder}; {_near(name, files)}"
                "paths are relative to the folder of data, which --data names, or "
                "CORDCAL_STUDY_DATA",
            )
        return path

    def imported(self, *, allow_import: bool) -> dict[str, Imported]:
        """Return the calibrators of the tables [calibrator.name]; each is made once, as a check."""
        own: dict[str, Imported] = {}
        for name, table in self.tables.calibrator.items():
            place = ("calibrator", name)
            if name in available():
                self.fail(place, f"cordcal has a calibrator {name!r}; choose another name")
            try:
                if not allow_import:
                    raise InputError(
                        "class",
                        f"names {table.path!r}, and importing it runs its code",
                        "pass --allow-import (allow_import=True) if you trust it",
                    )
                own[name] = Imported(table.path, dict(table.model_extra or {}))
                adapted(own[name].make(), "logits", "class")
            except InputError as error:
                self.fail(place, str(error))
        return own

    def sets(self, keys: Sequence[str]) -> tuple[SetSpec, ...]:
        sets = self.calarena_sets()
        for index, table in enumerate(self.tables.set):
            spec = self.one_set(table, index, keys)
            if any((spec.group, spec.name) == (other.group, other.name) for other in sets):
                self.fail(
                    ("set", index, "name"),
                    f"the group {spec.group!r} has a set {spec.name!r} already; "
                    f"give each set of a group its own name",
                )
            sets.append(spec)
        if not sets and self.check_files:
            self.fail(("set",), "there is no data set; add one or more tables [[set]]")
        return tuple(sets)

    def one_set(self, table: _SetTable, index: int, keys: Sequence[str]) -> SetSpec:
        place = ("set", index)
        if table.shifted and table.evaluation is not None:
            self.fail(
                (*place, "shifted"),
                "a set with an evaluation file of its own has no rows that shifted files could "
                "share; name the shifted files in a set that is split at random",
            )
        file = self.existing(table.file, *place, "file")
        name = table.name or file.stem

        def other(field: Literal["evaluation", "features"]) -> Path | None:
            path = getattr(table, field)
            return None if path is None else self.existing(path, *place, field)

        return SetSpec(
            name=name,
            group=table.group,
            file=file,
            evaluation=other("evaluation"),
            input=table.input,
            key=table.key,
            labels=table.labels,
            features=other("features"),
            scale=table.scale,
            seeds=None if table.seeds is None else tuple(table.seeds),
            calibrators=self.choices(table.calibrators, keys, *place, "calibrators"),
            shifted=tuple(self.shifted(table, index)),
            source=table.source or f"{table.group}, {name}",
            family=table.family,
            benchmark=table.benchmark,
            networks=table.networks,
            place=self.where(place),
        )

    def shifted(self, table: _SetTable, index: int) -> Iterator[Shifted]:
        for number, entry in enumerate(table.shifted):
            file = self.existing(entry.file, "set", index, "shifted", number, "file")
            severities = entry.severity if isinstance(entry.severity, list) else [entry.severity]
            for part, severity in enumerate(severities):
                yield Shifted(entry.kind, severity, file, part, len(severities))

    def calarena_sets(self) -> list[SetSpec]:
        """Return one set for each experiment of each HDF5 file of CalArena's layout."""
        sets = []
        for index, table in enumerate(self.tables.calarena):
            place = ("calarena", index)
            file = self.existing(table.file, *place, "file")
            try:
                names = experiments_in(open_array_file(file)) if file.is_file() else []
            except ValueError as error:
                self.fail((*place, "file"), str(error))
            if self.check_files and not names:
                self.fail(
                    (*place, "file"),
                    f"{file.name} has no groups with probas_cal, labels_cal, probas_test and "
                    f"labels_test; name it in a table [[set]] instead",
                )
            for name in names:
                source, _, model = name.rpartition("/")
                sets.append(
                    SetSpec(
                        name=name,
                        group=table.group or file.stem,
                        file=file,
                        experiment=name,
                        source=source or name,
                        family=self.tables.families.get(model, "not stated"),
                        place=self.where(place),
                    )
                )
        return sets

    def benchmark(self, groups: Sequence[str]) -> Benchmark | None:
        table = self.tables.benchmark
        if table is None:
            return None
        default = Benchmark()
        place = ("benchmark",)
        keys = self.choices(table.calibrators, available(), *place, "calibrators")
        keys = keys or default.calibrators
        outputs = possible_outputs(keys)
        for key in table.max_classes:
            self.choices([key], available(), *place, "max_classes", key)
        compared = self.choices(table.comparisons, outputs, *place, "comparisons")
        return Benchmark(
            rows=default.rows if table.rows is None else tuple(table.rows),
            seeds=default.seeds if table.seeds is None else tuple(table.seeds),
            calibrators=keys,
            max_rows=table.max_rows,
            max_evaluation_rows=table.max_evaluation_rows,
            max_classes=table.max_classes,
            comparisons=compared or tuple(n for n in default.comparisons if n in outputs),
            claims=tuple(
                self.claim(claim, index, outputs, groups) for index, claim in enumerate(table.claim)
            ),
        )

    def claim(
        self, table: _ClaimTable, index: int, outputs: Sequence[str], groups: Sequence[str]
    ) -> Claim:
        place = ("benchmark", "claim", index)
        self.choices([table.output], outputs, *place, "output")
        return Claim(
            table.text,
            table.output,
            self.choices(table.against, (PRESERVING, ALL, *outputs), *place, "against") or (),
            table.metric,
            self.choices(table.groups, groups, *place, "groups") or (),
        )
