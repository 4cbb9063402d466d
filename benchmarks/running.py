"""Runs benchmarks round by round, with their samples interleaved, and prints the table."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.measure import Sample
from benchmarks.report import Bench, Results, Verdict, judge, table, write

Record = Callable[[Sequence[Verdict], float], None]
"""Keeps the figures of a run that took so many seconds."""


def run_benches(
    benches: Sequence[Bench],
    sample: Callable[[str], Sample],
    *,
    rounds: int,
    scale: float,
    out: Path,
    record: Record | None = None,
) -> int:
    """Take each sample as often as its benchmark requires, at most `rounds` times; 1 if a target was missed."""
    results: Results = {}
    before = time.perf_counter()
    for bench in benches:
        last = min(rounds, bench.rounds)
        for number in range(last):
            print(f"\r{bench.name}: round {number + 1} of {last}      ", end="", file=sys.stderr, flush=True)
            for name in bench.samples[:: -1 if number % 2 else 1]:  # alternate the order
                results.setdefault(name, []).append(sample(name))
    print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
    verdicts = judge(benches, results)
    print(table(verdicts))
    seconds = time.perf_counter() - before
    print(f"{seconds:.0f} s; medians, each sample in a fresh process, interleaved")
    write(out, verdicts, results, scale=scale)
    if record is not None:
        record(verdicts, seconds)
    return 0 if all(verdict.met for verdict in verdicts) else 1
