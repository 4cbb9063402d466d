"""Several versions of one workflow beside each other: which one an instance runs on, and who may run it (R4-R8)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.by_rows import ByRows
from tests.scenarios.support import check_tables, engine_of, history_of, rows, together, until
from tests.support.inside import try_blocked, worker_of

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.core.history import Started
from holdfast.errors import DuplicateName, HistoryMismatch, InvalidId, InvalidOption, UnknownWorkflow
from holdfast.runtime.platform import SystemClockAndIds
from holdfast.testing.replayer import Replayer

NOT_YET = 0.3
"""How long a worker without the code is watched. A worker that could take the work takes it in milliseconds."""


def version(name: str, workflow: str = "checkout") -> hf.Workflow[..., Any]:
    """A version of a workflow that waits for an event and returns what it runs on."""

    async def body(order: int = 0) -> list[Any]:
        before = hf.info().version
        await hf.event("go", int)
        return [name, before, hf.info().version, order]

    return hf.workflow(name=workflow, version=name)(body)


CLOCK = SystemClockAndIds()
LATER_MS = 1_500
"""Long enough for a worker to accept a request and to stop."""
ONE, TWO, TEN, PLAIN, BETA = (version(name) for name in ("1", "2", "10", "", "beta"))


def chosen(path: Path) -> dict[str, str | None]:
    """The version of each instance, as the view of the open contract has it."""
    return dict(rows(path, "SELECT workflow_exec_id, version FROM workflows ORDER BY 1"))


def sound(path: Path) -> None:
    check_tables(path)
    assert [problem.text for problem in audit(path)] == []


async def ended(engine: hf.Client, name: str) -> Any:
    await engine.get(name).raise_event("go", 1)
    return await engine.get(name).result(timeout=20)


def test_R6_a_start_by_object_takes_its_version_and_one_by_name_the_highest(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, TWO, BETA, TEN, PLAIN, ONE) as engine:
            for name, given in (("a", ONE), ("b", TWO), ("c", PLAIN), ("d", BETA), ("e", "checkout")):
                await engine.start(given, 7, id=name)
            assert chosen(path) == {"a": "1", "b": "2", "c": "", "d": "beta", "e": "10"}
            for name, expected in (("a", "1"), ("b", "2"), ("c", ""), ("d", "beta"), ("e", "10")):
                assert await ended(engine, name) == [expected, expected, expected, 7]
            assert (await engine.get("e").describe()).version == "10"
        sound(path)

    together(scenario())


def test_G3_a_repeated_start_finds_its_instance_whatever_its_version(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, ONE, TWO) as engine:
            first = await engine.start(ONE, 7, id="a")
            for given in (TWO, ONE, "checkout"):
                again = await engine.start(given, 7, id="a")
                assert (await again.describe()).version == "1"
            with pytest.raises(hf.InstanceConflict):
                await engine.start(TWO, 8, id="a")
            await first.raise_event("go", 1)
            assert await first.result() == ["1", "1", "1", 7]

    together(scenario())


@pytest.mark.parametrize("cache_size", [0, 100])
def test_R6_an_instance_keeps_its_version_across_workers_and_replays(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, ONE, cache_size=cache_size) as engine:
            await engine.start("checkout", id="old")
            await engine.start(ONE, id="also")
        async with engine_of(path, TWO, ONE, cache_size=cache_size) as engine:
            await engine.start("checkout", id="new")
            assert await ended(engine, "old") == ["1", "1", "1", 0]
            assert await ended(engine, "also") == ["1", "1", "1", 0]
            assert await ended(engine, "new") == ["2", "2", "2", 0]
            started = [event for event in history_of(path, 1) if isinstance(event, Started)]
            assert [event.version for event in started] == ["1"], "the history has it, too"
        sound(path)

    together(scenario())


def test_R8_a_worker_takes_no_instance_of_a_version_that_it_lacks(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, ONE) as engine:
            await engine.start(ONE, id="a")
        async with engine_of(path, TWO) as engine:
            await engine.get("a").raise_event("go", 1)
            await engine.start(ONE, id="b")
            await asyncio.sleep(NOT_YET)
            described = await engine.get("a").describe()
            assert (described.turn, described.version) == (1, "1")
            assert described.obstacles == ["no live worker has version 1 of 'checkout' (known: 2)"]
            assert rows(path, "SELECT id, turn, owner FROM instances ORDER BY id") == [("a", 1, None), ("b", 0, None)]
        async with engine_of(path, ONE, TWO) as engine:
            assert await engine.get("a").result(timeout=20) == ["1", "1", "1", 0]
            assert await ended(engine, "b") == ["1", "1", "1", 0]
        sound(path)

    together(scenario())


def test_R8_two_workers_with_a_version_each_serve_their_own_instances(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, ONE, cache_size=0) as one, engine_of(path, TWO, cache_size=0) as two:
            for at in range(6):
                await (one, two)[at % 2].start((ONE, TWO)[at // 3], at, id=f"it-{at}")
            found = [await ended((two, one)[at % 2], f"it-{at}") for at in range(6)]
            assert found == [["12"[at // 3]] * 3 + [at] for at in range(6)]
        sound(path)

    together(scenario())


def test_R6_a_start_by_a_client_without_code_chooses_no_version_and_the_first_turn_does(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, TWO):
            pass  # makes the tables
        async with await hf.connect(path) as client:
            await client.start("checkout", 7, id="a")
            assert chosen(path) == {"a": None}
            assert (await client.get("a").describe()).version is None
            [listed] = await client.list("version is null")
            assert (listed.id, listed.version) == ("a", None)
            assert not await client.list('version = ""')
            async with hf.Worker(client, workflows=[ONE, TWO]):
                await until(lambda: chosen(path) == {"a": "2"})
                assert not await client.list("version is null")
                assert [each.id for each in await client.list('version > "1"')] == ["a"]
                assert await ended(client, "a") == ["2", "2", "2", 7]
        sound(path)

    together(scenario())


def test_R5_a_request_takes_the_highest_version(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        by_rows = ByRows(path)
        async with engine_of(path, ONE, TWO, BETA) as engine:
            assert await by_rows.ask("checkout", input="[7]", instance_id="a") == ("ACCEPTED", None)
            await until(lambda: chosen(path) == {"a": "2"})
            assert await ended(engine, "a") == ["2", "2", "2", 7]
        sound(path)

    together(scenario())


def test_R6_the_worker_that_accepts_a_request_does_not_choose_its_version(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        by_rows = ByRows(path)
        async with engine_of(path, ONE):
            later_ms = CLOCK.now_ms() + LATER_MS
            await by_rows.ask("checkout", input="[7]", instance_id="a", start_at_ms=later_ms)
            assert chosen(path) == {"a": None}
        async with engine_of(path, ONE, TWO) as engine:
            await until(lambda: chosen(path) == {"a": "2"})
            assert await ended(engine, "a") == ["2", "2", "2", 7]
        sound(path)

    together(scenario())


@hf.workflow
async def parents() -> list[Any]:
    by_object = await hf.start(ONE, 1)
    by_name = await hf.start("checkout", 2, id="by-name")
    for child in (by_object, by_name):
        child.raise_event("go", 1)
    return [await by_object.result(), await by_name.result()]


def test_R6_children_follow_the_same_rules(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, parents, ONE, TWO) as engine:
            assert await engine.run(parents, id="p") == [["1", "1", "1", 1], ["2", "2", "2", 2]]
        sound(path)

    together(scenario())


def climbing(name: str) -> hf.Workflow[..., Any]:
    async def body(at: int = 0, moves: bool = True) -> list[Any]:
        if at == 2:
            return [name, hf.info().version, hf.info().execution]
        await hf.event("go", int)
        if moves:
            hf.continue_as_new(at + 1, version="newest")
        return hf.continue_as_new(at + 1, moves=False)

    return hf.workflow(name="climb", version=name)(body)


@pytest.mark.parametrize("cache_size", [0, 100])
@pytest.mark.parametrize(("moves", "expected"), [(True, "2"), (False, "1")])
def test_R7_the_next_execution_stays_on_its_version_or_moves_to_the_newest(
    tmp_path: Path, cache_size: int, moves: bool, expected: str
) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, climbing("1"), cache_size=cache_size) as engine:
            await engine.start(climbing("1").bind(moves=moves), id="a")
        async with engine_of(path, climbing("1"), climbing("2"), cache_size=cache_size) as engine:
            for _ in range(2):
                await engine.get("a").raise_event("go", 1)
            assert await engine.get("a").result(timeout=20) == [expected, expected, 3]
            assert chosen(path) == {"a": expected}
        sound(path)

    together(scenario())


def test_R7_an_execution_that_moves_waits_for_no_worker_of_the_old_version(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, climbing("1"), cache_size=0) as engine:
            await engine.start(climbing("1"), id="a")
        async with engine_of(path, climbing("1"), cache_size=0) as engine:
            await engine.get("a").raise_event("go", 1)
            await until(lambda: rows(path, "SELECT execution, turn FROM instances") == [(2, 1)])
            assert chosen(path) == {"a": "1"}
        async with engine_of(path, climbing("2"), cache_size=0) as engine:
            await engine.get("a").raise_event("go", 1)
            await asyncio.sleep(NOT_YET)
            assert rows(path, "SELECT execution, turn, owner FROM instances") == [(2, 1, None)]
            del engine
        async with engine_of(path, climbing("1"), climbing("2"), cache_size=0) as engine:
            assert await engine.get("a").result(timeout=20) == ["2", "2", 3]

    together(scenario())


def test_R7_an_unknown_target_is_refused(tmp_path: Path) -> None:
    @hf.workflow
    async def wrong() -> None:
        hf.continue_as_new(version="2")

    async def scenario() -> None:
        async with engine_of(tmp_path / "it.db", wrong) as engine:
            with pytest.raises(hf.WorkflowFailed) as found:
                await engine.run(wrong, id="a")
            assert isinstance(found.value.__cause__, InvalidOption)

    together(scenario())


def asked(name: str) -> hf.Workflow[..., Any]:
    async def body() -> str:
        @hf.on_query("which")
        def which() -> str:
            return name

        await hf.event("go", int)
        return name

    return hf.workflow(name="asked", version=name)(body)


def test_R8_a_query_is_answered_by_the_version_of_the_instance(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, asked("1")) as engine:
            await engine.start("asked", id="a")
        async with engine_of(path, asked("2")) as engine:
            with pytest.raises(TimeoutError):
                await engine.get("a").query("which", timeout=NOT_YET)
            assert rows(path, "SELECT taken_by FROM questions") in ([], [(None,)]), "nobody claimed it"
            async with engine_of(path, asked("1")):
                assert await engine.get("a").query("which", timeout=20) == "1"
            async with await hf.connect(path, workflows=[asked("1"), asked("2")]) as client:
                assert await client.get("a").query("which", timeout=20) == "1", "by the code of the client"
        sound(path)

    together(scenario())


def edited(name: str, *, fits: bool) -> hf.Workflow[..., Any]:
    """A version that waits for an event, or whose edit does not fit the history of one that did."""

    async def body() -> str:
        if not fits:
            await asyncio.sleep(3_600)
        await hf.event("go", int)
        return name

    return hf.workflow(name="edited", version=name)(body)


def test_R8_a_blocked_instance_is_tried_by_builds_that_have_its_version(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"

        def state() -> str:
            return str(rows(path, "SELECT state FROM instances")[0][0])

        async with engine_of(path, edited("1", fits=True), build="one") as engine:
            await engine.start("edited", id="a")
        async with engine_of(path, edited("1", fits=False), build="two") as engine:
            await engine.get("a").raise_event("go", 1)
            await until(lambda: state() == "BLOCKED")
        async with engine_of(path, edited("2", fits=True), build="three") as engine:
            await try_blocked(worker_of(engine), "three")
            assert state() == "BLOCKED"
            await engine.get("a").retry_blocked()
            await asyncio.sleep(NOT_YET)
            assert rows(path, "SELECT state, owner FROM instances") == [("RUNNING", None)]
        async with engine_of(path, edited("1", fits=True), edited("2", fits=False), build="four") as engine:
            assert await engine.get("a").result(timeout=20) == "1"

    together(scenario())


def test_R4_a_version_is_registered_once_and_none_has_the_reserved_name() -> None:
    with pytest.raises(DuplicateName, match=r"two of the name 'checkout'.*both of version 1.*another version="):
        engine_of(":memory:", ONE, version("1"))
    with pytest.raises(InvalidId, match="must not be '-'"):
        version("-")
    engine = engine_of(":memory:", ONE, TEN, BETA, PLAIN)
    registry = engine._registry
    assert registry.versions_of("checkout") == ["", "beta", "1", "10"]
    assert registry.newest("checkout") is registry.workflow("checkout") is TEN
    assert registry.workflow("checkout", "") is PLAIN
    with pytest.raises(UnknownWorkflow, match="'checkout' with version 3 is not registered here; known: no version, "):
        registry.workflow("checkout", "3")


def test_R6_a_history_is_replayed_by_the_version_that_wrote_it(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        async with engine_of(tmp_path / "it.db", edited("1", fits=True)) as engine:
            handle = await engine.start("edited", id="a")
            await handle.raise_event("go", 1)
            assert await handle.result() == "1"
            return [await handle.export_history()]

    [exported] = together(scenario())
    Replayer(workflows=[edited("1", fits=True), edited("2", fits=False)]).replay(exported)
    with pytest.raises(HistoryMismatch):
        Replayer(workflows=[edited("1", fits=False), edited("2", fits=True)]).replay(exported)
    Replayer(workflows=[edited("2", fits=True)]).replay(exported)  # does it fit another version?


def test_R8_an_engine_says_once_that_it_lacks_a_version(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "it.db", TWO) as engine:
            for name in ("a", "b"):
                await engine.start(ONE, id=name)
        assert caplog.text.count("'checkout' with version 1 is not registered here; known: version 2") == 1

    together(scenario())


# ---------------------------------------------------------------- edits of the steps


@hf.activity(name="reserve")
async def reserve() -> str:
    return "reserve"


@hf.activity(name="charge")
async def charge() -> str:
    return "charge"


@hf.activity(name="ship")
async def ship() -> str:
    return "ship"


@hf.activity(name="check")
async def check() -> str:
    return "check"


@hf.activity(name="deliver")
async def deliver() -> str:
    return "deliver"


Step = hf.Activity[..., Any]
STEPS: tuple[Step, ...] = (reserve, charge, ship)
EDITS: dict[str, tuple[Step, ...]] = {
    "add": (reserve, check, charge, ship),
    "change": (check, charge, ship),
    "rename": (reserve, charge, deliver),
    "remove": (reserve, ship),
    "reorder": (charge, reserve, ship),
}


def stepping(name: str, steps: tuple[Step, ...]) -> hf.Workflow[..., Any]:
    """A version that takes its steps one by one, with an event after the first."""

    async def body() -> list[str]:
        done = [name, await steps[0]()]
        await hf.event("go", int)
        return done + [await step() for step in steps[1:]]

    return hf.workflow(name="steps", version=name)(body)


@pytest.mark.parametrize("edit", list(EDITS))
@pytest.mark.parametrize("cache_size", [0, 100])
def test_R6_every_edit_of_the_steps_runs_beside_the_old_steps(tmp_path: Path, edit: str, cache_size: int) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        activities = (*STEPS, check, deliver)
        old, new = stepping("1", STEPS), stepping("2", EDITS[edit])
        async with engine_of(path, old, *activities, cache_size=cache_size) as engine:
            await engine.start("steps", id="old")
            await until(lambda: rows(path, "SELECT turn FROM instances") == [(2,)])
        async with engine_of(path, old, new, *activities, cache_size=cache_size) as engine:
            await engine.start("steps", id="new")
            assert await ended(engine, "old") == ["1", *(step.name for step in STEPS)]
            assert await ended(engine, "new") == ["2", *(step.name for step in EDITS[edit])]
        sound(path)

    together(scenario())
