"""A bar chart as SVG, written by hand: no library is needed for a dozen rectangles."""

from collections.abc import Sequence
from html import escape
from typing import Final

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
