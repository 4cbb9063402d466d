"""Wake-ups between processes that share a file: who is there is known, however coarse the clock of the file system."""

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Self

import pytest

from holdfast.storage.records import InstanceNumber
from holdfast.storage.sqlite import notifier
from holdfast.storage.sqlite.notifier import SocketNotifier
from holdfast.storage.wakeups import EVERYTHING, Wakeup, Wakeups


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(10):
            await scenario

    asyncio.run(bounded())


NEWS = Wakeups(to_all=EVERYTHING)


class Listener:
    """One process's end, and what it heard."""

    def __init__(self, store: Path, name: str) -> None:
        self.heard = asyncio.Event()
        self.wakeups: list[Wakeup] = []
        self.ends = SocketNotifier(store, name, self._hear)

    def _hear(self, wakeup: Wakeup) -> None:
        self.wakeups.append(wakeup)
        self.heard.set()

    def __enter__(self) -> Self:
        self.ends.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.ends.close()


def count_lists(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    listed: list[str] = []
    listdir = os.listdir

    def counted(folder: str) -> list[str]:
        listed.append(str(folder))
        return listdir(folder)

    monkeypatch.setattr(os, "listdir", counted)
    return lambda: len(listed)


def test_a_wake_up_reaches_everyone_but_the_sender(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        with Listener(store, "a") as a, Listener(store, "b") as b, Listener(store, "c") as c:
            a.ends.notify(NEWS)
            await b.heard.wait()
            await c.heard.wait()
            assert not a.heard.is_set()

    run(scenario())


def test_one_who_came_within_the_same_tick_of_the_clock_is_not_missed(tmp_path: Path) -> None:
    """The folder changed and shows the time it showed before."""
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        with Listener(store, "a") as a, Listener(store, "b") as b:
            a.ends.notify(NEWS)
            await b.heard.wait()
            folder = tmp_path / "shop.db-wake"
            before = folder.stat()
            with Listener(store, "c") as c:
                os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
                assert folder.stat().st_mtime_ns == before.st_mtime_ns
                a.ends.notify(NEWS)
                await c.heard.wait()

    run(scenario())


def test_a_folder_at_rest_is_not_listed_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "shop.db"
    listed = count_lists(monkeypatch)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        with Listener(store, "a") as a, Listener(store, "b"):
            monkeypatch.setattr(loop, "time", lambda: now)
            a.ends.notify(NEWS)
            a.ends.notify(NEWS)
            assert listed() == 2, "its time may not show yet that it changed"
            now += notifier.SETTLING_SECONDS
            for _ in range(5):
                a.ends.notify(NEWS)
            assert listed() == 3, "once after it has settled"
            with Listener(store, "c"):
                a.ends.notify(NEWS)
                assert listed() == 4, "it has changed"
            monkeypatch.undo()

    run(scenario())


def test_a_socket_of_one_that_died_is_cleared_away(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        with Listener(store, "a") as a:
            dead = tmp_path / "shop.db-wake" / "dead"
            gone = SocketNotifier(store, "dead", lambda _: None)
            gone.open()
            assert gone._socket is not None
            asyncio.get_running_loop().remove_reader(gone._socket.fileno())
            gone._socket.close()
            assert dead.exists()
            a.ends.notify(NEWS)
            assert not dead.exists()
            os.close(gone._descriptor)

    run(scenario())


def test_the_folder_stays_for_others_who_may_be_about_to_use_it(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        late = SocketNotifier(store, "late", lambda _: None)
        with Listener(store, "a"):
            folder = tmp_path / "shop.db-wake"
        assert list(folder.iterdir()) == []
        late.open()
        late.close()

    run(scenario())


def test_a_notification_that_cannot_be_sent_never_raises_and_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "shop.db"

    def no_descriptor(*_: object) -> list[str]:
        raise OSError(24, "Too many open files")

    async def scenario() -> None:
        with Listener(store, "a") as a, Listener(store, "b") as b:
            monkeypatch.setattr(os, "listdir", no_descriptor)
            a.ends.notify(NEWS)
            a.ends.notify(NEWS)
            monkeypatch.undo()
            a.ends.notify(NEWS)
            await b.heard.wait()
            shutil.rmtree(tmp_path / "shop.db-wake")
            a.ends.notify(NEWS)

    with caplog.at_level(logging.WARNING, "holdfast"):
        run(scenario())
    warnings = [record.message for record in caplog.records if "could not be notified" in record.message]
    assert ["Too many open files" in message for message in warnings] in ([True], [True, False])


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_folder_or_a_socket_that_was_removed_is_made_again_and_wakes_everyone(
    tmp_path: Path, is_folder: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store, folder = tmp_path / "shop.db", tmp_path / "shop.db-wake"

    async def scenario() -> None:
        with Listener(store, "a") as a, Listener(store, "b") as b:
            a.ends.notify(NEWS)
            await b.heard.wait()
            if is_folder:
                shutil.rmtree(folder)
            else:
                (folder / "a").unlink()
                (folder / "b").unlink()
            a.ends.notify(NEWS)  # makes the folder and its own socket
            b.ends.notify(NEWS)  # makes its own, too
            await a.heard.wait()
            b.heard.clear()
            a.ends.notify(NEWS)
            await b.heard.wait()
        assert list(folder.iterdir()) == []

    run(scenario())
    assert ["made again" in record.message for record in caplog.records] == [True, True], "once for each process"


def test_a_folder_that_was_moved_away_long_after_its_last_change_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing changed in it, so only its path shows that it is gone."""
    monkeypatch.setattr(notifier, "SETTLING_SECONDS", 0.0)
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        with Listener(store, "a") as a:
            a.ends.notify(NEWS)
            (tmp_path / "shop.db-wake").rename(tmp_path / "elsewhere")
            with Listener(store, "b") as b:
                a.ends.notify(NEWS)
                await b.heard.wait()

    run(scenario())


def directed(name: str, number: int) -> Wakeups:
    return Wakeups(to_each={name: Wakeup(instances=frozenset({InstanceNumber(number)}))})


def test_C15_a_wake_up_for_one_process_reaches_no_other(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        with Listener(store, "a") as a, Listener(store, "b") as b, Listener(store, "c") as c:
            a.ends.notify(directed("b", 7))
            await b.heard.wait()
            assert b.wakeups == [Wakeup(instances=frozenset({InstanceNumber(7)}))]
            a.ends.notify(NEWS)
            await c.heard.wait()
            assert c.wakeups == [EVERYTHING]

    run(scenario())


def test_C15_wake_ups_that_a_full_queue_refuses_are_sent_again(tmp_path: Path) -> None:
    """A socket queues about ten datagrams; the receiver reads none of them before all are sent."""
    store = tmp_path / "shop.db"
    sent = set(range(100))

    async def scenario() -> None:
        with Listener(store, "a") as a, Listener(store, "b") as b:
            for number in sent:
                a.ends.notify(directed("b", number))
            assert a.ends._refused, "the queue was never full"
            while not sent <= {number for wakeup in b.wakeups for number in wakeup.instances}:
                await b.heard.wait()
                b.heard.clear()
            assert not a.ends._refused

    run(scenario())


def test_a_process_that_reads_nothing_is_not_retried_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "shop.db"
    monkeypatch.setattr(notifier, "MOST_RETRIES", 3)

    async def scenario() -> None:
        with Listener(store, "a") as a, Listener(store, "b") as b:
            assert b.ends._socket is not None
            asyncio.get_running_loop().remove_reader(b.ends._socket.fileno())
            for number in range(100):
                a.ends.notify(directed("b", number))
            while a.ends._refused:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.001)
            assert a.ends._retries == 0

    run(scenario())
