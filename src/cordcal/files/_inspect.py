"""Look into a file: what it holds, of what kind, and what would trip a calibrator."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._door.errors import Refusal
from cordcal._door.labels import as_indices
from cordcal._door.reports import sum_warning_level
from cordcal.files._contents import FEATURE_NAMES, LABEL_NAMES, Contents, open_contents
from cordcal.files._kinds import check_whole_vectors, looks_like
from cordcal.files._models import is_model, load
from cordcal.files._opening import open_regular

_PAGE = re.compile(rb'<meta name="generator" content="cordcal ([^"]*)"')
# A graph begins with its version of ONNX and, each behind its length, who made it and which one.
_GRAPH = re.compile(rb"\x08.\x12\x07cordcal\x1a(.)(.*)", re.DOTALL)


def inspect(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a file holds, as plain values.

    Parameters
    ----------
    path : path or "-"
        A file of scores, a model, an ONNX graph or a report.

    Returns
    -------
    found : dict
        ``file``, ``format``, then what the format has to tell, and ``problems``, a list of
        sentences.
    """
    if str(path) != "-":
        with open_regular(path) as file:
            head = file.read(4096)
        if is_model(path):
            return _model(path)
        if (page := _PAGE.search(head)) is not None:
            return _made_by_cordcal(path, "report", page[1])
        if (graph := _GRAPH.match(head)) is not None:
            return _made_by_cordcal(path, "ONNX graph", graph[2][: graph[1][0]])
    return _scores(open_contents(path))


def _model(path: str | os.PathLike[str]) -> dict[str, Any]:
    model = load(path)
    construction = model.construction_
    calibrator = getattr(model, "calibrator_", None)
    return {
        "file": str(path),
        "format": "model",
        "calibrator": None if calibrator is None else calibrator.key,
        "title": None if calibrator is None else calibrator.title,
        "input": None if calibrator is None else calibrator.input,
        "classes": model.n_classes_,
        "class_names": None
        if getattr(model, "class_names", None) is None
        else [str(name) for name in model.class_names],
        "preserve": getattr(model, "preserve", 1),
        "calibration_rows": construction.n,
        "decisions_the_calibrator_changed": construction.n_changed,
        "problems": [],
    }


def _made_by_cordcal(path: str | os.PathLike[str], format: str, version: bytes) -> dict[str, Any]:
    return {
        "file": str(path),
        "format": format,
        "made_by": f"cordcal {version.decode(errors='replace')}",
        "bytes": Path(path).stat().st_size,
        "problems": [],
    }


def _scores(contents: Contents) -> dict[str, Any]:
    problems: list[str] = []
    entries = []
    for name, shape in contents.shapes.items():
        try:
            entry, found = _described(contents, name, shape)
        except Refusal as refusal:  # an array that is too large, or damaged
            entry, found = {"name": name, "shape": str(shape)}, [str(refusal)]
        entries.append(entry)
        problems += found
    if not entries:
        problems.append("there is no matrix of scores (rows × classes)")
    return {
        "file": contents.path,
        "format": contents.format,
        "class_names": None if contents.class_names is None else list(contents.class_names),
        "entries": entries,
        "problems": problems,
    }


def _described(
    contents: Contents, name: str, shape: tuple[int, ...]
) -> tuple[dict[str, Any], list[str]]:
    """Return what one array is, and what is wrong with it."""
    if name in contents.vectors:
        vector = contents.vectors[name]
        entry = {"name": name, "shape": f"{len(vector):,} entries", "dtype": str(vector.dtype)}
        beside = [contents.shapes[key] for key in contents.matrices][:1]
        of_labels = name in LABEL_NAMES and beside
        return entry, _label_problems(vector, beside[0], contents) if of_labels else []
    matrix = contents.matrices[name]
    entry = {
        "name": name,
        "shape": f"{shape[0]:,} rows × {shape[1]:,} classes",
        "dtype": str(matrix.dtype),
    }
    if name in FEATURE_NAMES:
        return entry, []
    if matrix.dtype.kind == "f" and matrix.size and not np.isnan(matrix).any():
        entry["kind"] = f"looks like {looks_like(matrix)}"
    return entry, _matrix_problems(matrix, name)


def _matrix_problems(matrix: npt.NDArray[Any], name: str) -> list[str]:
    problems = []
    if matrix.dtype.kind != "f":
        return [f"{name} has dtype {matrix.dtype}, not floating numbers"]
    if min(matrix.shape) == 0:
        return [f"{name} is empty"]
    missing = np.isnan(matrix).any(axis=1)
    if missing.any():
        return [f"{name}: {_rows(missing)} NaN"]
    infinite = (matrix == np.inf).any(axis=1)
    if infinite.any():
        problems.append(f"{name}: {_rows(infinite)} an infinite value")
    try:
        check_whole_vectors(matrix, name)
    except ValueError as error:
        problems.append(str(error))
    top = matrix.max(axis=1, keepdims=True)
    tied = np.asarray((matrix == top).sum(axis=1) > 1)
    if tied.any():
        problems.append(f"{name}: {_rows(tied)} a tie for the top; the smallest index decides")
    if looks_like(matrix) == "probabilities":
        deviation = np.abs(matrix.sum(axis=1, dtype=np.float64) - 1.0)
        level = sum_warning_level(matrix.dtype, matrix.shape[1])
        if deviation.max() > level:
            problems.append(f"{name}: rows sum to one only within {deviation.max():.2g}")
    elif matrix.min() >= 0.0 and matrix.max() <= 1.0:
        problems.append(f"{name} lies in [0, 1] but its rows do not sum to one")
    return problems


def _label_problems(
    labels: npt.NDArray[Any], shape: tuple[int, ...], contents: Contents
) -> list[str]:
    try:
        truth = as_indices(labels, shape, contents.class_names, contents.path)
    except ValueError as error:
        return [str(error)]
    absent = shape[1] - len(np.unique(truth))
    return [f"{absent:,} of {shape[1]:,} classes have no labelled row"] if absent else []


def _rows(flags: npt.NDArray[np.bool_]) -> str:
    count = int(flags.sum())
    if count == 1:
        return f"row {int(np.argmax(flags))} has"
    return f"{count:,} rows (the first is row {int(np.argmax(flags))}) have"
