"""Calibrators of this study: the paper's other baselines, cited rivals, and networks.

Their keys work wherever a key of cordcal does: `cordcal.calibrators.registry` knows the names
and imports this package when one of them is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from cordcal.calibrators import available as available_in_cordcal
from cordcal.calibrators import calibrator_class

if TYPE_CHECKING:
    from cordcal._numeric.types import Kind
    from cordcal_study.data import Rows

CLASSES: dict[str, tuple[str, str]] = {
    "venn-abers": ("venn_abers", "VennAbers"),
    "spline": ("spline", "SplineOneVsRest"),
    "ts-class": ("classwise", "ClasswiseTemperature"),
    "pb": ("bounded", "ProbabilityBounding"),
    "tva-beta": ("confidence", "TopVersusAllBeta"),
    "tva-isotonic": ("confidence", "TopVersusAllIsotonic"),
    "tva-histogram": ("confidence", "TopVersusAllHistogram"),
    "top-label": ("confidence", "TopLabelHistogram"),
    "cdf-spline": ("confidence", "CumulativeSpline"),
    "mcct-i": ("rankwise", "RankwiseTransformation"),
    "pts": ("networks", "ParametrizedTemperature"),
    "smart": ("networks", "MarginTemperature"),
    "diag": ("networks", "DiagonalNetwork"),
    "adats": ("adaptive", "AdaptiveTemperature"),
}
"""The module and the class of each key, as `cordcal.calibrators.registry` reads them."""

NEED_FEATURES = ("adats",)
"""Keys of calibrators that need the features of the rows in addition to their scores."""

# The order of tables: maps that may change predictions, maps that do not, those that are trained.
_ORDER = (
    "ts", "ts-tva", "ets", "vs", "svs", "ms", "sms", "dir-odir", "irova", "irova-ts", "irm",
    "platt", "beta", "cir", "venn-abers", "spline", "mono", "ts-class", "hts", "pb", "tva-platt",
    "tva-beta", "tva-isotonic", "tva-histogram", "top-label", "cdf-spline", "mcct-i", "pts",
    "smart", "diag", "adats", "boost", "blend", "boosted-blend",
)  # fmt: skip


def available() -> tuple[str, ...]:
    """Return the keys of cordcal and of the study, in the order of tables.

    Examples
    --------
    >>> available()[:2], "spline" in available()
    (('ts', 'ts-tva'), True)
    """
    keys = dict.fromkeys((*available_in_cordcal(), *CLASSES))
    return tuple(sorted(keys, key=lambda key: _ORDER.index(key) if key in _ORDER else len(_ORDER)))


def of_role(role: Literal["base", "rival"]) -> tuple[str, ...]:
    """Return the keys of all calibrators with a role.

    Examples
    --------
    >>> "ts" in of_role("rival"), "ts" in of_role("base")
    (True, False)
    """
    return tuple(key for key in available() if calibrator_class(key).role == role)


def is_network(key: str) -> bool:
    """Return whether a calibrator is a network, which takes minutes to fit.

    Examples
    --------
    >>> is_network("ts"), is_network("adats")
    (False, True)
    """
    return "network" in calibrator_class(key).size.uncounted


def unsuited(keys: Iterable[str], classes: int, *, features: bool) -> dict[str, str]:
    """Return the calibrators that the data do not allow, each with the reason.

    Examples
    --------
    >>> unsuited(["ts", "adats"], 10, features=False)
    {'adats': 'needs the penultimate features in addition to the scores'}
    """
    reasons = {}
    for key in keys:
        reason = calibrator_class(key).unsuited(classes)
        if key in NEED_FEATURES and not features:
            reason = "needs the penultimate features in addition to the scores"
        if reason is not None:
            reasons[key] = reason
    return reasons


def bind_features(calibrator: Any, rows: Rows, kind: Kind) -> Any:
    """Give a calibrator the features of the rows that it is fitted on or predicts next."""
    if getattr(calibrator, "key", None) in NEED_FEATURES:
        from cordcal_study.calibrators.adaptive import RowFeatures

        known = rows.features is not None
        features = RowFeatures(rows.scores, rows.features, input=kind) if known else None
        calibrator.set_params(features=features)
    return calibrator


def short_name(key: str) -> str:
    """Return a calibrator's name in narrow tables; an unknown key is its own name."""
    return calibrator_class(key).short if key in available() else key
