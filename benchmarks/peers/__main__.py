"""``python -m benchmarks.peers``: Holdfast beside DBOS, absurd and Restate, in interleaved rounds.

Every sample is a fresh process with a store of its own. The first round has every engine and workload; further rounds
follow while they fit into the time, without samples that took longer than `SLOW_SECONDS`.
"""

import argparse
import datetime as dt
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tests.postgres import programs

from benchmarks import recorded
from benchmarks.database import default_server, fresh_database, server_version
from benchmarks.machine import machine, versions
from benchmarks.peers import table
from benchmarks.peers.environments import (
    CONTENDERS,
    ENVIRONMENTS,
    POSTGRES,
    ROOT,
    CannotInstall,
    Contender,
    interpreter,
    make,
    restate_server,
)
from benchmarks.peers.workloads import Sample

WORKLOADS: Final = tuple(column.workload for column in table.COLUMNS)
SHARES: Final = {("dbos", "B1"): 0.2, ("absurd", "B1"): 0.4, ("absurd", "B2"): 0.1}
"""Of the size of workloads whose figure does not depend on it, for engines that would take very long."""
SLOW_SECONDS: Final = 45.0
QUICK_SCALE: Final = 0.3


class NoFigure(Exception):
    """A sample gave no figure; the text is a few words for the table."""


class Run:
    """The samples so far, and how long each took."""

    def __init__(self, server: str, *, scale: float, limit_seconds: float) -> None:
        self.server = server
        self.scale = scale
        self.limit_seconds = limit_seconds
        self.cells: table.Cells = {}
        self.took: dict[tuple[str, str], float] = {}

    def take(self, contender: Contender, workload: str) -> None:
        """One sample; one that fails or takes too long leaves a note instead."""
        cell = self.cells.setdefault(contender.name, {}).setdefault(workload, {"samples": [], "problem": ""})
        before = time.perf_counter()
        try:
            cell["samples"].append(self._sample(contender, workload))
            said = table.shown_cell(workload, {"samples": cell["samples"][-1:], "problem": ""})
        except NoFigure as problem:
            cell["problem"] = said = str(problem)
        seconds = time.perf_counter() - before
        self.took[contender.name, workload] = seconds
        print(f"  {workload}  {contender.name}: {said} ({seconds:.0f} s)", file=sys.stderr, flush=True)

    def expected_seconds(self, contenders: Sequence[Contender], workload: str) -> float:
        """The time of the next round of a workload."""
        return sum(self.took.get((contender.name, workload), 0.0) for contender in contenders)

    def is_worth_repeating(self, contender: Contender, workload: str) -> bool:
        """Whether it gave a figure in a reasonable time."""
        cell = self.cells[contender.name][workload]
        return not cell["problem"] and self.took[contender.name, workload] <= SLOW_SECONDS

    def _sample(self, contender: Contender, workload: str) -> Sample:
        scale = self.scale * SHARES.get((contender.engine, workload), 1.0)
        with tempfile.TemporaryDirectory(prefix="holdfast-peers-") as folder, self._store(contender, folder) as store:
            words = [contender.engine, workload, store, folder, str(scale)]
            return _run(contender.engine, words, Path(folder), self.limit_seconds)

    @contextmanager
    def _store(self, contender: Contender, folder: str) -> Generator[str]:
        """A new file, database or folder."""
        if contender.store == POSTGRES:
            with fresh_database(self.server, f"peers_{os.getpid()}_{time.time_ns()}") as url:
                yield url
        else:
            yield str(Path(folder) / "store.db")


def _run(engine: str, words: Sequence[str], folder: Path, limit_seconds: float) -> Sample:
    """The figures that a process prints. It leads a process group of its own, which ends with it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{programs.programs()}:{os.environ['PATH']}"}
    if engine == "restate":
        environment["HOLDFAST_PEERS_RESTATE"] = str(restate_server())
    command = [str(interpreter(engine)), "-m", "benchmarks.peers.sample", *words]
    process = subprocess.Popen(  # noqa: S603 - this very program
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        printed, trouble = process.communicate(timeout=limit_seconds)
    except subprocess.TimeoutExpired:
        raise NoFigure(f"not done in {limit_seconds:.0f} s") from None
    finally:
        _end_group(process)
    if process.returncode:
        lines = trouble.strip().splitlines()
        raise NoFigure(f"fails: {lines[-1][:100] if lines else process.returncode}")
    sample: Sample = json.loads(printed.splitlines()[-1])
    return sample


def _end_group(process: "subprocess.Popen[str]") -> None:
    """End what the process has started, and the process."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _rounds(run: Run, contenders: Sequence[Contender], workloads: Sequence[str], *, rounds: int, until: float) -> None:
    for number in range(rounds):
        in_order = contenders[:: -1 if number % 2 else 1]  # alternate the order
        print(f"round {number + 1}", file=sys.stderr, flush=True)
        is_over = True
        for workload in workloads:
            chosen = [each for each in in_order if not number or run.is_worth_repeating(each, workload)]
            if number and time.perf_counter() + run.expected_seconds(chosen, workload) > until:
                continue
            is_over = False
            for contender in chosen:
                run.take(contender, workload)
        if is_over:
            break


def _installed(names: Sequence[str]) -> dict[str, str]:
    """Make the environments of these engines; a sentence for each that cannot be made."""
    skipped: dict[str, str] = {}
    for name in names:
        print(f"environment of {name}", file=sys.stderr, flush=True)
        try:
            make(name)
        except CannotInstall as problem:
            skipped[name] = f"{name} was not measured, as it cannot be installed here: {problem}"
            print(skipped[name], file=sys.stderr, flush=True)
    return skipped


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0, help="further rounds begin within this time")
    parser.add_argument("--rounds", type=int, default=5, help="at most so many rounds (default 5)")
    parser.add_argument("--quick", action="store_true", help="one round of small workloads, about three minutes")
    parser.add_argument(
        "--engine", action="append", choices=ENVIRONMENTS, help="only Holdfast and this one; repeatable"
    )
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="only this one; repeatable")
    parser.add_argument("--out", default="build/bench-peers", help="where figures, table and plot go")
    parser.add_argument("--record", action="store_true", help="also keep the figures and write docs/performance.md")
    options = parser.parse_args()
    if options.record and (options.quick or options.engine or options.workload):
        parser.error("--record keeps a whole run only: without --quick, --engine and --workload")
    return options


def main() -> int:
    """Measure, print the table, write it."""
    options = _options()
    engines = options.engine or list(ENVIRONMENTS)
    skipped = _installed(engines)
    contenders = [
        each for each in CONTENDERS if each.engine == "holdfast" or each.engine in set(engines) - set(skipped)
    ]
    begun = time.perf_counter()
    report: dict[str, Any] = {
        "taken": dt.datetime.now(dt.UTC).date().isoformat(),
        "scale": QUICK_SCALE if options.quick else 1.0,
        "machine": machine(),
        "skipped": list(skipped.values()),
    }
    with default_server() as server:
        report["versions"] = {**versions(), "PostgreSQL": server_version(server)}
        report["packages"] = [package for name in ENVIRONMENTS if name in engines for package in ENVIRONMENTS[name].all]
        run = Run(server, scale=report["scale"], limit_seconds=30.0 if options.quick else 150.0)
        rounds = 1 if options.quick else options.rounds
        _rounds(run, contenders, options.workload or WORKLOADS, rounds=rounds, until=begun + options.minutes * 60)
    report["cells"] = run.cells
    report["seconds"] = round(time.perf_counter() - begun)
    print(table.markdown(report))
    recorded.write(Path(options.out), "peers", report, table.markdown(report), table.drawings(report))
    if options.record:
        recorded.record("peers", report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
