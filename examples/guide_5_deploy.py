"""
Deploy with torch or ONNX
=========================

The fitted model is a map from logits to probabilities. It can run behind a network as a torch
module, or as an ONNX graph without Python. Needs torch, or onnx and onnxruntime.
"""

# %%
# A fitted model
# --------------
import numpy as np

import cordcal

rng = np.random.default_rng(0)
labels = rng.integers(5, size=2000)
logits = 2.5 * np.eye(5)[labels] + rng.normal(size=(2000, 5)) + [0.0, 0.6, 0.0, -0.6, 0.0]
model = cordcal.PreservingCalibrator("vs").fit(logits, labels)

# %%
# Behind a network
# ----------------
# The module takes logits in any float dtype, on any device, with the classes on any axis, and keeps
# the argmax of exactly these logits.
import torch

from cordcal.torch import PreservingModule

network = torch.nn.Linear(8, 5)  # stands in for yours
served = torch.nn.Sequential(network, PreservingModule(model))
inputs = torch.randn(1000, 8, generator=torch.Generator().manual_seed(0))
with torch.inference_mode():
    proba = served(inputs)
    same = (proba.argmax(dim=1) == network(inputs).argmax(dim=1)).all()
print(served[1])
print(proba.dtype, bool(same))

# %%
# Networks that run in bfloat16 give such logits; many of them tie, and their argmax is kept too.
narrow = network(inputs).detach().to(torch.bfloat16)
proba = served[1](narrow)
print(proba.dtype, bool((proba.argmax(dim=1) == narrow.argmax(dim=1)).all()))

# %%
# The state is in buffers: ``state_dict`` saves it, ``.to(device)`` moves it, ``.half()`` on the
# whole model leaves it in full precision. For segmentation, name the axis of the classes:
pixels = PreservingModule(model, axis=1)
print(pixels(torch.zeros(2, 5, 4, 4)).shape)

# %%
# ``torch.compile``, ``torch.export`` and ``torch.jit.trace`` take the module within your network:
batch = torch.export.Dim("batch")
program = torch.export.export(served.eval(), (inputs[:2],), dynamic_shapes=({0: batch},))
print(torch.equal(program.module()(inputs[:7]), served(inputs[:7])))

# %%
# ``torch.onnx.export`` and ``torch.jit.script`` refuse it, with a pointer to what follows: torch's
# ONNX optimiser drops numbers near zero, which here keep predictions. It does so in an exported
# program too, where the module cannot object, so export the network alone.
#
# As an ONNX file
# ---------------
# :func:`~cordcal.onnx.export` writes one graph with the outputs ``direct``, ``repaired`` and
# ``label``. Before the file is left behind, onnxruntime runs it on ordinary and on adversarial
# rows; a graph that disagrees with the library is not written.
import tempfile
from pathlib import Path

import onnxruntime

from cordcal.onnx import export

with tempfile.TemporaryDirectory() as folder:
    written = export(model, Path(folder) / "model.onnx")
    print(f"{written.bytes:,} bytes, {written.nodes} nodes, {written.rows_checked} rows checked")
    session = onnxruntime.InferenceSession(Path(folder) / "model.onnx")
    narrow = logits.astype(np.float32)
    direct, repaired, label = session.run(["direct", "repaired", "label"], {"logits": narrow})

print("direct changes  ", np.count_nonzero(direct.argmax(axis=1) != narrow.argmax(axis=1)))
print("repaired changes", np.count_nonzero(repaired.argmax(axis=1) != narrow.argmax(axis=1)))

# %%
# The network and the calibration in one file
# -------------------------------------------
# ``behind`` names the network's own ONNX file. The file that is written takes the network's inputs
# and returns its outputs, and ``direct``, ``repaired`` and ``label`` as well. Opset and IR version
# are converted if the network is older; onnxruntime runs the joined graph and compares each
# row with the library.
import onnx
from onnx import TensorProto, helper, numpy_helper

weights = network.weight.detach().numpy().T.copy()
graph = helper.make_graph(
    [helper.make_node("MatMul", ["x", "weights"], ["scores"])],
    "network",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
    [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 5])],
    [numpy_helper.from_array(weights, "weights")],
)
opset = [helper.make_opsetid("", 13)]
proto = helper.make_model(graph, opset_imports=opset, ir_version=7)  # stands in for yours

with tempfile.TemporaryDirectory() as folder:
    onnx.save(proto, Path(folder) / "net.onnx")
    written = export(model, Path(folder) / "whole.onnx", behind=Path(folder) / "net.onnx")
    session = onnxruntime.InferenceSession(Path(folder) / "whole.onnx")
    outputs = [output.name for output in session.get_outputs()]

print(outputs, f"{written.rows_checked} rows checked")

# %%
# A whole scikit-learn pipeline
# -----------------------------
# With skl2onnx installed, :func:`~cordcal.onnx.register_converter` lets it convert
# :class:`~cordcal.sklearn.PreservingCalibratedClassifierCV`: estimator, calibration and everything
# before them in one graph. Without skl2onnx, ``export(classifier, path)`` writes the calibration
# alone, a graph that takes the estimator's scores, and ``cordcal.save(classifier, path)`` writes it
# as a model file. The estimator is in neither: keep it in its own format.
#
# .. code-block:: python
#
#    import skl2onnx
#    from cordcal.onnx import register_converter
#
#    register_converter()
#    proto = skl2onnx.to_onnx(pipeline, X[:1].astype("float32"), options={"zipmap": False})
#
# From the command line
# ---------------------
# .. code-block:: console
#
#    $ cordcal fit scores.npz --calibrator vs --output model.safetensors
#    $ cordcal export model.safetensors model.onnx
#    $ cordcal export model.safetensors whole.onnx --behind net.onnx

# %%
# In a picture
# ------------
# The predictions that the output ``direct`` of the graph changes; ``repaired`` and ``label`` change
# none.
import matplotlib.pyplot as plt

from cordcal import plots

plots.flows(narrow, direct)
plt.show()
