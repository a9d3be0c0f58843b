"""The tables of a study file that speak of the league and of CalArena's files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from cordcal.calibrators import available
from cordcal.files.calarena import experiments_in
from cordcal.files.formats import open_contents
from cordcal_study._lines import Place
from cordcal_study._reader import Reader
from cordcal_study.league.fixtures import ALL, KEEPERS, possible_reports
from cordcal_study.specs import Claim, League, SetSpec

MEASURES = ("nll", "brier", "ece")
_FIELDS = (
    "rows",
    "seeds",
    "calibrators",
    "most_rows",
    "most_evaluation",
    "most_classes",
    "duels",
    "claim",
)
_CLAIM_FIELDS = ("text", "report", "against", "measure", "groups")
_CALARENA_FIELDS = ("file", "group")


def read_league(reader: Reader, groups: Sequence[str]) -> League | None:
    """Return how the league is played, or None where the file does not speak of it."""
    if "league" not in reader.content:
        return None
    table = reader.table(reader.content, "league", _FIELDS)
    place = ("league",)
    default = League()
    keys = reader.choices(table, place, "calibrators", available()) or default.calibrators
    names = possible_reports(keys)
    return League(
        rows=_rows(reader, table),
        seeds=reader.seeds(table, place) or default.seeds,
        calibrators=keys,
        most_rows=_count(reader, table, place, "most_rows", default.most_rows),
        most_evaluation=_count(reader, table, place, "most_evaluation", default.most_evaluation),
        most_classes=_limits(reader, table),
        duels=reader.choices(table, place, "duels", names)
        or tuple(name for name in default.duels if name in names),
        claims=tuple(
            _claim(reader, each, (*place, "claim", index), names, groups)
            for index, each in enumerate(table.get("claim", []))
        ),
    )


def _rows(reader: Reader, table: dict[str, Any]) -> tuple[int | Literal["all"], ...]:
    given = table.get("rows", list(League().rows))
    fine = isinstance(given, list) and all(each == ALL or _is_count(each) for each in given)
    if not fine or not given or len(set(given)) != len(given):
        reader.fail(
            ("league", "rows"), f'rows is {given!r}; write counts such as [300, 1000, "all"]'
        )
    return tuple(given)


def _count(reader: Reader, table: Mapping[str, Any], place: Place, name: str, default: int) -> int:
    given = table.get(name, default)
    if not _is_count(given):
        reader.fail((*place, name), f"{name} is {given!r}; write a whole number above 1")
    return int(given)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 1


def _limits(reader: Reader, table: Mapping[str, Any]) -> dict[str, int]:
    limits = table.get("most_classes", {})
    place = ("league", "most_classes")
    if not isinstance(limits, dict):
        reader.fail(place, "most_classes is a table; write [league.most_classes] and keys below")
    reader.known(limits, place, available())
    return {key: _count(reader, limits, place, key, 2) for key in limits}


def _claim(
    reader: Reader, table: Any, place: Place, names: Sequence[str], groups: Sequence[str]
) -> Claim:
    if not isinstance(table, dict):
        reader.fail(place, "claims are tables; write [[league.claim]] for each")
    reader.known(table, place, _CLAIM_FIELDS)
    for name in ("text", "report", "against"):
        if name not in table:
            reader.fail(place, f"this claim has no {name}; add {name} = …")
    report = cast(str, reader.choice(table, place, "report", names))
    measure = reader.choice(table, place, "measure", MEASURES) or MEASURES[0]
    against = reader.choices(table, place, "against", (KEEPERS, ALL, *names)) or ()
    chosen = reader.choices(table, place, "groups", groups) or ()
    return Claim(reader.text(table, place, "text", ""), report, against, measure, chosen)


def calarena_sets(reader: Reader) -> list[SetSpec]:
    """Return one set for each experiment of each HDF5 file of CalArena's layout."""
    tables = reader.content.get("calarena", [])
    families = reader.content.get("families", {})
    if not isinstance(families, dict) or not all(
        isinstance(each, str) for each in families.values()
    ):
        reader.fail(("families",), 'families is a table of words; write model = "family"')
    sets = []
    for index, table in enumerate(tables):
        place: Place = ("calarena", index)
        if not isinstance(table, dict) or "file" not in table:
            reader.fail(place, 'files of CalArena are tables; write [[calarena]] and file = "…"')
        reader.known(table, place, _CALARENA_FIELDS)
        file = reader.existing(table, place, "file")
        assert file is not None
        try:
            names = experiments_in(open_contents(file))
        except ValueError as error:
            reader.fail((*place, "file"), str(error))
        if not names:
            reader.fail(
                (*place, "file"),
                f"{file.name} holds no groups with probas_cal, labels_cal, probas_test and "
                f"labels_test; name it in a table [[set]] instead",
            )
        group = reader.text(table, place, "group", file.stem)
        for name in names:
            source, _, model = name.rpartition("/")
            sets.append(
                SetSpec(
                    name=name,
                    group=group,
                    file=file,
                    experiment=name,
                    source=source or name,
                    family=families.get(model, "not stated"),
                    place=reader.place(*place),
                )
            )
    return sets
