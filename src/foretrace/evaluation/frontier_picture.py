"""The frontier as a picture: what each threshold saves, over the tool time that it wastes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

from foretrace.core.errors import Setting, UsageError
from foretrace.core.files import replace_file
from foretrace.evaluation.replay_report import ReplayReport

_WIDTH, _HEIGHT = 640, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 40, 60
"""Margins around the axes, in pixels."""
_LABEL_GAP = 36.0
"""Pixels between the points that get a label."""
_X_TITLE, _Y_TITLE = "wasted tool time, % of the time", "time saved, %"


def check_picture(path: Path) -> None:
    """Refuse a picture of another kind.

    Raises:
        UsageError: its name does not end in `.svg`.
    """
    if path.suffix.lower() != ".svg":
        raise UsageError(Setting("frontier", str(path)), ": the name of the picture ends in .svg")


def write_picture(path: Path, report: ReplayReport) -> None:
    """Draw the frontier of a report as SVG.

    Raises:
        UsageError: the picture cannot be drawn (`check_picture`).
        StoreError: it cannot be written.
    """
    check_picture(path)
    replace_file(path, draw_svg(*_list_points(report)).encode())


def _list_points(report: ReplayReport) -> tuple[list[tuple[str, float, float]], float]:
    """Label, wasted time and saving of each point in per cent of the time, and the saving of the oracle."""
    base_s = report.base_s or 1.0
    points = [
        ("all" if point.threshold is None else f"{point.threshold:.3g}", point.wasted_s / base_s, point.share or 0.0)
        for point in report.frontier
    ]
    return [(label, 100 * x, 100 * y) for label, x, y in points], 100 * (report.oracle.share or 0.0)


def draw_svg(points: list[tuple[str, float, float]], most: float) -> str:
    """An SVG of points (label, x, y), joined in their order, below a line at `most`."""
    x_ticks = list_ticks(max((x for _, x, _ in points), default=0.0))
    y_ticks = list_ticks(max(most, *(y for _, _, y in points), 0.0))
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        return _LEFT + width * x / x_ticks[-1], _TOP + height * (1 - y / y_ticks[-1])

    def draw() -> Iterator[str]:
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
            f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12" fill="#333">'
        )
        yield f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
        for tick in x_ticks:
            x, _ = place(tick, 0)
            yield _draw_line(x, _TOP, x, _TOP + height, "#ddd")
            yield _draw_text(x, _TOP + height + 18, f"{tick:g}")
        for tick in y_ticks:
            _, y = place(0, tick)
            yield _draw_line(_LEFT, y, _LEFT + width, y, "#ddd")
            yield _draw_text(_LEFT - 8, y + 4, f"{tick:g}", anchor="end")
        _, y = place(0, most)
        yield _draw_line(_LEFT, y, _LEFT + width, y, "#2a7", dashed=True)
        yield _draw_text(_LEFT + width - 4, y - 6, f"perfect predictor {most:.3g} %", anchor="end", colour="#2a7")
        yield _draw_text(_LEFT + width / 2, _HEIGHT - 18, _X_TITLE)
        yield _draw_text(_LEFT, _TOP - 18, f"{_Y_TITLE}, by threshold", anchor="start")
        placed = [place(x, y) for _, x, y in points]
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        yield f'<polyline points="{joined}" fill="none" stroke="#26c" stroke-width="1.5"/>'
        labelled: list[tuple[float, float]] = []
        for (label, _, _), (x, y) in zip(points, placed, strict=True):
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="#26c"/>'
            if all(math.dist((x, y), other) >= _LABEL_GAP for other in labelled):
                labelled.append((x, y))
                yield _draw_text(x, y - 9, label)
        yield "</svg>"

    return "\n".join(draw()) + "\n"


def list_ticks(highest: float) -> list[float]:
    """From 0 to at least `highest` in four to ten even steps of 1, 2 or 5 times a power of ten."""
    if not highest > 0:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(highest))
    size = next(size for size in (power / 5, power / 2, power, 2 * power) if math.ceil(highest / size) <= 6)
    return [float(f"{number * size:.6g}") for number in range(math.ceil(highest / size) + 1)]


def _draw_line(x1: float, y1: float, x2: float, y2: float, colour: str, *, dashed: bool = False) -> str:
    dashes = ' stroke-dasharray="6 4"' if dashed else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dashes}/>'


def _draw_text(x: float, y: float, text: str, *, anchor: str = "middle", colour: str = "#333") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'
