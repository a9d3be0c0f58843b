"""Describe a file: its arrays, their kind, and problems that would stop a calibrator."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.types import Flags, Kind, NumPyArray, NumPyDType
from cordcal._validation.labels import as_indices
from cordcal._validation.scores import sum_tolerance, sum_warning_level
from cordcal.files.columns import LABEL_NAMES, ColumnSpec, TextOptions
from cordcal.files.disk import open_regular, parts_of
from cordcal.files.kinds import MIN_ROWS_TO_JUDGE, check_whole_vectors, sum_deviation
from cordcal.files.models import is_model, load
from cordcal.files.sources import Source, open_source, parse_labels

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
    return _describe_data(open_source(os.fspath(path), text))


def _describe_model(path: str | os.PathLike[str]) -> dict[str, Any]:
    model = load(path)
    construction = getattr(model, "construction_", None)  # a calibrator alone has none
    calibrator = getattr(model, "calibrator_", None)
    context = getattr(getattr(model, "repair_", model), "context_", None)
    names, rule = getattr(model, "class_names", None), getattr(model, "rule_", None)
    certificate = getattr(model, "certificate_", None)
    return {
        "file": str(path),
        "format": "model",
        "calibrator": getattr(calibrator, "key", None),
        "title": getattr(calibrator, "title", None),
        "input": getattr(calibrator, "input", None),
        "scores_from": getattr(model, "scores_from_", None),
        "classes": model.n_classes_,
        "class_names": None if names is None else list(map(str, names)),
        "columns": list(getattr(model, "score_columns_", ())) or None,
        "preserve": getattr(model, "preserve", 1),
        "calibration_rows": getattr(construction, "n", None),
        "rule": None if rule is None else repr(rule),
        "predictions_the_calibrator_changed": getattr(construction, "n_changed", None),
        "certificate": None if certificate is None else str(certificate).splitlines()[0],
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
    spec, types = ColumnSpec(), source.types
    names, problems = source.files[0].class_names, list[str]()
    matrices: dict[str, tuple[str, ...]] = {}
    labels: list[str] = []
    if source.is_table:
        layout = source.layout(spec, "scores", None)
        if isinstance(layout, InputError):
            problems.append(str(layout))
        else:
            names, matrices = layout.class_names, {layout.key: layout.columns}
            labels += filter(None, [source.label_column(layout.key, spec)])
    else:
        matrices = {key: (key,) for key, kind in types.items() if kind == "list"}
        labels += [key for key in types if key in LABEL_NAMES and key not in matrices]
    described = [_Matrix(source, key, columns) for key, columns in matrices.items()]
    entries = [matrix.entry() for matrix in described]
    for matrix in described:
        problems += matrix.problems()
    shapes = [matrix.shape for matrix in described if len(matrix.shape) == 2]
    for name in labels:
        try:
            values = parse_labels(source.column(name))
        except InputError as error:
            if source.is_table:
                raise
            problems.append(str(error))
            continue
        entries.append(_vector_entry(name, len(values), values.dtype))
        if shapes and len(values):
            problems += _label_problems(values, shapes[0], names, source.path)
    if not matrices and not labels and not problems:
        problems.append("there is no matrix of scores (rows × classes)")
    shown = {name for columns in matrices.values() for name in columns} | {*labels}
    return {
        "file": source.path,
        "format": source.format,
        "class_names": None if names is None else list(names),
        "entries": entries + [_other_entry(source, name) for name in types if name not in shown],
        "problems": problems,
    }


def _vector_entry(name: str, rows: int | None, dtype: NumPyDType) -> dict[str, Any]:
    return {"name": name, "shape": _entries(rows), "dtype": _dtype_name(dtype)}


def _entries(count: int | None) -> str:
    return f"{count:,} entr{'y' if count == 1 else 'ies'}"


def _dtype_name(dtype: NumPyDType) -> str:
    return "text" if dtype.kind == "U" else str(dtype)


def _other_entry(source: Source, name: str) -> dict[str, Any]:
    """Return what is known of a vector or a column that is not read."""
    if not source.is_table:
        return _vector_entry(name, source.rows((name,)), source.files[0].dtype((name,)))
    kind = source.types[name]
    return {"name": name, "type": "another column" if kind == "other" else f"column of {kind}s"}


def _label_problems(
    labels: NumPyArray, shape: tuple[int, ...], names: tuple[str, ...] | None, path: str
) -> list[str]:
    try:
        truth = as_indices(labels, shape, names, path)
    except ValueError as error:
        return [str(error)]
    absent = shape[1] - len(np.unique(truth))
    return [f"{absent:,} of {shape[1]:,} classes have no labelled row"] if absent else []


class _Matrix:
    """What `inspect` reports of one matrix, read slice by slice."""

    def __init__(self, source: Source, name: str, columns: Sequence[str]) -> None:
        self.name = name
        self.shape: tuple[int, ...] = (0,)
        self._dtype: NumPyDType | None = None
        self._refusal: str | None = None
        # How many rows have something, and the first of them.
        self._flagged: dict[str, tuple[int, int]] = {}
        self._lowest, self._highest, self._deviation = np.inf, -np.inf, 0.0
        self._ranks: list[InputError | None] = []
        try:
            for _, rows in source.slices(columns):
                self._add(rows.matrix(columns) if source.is_table else rows.values(name))
        except InputError as error:
            if source.is_table:
                raise
            # An array that is too large, or damaged, leaves the others.
            self._refusal = str(error)

    def _add(self, values: NumPyArray) -> None:
        self._dtype = values.dtype
        if values.dtype.kind == "f" and values.size and self.name not in _FEATURES:
            self._add_scores(values)
        self.shape = (self.shape[0] + len(values), *values.shape[1:])

    def _add_scores(self, matrix: NumPyArray) -> None:
        top = matrix.max(axis=1, keepdims=True)
        self._flag("NaN", np.isnan(top[:, 0]))  # NaN is the largest of any row it is in
        if "NaN" in self._flagged:
            return  # comparisons with NaN would be wrong
        self._flag("an infinite value", top[:, 0] == np.inf)
        at_top = matrix == top
        if np.count_nonzero(at_top) > len(matrix):  # several times faster than per row
            tied = np.count_nonzero(at_top, axis=1) > 1
            self._flag("a tie for the top; the smallest index decides", tied)
        self._lowest = min(self._lowest, float(matrix.min()))
        self._highest = max(self._highest, float(top.max()))
        if self._are_within(1.0 + sum_tolerance(matrix.dtype)):
            self._deviation = max(self._deviation, sum_deviation(matrix))
        if len(matrix) >= MIN_ROWS_TO_JUDGE:
            try:
                check_whole_vectors(matrix, self.name)
                self._ranks.append(None)
            except InputError as refusal:
                self._ranks.append(refusal)

    def _flag(self, what: str, flags: Flags) -> None:
        if flags.any():
            count, first = self._flagged.get(what, (0, self.shape[0] + int(np.argmax(flags))))
            self._flagged[what] = count + int(np.count_nonzero(flags)), first

    def _are_within(self, highest: float) -> bool:
        return self._lowest >= 0.0 and self._highest <= highest

    @property
    def _kind(self) -> Kind | None:
        """What the scores look like; None if some are NaN, or none are numbers."""
        if self._dtype is None or self._lowest == np.inf or "NaN" in self._flagged:
            return None
        tolerance = sum_tolerance(self._dtype)
        are_simplex = self._are_within(1.0 + tolerance) and self._deviation <= tolerance
        return "probabilities" if are_simplex else "logits"

    def entry(self) -> dict[str, Any]:
        """Return name, shape, dtype and kind."""
        rows, *width = self.shape
        shape = _entries(rows)
        if width:
            shape = f"{rows:,} row{'' if rows == 1 else 's'} × {width[0]:,} classes"
        entry = {"name": self.name, "shape": shape}
        if self._dtype is not None:
            entry["dtype"] = _dtype_name(self._dtype)
        if self._kind is not None:
            entry["kind"] = f"looks like {self._kind}"
        return entry

    def problems(self) -> list[str]:
        """Return what is wrong with the matrix."""
        name = self.name
        if self._refusal is not None:
            return [self._refusal]
        if name in _FEATURES:
            return []
        if self._dtype is not None and self._dtype.kind != "f":
            return [f"{name} has dtype {self._dtype}, not floating numbers"]
        if min(self.shape) == 0:
            return [f"{name} is empty"]
        if "NaN" in self._flagged:
            return [f"{name}: {_rows(*self._flagged['NaN'])} NaN"]
        problems = [f"{name}: {_rows(*found)} {what}" for what, found in self._flagged.items()]
        if self._ranks and all(self._ranks):
            problems.append(str(self._ranks[0]))
        if self._kind == "probabilities":
            if self._deviation > sum_warning_level(self._dtype, self.shape[1]):
                problems.append(f"{name}: rows sum to one only within {self._deviation:.2g}")
        elif self._are_within(1.0):
            problems.append(f"{name} is in [0, 1] but its rows do not sum to one")
        return problems


def _rows(count: int, first: int) -> str:
    return f"row {first} has" if count == 1 else f"{count:,} rows (the first is row {first}) have"
