"""Write a fitted model as one ONNX graph, checked in onnxruntime before it is kept."""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import dataclass

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric import arrays
from cordcal._numeric.arrays import softmax
from cordcal._numeric.types import Flags, Floats, Kind, Record, Vector
from cordcal._validation.scores import check_kind
from cordcal._version import __version__
from cordcal.export._recipe import (
    HasCalibrator,
    Recipe,
    calibration_of,
    reaches_threshold,
    recipe_of,
)
from cordcal.expressions import Parameters
from cordcal.files import replacing
from cordcal.preserving import Outputs, PreservingCalibrator
from cordcal.repair import Lift
from cordcal.repair.fitted import check_rule_dtype
from cordcal.repair.prediction_rule import strictly_first

try:
    import onnx

    from cordcal.export._onnx_graph import (
        OPSET,
        Graph,
        Inputs,
        dtype_of,
        example_inputs,
        find_output,
        join,
        load_network,
        opset_of,
        output_names,
    )
except ImportError as error:
    raise ImportError(
        "cordcal.onnx needs onnx and onnxruntime; install them with: pip install onnx onnxruntime"
    ) from error

_DTYPES = ("float64", "float32", "float16")
# Each preserved rank adds about forty nodes to the graph.
_MAX_RANKS = 10
# The first test rows are ordinary ones, where probabilities must agree, too. If classes nearly
# tie, the last bit decides which formula applies.
_ORDINARY_ROWS = 64
# Isotonic steps magnify the last bit of a softmax, so a few ordinary rows may differ; a wrong
# graph differs nearly everywhere.
_MAX_DIFFERENT_ROWS = 3


@dataclass(frozen=True)
class Export(Record):
    """The file that was written, and how it was checked.

    Attributes
    ----------
    path : str
        The file.
    bytes, nodes : int
        Its size, and the number of nodes in its graph.
    input : str
        The name of its input, ``"logits"`` or ``"probabilities"``.
    rows_checked : int
        Number of rows on which onnxruntime returned the library's labels.
    """

    path: str
    bytes: int
    nodes: int
    input: str
    rows_checked: int


def export(
    model: PreservingCalibrator | HasCalibrator,
    path: str | os.PathLike[str],
    *,
    dtype: str | None = None,
    input: Kind | None = None,
    behind: str | os.PathLike[str] | None = None,
    network_output: str | None = None,
    examples: Inputs | None = None,
    overwrite: bool = True,
) -> Export:
    """Write a fitted model as an ONNX file with outputs ``direct``, ``repaired`` and ``label``.

    ``label`` is the argmax of the input (the smallest index on ties), and strictly the largest
    entry of ``repaired`` in the output dtype.  Under a rule it is the largest of weight times
    ``repaired``; the weights are in the metadata ``rule``.  The graph computes in float64.  First,
    onnxruntime runs it on ordinary and adversarial rows (ties, one-hot, uniform and saturated
    ones); if a label or an argmax differs from the library's, nothing is written and an error
    is raised.  A model with a certificate has the output ``act`` too: whether to act on the
    prediction (not with groups, which a graph does not know).

    Parameters
    ----------
    model : PreservingCalibrator or PreservingCalibratedClassifierCV
        The fitted model; its calibrator must be an expression of the scores alone.  Of a
        classifier only the calibration is exported: the graph takes the estimator's scores
        (see `to_calibrator`), and `register_converter` exports the estimator too.
    path : path
        The file to write; an existing file is replaced once the new one is complete.
    dtype : {"float32", "float64", "float16"}, optional
        Dtype of the graph's input and of its probabilities; by default float32, with
        ``behind`` that of the network's scores.
    input : {"logits", "probabilities"}, optional
        The kind of the graph's input; by default what the model was fitted on.  With logits, a
        softmax precedes a model that was fitted on probabilities; a model fitted on logits accepts
        only logits.
    behind : path, optional
        An ONNX file of the network whose scores the model calibrates.  The file to write then
        contains both: it takes the network's inputs and has the network's outputs too.  An older
        opset is converted.  The joined graph is run as well and compared row by row.
    network_output : str, optional
        The network's output with the scores, if it has several outputs.
    examples : mapping of str to array, optional
        Inputs of the network to check the joined graph on; by default random ones.
    overwrite : bool
        Whether an existing file may be replaced.

    Returns
    -------
    export : Export
        The size of the file, and how many rows were checked.

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
    if input is not None:
        check_kind(input)
    calibrator = calibration_of(model)
    recipe, parameters = recipe_of(calibrator, input)
    batches: list[Inputs] = []  # of a network
    if behind is None:
        _refuse_without_network(network_output, examples)
        dtype = _check_dtype(dtype or "float32")
        proto = calibration = calibration_graph(calibrator, recipe, parameters, dtype, OPSET)
    else:
        network = load_network(os.fspath(behind))
        output = find_output(network, network_output, recipe.classes)
        if dtype not in (None, dtype_of(output)):
            raise InputError(
                "dtype",
                f"is {dtype!r} but the network's scores are {dtype_of(output)}",
                "leave it out",
            )
        dtype = dtype_of(output)
        calibration = calibration_graph(calibrator, recipe, parameters, dtype, opset_of(network))
        proto = join(network, calibration, output.name)
        batches = example_inputs(network) if examples is None else [examples]
    with replacing(path, overwrite=overwrite) as temporary:
        onnx.save(proto, os.fspath(temporary))
        rows = _check_calibration(calibration, calibrator, dtype, recipe.input)
        for batch in batches:
            rows += _check_joined(proto, output.name, calibrator, batch, dtype, recipe.input)
    size = os.path.getsize(path)
    return Export(os.fspath(path), size, len(proto.graph.node), recipe.input, rows)


def _refuse_without_network(network_output: str | None, examples: Inputs | None) -> None:
    for name, value in (("network_output", network_output), ("examples", examples)):
        if value is not None:
            raise InputError(name, "describes a network, and there is none", "pass behind, too")


def _check_dtype(dtype: str) -> str:
    if dtype not in _DTYPES:
        raise InputError("dtype", f"is {dtype!r}", f"pass one of {', '.join(_DTYPES)}")
    return dtype


def calibration_graph(
    model: PreservingCalibrator, recipe: Recipe, parameters: Parameters, dtype: str, opset: int
) -> onnx.ModelProto:
    """Return a model as a graph from scores to probabilities and label."""
    if len(recipe.scalars) > _MAX_RANKS:
        raise InputError(
            "model",
            f"preserves {len(recipe.scalars)} ranks, but a graph can preserve at most {_MAX_RANKS}",
            "fit it with {option} or less",
            option=("preserve", str(_MAX_RANKS)),
        )
    check_rule_dtype(model.repair_.fitted_weights(), dtype)
    certificate = model.certificate_
    thresholds = None if certificate is None else certificate.class_thresholds()
    graph = _graph(recipe, parameters, dtype, thresholds)
    name = f"cordcal-{recipe.calibrator.key}"
    proto = graph.model(name, "cordcal", __version__, _metadata(model), opset)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def _graph(recipe: Recipe, parameters: Parameters, dtype: str, thresholds: Vector | None) -> Graph:
    graph = Graph()
    scores = graph.astype(graph.input(recipe.input, dtype, recipe.classes), np.float64)
    # Widening is exact, so this is the argmax of the input in its own dtype.
    label = graph.argmax(scores, axis=1)
    constants = parameters.convert(lambda _, array: graph.constant(array))
    original, direct = recipe.before_repair(scores, constants, xp=graph)
    repaired = recipe.repaired(original, direct, label, constants, dtype, xp=graph)
    rounded = graph.astype(repaired, dtype)
    if thresholds is not None:
        levels = graph.constant(thresholds.astype(np.float32))
        decisive = rounded
        if dtype == "float16":  # which would round a confidence across its threshold
            decisive = recipe.repaired(original, direct, label, constants, "float32", xp=graph)
        decisive = graph.astype(decisive, np.float32)
        graph.output("act", reaches_threshold(decisive, label, levels, xp=graph))
    graph.output("direct", graph.astype(direct, dtype))
    graph.output("repaired", rounded)
    graph.output("label", label)
    return graph


def _metadata(model: PreservingCalibrator) -> dict[str, str]:
    names = model.output_names()
    facts = {"calibrator": model.calibrator_.key, "preserve": str(model.preserve)}
    if isinstance(model.repair_, Lift):
        facts["repair"] = f"lift (prefer {model.repair_.prefer})"
    if model.rule_ is not None:
        facts["rule"] = json.dumps(model.rule_.weights.tolist())
    if names is not None:
        facts["class_names"] = json.dumps(np.asarray(names).tolist(), ensure_ascii=False)
    return facts


def probe_rows(model: PreservingCalibrator, dtype: str, input: Kind) -> Floats:
    """Return ordinary and adversarial rows to test a graph on, in its dtype."""
    classes = model.n_classes_
    rng = np.random.default_rng(0)
    spread = rng.uniform(0.5, 8.0, size=(_ORDINARY_ROWS, 1))
    ordinary = spread * rng.normal(size=(_ORDINARY_ROWS, classes))
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
        if model.calibrator_.accepts_masked():
            masked = ordinary[:8].copy()
            masked[:, ::2][:, : (classes - 1) // 2] = -np.inf
            logits.append(masked)
        return np.concatenate([part.astype(dtype) for part in logits])
    halves = pairs / pairs.sum(axis=1, keepdims=True)
    softened = [softmax(part) for part in logits]
    return np.concatenate([part.astype(dtype) for part in (*softened, corners, halves)])


def _expected_outputs(
    model: PreservingCalibrator, rows: Floats, dtype: str, input: Kind
) -> Outputs:
    """Return the library's outputs on the rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about test rows, not the caller's
        if input == model.score_kind():
            return model.predict_both(rows, dtype=dtype)
        original = softmax(rows)
        direct = model.direct_proba(original)
        prediction = rows.argmax(axis=1)
        repaired = model.repair_.transform(original, direct, prediction=prediction, dtype=dtype)
        return Outputs(direct, repaired, prediction)


def _check_calibration(
    proto: onnx.ModelProto, model: PreservingCalibrator, dtype: str, input: Kind
) -> int:
    """Run the calibration's graph on test rows, and raise if it differs from the library."""
    rows = probe_rows(model, dtype, input)
    direct, repaired, label = _run(proto, ["direct", "repaired", "label"], {input: rows})
    outputs = Outputs(direct, repaired, label.astype(np.intp))
    _check_outputs(outputs, model, rows, dtype, input)
    if "act" in [output.name for output in proto.graph.output]:
        (act,) = _run(proto, ["act"], {input: rows})
        if dtype == "float16":
            outputs = _expected_outputs(model, rows, "float32", input)
        _check_act(act.astype(bool), outputs, model, exact=dtype != "float16")
    return len(rows)


def _check_act(act: Flags, outputs: Outputs, model: PreservingCalibrator, *, exact: bool) -> None:
    """Raise a ValueError unless the graph acts on what the certificate accepts.

    Confidences that are not the graph's may be on the other side of a threshold very close by.
    """
    assert model.certificate_ is not None
    mass = outputs.repaired[np.arange(len(act)), outputs.prediction].astype(np.float64)
    margins = (0.0,) if exact else (-1e-6, 1e-6)
    possible = [
        model.certificate_.accepts_confidence(mass + margin, outputs.prediction)
        for margin in margins
    ]
    if not np.any([act == answer for answer in possible], axis=0).all():
        raise ValueError("the graph's output act differs from the library's; no file was written")


def _check_joined(
    proto: onnx.ModelProto,
    scores: str,
    model: PreservingCalibrator,
    inputs: Inputs,
    dtype: str,
    input: Kind,
) -> int:
    """Run the joined graph and compare it with the library on the network's own scores."""
    rows, direct, repaired, label = _run(proto, [scores, *output_names(proto)], inputs)
    outputs = Outputs(direct, repaired, label.astype(np.intp))
    _check_outputs(outputs, model, rows, dtype, input)
    return len(rows)


def _run(proto: onnx.ModelProto, outputs: list[str], inputs: Inputs) -> list[Floats]:
    import onnxruntime

    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return list(session.run(outputs, dict(inputs)))


def _check_outputs(
    outputs: Outputs, model: PreservingCalibrator, rows: Floats, dtype: str, input: Kind
) -> None:
    """Raise a ValueError if a graph's outputs are not those of the library."""
    expected = _expected_outputs(model, rows, dtype, input)
    is_strict = strictly_first(outputs.repaired, expected.prediction, model.rule_)
    wrong = (outputs.prediction != expected.prediction) | ~is_strict
    if wrong.any():
        raise ValueError(
            f"the graph's predictions differ from the library's in {int(wrong.sum())} of "
            f"{len(wrong)} rows, so no file was written; please report this with the versions of "
            f"onnx ({onnx.__version__}) and onnxruntime"
        )
    tolerance = 16.0 * arrays.UNIT_ROUNDOFF[dtype] + 1e-9
    for name in ("direct", "repaired"):
        graph_values, library_values = (
            getattr(source, name)[:_ORDINARY_ROWS].astype(np.float64)
            for source in (outputs, expected)
        )
        differs = ~(np.abs(graph_values - library_values) <= tolerance).all(axis=1)
        if differs.sum() > _MAX_DIFFERENT_ROWS:
            raise ValueError(
                f"the graph's {name} probabilities differ from the library's in "
                f"{int(differs.sum())} of {len(differs)} rows, so no file was written; please "
                f"report this with the versions of onnx ({onnx.__version__}) and onnxruntime"
            )
