"""Updates and ends: of their workflow, of an execution of it (G4, G14), by others (A9), and by a build (G12)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, engine_of, rows, together, until

import holdfast as hf
from holdfast.audit.auditor import audit

CACHES = pytest.mark.parametrize("cache_size", [1_000, 0])


@hf.activity
async def double(number: int) -> int:
    return 2 * number


@hf.workflow
async def basket(limit: int = 100) -> list[int]:
    found: list[int] = []

    @hf.on_update
    async def add(number: int) -> int:
        found.append(await double(number))
        return sum(found)

    @hf.on_update("slow")
    async def takes_an_hour(number: int) -> str:
        await asyncio.sleep(3600)
        return f"{number} of {limit}"

    del add, takes_an_hour
    await hf.event("stop")
    return found


@hf.workflow
async def goes_round(number: int) -> int:
    @hf.on_update
    def which() -> int:
        return number

    @hf.on_update
    async def waits() -> str:
        return await hf.event("never", str)

    await hf.event("next")
    await double(1)
    if number < 3:
        hf.continue_as_new(number + 1)
    return number


@hf.workflow
async def ends_by_update() -> str:
    answer = ""

    @hf.on_update
    def finish(with_: str) -> str:
        nonlocal answer
        answer = with_
        return f"ended with {with_}"

    await hf.wait_until(lambda: answer)
    return answer


@hf.workflow
async def waits_for_handlers() -> str:
    wanted = False

    @hf.on_update
    async def slowly() -> int:
        nonlocal wanted
        wanted = True
        return await double(await double(1))

    await hf.wait_until(lambda: wanted)
    await hf.wait_until(hf.all_handlers_finished)
    return "all done"


@hf.workflow
async def cleans_up() -> None:
    @hf.on_update
    async def patient() -> str:
        try:
            await hf.event("never")
        except asyncio.CancelledError:
            return f"cleaned up {await double(4)}"
        return "never"

    await hf.event("stop")


@hf.workflow
async def cleans_before_the_next(number: int) -> int:
    @hf.on_update
    def which() -> int:
        return number

    async def left_over() -> None:
        try:
            await hf.event("never")
        finally:
            await hf.event("cleaned")

    task = asyncio.create_task(left_over())
    await hf.event("next")
    if number < 2 and not task.done():
        hf.continue_as_new(number + 1)
    return number


ALL = (double, basket, goes_round, ends_by_update, waits_for_handlers, cleans_up, cleans_before_the_next)


def sound(path: Path) -> None:
    check_tables(path)
    assert audit(path) == []


@CACHES
def test_G7_an_update_to_a_finished_instance_is_refused(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(basket, id="it")
            await handle.raise_event("stop")
            await handle.result(timeout=10)
            with pytest.raises(hf.InstanceClosed, match="'it' is COMPLETED: the update 'add' of 'it' was not taken"):
                await handle.update("add", 3)
            assert rows(path, "SELECT * FROM updates") == []
        sound(path)

    together(scenario())


@CACHES
def test_an_update_may_end_its_workflow_and_is_answered_all_the_same(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(ends_by_update, id="it")
            assert await handle.update("finish", "x") == "ended with x"
            assert await handle.result(timeout=10) == "x"
            patient = await engine.start(waits_for_handlers, id="patient")
            assert await patient.update("slowly") == 4
            assert await patient.result(timeout=10) == "all done"
        sound(path)

    together(scenario())


@CACHES
def test_G14_a_handler_that_is_at_work_at_the_end_is_cancelled_and_its_sender_told(
    tmp_path: Path, cache_size: int
) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(basket, id="it")
            asked = asyncio.create_task(handle.update("slow", 1, id="one"))
            await until(lambda: rows(path, "SELECT state FROM updates") == [("accepted",)])
            await handle.raise_event("stop")
            with pytest.raises(hf.errors.UpdateUnfinished, match="ended before its update 'slow' was done"):
                await asked
            assert await handle.result(timeout=10) == []
            with pytest.raises(hf.errors.UpdateUnfinished):
                await handle.update("slow", 1, id="one")
            cleaning = await engine.start(cleans_up, id="cleaning")
            asked = asyncio.create_task(cleaning.update("patient"))
            await until(lambda: rows(path, "SELECT state FROM updates WHERE number = 2") == [("accepted",)])
            await cleaning.cancel("enough")
            assert await asked == "cleaned up 8"
            with pytest.raises(hf.WorkflowCancelled):
                await cleaning.result(timeout=10)
        sound(path)

    together(scenario())


def test_A9_who_terminates_a_workflow_leaves_its_updates_without_an_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine:
            handle = await engine.start(basket, id="it")
            asked = asyncio.create_task(handle.update("slow", 1))
            await until(lambda: rows(path, "SELECT state FROM updates") == [("accepted",)])
            await handle.terminate()
            with pytest.raises(hf.errors.UpdateUnfinished, match="ended before the update 'slow' of 'it' had finished"):
                await asked
        client = await hf.connect(path)
        try:
            early = await client.start("basket", id="early")
            asked = asyncio.create_task(early.update("add", 1))
            await until(lambda: rows(path, "SELECT count(*) FROM updates WHERE number = 2") == [(1,)])
            await early.terminate()
            with pytest.raises(hf.InstanceClosed, match="is TERMINATED, and the update 'add'"):
                await asked
        finally:
            await client.close()
        sound(path)

    together(scenario())


@CACHES
def test_G4_what_was_not_accepted_goes_over_to_the_next_execution(tmp_path: Path, cache_size: int) -> None:
    """Sent while an execution cleans up, an update is answered by the next; one that is at work ends with its own."""

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(goes_round, 1, id="it")
            assert await handle.update("which") == 1
            waiting = asyncio.create_task(handle.update("waits"))
            await until(lambda: rows(path, "SELECT count(*) FROM updates WHERE state = 'accepted'") == [(1,)])
            await handle.raise_event("next")
            with pytest.raises(hf.errors.UpdateUnfinished, match="the execution ended before its update"):
                await waiting
            await until(lambda: rows(path, "SELECT execution, turn FROM instances") == [(2, 1)])
            assert await handle.update("which") == 2
            answers = asyncio.gather(*(handle.update("which") for _ in range(20)))
            await handle.raise_event("next")
            assert set(await answers) <= {2, 3}
            await until(lambda: rows(path, "SELECT execution FROM instances") == [(3,)])
            assert await handle.update("which") == 3
        sound(path)

    together(scenario())


@CACHES
def test_G4_an_update_that_comes_while_an_execution_cleans_up_is_for_the_next(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(cleans_before_the_next, 1, id="it")
            busy = await engine.start(basket, id="busy")

            async def update_during_clean_up() -> "asyncio.Task[Any]":
                await handle.raise_event("next")
                await until(lambda: "cleaned" in rows(path, "SELECT waits FROM instances WHERE number = 1")[0][0])
                sent = asyncio.create_task(handle.update("which"))
                await until(lambda: rows(path, "SELECT 1 FROM updates WHERE state = 'asked'"))
                for _ in range(10):  # time enough for a loop that spins to show in the fence
                    await busy.update("add", 1)
                assert not sent.done()
                await handle.raise_event("cleaned")
                return sent

            assert await (await update_during_clean_up()) == 2
            with pytest.raises(hf.InstanceClosed, match="is COMPLETED, and the update 'which'"):
                await (await update_during_clean_up())
            assert await handle.result(timeout=10) == 2
            assert rows(path, "SELECT fence FROM instances WHERE number = 1")[0][0] < 20
        sound(path)

    together(scenario())


def test_G12_an_update_for_a_blocked_instance_waits_and_says_so(tmp_path: Path) -> None:
    @hf.workflow(name="basket")
    async def changed(limit: int = 100) -> None:
        await double(limit)

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine:
            await engine.start(basket, id="it")
        async with engine_of(path, double, changed) as engine:
            with pytest.raises(hf.WorkflowBlocked, match="send it again with id='one'"):
                await engine.get("it").update("add", 3, id="one")
        async with engine_of(path, *ALL) as engine:
            assert await engine.get("it").update("add", 3, id="one") == 6
        sound(path)

    together(scenario())
