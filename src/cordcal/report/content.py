"""An audit in the form the report's templates take: a comparison of one calibrator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cordcal.evaluate._audit_result import Audit
    from cordcal.evaluate._pictures import Pictures


def audit_data(
    audit: Audit,
    pictures: Pictures,
    *,
    name: str,
    fingerprint: str,
    class_names: tuple[str, ...] | None = None,
) -> dict[str, Any]:
    """Return the plain dict that `cordcal.report.render` takes.

    Parameters
    ----------
    audit : Audit
        What `cordcal.audit` found.
    pictures : Pictures
        The numbers behind the pictures of the same rows.
    name : str
        What to call the audited calibrator.
    fingerprint : str
        Recognises the audited rows.
    class_names : tuple of str, optional
        One name a column.
    """
    labelled = bool(audit.measures)

    def values(report: str) -> dict[str, float]:
        return {each.measure: getattr(each, report) for each in audit.measures}

    entry = {
        "key": name,
        "name": "the audited calibrator",
        "keeps_decisions": False,
        "direct": values("direct"),
        "repaired": values("repaired"),
        "changes": audit.changes.to_dict(),
        "gain": {
            # An audit reports repaired minus direct, a comparison what the repair gains.
            each.measure: {"estimate": -each.difference, "low": -each.high, "high": -each.low}
            for each in audit.measures
            if each.low is not None and each.high is not None
        },
        "lift_gain": {},
        "seconds": None,
        "notes": [],
        "price": None,
        "lift": None,
        "shares": {},
        **pictures.to_dict(),
    }
    reading = audit._reading()
    return {
        "n_calibration": None,
        "n_evaluation": audit.n,
        "n_classes": audit.n_classes,
        "class_names": None if class_names is None else list(class_names),
        "settings": {
            "repair fitted on": "the audited rows" if audit.fitted_here else "other rows",
            "bootstrap resamples": audit.resamples,
            "seed": audit.seed,
        },
        "fingerprint": fingerprint,
        "has_labels": labelled,
        "uncalibrated": values("original") if labelled else None,
        "calibrators": [entry],
        "focus": name,
        "needed": [],
        "need": [],
        "left_out": {},
        "best": {},
        "concerns": [each.to_dict() for each in audit.concerns],
        "recommendation": None,
        "headline": reading[0],
        "reading": reading[1:],
        "next_step": None,
    }
