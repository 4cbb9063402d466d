"""The report about other engines: a table of figures, a table of ratios, the losses, and a plot."""

import statistics
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypedDict

from benchmarks.chart import RatioRow, ratio_chart
from benchmarks.machine import origin
from benchmarks.report import shown

PLOT: Final = "peers.svg"


class Cell(TypedDict):
    """The samples of one engine and workload, in the order of the rounds, or why there are none."""

    samples: list[dict[str, float]]
    problem: str


Cells = dict[str, dict[str, Cell]]
"""By engine and workload."""


class Column(NamedTuple):
    """A workload with the figure that is compared."""

    workload: str
    title: str
    figure: str
    unit: str
    is_rate: bool = False
    """Whether more is better."""


COLUMNS: Final = (
    Column("B1", "B1 steps/s", "steps_per_s", "steps/s", True),
    Column("B2", "B2 p50 ms", "p50_ms", "ms"),
    Column("B3", "B3 s", "seconds", "s"),
    Column("B4", "B4 steps/s", "steps_per_s", "steps/s", True),
    Column("B5", "B5 events/s", "events_per_s", "events/s", True),
    Column("B6", "B6 s", "seconds", "s"),
    Column("B7", "B7 s", "seconds", "s"),
)
BY_WORKLOAD: Final = {column.workload: column for column in COLUMNS}
PAIRS: Final = (
    ("Holdfast, SQLite", "DBOS, SQLite"),
    ("Holdfast, SQLite", "Restate"),
    ("Holdfast, PostgreSQL", "DBOS, PostgreSQL"),
    ("Holdfast, PostgreSQL", "absurd, PostgreSQL"),
    ("Holdfast, PostgreSQL", "Restate"),
)


def shown_cell(workload: str, cell: Cell) -> str:
    """The median with the least and the most, or the reason why there is no figure."""
    samples = cell["samples"]
    if not samples:
        return cell["problem"]
    if failed := max(sample.get("failed", 0) for sample in samples):
        return f"{failed:g} of {samples[0]['count']:g} fail"
    values = [sample[BY_WORKLOAD[workload].figure] for sample in samples]
    text = shown(statistics.median(values))
    return text if len(values) == 1 else f"{text} ({shown(min(values))}..{shown(max(values))})"


def ratios(cells: Cells, ours: str, theirs: str, column: Column) -> list[float]:
    """How many times as fast Holdfast is, for each round that both have."""
    mine = _usable(cells, ours, column)
    other = _usable(cells, theirs, column)
    pairs = zip(mine, other, strict=False)
    return [own / their if column.is_rate else their / own for own, their in pairs]


def _usable(cells: Cells, name: str, column: Column) -> list[float]:
    cell = cells.get(name, {}).get(column.workload)
    if cell is None or any(sample.get("failed") for sample in cell["samples"]):
        return []
    return [sample[column.figure] for sample in cell["samples"]]


def _compared(cells: Cells) -> Iterator[tuple[str, str, Column, list[float]]]:
    for ours, theirs in PAIRS:
        for column in COLUMNS:
            if found := ratios(cells, ours, theirs, column):
                yield ours, theirs, column, found


def markdown(report: dict[str, Any]) -> str:
    """The part of a page that has the figures."""
    cells: Cells = report["cells"]
    columns = [column for column in COLUMNS if any(column.workload in cell for cell in cells.values())]
    lines = [
        f"{origin(report)} Scale {report['scale']:g}. Packages: `{'`, `'.join(report['packages'])}`.",
        *report["skipped"],
        "",
        "Medians, in brackets the least and the most of the rounds:",
        "",
        f"| engine | {' | '.join(column.title for column in columns)} |",
        f"|{'---|' * (len(columns) + 1)}",
    ]
    for name, found in cells.items():
        row = [
            shown_cell(column.workload, found[column.workload]) if column.workload in found else ""
            for column in columns
        ]
        lines.append(f"| {name} | {' | '.join(row)} |")
    lines += ["", "How many times as fast Holdfast is (median of the ratios of each round, least..most):", ""]
    lines += [f"| | {' | '.join(column.workload for column in columns)} |", f"|{'---|' * (len(columns) + 1)}"]
    for ours, theirs in PAIRS:
        if theirs in cells:
            row = [_shown_ratio(ratios(cells, ours, theirs, column)) for column in columns]
            lines.append(f"| {ours} over {theirs} | {' | '.join(row)} |")
    return "\n".join([*lines, "", losses(cells), ""])


def _shown_ratio(found: list[float]) -> str:
    if not found:
        return "-"
    text = shown(statistics.median(found))
    return text if len(found) == 1 else f"{text} ({shown(min(found))}..{shown(max(found))})"


def losses(cells: Cells) -> str:
    """The comparisons in which Holdfast is slower, in one sentence."""
    found = [
        f"{column.workload} {ours} against {theirs} ({shown(statistics.median(each))})"
        for ours, theirs, column, each in _compared(cells)
        if statistics.median(each) < 1
    ]
    if not found:
        return "Losses: in none of these comparisons is Holdfast slower."
    return f"Losses: Holdfast is slower in {', '.join(found)}."


def drawings(report: dict[str, Any]) -> dict[str, str]:
    """The plot of the ratios."""
    rows = [
        RatioRow(f"{column.workload}  {ours} over {theirs}", statistics.median(each), min(each), max(each))
        for column in COLUMNS
        for ours, theirs, own, each in _compared(report["cells"])
        if own is column
    ]
    return {PLOT: ratio_chart("How many times as fast Holdfast is (logarithmic; least, median and most)", rows)}
