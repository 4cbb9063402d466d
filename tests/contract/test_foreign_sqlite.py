"""Programs with another SQLite library that write to the file of a store: they are detected, and waited for."""

import asyncio
import logging
import os
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.contract.by_hand import needs_sqlite, sqlite_by_hand

import holdfast as hf
from holdfast.core.leases import WORKER_LEASE_MS
from holdfast.runtime.platform import SystemClockAndIds
from holdfast.storage.sqlite.foreign_writes import PROBE_SECONDS, holder_of_write_lock
from holdfast.storage.sqlite.store import SqliteStore

pytestmark = needs_sqlite
REQUEST = "INSERT INTO requests (request_id, workflow) VALUES (lower(hex(randomblob(16))), 'w');"
EVENT = "INSERT INTO activity_events (event_id, activity_exec_id, transition) VALUES ('e', 'x', 'NOTE');"
LIMIT_SECONDS = 30


def seconds_now() -> float:
    return SystemClockAndIds().elapsed_precise_ms() / 1_000


@hf.activity
async def step(number: int) -> int:
    return number + 1


@hf.workflow
async def counts(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await step(number)
    return number


def engine(path: Path) -> hf.Engine:
    return hf.Engine(path, workflows=[counts], activities=[step])


@contextmanager
def begun(path: Path) -> Generator[Callable[[], None]]:
    """A program that holds a write transaction until the test ends it."""
    command = ["sqlite3", "-batch", "-bail", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        statements = "PRAGMA wal_autocheckpoint=0; PRAGMA busy_timeout=5000; BEGIN IMMEDIATE;"
        program.stdin.write(f"{statements}\n{REQUEST}\nSELECT 'begun';\n")
        program.stdin.flush()
        while program.stdout.readline().strip() != "begun":
            assert program.poll() is None
        stdin = program.stdin

        def end() -> None:
            stdin.write("COMMIT;\n")
            stdin.close()
            assert program.wait(10) == 0

        yield end


class Rows:
    """The calls of a probe."""

    def __init__(self) -> None:
        self.calls = 0
        self._event = asyncio.Event()

    def inserted(self, name: str | None) -> None:
        assert name is None, "a file knows no names"
        self.calls += 1
        self._event.set()

    async def next(self) -> None:
        await self._event.wait()
        self._event.clear()


async def opened(path: Path) -> SqliteStore:
    providers = SystemClockAndIds()
    store = SqliteStore(path, clock=providers.now_ms, elapsed_ms=providers.elapsed_precise_ms)
    await store.open()
    return store


@pytest.mark.parametrize("insert", [REQUEST, EVENT])
def test_C12_a_row_of_another_program_is_found_within_250_ms(tmp_path: Path, insert: str) -> None:
    async def scenario() -> None:
        rows = Rows()
        store = await opened(tmp_path / "shop.db")
        notifier = store.make_notifier("me", lambda _: None)
        notifier.open()
        notifier.watch_rows(rows.inserted)  # type: ignore[attr-defined]
        await asyncio.sleep(3 * PROBE_SECONDS)
        assert rows.calls == 0
        by_hand = sqlite_by_hand(tmp_path / "shop.db")
        await asyncio.to_thread(by_hand.run, insert)
        since = seconds_now()
        await rows.next()
        assert seconds_now() - since < 0.25 + 0.25, "the probe's interval, and as much for a busy machine"
        assert rows.calls == 1
        await asyncio.sleep(3 * PROBE_SECONDS)
        assert rows.calls == 1, "nothing was committed since"
        notifier.close()
        await store.close()

    asyncio.run(asyncio.wait_for(scenario(), LIMIT_SECONDS))


def test_commits_of_the_own_writer_are_no_reason_to_look(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine(tmp_path / "shop.db") as made:
            store = made._session.store
            assert isinstance(store, SqliteStore)
            before = store._foreign_version()
            assert await made.run(counts, 20) == 20
            assert store._foreign_version() == before
            await asyncio.to_thread(sqlite_by_hand(tmp_path / "shop.db").run, REQUEST)
            assert store._foreign_version() != before

    asyncio.run(asyncio.wait_for(scenario(), LIMIT_SECONDS))


def test_only_a_process_with_a_worker_probes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with await hf.connect(tmp_path / "shop.db") as client:
            assert client._session.notifier._probe is None  # type: ignore[union-attr]
        async with engine(tmp_path / "shop.db") as made:
            notifier = made._session.notifier
            assert notifier._probe is not None  # type: ignore[union-attr]
        assert notifier._probe is None  # type: ignore[union-attr]

    asyncio.run(asyncio.wait_for(scenario(), LIMIT_SECONDS))


def test_the_probe_keeps_no_transaction_open(tmp_path: Path) -> None:
    """A checkpoint of everything is possible between its looks."""

    async def scenario() -> None:
        async with engine(tmp_path / "shop.db") as made:
            assert await made.run(counts, 3) == 3
            await asyncio.sleep(2 * PROBE_SECONDS)
            store = made._session.store
            assert isinstance(store, SqliteStore)
            writer = store._open(store._writer)
            in_wal, moved = writer._checkpoint()
            assert in_wal == moved

    asyncio.run(asyncio.wait_for(scenario(), LIMIT_SECONDS))


def hold(path: Path, seconds: float, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Run workflows while another program holds the file for a time. Returns the warnings."""

    async def scenario() -> None:
        async with engine(path) as made:
            first = await made.start(counts, 200, id="first")
            with begun(path) as end:
                assert holder_of_write_lock(path) not in (None, os.getpid())
                second = asyncio.create_task(made.start(counts, 5, id="second"))
                worst = 0.0
                until = seconds_now() + seconds
                while seconds_now() < until:
                    before = seconds_now()
                    await asyncio.sleep(0.01)
                    worst = max(worst, seconds_now() - before)
                assert not second.done(), "nothing can be written"
                await made.list()  # reads continue
                end()
            assert worst < 1, "the event loop runs meanwhile"
            assert await (await second).result(timeout=LIMIT_SECONDS) == 5
            assert await first.result(timeout=LIMIT_SECONDS) == 200
            assert await made.run(counts, 5, id="third") == 5

    with caplog.at_level(logging.WARNING, "holdfast"):
        asyncio.run(asyncio.wait_for(scenario(), seconds + 3 * LIMIT_SECONDS))
    return [message for message in caplog.messages if "waits for" in message]


@pytest.mark.slow
def test_a_transaction_of_another_program_delays_writes_and_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert hold(tmp_path / "shop.db", 2, caplog) == []
    assert sqlite_by_hand(tmp_path / "shop.db").rows("SELECT count(*) AS count FROM requests") == [{"count": 1}]


@pytest.mark.nightly
@pytest.mark.timeout(180)
def test_one_log_line_names_the_program_that_holds_the_file_for_30_seconds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert WORKER_LEASE_MS <= 30_000, "longer than a lease"
    [line] = hold(tmp_path / "shop.db", 30, caplog)
    assert "transaction of another program" in line
    assert "(sqlite3) has SQLite's write lock" in line
    assert [message for message in caplog.messages if "is over, and writing goes on" in message]


@pytest.mark.slow
def test_inserts_with_a_busy_timeout_of_5_seconds_get_in_while_steps_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine(tmp_path / "shop.db") as made:
            running = asyncio.create_task(made.run(counts, 20_000))
            by_hand = sqlite_by_hand(tmp_path / "shop.db", busy_ms=5_000)
            for _ in range(20):
                await asyncio.to_thread(by_hand.run, REQUEST)
            assert not running.done(), "they were inserted while it ran"
            running.cancel()
        assert by_hand.rows("SELECT count(*) AS count FROM requests") == [{"count": 20}]

    asyncio.run(asyncio.wait_for(scenario(), 2 * LIMIT_SECONDS))
