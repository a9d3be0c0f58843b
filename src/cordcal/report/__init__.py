"""Results as tables, figures and one-file HTML.  Nothing is computed here."""

from cordcal.report.html import audit_data, render, write_html

__all__ = ["audit_data", "render", "write_html"]
