"""Printing: results go to stdout, messages and progress to stderr; streams may be closed."""

from __future__ import annotations

import codecs
import io
import json
import math
import os
import shutil
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from cordcal._errors import printable

# Replacements of printed non-ASCII characters, for terminals that cannot show them.
_ASCII = {
    "✓": "ok",
    "✗": "FAILED",
    "→": "->",
    "⁺": "+",
    "⁻": "-",
    "⁰": "0",
    "−": "-",
    "–": "-",
    "×": "x",
    "±": "+-",
    "≤": "<=",
    "≥": ">=",
    "…": "...",
    "·": "*",
    "•": "*",
    "’": "'",
    "“": '"',
    "”": '"',
    **dict.fromkeys("─━╌┄╴╶╸╺═", "-"),
    **dict.fromkeys("│┃╎┆║", "|"),
}
_FALLBACK = "cordcal-ascii"
# How a closed stream is reopened on the null device: reading stdin and writing stdout fail as on
# the closed descriptor; text for stderr is discarded.
_CLOSED = {
    "stdin": ("r", os.O_WRONLY),
    "stdout": ("w", os.O_RDONLY),
    "stderr": ("w", os.O_WRONLY),
}


def _replace_with_ascii(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that an encoding lacks; an error handler for `codecs`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    pieces = [
        _ASCII.get(character) or character.encode("ascii", "backslashreplace").decode()
        for character in text
    ]
    return "".join(pieces), error.end


codecs.register_error(_FALLBACK, _replace_with_ascii)


@contextmanager
def standard_streams() -> Iterator[None]:
    """Make the standard streams safe to use while a command runs.

    A closed stream is reopened on the null device, so that no file gets its descriptor.
    Characters that an encoding lacks are written in ASCII.
    """
    before = {name: getattr(sys, name) for name in _CLOSED}
    opened: list[Any] = []
    errors: dict[str, str] = {}
    for name, (mode, flags) in _CLOSED.items():
        if before[name] is None:
            handle = os.open(os.devnull, flags)  # the lowest free number: the closed one
            opened.append(open(handle, mode, encoding="utf-8"))  # noqa: SIM115 - closed below
            setattr(sys, name, opened[-1])
        elif mode == "w" and isinstance(before[name], io.TextIOWrapper) and not is_utf8(name):
            errors[name] = before[name].errors
            before[name].reconfigure(errors=_FALLBACK)
    try:
        yield
    finally:
        for name, stream in before.items():
            setattr(sys, name, stream)
        with suppress(OSError, ValueError):
            for name, handler in errors.items():
                before[name].reconfigure(errors=handler)
        for stream in opened:
            with suppress(OSError):
                stream.close()


def is_utf8(name: str = "stdout") -> bool:
    """Return whether a stream can encode every character; in-memory streams can."""
    encoding = getattr(getattr(sys, name), "encoding", None) or "utf-8"
    return codecs.lookup(encoding).name.startswith("utf")


@contextmanager
def writing(name: str) -> Iterator[None]:
    """Add the stream's name to an OSError, and discard its unwritten text."""
    try:
        yield
    except OSError as error:
        discard(name)
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, name) from error
        raise


def discard(name: str) -> None:
    """Discard unwritten text, which Python would otherwise try to flush again at exit."""
    stream = getattr(sys, name)
    with suppress(OSError, ValueError, AttributeError):  # a stream in memory has no descriptor
        handle = os.open(os.devnull, os.O_WRONLY)
        os.dup2(handle, stream.fileno())
        os.close(handle)
        stream.flush()


if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.progress import Progress, Task
    from rich.segment import Segment

# A line with a command to copy begins with spaces or a word such as "next:" before it.
_COMMAND_START = 16
# Wide enough for the widest table; a pipe has no width.
_PIPE_WIDTH = 160
# Seconds between lines of progress in a log.
_EVERY = 5.0

Counted = Callable[[int, int | None, str], None]
"""Called with the number of finished steps, the total if known, and the current step's name."""


@dataclass
class Verbosity:
    """How much the running command prints.

    Attributes
    ----------
    quiet, verbose, json : bool
        Whether ``--quiet``, ``--verbose`` and ``--json`` were used.
    """

    quiet: bool = False
    verbose: bool = False
    json: bool = False


VERBOSITY = Verbosity()


class Advance(Protocol):
    """Called once per step, with the name of the step that begins."""

    def __call__(self, what: str) -> None: ...


class _Printable:
    """Wrap a rich renderable so that each rendered segment is printable."""

    def __init__(self, inner: RenderableType) -> None:
        self.inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self.inner, options):
            if segment.control:
                yield segment
            else:  # rich ends its lines itself; texts are escaped before they are rendered
                yield segment._replace(text="\n".join(map(printable, segment.text.split("\n"))))


def show(*renderables: RenderableType, wide: bool = False) -> None:
    """Print text, tables and rules to stdout, in colour only on a terminal.

    Parameters
    ----------
    *renderables : str or rich renderable
        What to print.
    wide : bool
        Whether to print all columns of tables, even on a narrower terminal.
    """
    from rich.console import Console
    from rich.text import Text

    full_width = wide or not sys.stdout.isatty()
    console = Console(width=_PIPE_WIDTH if full_width else None, highlight=False)
    for renderable in renderables:
        # As Text, so that a class named [red] is not read as markup.
        plain = Text(printable(renderable)) if isinstance(renderable, str) else renderable
        with writing("stdout"):
            console.print(_Printable(plain))


def echo(text: str) -> None:
    """Print one line of the result to stdout and flush; line breaks in it are escaped."""
    with writing("stdout"):
        print(_wrap(printable(text), sys.stdout), flush=True)


def _wrap(text: str, stream: TextIO) -> str:
    """Wrap text at the width of a terminal, which itself would break words; commands stay whole."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(
        line
        if "cordcal " in line[:_COMMAND_START]
        else textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
        for line in text.split("\n")
    )


def echo_heading(text: str) -> None:
    """Print a heading: on stdout before tables, on stderr with ``--json``."""
    if VERBOSITY.json:
        echo_info(text)
    elif not VERBOSITY.quiet:
        echo(text)


def echo_info(text: str) -> None:
    """Print a message to stderr, except with ``--quiet``."""
    if not VERBOSITY.quiet:
        echo_error(text)


def echo_debug(text: str) -> None:
    """Print a message to stderr only with ``--verbose``."""
    if VERBOSITY.verbose:
        echo_error(text)


def echo_error(text: str) -> None:
    """Print a warning or an error to stderr, also with ``--quiet``."""
    # If stderr is closed, only the text is lost; the exit code stays right.
    with suppress(OSError), writing("stderr"):
        print(_wrap(printable(text), sys.stderr), file=sys.stderr, flush=True)


def echo_traceback(error: BaseException) -> None:
    """Print a traceback to stderr, line by line."""
    for line in "".join(traceback.format_exception(error)).splitlines():
        echo_error(line)


def show_json(value: object) -> None:
    """Print a JSON document to stdout; NaN and infinities become null."""
    # JSON must be UTF-8; ASCII is valid in both if the terminal uses another encoding.
    text = json.dumps(plain(value), ensure_ascii=not is_utf8(), indent=2)
    shown = "".join(
        character if character.isprintable() or character == "\n" else _in_json(character)
        for character in text
    )
    with writing("stdout"):
        print(shown, flush=True)


def _in_json(character: str) -> str:
    return json.dumps(character)[1:-1]


def plain(value: Any) -> Any:
    """Return ``value`` converted to JSON types."""
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
    """Show progress on stderr; the block calls the yielded function as each step begins."""
    step = -1
    with counted_progress(title) as count:

        def advance(what: str) -> None:
            nonlocal step
            step += 1
            count(step, steps, what)

        yield advance


@contextmanager
def counted_progress(title: str) -> Iterator[Counted]:
    """Show progress on stderr: a bar on a terminal, otherwise a line every few seconds."""
    if VERBOSITY.quiet:
        yield lambda done, total, what: None
    elif sys.stderr.isatty():
        with _bar() as bar:
            task = bar.add_task(title, total=None)

            def advance(done: int, total: int | None, what: str) -> None:
                description = printable(_titled(title, what))
                bar.update(task, description=description, completed=done, total=total)

            yield advance
    else:
        with _lines(title) as advance_lines:
            yield advance_lines


@contextmanager
def row_progress(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show on stderr how many rows of a file are done."""
    with counted_progress(title) as count:
        yield lambda done, total: count(done, total, "rows")


@contextmanager
def _lines(title: str) -> Iterator[Counted]:
    """Print the current step every few seconds, also during a long step."""
    start, ended = time.monotonic(), threading.Event()
    state: tuple[int, int | None, str] | None = None

    def advance(done: int, total: int | None, what: str) -> None:
        nonlocal state
        state = done, total, what

    def print_lines() -> None:
        while not ended.wait(_EVERY):
            if state is not None:
                done, total, what = state
                seconds = time.monotonic() - start
                count = f"{done:,}" if total is None else f"{done:,} of {total:,}"
                echo_info(f"{_titled(title, what)}, {count}, {seconds:.0f} s")

    printer = threading.Thread(target=print_lines, daemon=True)
    printer.start()
    try:
        yield advance
    finally:
        ended.set()
        printer.join()


def _titled(title: str, what: str) -> str:
    return f"{title}: {what}"


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
    from rich.text import Text

    class _Counted(ProgressColumn):
        def render(self, task: Task) -> Text:
            # The total is unknown until the first step, and for text files.
            total = "" if task.total is None else f"/{task.total:,}"
            return Text(f"{task.completed:,}{total}" if task.completed or total else "")

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        _Counted(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )


def echo_skipped(skipped: Mapping[str, int]) -> None:
    """Print how many rows were skipped, and why."""
    for reason, count in skipped.items():
        echo_error(f"skipped {count:,} row{'' if count == 1 else 's'}: {reason}")


def describe_changes(changed: int, rows: int) -> str:
    """Return how many predictions a calibrator would change without the repair.

    Examples
    --------
    >>> print(describe_changes(3, 200))
    the calibrator alone would change 3 predictions (1.50 %), the repaired probabilities change none
    """
    predictions = "prediction" if changed == 1 else "predictions"
    return (
        f"the calibrator alone would change {changed:,} {predictions} "
        f"({100 * changed / max(rows, 1):.2f} %), the repaired probabilities change none"
    )
