"""Describe a file: its arrays, their kind, and problems that would stop a calibrator."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.types import Kind, NumPyArray, NumPyDType
from cordcal._validation.labels import as_indices
from cordcal._validation.scores import sum_tolerance, sum_warning_level
from cordcal.files.columns import LABEL_NAMES, ColumnSpec, TextOptions
from cordcal.files.disk import open_regular, parts_of
from cordcal.files.kinds import (
    MIN_ROWS_TO_JUDGE,
    check_whole_vectors,
    may_be_ranks,
    sum_deviation,
)
from cordcal.files.models import is_model, load
from cordcal.files.scores import BATCH_BYTES, ScoreFile
from cordcal.files.sources import Source, open_source, parse_labels

if TYPE_CHECKING:
    from cordcal.files.arrays import ArrayFile

# Matrices that are not scores.
_FEATURES = ("features", "embeddings")

_PAGE = re.compile(rb'<meta name="generator" content="cordcal ([^"]*)"')
# An ONNX graph begins with the IR version, then producer name and version after their lengths.
_GRAPH = re.compile(rb"\x08.\x12\x07cordcal\x1a(.)(.*)", re.DOTALL)


def inspect(
    path: str | os.PathLike[str],
    *,
    header: bool | None = None,
    decimal: str = ".",
    encoding: str | None = None,
) -> dict[str, Any]:
    """Describe the contents of a file as plain values.

    Parameters
    ----------
    path : path or "-"
        A file of scores, a folder or a pattern of them, a model, an ONNX graph or a report.
    header, decimal, encoding
        How text files are read, as for `read_scores`.

    Returns
    -------
    description : dict
        ``file``, ``format``, entries that depend on the format, and ``problems``, a list of
        sentences.
    """
    text = TextOptions(header, decimal, encoding)
    if str(path) != "-" and parts_of(os.fspath(path)) is None:
        with open_regular(path) as file:
            head = file.read(4096)
        if is_model(path):
            return _describe_model(path)
        if (page := _PAGE.search(head)) is not None:
            return _describe_own_output(path, "report", page[1])
        if (graph := _GRAPH.match(head)) is not None:
            return _describe_own_output(path, "ONNX graph", graph[2][: graph[1][0]])
    source = open_source(os.fspath(path), text)
    return _describe_table(source, text) if source.is_table else _describe_arrays(source)


def _describe_model(path: str | os.PathLike[str]) -> dict[str, Any]:
    model = load(path)
    construction = getattr(model, "construction_", None)  # a calibrator alone has none
    calibrator = getattr(model, "calibrator_", None)
    context = getattr(getattr(model, "repair_", model), "context_", None)
    return {
        "file": str(path),
        "format": "model",
        "calibrator": None if calibrator is None else calibrator.key,
        "title": None if calibrator is None else calibrator.title,
        "input": None if calibrator is None else calibrator.input,
        "scores_from": getattr(model, "scores_from_", None),
        "classes": model.n_classes_,
        "class_names": None
        if getattr(model, "class_names", None) is None
        else [str(name) for name in model.class_names],
        "columns": list(getattr(model, "score_columns_", ())) or None,
        "preserve": getattr(model, "preserve", 1),
        "calibration_rows": None if construction is None else construction.n,
        "rule": None if (rule := getattr(model, "rule_", None)) is None else repr(rule),
        "predictions_the_calibrator_changed": None
        if construction is None
        else construction.n_changed,
        "certificate": None
        if (certificate := getattr(model, "certificate_", None)) is None
        else str(certificate).splitlines()[0],
        "context": None if context is None else list(context.names),
        "without_effect": (context and list(context.without_effect)) or None,
        "effects": [] if context is None else [effect.to_dict() for effect in context.effects()],
        "problems": [],
    }


def _describe_own_output(
    path: str | os.PathLike[str], format: str, version: bytes
) -> dict[str, Any]:
    return {
        "file": str(path),
        "format": format,
        "made_by": f"cordcal {version.decode(errors='replace')}",
        "bytes": Path(path).stat().st_size,
        "problems": [],
    }


def _describe_arrays(source: Source) -> dict[str, Any]:
    """Describe the arrays of files, reading them in spans of rows."""
    files = cast("Sequence[ArrayFile]", source.files)
    first = files[0]
    summaries = []
    for name, shape in first.shapes.items():
        rows = sum(file.shapes[name][0] for file in files if name in file.shapes)
        summary = _ArraySummary(name, (rows, *shape[1:]))
        summary.dtype = first.stored[name][1]
        try:
            for file in files:
                if 0 in summary.shape or (len(shape) == 1 and name not in LABEL_NAMES):
                    continue
                size = max(1, BATCH_BYTES // (summary.dtype.itemsize * (*shape, 1)[1] or 1))
                for start in range(0, file.shapes[name][0], size):
                    summary.add(file.read(name, start, start + size))
        except InputError as error:  # an array that is too large, or damaged
            summary.error = str(error)
        summaries.append(summary)
    return _describe(source.path, source.format, first.class_names, summaries)


def _describe_table(source: Source, text: TextOptions) -> dict[str, Any]:
    """Describe the scores, the labels and the other columns of a table."""
    spec = ColumnSpec(text=text)
    layout = source.layout(spec, "scores", None)
    columns = types = source.types
    summaries: list[_ArraySummary] = []
    names = None
    problems: list[str] = []
    if isinstance(layout, InputError):
        problems.append(str(layout))
    else:
        file = ScoreFile(source, layout, spec)
        names = file.class_names
        summary = _ArraySummary(layout.key, (0, file.classes))
        for batch in file.without_labels():
            summary.add(batch.values)
        if not may_be_ranks(names):
            summary.top_k_problems.clear()
        summary.shape = (summary.rows, file.classes)
        summaries.append(summary)
        columns = {name: kind for name, kind in types.items() if name not in layout.columns}
    label = source.label_column("", spec)
    if label is not None and summaries:
        labels = _ArraySummary(label, summaries[0].shape[:1])
        labels.add(parse_labels(source.column(label)))
        summaries.append(labels)
        columns = {name: kind for name, kind in columns.items() if name != label}
    described = _describe(source.path, source.format, names, summaries)
    entries = [{"name": name, "type": f"column of {kind}s"} for name, kind in columns.items()]
    described["entries"] += [
        {**entry, "type": "another column" if "other" in entry["type"] else entry["type"]}
        for entry in entries
    ]
    if problems:
        described["problems"] = problems
    return described


def _describe(
    path: str, format: str, names: tuple[str, ...] | None, summaries: list[_ArraySummary]
) -> dict[str, Any]:
    shapes: list[tuple[int, ...]] = [
        summary.shape for summary in summaries if len(summary.shape) == 2
    ]
    problems = [
        problem for summary in summaries for problem in summary.problems(shapes, names, path)
    ]
    if not summaries:
        problems.append("there is no matrix of scores (rows × classes)")
    return {
        "file": path,
        "format": format,
        "class_names": None if names is None else list(names),
        "entries": [summary.entry() for summary in summaries],
        "problems": problems,
    }


class _ArraySummary:
    """What `inspect` reports of one array, updated piece by piece."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.name, self.shape = name, shape
        self.error: str | None = None
        self.dtype: NumPyDType | None = None
        self.rows = 0
        self.kinds: set[Kind] = set()
        self.flagged: dict[str, tuple[int, int]] = {}
        self.deviation = 0.0
        self.within_one = True
        self.top_k_problems: list[str | None] = []
        self.vectors: list[NumPyArray] = []

    def add(self, values: NumPyArray) -> None:
        """Update with more rows."""
        self.dtype = values.dtype
        if values.ndim == 2:
            if values.dtype.kind == "f" and values.size and self.name not in _FEATURES:
                self._add_scores(values)
        elif self.name in LABEL_NAMES:
            self.vectors.append(values)
        self.rows += len(values)

    def _add_scores(self, matrix: NumPyArray) -> None:
        top = matrix.max(axis=1, keepdims=True)
        missing = np.isnan(top[:, 0])  # NaN is the largest of any row it is in
        self._flag("NaN", missing)
        if missing.any():
            return  # comparisons with NaN would be wrong
        self._flag("an infinite value", top[:, 0] == np.inf)
        at_top = matrix == top
        if np.count_nonzero(at_top) > len(matrix):  # several times faster than per row
            tied = np.count_nonzero(at_top, axis=1) > 1
            self._flag("a tie for the top; the smallest index decides", tied)
        tolerance, highest = sum_tolerance(matrix.dtype), float(top.max())
        inside = highest <= 1.0 + tolerance and bool(matrix.min() >= 0.0)
        deviation = sum_deviation(matrix) if inside else np.inf
        self.kinds.add("probabilities" if deviation <= tolerance else "logits")
        self.within_one = self.within_one and inside and highest <= 1.0
        if self.within_one:
            self.deviation = max(self.deviation, deviation)
        if len(matrix) >= MIN_ROWS_TO_JUDGE:
            self.top_k_problems.append(_top_k_problem(matrix, self.name))

    def _flag(self, what: str, flags: npt.NDArray[np.bool_]) -> None:
        if flags.any():
            count, first = self.flagged.get(what, (0, self.rows + int(np.argmax(flags))))
            self.flagged[what] = count + int(np.count_nonzero(flags)), first

    @property
    def kind(self) -> Kind | None:
        """What the scores look like; None if some are NaN."""
        if not self.kinds or "NaN" in self.flagged:
            return None
        return "probabilities" if self.kinds == {"probabilities"} else "logits"

    def entry(self) -> dict[str, Any]:
        """Return name, shape, dtype and kind."""
        size = [f"{length:,}" for length in self.shape]
        shape = f"{size[0]} rows × {size[1]} classes" if len(size) == 2 else f"{size[0]} entries"
        entry = {"name": self.name, "shape": shape}
        if self.dtype is not None:
            entry["dtype"] = "text" if self.dtype.kind == "U" else str(self.dtype)
        if self.kind is not None:
            entry["kind"] = f"looks like {self.kind}"
        return entry

    def problems(
        self, shapes: list[tuple[int, ...]], names: tuple[str, ...] | None, path: str
    ) -> list[str]:
        """Return what is wrong with the array; ``shapes`` are those of the file's matrices."""
        if self.error is not None:
            return [self.error]
        if len(self.shape) == 1:
            if not self.vectors or not shapes:
                return []
            return _label_problems(np.concatenate(self.vectors), shapes[0], names, path)
        if self.name in _FEATURES:
            return []
        if self.dtype is not None and self.dtype.kind != "f":
            return [f"{self.name} has dtype {self.dtype}, not floating numbers"]
        if min(self.shape) == 0:
            return [f"{self.name} is empty"]
        return self._score_problems()

    def _score_problems(self) -> list[str]:
        if "NaN" in self.flagged:
            return [f"{self.name}: {_rows(*self.flagged['NaN'])} NaN"]
        problems = [
            f"{self.name}: {_rows(*flagged)} {what}" for what, flagged in self.flagged.items()
        ]
        if self.top_k_problems and all(self.top_k_problems):
            problems.append(str(self.top_k_problems[0]))
        if self.kind == "probabilities":
            if self.deviation > sum_warning_level(self.dtype, self.shape[1]):
                problems.append(f"{self.name}: rows sum to one only within {self.deviation:.2g}")
        elif self.within_one:
            problems.append(f"{self.name} is in [0, 1] but its rows do not sum to one")
        return problems


def _top_k_problem(matrix: NumPyArray, name: str) -> str | None:
    try:
        check_whole_vectors(matrix, name)
    except InputError as refusal:
        return str(refusal)
    return None


def _label_problems(
    labels: NumPyArray, shape: tuple[int, ...], names: tuple[str, ...] | None, path: str
) -> list[str]:
    try:
        truth = as_indices(labels, shape, names, path)
    except ValueError as error:
        return [str(error)]
    absent = shape[1] - len(np.unique(truth))
    return [f"{absent:,} of {shape[1]:,} classes have no labelled row"] if absent else []


def _rows(count: int, first: int) -> str:
    return f"row {first} has" if count == 1 else f"{count:,} rows (the first is row {first}) have"
