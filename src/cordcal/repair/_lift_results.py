"""What fitting a Lift did: a small frozen record."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from cordcal.repair._lift_rule import Curve, Mode


@dataclass(frozen=True)
class LiftConstruction:
    """What `Lift.fit` did with the calibration rows.

    Attributes
    ----------
    n : int
        Rows seen.
    n_classes : int
        Classes (columns).
    mode : {"raise", "cap"}
        What happens to rows whose confidence is too small to keep the decision.
    alpha, beta, gamma : float
        The three numbers of s = σ(α·log b − β·log(1 − b) + γ).
    ridge : float
        How many rows the pull towards the identity weighs; the calibration rows chose it.
    loss_before, loss_after : float
        Mean log loss of "the decision is right" under b and under s, before any bound.
    gap : float
        How far the penalised loss can be above its minimum, a row.
    cross_fitted : bool
        Whether the numbers were fitted to reports of models that had not seen their rows.
    n_right : int
        Rows whose decision is right.
    n_changed : int
        Rows whose direct report decides otherwise.
    n_at_lower, n_at_upper : int
        Rows whose confidence was moved to an end of its interval.
    decision_given : bool
        Whether the caller passed ``decision=``.
    effective_n : float
        (Σw)² / Σw²: how many equally weighted rows the weighted ones are worth.
    """

    n: int
    n_classes: int
    mode: Mode
    alpha: float
    beta: float
    gamma: float
    ridge: float
    loss_before: float
    loss_after: float
    gap: float
    cross_fitted: bool
    n_right: int
    n_changed: int
    n_at_lower: int
    n_at_upper: int
    decision_given: bool
    effective_n: float

    @property
    def curve(self) -> Curve:
        """The three numbers together."""
        return Curve(self.alpha, self.beta, self.gamma)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> LiftConstruction:
        """Rebuild a record from what `to_dict` returned."""
        return cls(**values)

    def __repr__(self) -> str:
        return (
            f"Lift on {self.n:,} rows × {self.n_classes} classes, mode {self.mode!r}\n"
            f"  decisions that are right            {self.n_right:,} "
            f"({self.n_right / self.n:.2%})\n"
            f"  predictions the calibrator changed  {self.n_changed:,} "
            f"({self.n_changed / self.n:.2%})\n"
            f"  alpha, beta, gamma                  {self.alpha:.6g}, {self.beta:.6g}, "
            f"{self.gamma:.6g}{' (cross-fitted)' if self.cross_fitted else ''}\n"
            f"  pull towards leaving b as it is     {self.ridge:g} rows\n"
            f"  log loss of being right             {self.loss_before:.6f} direct, "
            f"{self.loss_after:.6f} lifted\n"
            f"  rows at a bound                     {self.n_at_lower:,} lower, "
            f"{self.n_at_upper:,} upper"
        )
