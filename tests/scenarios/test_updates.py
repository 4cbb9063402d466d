"""Updates (G5, G10, G11): validated, applied once by their id, recorded with the turn, answered also after a crash."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, engine_of, history_of, rows, skipping, together
from tests.support.inside import key_of, mark_lost, worker_of

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.core.history import UpdateAccepted, UpdateHandlerCompleted, UpdateHandlerFailed

CACHES = pytest.mark.parametrize("cache_size", [1_000, 0])


@dataclass(frozen=True)
class Order:
    name: str
    pieces: int


add = hf.Update[int]("add")


@hf.activity
async def double(number: int) -> int:
    return 2 * number


@hf.workflow
async def basket(limit: int = 100) -> list[int]:
    found: list[int] = []

    @hf.on_update(add)
    async def add_twice(number: int) -> int:
        found.append(await double(number))
        return sum(found)

    @add_twice.validator
    def is_small(number: int) -> None:
        if number > limit:
            raise ValueError(f"{number} is too many")

    @hf.on_update
    def order(what: Order) -> Order:
        found.append(what.pieces)
        return Order(what.name, sum(found))

    @hf.on_update("slow")
    async def takes_an_hour(number: int) -> str:
        await asyncio.sleep(3600)
        found.append(number)
        return "done"

    @hf.on_update
    def breaks() -> None:
        raise LookupError("nothing there")

    @hf.on_query
    def total() -> int:
        return sum(found)

    await hf.event("stop")
    return found


ALL = (double, basket)


def updates_in(path: Path, number: int = 1) -> list[object]:
    kinds = UpdateAccepted | UpdateHandlerCompleted | UpdateHandlerFailed
    return [event for event in history_of(path, number) if isinstance(event, kinds)]


def sound(path: Path) -> None:
    check_tables(path)
    assert audit(path) == []


@CACHES
def test_G10_an_update_changes_the_workflow_and_gives_its_result_with_its_types(
    tmp_path: Path, cache_size: int
) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(basket, id="it")
            assert await handle.update(add, 3) == 6
            assert await handle.update("order", Order("pens", 4), returns=Order) == Order("pens", 10)
            assert await handle.update("order", Order("ink", 0)) == {"name": "ink", "pieces": 10}
            assert await handle.query("total") == 10
            sums = await asyncio.gather(*(handle.update(add, 1) for _ in range(20)))
            assert sorted(sums) == list(range(12, 52, 2))
            sound(path)
            await handle.raise_event("stop")
            assert await handle.result(timeout=10) == [6, 4, 0, *[2] * 20]
        sound(path)

    together(scenario())


@CACHES
def test_G6_the_same_id_is_applied_once_and_answered_the_same_also_after_the_end(
    tmp_path: Path, cache_size: int
) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(basket, id="it")
            assert await asyncio.gather(*(handle.update(add, 3, id="one") for _ in range(5))) == [6] * 5
            assert await handle.update(add, 5, id="two") == 16
            with pytest.raises(
                hf.errors.UpdateConflict, match="'one' belongs to the update 'add' with other arguments; send"
            ):
                await handle.update(add, 99, id="one")
            with pytest.raises(hf.errors.UpdateConflict, match="'one' belongs to the update 'add', not 'breaks'; send"):
                await handle.update("breaks", 3, id="one")
            with pytest.raises(hf.UpdateFailed):
                await handle.update("breaks", id="three")
            await handle.raise_event("stop")
            assert await handle.result(timeout=10) == [6, 10]
            assert await handle.update(add, 3, id="one") == 6
            with pytest.raises(hf.UpdateFailed, match="LookupError: nothing there"):
                await handle.update("breaks", id="three")
        assert len(updates_in(path)) == 6
        sound(path)

    together(scenario())


@CACHES
def test_G11_validator_rejects_without_history(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(basket, 10, id="it")
            before = rows(path, "SELECT * FROM history"), rows(path, "SELECT turn FROM instances")
            with pytest.raises(hf.UpdateRejected, match="'add' of 'it' was rejected: ValueError: 11 is too many") as no:
                await handle.update(add, 11, id="one")
            assert isinstance(no.value.cause, ValueError)
            with pytest.raises(hf.UpdateRejected, match=r"ArgumentError: .*argument `number` cannot be read"):
                await handle.update("add", "many")
            assert (rows(path, "SELECT * FROM history"), rows(path, "SELECT turn FROM instances")) == before
            assert rows(path, "SELECT count(*) FROM inbox") == [(0,)]
            assert await handle.update(add, 9, id="one") == 18, "what left no trace may be sent again"
            with pytest.raises(hf.UpdateRejected):
                await handle.update(add, 11)
            await handle.raise_event("stop")
            assert await handle.result(timeout=10) == [18]
        sound(path)

    together(scenario())


@CACHES
def test_unknown_update_lists_the_handlers_and_leaves_no_history(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(basket, id="it")
            before = rows(path, "SELECT * FROM history")
            with pytest.raises(hf.errors.UnknownUpdate, match="the workflow has add, breaks, order, slow") as caught:
                await handle.update("nope")
            assert caught.value.handlers == ("add", "breaks", "order", "slow")
            assert rows(path, "SELECT * FROM history") == before
            with pytest.raises(hf.InstanceNotFound):
                await engine.get("nobody").update("add", 1)
        sound(path)

    together(scenario())


def test_a_handler_that_raises_is_told_to_the_sender_and_the_workflow_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine:
            handle = await engine.start(basket, id="it")
            with pytest.raises(hf.UpdateFailed, match="the update 'breaks' of 'it' failed: LookupError") as caught:
                await handle.update("breaks")
            assert isinstance(caught.value.cause, LookupError)
            assert await handle.update(add, 1) == 2
        sound(path)

    together(scenario())


@CACHES
def test_G5_an_update_before_the_first_turn_waits_for_its_handler(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        client = await hf.connect(path)
        try:
            handle = await client.start("basket", id="it")
            with pytest.raises(TimeoutError, match="send it again with id='one'"):
                await handle.update("add", 3, id="one", timeout=0.01)
            async with asyncio.TaskGroup() as group:
                asked = group.create_task(handle.update("add", 3, id="one"))
                async with engine_of(path, *ALL, cache_size=cache_size):
                    assert await asked == 6
        finally:
            await client.close()
        sound(path)

    together(scenario())


@CACHES
def test_G11_an_update_result_survives_a_crash(tmp_path: Path, cache_size: int) -> None:
    """The worker dies after one answer and while another handler waits: the same ids get their answers."""

    @hf.workflow
    async def lists() -> list[int]:
        found: list[int] = []

        @hf.on_update(add)
        async def add_twice(number: int) -> int:
            found.append(await double(number))
            return sum(found)

        @hf.on_update
        async def add_when_allowed(number: int) -> str:
            await hf.event("allowed")
            found.append(number)
            return "done"

        await hf.event("stop")
        return found

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        engine = engine_of(path, lists, double, cache_size=cache_size)
        await engine.__aenter__()
        handle = await engine.start(lists, id="it")
        assert await handle.update(add, 3, id="one") == 6
        with pytest.raises(TimeoutError):
            await handle.update("add_when_allowed", 7, id="two", timeout=0.05)
        dead = key_of(worker_of(engine))
        await worker_of(engine).kill()
        await engine._kill()
        async with engine_of(path, lists, double, cache_size=cache_size) as other:
            await mark_lost(worker_of(other), dead)
            again = other.get("it")
            assert await again.update(add, 3, id="one") == 6
            await again.raise_event("allowed")
            assert await again.update("add_when_allowed", 7, id="two") == "done"
            await again.raise_event("stop")
            assert await again.result() == [6, 7]
        assert len(updates_in(path)) == 4
        sound(path)

    together(scenario())


def test_G12_code_that_lost_the_handler_of_a_recorded_update_is_found_out(tmp_path: Path) -> None:
    @hf.workflow(name="basket")
    async def without(limit: int = 100) -> list[int]:
        await hf.event("stop")
        return [limit]

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine:
            await (await engine.start(basket, id="it")).update(add, 3)
        async with engine_of(path, double, without) as engine:
            handle = engine.get("it")
            await handle.raise_event("stop")
            with pytest.raises(hf.WorkflowBlocked, match="the history has an update 'add'"):
                await handle.result(timeout=10)

    together(scenario())


def test_C1_a_client_without_code_updates_an_instance_of_another_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine, engine_of(path, *ALL) as other:
            await engine.start(basket, id="it")
            client = await hf.connect(path)
            try:
                sums = await asyncio.gather(*(side.get("it").update(add, 1) for side in (engine, other, client) * 5))
                assert sorted(sums) == list(range(2, 32, 2))
            finally:
                await client.close()
        sound(path)

    together(scenario())


def test_large_arguments_and_answers_travel_by_reference(tmp_path: Path) -> None:
    @hf.workflow
    async def echoes() -> None:
        @hf.on_update
        def echo(text: str) -> str:
            return text + "!"

        await hf.event("stop")

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        text = "x" * 100_000
        async with engine_of(path, echoes) as engine:
            handle = await engine.start(echoes, id="it")
            assert await handle.update("echo", text, id="one") == text + "!"
            assert await handle.update("echo", text, id="one") == text + "!"
            assert rows(path, "SELECT count(*) FROM payloads") == [(2,)]
            await handle.raise_event("stop")
            await handle.result()
        sound(path)
        assert max(len(events) for (events,) in rows(path, "SELECT events FROM history")) < 10_000

    together(scenario())


@CACHES
def test_G12_a_validator_that_changes_something_parks_the_workflow(tmp_path: Path, cache_size: int) -> None:
    @hf.workflow
    async def spoils() -> None:
        box: asyncio.Queue[int] = asyncio.Queue()

        @hf.on_update
        def put(number: int) -> int:
            return number

        @put.validator
        def check(number: int) -> None:
            if number > 1:
                box.put_nowait(number)
            hf.set_status("changed")

        await box.get()

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, spoils, cache_size=cache_size) as engine:
            handle = await engine.start(spoils, id="it")
            with pytest.raises(hf.UpdateRejected, match="the validator of update 'put' is read-only"):
                await handle.update("put", 1)
            with pytest.raises(hf.WorkflowBlocked, match="NotReadOnly: the validator of update 'put' is read-only"):
                await handle.update("put", 2)

    together(scenario())


def test_updates_work_in_an_environment_that_skips_time() -> None:
    async def scenario() -> None:
        async with skipping(*ALL) as env:
            handle = await env.start(basket, id="it")
            assert await handle.update(add, 3) == 6
            assert await handle.update("slow", 7) == "done"
            await handle.raise_event("stop")
            assert await handle.result() == [6, 7]

    asyncio.run(scenario())


def test_what_cannot_handle_an_update_is_refused_where_it_is_registered() -> None:
    async def generator() -> Any:
        yield 1

    @hf.workflow
    async def registers(how: int) -> None:
        if how == 0:
            hf.on_update(generator)

        @hf.on_update
        def fine() -> None: ...

        async def check() -> None: ...

        fine.validator(check)

    async def scenario() -> None:
        async with engine_of(":memory:", registers) as engine:
            with pytest.raises(hf.WorkflowFailed, match="'generator' must be handled by a `def` or an `async def`"):
                await engine.run(registers, 0, id="a")
            with pytest.raises(hf.WorkflowFailed, match="the validator of update 'fine' must be a plain `def`"):
                await engine.run(registers, 1, id="b")

    together(scenario())
