"""A client apart from its workers: rows are read for many instances at once (C15, G8)."""

import asyncio
import logging
from collections.abc import Sized
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.scenarios.support import together, until
from tests.workers.support import instance, sound
from tests.workers.test_wakeups import FAST_SECONDS

import holdfast as hf
from holdfast.runtime.duties import claimer
from holdfast.storage.records import InstanceId

COUNT = 20


@hf.activity
async def double(number: int) -> int:
    return 2 * number


@hf.workflow
async def doubled(number: int) -> int:
    return await double(number)


class Calls:
    """Records the calls of some methods of the store of a client. `most`: with more items a call fails."""

    def __init__(self, client: hf.Client, *names: str, most: int = COUNT) -> None:
        self._made: dict[str, list[tuple[Any, ...]]] = {name: [] for name in names}
        for name in names:
            self._record(client._session.store, name, most)

    def _record(self, store: Any, name: str, most: int) -> None:
        method = getattr(store, name)

        async def call(*given: Any) -> Any:
            self._made[name].append(given)
            if isinstance(given[0], Sized) and len(given[0]) > most:
                raise ValueError("a damaged row")
            return await method(*given)

        setattr(store, name, call)

    def of(self, name: str) -> list[tuple[Any, ...]]:
        return self._made[name]


def worker_on(client: hf.Client) -> hf.Worker:
    return hf.Worker(client, workflows=[doubled], activities=[double])


def test_C15_a_client_reads_the_ends_of_its_runs_in_batches_only(store: str) -> None:
    async def scenario() -> None:
        async with await hf.connect(store) as client, await hf.connect(store) as working, worker_on(working):
            calls = Calls(client, "read_instance", "find_instance", "read_instances")
            runs = [client.run("doubled", number, id=f"run-{number}") for number in range(COUNT)]
            assert await asyncio.gather(*runs) == [2 * number for number in range(COUNT)]
            handles = [await client.start("doubled", number) for number in range(COUNT)]
            results = [handle.result() for handle in handles]
            assert await asyncio.gather(*results) == [2 * number for number in range(COUNT)]
            async with asyncio.timeout(FAST_SECONDS):
                assert await handles[0].result() == 0, "an instance that has ended is read at once"
            assert calls.of("read_instance") == calls.of("find_instance") == []
            assert any(len(numbers) > 1 for (numbers,) in calls.of("read_instances"))

    together(scenario())
    sound(store)


def test_C15_a_process_reads_an_instance_again_that_ended_before_its_name_was_written(store: str) -> None:
    async def scenario() -> None:
        async with (
            await hf.connect(store) as client,
            hf.Engine(store, workflows=[doubled], activities=[double]) as engine,
        ):
            await engine.run(doubled, 3, id="a")
            number = (await instance(client, "a")).number
            results = client._session.results
            results.watch(number)
            waiting = results.expect(InstanceId("a"), number)
            async with asyncio.timeout(FAST_SECONDS):
                assert await waiting.ended() is not None
            await until(lambda: not results.is_watched(number))

    together(scenario())


def test_G8_the_instances_of_a_claim_are_loaded_together(store: str) -> None:
    async def scenario() -> None:
        async with await hf.connect(store) as client, await hf.connect(store) as working:
            handles = [await client.start("doubled", number) for number in range(COUNT)]
            calls = Calls(working, "load", "load_many")
            async with worker_on(working):
                for number, handle in enumerate(handles):
                    assert await handle.result(timeout=20) == 2 * number
            assert calls.of("load") == []
            assert [len(executions) for (executions,) in calls.of("load_many")] == [COUNT]

    together(scenario())
    sound(store)


def test_G8_at_most_a_batch_of_instances_is_loaded_together(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claimer, "LOAD_BATCH", 8)

    async def scenario() -> None:
        async with await hf.connect(store) as client, await hf.connect(store) as working:
            handles = [await client.start("doubled", number) for number in range(COUNT)]
            calls = Calls(working, "load_many")
            async with worker_on(working):
                for handle in handles:
                    await handle.result(timeout=20)
            assert [len(executions) for (executions,) in calls.of("load_many")] == [8, 8, 4]

    together(scenario())


def test_G12_instances_are_loaded_alone_if_they_cannot_be_loaded_together(
    store: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="holdfast")

    async def scenario() -> None:
        async with await hf.connect(store) as client, await hf.connect(store) as working:
            handles = [await client.start("doubled", number) for number in range(3)]
            calls = Calls(working, "load", "load_many", most=1)
            async with worker_on(working):
                for number, handle in enumerate(handles):
                    assert await handle.result(timeout=20) == 2 * number
            assert len(calls.of("load")) == 3

    together(scenario())
    assert "could not be loaded together" in caplog.text


def test_G12_a_suspect_is_loaded_alone(tmp_path: Path) -> None:
    sqlite_store = str(tmp_path / "shop.db")

    async def scenario() -> None:
        async with await hf.connect(sqlite_store) as client, await hf.connect(sqlite_store) as working:
            handles = [await client.start("doubled", number, id=f"run-{number}") for number in range(4)]
            connection: Any = apsw.Connection(sqlite_store)
            connection.execute("UPDATE instances SET losses = 2 WHERE id = 'run-2'")
            [(suspect,)] = connection.execute("SELECT number FROM instances WHERE id = 'run-2'").fetchall()
            connection.close()
            calls = Calls(working, "load_many")
            async with worker_on(working):
                for handle in handles:
                    await handle.result(timeout=20)
            batches = [[number for number, _ in executions] for (executions,) in calls.of("load_many")]
            assert [len(batch) for batch in batches if suspect in batch] == [1]
            assert max(map(len, batches)) == 3

    together(scenario())
