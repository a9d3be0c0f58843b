"""Write probabilities to files."""

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
    probabilities: Mapping[str, npt.NDArray[Any]],
    decision: npt.NDArray[np.integer[Any]],
    *,
    class_names: Sequence[str] | None = None,
    extra: Mapping[str, npt.NDArray[Any]] | None = None,
    overwrite: bool = True,
    spreadsheet: bool = False,
    passthrough: Passthrough | None = None,
) -> None:
    """Write probabilities to a npz, npy, CSV, JSONL, Parquet or Feather file, by its suffix.

    Parameters
    ----------
    path : path or "-"
        ``-`` writes CSV to stdout.
    probabilities : mapping of str to ndarray of shape (n, K)
        ``repaired`` first, then ``direct`` if needed.  A npy file holds the first only.
    decision : ndarray of int
        The prediction of each row.
    class_names : sequence of str, optional
        One name per column.
    extra : mapping of str to ndarray of shape (n,), optional
        More columns, such as an explanation.
    overwrite : bool
        Whether a file of that name may be replaced.
    spreadsheet : bool
        In CSV, put an apostrophe before text that a spreadsheet would take for a formula
        (text that starts with ``=``, ``+``, ``-`` or ``@``).
    passthrough : Passthrough, optional
        Columns of the input, written first; npz and npy files omit them.
    """
    block = OutputBlock(probabilities, decision, {} if extra is None else extra, passthrough)
    encoder = encoder_for(path, class_names, spreadsheet=spreadsheet)
    if str(path) == "-":
        piece = encoder.encode(block)
        write_to_stdout([piece.head, piece.body])
        return
    with replacing(path, overwrite=overwrite) as temporary, temporary.open("w+b") as file:
        encoder.write(file, block)


def write_to_stdout(pieces: Iterable[bytes | memoryview]) -> None:
    """Write UTF-8 text to stdout, whatever the encoding of the terminal."""
    sys.stdout.flush()
    with naming("stdout"):
        binary = getattr(sys.stdout, "buffer", None)
        if binary is None:  # a stream of text in memory
            sys.stdout.writelines(bytes(piece).decode() for piece in pieces)
        else:
            binary.writelines(pieces)
        sys.stdout.flush()
