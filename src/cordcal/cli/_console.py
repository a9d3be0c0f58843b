"""What the commands print with: results on stdout, progress on stderr."""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from cordcal.cli._streams import is_utf8, writing

# Wide enough for the widest table; a pipe has no width of its own.
_PIPE_WIDTH = 160
# Seconds between lines of progress in a log.
_EVERY = 5.0

Counted = Callable[[int, int, str], None]
"""Told how many steps are done, of how many, and what is worked on."""


@dataclass
class Verbosity:
    """How much the command that runs now says.

    Attributes
    ----------
    quiet, verbose, json : bool
        What ``--quiet``, ``--verbose`` and ``--json`` ask for.
    """

    quiet: bool = False
    verbose: bool = False
    json: bool = False


VERBOSITY = Verbosity()


class Advance(Protocol):
    """Say what is being worked on now; called once a step."""

    def __call__(self, what: str) -> None: ...


def printable(text: str) -> str:
    r"""Return text as a terminal may have it: what would steer the terminal is written out.

    Class names, keys and file names come from other people; an escape sequence in them could
    clear the screen or forge a line.

    Examples
    --------
    >>> print(printable("cat\x1b[2J\u202e, dog"))
    cat\x1b[2J\u202e, dog
    """
    if text.isprintable():
        return text
    kept = (each if each.isprintable() or each in "\n\t" else _written_out(each) for each in text)
    return "".join(kept)


def _written_out(character: str) -> str:
    # Lone surrogates, which stand for bytes of a file name that are no text, too.
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


class _Printable:
    """What rich renders, piece by piece made printable."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        for segment in console.render(self.inner, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def show(*renderables: Any, wide: bool = False) -> None:
    """Print text, tables and rules to stdout, in colour only on a terminal.

    Parameters
    ----------
    *renderables : str or what rich renders
        What to print.
    wide : bool
        Whether tables have all their columns, also where the terminal is narrower.
    """
    from rich.console import Console
    from rich.text import Text

    whole = wide or not sys.stdout.isatty()
    console = Console(width=_PIPE_WIDTH if whole else None, highlight=False)
    for renderable in renderables:
        # A class called [red] is a word, not a wish for colour.
        plain = Text(printable(renderable)) if isinstance(renderable, str) else renderable
        with writing("stdout"):
            console.print(_Printable(plain))


def echo(text: str) -> None:
    """Print one line of the result to stdout at once."""
    with writing("stdout"):
        print(printable(text), flush=True)


def echo_heading(text: str) -> None:
    """Say what begins: on stdout before tables, on stderr beside JSON."""
    if VERBOSITY.json:
        echo_info(text)
    elif not VERBOSITY.quiet:
        echo(text)


def echo_info(text: str) -> None:
    """Print one line to stderr, for people, out of the way of pipes; not with ``--quiet``."""
    if not VERBOSITY.quiet:
        echo_error(text)


def echo_debug(text: str) -> None:
    """Print what only ``--verbose`` wants to know to stderr."""
    if VERBOSITY.verbose:
        echo_error(text)


def echo_error(text: str) -> None:
    """Print a warning or an error to stderr, whatever was asked for."""
    # Whoever does not listen to stderr misses the words; the exit code stays right.
    with suppress(OSError), writing("stderr"):
        print(printable(text), file=sys.stderr, flush=True)


def show_json(value: Any) -> None:
    """Print a JSON document to stdout; what has no number is null."""
    # JSON is UTF-8, whatever the terminal is: where that differs, only ASCII is both.
    text = json.dumps(plain(value), ensure_ascii=not is_utf8(), indent=2)
    shown = "".join(each if each.isprintable() or each == "\n" else _in_json(each) for each in text)
    with writing("stdout"):
        print(shown, flush=True)


def _in_json(character: str) -> str:
    return json.dumps(character)[1:-1]


def plain(value: Any) -> Any:
    """Return ``value`` made of what JSON knows."""
    if hasattr(value, "tolist"):  # NumPy arrays and scalars
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@contextmanager
def progress(title: str, steps: int) -> Iterator[Advance]:
    """Show on stderr how far the block is, which says each step as it begins."""
    begun = -1
    with counted_progress(title) as count:

        def advance(what: str) -> None:
            nonlocal begun
            begun += 1
            count(begun, steps, what)

        yield advance


@contextmanager
def counted_progress(title: str) -> Iterator[Counted]:
    """Show on stderr how far work is that counts itself: a bar, or a line now and then in a log."""
    if VERBOSITY.quiet:
        yield lambda done, total, what: None
    elif sys.stderr.isatty():
        with _bar() as bar:
            task = bar.add_task(title, total=None)

            def advance(done: int, total: int, what: str) -> None:
                told = printable(_titled(title, what))
                bar.update(task, description=told, completed=done, total=total)

            yield advance
    else:
        with _lines(title) as tell:
            yield tell


@contextmanager
def row_progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show on stderr how many rows of a file are done."""
    with counted_progress(title) as count:
        yield lambda done, total: count(done, total, "rows")


@contextmanager
def _lines(title: str) -> Iterator[Counted]:
    """Print where the work is every few seconds, also while one step takes long."""
    start, ended = time.monotonic(), threading.Event()
    now: tuple[int, int, str] | None = None

    def advance(done: int, total: int, what: str) -> None:
        nonlocal now
        now = done, total, what

    def tell() -> None:
        while not ended.wait(_EVERY):
            if now is not None:
                done, total, what = now
                seconds = time.monotonic() - start
                echo_info(f"{_titled(title, what)}, {done:,} of {total:,}, {seconds:.0f} s")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield advance
    finally:
        ended.set()
        teller.join()


def _titled(title: str, what: str) -> str:
    return f"{title}: {what}"


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
    from rich.text import Text

    class _Counted(ProgressColumn):
        def render(self, task: Any) -> Any:
            # How much there is to do is known only once it has begun.
            known = task.total is not None
            return Text(f"{task.completed:,}/{task.total:,}" if known else "")

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        _Counted(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )


def echo_skipped(skipped: Mapping[str, int]) -> None:
    """Say how many rows were left out, and why."""
    for reason, count in skipped.items():
        echo_error(f"skipped {count:,} row{'' if count == 1 else 's'}: {reason}")
