"""A flow as SVG, readable in light and dark mode, with the digits of an instance if they are given.

Nodes are drawn in layers. The layer of a node is the length of the longest path to it. An edge that crosses layers has
a point in each of them. The order in a layer is that of the mean position of the neighbours, improved downwards and
upwards; then each node moves as close to its neighbours as the distances allow.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Final, NamedTuple

from holdfast.core.collation import Digit
from holdfast.core.flow.definition import After, CycleAction, FlowDefinition, Node
from holdfast.core.flow.graph import Join
from holdfast.flows.labels import detail_of, edge_label, hold_label, kind_of, safe, shorten, state_of

ROUNDS: Final = 6
"""How often the order and the positions are improved. More rounds do not change a drawing."""
MOST_POINTS: Final = 5_000
"""Points of edges that cross layers. With more of them, long edges are drawn straight."""
POINT_SPACE: Final = 28.0
"""The distance of an edge that crosses a layer from its neighbours."""


class Layout(NamedTuple):
    """The layer and the middle of each node, and the points of each edge."""

    layers: Mapping[str, int]
    middles: Mapping[str, float]
    ways: Mapping[tuple[str, str], Sequence[float]]
    width: float


def lay_out(sources: Mapping[str, Sequence[str]], space: float) -> Layout:
    """Lay out an acyclic graph. `sources` has the sources of each node, `space` is the width of a node."""
    layers = _layers(sources)
    rows, neighbours_above, points = _rows(sources, layers)
    neighbours_below: dict[str, list[str]] = {}
    for name, above in neighbours_above.items():
        for one in above:
            neighbours_below.setdefault(one, []).append(name)
    for number in range(ROUNDS):
        down = number % 2 == 0
        _reorder(rows if down else rows[::-1], neighbours_above if down else neighbours_below)
    middles = _middles(rows, neighbours_above, neighbours_below, space, points)
    ways = {
        (source, target): [middles[point] for point in several]
        for target, above in sources.items()
        for source in above
        if (several := _points_of(source, target, layers, points))
    }
    width = max(middles.values(), default=0.0) + space / 2
    return Layout(layers, {name: middles[name] for name in sources}, ways, width)


def _layers(sources: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The length of the longest path to each node."""
    targets: dict[str, list[str]] = {name: [] for name in sources}
    waits_for = {name: len(set(above)) for name, above in sources.items()}
    for name, above in sources.items():
        for source in set(above):
            targets[source].append(name)
    layers = dict.fromkeys(sources, 0)
    ready = [name for name, count in waits_for.items() if not count]
    for name in ready:  # the list grows in the loop
        for target in targets[name]:
            layers[target] = max(layers[target], layers[name] + 1)
            waits_for[target] -= 1
            if not waits_for[target]:
                ready.append(target)
    return layers


def _point(source: str, target: str, layer: int) -> str:
    return f"{source}>{target}>{layer}"


def _points_of(source: str, target: str, layers: Mapping[str, int], points: frozenset[str]) -> list[str]:
    names = [_point(source, target, layer) for layer in range(layers[source] + 1, layers[target])]
    return [name for name in names if name in points]


def _rows(
    sources: Mapping[str, Sequence[str]], layers: Mapping[str, int]
) -> tuple[list[list[str]], dict[str, list[str]], frozenset[str]]:
    """The rows of nodes and points, the neighbours of each in the row above, and the points."""
    rows: list[list[str]] = [[] for _ in range(max(layers.values(), default=0) + 1)]
    above: dict[str, list[str]] = {}
    points: set[str] = set()
    passed = sum(layers[name] - layers[source] - 1 for name, several in sources.items() for source in several)
    for name in sorted(sources):
        rows[layers[name]].append(name)
        above[name] = []
        for source in dict.fromkeys(sources[name]):
            last = source
            for layer in range(layers[source] + 1, layers[name]) if passed <= MOST_POINTS else ():
                point = _point(source, name, layer)
                points.add(point)
                rows[layer].append(point)
                above[point] = [last]
                last = point
            above[name].append(last)
    return rows, above, frozenset(points)


def _reorder(rows: Iterable[list[str]], neighbours: Mapping[str, list[str]]) -> None:
    """Sort each row by the mean position of the neighbours in the row before."""
    places: dict[str, float] = {}
    for row in rows:
        before = {name: float(place) for place, name in enumerate(row)}
        means = {
            name: _mean([places[one] for one in neighbours.get(name, ()) if one in places], before[name])
            for name in row
        }
        row.sort(key=lambda name: (means[name], before[name]))
        width = max(len(row) - 1, 1)
        places.update({name: place / width * 1_000 for place, name in enumerate(row)})


def _mean(several: list[float], otherwise: float) -> float:
    return sum(several) / len(several) if several else otherwise


def _middles(
    rows: list[list[str]],
    above: Mapping[str, list[str]],
    below: Mapping[str, list[str]],
    space: float,
    points: frozenset[str],
) -> dict[str, float]:
    """The middle of each node and point, as close to its neighbours as the distances allow."""
    middles: dict[str, float] = {}
    for row in rows:
        for place, name in enumerate(row):
            middles[name] = place * space
    for number in range(2 * ROUNDS):
        for row in rows if number % 2 == 0 else rows[::-1]:
            near = above if number % 2 == 0 else below
            wanted = [_mean([middles[one] for one in near.get(name, ())], middles[name]) for name in row]
            gaps = [_gap(first, second, space, points) for first, second in pairwise(row)]
            middles.update(zip(row, _spread(wanted, gaps), strict=True))
    leftmost = min(middles.values(), default=0.0)
    return {name: middle - leftmost + space / 2 for name, middle in middles.items()}


def _gap(first: str, second: str, space: float, points: frozenset[str]) -> float:
    """The least distance of two neighbours; points of edges need less than nodes."""
    return sum(POINT_SPACE / 2 if name in points else space / 2 for name in (first, second))


def _spread(wanted: list[float], gaps: list[float]) -> list[float]:
    """The positions nearest to the wanted ones that keep the gaps: blocks that would overlap share their mean."""
    offsets = [0.0]
    for gap in gaps:
        offsets.append(offsets[-1] + gap)
    blocks: list[tuple[float, int]] = []
    for value, offset in zip(wanted, offsets, strict=False):
        mean, count = value - offset, 1
        while blocks and blocks[-1][0] > mean:
            other, others = blocks.pop()
            mean, count = (mean * count + other * others) / (count + others), count + others
        blocks.append((mean, count))
    spread = [mean for mean, count in blocks for _ in range(count)]
    return [mean + offset for mean, offset in zip(spread, offsets, strict=False)]


BOX_WIDTH: Final = 176
BOX_HEIGHT: Final = 46
SPACE: Final = 204
GAP: Final = 62
MARGIN: Final = 16
HEAD: Final = 30
LINE: Final = 14
ID_COLUMNS: Final = 21
DETAIL_COLUMNS: Final = 28
LABEL_COLUMNS: Final = 32
BACK: Final = 26
"""The distance of the edge of a cycle from the boxes."""

LIGHT: Final = {
    "ground": "#ffffff", "text": "#1c2430", "faint": "#5b6675", "line": "#7b8794", "box": "#f4f6f9", "edge": "#c3cbd5",
    "error": "#c62f2f", "back": "#7a4fc4", "d9": "#7b8794", "d8": "#1f6fd6", "d7": "#c62f2f", "d6": "#1d8348",
    "d5": "#b36b00", "d4": "#0b7d83", "d3": "#a3acb8",
}  # fmt: skip
DARK: Final = {
    "ground": "#11161d", "text": "#e6ebf2", "faint": "#a3aebb", "line": "#8a96a5", "box": "#1c2430", "edge": "#3c4756",
    "error": "#ff7b72", "back": "#b898f5", "d9": "#8a96a5", "d8": "#62a8ff", "d7": "#ff7b72", "d6": "#56c27f",
    "d5": "#f0b14a", "d4": "#4fc7cd", "d3": "#66717f",
}  # fmt: skip
BORDERS: Final = {
    "trigger": "d6", "run": "edge", "flow": "d8", "wait": "d5", "cycle": "back", "interrupt": "error", "raise": "d4",
}  # fmt: skip
"""The colour of the border of each kind of node, without the digits of an instance."""
FONT: Final = "system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif"
MONOSPACE: Final = 'font-family="ui-monospace,monospace"'
TEXTS: Final = {
    "name": ("text", 'font-size="13" font-weight="600"'),
    "detail": ("faint", 'font-size="11"'),
    "title": ("text", 'font-size="14" font-weight="600"'),
    "key": ("faint", f'font-size="11" {MONOSPACE}'),
    "label": ("faint", 'font-size="11"'),
    "label error": ("error", 'font-size="11"'),
    "halo": ("ground", 'font-size="11" stroke-width="4" stroke-linejoin="round" aria-hidden="true"'),
    "digit": ("ground", f'font-size="12" font-weight="700" {MONOSPACE}'),
}
"""The colour and the attributes of each kind of label."""
EDGES: Final = {
    "plain": ("line", ""), "error": ("error", ' stroke-dasharray="5 4"'), "back": ("back", ' stroke-dasharray="2 4"'),
}  # fmt: skip


def _colours(fill: str = "", stroke: str = "", more: str = "") -> str:
    """The attributes that paint an element.

    Every program that draws SVG reads the colours in the attributes. A browser prefers the rules of `_style` for the
    classes, whose variables follow its dark or light mode.
    """
    classes = [more, f"f-{fill}" if fill else "", f"s-{stroke}" if stroke else ""]
    painted = [
        f'class="{" ".join(filter(None, classes))}"',
        f'fill="{LIGHT[fill] if fill else "none"}"',
        f'stroke="{LIGHT[stroke]}"' if stroke else "",
    ]
    return " ".join(filter(None, painted))


def _style() -> str:
    """Rules for browsers. Other programs skip `@supports`; some of them read a variable as black."""
    light = "".join(f"--{name}:{value};" for name, value in LIGHT.items())
    dark = "".join(f"--{name}:{value};" for name, value in DARK.items())
    rules = "".join(f".f-{name}{{fill:var(--{name})}}.s-{name}{{stroke:var(--{name})}}" for name in LIGHT)
    return (
        f"@supports (color:var(--text)){{svg{{color-scheme:light dark;{light}}}\n"
        f"@media(prefers-color-scheme:dark){{svg{{{dark}}}}}\n{rules}}}"
    )


class Drawing(NamedTuple):
    """A flow with its layout, and the digits and children of an instance."""

    definition: FlowDefinition
    layout: Layout
    tops: Sequence[int]
    shift: float
    """Added to each horizontal position of the layout."""
    sides: Mapping[str, float]
    """The horizontal position of the edge of each cycle."""
    width: int
    digits: Mapping[str, str]
    children: Mapping[str, Sequence[str]]
    key: str


def draw_svg(
    definition: FlowDefinition,
    *,
    digits: Mapping[str, str] | None = None,
    children: Mapping[str, Sequence[str]] | None = None,
    key: str = "",
) -> str:
    """The flow as SVG.

    `digits` has the digit of each activity of an instance, `children` the composite keys of the flows that an
    activity started, and `key` the whole key.
    """
    nodes = {node.id: node for node in definition.nodes}
    sources = {node.id: [edge.source for edge in node.after] for node in nodes.values()}
    layout = lay_out(sources, SPACE)
    sides = _sides(nodes, layout)
    rightmost = max([*layout.middles.values()]) + BOX_WIDTH / 2
    shift = MARGIN - min([(SPACE - BOX_WIDTH) / 2, *sides.values()])
    width = round(max([rightmost, *sides.values()]) + shift + MARGIN)
    tops = _tops(nodes, layout)
    drawing = Drawing(definition, layout, tops, shift, sides, width, digits or {}, children or {}, key)
    height = tops[-1] + BOX_HEIGHT + MARGIN
    name = escape(safe(definition.name))
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONT}" role="img" aria-label="The flow {name}">',
        f"<title>The flow {name}</title>",
        f"<style>{_style()}</style>",
        *_markers(),
        f'<rect {_colours("ground")} width="{width}" height="{height}" rx="8"/>',
        *_heading(drawing),
        *(line for node in definition.nodes for edge in node.after for line in _edge(drawing, node, edge)),
        *(line for node in definition.nodes for line in _way_back(drawing, node)),
        *(line for node in definition.nodes for line in _box(drawing, node)),
        *(line for node in definition.nodes for line in _labels(drawing, node)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _tops(nodes: Mapping[str, Node], layout: Layout) -> list[int]:
    """The top of each layer. Several labels above one box need more room."""
    most: dict[int, int] = {}
    for node in nodes.values():
        labels = sum(bool(edge_label(node, edge)) for edge in node.after)
        layer = layout.layers[node.id]
        most[layer] = max(most.get(layer, 0), labels)
    tops = [HEAD + MARGIN]
    for layer in range(1, max(layout.layers.values(), default=0) + 1):
        tops.append(tops[-1] + BOX_HEIGHT + GAP + LINE * max(0, most.get(layer, 0) - 1))
    return tops


def _sides(nodes: Mapping[str, Node], layout: Layout) -> dict[str, float]:
    """The side on which the edge of each cycle runs: the left one if both ends are the leftmost of their rows."""
    sides: dict[str, float] = {}
    for node in nodes.values():
        if not isinstance(node.action, CycleAction) or node.action.target not in nodes:
            continue
        rows = range(layout.layers[node.action.target], layout.layers[node.id] + 1)
        across = {name: layout.middles[name] for name, layer in layout.layers.items() if layer in rows}
        ends = [
            [middle for name, middle in across.items() if layout.layers[name] == layout.layers[end]]
            for end in (node.id, node.action.target)
        ]
        is_left = all(min(row) == across[end] for row, end in zip(ends, (node.id, node.action.target), strict=True))
        offset = BOX_WIDTH / 2 + BACK
        sides[node.id] = min(across.values()) - offset if is_left else max(across.values()) + offset
    return sides


def _markers() -> Iterator[str]:
    yield "<defs>"
    for kind, (colour, _) in EDGES.items():
        yield (
            f'<marker id="{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path {_colours(colour)} d="M0 0L8 4L0 8z"/></marker>'
        )
    yield "</defs>"


def _heading(drawing: Drawing) -> Iterator[str]:
    definition = drawing.definition
    version = f" {definition.version}" if definition.version else ""
    columns = (drawing.width - 2 * MARGIN) // 8
    title = shorten(f"{definition.name}{version}", columns)
    yield _text("title", MARGIN, MARGIN + 8, title, anchor="start")
    if drawing.key:
        key = shorten(drawing.key, (drawing.width - 2 * MARGIN) // 7)
        yield _text("key", MARGIN, MARGIN + 24, key, anchor="start")


def _place(drawing: Drawing, node: str) -> tuple[float, int]:
    """The middle of a box and its top."""
    return drawing.layout.middles[node] + drawing.shift, drawing.tops[drawing.layout.layers[node]]


def _box(drawing: Drawing, node: Node) -> Iterator[str]:
    middle, top = _place(drawing, node.id)
    left = middle - BOX_WIDTH / 2
    digit = drawing.digits.get(node.id, "")
    state = state_of(digit, node.hold)
    detail = ", ".join(part for part in (detail_of(node.action), hold_label(node.hold)) if part)
    composite = " ".join(f"1{child}2" for child in drawing.children.get(node.id, ()))
    title = ", ".join(part for part in (f"{node.id}: {detail}", state and f"{digit} {state}", composite) if part)
    kind = kind_of(node.action)
    corner = BOX_HEIGHT / 2 if kind == "trigger" else 7
    yield f'<g class="{kind}{f" d{digit}" if state else ""}"><title>{escape(safe(title))}</title>'
    border = f"d{digit}" if state else BORDERS[kind]
    dashes = ' stroke-dasharray="3 3"' if digit == str(Digit.SKIPPED.value) else ""
    size = f'width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="{corner:g}" stroke-width="{2.5 if state else 1.5}"{dashes}'
    yield f'<rect {_colours("box", border, "box")} x="{left:.1f}" y="{top}" {size}/>'
    if kind == "flow":
        yield (
            f'<rect {_colours("", "d8")} stroke-width="0.75" x="{left + 3.5:.1f}" y="{top + 3.5}" '
            f'width="{BOX_WIDTH - 7}" height="{BOX_HEIGHT - 7}" rx="4"/>'
        )
    yield _text("name", middle, top + 20, shorten(node.id, ID_COLUMNS))
    yield _text("detail", middle, top + 36, shorten(_below(detail, state, composite), DETAIL_COLUMNS))
    if state:
        yield f'<circle {_colours(f"d{digit}")} cx="{left + BOX_WIDTH - 4:.1f}" cy="{top + 4}" r="9"/>'
        yield _text("digit", left + BOX_WIDTH - 4, top + 8, digit)
    yield "</g>"


def _below(detail: str, state: str, composite: str) -> str:
    """The second line of a box: its state if that is known, and what it does."""
    if composite:
        return f"{state} {composite}".strip()
    return f"{state} \u00b7 {detail}" if state else detail


def _text(kind: str, x: float, y: float, text: str, *, anchor: str = "middle") -> str:
    colour, attributes = TEXTS[kind]
    painted = _colours(colour, colour if kind == "halo" else "", kind)
    return f'<text {painted} {attributes} x="{x:.1f}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


def _edge(drawing: Drawing, node: Node, edge: After) -> Iterator[str]:
    """An edge as a curve from box to box, through its points."""
    layout, shift = drawing.layout, drawing.shift
    target = node.id
    from_x, from_top = _place(drawing, edge.source)
    to_x, to_top = _place(drawing, target)
    x, y = from_x, float(from_top + BOX_HEIGHT)
    curve = [f"M{x:.1f} {y:g}"]
    first = layout.layers[edge.source] + 1
    for number, point in enumerate(layout.ways.get((edge.source, target), ())):
        top = drawing.tops[first + number]
        curve += [_bend(x, y, point + shift, top), f"V{top + BOX_HEIGHT}"]
        x, y = point + shift, float(top + BOX_HEIGHT)
    curve.append(_bend(x, y, to_x, to_top - 2))
    kind = "plain" if edge.catch is None else "error"
    title = escape(safe(f"{edge.source} -> {target} {edge_label(node, edge)}".strip()))
    yield f'<path {_line(kind)} d="{"".join(curve)}"><title>{title}</title></path>'


def _line(kind: str) -> str:
    """The attributes of an edge of a kind."""
    colour, dashes = EDGES[kind]
    return f'{_colours("", colour, f"edge {kind}")} stroke-width="1.4"{dashes} marker-end="url(#{kind})"'


def _bend(x: float, y: float, to_x: float, to_y: float) -> str:
    half = (to_y - y) / 2
    return f"C{x:.1f} {y + half:g} {to_x:.1f} {to_y - half:g} {to_x:.1f} {to_y:g}"


def _way_back(drawing: Drawing, node: Node) -> Iterator[str]:
    """The edge of a cycle, from the side of its box up to the side of its target."""
    if not isinstance(node.action, CycleAction) or node.id not in drawing.sides:
        return
    side = drawing.sides[node.id] + drawing.shift
    from_x, from_top = _place(drawing, node.id)
    to_x, to_top = _place(drawing, node.action.target)
    out = 1 if side > from_x else -1
    start, end, turn = from_x + out * BOX_WIDTH / 2, to_x + out * (BOX_WIDTH / 2 + 2), side - out * 8
    from_y, to_y = from_top + BOX_HEIGHT / 2, to_top + BOX_HEIGHT / 2
    yield (
        f'<path {_line("back")} d="M{start:.1f} {from_y:g}H{turn:.1f}'
        f"Q{side:.1f} {from_y:g} {side:.1f} {from_y - 8:g}V{to_y + 8:g}Q{side:.1f} {to_y:g} {turn:.1f} {to_y:g}"
        f'H{end:.1f}"/>'
    )


def _labels(drawing: Drawing, node: Node) -> Iterator[str]:
    """The labels of the edges into a box, and its join, above the box."""
    middle, top = _place(drawing, node.id)
    lines = [(label, edge.catch is not None) for edge in node.after if (label := edge_label(node, edge))]
    if node.join is Join.ANY:
        lines.insert(0, ("any of them", False))
    if node.when:
        lines.insert(0, (f"if {node.when}", False))
    for number, (label, is_error) in enumerate(lines):
        kind = "label error" if is_error else "label"
        shown = shorten(label, LABEL_COLUMNS)
        yield _text("halo", middle, top - 11 - LINE * number, shown)  # separates the label from the edges below it
        yield _text(kind, middle, top - 11 - LINE * number, shown)
