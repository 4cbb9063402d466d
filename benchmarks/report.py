"""What is compared with what, the targets, and how the result is shown."""

import json
import platform
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import apsw

from benchmarks.chart import bar_chart
from benchmarks.measure import Sample, medians
from holdfast._version import __version__

Results = dict[str, list[Sample]]
"""The samples of each measure, by its name, in the order of the rounds."""


class Found(dict[str, Sample]):
    """The medians of all measures, by their names, and what they are the medians of."""

    def __init__(self, results: Results) -> None:
        super().__init__({name: medians(samples) for name, samples in results.items()})
        self.results = results


Figure = Callable[[Found], float]
"""Works out one figure."""


OF_MEDIANS: Final = "the same as a ratio of medians"


class Target(NamedTuple):
    """One figure with its limit; with `at_least` it is a lower limit. No limit: only shown."""

    text: str
    unit: str
    figure: Figure
    limit: float | None = None
    at_least: bool = False


class Bench(NamedTuple):
    """Measures that run interleaved, and what is read from them."""

    name: str
    samples: tuple[str, ...]
    rounds: int
    targets: tuple[Target, ...]


class Verdict(NamedTuple):
    """One figure, judged."""

    bench: str
    target: Target
    value: float

    @property
    def met(self) -> bool:
        limit = self.target.limit
        if limit is None:
            return True
        return self.value >= limit if self.target.at_least else self.value <= limit

    @property
    def word(self) -> str:
        if self.target.limit is None:
            return ""
        return "met" if self.met else "MISSED"

    @property
    def limit_text(self) -> str:
        return limit_text(self.target.limit, at_least=self.target.at_least)


def limit_text(limit: float | None, *, at_least: bool) -> str:
    """A limit as tables show it."""
    return "" if limit is None else f"{'>=' if at_least else '<='} {limit:g}"


def of(measure: str, name: str) -> Figure:
    """A figure as it was measured."""
    return lambda found: found[measure][name]


def ratio(over: tuple[str, str], under: tuple[str, str]) -> Figure:
    """One figure over another."""
    return lambda found: found[over[0]][over[1]] / found[under[0]][under[1]]


def in_pairs(over: tuple[str, str], under: tuple[str, str]) -> Figure:
    """One figure over another, each round for itself, and of that the median: for two that are close to their limit, on
    a machine whose speed may double from one second to the next.
    """

    def figure(found: Found) -> float:
        rounds = zip(found.results[over[0]], found.results[under[0]], strict=True)
        return statistics.median(above[over[1]] / below[under[1]] for above, below in rounds)

    return figure


def engines_bench(*, two_runs: float, four_runs: float | None, two_cpu: float, four_cpu: float) -> Bench:
    """One, two and four engines that have only their own work: ratios to one engine of the same round."""
    one, two, four = "ENGINES 1", "ENGINES 2", "ENGINES 4"
    runs, cpu, transactions = "runs_per_s", "cpu_ms_per_run", "transactions_per_run"
    return Bench(
        "ENGINES",
        (one, two, four),
        3,
        (
            Target("runs of two engines over one", "x", in_pairs((two, runs), (one, runs)), two_runs, True),
            Target("runs of four engines over one", "x", in_pairs((four, runs), (one, runs)), four_runs, True),
            Target("processor time per run, two over one", "x", in_pairs((two, cpu), (one, cpu)), two_cpu),
            Target("processor time per run, four over one", "x", in_pairs((four, cpu), (one, cpu)), four_cpu),
            Target("transactions per run, two over one", "x", in_pairs((two, transactions), (one, transactions)), 1.15),
            Target(
                "transactions per run, four over one", "x", in_pairs((four, transactions), (one, transactions)), 1.15
            ),
            Target("wake-ups received per run, of four", "", of(four, "wakeups_per_run"), 0.01),
            Target("polls per run of four, at their intervals", "", of(four, "polls_per_run"), 0.02),
            Target("runs of one engine", "/s", of(one, runs)),
            Target("processor time per run of one engine", "ms", of(one, cpu)),
        ),
    )


def retention_bench() -> Bench:
    """Deletions beside B1, in the batches of one engine."""
    return Bench(
        "RETENTION",
        ("RETENTION",),
        3,
        (
            Target("two-step instances deleted beside B1", "/s", of("RETENTION", "deleted_per_s"), 1_000, True),
            Target("speed of B1 beside it over alone", "x", of("RETENTION", "speed"), 0.9, True),
        ),
    )


BENCHES: Final = (
    Bench(
        "B1",
        ("B1 pairs", "B1", "B1 bare", "B1 bare batched", "DISK"),
        7,
        (
            Target("steps/s of the bare limit", "x", of("B1 pairs", "of_bare"), 0.35, True),
            Target(OF_MEDIANS, "x", ratio(("B1", "steps_per_s"), ("B1 bare", "steps_per_s"))),
            Target(
                "steps/s of the bare limit, batched",
                "x",
                ratio(("B1", "steps_per_s"), ("B1 bare batched", "steps_per_s")),
            ),
            Target("steps", "/s", of("B1", "steps_per_s")),
            Target("bare limit", "/s", of("B1 bare", "steps_per_s")),
            Target("bare limit, batched", "/s", of("B1 bare batched", "steps_per_s")),
            Target("processor time per step", "us", of("B1", "cpu_us_per_step")),
            Target("over that of the bare limit", "x", of("B1 pairs", "cpu_of_bare")),
            Target("one page to the disk, p50", "ms", of("DISK", "p50_ms")),
            Target("commits per step", "", of("B1", "commits_per_step"), 0.1),
        ),
    ),
    Bench(
        "METRICS",
        ("METRICS",),
        3,
        (
            Target("speed of B1 with metrics over without", "x", of("METRICS", "speed"), 0.97, True),
            Target("processor time of B1 with metrics over without", "x", of("METRICS", "processor"), 1.03),
        ),
    ),
    retention_bench(),
    Bench(
        "TRACES",
        ("TRACES",),
        3,
        (
            Target("speed of B1 with traces over without", "x", of("TRACES", "speed")),
            Target("processor time of B1 with traces over without", "x", of("TRACES", "processor")),
        ),
    ),
    Bench(
        "B2",
        ("B2", "B2 bare"),
        5,
        (
            Target("p50 over two bare commits", "x", ratio(("B2", "p50_ms"), ("B2 bare", "p50_ms")), 3.0),
            Target("p50", "ms", of("B2", "p50_ms")),
            Target("p99", "ms", of("B2", "p99_ms")),
            Target("p50 of two bare commits", "ms", of("B2 bare", "p50_ms")),
        ),
    ),
    Bench(
        "B3",
        ("B3", "B3 bare"),
        5,
        (
            Target("500 parallel steps", "s", of("B3", "seconds")),
            Target("over the bare limit", "x", ratio(("B3", "seconds"), ("B3 bare", "seconds"))),
        ),
    ),
    Bench(
        "B4",
        ("B4", "B4 bare"),
        5,
        (
            Target("growth, last tenth over first", "x", of("B4", "growth"), 1.2),
            Target("steps", "/s", of("B4", "steps_per_s")),
            Target("steps/s of the bare limit", "x", ratio(("B4", "steps_per_s"), ("B4 bare", "steps_per_s"))),
        ),
    ),
    Bench(
        "B5",
        ("B5", "B5 bare", "B5 bare stored first"),
        11,
        (
            Target(
                "events/s of the bare limit",
                "x",
                in_pairs(("B5", "events_per_s"), ("B5 bare stored first", "events_per_s")),
                0.35,
                True,
            ),
            Target(OF_MEDIANS, "x", ratio(("B5", "events_per_s"), ("B5 bare stored first", "events_per_s"))),
            Target("events", "/s", of("B5", "events_per_s")),
            Target("bare limit", "/s", of("B5 bare stored first", "events_per_s")),
            Target(
                "of a limit that stores no event before its turn",
                "x",
                ratio(("B5", "events_per_s"), ("B5 bare", "events_per_s")),
            ),
        ),
    ),
    Bench(
        "EVENTS",
        ("EVENTS",),
        5,
        (
            Target("growth, last tenth over first", "x", of("EVENTS", "growth"), 1.2),
            Target("events to one instance", "/s", of("EVENTS", "events_per_s")),
        ),
    ),
    Bench(
        "TOKENS",
        ("TOKENS", "TOKENS bare"),
        9,
        (
            Target(
                "tokens/s of the bare limit",
                "x",
                in_pairs(("TOKENS", "tokens_per_s"), ("TOKENS bare", "tokens_per_s")),
                0.3,
                True,
            ),
            Target(OF_MEDIANS, "x", ratio(("TOKENS", "tokens_per_s"), ("TOKENS bare", "tokens_per_s"))),
            Target("streamed tokens", "/s", of("TOKENS", "tokens_per_s")),
            Target("bare limit", "/s", of("TOKENS bare", "tokens_per_s")),
            Target("tokens per commit", "", of("TOKENS", "tokens_per_commit")),
        ),
    ),
    Bench(
        "GRAPH",
        ("GRAPH",),
        3,
        (
            Target("steps/s of the same in code", "x", of("GRAPH", "of_code"), 0.95, True),
            Target("steps", "/s", of("GRAPH", "steps_per_s")),
            Target("steps in code", "/s", of("GRAPH", "code_steps_per_s")),
            Target("processor time over that of code", "x", of("GRAPH", "cpu_of_code")),
        ),
    ),
    Bench(
        "LATTICE",
        ("LATTICE", "LATTICE small"),
        5,
        (
            Target(
                "a node of 1,000 over one of 10",
                "x",
                ratio(("LATTICE", "cpu_us_per_node"), ("LATTICE small", "cpu_us_per_node")),
                1.5,
            ),
            Target("processor time per node", "us", of("LATTICE", "cpu_us_per_node")),
            Target("wall time per node", "us", of("LATTICE", "us_per_node")),
            Target("of 10", "us", of("LATTICE small", "us_per_node")),
        ),
    ),
    Bench(
        "LOAD",
        ("LOAD",),
        5,
        (Target("loading and checking 1,000 nodes", "ms", of("LOAD", "cpu_ms"), 300.0),),
    ),
    Bench("B6", ("B6",), 3, (Target("all done after the last start", "s", of("B6", "seconds_after_last_start"), 1.5),)),
    Bench(
        "B7",
        ("B7",),
        3,
        (
            Target("first step after the kill", "s", of("B7", "first_step_seconds"), 1.0),
            Target("all done after the kill", "s", of("B7", "seconds")),
            Target("bodies run twice", "", of("B7", "bodies_run_twice")),
            Target("of them not in flight at the kill", "", of("B7", "bodies_run_twice_beyond"), 0),
            Target("steps missing at the end", "", of("B7", "steps_missing"), 0),
        ),
    ),
    Bench(
        "B8",
        ("B8 replay", "B8 recover"),
        2,
        (
            Target("replay", "events/s", of("B8 replay", "events_per_s")),
            Target("recover 10,000 open instances", "s", of("B8 recover", "seconds")),
        ),
    ),
    Bench(
        "EXPIRY",
        ("EXPIRY",),
        3,
        (
            Target("longest gap of others, of the whole", "x", of("EXPIRY", "longest_share"), 0.1),
            Target("100,000 instances of a dead worker", "s", of("EXPIRY", "seconds")),
            Target("longest gap of others", "ms", of("EXPIRY", "longest_ms")),
            Target("a commit of others, p50", "ms", of("EXPIRY", "p50_ms")),
            Target("over a calm one", "x", ratio(("EXPIRY", "p50_ms"), ("EXPIRY", "calm_p50_ms"))),
        ),
    ),
    Bench(
        "IDLE",
        ("IDLE",),
        1,
        (
            Target("processor", "%", of("IDLE", "cpu_percent"), 1.0),
            Target("resident memory", "MB", of("IDLE", "resident_mb")),
        ),
    ),
    Bench(
        "SLEEPERS",
        ("SLEEPERS",),
        1,
        (
            Target("resident memory", "MB", of("SLEEPERS", "resident_mb"), 150.0),
            Target("sleeping instances", "", of("SLEEPERS", "sleepers")),
            Target("processor", "%", of("SLEEPERS", "cpu_percent")),
            Target("one step among them", "ms", of("SLEEPERS", "one_step_ms")),
        ),
    ),
    Bench(
        "CONTRACT",
        (
            "STARTS",
            "STARTS by rows",
            "B1 longer",
            "B1 beside a writer",
            "B1 beside a writer without pauses",
            "EXTERNAL",
        ),
        3,
        (
            Target(
                "starts by rows over client.start, until they have ended",
                "x",
                ratio(("STARTS by rows", "starts_per_s"), ("STARTS", "starts_per_s")),
                0.3,
                True,
            ),
            Target("starts by rows", "/s", of("STARTS by rows", "starts_per_s")),
            Target(
                "B1 beside a program that inserts 100 times a second",
                "x",
                ratio(("B1 beside a writer", "steps_per_s"), ("B1 longer", "steps_per_s")),
                0.5,
                True,
            ),
            Target(
                "B1 beside a program that writes without a pause",
                "x",
                ratio(("B1 beside a writer without pauses", "steps_per_s"), ("B1 longer", "steps_per_s")),
            ),
            Target("external activity: QUEUED, RUNNING, COMPLETED by rows, p50", "ms", of("EXTERNAL", "p50_ms")),
        ),
    ),
    engines_bench(two_runs=1.1, four_runs=0.85, two_cpu=1.4, four_cpu=1.8),
    Bench(
        "APART",
        ("APART", "APART one at a time"),
        3,
        (
            Target("B1 from a client apart from one worker", "/s", of("APART", "steps_per_s")),
            Target("processor time per step, worker and client", "us", of("APART", "cpu_us_per_step")),
            Target("reads of the client per run", "", of("APART", "client_reads_per_run")),
            Target("start to result, one at a time, p50", "ms", of("APART one at a time", "p50_ms")),
            Target("the same, p99; 6.3 before wake-ups were routed", "ms", of("APART one at a time", "p99_ms"), 6.3),
        ),
    ),
    Bench(
        "IMPORT",
        ("IMPORT",),
        5,
        (
            Target("over asyncio and msgspec", "x", ratio(("IMPORT", "ours_ms"), ("IMPORT", "ground_ms")), 1.5),
            Target("with every part loaded", "x", ratio(("IMPORT", "everything_ms"), ("IMPORT", "ground_ms"))),
            Target("unwanted modules loaded", "", of("IMPORT", "unwanted_modules"), 0),
            Target(
                "CPU of --help over python -c pass",
                "x",
                ratio(("IMPORT", "help_cpu_ms"), ("IMPORT", "python_cpu_ms")),
                12.0,
            ),
            Target("CPU until Engine and activity are there", "ms", of("IMPORT", "engine_cpu_ms"), 150.0),
            Target("packages installed", "", of("IMPORT", "packages"), 8),
            Target("size of them", "MB", of("IMPORT", "installed_mb"), 35.0),
        ),
    ),
    Bench(
        "OPEN",
        ("OPEN",),
        3,
        (
            Target("CPU of a process that opens an engine", "ms", of("OPEN", "cpu_ms"), 250.0),
            Target("the same, with a new store", "ms", of("OPEN", "new_cpu_ms")),
        ),
    ),
)


def judge(benches: Sequence[Bench], results: Results) -> list[Verdict]:
    """Every figure of these benches."""
    found = Found(results)
    return [Verdict(bench.name, target, target.figure(found)) for bench in benches for target in bench.targets]


def table(verdicts: Sequence[Verdict]) -> str:
    """For a terminal."""
    rows = [("", "figure", "measured", "target", "")]
    last = ""
    for verdict in verdicts:
        name = verdict.bench if verdict.bench != last else ""
        last = verdict.bench
        measured = f"{shown(verdict.value)} {verdict.target.unit}".rstrip()
        rows.append((name, verdict.target.text, measured, verdict.limit_text, verdict.word))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def shown(value: float) -> str:
    """A number with as many digits as mean something."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def write(folder: Path, verdicts: Sequence[Verdict], results: Results, *, scale: float) -> None:
    """The figures as JSON, every sample of them, and the plot of what has a target."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = [
        {
            "bench": verdict.bench,
            "figure": verdict.target.text,
            "unit": verdict.target.unit,
            "value": verdict.value,
            "limit": verdict.target.limit,
            "at_least": verdict.target.at_least,
            "met": verdict.met,
        }
        for verdict in verdicts
    ]
    spread = {
        name: {key: statistics.quantiles([sample[key] for sample in samples], n=4) for key in samples[0]}
        for name, samples in results.items()
        if len(samples) > 1
    }
    versions = {"holdfast": __version__, "python": platform.python_version(), "sqlite": apsw.sqlite_lib_version()}
    report = {"scale": scale, "versions": versions, "figures": figures, "quartiles": spread, "samples": results}
    (folder / "bench.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    judged = [verdict for verdict in verdicts if verdict.target.limit]
    bars = [
        (f"{verdict.bench}: {verdict.target.text}", _headroom(verdict), f"{shown(verdict.value)} {verdict.target.unit}")
        for verdict in judged
    ]
    title = "How far each figure is from its target (1 is the target, shorter is better)"
    (folder / "bench.svg").write_text(bar_chart(title, bars), encoding="utf-8")
    print(f"figures: {folder / 'bench.json'}, plot: {folder / 'bench.svg'}")


def _headroom(verdict: Verdict) -> float:
    """How much of what the target allows is used up."""
    limit = verdict.target.limit or 1.0
    return limit / max(verdict.value, 1e-9) if verdict.target.at_least else verdict.value / limit
