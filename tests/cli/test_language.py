"""The command names its options where Python names arguments, also in errors of the library."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

import cordcal


@pytest.fixture
def folder(tmp_path: Path, monkeypatch, logits: np.ndarray, labels: np.ndarray) -> Path:
    """Scores, and models that were made in Python and need more than a command passes."""
    monkeypatch.chdir(tmp_path)
    np.savez("s.npz", logits=logits, labels=labels, kind=labels % 2)
    np.savez("p.npz", probs=softmax(logits, axis=1), labels=labels, kind=labels % 2)
    predictions = np.where(np.arange(len(labels)) % 9, logits.argmax(axis=1), 0)
    explicit = cordcal.PreservingCalibrator("ts").fit(logits, labels, prediction=predictions)
    explicit.certify(logits, labels, 0.3, prediction=predictions)
    cordcal.save(explicit, "explicit.safetensors")
    by_group = cordcal.PreservingCalibrator("ts").fit(logits, labels)
    by_group.certify(logits, labels, 0.3, by=labels % 2)
    cordcal.save(by_group, "group.safetensors")
    return tmp_path


CHECK = ("check", "p.npz", "--certify", "violated", "--model")


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        ((*CHECK, "group.safetensors"), "pass --groups"),
        ((*CHECK, "explicit.safetensors"), "pass prediction=… in Python"),
        (("apply", "explicit.safetensors", "s.npz"), "pass prediction=… in Python"),
        (("certify", "s.npz", "--model", "explicit.safetensors"), "pass prediction=… in Python"),
        (("fit", "s.npz", "--repair", "lifted"), "--repair is 'lifted'; write cord or lift"),
        (("fit", "s.npz", "--prefer", "both"), "--prefer is 'both'"),
        (("check", "p.npz", "--max", "nll=9", "--groups", "few.npy"), "--groups has"),
    ],
    ids=lambda case: case if isinstance(case, str) else " ".join(case[:2]),
)
def test_a_remedy_is_one_of_the_command(folder, call, arguments, remedy: str) -> None:
    np.save("few.npy", np.arange(7))
    code, _, errors = call(*arguments)
    assert code == 2
    assert remedy in errors
    # Nothing is left of Python's syntax, except where Python itself is the remedy.
    assert not re.search(r"\w=(?!…)", errors)
    assert "=…" not in errors.replace("prediction=… in Python", "")


def test_in_python_it_is_an_argument(folder) -> None:
    with np.load("p.npz") as arrays:
        certificate = cordcal.load("group.safetensors").certificate_
        with pytest.raises(cordcal.InputError, match=r"groups is missing.*pass groups=…"):
            certificate.accepts(arrays["probs"])
        certificate = cordcal.load("explicit.safetensors").certificate_
        with pytest.raises(cordcal.InputError, match=r"prediction is missing.*pass prediction=…"):
            certificate.accepts(arrays["probs"])


def test_a_graph_of_many_ranks(folder, call, logits: np.ndarray, labels: np.ndarray) -> None:
    pytest.importorskip("onnxruntime")
    many = np.tile(logits, (1, 12)) - np.arange(36)
    model = cordcal.PreservingCalibrator("ts", preserve="ranking").fit(many, labels)
    cordcal.save(model, "ranks.safetensors")
    code, _, errors = call("export", "ranks.safetensors", "ranks.onnx")
    assert code == 2
    assert re.search(r"fit it with --preserve \d+ or less", errors)
