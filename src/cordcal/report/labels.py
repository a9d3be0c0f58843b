"""Where the labels of a scatter plot go, in SVG and matplotlib: not on each other, not on marks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Approximate width of a character and height of a line in a label.
_CHARACTER_WIDTH, _LINE_HEIGHT = 6.5, 12
# A label that is more lines away from its point has a line to it.
_MAX_LINES_AWAY = 1.5

Box = tuple[float, float, float, float]
"""Left, top, right and bottom."""


@dataclass(frozen=True)
class Label:
    """A label with its left end and its middle, and where a line from its point ends."""

    text: str
    point: tuple[float, float]
    left: float
    middle: float
    leader: tuple[float, float] | None


def place_labels(
    labels: Sequence[tuple[float, float, str]],
    marks: Sequence[tuple[float, float]],
    inside: Box,
) -> list[Label]:
    """Return the labels that fit next to their points, in pixels with y downwards.

    Parameters
    ----------
    labels : sequence of (x, y, text)
        The points and their texts.
    marks : sequence of (x, y)
        Marks that no label may cover.
    inside : tuple of float
        The box that labels stay in.

    Examples
    --------
    >>> first, second = place_labels([(50, 50, "a"), (50, 52, "b")], [(50, 50)], (0, 0, 99, 99))
    >>> first.middle != second.middle or first.left != second.left
    True
    """
    occupied = [(x - 5, y - 5, x + 5, y + 5) for x, y in marks]
    placed = []
    for x, y, text in sorted(labels, key=lambda label: label[1]):
        width = _CHARACTER_WIDTH * len(text)
        for left, middle in _positions(x, y, width):
            box = (left, middle - _LINE_HEIGHT / 2, left + width, middle + _LINE_HEIGHT / 2)
            if _contains(inside, box) and not any(_overlap(box, other) for other in occupied):
                occupied.append(box)
                leader = None
                if abs(middle - y) > _MAX_LINES_AWAY * _LINE_HEIGHT:
                    near = left if left > x else left + width
                    leader = round(near, 1), round(middle, 1)
                placed.append(Label(text, (x, y), left, middle, leader))
                break
    return placed


def _positions(pixel_x: float, pixel_y: float, width: float) -> Iterator[tuple[float, float]]:
    """Yield positions for a text around a point, the nearest first: its left end and its middle."""
    for step in (0, 1, -1, 2, -2, 3, -3):
        yield pixel_x + 9, pixel_y + step * _LINE_HEIGHT
        yield pixel_x - 9 - width, pixel_y + step * _LINE_HEIGHT
    yield pixel_x - width / 2, pixel_y + 1.2 * _LINE_HEIGHT
    yield pixel_x - width / 2, pixel_y - 1.2 * _LINE_HEIGHT
    # Further away, with a line to the point.
    for step in range(4, 15):
        for sign in (1, -1):
            yield pixel_x + 24, pixel_y + sign * step * _LINE_HEIGHT
            yield pixel_x - 24 - width, pixel_y + sign * step * _LINE_HEIGHT


def _contains(outer: Box, box: Box) -> bool:
    left, top, right, bottom = box
    return left >= outer[0] and top >= outer[1] and right <= outer[2] and bottom <= outer[3]


def _overlap(first: Box, second: Box) -> bool:
    left, top, right, bottom = first
    return left < second[2] and second[0] < right and top < second[3] and second[1] < bottom
