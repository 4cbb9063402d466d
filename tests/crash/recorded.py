"""A worker whose disk is recorded: its words are ``STORE LOG DURABILITY INSTANCES``.

SQLite's calls to the operating system go through a layer that notes every write, truncation and sync of the store's
files in the order they happen, together with what the program was told meanwhile: that an instance was started, that a
body began (so that what it waited for must have been recorded), that an instance ended. The shared memory of the WAL is
rebuilt after a power cut and is no part of it.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import apsw
from tests.crash.disk import MAIN, Cut, Log, Made, Removed, Synced, Told, Wrote, encode_log

import holdfast as hf
from holdfast.storage.sqlite import store, writer

CHECKPOINT_PAGES = 150
STEPS = 6
FIRST_OF_GROUP = 4
"""The steps from here on run side by side; each of them waits for all that come before it."""

log: Log = []
ran: list[tuple[str, int]] = []


@hf.activity(max_losses=1_000)
async def link(name: str, step: int) -> str:
    log.append(Told("began", name, step))
    ran.append((name, step))
    return "x" * (step * 1_000)


@hf.workflow
async def chain(name: str) -> int:
    parts = [await link(name, step) for step in range(FIRST_OF_GROUP)]
    await asyncio.sleep(0.001)
    parts += await asyncio.gather(*(link(name, step) for step in range(FIRST_OF_GROUP, STEPS)))
    return sum(len(part) for part in parts)


RESULT = sum(step * 1_000 for step in range(STEPS))


class RecordedFile(apsw.VFSFile):
    """A file of the store: every change is noted before it is made, every sync when it came back."""

    def __init__(self, base: str, name: Any, flags: list[int], file: str) -> None:
        super().__init__(base, name, flags)
        self._file = file

    def xWrite(self, data: Any, offset: int) -> None:
        log.append(Wrote(self._file, offset, bytes(data)))
        super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType] - apsw's stub leaves it open

    def xTruncate(self, newsize: int) -> None:
        log.append(Cut(self._file, newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        begun = len(log)
        super().xSync(flags)
        log.append(Synced(self._file, begun))


class RecordedDisk(apsw.VFS):
    """The operating system, for every connection of this process that does not name another one."""

    def __init__(self, path: Path) -> None:
        self._base = apsw.vfs_names()[0]
        self._store = str(path)
        super().__init__("recorded", self._base, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        if not path.startswith(self._store):
            raise AssertionError(f"SQLite opens {path}, which is not recorded")
        file = path.removeprefix(self._store)
        is_new = not Path(path).exists()
        opened = RecordedFile(self._base, name, flags, file)
        if is_new:
            log.append(Made(file))
        return opened

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        log.append(Removed(filename.removeprefix(self._store), syncdir))


def note_what_is_there(main_file: Path, file: str) -> None:
    """A store that another life left behind is all safe."""
    path = main_file.with_name(main_file.name + file)
    if path.exists():
        log.append(Made(file, is_safe=True))
        log.append(Wrote(file, 0, path.read_bytes()))
        log.append(Synced(file, len(log)))


async def one(engine: hf.Engine, name: str) -> None:
    handle = await engine.start(chain, name, id=name)
    log.append(Told("started", name))
    assert await handle.result() == RESULT
    log.append(Told("ended", name))


async def work(path: Path, instances: int, durability: str) -> None:
    async with hf.Engine(path, workflows=[chain], activities=[link], durability=durability) as engine:
        for first in range(0, instances, 2):
            await asyncio.gather(*(one(engine, f"it-{number}") for number in (first, first + 1)))


def main() -> None:
    named, target, durability, instances = sys.argv[1:]
    path = Path(named).resolve()
    writer.CHECKPOINT_PAGES = CHECKPOINT_PAGES  # type: ignore[misc]  # so that a short run has several
    store.SLOW_COMMIT_MS = 0.0  # type: ignore[misc]  # so that the program goes on while most commits are on their way
    disk = RecordedDisk(path)
    for file in (MAIN, "-wal", "-journal"):
        note_what_is_there(path, file)
    if not log:
        log.append(Made(MAIN))  # the engine makes the file itself, before SQLite sees it
    asyncio.run(work(path, int(instances), durability))
    disk.unregister()
    Path(target).write_bytes(encode_log(log))
