"""Files of JSON lines, and right answers that are joined to them by identifier."""

from __future__ import annotations

import csv
import io
import json
import os
from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cordcal._errors import InputError
from cordcal.files.opening import read_whole
from cordcal.llm.layouts import ID_FIELDS, Json, find_id

# How many identifiers and files a message lists.
_MAX_LISTED = 3


@dataclass(frozen=True)
class JsonLines:
    """The JSON objects of a file by row number, and the errors of the rows that are not."""

    path: str
    lines: Mapping[int, Json]
    errors: Mapping[int, InputError]


def read_json_lines(path: str | os.PathLike[str]) -> JsonLines:
    """Read the lines of a JSONL file; empty lines do not count."""
    name, data = read_whole(path)
    # Bytes split only at line ends; text also splits at some characters within JSON strings.
    texts = [text for text in data.removeprefix(BOM_UTF8).splitlines() if text.strip()]
    if not texts:
        raise InputError(name, "has no lines", "write one question per line as a JSON object")
    lines: dict[int, Json] = {}
    errors: dict[int, InputError] = {}
    for row, text in enumerate(texts):
        try:
            lines[row] = _parse_line(name, text, row)
        except InputError as error:
            errors[row] = error
    if not lines:
        _refuse_json_document(name, path, data)
    return JsonLines(name, lines, errors)


def _parse_line(name: str, text: bytes, row: int) -> Json:
    try:
        line = json.loads(text.decode("utf-8", "replace"))
    except json.JSONDecodeError as error:
        raise InputError(
            name,
            "is not valid JSON",
            "fix the line, or pass {option}",
            rows=[row],
            detail=f"is not valid JSON from character {error.pos} on",
            option=("on_error", "skip"),
        ) from None
    except (ValueError, RecursionError):
        line = None
    if not isinstance(line, dict):
        raise InputError(
            name, "is not a JSON object", "write one question per line as {…}", rows=[row]
        )
    return line


def _refuse_json_document(name: str, path: str | os.PathLike[str], data: bytes) -> None:
    """Refuse a file that is one JSON document, with advice about the ones that people have."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return
    if is_harness_summary(document):
        samples = [sample.name for sample in harness_samples(path)]
        raise InputError(
            name,
            "is a summary of lm-evaluation-harness: it has metrics of tasks but no questions",
            f"pass the samples next to it: {', '.join(samples[:_MAX_LISTED])}"
            if samples
            else "pass its file samples_*.jsonl, which the harness writes with --log_samples",
        )
    if isinstance(document, list):
        raise InputError(name, "is a JSON list", "write one object per line, as jq -c '.[]' does")


def is_harness_summary(document: object) -> bool:
    """Return whether a JSON document is a ``results_*.json`` of lm-evaluation-harness."""
    return (
        isinstance(document, Mapping)
        and isinstance(document.get("results"), Mapping)
        and isinstance(document.get("configs"), Mapping)
    )


def harness_samples(summary: str | os.PathLike[str]) -> list[Path]:
    """Return the samples that lm-evaluation-harness wrote together with a summary."""
    path = Path(summary)
    date = path.stem.partition("_")[2]
    return sorted(path.parent.glob(f"samples_*_{date}.jsonl")) if date else []


@dataclass(frozen=True)
class JoinedLabels:
    """The line of a labels file for each row, and the errors of the rows without one."""

    path: str
    lines: Mapping[int, Json]
    errors: Mapping[int, InputError]
    unanswered: tuple[str, ...]


def join_labels(
    file: JsonLines,
    labels: str | os.PathLike[str] | Mapping[str, object],
    join: str | None,
) -> JoinedLabels:
    """Find the right answer of each line by its identifier."""
    if isinstance(labels, Mapping):
        name, field = "labels", join or _common_field([file.lines.values()], file.path)
        gold: dict[str, Json] = {str(key): {"answer": value} for key, value in labels.items()}
    else:
        source = _read_label_lines(labels)
        name = source.path
        if source.errors:
            raise source.errors[min(source.errors)]
        both = [file.lines.values(), source.lines.values()]
        field = join or _common_field(both, f"{file.path} and {name}")
        gold = {key: source.lines[row] for key, row in unique_ids(source, field).items()}
    lines: dict[int, Json] = {}
    unknown: dict[int, str] = {}
    first_rows: dict[str, int] = {}
    errors: dict[int, InputError] = {}
    for row, line in file.lines.items():
        key = find_id(line, field)
        if key is None:
            errors[row] = _no_id(file.path, field, row)
        elif key in first_rows:
            errors[row] = _double_id(file.path, field, key, first_rows[key], row)
        elif key not in gold:
            unknown[row] = key
        else:
            lines[row] = gold[key]
        if key is not None:
            first_rows.setdefault(key, row)
    ids = tuple(unknown.values())
    for row in unknown:
        errors[row] = InputError(
            file.path,
            f"has an id without a label in {name}",
            "add the labels, or pass {option}",
            rows=list(unknown),
            detail=f"has no label: {name} lacks {field} {list_ids(ids)}",
            option=("on_error", "skip"),
        )
    return JoinedLabels(name, lines, errors, tuple(key for key in gold if key not in first_rows))


def _read_label_lines(path: str | os.PathLike[str]) -> JsonLines:
    """Read a labels file: JSONL, or CSV with a header."""
    name = os.fspath(path)
    if not name.lower().endswith((".csv", ".tsv")):
        return read_json_lines(path)
    _, data = read_whole(path)
    text = data.decode("utf-8-sig", "replace")
    table = csv.DictReader(
        io.StringIO(text, newline=""), delimiter="\t" if name.lower().endswith(".tsv") else ","
    )
    rows: list[Json] = [{str(column): cell for column, cell in row.items()} for row in table]
    if not rows:
        raise InputError(name, "has no rows", "write a header, and one label per line")
    return JsonLines(name, dict(enumerate(rows)), {})


def _common_field(files: Sequence[Iterable[Json]], names: str) -> str:
    """Return the identifier that the first line of each file has."""
    first_lines = [next(iter(file)) for file in files]
    for field in ID_FIELDS:
        if all(find_id(line, field) is not None for line in first_lines):
            return field
    raise InputError(
        "join",
        f"is missing: {names} share none of the fields {', '.join(ID_FIELDS)}",
        "name the field of the identifiers",
    )


def unique_ids(file: JsonLines, field: str) -> dict[str, int]:
    """Return the row of each identifier, or refuse a file where one is missing or double."""
    rows: dict[str, int] = {}
    for row, line in file.lines.items():
        key = find_id(line, field)
        if key is None:
            raise _no_id(file.path, field, row)
        if key in rows:
            raise _double_id(file.path, field, key, rows[key], row)
        rows[key] = row
    return rows


def _no_id(path: str, field: str, row: int) -> InputError:
    return InputError(
        path,
        f"has no {field}",
        "name the field of the identifiers with {option}",
        rows=[row],
        option=("join", "id"),
    )


def _double_id(path: str, field: str, key: str, first: int, row: int) -> InputError:
    return InputError(
        path,
        f"has a {field} that an earlier line has",
        "keep one line per identifier",
        rows=[row],
        detail=f"has the {field} {key!r} of row {first} again",
    )


def list_ids(ids: Sequence[str]) -> str:
    listed = ", ".join(repr(key) for key in ids[:_MAX_LISTED])
    more = len(ids) - _MAX_LISTED
    return f"{listed} and {more:,} more" if more > 0 else listed
