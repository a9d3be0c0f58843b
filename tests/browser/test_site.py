"""The site's pictures follow dark mode: the page's background, and colours of the same hue."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cordcal.plots import COLOURS
from cordcal.report.html import own_file

colours = pytest.importorskip("matplotlib.colors")
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
STUDY = ROOT / "study" / "src" / "cordcal_study" / "study.html"
# The grounds of the theme, and what each picture shows in colours that mean something.
GROUNDS = {"light": "#ffffff", "dark": "#14181e"}
PICTURES = {
    "_static/prediction-changes.svg": ("gained", "lost"),
    "results/main/figure-2.png": ("direct", "repaired"),
}
PAGE = """<!doctype html><style>
html {{ color-scheme: light; background: {light}; }}
html[data-theme="dark"] {{ color-scheme: dark; background: {dark}; }}
html[data-theme="dark"] img:not(.only-dark, .dark-light) {{ filter: brightness(.8); }}
.bd-content img:not(.only-dark, .dark-light) {{ background-color: #fff; }}
</style><link rel="stylesheet" href="cordcal.css"><div class="bd-content">{pictures}</div>"""


@pytest.fixture(scope="module")
def site(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A page with the site's style and pictures, on the grounds of the theme."""
    folder = tmp_path_factory.mktemp("site")
    for name in ("_static/cordcal.css", *PICTURES):
        shutil.copy(DOCS / name, folder)
    pictures = "".join(f'<img src="{Path(name).name}">' for name in PICTURES)
    (folder / "page.html").write_text(PAGE.format(**GROUNDS, pictures=pictures))
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto((folder / "page.html").as_uri())
    yield page
    context.close()


def shown(page: Any, picture: str) -> np.ndarray:
    """Return a picture's pixels as the screen has them, one a row."""
    from matplotlib.image import imread

    drawn = page.locator(f'img[src="{Path(picture).name}"]').screenshot()
    return imread(io.BytesIO(drawn))[..., :3].reshape(-1, 3)


def has_hue(pixels: np.ndarray, colour: str) -> bool:
    """Tell whether many pixels have the hue of a colour, whatever their brightness."""
    hue = colours.rgb_to_hsv(colours.to_rgb(colour))[0]
    result = colours.rgb_to_hsv(pixels)
    near = np.abs((result[:, 0] - hue + 0.5) % 1.0 - 0.5) < 0.03
    return int(np.sum(near & (result[:, 1] > 0.4) & (result[:, 2] > 0.4))) > 100


@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("system", ["light", "dark"])
def test_pictures_follow_the_mode(site: Any, picture: str, theme: str, system: str) -> None:
    # The reader's choice on the page counts, not what the system prefers.
    site.emulate_media(color_scheme=system)
    site.evaluate("(theme) => { document.documentElement.dataset.theme = theme; }", theme)
    pixels = shown(site, picture)
    ground = np.array(colours.to_rgb(GROUNDS[theme]))
    assert np.mean(np.abs(pixels - ground).max(axis=1) < 0.01) > 0.4
    away = np.abs(pixels.mean(axis=1) - ground.mean())
    ink = pixels[np.argmax(away)].mean()
    assert (ink > 0.85) if theme == "dark" else (ink < 0.15)
    for name in PICTURES[picture]:
        assert has_hue(pixels, COLOURS[name]), name


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_of_a_study_follow_the_mode(browser: Any, tmp_path: Path, scheme: str) -> None:
    style = str(own_file("style.css")) + STUDY.read_text("utf-8").split("{{ style }}")[1]
    picture = "results/main/figure-2.png"
    shutil.copy(DOCS / picture, tmp_path)
    page = tmp_path / "index.html"
    page.write_text(
        f"<!doctype html><style>{style.split('</style>')[0]}</style>"
        f'<section><figure><img src="{Path(picture).name}"></figure></section>',
        encoding="utf-8",
    )
    context = browser.new_context(offline=True, color_scheme=scheme)
    study = context.new_page()
    study.goto(page.as_uri())
    pixels = shown(study, picture)
    context.close()
    card = colours.to_rgb({"light": "#ffffff", "dark": "#1a1f26"}[scheme])
    assert np.mean(np.abs(pixels - card).max(axis=1) < 0.01) > 0.4
    for name in PICTURES[picture]:
        assert has_hue(pixels, COLOURS[name]), name
