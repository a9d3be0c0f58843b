"""Two writers of one file: one complete output, and an error for each of the others."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from attacks.kills import SUFFIXES, prepared, processes, run
from attacks.promises import Rng, hold

REFUSED = 3
ENDS = {0: "done", REFUSED: "refused"}


def trial(rng: Rng, folder: Path) -> int:
    """Let two processes write the same output at nearly the same time."""
    model, source = prepared(rng, folder)
    suffix = rng.choice(SUFFIXES)
    output, whole = folder / f"out.{suffix}", folder / f"whole.{suffix}"
    run(model, source, whole)
    overwrite = bool(rng.random() < 0.5)
    late = rng.uniform(0.0, 0.2)
    writers = [
        processes().Process(target=write, args=(delay, model, source, output, overwrite))
        for delay in (0.0, late)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    ends = [ENDS.get(writer.exitcode, f"fell ({writer.exitcode})") for writer in writers]
    hold(set(ends) <= set(ENDS.values()), f"a writer {ends}")
    hold("done" in ends, "neither writer won")
    hold(overwrite or ends.count("done") == 1, "two writers of one new file both won")
    hold(output.read_bytes() == whole.read_bytes(), "two writers spoiled their output")
    hidden = [path.name for path in folder.iterdir() if path.name.startswith(".")]
    hold(not hidden, f"{hidden} were left behind")
    return 1


def write(delay: float, model: Path, source: Path, output: Path, overwrite: bool) -> None:
    """Write after a while; the exit code says how it ended."""
    time.sleep(delay)
    try:
        run(model, source, output, overwrite=overwrite)
    except (ValueError, OSError):
        sys.exit(REFUSED)
