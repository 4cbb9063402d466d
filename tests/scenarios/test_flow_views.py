"""What a handle tells about a flow: its stored key, whose attempts they are, what its nodes wait for, its composite."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.scenarios.flowing import FOX, FOXES, PARENT, ROUNDS, Counter, double, flow_of, gates, twice
from tests.scenarios.support import together

import holdfast as hf
from holdfast.client.views.instances import AttemptView, Description
from holdfast.client.views.report import read_execution
from holdfast.core.lifecycle import AttemptState
from holdfast.testing.environment import Environment


def env_of(*flows: hf.Flow) -> Environment:
    return Environment(flows=flows, workflows=[twice], activities=[*FOXES, double])


def skipping(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario whose time skips, so that a bound in seconds means nothing."""
    asyncio.run(scenario)


async def at(handle: hf.Handle[object], key: str) -> Description:
    """The instance once its key is this."""
    async for _ in handle.watch():
        described = await handle.describe()
        if described.collation_key == key:
            return described
    raise AssertionError(f"it ended without {key}")


def test_K1_the_key_of_a_flow_is_the_text_that_is_stored() -> None:
    async def scenario() -> None:
        flow = flow_of(FOX)
        async with env_of(flow) as env:
            handle = await env.start(flow, {"speed": 5}, id="awake")
            assert await handle.result() == 5
            described = await handle.describe()
            assert handle.number is not None
            assert described.collation_key == "366663000000000" == await env._session.store.read_key(handle.number)
            assert described.composite_key == "366663"
            assert described.waiting_for == []
            assert [(view.node, view.state) for view in described.attempts] == [
                ("brown", "COMPLETED"),
                ("fox", "COMPLETED"),
                ("jumped", "COMPLETED"),
            ], "what was skipped has no attempt, and a closed flow requests nothing"

    skipping(scenario())


def test_A3_nodes_that_wait_for_others_are_seen_as_requested() -> None:
    async def scenario() -> None:
        gates.__init__()  # type: ignore[misc]  # events of this loop
        flow = flow_of(FOX)
        async with hf.Engine(":memory:", flows=[flow], activities=FOXES) as engine:
            handle = await engine.start(flow, {"speed": 0}, id="slow")
            await gates.reached.wait()
            described = await handle.describe()
            assert described.collation_key == "968969000000000"
            assert described.waiting_for == ["activity see_fox (node fox)"]
            assert [(view.node, view.state, view.ledger) for view in described.attempts] == [
                ("brown", AttemptState.COMPLETED, 888000001000001),
                ("fox", AttemptState.RUNNING, 889000000000000),
                ("jumped", AttemptState.REQUESTED, 999000000000000),
                ("slept", AttemptState.REQUESTED, 999000000000000),
            ]
            requested = described.attempts[-1]
            assert (requested.number, requested.attempt, requested.activity) == (-1, 1, "nap")
            assert {view.dimension for view in described.attempts} == {"0/0"}
            gates.go_on.set()
            await at(handle, "566366000000000")
            await handle.terminate()
            ended = await handle.describe()
            assert ended.collation_key == "566366000000000", "digits move only in the instance's own turns (K2)"
            assert AttemptState.REQUESTED not in {view.state for view in ended.attempts}

    together(scenario())


def test_a_wait_names_its_node() -> None:
    async def scenario() -> None:
        flow = flow_of(FOX)
        async with env_of(flow) as env:
            with env.real_time():
                handle = await env.start(flow, {"speed": 1}, id="asleep")
                described = await at(handle, "566366000000000")
                event, timer = described.waiting_for
                assert event == "event dinner (node ate)"
                assert timer.startswith("timer 0, due ")
                assert timer.endswith(" UTC (node ate)")
                await handle.raise_event("dinner", "soup")
                assert await handle.result() == 1
            assert (await handle.describe()).collation_key == "466366000000000"

    skipping(scenario())


def test_K8_attempts_have_the_dimension_of_their_round() -> None:
    async def scenario() -> None:
        flow = flow_of(ROUNDS)
        async with hf.Engine(":memory:", flows=[flow], activities=[*FOXES, Counter().activity()]) as engine:
            handle = await engine.start(flow, id="round")
            described = await at(handle, "366656000000000")
            assert [node_of(view) for view in described.attempts] == [
                ("count", "0/0"),
                ("more", "0/0"),
                ("count", "0/1"),
                ("more", "0/1"),
                ("end", "0/1"),
            ]

    together(scenario())


def test_K8_what_a_cycle_will_run_again_is_requested_in_its_next_round() -> None:
    async def scenario() -> None:
        flow, counter = flow_of(ROUNDS), Counter(waits_at=3)
        async with hf.Engine(":memory:", flows=[flow], activities=[*FOXES, counter.activity()]) as engine:
            handle = await engine.start(flow, id="round")
            await counter.waits.wait()
            described = await at(handle, "989996000000000")
            requested = [view for view in described.attempts if view.state == AttemptState.REQUESTED]
            assert [node_of(view) for view in requested] == [("more", "0/1"), ("end", "0/1")]

    together(scenario())


def node_of(view: AttemptView) -> tuple[str, str]:
    return view.node, view.dimension


def test_K6_the_composite_has_the_keys_of_awaited_children_inside() -> None:
    async def scenario() -> None:
        fox, parent = flow_of(FOX), flow_of(PARENT)
        async with env_of(fox, parent) as env:
            handle = await env.start(parent, id="family")
            await handle.result()
            described = await handle.describe()
            assert described.collation_key == "666660000000000"
            assert described.composite_key == "666" + "1366663" + "2" + "6" + "1662" + "1662" + "6"
            assert [node_of(view) for view in described.attempts] == [("last", "0/0")]
            code = await env.get("family").children()
            assert len(code) == 4, "the detached one is a child, too, and in nobody's key"

    skipping(scenario())


def test_K6_a_child_that_has_not_begun_adds_nothing() -> None:
    async def scenario() -> None:
        parent = flow_of("flow: alone\nactivities:\n  go: {trigger: true}\n  it: {flow: nobody, after: go}\n")
        async with hf.Engine(":memory:", flows=[parent]) as engine:
            handle = await engine.start(parent, id="alone")
            described = await at(handle, "680000000000000")
            assert described.composite_key == "68"
            assert described.waiting_for == [f"child nobody {(await handle.children())[0].id} (node it)"]

    together(scenario())


def test_K6_a_child_that_was_refused_is_not_the_one_of_an_earlier_round() -> None:
    async def scenario() -> None:
        text = """
flow: again
activities:
  go: {trigger: true}
  count: {run: count, after: go}
  kid: {flow: twice, id: "'kid'", input: ["count.output"], after: count}
  once: {cycle: count, after: kid}
  end: {run: nap, after: {kid: {catch: InstanceConflict}}}
"""
        flow = flow_of(text)  # its key: count, end, go, kid, once
        async with Environment(
            flows=[flow], workflows=[twice], activities=[*FOXES, double, Counter().activity()]
        ) as env:
            handle = await env.start(flow, id="family")
            await handle.result()
            described = await handle.describe()
            assert described.collation_key == "666730000000000"
            assert described.composite_key == "66673"
            assert handle.number is not None
            record = await env._session.store.read_instance(handle.number)
            assert record is not None
            steps = (await read_execution(env._session.store, record)).steps
            assert [step.child is not None for step in steps if step.recorded.kind == "child"] == [True, False]

    skipping(scenario())


def test_K6_a_composite_goes_on_through_children_that_are_code() -> None:
    outer = """
flow: outer
activities:
  start: {trigger: true}
  code:  {flow: between, after: start}
"""
    inner = """
flow: inner
activities:
  a: {trigger: true}
  b: {wait: {timer: 1s}, after: a}
"""
    innermost = flow_of(inner)

    @hf.workflow(name="between")
    async def between() -> None:
        await asyncio.sleep(1)
        await innermost({})
        await double(1)

    async def scenario() -> None:
        flow = flow_of(outer)
        async with Environment(flows=[flow, innermost], workflows=[between], activities=[double]) as env:
            handle = await env.start(flow, id="outer")
            await handle.result()
            assert (await handle.describe()).composite_key == "61" + "4" + "6" + "1642" + "6" + "26"

    skipping(scenario())


def test_K6_a_composite_of_too_many_children_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("holdfast.client.views.flows.MOST_IN_COMPOSITE", 2)
        fox, parent = flow_of(FOX), flow_of(PARENT)
        async with env_of(fox, parent) as env:
            handle = await env.start(parent, id="family")
            await handle.result()
            assert (await handle.describe()).composite_key is None

    skipping(scenario())


def test_the_description_of_code_is_as_it_was() -> None:
    async def scenario() -> None:
        async with env_of() as env:
            await env.run(twice, 3, id="code")
            described = await env.get("code").describe()
            assert described.collation_key == described.composite_key == "66"
            assert {(view.node, view.dimension) for view in described.attempts} == {("", "")}

    skipping(scenario())
