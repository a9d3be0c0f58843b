"""Pictures of classes: one diagram each, and where changed decisions go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cordcal.report._svg import Markup, panel
from cordcal.report.words import number

# Letters of a class's name that fit beside the squares.
_LETTERS = 12
_LETTER = 6.4
# The side of a square, and how far the squares of few classes grow.
_SQUARE, _LARGEST, _FIELD = 26, 48, 200


def class_panel(each: Mapping[str, Any]) -> Markup:
    """Draw the reliability of one class in every report."""
    gaps = ", ".join(
        f"{report} {number('classwise_ece', gap)}" for report, gap in each["ece"].items()
    )
    lines = {report: [(bin[0], bin[1]) for bin in bins] for report, bins in each["bins"].items()}
    description = f"Reliability of the class {each['name']}"
    return panel(
        lines, description, f"{each['name']}, {each['rows']:,} rows; ECE of the class: {gaps}"
    )


def empty_panel() -> Markup:
    """Return a diagram for the script to draw in."""
    return panel({}, "Reliability of the class chosen")


def bins_text(each: Mapping[str, Any]) -> str:
    """Return the bins of a class as the script reads them, probabilities in thousandths."""
    return " ".join(f"{report};{_bins(bins)}" for report, bins in each["bins"].items())


def _bins(bins: Sequence[tuple[float, float, float]]) -> str:
    return ";".join(f"{1e3 * p:.0f},{1e3 * share:.0f},{rows:.0f}" for p, share, rows in bins)


def classes_text(entry: Mapping[str, Any], order: Sequence[Mapping[str, Any]]) -> str:
    """Return all classes of a calibrator in few letters, in the order of another's list.

    The script makes rows of it; names, counts and the original report stand in that list.
    """
    classes = {each["name"]: each for each in entry["classes"]}
    return "|".join(_class_text(classes[other["name"]]) for other in order)


def _class_text(each: Mapping[str, Any]) -> str:
    reports = [report for report in each["bins"] if report != "original"]
    gaps = [f"{1e5 * each['ece'][report]:.0f}" for report in reports]
    numbers = ",".join([str(each["left"]), str(each["joined"]), *gaps])
    return " ".join([numbers, *(_bins(each["bins"][report]) for report in reports)])


def heat_map(entry: Mapping[str, Any], class_names: Sequence[str] | None) -> Markup:
    """Draw the moves between classes: a row for the class left, a column for the one joined."""
    moves = entry["moves"]
    involved = {each[end] for each in moves for end in ("source", "target")}
    names = sorted(involved, key=int if class_names is None else class_names.index)
    short = [name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…" for name in names]
    room = 14 + _LETTER * max(map(len, short))
    square = max(_SQUARE, min(_LARGEST, _FIELD // len(names)))
    side = len(names) * square
    parts = [
        Markup('<rect class="field" x="{room}" y="{room}" width="{side}" height="{side}"/>').format(
            room=room, side=side
        )
    ]
    row = Markup('<text class="tick end" x="{}" y="{}">{}</text>')
    column = Markup('<text class="tick" transform="translate({} {}) rotate(-60)">{}</text>')
    for index, name in enumerate(short):
        middle = room + (index + 0.5) * square
        parts.append(row.format(room - 5, middle + 4, name))
        parts.append(column.format(middle + 3, room - 5, name))
    most = moves[0]["count"]
    parts += [_cell(each, names, room, square, most) for each in moves]
    frame = Markup(
        '<svg class="heat" viewBox="0 0 {wide} {high}" style="max-width:{wide}px" role="img" '
        'aria-label="{description}" tabindex="0">{parts}</svg>'
    )
    description = (
        f"Where decisions go: {len(moves)} moves between {len(names)} classes. Arrow keys walk "
        f"through them, Enter shows the rows."
    )
    return frame.format(
        wide=1.5 * room + side,
        high=room + side + 4,
        description=description,
        parts=Markup("").join(parts),
    )


def _cell(
    move: Mapping[str, Any], names: Sequence[str], room: float, square: int, most: int
) -> Markup:
    across, down = (room + names.index(move[end]) * square for end in ("target", "source"))
    cell = Markup(
        '<rect class="move" x="{}" y="{}" width="{side}" height="{side}" style="--heat:{:.2f}" '
        'data-from="{}" data-to="{}" data-n="{}"{}/>'
        '<text class="tick middle" x="{}" y="{}">{}</text>'
    )
    return cell.format(
        across + 0.5,
        down + 0.5,
        0.15 + 0.65 * move["count"] / most,
        move["source"],
        move["target"],
        move["count"],
        told(move),
        across + square / 2,
        down + square / 2 + 4,
        move["count"],
        side=square - 1,
    )


def told(move: Mapping[str, Any]) -> Markup:
    """Return what a move makes of its rows, as attributes that the script puts in words."""
    if move["gained"] is None:
        return Markup("")
    return Markup(' data-gained="{gained}" data-lost="{lost}"').format(**move)
