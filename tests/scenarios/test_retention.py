"""Retention, deletions and prunes (R30-R38; scenarios 19 and 20 of the operating page)."""

import asyncio
import datetime as dt
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.kinds import are_files
from tests.scenarios.support import engine_of, rows, together, until

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.background import Duty
from holdfast.client.client import store_of
from holdfast.errors import FamilyKept, FamilyOpen, InvalidOption, NotARoot, UsageError
from holdfast.runtime.duties import retention as duty
from holdfast.storage.records import InstanceNumber

TABLES = (
    *("history", "inbox", "received", "timers", "attempts", "payloads", "kept", "attributes", "updates", "closings"),
    *("offers", "questions"),
)


@hf.activity
async def add_one(number: int) -> int:
    return number + 1


@hf.workflow
async def grandchild(number: int) -> int:
    return await add_one(number)


@hf.workflow
async def child(number: int) -> int:
    hf.state["seen"] = number
    return await grandchild(await add_one(number))


@hf.workflow
async def parent(number: int) -> int:
    hf.attributes["customer"] = "acme"
    return await child(number)


@hf.workflow
async def detaches(number: int) -> str:
    handle = await hf.start(waits, number, parent_close="abandon")
    return handle.id


@hf.workflow
async def waits(number: int) -> int:
    await hf.event("go")
    return number


@hf.workflow
async def held(number: int) -> int:
    hf.attributes["keep"] = True
    return number


@hf.workflow
async def declines(number: int) -> int:
    raise hf.InvalidId(f"{number} is declined")


@hf.workflow
async def climbs(number: int) -> int:
    await add_one(number)
    if number < 5:
        hf.continue_as_new(number + 1)
    await hf.event("go")
    return number


CODE = (add_one, grandchild, child, parent, detaches, waits, held, declines, climbs)


def nothing_left(store: Path, *numbers: int) -> None:
    """Every row of the store belongs to an instance that exists, and none to these."""
    assert audit(store) == []
    for table in TABLES:
        found = rows(store, f"SELECT DISTINCT number FROM {table}")  # noqa: S608 - names of this module
        assert not {number for (number,) in found} & set(numbers), table
        gone = rows(store, f"SELECT number FROM {table} WHERE number NOT IN (SELECT number FROM instances)")  # noqa: S608
        assert gone == [], table


async def ids(client: hf.Client) -> set[str]:
    return {each.id for each in await client.list(limit=1000)}


def test_R31_delete_removes_a_family_with_all_its_rows(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(store, *CODE) as engine:
            await engine.run(parent, 1, id="p")
            await engine.run(parent, 2, id="other")
            assert await engine.delete("p") == 3
            assert all(each.startswith("other") for each in await ids(engine))
            with pytest.raises(hf.InstanceNotFound):
                await engine.delete("p")
            with pytest.raises(hf.InstanceNotFound):
                await engine.get("p").result()
            assert await engine.run(parent, 5, id="p") == 7, "the id can be used again"

    together(scenario())
    nothing_left(store, 1, 2, 3)


def test_R31_an_open_member_and_a_child_refuse_and_nothing_is_deleted(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(store, *CODE) as engine:
            await engine.run(parent, 1, id="p")
            other = await engine.run(detaches, 1, id="d")
            await engine.run(held, 1, id="h")
            before = await ids(engine)
            with pytest.raises(FamilyOpen, match=other):
                await engine.delete("d")
            [inner, *_] = [each.id for each in await engine.list('workflow = "child"')]
            with pytest.raises(NotARoot, match="'p'"):
                await engine.delete(inner)
            with pytest.raises(NotARoot, match="'d'"):
                await engine.delete(other)
            with pytest.raises(FamilyKept, match="keep"):
                await engine.delete("h")
            with pytest.raises(hf.DeleteRefused):
                await engine.delete("h")
            assert await ids(engine) == before
            await engine.prune(older_than=0)
            assert await ids(engine) == {"d", other, "h"}, "an open member keeps its family, and so does keep"

    together(scenario())
    assert audit(store) == []


def test_19_a_child_that_ends_later_lets_the_family_go(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *CODE) as engine:
            other = await engine.run(detaches, 1, id="d")
            assert (await engine.prune(older_than=0)).kept == {"open": 1}
            await engine.get(other).raise_event("go")
            await engine.get(other).result()
            report = await engine.prune(older_than=0)
            assert (report.families, report.instances, report.kept) == (1, 2, {})
            assert await ids(engine) == set()

    together(scenario())


def test_R30_a_worker_deletes_by_workflow_and_state_and_keeps_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duty, "SHORTEST_PAUSE_SECONDS", 0.02)
    store = tmp_path / "shop.db"
    own = hf.workflow(name="parent", retention=hf.Retention(completed=0))(parent.fn)
    never = hf.workflow(name="held", retention=hf.Retention())(grandchild.fn)

    async def scenario() -> None:
        code = [each for each in CODE if each not in (parent, held)]
        async with engine_of(store, own, never, *code, retention=hf.Retention(failed=0)) as engine:
            for number in range(3):
                await engine.run(own, number, id=f"p{number}")
                await engine.run(never, number, id=f"n{number}")
                with pytest.raises(hf.WorkflowFailed):
                    await engine.run(declines, number, id=f"f{number}")
                await engine.run(grandchild, number, id=f"g{number}")
            await until_async(engine, {*(f"n{n}" for n in range(3)), *(f"g{n}" for n in range(3))})

    together(scenario())
    nothing_left(store)


async def until_async(engine: hf.Engine, expected: set[str]) -> None:
    while await ids(engine) != expected:  # noqa: ASYNC110 - no signal tells of a deletion
        await asyncio.sleep(0.02)


def test_R30_keep_last_keeps_the_newest_of_each_workflow_and_state(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *CODE) as engine:
            for number in range(5):
                await engine.run(grandchild, number, id=f"g{number}")
                with pytest.raises(hf.WorkflowFailed):
                    await engine.run(declines, number, id=f"f{number}")
            plan = await engine.prune(keep_last=2, dry_run=True)
            report = await engine.prune(keep_last=2)
            assert plan.groups == report.groups
            assert report.instances == 6
            assert await ids(engine) == {"g3", "g4", "f3", "f4"}
            await engine.prune(keep_last=9)
            assert await ids(engine) == {"g3", "g4", "f3", "f4"}

    together(scenario())


def test_R34_executions_before_continue_as_new_are_deleted_and_the_instance_goes_on(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(store, *CODE) as engine:
            handle = await engine.start(climbs, 1, id="c")
            async for change in handle.watch():
                if change.execution == 5 and change.turn >= 2:
                    break
            assert (await engine.prune(older_than="1h")).executions == 0
            assert (await engine.prune(older_than=0)).executions == 4
            with pytest.raises(hf.InstanceNotFound, match="execution 2 of 'c' was deleted"):
                await handle.describe(execution=2)
            assert len(await handle.history()) > 0
        async with engine_of(store, *CODE) as engine:
            await engine.get("c").raise_event("go")
            assert await engine.get("c").result() == 5

    together(scenario())
    assert audit(store) == []
    assert rows(store, "SELECT DISTINCT execution FROM history") == [(5,)]


def test_R34_superseded_instances_of_an_id_are_pruned(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(store, *CODE) as engine:
            for number in range(3):
                await engine.run(grandchild, number, id="same", policy="reuse")
            assert (await engine.prune(keep_last=1)).instances == 2
            assert await engine.get("same").result() == 3
            assert (await engine.get("same").describe()).state == "COMPLETED"

    together(scenario())
    assert rows(store, "SELECT count(*) FROM instances") == [(1,)]


def test_R30_prune_selects_by_age_state_workflow_and_filter(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *CODE) as engine:
            await engine.run(parent, 1, id="p")
            await engine.run(grandchild, 1, id="g")
            with pytest.raises(hf.WorkflowFailed):
                await engine.run(declines, 1, id="f")
            everything = await ids(engine)
            assert (await engine.prune(older_than="1d")).instances == 0
            assert (await engine.prune(older_than=dt.timedelta(days=1), dry_run=True)).instances == 0
            plan = await engine.prune('a.customer = "acme"', dry_run=True)
            assert (plan.families, plan.instances, plan.dry_run) == (1, 3, True)
            assert await ids(engine) == everything, "a dry run deletes nothing"
            assert (await engine.prune(state="failed")).groups[0].workflow == "declines"
            assert (await engine.prune('a.customer = "acme"')).instances == 3
            assert (await engine.prune(workflow="nobody")).instances == 0
            assert (await engine.prune(workflow="grandchild")).instances == 1
            assert await ids(engine) == set()

    together(scenario())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "prune needs a rule"),
        ({"older_than": "soon"}, "a text such as '30d'"),
        ({"older_than": -1}, "must be 0 to"),
        ({"state": "RUNNING"}, "open instance"),
        ({"keep_last": -1}, "keep_last"),
        ({"filter": "nope = 1"}, "no field"),
    ],
)
def test_R30_a_prune_without_a_rule_or_with_a_wrong_one_is_refused(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *CODE) as engine:
            await engine.run(grandchild, 1, id="g")
            with pytest.raises((UsageError, InvalidOption, hf.FilterError), match=message):
                await engine.prune(**arguments)
            assert await ids(engine) == {"g"}

    together(scenario())


@pytest.mark.parametrize("options", [{"completed": "soon"}, {"failed": -1}, {"keep_last": 1.5}, {"completed": True}])
def test_R30_a_wrong_retention_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match="Retention"):
        hf.Retention(**options)


def test_R38_a_reader_of_a_deleted_instance_gets_a_typed_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *CODE) as engine:
            await engine.run(child, 1, id="c")
            handle = engine.get("c")
            store = store_of(engine)
            reads = store.read_history

            async def delete_before(number: Any, execution: int) -> Any:
                await engine.delete("c")
                return await reads(number, execution)

            store.read_history = delete_before  # type: ignore[method-assign]
            for read in (handle.history, handle.describe, handle.export_history):
                with pytest.raises(hf.InstanceNotFound):
                    await read()
                store.read_history = reads  # type: ignore[method-assign]
                await engine.run(child, 1, id="c")
                store.read_history = delete_before  # type: ignore[method-assign]

    together(scenario())


def test_R38_a_waiter_for_an_instance_that_is_deleted_gets_an_error(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(store, *CODE) as engine, hf.connect(store) as client:
            handle = await engine.start(waits, 1, id="w")
            results, opened = client._session.results, client._session.store
            reads, deleted = opened.read_instances, asyncio.Event()

            async def read_later(numbers: Any) -> Any:
                await deleted.wait()
                return await reads(numbers)

            opened.read_instances = read_later  # type: ignore[method-assign]
            waiting = asyncio.create_task(client.get("w").result())
            await until(lambda: results.is_watched(InstanceNumber(1)))
            await handle.terminate()
            await engine.delete("w")
            deleted.set()
            results.poll()
            with pytest.raises(hf.InstanceNotFound):
                await waiting

    together(scenario())


def test_R36_a_worker_without_retention_warns_once_if_much_could_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(duty, "MANY_CLOSED", 2)
    store = tmp_path / "shop.db"

    async def run(**options: Any) -> list[str]:
        caplog.clear()
        async with engine_of(store, *CODE, **options) as engine:
            for number in range(2):
                await engine.run(grandchild, number, id=f"g{number}")
            worker = engine._local.running
            if worker is not None and not options:
                [task] = [task for task in worker._tasks if task.duty is Duty.RETENTION]
                await until(lambda: not task.is_running)
        return [each.getMessage() for each in caplog.records if "has no retention" in each.getMessage()]

    with caplog.at_level(logging.WARNING, logger="holdfast"):
        assert together(run()) == []
        assert len(together(run())) == 1
        assert together(run(retention=hf.Retention(completed="30d"))) == []
        monkeypatch.setattr(duty, "MANY_CLOSED", 1_000)
        monkeypatch.setattr(duty, "MANY_BYTES", 1)
        assert len(together(run())) == 1


def test_R39_pruned_space_returns_to_the_file_system(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(store, *CODE) as engine:
            await asyncio.gather(*(engine.run(parent, number) for number in range(300)))
            before = await store_of(engine).size_bytes()  # type: ignore[attr-defined]
            report = await engine.prune(older_than=0)
            after = await store_of(engine).size_bytes()  # type: ignore[attr-defined]
            assert report.instances == 900
            assert report.bytes_returned == (before - after if are_files() else 0)
            assert report.bytes_returned > before / 2 or not are_files()

    together(scenario())
    assert audit(store) == []


def test_20_a_late_completion_of_a_deleted_instance_changes_nothing(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"
    going: list[asyncio.Event] = []
    ended: list[int] = []

    @hf.activity
    async def slow(number: int) -> int:
        gate = asyncio.Event()
        going.append(gate)
        try:
            await gate.wait()
        except asyncio.CancelledError:
            await gate.wait()
        ended.append(number)
        return number

    @hf.workflow
    async def uses(number: int) -> int:
        return await slow(number)

    async def scenario() -> None:
        async with engine_of(store, slow, uses) as engine:
            handle = await engine.start(uses, 1, id="u")
            await until(lambda: going)
            await handle.terminate()
            assert await engine.delete("u") == 1
            again = await engine.start(uses, 2, id="u")
            await until(lambda: len(going) == 2)
            going[0].set()
            await until(lambda: ended)
            await engine._local.committer.drain()
            assert rows(store, "SELECT number, state FROM attempts") == [(2, "RUNNING")]
            going[1].set()
            assert await again.result() == 2

    together(scenario())
    nothing_left(store, 1)
