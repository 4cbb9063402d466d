"""Flows that clients start, by object or by name, and flows in tests of programs."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.flowing import FOX, FOXES, brown, flow_of, jump, nap, see_fox, twice
from tests.scenarios.support import rows, together

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.audit.problems import Rule
from holdfast.errors import ArgumentError
from holdfast.runtime.platform import FaultPoint, Platform
from holdfast.storage.members.instances import Block
from holdfast.storage.members.member import Member
from holdfast.storage.records import InstanceNumber, LoadedInstance
from holdfast.storage.relational.reads import RelationalReads
from holdfast.testing.environment import Environment
from holdfast.testing.replayer import Replayer

OLD = "flow: talk\nactivities:\n  start: {trigger: true}\n  say: {run: nap, after: start}\noutput: say.output\n"
NEW = OLD.replace("run: nap", "run: jump")


def faster(speed: int) -> int:
    return speed + 10


def test_K1_a_client_starts_the_version_that_it_has(tmp_path: Path) -> None:
    """Any worker runs it, also one that has another: the definition is in the store before the start."""
    store, old, new = tmp_path / "it.db", flow_of(OLD), flow_of(NEW)

    async def scenario() -> None:
        async with await hf.connect(store) as client:
            await client.start(old, id="by-object")
            await client.start(old.bind(), id="bound")
            await client.start("talk", {}, id="by-name")
        saved: Any = rows(store, "SELECT hash, name FROM flows")
        assert saved == [(old.hash, "talk")], "once"
        async with hf.Engine(store, flows=[new], activities=FOXES) as engine:
            assert await engine.get("by-object").result() == "slept"
            assert await engine.get("bound").result() == "slept"
            assert await engine.get("by-name").result() == "jumped", "the version of whoever takes its first turn"

    together(scenario())


def test_G12_a_flow_that_is_cancelled_between_its_claim_and_its_load_is_not_blocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its history has a start without the version, which its first turn would have chosen."""
    store, flow, load = tmp_path / "it.db", flow_of(OLD), RelationalReads.load
    blocks: list[Member] = []

    def note_blocks(_: FaultPoint, members: Sequence[Member]) -> None:
        blocks.extend(member for member in members if isinstance(member, Block))

    async def scenario() -> None:
        async with hf.connect(store) as client:
            handle = await client.start("talk", {}, id="it")

            async def cancel_then_load(self: RelationalReads, number: InstanceNumber, execution: int) -> LoadedInstance:
                await handle.cancel("no need")
                return await load(self, number, execution)

            monkeypatch.setattr(RelationalReads, "load", cancel_then_load)
            platform = Platform(fault_hook=note_blocks)
            async with hf.Engine(store, flows=[flow], activities=FOXES, _platform=platform) as engine:
                with pytest.raises(hf.WorkflowCancelled):
                    await engine.get("it").result(timeout=10)
                assert await engine.run(flow, id="behind") == "slept"

    together(scenario())
    assert audit(store) == []
    assert blocks == []


def test_K1_a_flow_has_its_key_from_the_start(tmp_path: Path) -> None:
    """Also one that is ended before its first turn."""
    store = tmp_path / "it.db"
    first = "990000000000000"

    async def scenario() -> None:
        flow = flow_of(OLD)
        async with hf.connect(store) as client:
            requested = await client.start(flow, id="requested")
            described = await requested.describe()
            assert (described.collation_key, described.composite_key) == (first, "99")
            await (await client.start(flow, id="cancelled")).cancel("no need")
            await (await client.start(flow, id="terminated")).terminate("no need")
            await client.start(flow, id="late", deadline=0.001)
            named = await client.start("talk", {}, id="named")
            assert (await named.describe()).collation_key == first, "of the version that was saved last"
            await named.cancel()
            for name in ("cancelled", "terminated"):
                assert (await client.get(name).describe()).collation_key == first
        assert audit(store) == []
        async with hf.Engine(store, activities=FOXES) as engine:
            with pytest.raises(hf.WorkflowFailed, match="deadline"):
                await engine.get("late").result(timeout=10)
        assert audit(store) == []

    together(scenario())
    rows(store, "UPDATE instances SET collation_key = NULL WHERE id = 'cancelled'")
    assert audit(store) == [], "as older releases left it"
    rows(store, "UPDATE instances SET collation_key = '690000000000000' WHERE id = 'terminated'")
    assert [(problem.instance, problem.rule) for problem in audit(store)] == [("terminated", Rule.KEY_AGREES)]


def test_K1_an_engine_runs_a_version_that_it_was_not_given(tmp_path: Path) -> None:
    async def scenario() -> None:
        old, new = flow_of(OLD), flow_of(NEW)
        async with hf.Engine(tmp_path / "it.db", flows=[new], activities=FOXES) as engine:
            assert await engine.run(old, id="old") == "slept"
            assert await engine.run(old, id="old-again") == "slept"
            assert await engine.run(new, id="new") == "jumped"
            assert await engine.run("talk", {}, id="named") == "jumped"

    together(scenario())


def test_A9_a_flow_that_is_cancelled_while_its_first_turn_is_prepared_is_not_called_blocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its history then has a start that no version took, and that is no mismatch."""
    store = tmp_path / "it.db"

    async def scenario() -> None:
        async with await hf.connect(store) as client:
            handle = await client.start("talk", {}, id="it")
            engine = hf.Engine(store, flows=[flow_of(OLD)], activities=FOXES)
            whole = engine._session.store.load

            async def interrupted(*at: Any) -> Any:
                await handle.cancel("enough")
                return await whole(*at)

            monkeypatch.setattr(engine._session.store, "load", interrupted)
            async with engine:
                with pytest.raises(hf.WorkflowCancelled):
                    await handle.result()

    together(scenario())
    assert rows(store, "SELECT state FROM instances") == [("CANCELLED",)]
    assert "is blocked" not in caplog.text


def test_a_client_that_has_a_flow_checks_its_input(tmp_path: Path) -> None:
    async def scenario() -> None:
        fox = flow_of(FOX)
        async with await hf.connect(tmp_path / "it.db", flows=[fox]) as client:
            with pytest.raises(ArgumentError, match="speed is missing"):
                await client.start("fox", {}, id="it")
            handle = await client.start("fox", {"speed": 5}, id="it")
        async with hf.Engine(tmp_path / "it.db", flows=[fox], activities=FOXES) as engine:
            assert await engine.get(handle.id).result() == 5

    together(scenario())


def test_an_environment_skips_the_waits_of_a_flow_and_replaces_its_activities() -> None:
    async def scenario() -> None:
        fox = flow_of(FOX)
        async with Environment(flows=[fox], activities=FOXES, replace={see_fox: faster}) as env:
            assert await env.run(fox, {"speed": 1}, id="awake") == 11
            assert env.calls(see_fox) == [{"speed": 1}]
            assert len(env.calls(jump)) == 1
            env.restore(see_fox)
            began = env.now
            with pytest.raises(hf.WorkflowFailed, match="TimeoutError: the event 'dinner' did not come in time"):
                await env.run(fox, {"speed": 1}, id="hungry")
            assert (env.now - began).total_seconds() >= 3600
            env.replace(nap, OSError("no bed"))
            with pytest.raises(hf.WorkflowFailed, match="no bed"):
                await env.run(fox, {"speed": 2}, id="awake-all-night")

    asyncio.run(scenario())


def test_a_flow_is_replaced_by_code_in_a_test() -> None:
    parent = flow_of(
        "flow: parent\nactivities:\n  go: {trigger: true}\n"
        "  fox: {flow: fox, after: go, input: {speed: '3'}}\noutput: fox.output\n"
    )

    async def stand_in(given: dict[str, int]) -> str:
        return f"{given['speed']} {await brown()}"

    async def scenario() -> None:
        fox = flow_of(FOX)
        async with Environment(flows=[fox, parent], activities=FOXES) as env:
            env.replace(fox, stand_in)
            assert await env.run(parent, id="it") == "3 brown"
            assert await env.run(fox, {"speed": 7}, id="alone") == "7 brown"
            env.restore(fox)
            assert await env.run(fox, {"speed": 7}, id="itself") == 7

    asyncio.run(scenario())


def test_L13_a_flow_survives_a_crash_at_every_commit() -> None:
    async def scenario() -> None:
        fox = flow_of(FOX)
        async with Environment(flows=[fox], workflows=[twice], activities=FOXES) as env:
            report = await env.crash_at_every_commit(fox, {"speed": 5})
            report.check()

    asyncio.run(scenario())


def test_G12_an_exported_history_of_a_flow_fits_its_flow_or_is_of_another_version() -> None:
    async def scenario() -> str:
        async with Environment(flows=[flow_of(OLD)], activities=FOXES) as env:
            handle = await env.start("talk", {}, id="it")
            await handle.result()
            return await handle.export_history()

    history = asyncio.run(scenario())
    Replayer(flows=[flow_of(OLD)]).replay(history)
    Replayer(flows=[flow_of(NEW)]).replay(history)
    with pytest.raises(hf.errors.HistoryMismatch, match="does not fit the flow 'talk'"):
        Replayer(flows=[flow_of(OLD)]).replay(history.replace('"say": "', '"sing": "'))
