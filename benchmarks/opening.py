"""OPEN: the processor time of a fresh process that imports Holdfast, opens an engine and closes it.

The process is an interpreter with one workflow and one activity on a store that exists; its whole resource usage is
counted, user and system, all threads. The least of several runs is taken, because a machine that other programs use
only adds to it. Python may write and use bytecode, as `pip install` does: without it (an editable installation where
``PYTHONDONTWRITEBYTECODE`` is set) each process compiles every module again, which takes longer than all the rest.
"""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.measure import Sample

RUNS: Final = 7
LONGEST_SECONDS: Final = 60
PROGRAM: Final = """
import asyncio
import sys

import holdfast as hf

@hf.activity
async def greet(name: str) -> str:
    return name

@hf.workflow
async def hello(name: str) -> str:
    return await greet(name)

async def main() -> None:
    async with hf.Engine(sys.argv[1], workflows=[hello], activities=[greet]):
        pass

asyncio.run(main())
"""


def opening(store: Path | str) -> Sample:
    """The processor time of a process that makes the store, and of one that opens it again."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        program = Path(folder) / "program.py"
        program.write_text(PROGRAM, encoding="utf-8")
        _cpu_ms(program, Path(folder) / "bytecode.db")  # writes the bytecode that is missing
        return {"new_cpu_ms": _cpu_ms(program, store), "cpu_ms": min(_cpu_ms(program, store) for _ in range(RUNS))}


async def compared(store: Path | str, _scale: float) -> Sample:
    """The same, as a workload of `benchmarks.compare`."""
    return opening(store)


def _cpu_ms(program: Path, store: Path | str) -> float:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(  # noqa: S603 - code from this file
        [sys.executable, str(program), str(store)], check=True, env=environment, timeout=LONGEST_SECONDS
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000
