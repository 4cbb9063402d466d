"""Runs benchmarks round by round, with their samples interleaved, and prints the table."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.measure import Sample
from benchmarks.report import Bench, Results, judge, table, write


def run_benches(
    benches: Sequence[Bench], sample: Callable[[str], Sample], *, rounds: int, scale: float, out: Path
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
    print(f"{time.perf_counter() - before:.0f} s; medians, each sample in a fresh process, interleaved")
    write(out, verdicts, results, scale=scale)
    return 0 if all(verdict.met for verdict in verdicts) else 1
