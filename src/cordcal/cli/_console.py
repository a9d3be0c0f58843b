"""What the commands print with: results on stdout, progress on stderr."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

# Wide enough for the widest table; a pipe has no width of its own.
_PIPE_WIDTH = 160


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


def show(*renderables: Any) -> None:
    """Print text, tables and rules to stdout, in colour only on a terminal."""
    from rich.console import Console
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)
    for renderable in renderables:
        # A class called [red] is a word, not a wish for colour.
        plain = Text(printable(renderable)) if isinstance(renderable, str) else renderable
        console.print(_Printable(plain))


def say(text: str) -> None:
    """Print one line to stdout at once."""
    print(printable(text), flush=True)


def note(text: str) -> None:
    """Print one line to stderr: for people, out of the way of pipes."""
    print(printable(text), file=sys.stderr, flush=True)


def show_json(value: Any) -> None:
    """Print a JSON document to stdout; what has no number is null."""
    text = json.dumps(plain(value), ensure_ascii=False, indent=2)
    print("".join(each if each.isprintable() or each == "\n" else _in_json(each) for each in text))


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
    """Show a progress bar on stderr while the block runs; silent when not a terminal."""
    if not sys.stderr.isatty():
        yield lambda what: None
        return
    with _bar() as bar:
        task = bar.add_task(title, total=steps)
        started = False

        def advance(what: str) -> None:
            nonlocal started
            bar.update(task, description=printable(f"{title}: {what}"), advance=1 if started else 0)
            started = True

        yield advance


@contextmanager
def counted_progress(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """Show a progress bar for work that says itself how much of it is done."""
    if not sys.stderr.isatty():
        yield lambda done, total, what: None
        return
    with _bar() as bar:
        task = bar.add_task(title, total=None)

        def advance(done: int, total: int, what: str) -> None:
            bar.update(task, description=printable(f"{title}: {what}"), completed=done, total=total)

        yield advance


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
