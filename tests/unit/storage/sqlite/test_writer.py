"""A disk that fails in the middle of writing: the error is told, what is on disk counts, and the next group goes on."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast as hf
from holdfast.core.leases import Heartbeat, HeartbeatReply, Renewed, WorkerKey
from holdfast.storage.members.instances import Start
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Outcome, Rejected, StartedInstance
from holdfast.storage.records import CommitId
from holdfast.storage.relational.apply.dispatch import apply_members
from holdfast.storage.relational.transaction import Transaction
from holdfast.storage.sqlite import writer as sqlite_writer
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.storage.sqlite.writer import SqliteWriter
from holdfast.testing.conformance.bench import HERE, ManualClock, start


def on_a_store(folder: Path, case: Callable[[SqliteStore], Awaitable[None]]) -> None:
    async def run() -> None:
        store = SqliteStore(folder / "shop.db", clock=ManualClock())
        await store.open()
        try:
            await case(store)
        finally:
            await store.close()

    asyncio.run(run())


class FailOnce:
    """Stands in for a function and raises the first time."""

    def __init__(self, function: Callable[..., Any], error: BaseException) -> None:
        self._function = function
        self._error: BaseException | None = error

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._function(*arguments, **options)


def created(outcomes: Sequence[Outcome]) -> list[bool]:
    return [isinstance(outcome, StartedInstance) and outcome.created for outcome in outcomes]


def test_L13_a_checkpoint_that_fails_takes_nothing_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def case(store: SqliteStore) -> None:
        writer = vars(store)["_writer"]
        monkeypatch.setattr(sqlite_writer, "CHECKPOINT_PAGES", 0)
        monkeypatch.setattr(writer, "_checkpoint", FailOnce(writer._checkpoint, apsw.FullError("disk full")))
        assert created(await store.commit(CommitId(1), [start("a")])) == [True]
        assert created(await store.commit(CommitId(2), [start("b")])) == [True]

    on_a_store(tmp_path, case)


@pytest.mark.parametrize("error", [apsw.IOError, apsw.CantOpenError, apsw.FullError])
def test_L13_a_transaction_that_cannot_begin_is_an_error_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    async def case(store: SqliteStore) -> None:
        writer = vars(store)["_writer"]
        monkeypatch.setattr(writer, "_clock", FailOnce(writer._clock, error("the disk is gone")))
        with pytest.raises(hf.StoreError, match="the disk is gone"):
            await store.commit(CommitId(1), [start("a")])
        assert not await store.was_committed(CommitId(1))
        assert created(await store.commit(CommitId(2), [start("a")])) == [True]

    on_a_store(tmp_path, case)


def test_L13_of_a_group_that_was_halved_every_part_says_that_it_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member is poison, so its group is halved; then the disk fails for the second half."""

    def apply(transaction: Transaction, members: Sequence[Member]) -> list[Outcome]:
        if len(members) > 1:
            raise ValueError("poison")
        if isinstance(members[0], Start) and members[0].id == "b":
            raise apsw.FullError("disk full")
        return apply_members(transaction, members)

    async def case(store: SqliteStore) -> None:
        monkeypatch.setattr(sqlite_writer, "apply_members", apply)
        with pytest.raises(hf.StoreError, match="disk full"):
            await store.commit(CommitId(1), [start("a"), start("b")])
        assert await store.was_committed(CommitId(1)), "the first half is there"
        monkeypatch.undo()
        again = await store.commit(CommitId(1), [start("a"), start("b")])
        assert all(isinstance(outcome, Rejected) for outcome in again), "nothing is applied twice under one id"

    on_a_store(tmp_path, case)


def test_L13_a_group_that_was_halved_is_written_under_one_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def apply(transaction: Transaction, members: Sequence[Member]) -> list[Outcome]:
        if any(isinstance(member, Start) and member.id == "poison" for member in members):
            raise ValueError("poison")
        return apply_members(transaction, members)

    async def case(store: SqliteStore) -> None:
        monkeypatch.setattr(sqlite_writer, "apply_members", apply)
        group = [start("a"), start("b"), start("poison"), start("c")]
        assert created(await store.commit(CommitId(1), group)) == [True, True, False, True]
        assert await store.was_committed(CommitId(1))

    on_a_store(tmp_path, case)


def test_W1_a_heartbeat_that_the_disk_refuses_is_an_error_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def case(store: SqliteStore) -> None:
        key = WorkerKey("anna")
        assert store.heartbeat(Heartbeat(key, None, 5_000), HERE) == Renewed(1, store.now_ms() + 5_000, 5_000)
        heartbeat_writer = vars(store)["_heartbeat_writer"]
        for owner, broken in ((sqlite_writer, "apply_worker_heartbeat"), (heartbeat_writer, "_clock")):
            error = apsw.FullError("disk full")
            monkeypatch.setattr(owner, broken, FailOnce(getattr(owner, broken), error))
            with pytest.raises(hf.StoreError, match="disk full"):
                store.heartbeat(Heartbeat(key, 1, 5_000), HERE)
        assert isinstance(store.heartbeat(Heartbeat(key, 1, 5_000), HERE), Renewed)

    on_a_store(tmp_path, case)


def test_W9_two_threads_that_beat_at_once_do_it_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread of a lease that was given up may still run when the next one registers."""
    is_inside, may_go_on, second_is_done = threading.Event(), threading.Event(), threading.Event()
    replies: list[HeartbeatReply | Exception] = []

    async def case(store: SqliteStore) -> None:
        store.heartbeat(Heartbeat(WorkerKey("before"), None), HERE)
        judge: Callable[..., HeartbeatReply] = vars(sqlite_writer)["apply_worker_heartbeat"]

        def slow(*arguments: Any) -> HeartbeatReply:
            is_inside.set()
            may_go_on.wait(10)
            return judge(*arguments)

        def beat(name: str, done: threading.Event) -> None:
            try:
                replies.append(store.heartbeat(Heartbeat(WorkerKey(name), None), HERE))
            except Exception as error:  # noqa: BLE001 - the test compares it
                replies.append(error)
            done.set()

        monkeypatch.setattr(sqlite_writer, "apply_worker_heartbeat", slow)
        first = threading.Thread(target=beat, args=("old", threading.Event()))
        second = threading.Thread(target=beat, args=("new", second_is_done))
        first.start()
        assert is_inside.wait(10)
        second.start()
        assert not second_is_done.wait(0.1)
        may_go_on.set()
        first.join()
        second.join()
        assert [type(reply) for reply in replies] == [Renewed, Renewed]

    on_a_store(tmp_path, case)


def test_L13_an_interrupt_in_a_group_leaves_no_transaction_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open transaction would hold SQLite's lock, and every other writer of the store would wait for it."""

    async def case(store: SqliteStore) -> None:
        interrupted = FailOnce(apply_members, KeyboardInterrupt())
        monkeypatch.setattr(sqlite_writer, "apply_members", interrupted)
        with pytest.raises(KeyboardInterrupt):
            await store.commit(CommitId(1), [start("a")])
        assert isinstance(store.heartbeat(Heartbeat(WorkerKey("anna"), lease_ms=10_000), HERE), Renewed)
        assert created(await store.commit(CommitId(1), [start("a")])) == [True]

    on_a_store(tmp_path, case)


def test_a_disk_that_is_full_at_the_close_raises_nothing_and_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What could not be moved into the database stays in the WAL."""

    def full(writer: SqliteWriter) -> tuple[int, int]:
        raise apsw.FullError(f"{writer} has no room")

    async def case(store: SqliteStore) -> None:
        store.heartbeat(Heartbeat(WorkerKey("anna"), lease_ms=10_000), HERE)
        assert created(await store.commit(CommitId(1), [start("a")])) == [True]
        monkeypatch.setattr(SqliteWriter, "_checkpoint", full)

    on_a_store(tmp_path, case)
    open_files = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    assert not [file for file in open_files if file.startswith(str(tmp_path))]
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_a_disk_that_is_full_for_long_is_one_line_about_checkpoints_until_one_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def case(store: SqliteStore) -> None:
        writer = vars(store)["_writer"]  # for each checkpoint: whether the disk is full
        disk, checkpoint = iter((True, True, True, False, True, True, False)), writer._checkpoint

        def sometimes() -> tuple[int, int]:
            if next(disk, False):
                raise apsw.FullError("disk full")
            pages: tuple[int, int] = checkpoint()
            return pages

        monkeypatch.setattr(sqlite_writer, "CHECKPOINT_PAGES", 0)
        monkeypatch.setattr(writer, "_checkpoint", sometimes)
        for number in range(7):
            await store.commit(CommitId(number), [start(f"{number}")])

    on_a_store(tmp_path, case)
    assert len(caplog.records) == 2
