"""The tables and drawings of growth."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from benchmarks.chart import line_chart
from benchmarks.machine import origin
from benchmarks.measure import Sample
from benchmarks.report import shown

SQLITE: Final = "SQLite"
POSTGRES: Final = "PostgreSQL"
Series = dict[str, list[Sample]]
"""The samples of each store, by size."""


class Drawing(NamedTuple):
    """One drawing: a part of the report, what is drawn against what, and its titles."""

    file: str
    part: str
    title: str
    x: str
    x_title: str
    y_title: str
    figures: tuple[tuple[str, str], ...]
    """Names of figures, with the words behind the name of the store."""
    is_log: bool = False


DRAWINGS: Final = (
    Drawing(
        "growth-history.svg",
        "history",
        "Cost of a step against the length of the history",
        "steps",
        "steps so far in one workflow",
        "us per step",
        (("us_per_step", ""), ("cpu_us_per_step", ", processor")),
    ),
    Drawing(
        "growth-closed.svg",
        "closed",
        "B1 against closed instances in the store",
        "closed",
        "closed instances in the store",
        "us per step, 50 workflows in flight",
        (("us_per_step", ""), ("cpu_us_per_step", ", processor")),
        is_log=True,
    ),
    Drawing(
        "growth-list.svg",
        "closed",
        "holdfast list against closed instances in the store",
        "closed",
        "closed instances in the store",
        "ms",
        (("list_ms", ", list"), ("list_running_ms", ", list --state RUNNING")),
        is_log=True,
    ),
    Drawing(
        "growth-engines.svg",
        "engines",
        "Engines with work of their own on one store",
        "count",
        "engines",
        "runs per second, all engines",
        (("runs_per_s", ""),),
    ),
    Drawing(
        "growth-engines-cpu.svg",
        "engines",
        "Processor time of a run, with that of the database",
        "count",
        "engines",
        "ms per run",
        (("cpu_ms_per_run", ""),),
    ),
    Drawing(
        "growth-workers.svg",
        "workers",
        "B1 from a client apart from its workers",
        "count",
        "worker processes",
        "steps per second",
        (("steps_per_s", ""),),
    ),
    Drawing(
        "growth-payloads.svg",
        "payloads",
        "Cost of a step against the size of its argument and its result",
        "bytes",
        "bytes",
        "us per step, 10 workflows in flight",
        (("us_per_step", ""), ("cpu_us_per_step", ", processor")),
        is_log=True,
    ),
)


class Table(NamedTuple):
    """One table: a part of the report, the name of the first column, and the figures of each store."""

    part: str
    heading: str
    x: str
    x_title: str
    figures: tuple[tuple[str, str], ...]
    is_flat: bool = False
    """Whether the cost of a step should be the same in every row."""


TABLES: Final = (
    Table(
        "history",
        "**History.** One workflow with steps in a row. A turn appends to the history and does not read it.",
        "steps",
        "steps so far",
        (("us_per_step", "us, median"), ("cpu_us_per_step", "processor us")),
        is_flat=True,
    ),
    Table(
        "closed",
        "**Closed instances.** B1, and `holdfast list` without the start of the interpreter, with closed workflows of "
        "one step in the store. Processor time includes that of the database.",
        "closed",
        "closed instances",
        (
            ("us_per_step", "us per step"),
            ("cpu_us_per_step", "processor us"),
            ("list_ms", "list ms"),
            ("list_running_ms", "list --state RUNNING ms"),
        ),
        is_flat=True,
    ),
    Table(
        "engines",
        "**Engines.** Each has workflows of two steps of its own, four in flight. Processor time includes that of the "
        "database.",
        "count",
        "engines",
        (("runs_per_s", "runs/s"), ("cpu_ms_per_run", "processor ms per run")),
    ),
    Table(
        "workers",
        "**Workers.** B1 from a client apart from its workers, 50 in flight. All processes and the database share the "
        "cores of the machine; the column has those in use.",
        "count",
        "workers",
        (("steps_per_s", "steps/s"), ("cpu_us_per_step", "processor us per step"), ("cores", "cores")),
    ),
    Table(
        "payloads",
        "**Payloads.** Workflows of five steps, ten in flight. Each step takes and returns a string of this size.",
        "bytes",
        "bytes",
        (("us_per_step", "us per step"), ("cpu_us_per_step", "processor us")),
    ),
)
MOST_ROWS: Final = 6


def markdown(report: dict[str, Any]) -> str:
    """The part of a page that has the figures."""
    parts = [origin(report)]
    if "costs" in report:
        parts.append(_costs(report["costs"], report["rounds"]["costs"]))
    for table in TABLES:
        if table.part in report:
            words = [table.heading, _rounds(report["rounds"][table.part]), _trend(table, report[table.part])]
            parts.append("\n".join([" ".join(filter(None, words)), "", *_rows(table, report[table.part])]))
            parts += [
                f"![{drawing.title}](drawings/{drawing.file})" for drawing in DRAWINGS if drawing.part == table.part
            ]
    return "\n\n".join(parts) + "\n"


COSTS: Final = (
    ("steps_per_s", "steps/s"),
    ("worker_us_per_step", "processor of the worker, us"),
    ("database_us_per_step", "processor of the database, us"),
    ("stored_bytes_per_step", "bytes stored"),
    ("wal_bytes_per_step", "bytes of WAL"),
)


def _rounds(count: int) -> str:
    return "" if count == 1 else f"Medians of {count} rounds."


def _trend(table: Table, series: Series) -> str:
    """The last row over the first, where the figure should stay the same."""
    if not table.is_flat:
        return ""
    figure = "cpu_us_per_step"
    found = [f"{name} {samples[-1][figure] / samples[0][figure]:.2f}" for name, samples in series.items()]
    return f"Processor time of the last row over that of the first: {', '.join(found)}."


def _costs(found: dict[str, Sample], rounds: int) -> str:
    lines = [f"**A step of B1**, with its share of the instance. {_rounds(rounds)}".rstrip(), ""]
    lines += [f"| store | {' | '.join(title for _, title in COSTS)} |", f"|{'---|' * (len(COSTS) + 1)}"]
    for name, sample in found.items():
        is_remote = name == POSTGRES
        cells = [
            shown(sample[figure]) if is_remote or figure not in ("database_us_per_step", "wal_bytes_per_step") else "-"
            for figure, _ in COSTS
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _rows(table: Table, series: Series) -> Iterator[str]:
    titles = [f"{name}: {title}" for name in series for _, title in table.figures]
    yield f"| {table.x_title} | {' | '.join(titles)} |"
    yield f"|{'---|' * (len(titles) + 1)}"
    for row in _chosen(list(zip(*series.values(), strict=True))):
        cells = [shown(round(sample[figure], 2)) for sample in row for figure, _ in table.figures]
        yield f"| {row[0][table.x]:,.0f} | {' | '.join(cells)} |"


def _chosen(rows: Sequence[tuple[Sample, ...]]) -> Sequence[tuple[Sample, ...]]:
    """All rows, or of many the first, the last and some between."""
    if len(rows) <= MOST_ROWS:
        return rows
    last = len(rows) - 1
    return [rows[round(at * last / (MOST_ROWS - 1))] for at in range(MOST_ROWS)]


def drawings(report: dict[str, Any]) -> dict[str, str]:
    """The drawings of the parts that were measured."""
    return {drawing.file: _drawn(drawing, report[drawing.part]) for drawing in DRAWINGS if drawing.part in report}


def _drawn(drawing: Drawing, series: Series) -> str:
    lines = {
        f"{name}{words}": [(sample[drawing.x], sample[figure]) for sample in samples]
        for name, samples in series.items()
        for figure, words in drawing.figures
    }
    return line_chart(drawing.title, drawing.x_title, drawing.y_title, lines, is_log_x=drawing.is_log)
