"""``python -m benchmarks``: run the workloads, print the ratios, write the figures and a plot."""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import (
    arrivals,
    bare,
    bare_arrivals,
    contract,
    crash,
    expiry,
    graphs,
    imports,
    observed,
    opening,
    pairs,
    retention,
    targets,
    together,
    workloads,
)
from benchmarks.measure import Sample
from benchmarks.report import BENCHES
from benchmarks.running import run_benches

Measure = Callable[[Path, float], Sample]

BARE_INSTANCES: Final = 2_000
"""Of B1: more than the engine gets, so that a sample of the faster loop takes as long and meets the same disk."""

MEASURES: Final[dict[str, Measure]] = {
    "B1": lambda folder, scale: asyncio.run(workloads.b1(folder / "engine.db", scale)),
    "B1 pairs": lambda folder, scale: asyncio.run(pairs.b1(folder, scale)),
    "B1 bare": lambda folder, scale: bare.throughput(
        folder, instances=max(50, int(BARE_INSTANCES * scale)), steps=5, in_flight=50, batched=False
    ),
    "B1 bare batched": lambda folder, scale: bare.throughput(
        folder, instances=max(50, int(BARE_INSTANCES * scale)), steps=5, in_flight=50, batched=True
    ),
    "DISK": lambda folder, _scale: bare.disk(folder, writes=200),
    "B2": lambda folder, scale: asyncio.run(workloads.b2(folder / "engine.db", scale)),
    "B2 bare": lambda folder, scale: bare.latency(folder, runs=max(20, int(200 * scale))),
    "B3": lambda folder, scale: asyncio.run(workloads.b3(folder, scale)),
    "B3 bare": lambda folder, scale: bare.fan_out(folder, steps=max(10, int(500 * scale))),
    "B4": lambda folder, scale: asyncio.run(workloads.b4(folder / "engine.db", scale)),
    "B4 bare": lambda folder, scale: bare.throughput(
        folder, instances=1, steps=max(100, int(1000 * scale)), in_flight=1, batched=False
    ),
    "B5": lambda folder, scale: asyncio.run(arrivals.b5(folder, scale)),
    "B5 bare": lambda folder, scale: bare_arrivals.events(folder, instances=max(20, int(200 * scale))),
    "B5 bare stored first": lambda folder, scale: bare_arrivals.events(
        folder, instances=max(20, int(200 * scale)), stored_first=True
    ),
    "EVENTS": lambda folder, scale: asyncio.run(arrivals.events(folder, scale)),
    "TOKENS": lambda folder, scale: asyncio.run(arrivals.stream(folder, scale)),
    "TOKENS bare": lambda folder, scale: bare_arrivals.stream(folder, count=max(1_000, int(100_000 * scale))),
    "GRAPH": lambda folder, scale: asyncio.run(graphs.graph(folder / "engine.db", scale)),
    "LATTICE": lambda folder, _scale: asyncio.run(
        graphs.lattice(folder / "engine.db", nodes=graphs.NODES, width=graphs.WIDTH)
    ),
    "LATTICE small": lambda folder, _scale: asyncio.run(
        graphs.lattice(folder / "engine.db", nodes=graphs.SMALL, width=graphs.SMALL // 2)
    ),
    "LOAD": lambda _folder, _scale: graphs.load(),
    "B6": lambda folder, scale: asyncio.run(workloads.b6(folder, scale)),
    "B7": crash.b7,
    "EXPIRY": expiry.expiry,
    "B8 replay": lambda folder, scale: asyncio.run(crash.b8_replay(folder, scale)),
    "B8 recover": crash.b8_recover,
    "IDLE": lambda folder, scale: asyncio.run(workloads.idle(folder, scale)),
    "SLEEPERS": lambda folder, scale: asyncio.run(workloads.sleepers(folder, scale)),
    "STARTS": lambda folder, scale: asyncio.run(contract.starts_by_client(folder / "engine.db", scale)),
    "STARTS by rows": lambda folder, scale: asyncio.run(contract.starts_by_rows(folder / "engine.db", scale)),
    "EXTERNAL": lambda folder, scale: asyncio.run(contract.round_trips(folder / "engine.db", scale / 10)),
    "B1 longer": lambda folder, scale: asyncio.run(contract.b1_longer(folder / "engine.db", scale)),
    "B1 beside a writer": lambda folder, scale: asyncio.run(
        contract.b1_beside_writer(folder / "engine.db", scale, contract.PACE_SECONDS)
    ),
    "B1 beside a writer without pauses": lambda folder, scale: asyncio.run(
        contract.b1_beside_writer(folder / "engine.db", scale, 0)
    ),
    "ENGINES 1": lambda folder, scale: together.engines(str(folder / "engine.db"), 1, scale),
    "ENGINES 2": lambda folder, scale: together.engines(str(folder / "engine.db"), 2, scale),
    "ENGINES 4": lambda folder, scale: together.engines(str(folder / "engine.db"), 4, scale),
    "APART": lambda folder, scale: together.apart(str(folder / "engine.db"), 1, scale),
    "APART one at a time": lambda folder, scale: together.round_trips(str(folder / "engine.db"), scale),
    "METRICS": lambda folder, scale: asyncio.run(observed.metrics(folder / "engine.db", scale)),
    "TRACES": lambda folder, scale: asyncio.run(observed.traces(folder / "engine.db", scale)),
    "RETENTION": lambda folder, scale: asyncio.run(retention.retention(folder / "engine.db", scale)),
    "IMPORT": lambda _folder, _scale: imports.b_import(),
    "OPEN": lambda folder, _scale: opening.opening(folder / "engine.db"),
}
CHILDREN: Final = {"crashing": crash.run_crashing, "open": crash.run_open_instances, "janitor": expiry.run_janitor}
LONGEST_SECONDS: Final = 240


def main() -> int:
    """Run what was asked for; 1 if a target was missed."""
    options = _options()
    if options.child:
        asyncio.run(CHILDREN[options.child](Path(options.folder), options.scale))
        return 0
    if options.sample:
        print(json.dumps(_measure(options.sample, options.scale)))
        return 0
    chosen = [bench for bench in BENCHES if not options.workload or bench.name in options.workload]
    if not chosen:
        print(f"no such workload; there are {', '.join(bench.name for bench in BENCHES)}")
        return 2
    return run_benches(
        chosen,
        lambda name: _in_fresh_process(name, options.scale),
        rounds=options.rounds,
        scale=options.scale,
        out=Path(options.out),
        record=partial(targets.record, targets.SQLITE, targets.started()) if options.record else None,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--workload", action="append", help="only this one; may be given several times")
    parser.add_argument("--rounds", type=int, default=13, help="at most so many rounds of each (default 13)")
    parser.add_argument("--scale", type=float, default=1.0, help="the size of the workloads (default 1.0)")
    parser.add_argument("--out", default="build/bench", help="where the figures and the plot go")
    parser.add_argument("--record", action="store_true", help="also keep the figures and write docs/performance.md")
    parser.add_argument("--sample", choices=MEASURES, help=argparse.SUPPRESS)
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.record and (options.workload or options.scale != 1):
        parser.error("--record keeps a whole run only: without --workload and --scale")
    return options


def _measure(name: str, scale: float) -> Sample:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        return MEASURES[name](Path(folder), scale)


def _in_fresh_process(name: str, scale: float) -> Sample:
    done = subprocess.run(  # noqa: S603 - this very program
        [sys.executable, "-m", "benchmarks", "--sample", name, "--scale", str(scale)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LONGEST_SECONDS,
    )
    sample: Sample = json.loads(done.stdout.splitlines()[-1])
    return sample


if __name__ == "__main__":
    sys.exit(main())
