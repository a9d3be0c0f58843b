"""Model cards: of every kind of model, valid YAML, only what the file says, nothing unescaped."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

import cordcal
from cordcal.evaluate.held_out import measure_held_out
from cordcal.report.card import model_card
from errors import refused

MODELS = sorted((Path(__file__).parents[1] / "data" / "models").glob("*.safetensors"))
# Each means something to YAML, Markdown or HTML.
NAMES = [
    'a: "b"',
    "| x |",
    "<script>&",
    "*b* _c_ `d`\n---\n# e",
    "\\n\t\x1b[2J\u2028",
    "ü😀 [l](h)",
]


def parts(card: str) -> tuple[dict, str]:
    """Return the metadata and the text."""
    _, block, text = re.split(r"^---$", card, maxsplit=2, flags=re.M)
    return yaml.safe_load(block), text


def rows(n: int = 400, seed: int = 0, classes: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=n)
    return 2.5 * np.eye(classes)[labels] + rng.normal(size=(n, classes)), labels


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_of_every_kind(path: Path) -> None:
    metadata, text = parts(model_card(path))
    model = cordcal.load(path)
    assert metadata["library_name"] == "cordcal"
    assert metadata["cordcal"]["classes"] == model.n_classes_
    assert metadata["cordcal"]["digest"] in text
    # These files hold no figures, so the card has none.
    assert "model-index" not in metadata
    assert "NLL" not in text
    assert "calibration rows" in text


def test_of_a_calibrator_alone(tmp_path: Path) -> None:
    cordcal.save(cordcal.calibrators.make("ts").fit(*rows()), tmp_path / "ts.safetensors")
    metadata, text = parts(model_card(tmp_path / "ts.safetensors"))
    assert metadata["cordcal"]["calibrator"] == "ts"
    assert "may change predictions" in text
    assert "certificate" not in text


@pytest.mark.parametrize("key", ["ts", "vs"])
def test_figures_of_the_fit_are_called_so(key: str, tmp_path: Path) -> None:
    model = cordcal.PreservingCalibrator(key).fit(*rows())
    cordcal.save(model, tmp_path / "model.safetensors")
    metadata, text = parts(model_card(tmp_path / "model.safetensors"))
    assert "model-index" not in metadata
    assert "400 rows of the fit itself" in text
    assert "rows that the fit has seen" in text
    assert f"{100 * model.confidence_.after[0]:+.2f}".replace("-", "−") in text
    assert cordcal.load(tmp_path / "model.safetensors").confidence_ == model.confidence_


def test_figures_of_rows_held_out(tmp_path: Path) -> None:
    def new() -> cordcal.PreservingCalibrator:
        return cordcal.PreservingCalibrator("ts")

    model, measures = new().fit(*rows()), measure_held_out(new, *rows(), input="logits")
    model.measured_ = measures.for_file()
    model.certify(*rows(1000, seed=1), 0.1)
    cordcal.save(model, tmp_path / "model.safetensors")
    metadata, text = parts(model_card(tmp_path / "model.safetensors"))
    assert "400 calibration rows held out in 5 folds" in text
    assert "the fit has seen" not in text
    (result,) = metadata["model-index"][0]["results"]
    values = {metric["type"]: metric["value"] for metric in result["metrics"]}
    for key in ("nll", "brier", "ece"):
        assert values[key] == measures.repaired[key] != measures.original[key]
    assert values["confidence_minus_accuracy"] == measures.confidence.after[0]
    assert "held out" in result["dataset"]["name"]
    assert str(model.certificate_).splitlines()[0] in text
    assert cordcal.__version__ in text
    assert model.digest() in text


def test_names_cannot_change_the_card(tmp_path: Path) -> None:
    cordcal.save(
        cordcal.PreservingCalibrator("ts", class_names=NAMES).fit(*rows()),
        tmp_path / "model.safetensors",
    )
    card = model_card(tmp_path / "model.safetensors")
    metadata, text = parts(card)
    assert len(metadata["cordcal"]["class_names"]) == len(NAMES)
    assert metadata["cordcal"]["class_names"][:3] == NAMES[:3]
    assert metadata["cordcal"]["class_names"][5] == NAMES[5]
    assert "<script" not in text
    assert not re.search(r"^#+ e", text, re.M)
    (line,) = (line for line in text.splitlines() if line.startswith("| Class names"))
    assert len(re.findall(r"(?<!\\)\|", line)) == 3
    assert card.isascii() or all(c.isprintable() or c == "\n" for c in card)


def test_a_damaged_figure_is_refused(tmp_path: Path) -> None:
    model = cordcal.PreservingCalibrator("ts").fit(*rows())
    model.measured_ = {"rows": 3, "fits": 5, "metrics": {"nll": {"before": "x"}}}
    cordcal.save(model, tmp_path / "model.safetensors")
    with refused("model.safetensors", naming="metrics.nll.before"):
        model_card(tmp_path / "model.safetensors")


def test_context_and_rules_are_limits(tmp_path: Path) -> None:
    scores, labels = rows()
    right = scores.argmax(axis=1) == labels
    known = np.where(np.arange(400) % 4 == 0, ~right, right)
    context = {"source": np.arange(400) % 2 == 0, "known": known}
    for columns, expected in (
        (["known"], "The context known must be passed with the scores."),
        (["source", "known"], "The context source has no effect and may be left out."),
        (["source"], "The context source has no effect and may be left out."),
    ):
        model = cordcal.PreservingCalibrator().fit(
            scores, labels, context={name: context[name] for name in columns}
        )
        cordcal.save(model, tmp_path / "context.safetensors")
        card = model_card(tmp_path / "context.safetensors")
        assert expected in card
        assert ("must be passed" in card) == ("known" in columns)
    weighted = cordcal.PreservingCalibrator("ts", rule=[1, 1, 3, 1, 1, 1]).fit(scores, labels)
    cordcal.save(weighted, tmp_path / "rule.safetensors")
    assert "weight times probability" in model_card(tmp_path / "rule.safetensors")


def test_another_fit_forgets_the_figures_of_the_first() -> None:
    model = cordcal.PreservingCalibrator("ts").fit(*rows())
    model.measured_ = {"rows": 400}
    assert model.fit(*rows(seed=1)).measured_ is None
