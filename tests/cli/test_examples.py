"""Every example of ``--help`` runs as it is written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from cordcal.cli._app import app

COMMANDS = {command.callback.__name__: command for command in app.registered_commands}
EXAMPLES = [
    example
    for command in COMMANDS.values()
    for example in re.findall(r"Example: cordcal (.*)", command.epilog or "")
]


def test_every_command_has_an_example() -> None:
    assert all("Example: cordcal" in (command.epilog or "") for command in COMMANDS.values())


@pytest.mark.parametrize("example", [text for text in EXAMPLES if text != "demo"])
def test_example(
    call, tmp_path: Path, logits: np.ndarray, labels: np.ndarray, example: str
) -> None:
    direct = softmax(0.5 * logits + [0.0, 0.4, -0.4], axis=1)
    np.savez(tmp_path / "scores.npz", logits=logits, labels=labels)
    np.savez(tmp_path / "new.npz", logits=logits[:50])
    np.savez(tmp_path / "p.npz", probs=softmax(logits, axis=1))
    np.savez(tmp_path / "q.npz", direct=direct)
    np.save(tmp_path / "y.npy", labels)
    arguments = shlex.split(example)
    if arguments[0] in ("apply", "export"):
        repair = arguments[1].startswith("cord")
        made = next(
            text for text in EXAMPLES if text.startswith("fit") and ("--original" in text) == repair
        )
        assert call(*shlex.split(made))[0] == 0
    code, _, errors = call(*arguments)
    assert code == 0, errors
    outputs = [
        arguments[at + 1] for at, word in enumerate(arguments) if word in ("--output", "--report")
    ]
    assert all((tmp_path / output).stat().st_size > 0 for output in outputs)
