"""When the store says no: nothing is acknowledged, nothing is lost, and the work goes on afterwards."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest
from tests.scenarios.support import check_tables, engine_of, path_of, rows, together, until
from tests.support.inside import maintain, worker_of

import holdfast as hf
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.runtime import signals as telling
from holdfast.runtime.platform import FaultPoint
from holdfast.storage.members.instances import Start
from holdfast.storage.members.member import Member
from holdfast.storage.sqlite.writer import SqliteWriter

FAILING_COMMITS = range(1, 12)


@hf.activity(retry=hf.Retry(attempts=3, initial=0.01))
async def add(left: int, right: int) -> int:
    info = hf.activity_info()
    if right == 2 and info.attempt == 1:
        raise ConnectionError("try again")
    return left + right


@hf.workflow
async def adds() -> int:
    total = await add(0, 1)
    total += sum(await asyncio.gather(add(0, 2), add(0, 3)))
    await asyncio.sleep(0.01)
    return await add(total, 4)


class FailOnce:
    """A store whose commit number `at` is refused with an error, before it is written or after."""

    def __init__(self, point: FaultPoint, at: int, only: type[Member] | None = None) -> None:
        self._only = only
        self._point = point
        self._left = at
        self.has_failed = False

    def __call__(self, point: FaultPoint, members: Sequence[Member]) -> None:
        if point is self._point and (self._only is None or any(isinstance(member, self._only) for member in members)):
            self._left -= 1
            if self._left == 0:
                self.has_failed = True
                raise hf.StoreError("the disk is full")


@pytest.mark.parametrize("cache_size", [0, 100])
@pytest.mark.parametrize("at", FAILING_COMMITS)
def test_L13_a_commit_that_the_store_refuses_is_made_good(tmp_path: Path, at: int, cache_size: int) -> None:
    fault = FailOnce(FaultPoint.BEFORE_COMMIT, at)

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, add, adds, cache_size=cache_size, fault_hook=fault) as engine:
            try:
                await engine.start(adds, id="a")
            except hf.StoreError:
                await engine.start(adds, id="a")
            assert await engine.get("a").result(timeout=20) == 10
            await until(lambda: fault.has_failed or at > 6)
        check_tables(path)

    together(scenario())


@pytest.mark.parametrize("cache_size", [0, 100])
@pytest.mark.parametrize("at", FAILING_COMMITS)
def test_L13_a_commit_whose_outcome_is_unknown_is_settled(tmp_path: Path, at: int, cache_size: int) -> None:
    """It went to disk, and an error was told: nothing is applied twice and nothing waits for ever."""
    fault = FailOnce(FaultPoint.AFTER_COMMIT, at)

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, add, adds, cache_size=cache_size, fault_hook=fault) as engine:
            try:
                await engine.start(adds, id="a")
            except hf.StoreError:
                await engine.start(adds, id="a")
            assert await engine.get("a").result(timeout=8) == 10
        check_tables(path)

    together(scenario())


def test_a_start_that_could_not_be_stored_is_an_error_and_nothing_is_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, add, adds, fault_hook=FailOnce(FaultPoint.BEFORE_COMMIT, 1, Start)) as engine:
            with pytest.raises(hf.StoreError, match="disk is full"):
                await engine.start(adds, id="a")
            with pytest.raises(hf.InstanceNotFound):
                await engine.get("a").describe()
            assert await engine.run(adds, id="a") == 10

    together(scenario())


@hf.activity
async def write(length: int) -> str:
    return "x" * length


@hf.workflow
async def writes() -> int:
    return sum([len(await write(3_000)) for _ in range(3)])


def test_L13_a_full_disk_is_one_line_for_all_loops_and_its_end_is_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite may not grow its file: the writes that need a page fail, and small ones may succeed meanwhile."""
    monkeypatch.setattr(telling, "QUIET_MS", 500)
    caplog.set_level(logging.INFO, logger="holdfast")

    def ended() -> list[str]:
        return [text for record in caplog.records if "can be used again" in (text := record.getMessage())]

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, write, writes, lease=8) as engine, engine_of(path) as other:
            assert other._session.trouble is engine._session.trouble
            handles = [await engine.start(writes, id=f"{number}") for number in range(20)]
            connection = vars(engine._session.store)["_writer"]._connection
            pages, most = connection.pragma("page_count"), connection.pragma("max_page_count")
            connection.pragma("max_page_count", pages)
            await until(lambda: (series := engine._session.trouble._series.get("")) is not None and series.count >= 100)
            assert not ended()
            connection.pragma("max_page_count", most)
            assert [await handle.result() for handle in handles] == [9_000] * 20
            await until(ended)
        check_tables(path)

    together(scenario())
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(errors) == 1, errors
    assert "full" in errors[0]
    [end] = ended()
    assert "times within" in end


def test_A2_a_completion_that_comes_after_the_deadline_does_not_strand_its_instance(tmp_path: Path) -> None:
    """Another worker's janitor times the attempt out; the body ends a moment later and its turn is refused."""
    bodies: list[asyncio.Event] = []

    @hf.activity(heartbeat=0.02, retry=hf.Retry(attempts=2, initial=0))
    async def slow() -> int:
        done = asyncio.Event()
        bodies.append(done)
        await done.wait()
        return len(bodies)

    @hf.workflow
    async def waits() -> int:
        return await slow()

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, slow, waits) as engine, engine_of(path) as other:
            handle = await engine.start(waits, id="a")
            await until(lambda: len(bodies) == 1)
            await until(
                lambda: rows(path, "SELECT 1 FROM attempts WHERE expires_at_ms <= ?", other._session.store.now_ms())
            )
            await maintain(worker_of(other))
            states = [view.state for view in (await handle.describe()).attempts]
            assert states[0] is AttemptState.TIMED_OUT
            bodies[0].set()
            await until(lambda: len(bodies) == 2)
            bodies[1].set()
            assert await handle.result(timeout=10) == 2
        check_tables(path)

    together(scenario())


def test_G12_an_input_that_does_not_fit_the_code_blocks_the_instance_and_names_the_field(tmp_path: Path) -> None:
    @hf.workflow
    async def counts(number: int) -> int:
        return number

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        client = await hf.connect(path)
        handle = await client.start("counts", "seven", id="a")
        async with engine_of(path, counts):
            with pytest.raises(hf.WorkflowBlocked, match="number"):
                await handle.result(timeout=10)
            described = await handle.describe()
            assert (described.state, described.turn) == (InstanceState.BLOCKED, 0)
            assert "number" in (described.blocked or "")
        await client.close()

    together(scenario())


def test_G12_an_undecodable_message_blocks_its_instance_and_nobody_else(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        client = await hf.connect(path)
        handle = await client.start("adds", id="bad")
        rows(path, 'UPDATE inbox SET event = \'{"event": "no such thing"}\'')
        async with engine_of(path, add, adds) as engine:
            assert await engine.run(adds, id="good") == 10
            with pytest.raises(hf.WorkflowBlocked):
                await handle.result(timeout=10)
            assert await engine.run(adds, id="better") == 10
            assert rows(path_of(engine), "SELECT count(*) FROM inbox") == [(1,)]
        await client.close()

    together(scenario())


def test_the_error_of_a_program_is_not_hidden_by_a_disk_that_is_full_when_its_engine_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(writer: SqliteWriter) -> tuple[int, int]:
        raise apsw.FullError(f"{writer} has no room")

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", add, adds) as engine:
            assert await engine.run(adds, id="a") == 10
            monkeypatch.setattr(SqliteWriter, "_checkpoint", full)
            raise KeyError("the program's own")

    with pytest.raises(KeyError, match="the program's own"):
        together(scenario())


def test_an_error_of_a_read_is_typed_and_has_its_cause(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        async with await hf.connect(path) as client:
            await client.start("adds", id="a")
            rows(path, "DROP TABLE workers")
            for read in (client._session.store.workers, client.get("a").describe):
                with pytest.raises(hf.StoreError, match=r"could not be read: .*no such table") as raised:
                    await read()
                assert isinstance(raised.value.__cause__, apsw.SQLError)

    together(scenario())
