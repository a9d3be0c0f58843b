"""Write a study: tidy data, tables, figures and one HTML index in a folder."""

from __future__ import annotations

import csv
import json
import os
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordcal._version import __version__
from cordcal.files import replacing
from cordcal.files._arrow import import_arrow
from cordcal.report.html import environment, own_file
from cordcal.report.tables import SIGNS, latex, markdown
from cordcal_study.figures import save_figure

if TYPE_CHECKING:
    from cordcal_study import StudyResult
    from cordcal_study.chapters import Chapter


def write_study(
    result: StudyResult, folder: str | os.PathLike[str], *, figures: bool = True
) -> Path:
    """Write everything and return the path of the index.

    Parameters
    ----------
    result : StudyResult
        What `cordcal_study.run_study` returned.
    folder : path
        Where to; files of earlier runs are replaced.
    figures : bool
        Whether to draw the figures, which needs matplotlib.
    """
    top = Path(folder)
    for chapter in result.chapters:
        place = top / chapter.key
        place.mkdir(parents=True, exist_ok=True)
        if chapter.rows:
            _write_rows(place, chapter, result.study.format)
        for table in chapter.tables:
            _write_text(place / f"{table.name}.md", markdown(table) + "\n")
            _write_text(place / f"{table.name}.tex", latex(table) + "\n")
        for name, content in chapter.files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            _write_text(place / name, content)
        for figure in chapter.figures if figures else ():
            with replacing(place / f"{figure.name}.png") as temporary:
                save_figure(figure, temporary)
    _write_text(top / "study.json", json.dumps(result.to_dict(), ensure_ascii=False, indent=1))
    index = top / "index.html"
    _write_text(index, _page(result, figures))
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


def _write_rows(place: Path, chapter: Chapter, form: str) -> None:
    names = list(type(chapter.rows[0])._fields)
    with replacing(place / f"data.{form}") as temporary:
        if form == "csv":
            with temporary.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(names)
                writer.writerows(chapter.rows)
            return
        arrow, parquet = import_arrow()
        columns: dict[str, Any] = {}
        for name, values in zip(names, zip(*chapter.rows, strict=True), strict=True):
            column = arrow.array(values)
            columns[name] = column if name == "value" else column.dictionary_encode()
        parquet.write_table(arrow.table(columns), temporary, compression="zstd")


def _write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
