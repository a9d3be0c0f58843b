"""The order of the guides: by their numbers, then those without one by name."""

import re

from sphinx_gallery.sorting import FileNameSortKey


class NumberSortKey(FileNameSortKey):
    """Sort ``guide_10_….py`` after ``guide_9_….py``, and ``guide_figures.py`` last."""

    def __call__(self, filename: str) -> tuple[float, str]:
        """Return the number in a file's name, and the name."""
        number = re.search(r"guide_(\d+)_", filename)
        return float(number[1]) if number else float("inf"), filename
