"""The records of audit, compare and monitor: frozen, filled by `evaluate`, read by renderers.

The console, pages, Markdown, LaTeX and data frames are made from them and compute nothing.
"""
