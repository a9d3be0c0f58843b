"""Write a fitted model as one ONNX graph, and let onnxruntime prove it before it is kept."""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric import arrays
from cordcal._numeric.rows import softmax
from cordcal._numeric.types import Kind
from cordcal._validation.scores import check_kind
from cordcal._version import __version__
from cordcal.export._recipe import Recipe, recipe_of
from cordcal.files import replacing
from cordcal.preserving import Outputs, PreservingCalibrator
from cordcal.repair import Lift

try:
    import onnx

    from cordcal.export._onnx_graph import Graph
except ImportError as error:
    raise ImportError(
        "cordcal.onnx needs onnx and onnxruntime; install them with: pip install 'cordcal[onnx]'"
    ) from error

_DTYPES = ("float64", "float32", "float16")
# Deeper orders make long graphs: each level adds some forty nodes.
_DEEPEST = 10
# The first of the rows a graph is tried on are ordinary ones, and there the reports must be
# equal too; where classes nearly tie, the last bit decides which formula applies.
_ORDINARY = 64
# Isotonic steps magnify the last bit of a softmax, so a few ordinary rows may stand apart; a
# wrong graph is wrong nearly everywhere.
_ROWS_APART = 3


@dataclass(frozen=True)
class Export:
    """What was written, and how it was checked.

    Attributes
    ----------
    path : str
        The file.
    bytes, nodes : int
        Its size, and the number of nodes in its graph.
    input : str
        The name of its input, ``"logits"`` or ``"probabilities"``.
    rows_checked : int
        Rows on which onnxruntime gave the library's labels.
    """

    path: str
    bytes: int
    nodes: int
    input: str
    rows_checked: int

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python values."""
        return dict(vars(self))


def export(
    model: Any,
    path: str | os.PathLike[str],
    *,
    dtype: str = "float32",
    input: Kind = "logits",
    overwrite: bool = True,
) -> Export:
    """Write a fitted model as an ONNX file with outputs ``direct``, ``repaired`` and ``label``.

    ``label`` is the argmax of the input as given (the smallest index on ties), and strictly
    the largest entry of ``repaired`` in the output dtype.  Inside, the graph computes in
    float64.  Before the file is left behind, onnxruntime runs it on ordinary and on
    adversarial rows (ties, one-hot, uniform and saturated ones); if a label or an argmax
    differs from the library's, nothing is written and an error says so.

    Parameters
    ----------
    model : PreservingCalibrator
        The fitted model, with any calibrator whose map is an expression of the scores.
    path : path
        Where to; an existing file is replaced when the new one is whole.
    dtype : {"float32", "float64", "float16"}
        Of the graph's input and of its probabilities.
    input : {"logits", "probabilities"}
        What the graph is given.  With logits, a model fitted on probabilities gets a
        softmax in front; one fitted on logits takes nothing else.
    overwrite : bool
        Whether a file of that name may be replaced.

    Returns
    -------
    export : Export
        The file's size and how many rows were checked.

    Examples
    --------
    >>> import tempfile, numpy as np, cordcal
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(300, 3))
    >>> model = cordcal.PreservingCalibrator("irova").fit(logits, labels)
    >>> written = export(model, tempfile.mkdtemp() + "/model.onnx")
    >>> written.input, written.bytes < 50_000
    ('logits', True)
    """
    check_kind(input)
    recipe, held = recipe_of(model, input)
    if dtype not in _DTYPES:
        raise InputError("dtype", f"is {dtype!r}", f"pass one of {', '.join(_DTYPES)}")
    if len(recipe.scalars) > _DEEPEST:
        raise InputError(
            "model",
            f"keeps {len(recipe.scalars)} ranks, and a graph holds at most {_DEEPEST}",
            f"fit it with preserve={_DEEPEST} or less",
        )
    graph = _graph(recipe, held, dtype)
    key = recipe.calibrator.key
    proto = graph.model(f"cordcal-{key}", "cordcal", __version__, _facts(model))
    onnx.checker.check_model(proto, full_check=True)
    with replacing(path, overwrite=overwrite) as temporary:
        onnx.save(proto, os.fspath(temporary))
        rows = probe_rows(model, dtype, input)
        _prove(os.fspath(temporary), model, rows, dtype, input)
    return Export(os.fspath(path), os.path.getsize(path), len(proto.graph.node), input, len(rows))


def _graph(recipe: Recipe, held: dict[str, Any], dtype: str) -> Graph:
    graph = Graph()
    scores = graph.astype(graph.input(recipe.given, dtype, recipe.classes), np.float64)
    # Widening is exact, so this is the argmax of the input as given.
    label = graph.argmax(scores, axis=1)
    constants = {key: graph.constant(value) for key, value in held.items()}
    direct, repaired = recipe.both(scores, label, constants, dtype, xp=graph)
    graph.output("direct", graph.astype(direct, dtype))
    graph.output("repaired", graph.astype(repaired, dtype))
    graph.output("label", label)
    return graph


def _facts(model: PreservingCalibrator) -> dict[str, str]:
    names = model._output_names()
    facts = {"calibrator": model.calibrator_.key, "preserve": str(model.preserve)}
    if isinstance(model.repair_, Lift):
        facts["repair"] = f"lift ({model.repair_.mode})"
    if names is not None:
        facts["class_names"] = json.dumps(np.asarray(names).tolist(), ensure_ascii=False)
    return facts


def probe_rows(model: PreservingCalibrator, dtype: str, input: Kind) -> npt.NDArray[Any]:
    """Return ordinary and adversarial rows to try a graph on, in its dtype."""
    classes = model.n_classes_
    rng = np.random.default_rng(0)
    spread = rng.uniform(0.5, 8.0, size=(_ORDINARY, 1))
    ordinary = spread * rng.normal(size=(_ORDINARY, classes))
    tied = np.round(ordinary[:32])
    near = ordinary[:32].astype(dtype)
    top = near.argmax(axis=1)
    rival = (top + 1 + rng.integers(classes - 1, size=32)) % classes
    near[np.arange(32), rival] = np.nextafter(near[np.arange(32), top], np.asarray(-np.inf, dtype))
    corners = np.eye(classes)[rng.integers(classes, size=8)]
    pairs = corners + np.eye(classes)[rng.integers(classes, size=8)]
    logits = [
        ordinary, tied, near, np.zeros((1, classes)),
        corners, 60.0 * corners, 700.0 * corners, 700.0 * pairs,
    ]  # fmt: skip
    if input == "logits":
        if model.calibrator_._accepts_masked():
            masked = ordinary[:8].copy()
            masked[:, ::2][:, : (classes - 1) // 2] = -np.inf
            logits.append(masked)
        return np.concatenate([part.astype(dtype) for part in logits])
    halves = pairs / pairs.sum(axis=1, keepdims=True)
    softened = [softmax(part) for part in logits]
    return np.concatenate([part.astype(dtype) for part in (*softened, corners, halves)])


def _library(
    model: PreservingCalibrator, rows: npt.NDArray[Any], dtype: str, input: Kind
) -> Outputs:
    """Return what the library itself reports on the rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about rows no caller has sent
        if input == model._kind():
            return model.predict_both(rows, dtype=dtype)
        original = softmax(rows)
        direct = model.direct_proba(original)
        decision = rows.argmax(axis=1)
        repaired = model.repair_.transform(original, direct, decision=decision, dtype=dtype)
        return Outputs(direct, repaired, decision)


def _prove(
    path: str, model: PreservingCalibrator, rows: npt.NDArray[Any], dtype: str, input: Kind
) -> None:
    """Run the file on the rows and refuse it if it does not do what the library does."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    direct, repaired, label = session.run(
        ["direct", "repaired", "label"], {session.get_inputs()[0].name: rows}
    )
    found = Outputs(direct, repaired, label)
    complain_about(found, _library(model, rows, dtype, input), dtype)


def complain_about(found: Outputs, expected: Outputs, dtype: str) -> None:
    """Raise a ValueError if a graph's outputs are not the library's."""
    mass = np.take_along_axis(found.repaired, expected.decision[:, None], axis=1)
    alone = (found.repaired >= mass).sum(axis=1) == 1
    wrong = (found.decision != expected.decision) | ~alone
    if wrong.any():
        raise ValueError(
            f"the graph decides otherwise than the library in {int(wrong.sum())} of {len(wrong)} "
            f"rows, so no file was written; please report this with the versions of onnx "
            f"({onnx.__version__}) and onnxruntime"
        )
    tolerance = 16.0 * arrays.UNIT_ROUNDOFF[dtype] + 1e-9
    for name in ("direct", "repaired"):
        theirs, ours = (
            getattr(report, name)[:_ORDINARY].astype(np.float64) for report in (found, expected)
        )
        apart = ~(np.abs(theirs - ours) <= tolerance).all(axis=1)
        if apart.sum() > _ROWS_APART:
            raise ValueError(
                f"the graph's {name} report is not the library's in {int(apart.sum())} of "
                f"{len(apart)} rows, so no file was written; please report this with the "
                f"versions of onnx ({onnx.__version__}) and onnxruntime"
            )
