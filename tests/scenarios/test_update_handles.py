"""Handles of updates (G16, G17): accepted first, answered later, in any process; sent with a start; ids in handlers."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, engine_of, history_of, rows, skipping, together

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.core.history import UpdateAccepted
from holdfast.errors import InvalidOption, NotInWorkflow, UnknownUpdate, UpdateConflict, UpdateNotFound, UsageError

CACHES = pytest.mark.parametrize("cache_size", [1_000, 0])
add = hf.Update[int]("add")


@hf.activity
async def double(number: int) -> int:
    return 2 * number


@hf.workflow
async def basket(limit: int = 100) -> list[int]:
    found: list[int] = []

    @hf.on_update(add)
    async def add_twice(number: int) -> int:
        await hf.event("go")
        found.append(await double(number))
        return sum(found)

    @add_twice.validator
    def is_small(number: int) -> None:
        if number > limit:
            raise ValueError(f"{number} is too many")

    @hf.on_update
    def put(number: int) -> int:
        found.append(number)
        return sum(found)

    @hf.on_update
    def breaks() -> None:
        raise LookupError("nothing there")

    await hf.event("stop")
    await hf.wait_until(hf.all_handlers_finished)
    return found


@hf.workflow
async def ends_at_once(number: int) -> int:
    @hf.on_update
    def which() -> int:
        return number

    return number


@hf.workflow
async def knows_ids() -> list[str]:
    found: list[str] = []

    @hf.on_update
    async def note(word: str) -> str:
        async def inside() -> str:
            await double(1)
            return hf.update_info().id

        same = await asyncio.create_task(inside())
        assert same == hf.update_info().id
        found.append(f"{hf.update_info().name} {same} {word}")
        return found[-1]

    @note.validator
    def has_id(word: str) -> None:
        if hf.update_info().id == "no":
            raise ValueError(word)

    await hf.event("stop")
    try:
        hf.update_info()
    except UsageError as error:
        found.append(str(error))
    return found


@hf.workflow
async def leaves(how: str) -> str:
    @hf.on_update
    async def waits(number: int) -> int:
        try:
            return await hf.event("never", int) + number
        finally:
            if how == "cleans":
                await double(await double(1))

    await hf.event("stop")
    if how == "continues":
        hf.continue_as_new("is over")
    if how == "fails":
        raise ValueError(how)
    return how


ALL = (double, basket, ends_at_once, knows_ids, leaves)


def sound(path: Path) -> None:
    check_tables(path)
    assert audit(path) == []


def updates_in(path: Path, number: int = 1) -> list[str]:
    return [event.id for event in history_of(path, number) if isinstance(event, UpdateAccepted)]


@CACHES
def test_G17_start_update_returns_when_accepted_and_its_handle_has_the_result(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(basket, 10, id="it")
            sent = await handle.start_update(add, 3, id="one")
            assert (sent.id, sent.instance_id) == ("one", "it")
            assert rows(path, "SELECT id, state FROM updates") == [("one", "accepted")]
            with pytest.raises(TimeoutError, match="'one' of 'it' was not answered in time; it continues"):
                await sent.result(timeout=0.05)
            again = await handle.start_update(add, 3, id="one")
            await handle.raise_event("go")
            assert await sent.result(timeout=10) == 6
            assert await again.result(timeout=10) == 6
            assert await handle.update(add, 3, id="one") == 6
            await handle.raise_event("stop")
            assert await handle.result(timeout=10) == [6]
            assert await engine.get_update("it", "one").result(timeout=10) == 6
        assert updates_in(path) == ["one"]
        sound(path)

    together(scenario())


@CACHES
def test_G17_start_update_raises_what_is_not_accepted(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(basket, 10, id="it")
            with pytest.raises(hf.UpdateRejected, match="ValueError: 11 is too many"):
                await handle.start_update(add, 11, id="large")
            with pytest.raises(hf.UpdateRejected, match="11 is too many"):
                await engine.get_update("it", "large").result(timeout=10)
            with pytest.raises(UnknownUpdate, match="add, breaks, put"):
                await handle.start_update("remove", 1)
            sent = await handle.start_update("put", 1, id="one", returns=int)
            with pytest.raises(UpdateConflict, match="'one' belongs to the update 'put'"):
                await handle.start_update("breaks", id="one")
            broken = await handle.start_update("breaks")
            with pytest.raises(hf.UpdateFailed, match="LookupError: nothing there"):
                await broken.result(timeout=10)
            assert await sent.result(timeout=10) == 1
            await handle.raise_event("stop")
            await handle.result(timeout=10)
            with pytest.raises(hf.InstanceClosed, match="COMPLETED: the update 'put' of 'it' was not taken"):
                await handle.start_update("put", 2)
        sound(path)

    together(scenario())


def test_G17_an_unknown_update_is_an_error_and_not_a_wait(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL) as engine:
            with pytest.raises(hf.InstanceNotFound, match="'it'"):
                await engine.get_update("it", "one").result()
            handle = await engine.start(basket, id="it")
            with pytest.raises(UpdateNotFound, match="the update with the id 'one' of 'it' does not exist"):
                await engine.get_update("it", "one").result()
            await handle.terminate()
            with pytest.raises(hf.InstanceClosed, match="TERMINATED, and the update with the id 'one' of 'it' was not"):
                await engine.get_update("it", "one").result()

    together(scenario())


def test_G17_another_process_gets_the_result_by_the_two_ids(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine, hf.connect(path) as other:
            handle = await engine.start(basket, id="it")
            sent = await other.get("it").start_update(add, 4, id="one")
            there = asyncio.create_task(sent.result(timeout=10))
            third = asyncio.create_task(other.get_update("it", "one", returns=float).result(timeout=10))
            await handle.raise_event("go")
            assert [await there, await third] == [8, 8.0]
            assert repr(other.get_update("it", "one")) == "<handle of update 'one' of 'it'>"
        sound(path)

    together(scenario())


def test_G17_an_update_without_a_worker_waits_until_one_accepts_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with hf.connect(path) as client:
            handle = await client.start("basket", id="it")
            with pytest.raises(TimeoutError, match="was not accepted in time; send it again with id='one'"):
                await handle.start_update("put", 2, id="one", timeout=0.05)
            accepted = asyncio.create_task(handle.start_update("put", 2, id="one"))
            async with engine_of(path, *ALL):
                assert await (await accepted).result(timeout=10) == 2
        sound(path)

    together(scenario())


@CACHES
@pytest.mark.parametrize("here", [True, False])
def test_G17_a_start_brings_an_update_whether_it_creates_or_finds_its_instance(
    tmp_path: Path, cache_size: int, here: bool
) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine, hf.connect(path) as outside:
            client: hf.Client = engine if here else outside
            found: list[Any] = []
            for number, update_id in ((1, "one"), (2, "two"), (1, "one"), (4, None), (4, None)):
                handle = await client.start("basket", 50, id="it", update=("put", (number,)), update_id=update_id)
                assert handle.sent_update is not None
                assert update_id in {handle.sent_update.id, None}
                found.append((handle.is_new, await handle.sent_update.result(timeout=10)))
            assert found == [(True, 1), (False, 3), (False, 1), (False, 7), (False, 11)]
            with pytest.raises(UpdateConflict, match="'one' belongs to the update 'put' with other arguments"):
                await client.start("basket", 50, id="it", update=("put", (9,)), update_id="one")
            with pytest.raises(hf.InstanceConflict):
                await client.start("basket", 51, id="it", update=("put", (9,)), update_id="nine")
            with pytest.raises(UpdateNotFound):
                await client.get_update("it", "nine").result()
            await client.get("it").raise_event("stop")
            assert await client.get("it").result(timeout=10) == [1, 2, 4, 4]
            again = await client.start("basket", 50, id="it", update=("put", (1,)), update_id="one")
            assert again.sent_update is not None
            assert await again.sent_update.result(timeout=10) == 1
            with pytest.raises(hf.InstanceClosed, match="COMPLETED: the update 'put' of 'it' was not taken"):
                await client.start("basket", 50, id="it", update=("put", (5,)))
            fresh = await client.start("basket", 50, id="it", policy="reuse", update=("put", [5]))
            assert fresh.is_new
            assert fresh.sent_update is not None
            assert await fresh.sent_update.result(timeout=10) == 5
            first = await client.start("basket", 50, id="it", policy="terminate_existing", update=(add, (7,)))
            assert first.sent_update is not None
            await first.raise_event("go")
            assert await first.sent_update.result(timeout=10) == 14
        sound(path)

    together(scenario())


def test_G17_the_update_of_a_start_reaches_a_workflow_that_ends_in_its_first_turn(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine:
            handle = await engine.start(ends_at_once, 3, update=("which", ()))
            assert handle.sent_update is not None
            assert await handle.sent_update.result(timeout=10) == 3
            assert await handle.result(timeout=10) == 3
            rejected = await engine.start(basket, 1, update=(add, (2,)))
            assert rejected.sent_update is not None
            with pytest.raises(hf.UpdateRejected, match="2 is too many"):
                await rejected.sent_update.result(timeout=10)
            plain = await engine.start(basket)
            assert plain.sent_update is None
        sound(path)

    together(scenario())


def test_G17_the_update_of_a_later_start_waits_with_it() -> None:
    async def scenario() -> None:
        async with skipping(*ALL) as env:
            handle = await env.start(ends_at_once, 3, start_at=3600, update=("which", ()), update_id="u")
            began = env.now
            assert handle.sent_update is not None
            assert await handle.sent_update.result() == 3
            assert (env.now - began).total_seconds() >= 3599

    together(scenario(), seconds=10_000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"update": "put"}, r"such as update=\(\"add\", \(1, 2\)\), not 'put'"),
        ({"update": ("put", 1)}, "update takes a name and a tuple of arguments"),
        ({"update": ("put",)}, "update takes a name and a tuple of arguments"),
        ({"update": ("put", (1,)), "event": ("stop", None)}, "an event or an update, not both"),
        ({"update_id": "one"}, "update_id='one' needs an update"),
    ],
)
def test_G17_a_start_refuses_what_is_no_update(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL) as engine:
            with pytest.raises(InvalidOption, match=message):
                await engine.start(basket, id="it", **options)
            with pytest.raises(hf.InstanceNotFound):
                await engine.get("it").describe()

    together(scenario())


@CACHES
def test_G16_a_handler_knows_the_id_of_its_update(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(knows_ids, id="it")
            found = await asyncio.gather(*(handle.update("note", word, id=f"id {word}") for word in ("a", "b")))
            assert found == ["note id a a", "note id b b"]
            with pytest.raises(hf.UpdateRejected, match="ValueError: c"):
                await handle.update("note", "c", id="no")
            await handle.raise_event("stop")
            notes = await handle.result(timeout=10)
            assert sorted(notes[:2]) == found
            assert notes[2].startswith("hf.update_info works in the handler of an update")
        sound(path)

    together(scenario())


def test_G16_update_info_and_the_predicate_belong_to_workflow_code() -> None:
    for call in (hf.update_info, hf.all_handlers_finished):
        with pytest.raises(NotInWorkflow, match=f"hf.{call.__name__} works in workflow code only"):
            call()


@CACHES
@pytest.mark.parametrize("how", ["returns", "fails", "continues", "cleans", "cancelled"])
def test_G16_a_workflow_that_ends_with_running_handlers_logs_one_warning(
    tmp_path: Path, cache_size: int, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(leaves, how, id="it")
            sent = [await handle.start_update("waits", number, id=f"u{number}") for number in range(12)]
            if how == "cancelled":
                await handle.cancel()
            else:
                await handle.raise_event("stop")
            with pytest.raises(hf.errors.UpdateUnfinished):
                await sent[0].result(timeout=10)
            if how == "continues":
                await handle.raise_event("stop")
            if how in {"fails", "cancelled"}:
                with pytest.raises((hf.WorkflowFailed, hf.WorkflowCancelled)):
                    await handle.result(timeout=10)
            else:
                await handle.result(timeout=10)
        sound(path)

    with caplog.at_level(logging.WARNING, "holdfast"):
        together(scenario())
    lines = [record.getMessage() for record in caplog.records if "handlers" in record.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith(
        "the workflow ended while the handlers of 12 of its updates had not finished: 'waits' (id"
    )
    assert "'waits' (id 'u9') and 2 more; await hf.wait_until(hf.all_handlers_finished)" in lines[0]


def test_G16_a_workflow_that_waits_for_its_handlers_logs_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL) as engine:
            handle = await engine.start(basket, id="it")
            sent = await handle.start_update(add, 3)
            await handle.raise_event("stop")
            await handle.raise_event("go")
            assert [await sent.result(timeout=10), await handle.result(timeout=10)] == [6, [6]]

    with caplog.at_level(logging.WARNING, "holdfast"):
        together(scenario())
    assert not [record for record in caplog.records if "handlers" in record.getMessage()]


def test_the_former_name_of_the_predicate_works_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match=r"holdfast.updates_finished is called holdfast.all_handlers_finished"):
        former = hf.updates_finished  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
    assert former is hf.all_handlers_finished
