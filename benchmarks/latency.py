"""What calibration that keeps predictions costs at serving time, next to a plain softmax.

    python benchmarks/latency.py

Median milliseconds of one call at K = 1000, one thread, for a batch of 1 and of 1024:
NumPy, the torch module, and ONNX graphs in onnxruntime.
"""

from __future__ import annotations

import os
import tempfile
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import onnx
import onnxruntime
import torch

import cordcal
from cordcal.export._onnx_graph import Graph
from cordcal.expressions import softmax
from cordcal.onnx import export
from cordcal.torch import PreservingModule
from repair import medians

CLASSES = 1000
BATCHES = (1, 1024)
MODELS = {"ts": 1, "svs": 1, "irova": 1, "ts, first 5 ranks": 5}


def make_scores(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=rows)
    logits = 2.0 * rng.normal(size=(rows, CLASSES)).astype(np.float32)
    logits[np.arange(rows), labels] += 4.0
    return logits, labels


def session_of(path: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def softmax_graph(path: str) -> None:
    """Write the graph that everyone has already: a float32 softmax."""
    info = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ("batch", CLASSES))
        for name in ("logits", "probabilities")
    ]
    node = onnx.helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1)
    opset = [onnx.helper.make_opsetid("", 18)]
    graph = onnx.helper.make_graph([node], "softmax", info[:1], info[1:])
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), path)


def wide_softmax_graph(path: str) -> None:
    """Write a softmax in float64 with the same nodes as the exported graphs."""
    graph = Graph()
    scores = graph.astype(graph.input("logits", np.float32, CLASSES), np.float64)
    graph.output("probabilities", graph.astype(softmax(scores, graph), np.float32))
    onnx.save(graph.model("softmax", "cordcal", cordcal.__version__, {}), path)


def measure(
    batch: int, models: dict[str, cordcal.PreservingCalibrator], graphs: dict[str, str]
) -> None:
    rows = make_scores(batch, 1)[0]
    tensor, feed = torch.tensor(rows), {"logits": rows}
    runs = {"torch softmax": lambda: torch.softmax(tensor, 1)}
    for name, path in graphs.items():
        session = session_of(path)
        runs[f"onnx {name}"] = lambda session=session: session.run(None, feed)
    for name, model in models.items():
        module = PreservingModule(model).eval()
        runs[f"torch {name}"] = lambda module=module: module(tensor)
        runs[f"numpy {name}"] = lambda model=model: model.predict_proba(rows, dtype="float32")
    with torch.inference_mode():
        times = medians(runs, 50 if batch == 1 else 7)
    print(f"batch {batch:,} × {CLASSES:,} classes, one thread")
    for name, seconds in sorted(times.items()):
        base = times["torch softmax" if name.startswith("torch") else "onnx softmax"]
        print(f"  {name:<28} {1e3 * seconds:9.3f} ms   {seconds / base:7.1f} × softmax")


def main() -> None:
    torch.set_num_threads(1)
    scores, labels = make_scores(3000, 0)
    folder = tempfile.mkdtemp()
    graphs = {"softmax": f"{folder}/softmax.onnx", "softmax in float64": f"{folder}/wide.onnx"}
    softmax_graph(graphs["softmax"])
    wide_softmax_graph(graphs["softmax in float64"])
    models = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, preserve in MODELS.items():
            graphs[name] = f"{folder}/{name}.onnx"
            models[name] = cordcal.PreservingCalibrator(name.split(",")[0], preserve=preserve)
            models[name].fit(scores, labels)
            size = export(models[name], graphs[name]).bytes
            print(f"{name}: {size:,} bytes of ONNX")
    for batch in BATCHES:
        measure(batch, models, graphs)


if __name__ == "__main__":
    main()
