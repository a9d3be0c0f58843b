"""The page of `cordcal check` for a release: what was checked, and with which result."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cordcal.files import replacing
from cordcal.report.data import CertifiedErrorRate, FileDigest
from cordcal.report.html import render_page


@dataclass(frozen=True)
class GateLine:
    """One gate.

    Attributes
    ----------
    name : str
        Its name in the command.
    outcome : {"passed", "failed", "not evaluated"}
        Whether the limit is met.
    value, limit : str
        The figure and the limit, with their unit.
    detail : str
        The metric, the rows that the figure belongs to, and how it was computed.
    """

    name: str
    outcome: Literal["passed", "failed", "not evaluated"]
    value: str
    limit: str
    detail: str


@dataclass(frozen=True)
class Certificate:
    """Everything that the page of a check shows.

    Attributes
    ----------
    outcome : {"passed", "failed", "not evaluated"}
        The result of all gates together.
    rows, classes : int
        Size of the checked probabilities.
    changed : int or None
        Predictions that differ from the original; None if it was not passed.
    gates : sequence of GateLine
        The gates in their order.
    certified : sequence of CertifiedErrorRate
        Statements about error rates that hold together.
    target : str
        The statement about the target error rate; empty without one.
    settings : mapping of str to str
        Date and versions.
    files : sequence of FileDigest
        The files that were read.
    """

    outcome: Literal["passed", "failed", "not evaluated"]
    rows: int
    classes: int
    changed: int | None
    gates: Sequence[GateLine]
    certified: Sequence[CertifiedErrorRate]
    target: str
    settings: Mapping[str, str]
    files: Sequence[FileDigest]


def render_certificate(certificate: Certificate, *, source: str) -> str:
    """Return the page as HTML.

    Parameters
    ----------
    certificate : Certificate
        What to show.
    source : str
        The name of the checked file.
    """
    return render_page(
        "certificate.html",
        title=f"Check of {source}",
        facts=[
            f"{certificate.rows:,} rows",
            f"{certificate.classes:,} classes",
            certificate.settings["date"],
        ],
        certificate=certificate,
    )


def write_certificate(
    certificate: Certificate, path: str | os.PathLike[str], *, source: str, overwrite: bool = True
) -> None:
    """Write the page to ``path``, completely or not at all.

    Parameters
    ----------
    certificate : Certificate
        What to show.
    path : path
        Where to.
    source : str
        The name of the checked file.
    overwrite : bool
        Whether a file of that name may be replaced.
    """
    page = render_certificate(certificate, source=source)
    with replacing(path, overwrite=overwrite) as temporary:
        temporary.write_text(page, encoding="utf-8")
