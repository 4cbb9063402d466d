"""How soon another process hears of a commit, and what a NOTIFY there and back costs without us."""

import asyncio
import subprocess
import sys
import time
from typing import Final

import psycopg

from benchmarks.measure import Sample, percentile
from holdfast.client.client import connect
from holdfast.runtime.session import StoreSession
from holdfast.storage.postgres.address import parse
from holdfast.storage.postgres.notifier import make_notifier
from holdfast.storage.wakeups import EVERYTHING, Wakeup, Wakeups

READY: Final = "ready"
THERE, BACK = "bench_there", "bench_back"
MILLISECONDS: Final = 1000
NEWS: Final = Wakeups(to_all=EVERYTHING)


async def wake_up(url: str, count: int) -> Sample:
    """From the call that starts an instance to the moment at which another process knows that there is news."""
    listener = _other("hear", url)
    took_ms: list[float] = []
    async with await connect(url) as client:
        for number in range(count):
            before = time.monotonic()
            starting = asyncio.ensure_future(client.start("nobody", id=f"wake-{number}"))
            heard = 0.0
            while heard < before:  # the first lines are about earlier starts
                heard = float(await asyncio.to_thread(_next_line, listener))
            await starting
            took_ms.append((heard - before) * MILLISECONDS)
    _end(listener)
    return {"p50_ms": percentile(took_ms, 50), "p99_ms": percentile(took_ms, 99)}


async def round_trip(url: str, count: int) -> Sample:
    """One process wakes another, which wakes it: through the bells that the store's commits ring."""
    other = _other("echo", url)
    heard = asyncio.Event()
    bell = make_notifier(parse(url), "here", lambda _: heard.set())
    bell.open()
    await heard.wait()
    took_ms: list[float] = []
    for _ in range(count):
        heard.clear()
        before = time.monotonic()
        bell.notify(NEWS)
        await heard.wait()
        took_ms.append((time.monotonic() - before) * MILLISECONDS)
    bell.close()
    _end(other)
    return {"p50_ms": percentile(took_ms, 50), "p99_ms": percentile(took_ms, 99)}


async def echo(url: str) -> None:
    """The other process of `round_trip`: what it hears first is that it listens."""
    is_ready = asyncio.Event()

    def answer_it(_: Wakeup) -> None:
        if is_ready.is_set():
            bell.notify(NEWS)
        is_ready.set()

    bell = make_notifier(parse(url), "there", answer_it)
    bell.open()
    await is_ready.wait()
    print(READY, flush=True)
    await asyncio.to_thread(sys.stdin.read)


def bare_round_trip(server: str, count: int) -> Sample:
    """One process notifies, another replies."""
    other = _other("answer", server)
    took_ms: list[float] = []
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"LISTEN {BACK}".encode())
        for _ in range(count):
            before = time.monotonic()
            connection.execute("SELECT pg_notify(%s, '')", (THERE,))
            list(connection.notifies(stop_after=1))
            took_ms.append((time.monotonic() - before) * MILLISECONDS)
    _end(other)
    return {"p50_ms": percentile(took_ms, 50), "p99_ms": percentile(took_ms, 99)}


async def hear(url: str) -> None:
    """The other process of `wake_up`."""
    notified = StoreSession.notified

    def report(session: StoreSession, wakeup: Wakeup) -> None:
        print(time.monotonic(), flush=True)
        notified(session, wakeup)

    setattr(StoreSession, "notified", report)  # noqa: B010 - this process is for nothing else
    client = await connect(url)
    print(READY, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await client.close()


def answer(url: str) -> None:
    """The other process of `bare_round_trip`."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"LISTEN {THERE}".encode())
        print(READY, flush=True)
        while list(connection.notifies(stop_after=1)):
            connection.execute("SELECT pg_notify(%s, '')", (BACK,))


def _other(role: str, url: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(  # noqa: S603 - this very program
        [sys.executable, "-m", "benchmarks.postgres", "--role", role, "--url", url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    while _next_line(process) != READY:
        pass
    return process


def _next_line(process: "subprocess.Popen[str]") -> str:
    line = process.stdout.readline() if process.stdout else ""
    if not line:
        raise RuntimeError("the other process has ended")
    return line.strip()


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    process.wait()
