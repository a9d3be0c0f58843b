"""``cordcal warmup``: compile the kernels ahead of time."""

from __future__ import annotations

from dataclasses import asdict

import typer

from cordcal._errors import InputError
from cordcal.cli._console import echo, echo_info, show_json
from cordcal.cli._options import JsonOption, add_command


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, warmup, "warmup")


def warmup(json: JsonOption = False) -> None:
    """Compile the kernels into numba's cache, for servers and images, and print its folder.

    Later processes load them in half a second, at cordcal.warmup() or once they have worked
    through tens of millions of entries. NUMBA_CACHE_DIR sets another folder; later processes
    need the same setting.
    """
    from cordcal.repair import kernels

    echo_info("preparing kernels: some seconds if they are not cached yet")
    done = kernels.prepare()
    if done is None:
        reason = "is disabled by NUMBA_DISABLE_JIT" if kernels.disabled() else "is not installed"
        remedy = "unset it" if kernels.disabled() else "pip install numba"
        raise InputError("numba", f"{reason}, so there is nothing to compile", remedy)
    if done.folder is None:
        raise InputError(
            "numba's cache",
            "cannot be written, so later processes compile again",
            "set NUMBA_CACHE_DIR to a folder that can be written",
        )
    if json:
        show_json(asdict(done))
        return
    echo(
        f"kernels: {done.compiled} compiled, {done.loaded} loaded from the cache in "
        f"{done.seconds:.1f} s\ncache: {done.folder}"
    )
