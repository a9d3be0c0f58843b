"""torch's exporters, the module alone and behind a network: it works, or one sentence helps."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import cordcal
from cordcal.onnx import export
from cordcal.torch import PreservingModule
from errors import refused
from products import some

from .conftest import CLASSES, fitted, lifted, noisy_scores

FEATURES = 5
MODELS = ("default", "certified", "irova", "lift")


class Classifier(nn.Module):
    """A network that returns the probabilities and, with a certificate, whether to act."""

    def __init__(self, module: PreservingModule) -> None:
        super().__init__()
        self.network, self.module = nn.Linear(FEATURES, CLASSES), module

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.network(inputs)
        return self.module(logits), self.module.accepts(logits)


def model_of(name: str) -> cordcal.PreservingCalibrator:
    if name == "irova":
        return fitted("irova")
    if name == "lift":
        return lifted("confidence")
    if name == "default":
        return cordcal.PreservingCalibrator().fit(*noisy_scores(500, "logits"))
    model = cordcal.PreservingCalibrator("svs", repair="lift").fit(*noisy_scores(500, "logits"))
    model.certify(*noisy_scores(3000, "logits", seed=3), 0.2)
    return model


def placed(name: str, *, behind: bool) -> tuple[nn.Module, torch.Tensor]:
    """Return the module alone or behind a network, and inputs."""
    torch.manual_seed(0)
    module = PreservingModule(model_of(name)).eval()
    if not behind:
        return module, 2.0 * torch.randn(40, CLASSES)
    if name == "certified":
        return Classifier(module).eval(), 5.0 * torch.randn(40, FEATURES)
    network = nn.Sequential(nn.Linear(FEATURES, CLASSES), module)
    return network.eval(), 5.0 * torch.randn(40, FEATURES)


def assert_same(got: object, expected: object) -> None:
    """The same predictions; compilers add in their own order, so the last bit may differ."""
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-12)
    if isinstance(got, torch.Tensor):
        assert torch.equal(got.argmax(dim=1), expected.argmax(dim=1))


def trace(network: nn.Module, inputs: torch.Tensor) -> Callable[[torch.Tensor], object]:
    return torch.jit.trace(network, inputs)


def export_program(network: nn.Module, inputs: torch.Tensor) -> Callable[[torch.Tensor], object]:
    shapes = ({0: torch.export.Dim("batch")},)
    return torch.export.export(network, (inputs,), dynamic_shapes=shapes).module()


def compile_whole(network: nn.Module, inputs: torch.Tensor) -> Callable[[torch.Tensor], object]:
    torch.compiler.reset()
    return torch.compile(network, fullgraph=True, backend="aot_eager")


PLACES = list(itertools.product(MODELS, ("alone", "behind")))
# The default's blend takes the compiler ten seconds.
QUICK = (("certified", "behind"), ("irova", "alone"))


@pytest.mark.parametrize("place", some(PLACES, QUICK))
@pytest.mark.parametrize("exporter", [trace, export_program, compile_whole])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_works(exporter: Callable, place: tuple[str, str]) -> None:
    name, where = place
    network, inputs = placed(name, behind=where == "behind")
    run = exporter(network, inputs)
    for rows in (40, 7):
        assert_same(run(inputs[:rows]), network(inputs[:rows]))


def test_exported_programs_are_files(tmp_path: Path) -> None:
    network, inputs = placed("default", behind=True)
    torch.export.save(torch.export.export(network, (inputs,)), tmp_path / "network.pt2")
    again = torch.export.load(tmp_path / "network.pt2").module()
    assert torch.equal(again(inputs), network(inputs))


@pytest.mark.parametrize("behind", [False, True], ids=["alone", "behind"])
@pytest.mark.parametrize("name", ["default", "certified"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
class TestRefused:
    @pytest.mark.parametrize("dynamo", [True, False])
    def test_onnx_export(self, dynamo: bool, name: str, behind: bool, tmp_path: Path) -> None:
        network, inputs = placed(name, behind=behind)
        expected = network(inputs)
        with refused("PreservingModule", naming="cordcal.onnx.export(model, path, behind="):
            torch.onnx.export(network, (inputs,), tmp_path / "network.onnx", dynamo=dynamo)
        assert not list(tmp_path.iterdir())
        assert_same(network(inputs), expected)

    def test_jit_script(self, name: str, behind: bool) -> None:
        network, _ = placed(name, behind=behind)
        with refused("PreservingModule", naming=["torch.export", "behind="]):
            torch.jit.script(network)


def test_a_model_with_context_is_refused() -> None:
    scores, labels = noisy_scores(500, "logits")
    context = {"source": np.arange(500) % 2 == 0}
    model = cordcal.PreservingCalibrator().fit(scores, labels, context=context)
    with refused("model", naming=["fitted with context,", "without it"]):
        PreservingModule(model)
    with refused("model", naming=["fitted with context,", "without it"]):
        export(model, "never.onnx")


@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_what_the_error_says_works(dynamo: bool, tmp_path: Path) -> None:
    whole, inputs = placed("certified", behind=True)
    batch = {"dynamic_shapes": ({0: torch.export.Dim("batch")},)}
    if not dynamo:
        batch = {"dynamic_axes": {"inputs": {0: "batch"}}}
    torch.onnx.export(
        whole.network,
        (inputs,),
        tmp_path / "network.onnx",
        input_names=["inputs"],
        output_names=["logits"],
        dynamo=dynamo,
        verbose=False,
        **batch,
    )
    model = model_of("certified")
    export(model, tmp_path / "both.onnx", behind=tmp_path / "network.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "both.onnx")
    names = ["logits", "repaired", "act"]
    logits, repaired, act = session.run(names, {"inputs": inputs.numpy()})
    assert (repaired.argmax(axis=1) == logits.argmax(axis=1)).all()
    expected, accepted = whole(inputs)
    np.testing.assert_allclose(repaired, expected.detach().numpy(), atol=1e-6)
    assert (act.astype(bool) == accepted.numpy()).all()
    assert 0 < act.sum() < len(act)
