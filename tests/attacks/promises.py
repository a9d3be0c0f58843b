"""What the trials share: the promises, a command that must keep them, and damage to bytes."""

from __future__ import annotations

import contextlib
import io
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cordcal.cli import main

Rng = np.random.Generator
GUARD = "guard.txt"  # a file of another owner next to the inputs


class Fallen(AssertionError):
    """A promise that was broken."""


def hold(condition: object, words: str) -> None:
    """Ask for a promise to be kept."""
    if not condition:
        raise Fallen(words)


@dataclass(frozen=True)
class Done:
    """What a command returned and printed."""

    code: int
    out: str
    err: str


def command(*arguments: object) -> Done:
    """Run a command in this process: it ends with 0, or with 2 and one printable sentence."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), plain_warnings():
        try:
            code = main([str(argument) for argument in arguments])
        except BaseException:
            raise Fallen(
                f"{arguments}: a traceback\n{traceback.format_exc(limit=-4, chain=False)}"
            ) from None
    done = Done(code, out.getvalue(), err.getvalue())
    hold(code in (0, 2), f"{arguments}: exit code {code}\n{done.err}")
    last = done.err.splitlines()[-1:]  # notes may come before it
    hold(code == 0 or "".join(last).startswith("cordcal: "), f"{arguments}: {done.err!r}")
    for text in (done.out, done.err):
        wild = {
            character for character in text if not character.isprintable() and character != "\n"
        }
        hold(not wild, f"{arguments}: printed {wild!r}")
    return done


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Let the command show its warnings its own way, and mend what it changes."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        yield


@contextlib.contextmanager
def untouched(folder: Path, *outputs: str) -> Iterator[None]:
    """Ask that a block changes the outputs alone, and leaves nothing hidden behind."""
    (folder / GUARD).write_text("mine")
    before = _contents(folder)
    yield
    after = _contents(folder)
    for name in sorted(before.keys() | after.keys()):
        if name not in outputs:
            hold(before.get(name) == after.get(name), f"{name} was touched")


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def damaged(data: bytes, rng: Rng) -> bytes:
    """Return bytes that are flipped, cut, zeroed, doubled or moved at random places."""
    result = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(result))) if result else 0
        size = int(rng.integers(1, 1 + min(64, max(1, len(result) - at))))
        match int(rng.integers(6)):
            case 0:
                result[at : at + 1] = bytes([int(rng.integers(256))])
            case 1:
                del result[at:]
            case 2:
                result[at : at + size] = bytes(size)
            case 3:
                result[at:at] = result[at : at + size]
            case 4:
                del result[at : at + size]
            case 5:
                result[at : at + size] = rng.bytes(size)
    return bytes(result)


def logits_and_labels(rng: Rng, rows: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return scores of a mediocre classifier, and labels of at least two classes."""
    labels = rng.integers(classes, size=rows)
    labels[:2] = 0, 1
    return 3.0 * (np.eye(classes)[labels] + rng.normal(size=(rows, classes))), labels


def strictly_top(report: np.ndarray, prediction: np.ndarray) -> bool:
    """Tell whether each row's prediction is its one largest entry, and every entry a number."""
    mass = np.take_along_axis(report, prediction[:, None], axis=1)
    return bool(((report >= mass).sum(axis=1) == 1).all() and np.isfinite(report).all())


def in_order(
    report: np.ndarray, original: np.ndarray, levels: int, *, strict: bool | None = None
) -> bool:
    """Tell whether the first ranks are the original's and lie above all that follow.

    Half precision has room for a strict first rank only.
    """
    if strict is None:
        strict = report.dtype.itemsize > 2
    order = np.argsort(-original, axis=1, kind="stable")
    ranked = np.take_along_axis(report, order, axis=1)
    # The largest of the ranks behind each.
    behind = np.maximum.accumulate(ranked[:, ::-1], axis=1)[:, ::-1][:, 1 : levels + 1]
    ahead = ranked[:, :levels]
    first = ahead > behind if strict else ahead >= behind
    return bool(first.all() and (ahead[:, 0] > behind[:, 0]).all() and np.isfinite(report).all())
