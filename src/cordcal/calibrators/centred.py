"""Isotonic maps without steps or zeros: centred regression, and Venn–Abers predictors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._door.expressions import shares
from cordcal._door.types import Array, Vector
from cordcal.calibrators._base import Held
from cordcal.calibrators._curves import interpolate_each
from cordcal.calibrators._pav import fit_centres
from cordcal.calibrators._venn import venn_abers_knots
from cordcal.calibrators.isotonic import TIE_BREAK, IsotonicOneVsAll


class CentredIsotonic(IsotonicOneVsAll):
    """CIR: centred isotonic regression of each class against the rest, rows renormalised.

    As `IsotonicOneVsAll`, but every flat piece of a class's isotonic regression shrinks to
    one point at the mean probability of its rows, and the map is linear between these
    points; so it rises strictly between the outermost ones.  Beyond them a share of 1e-9 of
    the original probability keeps rows apart.  There is nothing to tune.

    | Works on probabilities (the softmax of logits), in float64 whatever the input.
    | Does not keep the argmax.
    | −inf logits count as probability 0, which the map may raise.
    | Cost: O(Kn log n).

    Parameters
    ----------
    input : {"logits", "probabilities"}
        What the scores are.

    Attributes
    ----------
    knot_x_, knot_y_ : ndarray
        Abscissas and values of all classes' points, one class after the other.
    knot_start_ : ndarray of int
        Where each class's points begin; K + 1 entries.

    References
    ----------
    Oron, Flournoy (2017). Centered isotonic regression: point and interval estimation for
    dose-response studies. Statistics in Biopharmaceutical Research.

    Examples
    --------
    >>> import numpy as np
    >>> p = np.array([[0.9, 0.1], [0.7, 0.3], [0.4, 0.6], [0.2, 0.8]])
    >>> cir = CentredIsotonic(input="probabilities").fit(p, [0, 1, 0, 1])
    >>> cir.predict_proba([[0.6, 0.4]]).round(3)
    array([[0.571, 0.429]])
    """

    key = "cir"
    title = "Centred isotonic regression, one versus all"
    short = "CIR"
    cost = "O(Kn log n)"
    reference = "Oron and Flournoy 2017"

    def _curve(
        self, x: Vector, positive: npt.NDArray[np.bool_], weight: Vector | None
    ) -> tuple[Vector, Vector]:
        return fit_centres(x, positive, weight)

    @classmethod
    def _map(cls, working: Array, held: Held, *, xp: Any) -> Array:
        return shares(interpolate_each(working, held, xp) + TIE_BREAK * working, xp)


class VennAbers(IsotonicOneVsAll):
    """Venn–Abers predictors of each class against the rest, rows renormalised.

    For each class two isotonic regressions of 1[y = k] on its probability: with the new row
    among the calibration rows as a miss, which gives p0, and as a hit, which gives p1.  The
    class's value is p1/(1 − p0 + p1); it is never 0.  There is nothing to tune.

    | Works on probabilities (the softmax of logits), in float64 whatever the input.
    | Does not keep the argmax.
    | −inf logits count as probability 0, which the map raises.
    | Cost: O(Kn log n); the curves have up to 3n knots a class.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        What the scores are.

    Attributes
    ----------
    knot_x_, knot_y_ : ndarray
        Abscissas and values of all classes' steps, one class after the other.
    knot_start_ : ndarray of int
        Where each class's knots begin; K + 1 entries.

    References
    ----------
    Vovk, Petej, Fedorova (2015). Large-scale probabilistic predictors with and without
    guarantees of validity. NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> p = np.array([[0.9, 0.1], [0.7, 0.3], [0.4, 0.6], [0.2, 0.8]])
    >>> model = VennAbers(input="probabilities").fit(p, [0, 1, 0, 1])
    >>> model.predict_proba(p).round(3)
    array([[0.667, 0.333],
           [0.5  , 0.5  ],
           [0.5  , 0.5  ],
           [0.333, 0.667]])
    """

    key = "venn-abers"
    title = "Venn–Abers, one versus all"
    short = "Venn–Abers"
    cost = "O(Kn log n)"
    reference = "Vovk et al. 2015, NeurIPS"
    most_classes = 999, "keeps a curve of every row for each class, too large"

    def _curve(
        self, x: Vector, positive: npt.NDArray[np.bool_], weight: Vector | None
    ) -> tuple[Vector, Vector]:
        return venn_abers_knots(x, positive, weight)
