"""Flows that start others, code that starts flows, and the ends that come from elsewhere (K6, A9, G5)."""

import asyncio
from typing import Any

import pytest
from tests.scenarios.flow_stage import CACHES, Stage, played, staged

import holdfast as hf
from holdfast.core.collation import compose
from holdfast.core.history import ChildScheduled

CHILD = """
flow: child
activities:
  start: {trigger: true}
  work:  {run: held, input: ["start.input.name"], after: start}
  last:  {run: step, input: ["'last'", "work.output + '!'"], after: work}
output: "last.output"
"""
PARENT = """
flow: parent
activities:
  start: {trigger: true}
  call:  {flow: child, input: {name: "start.input.name"}, after: start}
  after: {run: echo, input: {value: "call.output"}, after: call}
output: "after.output"
"""


def composite(stage: Stage, name: str = "it") -> str:
    """K6, from the keys of an instance and of the child flows that it awaited."""
    children: dict[int, list[str]] = {}
    nodes = stage.nodes(name)
    for event in stage.events(name):
        if isinstance(event, ChildScheduled) and not event.detached:
            children.setdefault(nodes.index(event.node), []).append(composite(stage, event.id))
    return compose(stage.key(name), children)


@CACHES
@played
async def test_K6_a_child_flow_is_awaited_and_its_key_is_inside(cache_size: int) -> None:
    async with staged(PARENT, CHILD, cache_size=cache_size) as stage:
        handle = await stage.start("parent", {"name": "fox"})
        await stage.troupe.began("fox")
        assert stage.key() == "986"  # after call start
        assert composite(stage) == "9819682" + "6"  # last start work inside of call
        stage.troupe.gate("fox").set()
        assert await handle.result() == "fox!"
        assert composite(stage) == "66" + "1" + "666" + "2" + "6"
        assert stage.states() == {"it": "COMPLETED", "it/1/0": "COMPLETED"}


@CACHES
@played
async def test_K6_child_flows_nested_three_deep(cache_size: int) -> None:
    middle = PARENT.replace("flow: parent", "flow: middle")
    outer = PARENT.replace("flow: parent", "flow: outer").replace("flow: child", "flow: middle")
    async with staged(outer, middle, CHILD, cache_size=cache_size) as stage:
        stage.troupe.gate("fox").set()
        assert await stage.run("outer", {"name": "fox"}) == "fox!"
        assert composite(stage) == "6616616662626"
        assert sorted(stage.states()) == ["it", "it/1/0", "it/1/0/1/0"]


@pytest.mark.parametrize("shape", ["parallel", "sequential"])
@CACHES
@played
async def test_K6_several_children_side_by_side_and_one_after_the_other(cache_size: int, shape: str) -> None:
    second = "start" if shape == "parallel" else "one"
    text = f"""
activities:
  start: {{trigger: true}}
  one:   {{flow: child, input: {{name: "'a'"}}, after: start}}
  two:   {{flow: child, input: {{name: "'b'"}}, after: {second}}}
  last:  {{run: echo, input: {{value: ["one.output", "two.output"]}}, after: [one, two]}}
output: "last.output"
"""
    async with staged(text, CHILD, cache_size=cache_size) as stage:
        handle = await stage.start("f")
        await stage.troupe.began("a")
        if shape == "parallel":
            await stage.troupe.began("b")
        else:
            assert stage.troupe.count("b") == 0
        for name in "ba":
            stage.troupe.gate(name).set()
        assert await handle.result() == ["a!", "b!"]
        assert composite(stage) == "66166626616662"  # last one start two
        assert len(stage.states()) == 3


@CACHES
@played
async def test_G5_a_detached_child_is_not_waited_for_and_outlives_its_parent(cache_size: int) -> None:
    text = PARENT.replace("flow: child,", "flow: child, detached: true, id: \"'loose'\",")
    async with staged(text, CHILD, cache_size=cache_size) as stage:
        assert await stage.run("parent", {"name": "fox"}) == "loose"
        assert composite(stage) == "666"
        await stage.troupe.began("fox")
        assert stage.states() == {"it": "COMPLETED", "loose": "RUNNING"}
        stage.troupe.gate("fox").set()
        assert await stage.engine.get("loose").result() == "fox!"


FAILING = """
flow: failing
activities:
  start: {trigger: true}
  work:  {run: fail, input: ["'broken'", "'VeryTired'"], after: start}
"""
GUARDED = """
flow: guarded
activities:
  start: {trigger: true}
  call:  {flow: CHILD, input: {name: "'fox'"}, after: start}
  next:  {run: echo, after: call}
  saved: {run: echo, input: {value: ["call.error.type", "call.error.message"]}, after: {call: {catch: CATCH}}}
output: "saved.output"
"""


@CACHES
@played
async def test_K4_a_child_that_fails_fails_its_node_with_its_own_error(cache_size: int) -> None:
    caught = GUARDED.replace("CHILD", "failing").replace("CATCH", "Tired")
    async with staged(caught, FAILING, cache_size=cache_size) as stage:
        assert await stage.run("guarded") == ["VeryTired", "broken"]
        assert composite(stage) == "71672366"  # call next saved start
        assert stage.states() == {"it": "COMPLETED", "it/1/0": "FAILED"}
    uncaught = GUARDED.replace("CHILD", "failing").replace("CATCH", "ValueError")
    async with staged(uncaught, FAILING, cache_size=cache_size) as stage:
        assert str(await stage.failure("guarded")) == "broken"
        assert stage.key() == "7336"


@pytest.mark.parametrize(("how", "error"), [("cancel", "WorkflowCancelled"), ("terminate", "WorkflowTerminated")])
@CACHES
@played
async def test_K4_a_child_that_was_ended_fails_its_node(cache_size: int, how: str, error: str) -> None:
    text = GUARDED.replace("CHILD", "child").replace("CATCH", error)
    async with staged(text, CHILD, cache_size=cache_size) as stage:
        handle = await stage.start("guarded")
        await stage.troupe.began("fox")
        child = stage.engine.get("it/1/0")
        await (child.cancel("enough") if how == "cancel" else child.terminate("enough"))
        kind, message = await handle.result()
        assert kind == error
        assert "enough" in message
        assert stage.key() == "7366"


@CACHES
@played
async def test_G3_a_child_whose_id_is_taken_fails_its_node(cache_size: int) -> None:
    text = GUARDED.replace("flow: CHILD,", "flow: child, id: \"'taken'\",").replace("CATCH", "InstanceConflict")
    async with staged(text, CHILD, cache_size=cache_size) as stage:
        await stage.start("child", {"name": "other"}, id="taken")
        kind, message = await stage.run("guarded")
        assert kind == "InstanceConflict"
        assert "taken" in message
        assert stage.key() == "7366"
        stage.troupe.gate("other").set()
        await stage.engine.get("taken").result()


@CACHES
@played
async def test_a_flow_runs_code_as_its_child(cache_size: int) -> None:
    @hf.workflow(name="child")
    async def child(name: str) -> dict[str, Any]:
        await asyncio.sleep(0.001)
        return {"hello": name}

    async with staged(PARENT, child, cache_size=cache_size) as stage:
        assert await stage.run("parent", {"name": "fox"}) == {"hello": "fox"}
        assert stage.states() == {"it": "COMPLETED", "it/1/0": "COMPLETED"}


@CACHES
@played
async def test_code_runs_a_flow_as_its_child(cache_size: int) -> None:
    @hf.workflow(name="above")
    async def above(name: str) -> list[Any]:
        first = await (await hf.start("parent", {"name": name}))
        try:
            await (await hf.start("failing", {}))
        except hf.WorkflowFailed as error:
            return [first, str(error.cause)]
        return [first]

    async with staged(above, PARENT, CHILD, FAILING, cache_size=cache_size) as stage:
        stage.troupe.gate("fox").set()
        assert await stage.run("above", "fox") == ["fox!", "broken"]
        assert stage.states() == {
            "it": "COMPLETED",
            "it/1/0": "COMPLETED",
            "it/1/0/1/0": "COMPLETED",
            "it/1/1": "FAILED",
        }


# ---------------------------------------------------------------- ends


OPEN = """
flow: open
activities:
  start: {trigger: true}
  work:  {run: held, input: ["'work'"], after: start}
  wait:  {wait: {event: never, timeout: 1h}, after: start}
  call:  {flow: child, input: {name: "'fox'"}, after: start}
  last:  {run: echo, after: [work, wait, call]}
"""


@CACHES
@played
async def test_A9_a_cancelled_flow_ends_with_all_that_is_open(cache_size: int) -> None:
    async with staged(OPEN, CHILD, cache_size=cache_size) as stage:
        handle = await stage.start("open")
        await stage.troupe.began("work", "fox")
        await handle.cancel("enough")
        with pytest.raises(hf.WorkflowCancelled, match="enough"):
            await handle.result()
        assert stage.key() == "73677"  # call last start wait work
        await stage.until_closed("it/1/0")
        assert stage.states() == {"it": "CANCELLED", "it/1/0": "CANCELLED"}
        assert stage.troupe.ended == []


@CACHES
@played
async def test_A9_a_terminated_flow_ends_with_its_children(cache_size: int) -> None:
    async with staged(OPEN, CHILD, cache_size=cache_size) as stage:
        handle = await stage.start("open")
        await stage.troupe.began("work", "fox")
        await handle.terminate("enough")
        with pytest.raises(hf.WorkflowTerminated):
            await handle.result()
        await stage.until_closed("it/1/0")
        assert stage.states() == {"it": "TERMINATED", "it/1/0": "TERMINATED"}


@CACHES
@played
async def test_A9_a_flow_that_is_not_over_by_its_deadline_fails(cache_size: int) -> None:
    async with staged(OPEN, CHILD, cache_size=cache_size) as stage:
        error = await stage.failure("open", deadline=0.2)
        assert isinstance(error, hf.DeadlineExceeded)
        assert stage.key() == "73677"
        await stage.until_closed("it/1/0")


@CACHES
@played
async def test_interrupt_ends_this_instance(cache_size: int) -> None:
    text = """
flow: stops
activities:
  start: {trigger: true}
  work:  {run: held, input: ["'work'"], after: start}
  call:  {flow: child, input: {name: "'fox'"}, after: start, detached: DETACHED}
  check: {wait: {event: go}, after: start}
  stop:  {interrupt: self, reason: no need, descendants: DESCENDANTS, after: check}
  never: {run: step, input: ["'never'"], after: stop}
"""
    for detached, descendants, state in (
        ("false", "false", "TERMINATED"),
        ("false", "true", "CANCELLED"),
        ("true", "false", "RUNNING"),
        ("true", "true", "CANCELLED"),
    ):
        written = text.replace("DETACHED", detached).replace("DESCENDANTS", descendants)
        async with staged(written, CHILD, cache_size=cache_size) as stage:
            handle = await stage.start("stops")
            await stage.troupe.began("work", "fox")
            await handle.raise_event("go")
            with pytest.raises(hf.WorkflowCancelled, match="no need"):
                await handle.result()
            assert stage.key() == f"{6 if detached == 'true' else 7}43667"  # call check never start stop work
            if state == "RUNNING":
                stage.troupe.gate("fox").set()
                await stage.engine.get("it/1/0").result()
            else:
                assert await stage.until_closed("it/1/0") in (state, "CANCELLED")
            assert stage.troupe.count("never") == 0


@CACHES
@played
async def test_interrupt_ends_another_instance(cache_size: int) -> None:
    text = """
flow: stops
activities:
  start: {trigger: true}
  stop:  {interrupt: "start.input.who", reason: no need, after: start}
  last:  {run: step, input: ["'last'"], after: stop}
output: "last.output"
"""
    async with staged(text, OPEN, CHILD, cache_size=cache_size) as stage:
        other = await stage.start("open", id="other")
        await stage.troupe.began("work", "fox")
        assert await stage.run("stops", {"who": "other"}) == "last"
        with pytest.raises(hf.WorkflowCancelled, match="no need"):
            await other.result()
        assert await stage.run("stops", {"who": "nobody"}, id="again") == "last"
        assert stage.key("again") == "666"
        await stage.until_closed("other/1/0")


@CACHES
@played
async def test_A9_a_failing_flow_ends_the_children_it_still_has(cache_size: int) -> None:
    text = """
flow: fast
policy: fail_fast
activities:
  start: {trigger: true}
  call:  {flow: child, input: {name: "'fox'"}, after: start}
  bad:   {run: held_fail, input: ["'bad'"], after: start}
"""
    async with staged(text, CHILD, cache_size=cache_size) as stage:
        handle = await stage.start("fast")
        await stage.troupe.began("fox", "bad")
        stage.troupe.gate("bad").set()
        with pytest.raises(hf.WorkflowFailed, match="bad"):
            await handle.result()
        assert stage.key() == "776"
        assert await stage.until_closed("it/1/0") in ("CANCELLED", "TERMINATED")


@pytest.mark.parametrize("who", ["self", "other"])
@pytest.mark.parametrize("descendants", [True, False])
@CACHES
@played
async def test_interrupt_with_descendants_ends_all_that_flows_below_started(
    cache_size: int, who: str, descendants: bool
) -> None:
    """Also a detached grandchild."""
    above = """
flow: above
activities:
  start: {trigger: true}
  call:  {flow: middle, after: start}
  loose: {flow: child, detached: true, id: "'loose'", input: {name: "'a'"}, after: start}
  go:    {wait: {event: go}, after: start}
  stop:  {interrupt: self, descendants: DESCENDANTS, after: go}
"""
    middle = """
flow: middle
activities:
  start: {trigger: true}
  loose: {flow: child, detached: true, id: "'far'", input: {name: "'b'"}, after: start}
  call:  {flow: child, input: {name: "'c'"}, after: loose}
"""
    stops = """
flow: stops
activities:
  start: {trigger: true}
  stop:  {interrupt: "'it'", descendants: DESCENDANTS, after: start}
"""
    said = str(descendants).lower()
    texts = [text.replace("DESCENDANTS", said) for text in (above, middle, stops)]
    async with staged(*texts, CHILD, cache_size=cache_size) as stage:
        handle = await stage.start("above")
        await stage.troupe.began("a", "b", "c")
        if who == "self":
            await handle.raise_event("go")
        else:
            await stage.run("stops", id="stops")
        with pytest.raises(hf.WorkflowCancelled):
            await handle.result()
        assert await stage.until_closed("it/1/0") == "CANCELLED"
        assert await stage.until_closed("it/1/0/1/1") in ("CANCELLED", "TERMINATED")
        if descendants:
            assert [await stage.until_closed(name) for name in ("loose", "far")] == ["CANCELLED"] * 2
        else:
            assert (stage.states()["loose"], stage.states()["far"]) == ("RUNNING", "RUNNING")
