"""Charts as SVG, written by hand: bars against a target, ratios on a logarithmic scale, and lines."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

LABEL_WIDTH: Final = 330
BAR_WIDTH: Final = 380
VALUE_WIDTH: Final = 110
ROW_HEIGHT: Final = 26
TOP: Final = 44
LONGEST: Final = 2.0
"""The longest bar; a longer one is cut, and its figure has the full value."""
GOOD: Final = "#2e7d5b"
BAD: Final = "#b3402e"

Bar = tuple[str, float, str]
"""Label, length as a share of the target, and the figure beside it."""


def bar_chart(title: str, bars: Sequence[Bar]) -> str:
    """One row for each bar, with a line at 1."""
    width = LABEL_WIDTH + BAR_WIDTH + VALUE_WIDTH
    height = TOP + ROW_HEIGHT * len(bars) + 16
    mark = LABEL_WIDTH + BAR_WIDTH / LONGEST
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
        '<g font-family="sans-serif" font-size="13">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="22" font-weight="600" fill="#222">{escape(title)}</text>',
    ]
    for row, bar in enumerate(bars):
        parts += _row(TOP + row * ROW_HEIGHT, bar)
    parts += [
        f'<line x1="{mark}" y1="{TOP - 8}" x2="{mark}" y2="{height - 10}" stroke="#222" stroke-dasharray="4 3"/>',
        "</g></svg>",
    ]
    return "\n".join(parts) + "\n"


def _row(top: int, bar: Bar) -> list[str]:
    label, share, figure = bar
    length = max(1.0, min(share, LONGEST) / LONGEST * BAR_WIDTH)
    colour = GOOD if share <= 1 else BAD
    return [
        f'<text x="{LABEL_WIDTH - 8}" y="{top + 15}" text-anchor="end" fill="#222">{escape(label)}</text>',
        f'<rect x="{LABEL_WIDTH}" y="{top + 3}" width="{length:.1f}" height="16" fill="{colour}"/>',
        f'<text x="{LABEL_WIDTH + BAR_WIDTH + 8}" y="{top + 15}" fill="#222">{escape(figure)}</text>',
    ]


# ---------------------------------------------------------------- ratios

RATIO_LABEL_WIDTH: Final = 380
MARGIN: Final = 12


class RatioRow(NamedTuple):
    """One ratio: its median, and the least and the most of the rounds."""

    label: str
    median: float
    least: float
    most: float


def ratio_chart(title: str, rows: Sequence[RatioRow]) -> str:
    """Bars from 1 to the right for ratios above it, to the left for ratios below it."""
    low = math.floor(min([0.0, *(math.log10(row.least) for row in rows)]))
    high = math.ceil(max([1.0, *(math.log10(row.most) for row in rows)]))

    def place(value: float) -> float:
        return RATIO_LABEL_WIDTH + (math.log10(value) - low) / (high - low) * BAR_WIDTH

    width = RATIO_LABEL_WIDTH + BAR_WIDTH + VALUE_WIDTH
    height = TOP + ROW_HEIGHT * len(rows) + 30
    parts = _beginning(title, width, height)
    for power in range(low, high + 1):
        at = place(10.0**power)
        parts.append(_line(at, TOP - 8, at, height - 24, "#222" if power == 0 else "#ddd"))
        parts.append(_text(at, height - 8, f"{10.0**power:g}", "middle"))
    for number, row in enumerate(rows):
        top = TOP + number * ROW_HEIGHT
        begin, end = sorted((place(1.0), place(row.median)))
        colour = GOOD if row.median >= 1 else BAD
        parts += [
            _text(RATIO_LABEL_WIDTH - 8, top + 15, row.label, "end"),
            f'<rect x="{begin:.1f}" y="{top + 3}" width="{max(1.0, end - begin):.1f}" height="16" fill="{colour}"/>',
            _line(place(row.least), top + 11, place(row.most), top + 11, "#222"),
            _text(RATIO_LABEL_WIDTH + BAR_WIDTH + 8, top + 15, f"{row.median:.3g} x"),
        ]
    return "\n".join([*parts, "</g></svg>"]) + "\n"


# ---------------------------------------------------------------- lines

PLOT_WIDTH: Final = 520
PLOT_HEIGHT: Final = 220
PLOT_TOP: Final = 58
LEFT: Final = 70
LEGEND_WIDTH: Final = 270
COLOURS: Final = ("#2e7d5b", "#2f5fa8", "#b3402e", "#8a6d1d", "#6b4a9c", "#444444")
TICKS: Final = 5

Points = Sequence[tuple[float, float]]


def line_chart(title: str, x_title: str, y_title: str, lines: Mapping[str, Points], *, is_log_x: bool = False) -> str:
    """One line with dots for each name; the vertical axis begins at 0."""
    values = [point for line in lines.values() for point in line]
    most = _round_up(max(y for _, y in values))
    xs = sorted({x for x, _ in values})

    def across(x: float) -> float:
        scale = math.log10 if is_log_x else float
        least, greatest = scale(xs[0]), scale(xs[-1])
        return LEFT + (scale(x) - least) / ((greatest - least) or 1) * PLOT_WIDTH

    def down(y: float) -> float:
        return PLOT_TOP + PLOT_HEIGHT - y / most * PLOT_HEIGHT

    width, height = LEFT + PLOT_WIDTH + LEGEND_WIDTH, PLOT_TOP + PLOT_HEIGHT + 52
    parts = _beginning(title, width, height)
    for tick in range(TICKS + 1):
        y = most * tick / TICKS
        parts += [
            _line(LEFT, down(y), LEFT + PLOT_WIDTH, down(y), "#ddd"),
            _text(LEFT - 8, down(y) + 4, _axis(y), "end"),
        ]
    for x in xs if is_log_x or len(xs) <= TICKS + 2 else [xs[-1] * tick / TICKS for tick in range(TICKS + 1)]:
        if x >= xs[0]:
            parts.append(_text(across(x), PLOT_TOP + PLOT_HEIGHT + 18, _axis(x), "middle"))
    parts.append(_text(LEFT + PLOT_WIDTH / 2, height - 10, x_title, "middle"))
    parts.append(_text(LEFT, PLOT_TOP - 8, y_title))
    for number, (name, points) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{across(x):.1f}" cy="{down(y):.1f}" r="3" fill="{colour}"/>' for x, y in points]
        top = PLOT_TOP + 8 + 20 * number
        parts.append(f'<rect x="{LEFT + PLOT_WIDTH + 16}" y="{top}" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(LEFT + PLOT_WIDTH + 34, top + 11, name))
    return "\n".join([*parts, "</g></svg>"]) + "\n"


def _round_up(value: float) -> float:
    """The next number with one digit that means something, or one and a half, above a value."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(power * step for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if power * step >= value)


def _axis(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g} M"
    return f"{value / 1_000:g} k" if value >= 10_000 else f"{value:g}"


def _beginning(title: str, width: float, height: float) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}">',
        '<g font-family="sans-serif" font-size="13">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>',
        _text(MARGIN, 22, title, weight="600"),
    ]


def _text(x: float, y: float, text: str, anchor: str = "start", weight: str = "400") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" fill="#222">{escape(text)}</text>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'
