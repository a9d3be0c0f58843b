"""How the documentation is built: `make docs`, with warnings as errors."""

import re
import runpy
import shutil
import sys
import warnings
from pathlib import Path

from docutils import nodes
from sphinx import addnodes

import cordcal
from cordcal import calibrators

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for the order of the guides

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
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinx-mathjax-offline",  # the built pages ask no other host for anything
]
smartquotes_action = "qe"  # quotes and ellipses; --strict keeps its hyphens
exclude_patterns = [
    "_build",
    "results/README.md",  # included by results.md
    "results/paper.md",  # included by experiments.md
    "**/GALLERY_HEADER.rst",
    "sg_execution_times.rst",
]
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

# MLflow warns that a model without an example was logged, and the page would name this machine.
warnings.filterwarnings("ignore", module="mlflow")

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "guides",
    "filename_pattern": r"/guide_",
    "ignore_pattern": r"^(?!guide_)",  # scripts to copy are not pages
    "within_subsection_order": "gallery.NumberSortKey",
    "abort_on_example_error": True,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 3600,
    "download_all_examples": False,
    "plot_gallery": "True",
    "remove_config_comments": True,
}

# Copied code runs: without prompts and without output.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

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
    "header_links_before_dropdown": 7,
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
    "choose": [],
    "files": [],
    "check": [],
    "monitor": [],
    "performance": [],
    "maps": [],
    "own-calibrator": [],
    "calarena": [],
    "compare": [],
    "results": [],
    "experiments": [],
    "reviewers": [],
    "results/**": [],
}


def draw_pictures(app):
    """Draw the pictures of "How it works" afresh, with the code they explain."""
    folder = HERE / "_build" / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    runpy.run_path(str(HERE / "pictures" / "method.py"))["draw"](folder)


def list_calibrators(app, config):
    """Write the page of all calibrators from what their classes say."""
    rows, names = [], []
    for facts in calibrators.describe():
        cls = calibrators.calibrator_class(facts.key)
        names.append(f"   {cls.__module__.removeprefix('cordcal.calibrators.')}.{cls.__name__}")
        keeps = "order" if facts.keeps_order else "argmax" if facts.keeps_argmax else "–"
        cells = (
            f"``{facts.key}``",
            facts.title,
            facts.parameters,
            facts.works_on,
            keeps,
            facts.cost,
        )
        rows.append("   * - " + "\n     - ".join(cells))
    head = "   * - " + "\n     - ".join(("key", "name", "parameters", "works on", "keeps", "cost"))
    text = (
        "The calibrators\n===============\n\n"
        f".. list-table::\n   :header-rows: 1\n\n{head}\n" + "\n".join(rows) + "\n\n"
        ".. currentmodule:: cordcal.calibrators\n\n"
        ".. autosummary::\n   :toctree: .\n\n" + "\n".join(names) + "\n"
    )
    folder = HERE / "api" / "generated"
    folder.mkdir(exist_ok=True)
    (folder / "calibrators.rst").write_text(text, encoding="utf-8")


def write_command_reference(app, config):
    """Write the page of the command from the command itself."""
    page = runpy.run_path(str(HERE / "command_reference.py"))["page"]
    folder = HERE / "api" / "generated"
    folder.mkdir(exist_ok=True)
    (folder / "command.rst").write_text(page(), encoding="utf-8")


def skip_foreign(app, what, name, obj, skip, options):
    """Leave out what a class inherits from scikit-learn or torch; those document it."""
    home = getattr(getattr(obj, "fget", obj), "__module__", None) or "cordcal"
    return skip or not home.startswith("cordcal") or name.endswith("_request")


def narrow_tables(app, docname, source):
    """Print the tables of the study and of the evidence small enough for a page."""
    if docname.startswith("results/"):
        table = re.compile(r"((?:^\|.*\n)+)", re.MULTILINE)
        kind = "files" if docname == "results/evidence/files" else "study"
        source[0] = table.sub(rf"::::{{div}} {kind}\n\1::::\n", source[0])


def place_links(app, path, parent, source):
    """Make the links of an account, which start at its folder, start at the page instead."""
    pages = {"results/README.md": "results.md", "results/paper.md": "experiments.md"}
    if str(path) in pages:
        links = re.sub(r"\]\((?!\w+:|#)", "](results/", source[0])
        for account, page in pages.items():
            links = links.replace(f"]({account}", f"]({page}")
        source[0] = links


def open_study_files(app, doctree):
    """Link the study's files where they lie, to be opened, not as downloads under other names."""
    for link in list(doctree.findall(addnodes.download_reference)):
        target = link["reftarget"]
        if target.startswith("results/"):
            link.replace_self(nodes.reference("", "", *link.children, refuri=target))


def copy_study(app, exception):
    """Put the study next to its page: the whole report, and the files it links to."""
    if exception is None and app.builder.format == "html":
        shutil.copytree(HERE / "results", Path(app.outdir) / "results", dirs_exist_ok=True)


def setup(app):
    """Register what this site adds to Sphinx."""
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("config-inited", list_calibrators)
    app.connect("config-inited", write_command_reference)
    app.connect("builder-inited", draw_pictures)
    app.connect("source-read", narrow_tables)
    app.connect("include-read", place_links)
    app.connect("doctree-read", open_study_files)
    app.connect("build-finished", copy_study)
