"""Standard streams that are closed, full or abandoned: exit codes keep their meaning."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from attacks.promises import Rng, hold, logits_and_labels, untouched

SOURCE = Path(__file__).parents[2] / "src"
# A command; its exit code where all streams are there; and which of them it needs.
COMMANDS: tuple[tuple[str, int, str], ...] = (
    ("info s.npz", 0, "out"),
    ("info s.npz --json", 0, "out"),
    ("info -", 0, "in out"),
    ("info missing.npz", 2, ""),
    ("info missing.npz --json", 2, ""),
    ("check s.npz --max nll=9", 0, "out"),
    ("check s.npz --max nll=0", 1, "out"),
    ("check s.npz --max nll=0 --json", 1, "out"),
    ("check - --max nll=0 --report out.xml", 1, "in out"),
    ("audit --original s.npz --direct p.npz", 0, "out"),
    ("fit s.npz --calibrator ts --output out.safetensors", 0, "out"),
    ("apply m.safetensors s.npz", 0, "out"),
    ("apply m.safetensors s.npz --output out.csv", 0, ""),
    ("apply m.safetensors - --output out.csv", 0, "in"),
    ("apply m.safetensors - --output out.csv --json", 0, "in out"),
    ("--version", 0, "out"),
    ("fit --help", 0, "out"),
    ("fit --nonsense", 2, ""),
)
OUTPUTS = ("out.xml", "out.safetensors", "out.csv")
NO_READER = 141


def trial(rng: Rng, folder: Path) -> int:
    """Run a command with its streams in some state."""
    logits, labels = logits_and_labels(rng, 60, 3)
    np.savez(folder / "s.npz", logits=logits, labels=labels)
    powers = np.exp(logits)
    np.savez(folder / "p.npz", probs=powers / powers.sum(axis=1, keepdims=True))
    text, code, needs = COMMANDS[int(rng.integers(len(COMMANDS)))]
    if "m.safetensors" in text:
        from cordcal import PreservingCalibrator, save

        save(PreservingCalibrator("ts").fit(logits, labels), folder / "m.safetensors")
    full = ["full"] if Path("/dev/full").exists() else []
    stdin = str(rng.choice(["file", "closed"]))
    stdout, stderr = (str(rng.choice(["open", "closed", "gone", *full])) for _ in range(2))
    expected = code
    if "in" in needs.split() and stdin == "closed":
        expected = 2
    elif "out" in needs.split() and stdout != "open":
        expected = NO_READER if stdout == "gone" else 2
    with untouched(folder, *OUTPUTS):
        ended, errors = run(text.split(), folder, stdin, stdout, stderr)
    what = f"{text} with stdin {stdin}, stdout {stdout}, stderr {stderr}"
    hold(ended == expected, f"{what}: exit code {ended} instead of {expected}: {errors}")
    hold("Traceback" not in errors, f"{what}: {errors}")
    hold("Exception ignored" not in errors, f"{what}: {errors}")
    if "--output" in text and "out" not in needs.split() and ended == 0:
        written = (folder / "out.csv").read_text(encoding="utf-8").splitlines()
        hold(len(written) == 61, f"{what}: {len(written)} lines of 61")
    return 1


def run(
    arguments: list[str], folder: Path, stdin: str, stdout: str, stderr: str
) -> tuple[int, str]:
    """Run a command behind redirections; return its exit code and what reached stderr."""
    redirected = ["<&-" if stdin == "closed" else "<s.npz"]
    redirected += [
        f"{number}{'>&-' if state == 'closed' else '>/dev/full'}"
        for number, state in ((1, stdout), (2, stderr))
        if state in ("closed", "full")
    ]
    command = [sys.executable, "-m", "cordcal", *arguments]
    reading, writing = os.pipe()
    os.close(reading)
    own = {"open": subprocess.PIPE, "gone": writing}
    try:
        done = subprocess.run(
            ["sh", "-c", f'"$@" {" ".join(redirected)}', "sh", *command],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONUTF8": "1"},
            stdout=own.get(stdout, subprocess.PIPE),
            stderr=own.get(stderr, subprocess.PIPE),
            check=False,
        )
    finally:
        os.close(writing)
    return done.returncode, (done.stderr or b"").decode(errors="replace")
