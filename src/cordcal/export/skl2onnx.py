"""A converter for skl2onnx: the estimator's graph, and the calibration's after it."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import onnx
from onnx import ModelProto, helper, numpy_helper
from sklearn.base import BaseEstimator

from cordcal._errors import InputError
from cordcal._numeric.types import Floats, Kind
from cordcal.export._onnx_graph import OPSET, join, output_names
from cordcal.export._recipe import HasCalibrator, recipe_of

try:
    import skl2onnx
    from skl2onnx.common._container import ModelComponentContainer
    from skl2onnx.common._topology import Operator, Scope
    from skl2onnx.common.shape_calculator import calculate_linear_classifier_output_shapes
except ImportError as error:
    raise ImportError("this needs skl2onnx; install it with: pip install skl2onnx") from error

_PREFIX = "cordcal"
# Rows on which the estimator's graph is compared with the estimator.
_ROWS = 64


class Member(Protocol):
    """What is used of a member: the estimator and its scores, one column per class."""

    estimator: BaseEstimator
    kind: Kind

    def scores(self, X: object) -> Floats:
        """Return the estimator's scores."""
        ...


class Classifier(HasCalibrator, Protocol):
    """What is used of a fitted classifier."""

    classes_: Floats
    calibrated_classifiers_: list[Member]


def register(classifier: type[BaseEstimator]) -> None:
    """Tell skl2onnx how to convert a class of classifiers."""
    skl2onnx.update_registered_converter(
        classifier,
        f"Cordcal{classifier.__name__}",
        calculate_linear_classifier_output_shapes,
        _convert,
        options={
            "zipmap": [True, False, "columns"],
            "nocl": [True, False],
            "output_class_labels": [False, True],
        },
    )


def _convert(scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    """Add the nodes of a fitted classifier to a graph under construction."""
    classifier: Classifier = operator.raw_operator
    if len(operator.inputs) != 1:
        raise InputError(
            "initial_types",
            f"has {len(operator.inputs)} inputs for the classifier",
            "pass one matrix, or put a step before it that makes one",
        )
    from cordcal.export.onnx import calibration_graph  # which imports this package's modules

    calibrator = classifier.to_calibrator()
    opset = container.target_opset_any_domain("")
    if opset < OPSET:
        raise InputError(
            "target_opset", f"is {opset}", f"pass {OPSET} or more, which the calibration needs"
        )
    (member,) = classifier.calibrated_classifiers_
    recipe, parameters = recipe_of(calibrator)
    variable = operator.inputs[0]
    estimator, scores = _estimator_graph(member, variable.type, opset, container)
    calibration = calibration_graph(calibrator, recipe, parameters, "float32", opset)
    whole = join(estimator, calibration, scores)
    _, repaired, label = output_names(whole)
    names = _inline(whole, scope, container, {whole.graph.input[0].name: variable.onnx_name})
    classes = np.asarray(classifier.classes_)
    constant = scope.get_unique_variable_name(f"{_PREFIX}_classes")
    is_number = classes.dtype.kind in "biuf"
    kind = onnx.TensorProto.INT64 if is_number else onnx.TensorProto.STRING
    values = classes.astype(np.int64) if is_number else [str(name).encode() for name in classes]
    container.add_initializer(constant, kind, [len(classes)], list(values))
    label_output, proba_output = operator.outputs
    for op_type, inputs, output in (
        ("Gather", [constant, names[label]], label_output.full_name),
        ("Identity", [names[repaired]], proba_output.full_name),
    ):
        name = scope.get_unique_operator_name(f"{_PREFIX}_{op_type}")
        container.add_node(op_type, inputs, [output], op_version=opset, name=name)


def _estimator_graph(
    member: Member, input_type: object, opset: int, container: ModelComponentContainer
) -> tuple[ModelProto, str]:
    """Return the estimator as a graph, and the name of its output of scores."""
    estimator = member.estimator
    estimator = getattr(estimator, "estimator", estimator) if _is_frozen(estimator) else estimator
    last = estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator
    options = {"raw_scores": True} if member.kind == "logits" else {}
    if "zipmap" in (container._get_allowed_options(last) or ()):
        options["zipmap"] = False
    try:
        proto = skl2onnx.to_onnx(
            estimator,
            initial_types=[("X", input_type)],
            options={id(last): options},
            target_opset={"": opset},
        )
    except Exception as error:  # converters raise errors of many classes
        method = "decision_function" if member.kind == "logits" else "predict_proba"
        raise InputError(
            f"estimator {type(last).__name__}",
            f"cannot be converted by skl2onnx with its {method} ({str(error)[:200]})",
            "use an estimator that it supports, or export the calibration alone with "
            "cordcal.onnx.export",
        ) from error
    scores = proto.graph.output[1].name
    # For two classes skl2onnx declares one column in some cases where there are two.
    for size in proto.graph.output[1].type.tensor_type.shape.dim:
        size.Clear()
    if member.kind == "logits" and len(getattr(last, "classes_", ())) == 2:
        scores = _add_halves(proto, scores)
    _check_estimator_graph(proto, scores, member)
    return proto, scores


def _is_frozen(estimator: BaseEstimator) -> bool:
    return type(estimator).__name__ == "FrozenEstimator"


def _add_halves(proto: ModelProto, scores: str) -> str:
    """Replace two raw scores by −z/2 and z/2, where z is the decision value of the second class."""
    graph, halves = proto.graph, f"{_PREFIX}_halves"
    element = next(out for out in graph.output if out.name == scores).type.tensor_type.elem_type
    dtype = helper.tensor_dtype_to_np_dtype(element)
    factors = np.array([[0.0, 0.0], [-0.5, 0.5]], dtype)
    graph.initializer.append(numpy_helper.from_array(factors, f"{halves}_factors"))
    graph.node.append(helper.make_node("MatMul", [scores, f"{halves}_factors"], [halves]))
    graph.output.append(helper.make_tensor_value_info(halves, element, [None, 2]))
    return halves


def _check_estimator_graph(proto: ModelProto, scores: str, member: Member) -> None:
    """Compare the estimator's graph with the estimator on random rows."""
    import onnxruntime

    (source,) = proto.graph.input
    dtype = helper.tensor_dtype_to_np_dtype(source.type.tensor_type.elem_type)
    features = getattr(member.estimator, "n_features_in_", None)
    if features is None or dtype.kind != "f":
        return  # text or categories: there are no random rows to make up
    rows = np.random.default_rng(0).normal(size=(_ROWS, features)).astype(dtype)
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (values,) = session.run([scores], {source.name: rows})
    expected = member.scores(rows)
    scale = np.abs(expected).max(axis=1, keepdims=True) + 1.0
    agrees = values.shape == expected.shape and (np.abs(values - expected) <= 1e-3 * scale).all(1)
    # Trees compare float32 with float32 in the graph, so single rows may take another branch.
    if np.mean(agrees) < 0.9:
        raise InputError(
            f"estimator {type(member.estimator).__name__}",
            "has other scores in skl2onnx's graph than in scikit-learn",
            "export the calibration alone with cordcal.onnx.export",
        )


def _inline(
    model: ModelProto,
    scope: Scope,
    container: ModelComponentContainer,
    names: dict[str, str],
) -> dict[str, str]:
    """Add the nodes and constants of a model; return the new name of each of its values."""

    def renamed(name: str) -> str:
        if name and name not in names:
            names[name] = scope.get_unique_variable_name(f"{_PREFIX}_{name}")
        return names.get(name, "")

    versions = {entry.domain: entry.version for entry in model.opset_import}
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.STRING:
            content = list(tensor.string_data)
        else:  # the container reads raw data only
            content = numpy_helper.from_array(numpy_helper.to_array(tensor))
        container.add_initializer(renamed(tensor.name), tensor.data_type, tensor.dims, content)
    for node in model.graph.node:
        attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        container.add_node(
            node.op_type,
            [renamed(name) for name in node.input],
            [renamed(name) for name in node.output],
            op_domain=node.domain,
            op_version=versions[node.domain],
            name=scope.get_unique_operator_name(f"{_PREFIX}_{node.op_type}"),
            **attributes,
        )
    return names
