"""A process whose store files are harmed while it runs, whose words are ``STORE HARM``.

It writes the id of each workflow that was acknowledged, harms its files by a name of `HARMS`, goes on until it is
refused or has done as much again, and kills itself by SIGKILL. With the harm ``none`` it is a second process that works
on the same path, and ends cleanly.
"""

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

import holdfast as hf

ROUNDS = 15
READ = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT count(*) FROM instances'); c.close()"


@hf.activity
async def step(number: int) -> int:
    return number + 1


@hf.workflow
async def steps(number: int) -> int:
    return await step(await step(number))


def beside(store: Path, suffix: str) -> Path:
    return store.with_name(store.name + suffix)


def read_elsewhere(store: Path) -> None:
    subprocess.run([sys.executable, "-c", READ, str(store)], check=True)


def read_here(store: Path) -> None:
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("SELECT count(*) FROM instances").fetchone()


def copy_and_read(store: Path) -> None:
    shutil.copyfile(store, beside(store, ".copy"))
    read_elsewhere(store)


def remove_wal(store: Path) -> None:
    beside(store, "-wal").unlink()


def remove_memory(store: Path) -> None:
    beside(store, "-shm").unlink()


def remove_all(store: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        beside(store, suffix).unlink()


def restore(store: Path) -> None:
    """As from a backup: the file is replaced, and what belongs to the old one is removed."""
    backup = beside(store, ".backup")
    connection: Any = apsw.Connection(str(store))
    connection.execute("VACUUM INTO ?", (str(backup),))
    connection.close()
    remove_all(store)
    backup.rename(store)


HARMS: dict[str, Callable[[Path], None]] = {
    harm.__name__: harm
    for harm in (read_here, read_elsewhere, copy_and_read, remove_wal, remove_memory, remove_all, restore)
}


async def work(store: Path, harm: str) -> None:
    async with hf.Engine(store, workflows=[steps], activities=[step]) as engine:
        for number in range(ROUNDS):
            await acknowledge(engine, f"{harm}-before-{number}")
        if harm == "none":
            return
        HARMS[harm](store)
        sys.stdout.write("harmed\n")
        sys.stdout.flush()
        sys.stdin.readline()  # until the test has let another process work on the path
        try:
            for number in range(ROUNDS):
                await acknowledge(engine, f"{harm}-after-{number}")
        except hf.errors.StoreReplaced:
            sys.stdout.write("refused\n")
            sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)


async def acknowledge(engine: hf.Engine, name: str) -> None:
    await engine.run(steps, 1, id=name)
    sys.stdout.write(f"{name}\n")
    sys.stdout.flush()


def main() -> None:
    store, harm = sys.argv[1:]
    asyncio.run(work(Path(store), harm))
