"""The command ``cordcal``: one file per command, each a thin call into the library."""

from __future__ import annotations

from collections.abc import Sequence

INTERRUPTED = 130  # what a shell reports for a process stopped by Ctrl-C


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    try:
        # Importing takes a moment, during which Ctrl-C may arrive.
        from cordcal.cli._app import run

        return run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED


__all__ = ["main"]
