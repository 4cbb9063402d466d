"""`hf.attributes`: set at the start and from code, visible with the commit, the same in every replay (F1, F2)."""

import asyncio
import datetime as dt
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.scenarios.support import check_tables, engine_of, path_of, rows, together
from tests.support.inside import worker_of

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.errors import InvalidAttribute, NotInWorkflow
from holdfast.runtime.platform import FaultPoint
from holdfast.testing import Environment

if TYPE_CHECKING:
    from holdfast.core.attributes import AttributeValue

CACHES = pytest.mark.parametrize("cache_size", [1_000, 0])
DUE = dt.datetime(2026, 11, 18, 12, 0, 0, 7, tzinfo=dt.UTC)
gates: dict[str, asyncio.Event] = {}
FLOW = """
flow: waiting
activities:
  start: {trigger: true}
  last: {wait: {event: end, timeout: 1h}, after: start}
"""


@hf.activity
async def step(number: int) -> int:
    return number + 1


@hf.activity
async def held(name: str) -> str:
    await gates[name].wait()
    return name


@hf.workflow
async def buying() -> dict[str, Any]:
    assert hf.attributes["customer"] == "acme"
    hf.attributes["steps"] = await step(0)
    hf.attributes["gone"] = "soon"
    hf.attributes["tags"] = ["new", "vip", "new"]
    await step(1)
    del hf.attributes["gone"]
    hf.attributes["steps"] = int(str(hf.attributes["steps"])) + 0.5
    hf.attributes["customer"] = "ACME"
    assert "gone" not in hf.attributes
    assert hf.attributes.get("gone", 7) == 7
    assert hf.attributes.get("due", DUE) == DUE
    return {name: value for name, value in hf.attributes.items() if name != "due"}


@CACHES
def test_F2_code_reads_the_attributes_of_the_start_and_its_own(cache_size: int) -> None:
    given: dict[str, AttributeValue] = {"customer": "acme", "due": DUE, "paid": False}
    expected = {"customer": "ACME", "due": DUE, "paid": False, "steps": 1.5, "tags": ["new", "vip"]}

    async def scenario() -> None:
        async with engine_of(":memory:", buying, step, cache_size=cache_size) as engine:
            handle = await engine.start(buying, id="it", attributes=given)
            read = await handle.result()
            assert read == {name: value for name, value in expected.items() if name != "due"}
            assert (await handle.describe()).attributes == expected
            [summary] = await engine.list('a.tags = "vip" and a.steps > 1 and a.customer = "ACME"')
            assert summary.attributes == expected
            assert await engine.list('a.customer = "acme" or a.gone is not null') == []
            check_tables(path_of(engine))
            assert audit(path_of(engine)) == []

    together(scenario())


def test_F2_a_repeated_start_leaves_the_attributes_and_they_play_no_part_in_its_identity() -> None:
    async def scenario() -> None:
        async with engine_of(":memory:", buying, step) as engine:
            await (await engine.start(buying, id="it", attributes={"customer": "acme"})).result()
            again = await engine.start(buying, id="it", attributes={"customer": "other", "more": 1})
            assert not again.is_new
            assert (await again.describe()).attributes["customer"] == "ACME"
            assert "more" not in (await again.describe()).attributes

    together(scenario())


@hf.workflow
async def waits_in_the_middle() -> None:
    hf.attributes["phase"] = "before"
    await held("middle")
    hf.attributes["phase"] = "after"


def test_F2_nothing_of_a_turn_is_visible_before_its_commit(tmp_path: Path) -> None:
    async def scenario() -> None:
        gates["middle"] = asyncio.Event()
        seen: list[list[tuple[object, ...]]] = []

        def hook(_point: object, members: object) -> None:
            if "tafter" in str(members):
                seen.append(rows(tmp_path / "s.db", "SELECT value FROM attributes"))

        async with engine_of(tmp_path / "s.db", waits_in_the_middle, held, fault_hook=hook) as engine:
            handle = await engine.start(waits_in_the_middle, id="it")
            assert [each.id for each in await engine.list('a.phase = "before"')] == ["it"]
            gates["middle"].set()
            await handle.result()
            assert [each.id for each in await engine.list('a.phase = "after"')] == ["it"]
        assert seen == [[("tbefore",)], [("tafter",)]]  # before and after the commit

    together(scenario())


def test_F2_attributes_of_a_rejected_turn_are_not_visible(tmp_path: Path) -> None:
    """The worker is killed before it commits the turn; the next one repeats the code, which reads another value."""

    @hf.workflow(name="deciding")
    async def deciding() -> object:
        hf.attributes["count"] = 1
        await held("crash")
        hf.attributes["count"] = int(str(hf.attributes["count"])) + 1
        return hf.attributes["count"]

    async def scenario() -> None:
        gates["crash"] = asyncio.Event()
        first = engine_of(tmp_path / "s.db", deciding, held, lease=1)
        await first.__aenter__()
        await first.start(deciding, id="it", attributes={"given": "x"})
        await worker_of(first).kill()
        await first._kill()
        gates["crash"].set()
        async with engine_of(tmp_path / "s.db", deciding, held, lease=1) as second:
            async with asyncio.timeout(20):
                assert await second.get("it").result() == 2
            assert (await second.get("it").describe()).attributes == {"count": 2, "given": "x"}

    together(scenario())


@CACHES
def test_F2_continue_as_new_carries_attributes_over(cache_size: int) -> None:
    @hf.workflow
    async def rounds(left: int) -> list[str]:
        hf.attributes[f"round-{left}"] = left
        hf.attributes["last"] = left
        await step(left)
        if left == 1:
            del hf.attributes["round-3"]
        if left:
            hf.continue_as_new(left - 1)
        return sorted(hf.attributes)

    async def scenario() -> None:
        async with engine_of(":memory:", rounds, step, cache_size=cache_size) as engine:
            handle = await engine.start(rounds, 3, id="it", attributes={"given": "x"})
            assert await handle.result() == ["given", "last", "round-0", "round-1", "round-2"]
            attributes = (await handle.describe()).attributes
            assert attributes == {"given": "x", "last": 0, "round-0": 0, "round-1": 1, "round-2": 2}
            assert [each.execution for each in await engine.list('a.given = "x" and a.last = 0')] == [4]
            assert audit(path_of(engine)) == []

    together(scenario())


def test_F1_wrong_attributes_are_errors_of_the_code_or_of_the_start(tmp_path: Path) -> None:
    @hf.workflow
    async def wrong(how: str) -> str:
        values: dict[str, Any] = {"value": {"v": object()}, "name": {"a b": 1}, "many": {f"a{n}": n for n in range(51)}}
        try:
            hf.attributes.update(values[how])
        except InvalidAttribute as error:
            return str(error)
        return "not reached"

    async def scenario() -> None:
        async with engine_of(tmp_path / "s.db", wrong) as engine:
            assert "not object" in await engine.run(wrong, "value", id="value")
            assert "ASCII letters" in await engine.run(wrong, "name", id="name")
            assert "at most 50 attributes" in await engine.run(wrong, "many", id="many")
            assert len((await engine.get("many").describe()).attributes) == 50
            refused: list[Any] = [{"v": None}, {"a b": 1}, {f"a{n}": n for n in range(51)}, ["v"]]
            for attributes in refused:
                with pytest.raises(InvalidAttribute):
                    await engine.start(wrong, "value", id="refused", attributes=attributes)
            assert await engine.list('id = "refused"') == []

    together(scenario())


def test_F2_attributes_belong_to_workflow_code() -> None:
    with pytest.raises(NotInWorkflow, match=r"hf\.attributes"):
        hf.attributes["a"] = 1
    with pytest.raises(NotInWorkflow, match=r"hf\.attributes"):
        len(hf.attributes)


def test_F2_a_query_reads_attributes_and_cannot_set_them() -> None:
    @hf.workflow
    async def asked() -> None:
        hf.attributes["n"] = 1

        @hf.on_query("read")
        def read() -> int:
            return int(str(hf.attributes["n"]))

        @hf.on_query("change")
        def change() -> None:
            hf.attributes["n"] = 2

        await hf.event("end")

    async def scenario() -> None:
        async with engine_of(":memory:", asked) as engine:
            handle = await engine.start(asked, id="it")
            assert await handle.query("read") == 1
            with pytest.raises(hf.QueryFailed):
                await handle.query("change")
            assert (await handle.describe()).attributes == {"n": 1}

    together(scenario())


def test_F2_a_crash_at_every_commit_leaves_the_attributes_of_a_calm_run() -> None:
    @hf.workflow
    async def changing(number: int) -> object:
        hf.attributes["number"] = number
        hf.attributes["tags"] = [f"t{number}", "x"]
        hf.attributes["first"] = await step(number)
        await asyncio.sleep(1)
        del hf.attributes["first"]
        if number:
            hf.continue_as_new(number - 1)
        return hf.attributes["number"]

    async def scenario() -> None:
        async with Environment(workflows=[changing], activities=[step]) as env:
            report = await env.crash_at_every_commit(changing, 1)
            report.check()
            assert report.crashes >= 6

    asyncio.run(scenario())


@hf.workflow
async def approved() -> dict[str, Any]:
    hf.attributes["phase"] = "asking"
    hf.attributes["mine"] = "code"
    await hf.wait_until(lambda: hf.attributes.get("approved") is True)
    seen = dict(hf.attributes)
    hf.attributes["phase"] = "approved"
    seen["step"] = await step(1)
    await hf.event("end")
    return {name: value for name, value in seen.items() if name != "due"}


@CACHES
def test_F10_code_reads_the_change_of_a_client_as_a_message(cache_size: int) -> None:
    async def scenario() -> None:
        async with engine_of(":memory:", approved, step, cache_size=cache_size) as engine:
            handle = await engine.start(approved, id="it", attributes={"customer": "acme"})
            told = await handle.set_attributes({"ticket": "OPS-1", "mine": None, "due": DUE})
            assert told == {"customer": "acme", "due": DUE, "phase": "asking", "ticket": "OPS-1"}
            assert [each.id for each in await engine.list('a.ticket = "OPS-1" and a.mine is null')] == ["it"]
            assert (await engine.get("it").set_attributes({"approved": True}))["approved"] is True
            await handle.raise_event("end")
            expected = {"approved": True, "customer": "acme", "phase": "asking", "step": 2, "ticket": "OPS-1"}
            assert await handle.result() == expected
            kinds = [entry.fields.get("values") for entry in await handle.history()]
            assert [each for each in kinds if each is not None] == [
                {"ticket": "OPS-1", "mine": None, "due": DUE},
                {"approved": True},
            ]
            assert await handle.set_attributes({"ticket": None, "after": 1}) == {
                "after": 1,
                "approved": True,
                "customer": "acme",
                "due": DUE,
                "phase": "approved",
            }
            assert audit(path_of(engine)) == []

    together(scenario())


def test_F10_the_change_of_a_client_follows_assignments_of_turns_that_had_not_read_it(tmp_path: Path) -> None:
    """The client commits between a run of the code and the commit of its turn, which assigns the same attributes."""
    store = tmp_path / "s.db"
    waiting = ["client"]

    async def change() -> None:
        async with hf.connect(store) as client:
            await client.get("it").set_attributes({"n": "client", "gone": None})

    def hook(point: object, members: object) -> None:
        if point == FaultPoint.BEFORE_COMMIT and "tlate" in str(members) and waiting:
            waiting.clear()
            other = threading.Thread(target=asyncio.run, args=(change(),))
            other.start()
            other.join(10)

    @hf.workflow
    async def late() -> object:
        hf.attributes["gone"] = True
        await held("late")
        hf.attributes["n"] = "late"
        hf.attributes["gone"] = False
        await hf.event("end")
        return {"n": hf.attributes["n"], "gone": hf.attributes.get("gone")}

    async def scenario() -> None:
        gates["late"] = asyncio.Event()
        async with engine_of(store, late, held, fault_hook=hook) as engine:
            handle = await engine.start(late, id="it")
            gates["late"].set()
            async for change in handle.watch():
                if change.last_event == "attributes_changed":
                    break
            assert (await handle.describe()).attributes == {"n": "client"}
            await handle.raise_event("end")
            assert await handle.result() == {"n": "client", "gone": None}
        assert audit(store) == []

    together(scenario())


def test_F10_a_blocked_instance_and_one_without_a_worker_show_the_change_at_once(tmp_path: Path) -> None:
    store = tmp_path / "s.db"

    async def scenario() -> None:
        async with hf.connect(store) as client:
            handle = await client.start("approved", id="it")
            await handle.set_attributes({"approved": True, "ticket": "OPS-1"})
            assert [each.state for each in await client.list('a.ticket = "OPS-1"')] == ["REQUESTED"]
            [message] = (await handle.describe()).mailbox
            assert (message.kind, message.value) == ("attributes", {"approved": True, "ticket": "OPS-1"})
        async with engine_of(store, approved, step) as engine:
            await engine.get("it").raise_event("end")
            result = await engine.get("it").result()
            assert result == {"approved": True, "mine": "code", "phase": "asking", "step": 2, "ticket": "OPS-1"}
        assert audit(store) == []

    together(scenario())


def test_F10_continue_as_new_and_the_end_keep_changes_that_the_code_has_not_read(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    waiting = {"round": ["client"], "last": ["client"]}

    async def change(name: str) -> None:
        async with hf.connect(store) as client:
            await client.get("it").set_attributes({name: "client"})

    def hook(point: object, members: object) -> None:
        for name, left in waiting.items():
            if point == FaultPoint.BEFORE_COMMIT and f"tends-{name}" in str(members) and left:
                left.clear()
                other = threading.Thread(target=asyncio.run, args=(change(name),))
                other.start()
                other.join(10)

    @hf.workflow
    async def rounds(left: int) -> object:
        await step(left)
        if left:
            hf.attributes["now"] = "ends-round"
            hf.continue_as_new(left - 1)
        hf.attributes["now"] = "ends-last"
        return hf.attributes.get("round")

    async def scenario() -> None:
        async with engine_of(store, rounds, step, fault_hook=hook) as engine:
            handle = await engine.start(rounds, 1, id="it")
            assert await handle.result() == "client", "the next execution reads what the first has not read"
            assert (await handle.describe()).attributes == {"last": "client", "now": "ends-last", "round": "client"}
        assert audit(store) == []

    together(scenario())


def test_F10_a_flow_takes_the_change_and_a_query_of_code_sees_it(tmp_path: Path) -> None:
    flow = hf.Flow.parse(FLOW)

    @hf.workflow
    async def asked() -> None:
        @hf.on_query("read")
        def read() -> object:
            return hf.attributes.get("n")

        await hf.event("end")

    async def scenario() -> None:
        async with hf.Engine(tmp_path / "s.db", workflows=[asked], flows=[flow]) as engine:
            started = await engine.start(flow, id="flow", attributes={"n": 1})
            assert (await started.set_attributes({"n": 2, "m": "x"})) == {"m": "x", "n": 2}
            await started.raise_event("end")
            await started.result()
            assert (await started.describe()).attributes == {"m": "x", "n": 2}
            assert "attributes_changed" in [entry.kind for entry in await started.history()]
            handle = await engine.start(asked, id="code")
            await handle.set_attributes({"n": 7})
            assert await handle.query("read") == 7
        assert audit(tmp_path / "s.db") == []

    together(scenario())


def test_F10_wrong_changes_are_typed_errors_and_store_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "s.db", waits_in_the_middle, held) as engine:
            gates["middle"] = asyncio.Event()
            gates["middle"].set()
            handle = await engine.start(waits_in_the_middle, id="it")
            await handle.result()
            wrong: list[Any] = [{}, {"a b": 1}, {"v": object()}, ["v"], {f"a{n}": n for n in range(51)}, None]
            wrong.append({f"a{n}": n for n in range(50)})  # with the one of the code they are 51
            for values in wrong:
                with pytest.raises(InvalidAttribute):
                    await handle.set_attributes(values)
            with pytest.raises(hf.InstanceNotFound):
                await engine.get("nobody").set_attributes({"n": 1})
            assert (await handle.describe()).attributes == {"phase": "after"}
            assert len(await handle.set_attributes({"phase": None} | {f"a{n}": n for n in range(49)})) == 49

    together(scenario())
