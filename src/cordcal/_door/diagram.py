"""Estimators in a notebook: boxes with their parameters and what they were fitted to."""

from __future__ import annotations

from html import escape
from typing import Any

# Lines and text take the notebook's own colours, so that light and dark need no second set.
_BOX = (
    "display:inline-block;border:1px solid currentColor;border-radius:6px;padding:.4em .8em;"
    "margin:.2em .4em .2em 0;vertical-align:top;font-size:.9em"
)
_STATE = "margin:.4em 0 0;font-size:.9em;opacity:.8;background:none"
# Longer vectors are told by their shape.
_MOST_SHOWN = 6


def diagram(estimator: Any, inner: dict[str, Any], record: Any = None) -> str:
    """Return an estimator as HTML.

    Parameters
    ----------
    estimator : Estimator
        Whose parameters and fitted attributes to show.
    inner : dict
        Estimators it is made of, by what they do; each becomes a box of its own.
    record : object, optional
        What the fit did, in its own words; else the fitted attributes are listed.
    """
    fitted = {
        name: value
        for name, value in sorted(vars(estimator).items())
        if name.endswith("_") and not name.startswith("_") and value is not None
    }
    lines = [f"<strong>{escape(repr(estimator))}</strong>"]
    lines.append(f"<div>{'fitted' if fitted else 'not fitted yet'}</div>")
    for role, part in inner.items():
        shown = getattr(part, "_repr_html_", lambda part=part: escape(repr(part)))()
        lines.append(f"<div><em>{escape(role)}</em><br>{shown}</div>")
    if fitted and not inner:
        listed = "\n".join(f"{name} = {_told(value)}" for name, value in fitted.items())
        state = listed if record is None else repr(record)
        lines.append(f'<pre style="{_STATE}">{escape(state)}</pre>')
    return f'<div style="{_BOX}">{"".join(lines)}</div>'


def _told(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is not None and getattr(value, "size", 0) > _MOST_SHOWN:
        return f"array of shape {tuple(shape)}"
    if isinstance(value, list | tuple | dict) and len(value) > _MOST_SHOWN:
        return f"{len(value)} entries"
    return str(value)
