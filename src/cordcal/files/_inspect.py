"""Describe a file: its arrays, their kind, and problems that would stop a calibrator."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    sum_deviation,
)
from cordcal.files.models import is_model, load
from cordcal.files.sources import Source, open_source, parse_labels

if TYPE_CHECKING:
    pass

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
    return _describe_data(source)


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


def _describe_data(source: Source) -> dict[str, Any]:
    """Describe the scores and labels of files, which are read, and what else they hold."""
    spec, first = ColumnSpec(), source.files[0]
    types = source.types
    problems: list[str] = []
    names = first.class_names
    if source.is_table:
        layout = source.layout(spec, "scores", None)
        matrices, vectors = {}, []
        if isinstance(layout, InputError):
            problems.append(str(layout))
        else:
            names = layout.class_names
            matrices = {layout.key: layout.columns}
            vectors = list(filter(None, [source.label_column(layout.key, spec)]))
    else:
        matrices = {key: (key,) for key, kind in types.items() if kind == "list"}
        vectors = [key for key in types if key in LABEL_NAMES and key not in matrices]
    summaries = [_summarise(source, name, columns) for name, columns in matrices.items()]
    shapes = [summary.shape for summary in summaries if len(summary.shape) == 2]
    summaries += [_summarise(source, name, (name,), are_labels=True) for name in vectors]
    for summary in summaries:
        problems += summary.problems(shapes, names, source.path)
    if not summaries and not problems:
        problems.append("there is no matrix of scores (rows × classes)")
    described = {name for columns in matrices.values() for name in columns} | {*vectors}
    return {
        "file": source.path,
        "format": source.format,
        "class_names": None if names is None else list(names),
        "entries": [
            *(summary.entry() for summary in summaries),
            *(_other_entry(source, name) for name in types if name not in described),
        ],
        "problems": problems,
    }


def _summarise(
    source: Source, name: str, columns: Sequence[str], *, are_labels: bool = False
) -> _ArraySummary:
    """Read a matrix of scores or the labels, slice by slice."""
    summary = _ArraySummary(name, are_labels=are_labels)
    try:
        for _, rows in source.slices(columns):
            whole = source.is_table and not are_labels
            values = rows.matrix(columns) if whole else rows.values(name)
            summary.add(parse_labels(values) if are_labels else values)
    except InputError as error:
        if source.is_table:
            raise
        # An array that is too large, or damaged, leaves the others.
        summary.error = str(error)
    return summary


def _other_entry(source: Source, name: str) -> dict[str, Any]:
    """Return what is known of a vector or a column that is not read."""
    kind = source.types[name]
    if source.is_table:
        return {"name": name, "type": "another column" if kind == "other" else f"column of {kind}s"}
    dtype = _dtype_name(source.files[0].dtype((name,)))
    return {"name": name, "shape": f"{source.rows((name,)):,} entries", "dtype": dtype}


class _ArraySummary:
    """What `inspect` reports of one array, updated piece by piece."""

    def __init__(self, name: str, *, are_labels: bool) -> None:
        self.name, self.are_labels = name, are_labels
        self.shape: tuple[int, ...] = (0,)
        self.error: str | None = None
        self.dtype: NumPyDType | None = None
        self.kinds: set[Kind] = set()
        self.flagged: dict[str, tuple[int, int]] = {}
        self.deviation = 0.0
        self.within_one = True
        self.top_k_problems: list[str | None] = []
        self.labels: list[NumPyArray] = []

    def add(self, values: NumPyArray) -> None:
        """Update with more rows."""
        self.dtype = values.dtype
        if self.are_labels:
            self.labels.append(values)
        elif values.dtype.kind == "f" and values.size and self.name not in _FEATURES:
            self._add_scores(values)
        self.shape = (self.shape[0] + len(values), *values.shape[1:])

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
            count, first = self.flagged.get(what, (0, self.shape[0] + int(np.argmax(flags))))
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
            entry["dtype"] = _dtype_name(self.dtype)
        if self.kind is not None:
            entry["kind"] = f"looks like {self.kind}"
        return entry

    def problems(
        self, shapes: Sequence[tuple[int, ...]], names: tuple[str, ...] | None, path: str
    ) -> list[str]:
        """Return what is wrong with the array; ``shapes`` are those of the file's matrices."""
        if self.error is not None:
            return [self.error]
        if self.are_labels:
            if not self.labels or not shapes:
                return []
            return _label_problems(np.concatenate(self.labels), shapes[0], names, path)
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


def _dtype_name(dtype: NumPyDType) -> str:
    return "text" if dtype.kind == "U" else str(dtype)


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
