"""Files of answers: their lines and identifiers, and the lines of other files joined to them."""

from __future__ import annotations

import csv
import gc
import io
import json
import os
import re
import zipfile
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cordcal._errors import InputError
from cordcal.files.disk import InputFile, check_size, parts_of, read_whole, reading
from cordcal.llm.layouts import Json, find_field, find_id, is_harness_sample, request_failed

ID_FIELDS = ("custom_id", "doc_id", "question_id", "id")
GROUP_FIELDS = ("group", "subject", "task")

# How many identifiers and files a message lists.
_MAX_LISTED = 3
# samples_mmlu_law_2026-01-31T10-20-30.123456.jsonl, as lm-evaluation-harness names them.
_SAMPLES = re.compile(r"samples_(.+?)(?:_\d{4}-\d\d-\d\dT[\d.:-]+)?")


# The number of Zstandard in zip archives, which Python's own module reads from 3.14 on.
_ZIP_ZSTD = 93


@dataclass(frozen=True)
class SourceLine:
    """A line of a source: its file, its number there, and its content.

    Attributes
    ----------
    path : str
        The file.
    row : int
        The number of the line, from 0; empty lines do not count.
    line : mapping
        The JSON object.
    task : str or None
        The task of a sample of lm-evaluation-harness or Inspect, which the line does not have.
    """

    path: str
    row: int
    line: Json
    task: str | None = None

    def group(self) -> str | None:
        """Return the subject or the task, if the line or the name of its file has one."""
        return group_in(self.line, None) or self.task

    def error(self, reason: str, hint: str, *, detail: str | None = None) -> InputError:
        """Return the error of this line."""
        return InputError(self.path, reason, hint, rows=[self.row], detail=detail)


@dataclass(frozen=True)
class Source:
    """The lines of all files of a source.

    Attributes
    ----------
    lines : list of SourceLine
        Lines that are JSON objects.
    failed : list of SourceLine
        Lines of a Batch API whose request failed.
    errors : list of InputError
        The errors of lines that are not JSON objects.
    """

    lines: list[SourceLine]
    failed: list[SourceLine]
    errors: list[InputError]

    @property
    def name(self) -> str:
        """The first file, for messages."""
        return (self.lines or self.failed)[0].path if self.lines or self.failed else "the source"


@contextmanager
def without_collection() -> Iterator[None]:
    """Pause the search for cycles: JSON has none, and it takes more time than parsing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def read_source(paths: Sequence[str | os.PathLike[str]]) -> Source:
    """Read the lines of files, folders and patterns; of folders JSONL and logs of Inspect."""
    source = Source([], [], [])
    for path in paths:
        for part in _parts(os.fspath(path)):
            file, task = read_log(part) or (read_json_lines(part), None)
            named = _SAMPLES.fullmatch(Path(part).stem)
            source.errors.extend(file.errors.values())
            for row, line in file.lines.items():
                kind = source.failed if request_failed(line) else source.lines
                if named is not None and is_harness_sample(line):
                    task = named[1]
                kind.append(SourceLine(file.path, row, line, task))
    return source


def _parts(path: str) -> list[str]:
    if not Path(path).is_dir():
        return parts_of(path) or [path]
    files = sorted(file for suffix in ("jsonl", "eval") for file in Path(path).rglob(f"*.{suffix}"))
    if not files:
        raise InputError(path, "has no file *.jsonl or *.eval", "pass the folder of the answers")
    return list(map(os.fspath, files))


def read_log(path: str) -> tuple[JsonLines, str | None] | None:
    """Return the samples of a log of Inspect and its task; None for another file."""
    suffix = Path(path).suffix.lower()
    samples: Any
    if suffix == ".eval":
        members = read_zip(path)
        header = members.get("header.json") or members.get("_journal/start.json") or b"null"
        texts = [members[name] for name in sorted(members) if name.startswith("samples/")]
        log = _parse_json(header)
        samples = list(map(_parse_json, texts))
    elif suffix == ".json":
        log = _parse_json(read_whole(path)[1])
        samples = log.get("samples") if isinstance(log, Mapping) and "eval" in log else None
        if not isinstance(samples, list):
            return None
    else:
        return None
    lines = {row: sample for row, sample in enumerate(samples) if isinstance(sample, dict)}
    if not lines:
        raise InputError(path, "has no samples", "pass the log of an evaluation that ran")
    facts = log.get("eval") if isinstance(log, Mapping) else None
    task = facts.get("task") if isinstance(facts, Mapping) else None
    errors = {
        row: InputError(path, "is not a JSON object", "write the log again", rows=[row])
        for row in range(len(samples))
        if row not in lines
    }
    return JsonLines(path, lines, errors), task if isinstance(task, str) else None


def read_zip(path: str | os.PathLike[str]) -> dict[str, bytes]:
    """Return the members of a zip archive, also those that Zstandard compressed."""
    file = InputFile.from_path(path)
    members: dict[str, bytes] = {}
    opened = reading(file.name, "an archive", "copy it again")
    with opened, file.open() as stream, zipfile.ZipFile(stream) as archive:
        check_size(file.name, sum(member.file_size for member in archive.infolist()))
        for member in archive.infolist():
            if member.compress_type != _ZIP_ZSTD:
                members[member.filename] = archive.read(member)
                continue
            import pyarrow as pa

            stream.seek(member.header_offset + 26)
            skipped = sum(int.from_bytes(stream.read(2), "little") for _ in range(2))
            stream.seek(skipped, os.SEEK_CUR)
            packed = pa.BufferReader(stream.read(member.compress_size))
            data = pa.CompressedInputStream(packed, "zstd").read(member.file_size)
            if zlib.crc32(data) != member.CRC:
                raise zipfile.BadZipFile(f"{member.filename} is damaged")
            members[member.filename] = data
    return members


def _parse_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


# Identifiers -------------------------------------------------------------------------------------


def id_field(source: Source, others: Sequence[JsonLines], join: str | None) -> str | None:
    """Return the field that identifies questions in every file; None if none has any."""
    if join is not None:
        return join
    files = [
        [line.line for line in source.lines],
        *(list(other.lines.values()) for other in others),
    ]
    for field in ID_FIELDS:
        if all(any(find_id(line, field) is not None for line in file) for file in files):
            return field
    if not others:
        return None
    raise InputError(
        "join",
        f"is missing: {source.name} and {others[0].path} share none of the fields "
        f"{', '.join(ID_FIELDS)}",
        "name the field of the identifiers",
    )


def identify(source: Source, field: str | None) -> dict[int, str]:
    """Return the identifier of each line by its position; lines without one are missing.

    Samples of lm-evaluation-harness and Inspect count within their task, so that is part of it,
    as is the epoch of Inspect from the second on.  Questions without a field for it are numbered
    within their file.
    """
    ids: dict[int, str] = {}
    first: dict[str, SourceLine] = {}
    for at, line in enumerate(source.lines):
        if field is None:
            key: str | None = f"{Path(line.path).stem}/{line.row}"
        else:
            key = find_id(line.line, field)
            if key is not None and line.task is not None:
                key = f"{line.task}/{key}"
            epoch = line.line.get("epoch")
            if key is not None and isinstance(epoch, int) and epoch > 1:
                key = f"{key}/{epoch}"
        if key is None:
            continue
        other = first.setdefault(key, line)
        if other is not line:
            raise line.error(
                f"has a {field or 'name'} that another line has",
                "keep one line per identifier",
                detail=f"has the {field or 'name'} {key!r} of row {other.row} of {other.path}",
            )
        ids[at] = key
    return ids


def no_id(line: SourceLine, field: str) -> InputError:
    """Return the error of a line without an identifier."""
    return InputError(
        line.path,
        f"has no {field}",
        "name the field of the identifiers with {option}",
        rows=[line.row],
        option=("join", "id"),
    )


class Joined:
    """The lines of another file by the identifiers of a source; their order does not matter.

    Parameters
    ----------
    file : JsonLines
        The other file.
    field : str
        The field of the identifiers in both.
    source : Source
        The lines to find partners for.
    ids : mapping of int to str
        Their identifiers.
    """

    def __init__(self, file: JsonLines, field: str, source: Source, ids: Mapping[int, str]) -> None:
        if file.errors:
            raise file.errors[min(file.errors)]
        self.path, self._field = file.path, field
        self._rows = unique_ids(file, field)
        self._lines = file.lines
        plain = {at: str(find_id(source.lines[at].line, field)) for at in ids}
        # Samples of several tasks have the same numbers; then the other file names tasks, too.
        self._keys = plain if len(set(plain.values())) == len(plain) else ids

    def line(self, at: int) -> Json | None:
        """Return the partner of a line of the source by its position, or None."""
        row = self._rows.get(self._keys[at])
        return None if row is None else self._lines[row]

    def missing(self, line: SourceLine, at: int, what: str) -> InputError:
        """Return the error of a line without a partner."""
        return InputError(
            line.path,
            f"has an id without a {what} in {self.path}",
            f"add the {what}, or pass {{option}}",
            rows=[line.row],
            detail=f"has no {what}: {self.path} lacks {self._field} {self._keys[at]!r}",
            option=("on_error", "skip"),
        )

    def unanswered(self) -> tuple[str, ...]:
        """Return the identifiers of the other file that no line of the source has."""
        answered = set(self._keys.values())
        return tuple(sorted(key for key in self._rows if key not in answered))


def unique_ids(file: JsonLines, field: str) -> dict[str, int]:
    """Return the row of each identifier, or refuse a file where one is missing or double."""
    rows: dict[str, int] = {}
    for row, line in file.lines.items():
        key = find_id(line, field)
        if key is None:
            raise no_id(SourceLine(file.path, row, line), field)
        if key in rows:
            raise InputError(
                file.path,
                f"has a {field} that another line has",
                "keep one line per identifier",
                rows=[row],
                detail=f"has the {field} {key!r} of row {rows[key]} again",
            )
        rows[key] = row
    return rows


def group_in(line: Json, column: str | None) -> str | None:
    """Return the group that a line names in a column, by default one called like a group."""
    names = GROUP_FIELDS if column is None else (column,)
    values = (find_field(line, name) for name in names)
    return next((str(value) for value in values if isinstance(value, str | int)), None)


# Lines -------------------------------------------------------------------------------------------


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


def read_side_lines(path: str | os.PathLike[str]) -> JsonLines:
    """Read the lines of labels or groups: JSONL, or CSV with a header."""
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
        raise InputError(name, "has no rows", "write a header, and one question per line")
    return JsonLines(name, dict(enumerate(rows)), {})


def list_ids(ids: Sequence[str]) -> str:
    """Return the first identifiers for a message, and how many more there are."""
    listed = ", ".join(repr(key) for key in ids[:_MAX_LISTED])
    more = len(ids) - _MAX_LISTED
    return f"{listed} and {more:,} more" if more > 0 else listed
