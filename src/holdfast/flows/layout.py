"""Where the activities of a flow stand in a drawing: in layers, with few crossings, near those they come after.

The layer of an activity is the longest way to it. An edge that passes layers has a point in each of them. The order in
a layer is that of the mean place of the neighbours, gone through down and up; then everything moves as close to its
neighbours as the distance to the next one allows.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

ROUNDS: Final = 6
"""How often the order and the places are improved. More do not change a drawing any more."""
MOST_POINTS: Final = 5_000
"""Points of edges that pass layers. A flow with more of them has its long edges drawn straight."""
POINT_SPACE: Final = 28.0
"""How far an edge that passes a layer keeps from its neighbours."""


class Layout(NamedTuple):
    """The layer and the middle of each node, and the points that each edge passes on its way."""

    layers: Mapping[str, int]
    middles: Mapping[str, float]
    ways: Mapping[tuple[str, str], Sequence[float]]
    width: float


def lay_out(sources: Mapping[str, Sequence[str]], space: float) -> Layout:
    """Lay out a graph without circles: for each node, those that it comes after. `space` is what a node needs."""
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
    """The longest way to each node."""
    targets: dict[str, list[str]] = {name: [] for name in sources}
    waits_for = {name: len(set(above)) for name, above in sources.items()}
    for name, above in sources.items():
        for source in set(above):
            targets[source].append(name)
    layers = dict.fromkeys(sources, 0)
    ready = [name for name, count in waits_for.items() if not count]
    for name in ready:  # it grows while it is gone through
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
    """The rows of nodes and points, what each has above it, and which of them are points."""
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
    """Put each row into the order of the mean place of the neighbours in the row before."""
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
    """The middle of everything, as near to its neighbours as the distances allow."""
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
    """How far two neighbours keep from each other; the points of edges need less than nodes."""
    return sum(POINT_SPACE / 2 if name in points else space / 2 for name in (first, second))


def _spread(wanted: list[float], gaps: list[float]) -> list[float]:
    """The places nearest to the wanted ones that keep the gaps: blocks that would overlap share their mean."""
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
