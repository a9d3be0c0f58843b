"""Write a study: tidy data, tables, figures and one HTML index in a folder."""

from __future__ import annotations

import json
import os
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from cordcal import __version__
from cordcal.files import replacing
from cordcal.files.disk import write_text
from cordcal.report.html import environment, own_file
from cordcal.report.tables import SIGNS, latex, markdown
from cordcal_study.figures import save_pdf, save_png
from cordcal_study.tidy import write_records

if TYPE_CHECKING:
    from cordcal_study.run import StudyResult


def write_study(
    result: StudyResult,
    folder: str | os.PathLike[str],
    *,
    figures: bool = True,
    data: bool = True,
) -> Path:
    """Write everything and return the path of the index.

    Parameters
    ----------
    result : StudyResult
        The result of `run_study` or `render_study`.
    folder : path
        The folder of the results; files of earlier runs are replaced.
    figures : bool
        Whether to draw the figures.
    data : bool
        Whether to write the numbers behind the tables.
    """
    top = Path(folder)
    latex_tables = [
        f"% {chapter.title}\n{latex(table)}"
        for chapter in result.chapters
        for table in chapter.tables
    ]
    for chapter in result.chapters:
        place = top / chapter.key
        place.mkdir(parents=True, exist_ok=True)
        for name, records in chapter.data.items() if data else ():
            if records:
                write_records(place / f"{name}.{result.study.format}", records, result.study.format)
        if chapter.tables:
            sections = (f"## {table.name}\n\n{markdown(table)}\n" for table in chapter.tables)
            write_text(place / "tables.md", "\n".join((f"# {chapter.title}\n", *sections)))
        for name, content in chapter.files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            write_text(place / name, content)
        for figure in chapter.figures if figures else ():
            if figure.data is None:
                continue
            for suffix, save in (("png", save_png), ("pdf", save_pdf)):
                with replacing(place / f"{figure.name}.{suffix}") as temporary:
                    save(figure, temporary)
    write_text(top / "tables.tex", "\n".join(latex_tables))
    write_text(top / "study.json", json.dumps(result.to_dict(), ensure_ascii=False, indent=1))
    index = top / "index.html"
    write_text(index, _page(result, figures))
    return index


def _page(result: StudyResult, figures: bool) -> str:
    return str(
        environment()
        .from_string(resources.files("cordcal_study").joinpath("study.html").read_text("utf-8"))
        .render(
            title=result.study.title,
            version=__version__,
            style=own_file("style.css"),
            chapters=result.chapters,
            facts=result.to_dict(),
            figures=figures,
            signs=SIGNS,
            format=result.study.format,
        )
    )
