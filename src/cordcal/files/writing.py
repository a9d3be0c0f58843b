"""Write the files that hold repaired reports."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal.files.atomic import naming, replacing
from cordcal.files.encoding import OutputBlock
from cordcal.files.formats import encoder_for
from cordcal.files.passthrough import Passthrough


def write_probabilities(
    path: str | os.PathLike[str],
    reports: Mapping[str, npt.NDArray[Any]],
    decision: npt.NDArray[np.integer[Any]],
    *,
    class_names: Sequence[str] | None = None,
    extra: Mapping[str, npt.NDArray[Any]] | None = None,
    overwrite: bool = True,
    spreadsheet: bool = False,
    passthrough: Passthrough | None = None,
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
    passthrough : Passthrough, optional
        Columns of the input, which stand first; npz and npy files leave them out.
    """
    block = OutputBlock(reports, decision, {} if extra is None else extra, passthrough)
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
