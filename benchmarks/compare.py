"""``python -m benchmarks.compare OTHER_SRC``: the speed of this source tree over another one, on one machine.

Runs B1, B2, B4, GRAPH and OPEN in alternating pairs, one sample of each tree after the other, each in a fresh process
with a fresh store, on SQLite or with ``--postgres`` on PostgreSQL. A machine that other programs use changes its speed
within seconds; the samples of a pair meet about the same machine, and the order within pairs alternates.

Prints for each figure the ratio of the medians: above 1 this tree is faster. Processor time is less noisy than wall
time. OTHER_SRC is a folder that contains the package, such as ``src`` of another checkout; the workloads use public
names of Holdfast only, so that it may be an older release.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import holdfast as hf
from benchmarks import opening, workloads
from benchmarks.measure import Sample, gather_bounded, processor_seconds
from benchmarks.programs import chain_text, step
from benchmarks.workloads import IN_FLIGHT, STEPS

ROOT: Final = Path(__file__).parents[1]
PAIRS: Final = 4
LONGEST_SECONDS: Final = 600


async def graph(store: Path | str, scale: float) -> Sample:
    """B1 as a flow."""
    count = max(IN_FLIGHT, int(500 * scale))
    flow = hf.Flow.parse(chain_text(STEPS))
    nothing: dict[str, int] = {}
    async with hf.Engine(store, activities=[step], flows=[flow]) as engine:

        async def one(number: int) -> None:
            if await engine.run(flow, nothing, id=f"graph-{number}") != STEPS:
                raise AssertionError(number)

        await gather_bounded(one, IN_FLIGHT, IN_FLIGHT, first=count)
        cpu = processor_seconds()
        before = time.perf_counter()
        await gather_bounded(one, count, IN_FLIGHT)
        steps = count * STEPS
        return {
            "steps_per_s": steps / (time.perf_counter() - before),
            "cpu_us_per_step": (processor_seconds() - cpu) / steps * 1e6,
        }


Workload = Callable[[Path | str, float], Awaitable[Sample]]
WORKLOADS: Final[dict[str, tuple[Workload, tuple[str, ...]]]] = {
    "B1": (workloads.b1, ("steps_per_s", "cpu_us_per_step")),
    "B2": (workloads.b2, ("p50_ms", "cpu_us_per_step")),
    "B4": (workloads.b4, ("steps_per_s", "cpu_us_per_step")),
    "GRAPH": (graph, ("steps_per_s", "cpu_us_per_step")),
    "OPEN": (opening.compared, ("cpu_ms",)),
}
"""Each workload with the figures that are compared."""
MORE_IS_BETTER: Final = ("steps_per_s",)


def main() -> int:
    """Compare two trees, or take one sample in a process of its own."""
    options = _options()
    if options.sample:
        return _take_sample(options)
    other = Path(options.other).resolve()
    if not (other / "holdfast" / "__init__.py").is_file():
        print(f"{other} does not contain the package holdfast; name the folder src of another checkout")
        return 2
    trees = (ROOT / "src", other)
    print(f"{'':<24}{'this':>12}{'other':>12}{'ratio':>8}   ratios of {options.pairs} pairs")
    with _server(postgres=options.postgres) as server:
        for name in options.workload or WORKLOADS:
            samples: tuple[list[Sample], list[Sample]] = ([], [])
            for number in range(options.pairs):
                for which in (0, 1) if number % 2 == 0 else (1, 0):
                    samples[which].append(_sample(name, trees[which], options.scale, server))
            for line in report(name, WORKLOADS[name][1], *samples):
                print(line, flush=True)
    return 0


def report(name: str, figures: Sequence[str], mine: Sequence[Sample], other: Sequence[Sample]) -> list[str]:
    """A line for each figure: the medians, their ratio, and the lowest and the highest ratio of a pair."""
    lines: list[str] = []
    for figure in figures:
        ours = [sample[figure] for sample in mine]
        theirs = [sample[figure] for sample in other]
        middle = (statistics.median(ours), statistics.median(theirs))
        pairs = [_ratio(figure, *pair) for pair in zip(ours, theirs, strict=True)]
        lines.append(
            f"{name} {figure:<{23 - len(name)}}{middle[0]:>12.4g}{middle[1]:>12.4g}{_ratio(figure, *middle):>8.3f}"
            f"   {min(pairs):.3f} to {max(pairs):.3f}"
        )
    return lines


def _ratio(figure: str, mine: float, other: float) -> float:
    return mine / other if figure in MORE_IS_BETTER else other / mine


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", metavar="OTHER_SRC", help="the folder with the package to compare with")
    parser.add_argument("--postgres", action="store_true", help="on PostgreSQL: a server of its own, fully durable")
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="only this one; may be repeated")
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"how many pairs of samples (default {PAIRS})")
    parser.add_argument("--scale", type=float, default=1.0, help="the size of the workloads (default 1.0)")
    parser.add_argument("--sample", choices=WORKLOADS, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    return parser.parse_args()


def _take_sample(options: argparse.Namespace) -> int:
    if not Path(hf.__file__).resolve().is_relative_to(options.other):
        print(f"the package was imported from {hf.__file__}, not from {options.other}", file=sys.stderr)
        return 1
    workload, _ = WORKLOADS[options.sample]
    sample = asyncio.run(_awaited(workload(options.store, options.scale)))
    print(json.dumps(sample))
    return 0


async def _awaited(sample: Awaitable[Sample]) -> Sample:
    return await sample


def _sample(name: str, tree: Path, scale: float, server: str | None) -> Sample:
    """One sample of the package in `tree`, in a fresh process with a fresh store."""
    with _fresh_store(server) as store:
        command = [sys.executable, "-m", "benchmarks.compare", str(tree)]
        done = subprocess.run(  # noqa: S603 - this very program
            [*command, "--sample", name, "--scale", str(scale), "--store", store],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{tree}{os.pathsep}{ROOT}"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=LONGEST_SECONDS,
        )
    sample: Sample = json.loads(done.stdout.splitlines()[-1])
    return sample


@contextmanager
def _fresh_store(server: str | None) -> Generator[str]:
    if server is None:
        with tempfile.TemporaryDirectory(prefix="holdfast-compare-") as folder:
            yield f"{folder}/engine.db"
        return
    from tests.postgres.server import Place  # noqa: PLC0415 - needs psycopg, SQLite does not

    place = Place(server, f"holdfast_compare_{os.getpid()}_{time.time_ns()}")
    try:
        yield place.url
    finally:
        place.drop()


@contextmanager
def _server(*, postgres: bool) -> Generator[str | None]:
    if not postgres:
        yield None
        return
    from benchmarks.postgres.server import bench_server  # noqa: PLC0415 - as above

    with bench_server() as url:
        yield url


if __name__ == "__main__":
    sys.exit(main())
