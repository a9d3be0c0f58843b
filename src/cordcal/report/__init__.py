"""Results as tables, figures and one-file HTML.  Nothing is computed here."""

from cordcal.evaluate.results.report import ReportData
from cordcal.report.html import render, write_html

__all__ = ["ReportData", "render", "write_html"]
