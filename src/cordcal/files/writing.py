"""Write the files that hold repaired reports."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal.files._arrow_encoding import Feather, Parquet
from cordcal.files._text_encoding import CSV, JSONL
from cordcal.files.atomic import naming, replacing
from cordcal.files.encoding import Encoder, Layout, Npy, OutputBlock
from cordcal.files.passthrough import Passthrough

ENCODERS: dict[str, type[Encoder]] = {
    ".npy": Npy,
    ".csv": CSV,
    ".jsonl": JSONL,
    ".parquet": Parquet,
    ".feather": Feather,
    ".arrow": Feather,
}


def encoder_for(
    path: str | os.PathLike[str],
    class_names: Sequence[str] | None = None,
    *,
    spreadsheet: bool = False,
    layout: Layout = "list",
) -> Encoder:
    """Return the encoder of a path by its suffix; ``-`` is CSV."""
    suffix = ".csv" if str(path) == "-" else Path(path).suffix.lower()
    if suffix not in ENCODERS:
        raise InputError(
            str(path),
            f"has the suffix {suffix!r}, which names no format that reports are written in",
            f"use one of .npz, {', '.join(ENCODERS)}",
        )
    return ENCODERS[suffix](class_names, spreadsheet=spreadsheet, layout=layout)


def write_probabilities(
    path: str | os.PathLike[str],
    reports: Mapping[str, npt.NDArray[Any]],
    decision: npt.NDArray[np.integer[Any]],
    *,
    class_names: Sequence[str] | None = None,
    extra: Mapping[str, npt.NDArray[Any]] | None = None,
    overwrite: bool = True,
    spreadsheet: bool = False,
    rest: Passthrough | None = None,
) -> None:
    """Write reports to a npz, npy, CSV, JSONL, Parquet or Feather file, chosen by the suffix.

    Parameters
    ----------
    path : path or "-"
        ``-`` writes CSV to stdout.
    reports : mapping of str to ndarray of shape (n, K)
        ``repaired`` first, then ``direct`` if wanted.  A npy file holds the first alone.
    decision : ndarray of int
        The class each row keeps.
    class_names : sequence of str, optional
        One name a column.
    extra : mapping of str to ndarray of shape (n,), optional
        More columns, such as an explanation.
    overwrite : bool
        Whether a file of that name may be replaced.
    spreadsheet : bool
        In CSV, begin words that a spreadsheet would take for formulas (those that
        start with ``=``, ``+``, ``-`` or ``@``) with an apostrophe.
    rest : Passthrough, optional
        Columns of the input, which stand first; npz and npy files leave them out.
    """
    block = OutputBlock(reports, decision, {} if extra is None else extra, rest)
    if Path(path).suffix.lower() == ".npz":
        _write_npz(path, block, class_names, overwrite=overwrite)
        return
    encoder = encoder_for(path, class_names, spreadsheet=spreadsheet)
    if str(path) == "-":
        piece = encoder.encode(block)
        write_to_stdout([piece.head, piece.body])
        return
    with replacing(path, overwrite=overwrite) as temporary, temporary.open("w+b") as file:
        encoder.write(file, block)


def write_to_stdout(pieces: Iterable[bytes | memoryview]) -> None:
    """Write text in UTF-8 to stdout, as to a file, whatever the terminal's encoding is."""
    sys.stdout.flush()
    with naming("stdout"):
        binary = getattr(sys.stdout, "buffer", None)
        if binary is None:  # a stream of text in memory
            sys.stdout.writelines(bytes(piece).decode() for piece in pieces)
        else:
            binary.writelines(pieces)
        sys.stdout.flush()


def _write_npz(
    path: str | os.PathLike[str],
    block: OutputBlock,
    class_names: Sequence[str] | None,
    *,
    overwrite: bool,
) -> None:
    columns = {**block.reports, "decision": block.decision, **block.extra}
    if class_names is not None:
        columns["class_names"] = np.array(list(class_names), dtype=np.str_)
    with replacing(path, overwrite=overwrite) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **columns)  # type: ignore[arg-type]
