"""Options per call: those of an activity for some of its calls (A15), and those of the start of a child (G3)."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, engine_of, rows, together, until

import holdfast as hf
from holdfast.authoring.registry import Registry
from holdfast.core.activity_options import ActivityOptions
from holdfast.errors import InvalidOption

bodies: list[str] = []


@hf.activity(retry=hf.Retry(attempts=5, initial=0))
async def charge(card: str) -> int:
    bodies.append(card)
    if card == "declined":
        raise ValueError(card)
    return hf.activity_info().attempt


@hf.activity
def process_of() -> int:
    return os.getpid()


@hf.activity(process=True)
def process_of_another() -> int:
    return os.getpid()


@hf.activity
async def count_up(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


@hf.activity(external=True, heartbeat=30)
async def sign(text: str) -> str:
    raise NotImplementedError


async def prepares(text: str) -> str:
    return text


@hf.activity(prepare=prepares)
def prepared(text: str) -> str:
    return text + str(hf.activity_info().prepared)


once = charge.with_options(retry=hf.Retry(attempts=1), queue="payments")


@hf.workflow
async def by_options(card: str) -> int:
    return await once(card)


@hf.workflow
async def pauses_when_exhausted(card: str) -> int:
    return await charge.with_options(retry=hf.Retry(attempts=1), on_exhausted="pause")(card)


class Press:
    def __init__(self, metal: str) -> None:
        self.metal = metal

    @hf.activity
    async def print(self, text: str) -> str:
        return f"{self.metal}:{text}"


@hf.workflow
async def prints() -> str:
    return await Press.print.with_options(queue="slow")("a")


@hf.workflow
async def in_processes() -> list[int]:
    return [await process_of.with_options(process=True)(), await process_of_another.with_options(process=False)()]


@hf.workflow
async def counts() -> list[int]:
    return [number async for number in count_up.with_options(resumable=True, start_to_close=9)(3)]


@hf.workflow
async def signs() -> str:
    return await sign.with_options(queue="people", claim_timeout=5, max_claims=2)("a")


@hf.workflow
async def item(name: str) -> str:
    if name == "waits":
        await hf.event("go")
    return name


@hf.workflow
async def starts(name: str, policy: Any) -> str:
    handle = await hf.start(item, name, id="the-item", policy=policy)
    return await handle


@hf.workflow
async def calls(name: str, chosen: str) -> str:
    return await item.with_options(id="the-item", policy="reuse").with_options(id=chosen, deadline=60)(name)


def test_A15_a_call_has_the_options_that_it_names_and_those_of_its_activity(tmp_path: Path) -> None:
    async def scenario() -> None:
        bodies.clear()
        engine = engine_of(tmp_path / "shop.db", by_options, charge, queues=["default", "payments"])
        async with engine:
            with pytest.raises(hf.WorkflowFailed, match="declined"):
                await engine.run(by_options, "declined", id="a")
            assert await engine.run(by_options, "visa", id="b") == 1
            assert bodies == ["declined", "visa"]
            assert set(rows(tmp_path / "shop.db", "SELECT queue FROM attempts")) == {("payments",)}
        check_tables(tmp_path / "shop.db")

    together(scenario())


def test_A15_a_call_of_a_queue_that_nobody_serves_waits(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", by_options, charge) as engine:
            handle = await engine.start(by_options, "visa", id="a")
            with pytest.raises(TimeoutError):
                await handle.result(timeout=0.3)
            async with engine_of(tmp_path / "shop.db", by_options, charge, queues=["payments"]):
                assert await handle.result() == 1

    together(scenario())


def test_A15_a_call_decides_whether_its_body_runs_in_a_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", in_processes, process_of, process_of_another) as engine:
            inside, outside = await engine.run(in_processes, id="a")
            assert inside != os.getpid()
            assert outside == os.getpid()

    together(scenario())


def test_A15_a_generator_and_an_external_activity_take_options(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", counts, count_up, signs, sign) as engine:
            assert await engine.run(counts, id="a") == [0, 1, 2]
            await engine.start(signs, id="b")
            await until(lambda: rows(tmp_path / "shop.db", "SELECT queue FROM attempts WHERE name = 'sign'"))
            assert rows(tmp_path / "shop.db", "SELECT queue FROM attempts WHERE name = 'sign'") == [("people",)]

    together(scenario())


def test_A15_a_call_decides_what_happens_when_its_retries_are_used_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        bodies.clear()
        async with engine_of(tmp_path / "shop.db", pauses_when_exhausted, charge) as engine:
            handle = await engine.start(pauses_when_exhausted, "declined", id="a")
            await until(lambda: rows(tmp_path / "shop.db", "SELECT state FROM instances") == [("PAUSED",)])
            await handle.resume(fail=True)
            with pytest.raises(hf.WorkflowFailed, match="declined"):
                await handle.result()
            assert bodies == ["declined"]
        check_tables(tmp_path / "shop.db")

    together(scenario())


def test_A15_a_method_takes_options_on_its_class_and_on_its_object(tmp_path: Path) -> None:
    async def scenario() -> None:
        lead = Press("lead")
        async with engine_of(tmp_path / "shop.db", prints, lead.print, queues=["default", "slow"]) as engine:
            assert await engine.run(prints, id="a") == "lead:a"
            assert rows(tmp_path / "shop.db", "SELECT queue FROM attempts") == [("slow",)]
        assert await Press("tin").print.with_options(queue="slow")("b") == "tin:b"

    together(scenario())


def test_A15_a_call_outside_of_a_workflow_runs_the_body() -> None:
    async def scenario() -> None:
        assert await process_of.with_options(process=True)() == os.getpid()
        assert [number async for number in count_up.with_options(queue="slow")(2)] == [0, 1]
        assert await prepared.with_options(queue="slow")("x") == "xx"

    together(scenario())


def test_A15_options_of_options_are_merged() -> None:
    merged = charge.with_options(queue="a", max_losses=1).with_options(queue="b")
    assert merged.options == ActivityOptions(queue="b", max_losses=1, retry=charge.options.retry)
    assert charge.options.queue == "default"


@pytest.mark.parametrize(
    ("activity", "options", "message"),
    [
        (charge, {"name": "x"}, "name= belongs to the declaration"),
        (charge, {"prepare": prepares}, "prepare= belongs to the declaration"),
        (charge, {"external": True}, "external= belongs to the declaration"),
        (charge, {"que": "x"}, "has no option 'que'; the options are queue, retry"),
        (charge, {"process": True}, "process=True is for `def`"),
        (charge, {"on_exhausted": "wait"}, "on_exhausted must be 'fail' or 'pause'"),
        (Press.print, {"process": True}, "process=True is for functions, and this is a method"),
        (Press("tin").print, {"process": True}, "process=True is for functions, and this is a method"),
        (count_up, {"process": True}, "process=True is for functions that return"),
        (count_up, {"on_cancel": "wait"}, "on_cancel='wait' is for functions that return"),
        (prepared, {"process": True}, "prepare"),
        (charge, {"resumable": True}, "resumable=True is for generators"),
        (charge, {"claim_timeout": 1}, "claim_timeout is for external activities"),
        (sign, {"heartbeat": None}, "an external activity needs heartbeat= or start_to_close="),
        (charge, {"start_to_close": 0}, "longer than 0"),
        (charge, {"retry": 3}, "retry takes hf.Retry"),
        (item, {"queue": 5}, "has no option 'queue'; the options are id, policy"),
        (item, {"policy": "reuse"}, "give id="),
    ],
)
def test_A15_wrong_options_are_refused_where_they_are_given(activity: Any, options: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        activity.with_options(**options)


def test_A15_a_module_may_hold_calls_with_options() -> None:
    """They are no definitions: a worker registers the activity once."""
    assert "charge" in Registry(modules=[sys.modules[__name__]]).activities


def test_G3_a_child_replaces_a_closed_instance_of_its_id_with_the_policy_reuse(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", starts, calls, item) as engine:
            assert await engine.run(starts, "a", "idempotent", id="1") == "a"
            with pytest.raises(hf.WorkflowFailed, match="the id 'the-item' is taken"):
                await engine.run(starts, "b", "idempotent", id="2")
            assert await engine.run(starts, "c", "reuse", id="3") == "c"
            assert await engine.run(calls, "d", "the-item", id="4") == "d"
            assert await engine.run(calls, "e", "other", id="5") == "e"
        check_tables(tmp_path / "shop.db")

    together(scenario())


@hf.workflow
async def replaces_itself() -> str:
    try:
        await hf.start(item, "x", id="me", policy="terminate_existing")
    except hf.InstanceConflict as error:
        return str(error)
    return "replaced"


@hf.workflow
async def replaces_its_grandparent(depth: int) -> str:
    if depth:
        return await replaces_its_grandparent(depth - 1)
    return await replaces_itself()


def test_G3_a_child_replaces_an_open_instance_with_the_policy_terminate_existing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", starts, item) as engine:
            waiting = await engine.start(item, "waits", id="the-item")
            with pytest.raises(hf.WorkflowFailed, match="the id 'the-item' is taken"):
                await engine.run(starts, "a", "reuse", id="1")
            assert await engine.run(starts, "b", "terminate_existing", id="2") == "b"
            with pytest.raises(hf.WorkflowTerminated, match="its id was started again"):
                await waiting.result()
            assert await engine.run(starts, "c", "terminate_existing", id="3") == "c"
        check_tables(tmp_path / "shop.db")

    together(scenario())


@pytest.mark.parametrize("depth", [0, 2])
def test_G3_a_child_replaces_no_instance_above_it(tmp_path: Path, depth: int) -> None:
    async def scenario() -> None:
        engine = engine_of(tmp_path / "shop.db", replaces_its_grandparent, replaces_itself, item)
        async with engine:
            assert "'me' is taken" in await engine.run(replaces_its_grandparent, depth, id="me")
        check_tables(tmp_path / "shop.db")

    together(scenario())
