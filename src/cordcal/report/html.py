"""Render the plain dict of a result as one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from cordcal._door.errors import Refusal
from cordcal._version import __version__
from cordcal.files import replacing
from cordcal.metrics import MEASURES
from cordcal.metrics._registry import leading
from cordcal.report import charts, class_charts, scatter
from cordcal.report._shown import before_and_after, facts, helpers, settings, tiles
from cordcal.report._svg import Markup

# End tags that HTML lets one leave out: a fifth of a page of tables.
_OPTIONAL_END = re.compile(r"</t[dhr]>\s*(?=<(?:t[dhr]\b|/tr>|/tbody>|/thead>))")
# The page's script, one file a topic, in this order.
_TOPICS = ("theme", "sort", "choose", "filter", "classes", "scroll", "slots", "tips")


@cache
def environment() -> Any:
    """Return the templates; whatever they show is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("cordcal.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def own_file(name: str) -> Markup:
    """Return one of our own files as it is; nothing of the caller's passes here."""
    folder = resources.files("cordcal.report").joinpath("templates")
    return Markup(folder.joinpath(name).read_text(encoding="utf-8"))


def _script() -> Markup:
    return Markup("").join(own_file(f"js/{topic}.js") for topic in _TOPICS)


def render(data: Mapping[str, Any], *, title: str, source: str | None = None) -> str:
    """Return the report as HTML.

    Parameters
    ----------
    data : mapping
        What `Comparison.to_dict` returns, or `cordcal.report.audit_data`.
    title : str
        The page's heading.
    source : str, optional
        Where the scores came from, such as a file's name.
    """
    if not isinstance(data, Mapping) or "calibrators" not in data:
        raise Refusal(
            "data",
            f"is a {type(data).__name__}, not what to_dict returns",
            "pass comparison.to_dict(), or cordcal.report.audit_data of an audit",
        )
    script = _script()
    page = (
        environment()
        .get_template("page.html")
        .render(
            data=data,
            title=title,
            version=__version__,
            style=own_file("style.css"),
            script=script,
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            facts=facts(data, source),
            settings=settings(data, source),
            tiles=tiles(data),
            pair=before_and_after(data),
            specs=MEASURES,
            leading=leading(),
            charts=charts,
            class_charts=class_charts,
            scatter=scatter,
            **helpers(data),
        )
    )
    return _OPTIONAL_END.sub("", page)


def write_html(
    data: Mapping[str, Any],
    path: str | os.PathLike[str],
    *,
    title: str = "cordcal",
    source: str | None = None,
    overwrite: bool = True,
) -> None:
    """Write the report to ``path``, whole or not at all.

    Parameters
    ----------
    data, title, source
        As for `render`.
    path : path
        The HTML file.
    overwrite : bool
        Whether a file of that name may be replaced.
    """
    if not isinstance(path, str | os.PathLike):
        raise Refusal(
            "path",
            f"is a {type(path).__name__}",
            'pass the data first and then the file: write_html(result.to_dict(), "report.html", …)',
        )
    page = render(data, title=title, source=source)
    with replacing(path, overwrite=overwrite) as temporary:
        temporary.write_text(page, encoding="utf-8")
