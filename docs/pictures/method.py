"""The pictures of "How it works": one row, its interval, the shared scalar, and lifts."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from _style import COLOURS, plt, write

import cordcal
from cordcal.repair import lift_rule, rule
from cordcal.repair.lift_rule import Curve

NAMES = ("cat", "dog", "fox", "owl")
ROW_ORIGINAL = np.array([0.56, 0.28, 0.10, 0.06])
ROW_DIRECT = np.array([0.34, 0.42, 0.15, 0.09])
PREDICTION = 0


def draw(folder: Path) -> None:
    """Write the five pictures."""
    one_row(folder / "one-row.svg")
    interval(folder / "interval.svg")
    shared_scalar(folder / "shared-scalar.svg")
    lift(folder / "lift.svg")
    three_wishes(folder / "three-wishes.svg")


def lift(path: Path) -> None:
    """Draw the confidence of a lift over the direct mass, with both preferences."""
    mass = np.linspace(0.001, 0.999, 400)
    curve, others = Curve(0.9, 0.6, -0.3), np.array([0.62, 0.25, 0.13])
    confidence, _ = lift_rule.confidence(curve, mass, 1.0 - mass)
    shares = np.tile(np.insert(others, 0, 0.0), (400, 1))
    top = np.zeros(400, dtype=int)
    likelihood = cordcal.lift_confidences(confidence, top, shares, "likelihood")[:, 0]
    bound = others[0] / (1.0 + others[0])
    figure, ax = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    ax.plot([0, 1], [0, 1], color="#5b6570", linewidth=0.8, linestyle=":", label="direct mass b")
    ax.plot(mass, likelihood, color=COLOURS["direct"], linestyle="--", label='prefer="likelihood"')
    ax.plot(
        mass, np.maximum(confidence, 0.25), color=COLOURS["repaired"], label='prefer="confidence"'
    )
    for value, text in ((bound, "ρ / (1 + ρ): below, a rival is larger"), (0.25, "1 / K")):
        ax.axhline(value, color="#5b6570", linewidth=0.8)
        ax.annotate(text, (0.99, value - 0.06), ha="right")
    ax.set(xlabel="direct mass on the prediction", ylabel="confidence", xlim=(0, 1), ylim=(0, 1))
    ax.legend(frameon=False)
    write(figure, path)


def three_wishes(path: Path) -> None:
    """Draw a row whose prediction the evidence speaks against, and what either preference does."""
    evidence = np.array([0.30, 0.48, 0.14, 0.08])
    top = [PREDICTION]
    rows = {
        "the evidence": evidence,
        'prefer="confidence"': cordcal.lift_confidences([0.30], top, evidence[None])[0],
        'prefer="likelihood"': cordcal.lift_confidences([0.30], top, evidence[None], "likelihood")[
            0
        ],
    }
    granted = ("not on top, honest, likely", "on top, honest", "on top, likely")
    colours = (COLOURS["direct"], COLOURS["repaired"], COLOURS["original"])
    figure, axes = plt.subplots(1, 3, figsize=(8.4, 2.8), sharey=True, layout="constrained")
    for ax, (name, row), wishes, colour in zip(axes, rows.items(), granted, colours, strict=True):
        bars = ax.bar(NAMES, row, color=colour)
        bars[PREDICTION].set_hatch("//")
        bars[PREDICTION].set_edgecolor("white")
        ax.axhline(evidence[PREDICTION], color="#5b6570", linewidth=0.8, linestyle=":")
        ax.bar_label(bars, fmt="%.2f", fontsize="small")
        ax.set_title(f"{name}\n{wishes}", fontsize="medium")
    axes[0].set_ylabel("probability")
    axes[0].set_ylim(0, 0.58)
    write(figure, path)


def one_row(path: Path) -> None:
    """Draw the three outputs of a row whose prediction the calibrator changed."""
    cord = cordcal.CORD().fit(ROW_ORIGINAL[None], ROW_DIRECT[None])
    cord.eta_ = -0.05  # of some calibration set: one row alone would go to its bound
    repaired = cord.transform(ROW_ORIGINAL, ROW_DIRECT)
    figure, axes = plt.subplots(1, 3, figsize=(8.4, 2.6), sharey=True, layout="constrained")
    reports = {"original": ROW_ORIGINAL, "direct": ROW_DIRECT, "repaired": repaired}
    for ax, (name, report) in zip(axes, reports.items(), strict=True):
        bars = ax.bar(NAMES, report, color=COLOURS[name])
        bars[PREDICTION].set_hatch("//")
        bars[PREDICTION].set_edgecolor("white")
        ax.bar_label(bars, fmt="%.2f", fontsize="small")
        ax.set_title(f"{name}: {NAMES[int(report.argmax())]}")
    axes[0].set_ylabel("probability")
    axes[0].set_ylim(0, 0.65)
    write(figure, path)


def interval(path: Path) -> None:
    """Draw the mass of the prediction and of its strongest rival along the repair family."""
    rest = np.delete(ROW_DIRECT, PREDICTION)
    top = rest.max() / rest.sum()
    lower = top / (1 + top)
    mass = np.linspace(0, 1, 200)
    figure, ax = plt.subplots(figsize=(6.4, 3.0), layout="constrained")
    ax.axvspan(lower, 1, color=COLOURS["repaired"], alpha=0.08)
    ax.plot(mass, mass, color=COLOURS["repaired"], label="prediction: s")
    ax.plot(mass, (1 - mass) * top, color=COLOURS["direct"], label="strongest rival: (1 − s) ρ")
    b, g = ROW_DIRECT[PREDICTION], 0.5 * (ROW_DIRECT[PREDICTION] + ROW_ORIGINAL[PREDICTION])
    for value, word in ((b, "b"), (g, "g"), (lower, "ρ / (1 + ρ)")):
        ax.axvline(value, color="#5b6570", linewidth=0.8, linestyle=":")
        side = "left" if word == "g" else "right"
        ax.annotate(
            word,
            (value, 0.97),
            ha=side,
            va="top",
            # b stands left of the bound: a line lower, so that the two words do not meet.
            xytext=(3 if side == "left" else -3, -14 if word == "b" else 0),
            textcoords="offset points",
            fontsize="small",
        )
    ax.text(0.72, 0.30, "prediction kept", color=COLOURS["repaired"])
    ax.set(xlabel="mass s on the prediction", ylabel="probability", xlim=(0, 1), ylim=(0, 1))
    ax.legend(loc="center right", bbox_to_anchor=(1, 0.62), fontsize="small")
    write(figure, path)


def shared_scalar(path: Path) -> None:
    """Draw the responses of a few rows, and their mean meeting its target."""
    rng = np.random.default_rng(3)
    original = rng.dirichlet(np.full(4, 0.7), 60)
    direct = original**0.6 * [1.0, 1.7, 1.0, 0.8]
    direct /= direct.sum(axis=1, keepdims=True)
    cord = cordcal.CORD().fit(original, direct)
    story = cord.explain(original, direct)
    scalars = np.linspace(-3, 2, 400)
    responses = np.array(
        [
            rule.response(float(eta), story.reference, 1 - story.reference, story.lower)[0]
            for eta in scalars
        ]
    )
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.0), layout="constrained")
    chosen = np.argsort(story.reference)[[4, 14, 24, 36, 48, 57]]
    for row in chosen:
        colour = COLOURS["direct"] if story.changed[row] else COLOURS["repaired"]
        left.plot(scalars, responses[:, row], color=colour, linewidth=1.2)
    left.axvline(cord.eta_, color="#5b6570", linewidth=0.8, linestyle=":")
    left.set(xlabel="scalar η", ylabel="mass s on the prediction", title="each row's response ψ(η)")
    left.plot([], [], color=COLOURS["direct"], label="changed by the calibrator")
    left.plot([], [], color=COLOURS["repaired"], label="kept")
    left.legend(fontsize="small", loc="upper left")
    left.set_ylim(0, 1.25)
    right.plot(scalars, responses.mean(axis=1), color=COLOURS["repaired"], label="mean response")
    target = cord.construction_.target
    right.axhline(target, color=COLOURS["direct"], linewidth=1, label="mean direct mass")
    right.plot(cord.eta_, target, "o", color="#222222")
    right.annotate(
        "η*", (cord.eta_, target), xytext=(8, -14), textcoords="offset points", color="#222222"
    )
    right.set(xlabel="scalar η", title="one scalar for all rows")
    right.legend(fontsize="small", loc="upper left")
    write(figure, path)
