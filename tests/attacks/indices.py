"""pandas indices and masks in any mixture: rows go together as the rule says, or are refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attacks.promises import Rng, hold
from cordcal import CORD, InputError, Lift, PreservingCalibrator, audit, metrics
from cordcal.evaluate.gates import Gate, check

CALLS = 12
CLASSES = 3
Index = list[Any] | None


def temperature(p: Any, y: Any, w: Any) -> Any:
    return (
        PreservingCalibrator("ts", input="probabilities")
        .fit(p, y, sample_weight=w)
        .predict_proba(p)
    )


def curve(p: Any, q: Any, y: Any, w: Any) -> Any:
    return Lift().fit(p, q, y, sample_weight=w).curve_


def repaired(p: Any, q: Any, y: Any) -> Any:
    return CORD().fit(p, q, prediction=y).transform(p, q, prediction=y)


def audited(p: Any, q: Any, y: Any, w: Any) -> Any:
    return [measure.direct for measure in audit(p, q, y, sample_weight=w, resamples=1).measures]


def gated(q: Any, p: Any, y: Any) -> Any:
    limits = [Gate("nll", 9.0), Gate("tpcr", 1.0)]
    return [verdict.value for verdict in check(q, y, gates=limits, original=p, groups=y).verdicts]


FUNCTIONS: list[Callable[..., Any]] = [
    temperature,
    curve,
    repaired,
    audited,
    gated,
    lambda p, y, w: metrics.nll(p, y, sample_weight=w),
    lambda p, y, w: metrics.ece(p, y, sample_weight=w, ignore_index=CLASSES - 1),
    lambda p, q, y, w: metrics.prediction_changes(p, q, y, sample_weight=w).tpcr,
    lambda p, y, w: metrics.BrierStream().update(p, y, sample_weight=w).result(),
]


def trial(rng: Rng, folder: Path) -> int:
    """Call some functions with indices, and some with masks, that were drawn at random."""
    rows = int(rng.integers(30, 80))
    labels = np.concatenate([[0, 1], rng.integers(CLASSES, size=rows - 2)])
    p, q = (rng.dirichlet(np.ones(CLASSES), rows) for _ in range(2))
    whole = {"p": p, "q": q, "y": labels, "w": rng.uniform(0.5, 2.0, rows)}
    names = pool(rng, rows)
    for _ in range(CALLS):
        function = FUNCTIONS[int(rng.integers(len(FUNCTIONS)))]
        expected = function.__code__.co_varnames[: function.__code__.co_argcount]
        plain = {name: whole[name] for name in expected}
        if rng.random() < 0.3:
            mask_one(function, plain, rng)
        else:
            match_all(function, plain, [index(rng, rows, names) for _ in expected])
    return CALLS


def pool(rng: Rng, rows: int) -> list[Any]:
    """Return entries that indices are drawn from, of one kind."""
    kinds: list[Callable[[int], Any]] = [
        lambda row: row,
        lambda row: 7 * row + 3,
        lambda row: f"row {row}",
        lambda row: row / 2,
        lambda row: ("a" if row % 2 else "b", row),
        lambda row: pd.Timestamp("2026-01-01") + pd.Timedelta(days=row),
    ]
    kind = kinds[int(rng.integers(len(kinds)))]
    return [kind(row) for row in range(2 * rows)]


def index(rng: Rng, rows: int, names: list[Any]) -> Index:
    """Return no index, the default, or entries in order, shuffled, of a larger frame, repeated."""
    chosen = names[:rows]
    match int(rng.integers(7)):
        case 0:
            return None
        case 1 | 2:
            return list(range(rows))
        case 3:
            return chosen
        case 4:
            return [chosen[at] for at in rng.permutation(rows)]
        case 5:
            return [names[at] for at in rng.permutation(2 * rows)[:rows]]
        case _:
            twice = chosen.copy()
            twice[int(rng.integers(rows))] = twice[int(rng.integers(rows))]
            return twice


def match_all(function: Callable[..., Any], plain: dict[str, Any], indices: list[Index]) -> None:
    """Ask for the result of rows in the order that the rule gives, or for a refusal."""
    orders = rule(indices)
    passed = {
        name: values if entries is None else with_index(values, entries)
        for (name, values), entries in zip(plain.items(), indices, strict=True)
    }
    result = outcome(function, passed)
    if orders is None:
        hold(
            isinstance(result, InputError),
            f"rows that cannot be matched were taken: {shortened(indices)}",
        )
        return
    rows = {
        name: values[order] for (name, values), order in zip(plain.items(), orders, strict=True)
    }
    hold(not isinstance(result, InputError), f"rows that can be matched were refused: {result}")
    same = np.allclose(flat(result), flat(outcome(function, rows)), rtol=1e-9, equal_nan=True)
    hold(same, f"rows were matched otherwise: {shortened(indices)}")


def rule(indices: list[Index]) -> list[list[int]] | None:
    """Return each argument's rows in the order that the documents promise; None to refuse."""
    usual = list(range(len(next((index for index in indices if index is not None), []))))
    others = [index for index in indices if index is not None and index != usual]
    defaults = usual in indices
    if defaults and any(
        len(set(index)) == len(index) and set(index) == set(usual) for index in others
    ):
        return None
    orders: list[Any] = []
    for index in indices:
        if index is None or index == usual or index == others[0]:
            orders.append(slice(None))
        elif len(set(index)) < len(index) or set(index) != set(others[0]):
            return None
        elif indices[0] != others[0]:
            return None  # the first is in the order of one of them, and nothing says which
        else:
            orders.append([index.index(entry) for entry in others[0]])
    return orders


def shortened(indices: list[Index]) -> list[Index]:
    return [index if index is None else index[:4] for index in indices]


def with_index(values: np.ndarray, entries: list[Any]) -> Any:
    kind = pd.Series if values.ndim == 1 else pd.DataFrame
    return kind(values, index=pd.Index(entries))


def mask_one(function: Callable[..., Any], plain: dict[str, Any], rng: Rng) -> None:
    """Ask that masked rows are refused, all of them, and that an empty mask changes nothing."""
    name = str(rng.choice(list(plain)))
    mask = np.zeros(plain[name].shape, dtype=bool)
    some = rng.random() < 0.7
    if some:
        mask[rng.integers(len(mask), size=int(rng.integers(1, 5)))] = True
    result = outcome(function, {**plain, name: np.ma.array(plain[name], mask=mask)})
    if some:
        rows = np.flatnonzero(mask.reshape(len(mask), -1).any(axis=1))
        named = isinstance(result, InputError) and np.array_equal(result.rows, rows)
        hold(named, f"masked rows of {name} were taken, or others named")
    else:
        hold(not isinstance(result, InputError), f"a mask of nothing was refused: {result}")
        hold(
            np.allclose(flat(result), flat(outcome(function, plain))), "a mask of nothing mattered"
        )


def outcome(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Return a result or a refusal; anything else that is raised breaks the promise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(**arguments)
        except InputError as refusal:
            return refusal


def flat(result: Any) -> np.ndarray:
    return np.asarray(result, dtype=np.float64)
