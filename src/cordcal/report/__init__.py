"""Results as tables, figures and one-file HTML.  Nothing is computed here."""

from cordcal.report.html import render, write_html

__all__ = ["render", "write_html"]
