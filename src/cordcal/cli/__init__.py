"""The command ``cordcal``: one file per command, each a thin call into the library."""

from cordcal.cli._app import main

__all__ = ["main"]
