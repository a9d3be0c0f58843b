"""How the documentation is built: `make docs`, with warnings as errors."""

import runpy
from pathlib import Path

import cordcal

HERE = Path(__file__).parent

project = "cordcal"
author = "The cordcal developers"
copyright = "2026, the cordcal developers"
version = release = cordcal.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinx-mathjax-offline",  # the built pages ask no other host for anything
]
exclude_patterns = ["_build", "results/**", "**/GALLERY_HEADER.rst", "sg_execution_times.rst"]
templates_path = ["_templates"]
root_doc = "index"

# Single backticks in docstrings link to the name they hold where it is public.
default_role = "py:obj"
autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
# The scores are arrays with a stated shape; the words need no links.
numpydoc_xref_param_type = False

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "guides",
    "filename_pattern": r"/guide_",
    "ignore_pattern": r"^(?!guide_)",  # scripts to copy are not pages
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 3600,
    "download_all_examples": False,
    "plot_gallery": "True",
    "remove_config_comments": True,
}

html_theme = "pydata_sphinx_theme"
html_title = f"cordcal {release}"
html_static_path = ["_static"]
html_css_files = ["cordcal.css"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "cordcal"},
    "show_prev_next": True,
    "show_toc_level": 2,
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "back_to_top_button": False,
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}
# Pages without siblings have nothing to show on the left.
html_sidebars = {
    "index": [],
    "start": [],
    "scope": [],
    "compare": [],
}


def draw_pictures(app):
    """Draw the pictures of "How it works" afresh, with the code they explain."""
    folder = HERE / "_build" / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    runpy.run_path(str(HERE / "pictures" / "method.py"))["draw"](folder)


def skip_foreign(app, what, name, obj, skip, options):
    """Leave out what a class inherits from scikit-learn or torch; those document it."""
    home = getattr(getattr(obj, "fget", obj), "__module__", None) or "cordcal"
    return skip or not home.startswith("cordcal") or name.endswith("_request")


def setup(app):
    """Register what this site adds to Sphinx."""
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("builder-inited", draw_pictures)
