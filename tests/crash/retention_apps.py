"""A program that deletes from a store, and may die on the way: ``STORE NAME BODIES [POINT K]`` (see `program`).

The points are those of commits, and of the writes of an archive: before a write, in the middle of it, and after it.
"""

import os
import signal
import sys
from pathlib import Path
from typing import IO

from tests.crash.program import BODIES, KillAt, run_program

import holdfast as hf
from holdfast.client import retention
from holdfast.client.archive import ArchiveWriter
from holdfast.runtime import deletion
from holdfast.runtime.platform import Platform

BEFORE_WRITE = "before_write"
TORN_WRITE = "torn_write"
AFTER_WRITE = "after_write"
WRITES = (BEFORE_WRITE, TORN_WRITE, AFTER_WRITE)
FAMILIES = 3


@hf.activity
async def add_one(number: int) -> int:
    return number + 1


@hf.workflow
async def inner(number: int) -> int:
    return await add_one(number)


@hf.workflow
async def outer(number: int) -> int:
    return await inner(await add_one(number))


@hf.workflow
async def waits(number: int) -> int:
    await hf.event("go")
    return number


async def fill(store: str) -> None:
    """Closed families, and an open instance."""
    async with hf.Engine(store, workflows=[inner, outer, waits], activities=[add_one]) as engine:
        for number in range(FAMILIES):
            await engine.run(outer, number, id=f"o{number}")
        await engine.start(waits, 1, id="open")


async def finish(store: str, name: str, hook: KillAt | None) -> object:
    """Delete one family, or prune in small slices, with or without an archive."""
    for module, name_of, size in ((deletion, "FAMILY_SLICE", 2), (retention, "ARCHIVE_SLICE", 1)):
        setattr(module, name_of, size)
    async with hf.connect(store, _platform=Platform(fault_hook=hook)) as client:
        if name == "delete":
            try:
                return await client.delete("o1")
            except hf.InstanceNotFound:
                return 0
        to_archive = Path(os.environ[BODIES]).with_suffix(".jsonl.gz") if name == "archive" else None
        return (await client.prune(older_than=0, archive=to_archive)).instances


class KillAtWrite:
    """Ends the process before, in the middle of, or after a write of an archive."""

    def __init__(self, point: str, number: int) -> None:
        self._point = point
        self._left = number
        self._append = ArchiveWriter._append
        ArchiveWriter._append = self.append  # type: ignore[method-assign,assignment]

    def append(self, file: IO[bytes], data: bytes) -> None:
        """As `ArchiveWriter._append`."""
        self._left -= 1
        if self._left:
            self._append(None, file, data)  # type: ignore[arg-type]
            return
        if self._point == TORN_WRITE:
            file.write(data[: len(data) // 2])
        elif self._point == AFTER_WRITE:
            self._append(None, file, data)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    if len(sys.argv) > len(("program", "store", "name", "bodies")) and sys.argv[4] in WRITES:
        KillAtWrite(sys.argv[4], int(sys.argv[5]))
        del sys.argv[4:]
    run_program(finish)
