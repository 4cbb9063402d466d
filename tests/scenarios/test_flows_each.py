"""Fan-outs of flows: once for each item of a list (K8)."""

from pathlib import Path

import pytest
from tests.scenarios.flow_stage import CACHES, played, staged
from tests.scenarios.support import until

import holdfast as hf
from holdfast.core.history import ChildScheduled
from holdfast.errors import ExpressionError

EACH = """
activities:
  start: {trigger: true}
  many:  {run: held, each: "start.input.items", input: {name: "item", value: "index"}, after: start}
  last:  {run: echo, input: {value: "many.output"}, after: many}
output: "last.output"
"""


@CACHES
@played
async def test_K8_results_are_in_the_order_of_the_items(cache_size: int) -> None:
    async with staged(EACH, cache_size=cache_size) as stage:
        handle = await stage.start("f", {"items": ["a", "b", "c", "d"]})
        await stage.troupe.began("a", "b", "c", "d")
        assert stage.key() == "986"  # last many start
        for name in "cadb":
            stage.troupe.gate(name).set()
            await stage.troupe.finished(name)
        assert await handle.result() == [0, 1, 2, 3]
        assert stage.troupe.ended == list("cadb")
        assert stage.key() == "666"


@CACHES
@played
async def test_K8_no_more_items_than_the_limit_run_at_a_time(cache_size: int) -> None:
    async with staged(EACH.replace("after: start}", "after: start, limit: 2}"), cache_size=cache_size) as stage:
        handle = await stage.start("f", {"items": list("abcde")})
        await stage.troupe.began("a", "b")
        for ended, (done, begins) in enumerate(zip("bacd", "cdex", strict=True), start=1):
            assert sorted(name for name, _ in stage.attempts()) == ["held"] * (1 + ended)
            stage.troupe.gate(done).set()
            if begins in "cde":
                await stage.troupe.began(begins)
        stage.troupe.gate("e").set()
        assert await handle.result() == [0, 1, 2, 3, 4]


@CACHES
@played
async def test_K8_an_empty_list_is_complete_at_once(cache_size: int) -> None:
    async with staged(EACH, cache_size=cache_size) as stage:
        assert await stage.run("f", {"items": []}) == []
        assert stage.keys() == [f"{digits}{'0' * 12}" for digits in ("866", "666")]


@CACHES
@played
async def test_K4_a_failing_item_fails_the_node_and_stops_the_others(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  many:  {run: held_fail, each: "start.input.items", input: {name: "item"}, after: start, limit: 2}
  saved: {run: echo, input: {value: "many.error.message"}, after: {many: {catch: ValueError}}}
output: ["saved.output", "many.output"]
"""
    async with staged(text, cache_size=cache_size) as stage:
        handle = await stage.start("f", {"items": ["a", "b", "c"]})
        await stage.troupe.began("a", "b")
        stage.troupe.gate("b").set()
        assert await handle.result() == ["b", None]
        assert stage.key() == "766"
        assert stage.troupe.count("c") == 0, "what has not begun never does"
        assert sorted(state for name, state in stage.attempts() if name == "held_fail") in (
            ["CANCELLED", "FAILED"],
            ["CANCELLED_RUNNING", "FAILED"],
        )


@CACHES
@played
async def test_K8_without_an_input_the_item_is_the_argument(cache_size: int) -> None:
    text = 'activities:\n  s: {trigger: true}\n  m: {run: echo, each: "s.input.items", after: s}\noutput: "m.output"\n'
    items = [1, "two", {"three": [3]}, None, [4]]
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run("f", {"items": items}) == items


@pytest.mark.parametrize("items", ["text", {"a": 1}, 5, None])
@CACHES
@played
async def test_K4_what_is_no_list_fails_the_node(cache_size: int, items: object) -> None:
    async with staged(EACH, cache_size=cache_size) as stage:
        error = await stage.failure("f", {"items": items})
        assert isinstance(error, ExpressionError)
        assert "node 'many', line 5, of flow 'f': each: a list is needed" in str(error)
        assert stage.key() == "376"


@CACHES
@played
async def test_K4_an_item_whose_input_cannot_be_evaluated_fails_the_node(cache_size: int) -> None:
    """The third item begins only after another is done."""
    text = (
        EACH.replace('value: "index"', 'value: "6 / item"')
        .replace('name: "item"', "name: \"'x'\"")
        .replace("run: held", "limit: 2, run: step")
    )
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run("f", {"items": [1, 2, 3]}, id="good") == [6, 3, 2]
        error = await stage.failure("f", {"items": [1, 2, 0, 3]}, id="bad")
        assert isinstance(error, ExpressionError)
        assert "node 'many', line 5" in str(error)
        assert stage.key("bad") == "376"


CHILD = """
flow: child
activities:
  start: {trigger: true}
  work:  {run: step, input: ["'child'", "start.input.n * 10"], after: start}
output: "work.output"
"""


@pytest.mark.parametrize("limit", ["", ", limit: 1", ", limit: 2"])
@CACHES
@played
async def test_K8_each_over_child_flows(cache_size: int, limit: str) -> None:
    text = f"""
activities:
  start: {{trigger: true}}
  many:  {{flow: child, each: "start.input.items", input: {{n: "item"}}, after: start{limit}}}
output: "many.output"
"""
    async with staged(text, CHILD, cache_size=cache_size) as stage:
        assert await stage.run("f", {"items": [3, 1, 2]}) == [30, 10, 20]
        assert stage.states() == {"it": "COMPLETED", **{f"it/1/{number}": "COMPLETED" for number in range(3)}}
        items = [event.item for event in stage.events() if isinstance(event, ChildScheduled)]
        assert items == [0, 1, 2]


@CACHES
@played
async def test_K8_each_over_detached_children_has_their_ids_at_once(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  many:  {flow: child, each: "start.input.items", id: "'c' + string(item)", input: {n: "item"}, detached: true,
          limit: 1, after: start}
output: "many.output"
"""
    async with staged(text, CHILD, cache_size=cache_size) as stage:
        assert await stage.run("f", {"items": [3, 1, 2]}) == ["c3", "c1", "c2"]
        assert [await stage.engine.get(f"c{number}").result() for number in (1, 2, 3)] == [10, 20, 30]


@CACHES
@played
async def test_K4_a_child_of_a_fan_out_that_fails_stops_the_others(cache_size: int) -> None:
    child = CHILD.replace(
        'run: step, input: ["\'child\'", "start.input.n * 10"]', 'run: held_fail, input: ["start.input.n"]'
    )
    text = """
activities:
  start: {trigger: true}
  many:  {flow: child, each: "start.input.items", input: {n: "item"}, after: start}
"""
    async with staged(text, child, cache_size=cache_size) as stage:
        handle = await stage.start("f", {"items": ["a", "b"]})
        await stage.troupe.began("a", "b")
        stage.troupe.gate("b").set()
        with pytest.raises(hf.WorkflowFailed, match="b"):
            await handle.result()
        await until(lambda: stage.states()["it/1/0"] == "CANCELLED")
        assert stage.states() == {"it": "FAILED", "it/1/0": "CANCELLED", "it/1/1": "FAILED"}


@CACHES
@played
async def test_K8_a_hundred_items_with_a_limit_in_order(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  many:  {run: echo, each: "start.input.items", after: start, limit: 7}
output: "many.output"
"""
    async with staged(text, cache_size=cache_size) as stage:
        items = list(range(100))
        assert await stage.run("f", {"items": items}) == items
        assert sorted(value for _, value in stage.troupe.calls) == items


@played
async def test_K8_the_list_of_a_fan_out_stays_as_it_was_when_it_began(tmp_path: Path) -> None:
    """It is that of a sibling of an earlier round; the sibling gives another one before the last item has begun."""
    text = """
activities:
  start: {trigger: true}
  count: {run: tally, input: ["'count'"], after: start}
  other: {run: held, input: ["'other' + string(count.output)", "count.output == 1 ? [1, 2, 3] : [9]"], after: count}
  many:  {run: held, each: "other.output == null ? [] : other.output", input: ["'m' + string(item)", "item"], limit: 1,
          after: count}
  again: {cycle: count, after: [other, many], when: "count.output < 2"}
output: "many.output"
"""
    store = tmp_path / "f.db"
    async with staged(text, store=store) as stage:
        await stage.start("f")
        stage.troupe.gate("other1").set()
        await stage.troupe.began("other2", "m1")
        stage.troupe.gate("other2").set()
        await stage.until_key("96866")  # again count many other start
    async with staged(text, store=store) as stage:  # it reads the history
        for name in ("m1", "m2", "m3"):
            stage.troupe.gate(name).set()
        assert await stage.engine.get("it").result() == [1, 2, 3]
