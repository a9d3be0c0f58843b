"""An exact, mergeable sum of doubles.

Every mean of a construction is an `ExactSum`, so the shared scalar does not depend on the
order of the rows, on blocks, threads or machines.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# frexp returns mantissas in [1/2, 1) times 2^e with e ≥ -1073.  With 53 mantissa bits below
# that, every double is a multiple of 2^-1126, the unit of the integer.
LOWEST_EXPONENT = -1073
_MANTISSA_BITS = 53
UNIT_BITS = _MANTISSA_BITS - LOWEST_EXPONENT

# A mantissa is split into halves of at most 27 bits; up to 2^24 of them add up exactly
# in a double, the type in which bincount accumulates.
_HALF_BITS = 27

# Most summands are below 2 in absolute value.  They are split at these magnitudes without error
# into multiples of 2^-36, 2^-72 and 2^-108, and _LEVEL_ROWS of each add up without rounding.
_LEVELS = ((1.5 * 2.0**16, 36), (1.5 * 2.0**-20, 72), (1.5 * 2.0**-56, 108))
_LEVEL_ROWS = 2**15


@dataclass(frozen=True, slots=True)
class ExactSum:
    """The exact value of a sum of doubles, stored as one Python integer.

    Sums merge with ``+``, compare exactly, and round once, in ``float()``.

    Examples
    --------
    >>> import numpy as np
    >>> parts = ExactSum.of(np.array([1e16, 1.0])) + ExactSum.of(np.array([-1e16]))
    >>> float(parts)
    1.0
    """

    units: int = 0

    @classmethod
    def of(cls, values: npt.NDArray[np.float64]) -> ExactSum:
        """Sum the entries of a float64 array."""
        total = cls()
        for start in range(0, values.size, _LEVEL_ROWS):
            total += _of_block(values[start : start + _LEVEL_ROWS])
        return total

    @classmethod
    def of_products(
        cls, weights: npt.NDArray[np.float64], values: npt.NDArray[np.float64]
    ) -> ExactSum:
        """Sum ``weights * values`` without rounding the products.

        Weights times 2^27 must not overflow; see `scale_to_safe_exponent`.
        """
        product = weights * values
        return cls.of(product) + cls.of(_product_error(weights, values, product))

    @classmethod
    def of_levels(cls, high: int, middle: int, low: int) -> ExactSum:
        """Sum multiples of 2^-36, 2^-72 and 2^-108."""
        return cls(((high << 72) + (middle << 36) + low) << (UNIT_BITS - 108))

    def __add__(self, other: ExactSum) -> ExactSum:
        return ExactSum(self.units + other.units)

    def __sub__(self, other: ExactSum) -> ExactSum:
        return ExactSum(self.units - other.units)

    def scaled(self, exponent: int) -> ExactSum:
        """Return the sum times 2^exponent; no double has bits below the unit."""
        units = self.units
        return ExactSum(units << exponent if exponent >= 0 else units >> -exponent)

    def __float__(self) -> float:
        return self.units / (1 << UNIT_BITS)

    def mean(self, weight: ExactSum) -> float:
        """Return this sum divided by the sum of weights, rounded once."""
        return self.units / weight.units

    @classmethod
    def count(cls, rows: int) -> ExactSum:
        """Return the sum of ``rows`` ones."""
        return cls(rows << UNIT_BITS)


def _of_block(values: npt.NDArray[np.float64]) -> ExactSum:
    """Sum at most `_LEVEL_ROWS` entries."""
    if not (values.min(initial=0.0) > -2.0 and values.max(initial=0.0) < 2.0):
        return ExactSum(_block_units(values))
    sums, remainder = [], values
    for level, unit_bits in _LEVELS:
        part = (level + remainder) - level
        remainder = remainder - part
        # The parts are small multiples of one unit, so no partial sum is rounded.
        sums.append(int(part.sum() * 2.0**unit_bits))
    total = ExactSum.of_levels(*sums)
    if not remainder.any():
        return total
    return total + ExactSum(_block_units(remainder[remainder != 0.0]))


def _block_units(values: npt.NDArray[np.float64]) -> int:
    """Return the sum of at most `_LEVEL_ROWS` doubles of any size, in units of 2^-1126."""
    mantissa, exponent = np.frexp(values)
    mantissa = mantissa * 2.0**_MANTISSA_BITS
    high = np.floor(mantissa * 2.0**-_HALF_BITS)
    low = mantissa - high * 2.0**_HALF_BITS
    base = int(exponent.min(initial=0))
    bins = exponent - base
    total = 0
    for sums, shift in ((np.bincount(bins, high), _HALF_BITS), (np.bincount(bins, low), 0)):
        for position in np.flatnonzero(sums):
            bits = base + int(position) - LOWEST_EXPONENT + shift
            total += int(sums[position]) << bits
    return total


def _product_error(
    x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], product: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the rounding error of ``x * y``, which is a double (Dekker's product)."""
    x_high, x_low = _split(x)
    y_high, y_low = _split(y)
    return ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low


def _split(x: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Split each double into two of at most 26 bits (Veltkamp)."""
    scaled = x * (2.0**27 + 1.0)
    high = scaled - (scaled - x)
    return high, x - high


def total_weight(rows: int, weights: npt.NDArray[np.float64] | None) -> ExactSum:
    """Return the sum of the weights, or of ones."""
    return ExactSum.count(rows) if weights is None else ExactSum.of(weights)


def weighted(values: npt.NDArray[np.float64], weights: npt.NDArray[np.float64] | None) -> ExactSum:
    """Return the exact sum of ``values``, weighted if there are weights."""
    return ExactSum.of(values) if weights is None else ExactSum.of_products(weights, values)


# Weights within 2^±256 can be squared and multiplied by probabilities without over- or underflow.
_ORDINARY_EXPONENT = 256


def weight_exponent(weights: npt.NDArray[np.float64]) -> int | None:
    """Return the binary exponent of the largest weight; None if all are zero."""
    largest = weights.max(initial=0.0)
    return int(np.frexp(largest)[1]) if largest > 0.0 else None


def weight_unit(exponent: int | None) -> int:
    """Return the exponent of two by which to divide weights up to 2^exponent; 0 if ordinary.

    Examples
    --------
    >>> weight_unit(3), weight_unit(1000), weight_unit(-1000)
    (0, 1000, -1000)
    """
    if exponent is None or abs(exponent) <= _ORDINARY_EXPONENT:
        return 0
    return exponent


def ordinary_weights(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the weights, scaled by a power of two if products could over- or underflow.

    Examples
    --------
    >>> ordinary_weights(np.array([3.0, 0.1])), ordinary_weights(np.array([2.0**1000, 0.0]))
    (array([3. , 0.1]), array([0.5, 0. ]))
    """
    unit = weight_unit(weight_exponent(weights))
    return weights if unit == 0 else np.asarray(np.ldexp(weights, -unit))


def scale_to_safe_exponent(
    weights: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], int | None]:
    """Scale weights by a power of two so that the largest is below one; also return its exponent.

    Weighted means keep their bits, and products cannot overflow.  The exponent is None if all
    weights are zero.
    """
    exponent = weight_exponent(weights)
    if exponent is None:
        return weights, None
    return np.asarray(np.ldexp(weights, -exponent)), exponent
