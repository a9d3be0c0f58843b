"""Private names that tests of several packages need, imported in one place.

They are arguments of internal functions, the expressions of a calibrator's map, and the
package's own way to warn.
"""

from cordcal._errors import warn
from cordcal._numeric import expressions
from cordcal._numeric.exact import ExactSum
from cordcal._validation.scores import CheckedScores

__all__ = ["CheckedScores", "ExactSum", "expressions", "warn"]
