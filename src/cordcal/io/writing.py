"""Write files whole or not at all, and the files that hold repaired reports."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

SUFFIXES = (".npz", ".npy", ".csv", ".parquet")


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary name beside ``path`` that becomes ``path`` when the block ends well.

    Whatever ends the block early, an interrupt included, leaves ``path`` as it was
    and removes the temporary file.

    Examples
    --------
    >>> folder = Path(tempfile.mkdtemp())
    >>> with replacing(folder / "note.txt") as temporary:
    ...     _ = temporary.write_text("whole")
    >>> [file.name for file in folder.iterdir()]
    ['note.txt']
    """
    target = Path(path)
    handle, name = tempfile.mkstemp(
        prefix=f".{target.name}.", suffix=target.suffix, dir=target.parent
    )
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes private files; give this one the rights any new file would have.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_reports(
    path: str | os.PathLike[str],
    reports: Mapping[str, npt.NDArray[Any]],
    decision: npt.NDArray[np.integer[Any]],
    *,
    class_names: Sequence[str] | None = None,
    extra: Mapping[str, npt.NDArray[Any]] | None = None,
) -> None:
    """Write reports to a npz, npy, CSV or Parquet file, chosen by the suffix.

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
    """
    names = None if class_names is None else list(class_names)
    extra = {} if extra is None else extra
    if str(path) == "-":
        sys.stdout.write(_csv_text(reports, decision, names, extra))
        return
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(
            f"{path}: the suffix {suffix!r} names no format that reports are written in; "
            f"use one of {', '.join(SUFFIXES)}"
        )
    with replacing(path) as temporary:
        if suffix == ".npz":
            columns = {**reports, "decision": decision, **extra}
            if names is not None:
                columns["class_names"] = np.array(names, dtype=np.str_)
            with temporary.open("wb") as file:
                np.savez_compressed(file, **columns)  # type: ignore[arg-type]
        elif suffix == ".npy":
            with temporary.open("wb") as file:
                np.save(file, next(iter(reports.values())))
        elif suffix == ".csv":
            text = _csv_text(reports, decision, names, extra)
            temporary.write_text(text, encoding="utf-8", newline="")
        else:
            _write_parquet(temporary, reports, decision, names, extra)


def _csv_text(
    reports: Mapping[str, npt.NDArray[Any]],
    decision: npt.NDArray[np.integer[Any]],
    names: list[str] | None,
    extra: Mapping[str, npt.NDArray[Any]],
) -> str:
    classes = next(iter(reports.values())).shape[1]
    columns = names or [str(index) for index in range(classes)]
    kept = decision.tolist() if names is None else [names[index] for index in decision]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    header = [f"{report}:{column}" for report in reports for column in columns]
    writer.writerow(["decision", *header, *extra])
    # Shortest digits that read back as the same number, in the report's own dtype.
    rows = [report.astype(np.str_) for report in reports.values()]
    more = [np.asarray(column).astype(np.str_) for column in extra.values()]
    for index, name in enumerate(kept):
        cells = [cell for row in rows for cell in row[index]]
        writer.writerow([name, *cells, *(column[index] for column in more)])
    return buffer.getvalue()


def _write_parquet(
    path: Path,
    reports: Mapping[str, npt.NDArray[Any]],
    decision: npt.NDArray[np.integer[Any]],
    names: list[str] | None,
    extra: Mapping[str, npt.NDArray[Any]],
) -> None:
    arrow, parquet = import_arrow()
    columns: dict[str, Any] = {"decision": arrow.array(decision)}
    if names is not None:
        columns["decision_name"] = arrow.array([names[index] for index in decision])
    for key, report in reports.items():
        flat = arrow.array(np.ascontiguousarray(report).reshape(-1))
        columns[key] = arrow.FixedSizeListArray.from_arrays(flat, report.shape[1])
    columns |= {key: arrow.array(column) for key, column in extra.items()}
    table = arrow.table(columns)
    if names is not None:
        table = table.replace_schema_metadata({"class_names": json.dumps(names)})
    parquet.write_table(table, path)


def import_arrow() -> tuple[Any, Any]:
    """Return pyarrow and its Parquet module, or say how to get them."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            "Parquet files need pyarrow; install it with: pip install 'cordcal[parquet]'"
        ) from error
    return pyarrow, pyarrow.parquet
