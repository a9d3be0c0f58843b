"""The table of formats: how each is recognised, read and written.

A file's format is recognised by its first bytes, an output's by its suffix.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.types import NumPyArray
from cordcal.files._arrow import FeatherEncoder, FeatherSource, ParquetEncoder, ParquetSource
from cordcal.files._csv import CsvEncoder, CsvSource
from cordcal.files._hdf5 import MAGIC, Hdf5Source
from cordcal.files._jsonl import JsonlEncoder, LineSource, starts_json
from cordcal.files._numpy import NpyEncoder, NpySource, NpzEncoder, open_npz
from cordcal.files._torch import is_torch, open_tensors
from cordcal.files.columns import ColumnSpec
from cordcal.files.disk import InputFile, NoRows, naming, replacing
from cordcal.files.output import Encoder, Layout, OutputBlock
from cordcal.files.parts import FileParts, parts_of
from cordcal.files.passthrough import Passthrough
from cordcal.files.sources import Contents, Source

# The first bytes by which a file's format is recognised are within these.
_HEAD_BYTES = 64


@dataclass(frozen=True)
class FileFormat:
    """One format of score files.

    Attributes
    ----------
    name : str
        What messages and the documentation call it.
    suffixes : tuple of str
        Usual suffixes; an output with one of them is written in this format.
    matches : callable
        Whether a file is of this format, from its first bytes.
    open : callable
        Opens a file of this format.
    encoder : type of Encoder or None
        Writes the format; None if outputs cannot have it.
    extra : str or None
        The extra of the package that the format needs.
    in_pieces : bool
        Whether files may be larger than memory.
    is_table : bool
        Whether it has columns besides the scores, which `apply` passes through.
    """

    name: str
    suffixes: tuple[str, ...]
    matches: Callable[[bytes, InputFile], bool]
    open: Callable[[InputFile, ColumnSpec], Source]
    encoder: type[Encoder] | None = None
    extra: str | None = None
    in_pieces: bool = False
    is_table: bool = False


def _starts_with(magic: bytes) -> Callable[[bytes, InputFile], bool]:
    return lambda head, file: head.startswith(magic)


def _is_torch(head: bytes, file: InputFile) -> bool:
    return head.startswith(b"PK") and is_torch(file.open)


def _is_npz(head: bytes, file: InputFile) -> bool:
    return head.startswith(b"PK") and not is_torch(file.open)


def _is_json(head: bytes, file: InputFile) -> bool:
    return starts_json(head)


def _is_text(head: bytes, file: InputFile) -> bool:
    return True


# Text comes last: what no other format recognises is read as CSV.
FORMATS = (
    FileFormat("npz", (".npz",), _is_npz, open_npz, NpzEncoder),
    FileFormat("npy", (".npy",), _starts_with(b"\x93NUMPY"), NpySource, NpyEncoder, in_pieces=True),
    FileFormat(
        "JSONL", (".jsonl",), _is_json, LineSource, JsonlEncoder, in_pieces=True, is_table=True
    ),
    FileFormat(
        "Parquet",
        (".parquet",),
        _starts_with(b"PAR1"),
        ParquetSource,
        ParquetEncoder,
        extra="parquet",
        in_pieces=True,
        is_table=True,
    ),
    FileFormat(
        "Feather",
        (".feather", ".arrow"),
        _starts_with(b"ARROW1"),
        FeatherSource,
        FeatherEncoder,
        extra="parquet",
        in_pieces=True,
        is_table=True,
    ),
    FileFormat(
        "HDF5", (".h5", ".hdf5"), _starts_with(MAGIC), Hdf5Source, extra="hdf5", in_pieces=True
    ),
    FileFormat("torch", (".pt", ".pth"), _is_torch, open_tensors, extra="torch"),
    FileFormat("CSV", (".csv",), _is_text, CsvSource, CsvEncoder, is_table=True),
)


def readable_formats() -> str:
    """Return the names of all formats for a sentence.

    Examples
    --------
    >>> readable_formats()
    'npz, npy, JSONL, Parquet, Feather, HDF5, torch or CSV'
    """
    *names, last = (format.name for format in FORMATS)
    return f"{', '.join(names)} or {last}"


def written_suffixes() -> tuple[str, ...]:
    """Return the suffixes of the formats that can be written."""
    written = (format for format in FORMATS if format.encoder is not None)
    return tuple(suffix for format in written for suffix in format.suffixes)


def encoder_for(
    path: str | os.PathLike[str],
    class_names: Sequence[str] | None = None,
    *,
    spreadsheet: bool = False,
    layout: Layout = "list",
) -> Encoder:
    """Return the encoder of an output by its suffix; ``-`` is CSV."""
    suffix = ".csv" if str(path) == "-" else Path(path).suffix.lower()
    for format in FORMATS:
        if format.encoder is not None and suffix in format.suffixes:
            return format.encoder(class_names, spreadsheet=spreadsheet, layout=layout)
    raise InputError(
        str(path),
        f"has the suffix {suffix!r}, which is not that of an output format",
        f"use one of {', '.join(written_suffixes())}",
    )


def open_source(path: str, spec: ColumnSpec) -> Source:
    """Open a file, or the files of a folder or a pattern, to be read piece by piece."""
    parts = parts_of(path)
    if parts is not None:
        return FileParts(path, parts, spec, open_source)
    file = InputFile.from_path(path)
    head = file.head(_HEAD_BYTES)
    if not head:
        raise NoRows(file.name, "is empty", f"pass an {readable_formats()} file of scores")
    return next(format for format in FORMATS if format.matches(head, file)).open(file, spec)


def open_contents(path: str | os.PathLike[str], spec: ColumnSpec | None = None) -> Contents:
    """Return what a file, folder or pattern contains; arrays are read when they are needed.

    Parameters
    ----------
    path : path or "-"
        The file, a folder of parts, or a pattern that names them; ``-`` is stdin.
    spec : ColumnSpec, optional
        Where things are, as far as that is known.
    """
    return open_source(os.fspath(path), spec or ColumnSpec()).contents()


def write_probabilities(
    path: str | os.PathLike[str],
    probabilities: Mapping[str, NumPyArray],
    prediction: npt.NDArray[np.integer[Any]],
    *,
    class_names: Sequence[str] | None = None,
    extra: Mapping[str, NumPyArray] | None = None,
    overwrite: bool = True,
    spreadsheet: bool = False,
    passthrough: Passthrough | None = None,
) -> None:
    """Write probabilities to an npz, npy, CSV, JSONL, Parquet or Feather file, by its suffix.

    Parameters
    ----------
    path : path or "-"
        ``-`` writes CSV to stdout.
    probabilities : mapping of str to ndarray of shape (n, K)
        ``repaired`` first, then ``direct`` if needed.  An npy file holds the first only.
    prediction : ndarray of int
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
    block = OutputBlock(probabilities, prediction, {} if extra is None else extra, passthrough)
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
