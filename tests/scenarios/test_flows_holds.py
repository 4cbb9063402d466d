"""Nodes that are held after they have run (K11): digits 5 and 4, releases, time-outs."""

import asyncio
from pathlib import Path

import pytest
from tests.scenarios.flow_stage import CACHES, played, staged
from tests.scenarios.support import until

import holdfast as hf
from holdfast.core.history import NodeReleased
from holdfast.errors import NodeNotHeld

REVIEW = """
activities:
  start:  {trigger: true}
  review: {run: step, input: {name: "'draft'"}, after: start, hold: true}
  ship:   {run: echo, input: {value: review.output}, after: review}
output: ship.output
"""
"""Its key: review, ship, start."""


@CACHES
@played
async def test_K11_a_held_node_is_5_and_nothing_behind_it_starts_before_its_release(cache_size: int) -> None:
    async with staged(REVIEW, cache_size=cache_size) as stage:
        handle = await stage.start("f", {})
        await stage.until_key("596")
        assert [name for name, _ in stage.troupe.calls] == ["draft"]
        described = await handle.describe()
        assert described.collation_key == "596".ljust(15, "0")
        assert described.waiting_for == ["release (node review)"]
        stage.check()
        await handle.release("review")
        assert await handle.result() == "draft"
        await stage.until_key("466")
        assert stage.keys() == [key.ljust(15, "0") for key in ("896", "596", "486", "466")]


@CACHES
@played
async def test_K11_a_release_may_replace_the_output(cache_size: int) -> None:
    async with staged(REVIEW, cache_size=cache_size) as stage:
        handle = await stage.start("f", {})
        await stage.until_key("596")
        await handle.release("review", output={"text": "final"})
        assert await handle.result() == {"text": "final"}
        released = [event for event in stage.events() if isinstance(event, NodeReleased)]
        assert [event.node for event in released] == ["review"]


@CACHES
@played
async def test_K11_null_is_an_output_and_differs_from_none_given(cache_size: int) -> None:
    async with staged(REVIEW, cache_size=cache_size) as stage:
        handle = await stage.start("f", {})
        await stage.until_key("596")
        await handle.release("review", output=None)
        assert await handle.result() is None


@played
async def test_K11_a_large_output_of_a_release_is_stored_apart() -> None:
    async with staged(REVIEW, cache_size=0) as stage:
        handle = await stage.start("f", {})
        await stage.until_key("596")
        large = "x" * 200_000
        await handle.release("review", output=large)
        assert await handle.result() == large


@played
async def test_K2_a_release_of_a_node_that_is_not_5_is_a_typed_error_and_changes_nothing() -> None:
    text = REVIEW.replace("run: step, input: {name: \"'draft'\"}", "run: held, input: {name: \"'draft'\"}")
    async with staged(text) as stage:
        handle = await stage.start("f", {})
        await stage.troupe.began("draft")
        with pytest.raises(NodeNotHeld, match=r"'review' is started \(8\), not held \(5\)"):
            await handle.release("review")
        with pytest.raises(NodeNotHeld, match="there is no node 'rewiev' in flow 'f'"):
            await handle.release("rewiev")
        with pytest.raises(NodeNotHeld, match=r"'ship' is pending \(9\)"):
            await handle.release("ship", output=1)
        await stage.until_key("896")
        stage.troupe.gate("draft").set()
        await stage.until_key("596")
        with pytest.raises(NodeNotHeld, match="held are review"):
            await handle.release("start")
        await handle.release("review")
        assert await handle.result() == "draft"
        with pytest.raises(hf.InstanceClosed):
            await handle.release("review")


@played
async def test_K11_a_release_with_the_same_id_is_applied_once() -> None:
    text = REVIEW.replace("run: echo, input: {value: review.output}", "run: held, input: {name: \"'ship'\"}")
    async with staged(text) as stage:
        handle = await stage.start("f", {})
        await stage.until_key("596")
        await asyncio.gather(*(handle.release("review", id="once") for _ in range(5)))
        await handle.release("review", id="once")
        with pytest.raises(NodeNotHeld, match=r"released \(4\)"):
            await handle.release("review", id="twice")
        assert sum(isinstance(event, NodeReleased) for event in stage.events()) == 1
        stage.troupe.gate("ship").set()
        assert await handle.result() == "ship"


@CACHES
@played
async def test_K11_a_hold_that_times_out_fails_its_node_by_5_to_7(cache_size: int) -> None:
    text = REVIEW.replace("hold: true", "hold: {timeout: 20ms}")
    async with staged(text, cache_size=cache_size) as stage:
        failure = await stage.failure("f", {})
        assert isinstance(failure, TimeoutError)
        assert "review" in str(failure)
        await stage.until_key("736")
        assert stage.keys() == [key.ljust(15, "0") for key in ("896", "596", "736")]


@CACHES
@played
async def test_K11_an_error_edge_catches_the_timeout_of_a_hold(cache_size: int) -> None:
    text = REVIEW.replace("hold: true", 'hold: {timeout: "start.input.seconds"}').replace(
        "output: ship.output",
        "  late: {run: echo, input: {value: review.error.type}, "
        "after: {review: {catch: [TimeoutError]}}}\noutput: [late.output, review.output]",
    )
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run("f", {"seconds": 0.02}) == ["TimeoutError", None]
        handle = await stage.start("f", {"seconds": 60}, id="b")
        await stage.until_key("9596", "b")
        await handle.release("review")
        assert await handle.result() == [None, "draft"]
        failed = await stage.failure("f", {"seconds": "soon"}, id="c")
        assert "a duration is a number of seconds" in str(failed)


@CACHES
@played
async def test_K11_the_output_of_a_held_node_is_not_readable(cache_size: int) -> None:
    text = """
activities:
  start:  {trigger: true}
  review: {run: step, input: {name: "'draft'"}, after: start, hold: true}
  other:  {run: held, input: {name: "'other'"}, after: start}
  either: {run: echo, input: {value: review.output}, after: [review, other], join: any}
output: [either.output, review.output]
"""
    async with staged(text, cache_size=cache_size) as stage:
        handle = await stage.start("f", {})
        await stage.until_key("9856")
        stage.troupe.gate("other").set()
        await stage.until_key("6656")
        await handle.release("review")
        assert await handle.result() == [None, "draft"]


KINDS = """
activities:
  start: {trigger: true}
  child: {flow: inner, after: start, hold: true}
  aside: {flow: inner, detached: true, after: start, hold: true}
  many:  {run: echo, each: "[1, 2]", after: start, hold: true}
  event: {wait: {event: go}, after: start, hold: true}
  timer: {wait: {timer: 10ms}, after: start, hold: true}
  raised: {raise: {event: hello, to: "'nobody'"}, after: start, hold: true}
  ended: {interrupt: "'nobody'", after: start, hold: true}
  last:  {run: echo, input: {value: many.output}, after: [child, aside, many, event, timer, raised, ended]}
output: [child.output, last.output, event.output]
"""
INNER = "flow: inner\nactivities:\n  start: {trigger: true}\noutput: \"'inner'\""


@CACHES
@played
async def test_K11_every_kind_of_node_can_be_held(cache_size: int) -> None:
    async with staged(KINDS, INNER, cache_size=cache_size) as stage:
        handle = await stage.start("f", {})
        await stage.until_key("555595565")  # aside child ended event last many raised start timer
        with pytest.raises(NodeNotHeld, match="'event' still waits for its event"):
            await handle.release("event")
        await handle.raise_event("go", 7)
        stage.check()
        await until(lambda: any(type(event).__name__ == "EventReceived" for event in stage.events()))
        for node in ("child", "aside", "many", "event", "raised", "ended"):
            await handle.release(node)
        for _ in range(100):
            try:
                await handle.release("timer")
                break
            except NodeNotHeld:
                await asyncio.sleep(0.01)
        assert await handle.result() == ["inner", [1, 2], 7]
        await stage.until_key("444464464")


CYCLE = """
activities:
  start: {trigger: true}
  look:  {run: tally, input: {name: "'look'"}, after: start}
  again: {cycle: look, after: look, when: look.output < 5, hold: true, limit: 2}
output: look.output
"""


@CACHES
@played
async def test_K11_a_held_cycle_begins_its_round_when_it_is_released(cache_size: int) -> None:
    async with staged(CYCLE, cache_size=cache_size) as stage:
        handle = await stage.start("f", {})
        for round_number in (1, 2):
            await stage.troupe.began(*["look"] * round_number)  # the key before the release may still be the last one
            await stage.until_key("566")
            assert stage.troupe.count("look") == round_number
            await handle.release("again")
        with pytest.raises(hf.WorkflowFailed, match="went round 2 times"):
            await handle.result()
        await stage.until_key("766")


@CACHES
@played
async def test_K11_a_released_cycle_waits_for_the_nodes_that_it_repeats(cache_size: int) -> None:
    text = CYCLE.replace("output:", "  slow: {run: held, input: {name: \"'slow'\"}, after: look}\noutput:").replace(
        "look.output < 5", "look.output < 2"
    )
    async with staged(text, cache_size=cache_size) as stage:
        handle = await stage.start("f", {})
        await stage.until_key("5686")
        await handle.release("again")
        await stage.until_key("4686")
        stage.check()
        stage.troupe.gate("slow").set()
        assert await handle.result() == 2
        await stage.until_key("3666")


@CACHES
@played
async def test_K8_a_node_is_held_in_every_round_and_keeps_its_last_output_meanwhile(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  look:  {run: tally, input: {name: "'look'"}, after: start, hold: true}
  note:  {run: echo, input: {value: look.output}, after: look}
  again: {cycle: look, after: note, when: note.output < 3}
output: note.output
"""
    async with staged(text, cache_size=cache_size) as stage:
        handle = await stage.start("f", {})
        for round_number in (1, 2, 3):
            await stage.troupe.began(*["look"] * round_number)
            await stage.until_key("9596")
            await handle.release("look")
        assert await handle.result() == 3


@CACHES
@played
async def test_K4_fail_fast_cancels_a_held_node(cache_size: int) -> None:
    text = """
policy: fail_fast
activities:
  start:  {trigger: true}
  review: {run: step, input: {name: "'draft'"}, after: start, hold: {timeout: 1h}}
  bad:    {run: held_fail, input: {name: "'bad'"}, after: start}
"""
    async with staged(text, cache_size=cache_size) as stage:
        handle = await stage.start("f", {})
        await stage.until_key("856")
        stage.troupe.gate("bad").set()
        with pytest.raises(hf.WorkflowFailed):
            await handle.result()
        await stage.until_key("776")


@played
async def test_K2_a_cancel_fails_a_held_node() -> None:
    async with staged(REVIEW) as stage:
        handle = await stage.start("f", {})
        await stage.until_key("596")
        await handle.cancel()
        with pytest.raises(hf.WorkflowCancelled):
            await handle.result()
        await stage.until_key("736")


@played
async def test_K11_a_release_survives_the_engine(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    async with staged(REVIEW, store=store) as stage:
        await stage.start("f", {})
        await stage.until_key("596")
    async with hf.connect(str(store)) as client:
        with pytest.raises(TimeoutError, match="the release of node 'review' of 'it'"):
            await client.get("it").release("review", output="late", id="r", timeout=0.05)
    async with staged(REVIEW, store=store) as stage:
        assert await stage.engine.get("it").result() == "late"
        await stage.engine.get("it").release("review", output="late", id="r")


@played
async def test_K11_code_has_no_nodes_to_release() -> None:
    @hf.workflow(name="code")
    async def code() -> None:
        await hf.event("go")

    async with staged(code) as stage:
        handle = await stage.start("code")
        with pytest.raises(NodeNotHeld, match="is no flow"):
            await handle.release("review")
        await handle.raise_event("go")
        await handle.result()
