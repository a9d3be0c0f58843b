"""The picture of a report in the README: the top of the page that `cordcal demo` writes.

python docs/pictures/report.py chromium    writes docs/_static/report.png and report-dark.png

It needs a browser of the Chromium family, so the pictures are committed, not drawn with the site.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from cordcal.cli.demo import compare_on_digits
from cordcal.report import write_html

STATIC = Path(__file__).parents[1] / "_static"
# Pixels of the page, shown at half the size; a palette keeps the file small.
SIZE, COLOURS = (1120, 1190), 160
QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
MODES = {"report.png": "1", "report-dark.png": "0"}


def main(browser: str) -> None:
    """Compare on the rows of `cordcal demo`, write the report, and photograph it."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "report.html")
        write_html(
            compare_on_digits().report_data(),
            page,
            title="Which calibrator to use, and how it changes predictions",
            source="scikit-learn's digits",
        )
        for name, scheme in MODES.items():
            shot = Path(folder, name)
            options = (
                f"--user-data-dir={folder}/{name}-profile",
                f"--window-size={SIZE[0]},{SIZE[1]}",
                f"--blink-settings=preferredColorScheme={scheme}",
                f"--screenshot={shot}",
            )
            command = [browser, *QUIET, *options, page.as_uri()]
            subprocess.run(command, check=True, capture_output=True, timeout=120)
            Image.open(shot).convert("RGB").quantize(COLOURS).save(STATIC / name, optimize=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "chromium")
