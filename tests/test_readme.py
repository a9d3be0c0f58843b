"""What the README shows is true; tests/cli/test_demo.py compares the demo's output with it."""

from __future__ import annotations

import re

import numpy as np
from scipy.special import softmax

from documents import ROOT, blocks, run_examples

README = ROOT / "README.md"


def your_data() -> dict[str, np.ndarray]:
    """Return what the examples call yours: scores, and the reports of some calibrator."""
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=2000)
    logits = 2.0 * np.eye(4)[labels] + rng.normal(size=(2000, 4))
    original = softmax(logits, axis=1)
    direct = softmax(0.6 * logits + [0.0, 0.3, -0.3, 0.0], axis=1)
    return {
        "logits": logits[:1000],
        "labels": labels[:1000],
        "new_logits": logits[1000:],
        "new_labels": labels[1000:],
        "original": original[:1000],
        "direct": direct[:1000],
        "new_original": original[1000:],
        "new_direct": direct[1000:],
    }


def test_examples_run() -> None:
    assert run_examples(README, your_data()) > 4


def test_pictures_and_files_it_names_exist() -> None:
    text = README.read_text("utf-8")
    targets = re.findall(r"\]\(([^)]+)\)", text)
    scripts = re.findall(r"`python (\S+\.py)", text)
    assert targets
    assert scripts
    local = [target for target in targets if not target.startswith("https://")]
    for named in (*local, *scripts):
        assert (ROOT / named).exists(), named


def test_the_lines_of_the_home_page_run() -> None:
    (lines,) = blocks(ROOT / "docs" / "index.md", "python")
    names = your_data()
    exec(compile(lines, "docs/index.md", "exec"), names)
    assert names["proba"].shape == names["new_logits"].shape
