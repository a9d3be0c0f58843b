"""Reports as lines of text: CSV and JSONL."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal.files._header import is_number
from cordcal.files.encoding import Encoder, OutputBlock, Piece
from cordcal.files.passthrough import MISSING

# What makes a spreadsheet take a cell for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class CSV(Encoder):
    """A line a row: what is passed on, the decision, the reports class by class, and the rest.

    With ``spreadsheet`` words that a spreadsheet would run as formulas begin with an
    apostrophe; numbers stay as they are.
    """

    def _head(self, block: OutputBlock) -> bytes:
        header = [
            heading
            for report, values in block.reports.items()
            for heading in self.headings(report, values.shape[1])
        ]
        passed = () if block.rest is None else block.rest.names
        return _lines([[*passed, "decision", *header, *block.extra]])

    def _words(self, words: list[str]) -> list[str]:
        return list(map(_guarded, words)) if self.spreadsheet else words

    def encode(self, block: OutputBlock) -> Piece:
        """Return the lines, with the shortest digits that read back as the same numbers."""
        kept = block.decision.tolist()
        if self.names is not None:
            names = self._words(self.names)
            kept = [names[index] for index in kept]
        passed = [] if block.rest is None else block.rest.columns.values()
        before = [self._words(column.to_text()) for column in passed]
        rows = [report.astype(np.str_) for report in block.reports.values()]
        more = [np.asarray(column).astype(np.str_) for column in block.extra.values()]
        lines = (
            [
                *(column[at] for column in before),
                name,
                *(cell for row in rows for cell in row[at]),
                *(column[at] for column in more),
            ]
            for at, name in enumerate(kept)
        )
        return Piece(_lines(lines), len(block), self._head(block))


def _guarded(cell: str) -> str:
    """Return a cell that no spreadsheet runs."""
    return f"'{cell}" if cell.startswith(_FORMULA) and not is_number(cell) else cell


def _lines(rows: Any) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    text = buffer.getvalue()
    if "\0" in text:  # no CSV reader takes it for text
        raise InputError(
            "output",
            "would have a NUL character in its text, which a CSV file cannot hold",
            "write a Parquet, Feather or JSONL file, or leave out the other columns with {option}",
            option=("rest", "False"),
        )
    return text.encode()


class JSONL(Encoder):
    """An object a line: what is passed on, the decision, the reports, and the rest."""

    def encode(self, block: OutputBlock) -> Piece:
        """Return the lines, with the shortest digits that read back as the same numbers."""
        passed = {} if block.rest is None else block.rest.columns
        columns = [
            [(key, _json(value)) for value in column.to_json()] for key, column in passed.items()
        ]
        decision = block.decision.tolist()
        columns.append([("decision", str(index)) for index in decision])
        if self.names is not None:
            words = [_json(name) for name in self.names]
            columns.append([("decision_name", words[index]) for index in decision])
        for report, values in block.reports.items():
            columns += self._report(report, values)
        for key, values in block.extra.items():
            columns.append([(key, _json(value)) for value in np.asarray(values).tolist()])
        keys = {
            key: json.dumps(key, ensure_ascii=False) for column in columns for key, _ in column[:1]
        }
        lines = (
            "{" + ", ".join(f"{keys[key]}: {text}" for key, text in row if text is not None) + "}\n"
            for row in zip(*columns, strict=True)
        )
        return Piece("".join(lines).encode(), len(block))

    def _report(
        self, report: str, values: npt.NDArray[Any]
    ) -> Iterator[list[tuple[str, str | None]]]:
        digits = values.astype(np.str_)
        if self.layout == "list":
            yield [(report, f"[{', '.join(row)}]") for row in digits.tolist()]
            return
        for at, heading in enumerate(self.headings(report, values.shape[1])):
            yield [(heading, text) for text in digits[:, at].tolist()]


def _json(value: Any) -> str | None:
    """Return a value as JSON; None where a row has none."""
    if value is MISSING:
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return "null"
    return json.dumps(value, ensure_ascii=False)
