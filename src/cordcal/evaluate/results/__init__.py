"""The records of audit, compare, check and monitor: frozen, filled here, read by renderers.

The console, pages, Markdown, LaTeX and data frames are made from them and compute nothing.
"""
