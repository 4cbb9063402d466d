"""Versions of flows, inputs and expressions when they run, options of nodes, large values (K1, K4, A5, G12)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.flow_stage import CACHES, flow, played, staged
from tests.scenarios.support import engine_of, path_of, rows, until

import holdfast as hf
from holdfast.core.activity_options import decode_options
from holdfast.errors import ArgumentError, ExpressionError

OLD = """
flow: f
version: "1"
activities:
  start: {trigger: true}
  wait:  {wait: {event: go}, after: start}
  old:   {run: step, input: ["'old'"], after: wait}
output: {result: "old.output", version: "flow.version"}
"""
NEW = """
flow: f
version: "2"
activities:
  start: {trigger: true}
  also:  {run: step, input: ["'also'"], after: start}
  wait:  {wait: {event: go}, after: also}
  newer: {run: step, input: ["'newer'"], after: wait}
output: {result: "newer.output", version: "flow.version"}
"""


@CACHES
@played
async def test_K1_a_running_instance_stays_on_its_version_after_a_restart(cache_size: int, tmp_path: Path) -> None:
    """HotMesh's running jobs silently follow a new version of the graph."""
    store = tmp_path / "f.db"
    async with staged(OLD, store=store, cache_size=cache_size) as stage:
        await stage.start("f", id="early")
        await stage.until_key("965", "early")  # old start wait
    async with staged(NEW, store=store, cache_size=cache_size) as stage:
        early, late = stage.engine.get("early"), await stage.start("f", id="late")
        await stage.until_key("6965", "late")  # also newer start wait
        await early.raise_event("go")
        await late.raise_event("go")
        assert await early.result() == {"result": "old", "version": "1"}
        assert await late.result() == {"result": "newer", "version": "2"}
        assert [stage.key(name) for name in ("early", "late")] == ["664", "6664"]
        assert sorted(row[0] for row in rows(path_of(stage.engine), "SELECT version FROM flows")) == ["1", "2"]


@CACHES
@played
async def test_K1_an_old_version_runs_to_its_end_beside_a_third_and_is_stored_once(
    cache_size: int, tmp_path: Path
) -> None:
    store = tmp_path / "f.db"
    for _ in range(2):
        async with staged(OLD, store=store, cache_size=cache_size) as stage:
            if "it" not in stage.states():
                await stage.start("f")
                await stage.until_key("965")
    async with staged(OLD.replace('version: "1"', 'version: "3"'), store=store, cache_size=cache_size) as stage:
        handle = stage.engine.get("it")
        await handle.raise_event("go")
        assert await handle.result() == {"result": "old", "version": "1"}
        assert len(rows(path_of(stage.engine), "SELECT hash FROM flows")) == 2


@played
async def test_G12_an_old_version_whose_activity_is_gone_is_parked_and_loses_nothing(tmp_path: Path) -> None:
    store = tmp_path / "f.db"
    before = OLD.replace("run: step, input: [\"'old'\"]", "run: gone")

    @hf.activity(name="gone")
    async def gone() -> str:
        return "gone"

    async with engine_of(store, flow(before), gone) as engine:
        await engine.start("f", id="it")
    async with staged(NEW, store=store) as stage:
        await stage.engine.get("it").raise_event("go")
        await until(lambda: stage.states() == {"it": "BLOCKED"})
        assert "gone" in rows(path_of(stage.engine), "SELECT blocked FROM instances")[0][0]
    async with engine_of(store, flow(before), gone) as engine:
        assert await engine.get("it").result() == {"result": "gone", "version": "1"}


# ---------------------------------------------------------------- expressions and inputs


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("start.input.missing", "missing"),
        ("start.input.name + 1", "+ does not work"),
        ("start.input.list[7]", "7"),
        ("1 / start.input.zero", "zero"),
    ],
)
@pytest.mark.parametrize("place", ["input", "when"])
@CACHES
@played
async def test_K4_an_expression_that_fails_fails_its_node_and_can_be_caught(
    cache_size: int, expression: str, why: str, place: str
) -> None:
    said = f'input: {{value: "{expression}"}}' if place == "input" else f'when: "({expression}) == 1"'
    text = f"""
flow: f
activities:
  start: {{trigger: true}}
  bad:   {{run: echo, after: start, {said}}}
  next:  {{run: echo, after: bad}}
"""
    given = {"name": "fox", "list": [1, 2], "zero": 0}
    async with staged(text, cache_size=cache_size) as stage:
        error = await stage.failure("f", given)
        assert isinstance(error, ExpressionError)
        assert str(error).startswith("node 'bad', line 5, of flow 'f': ")
        assert why in str(error)
        assert stage.key() == "736"
        assert stage.troupe.calls == []
    text += '  saved: {run: echo, input: {value: "bad.error.type"}, after: {bad: {catch: ExpressionError}}}\n'
    async with staged(text + 'output: "saved.output"\n', cache_size=cache_size) as stage:
        assert await stage.run("f", given) == "ExpressionError"
        assert stage.key() == "7366"


@CACHES
@played
async def test_K4_a_condition_that_is_neither_true_nor_false_fails_its_node(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  bad:   {run: echo, after: start, when: "start.input.text"}
"""
    async with staged(text, cache_size=cache_size) as stage:
        error = await stage.failure("f", {"text": "yes"})
        assert "node 'bad', line 5, of flow 'f': when: start.input.text: it must be true or false" in str(error)


@CACHES
@played
async def test_K5_an_output_that_fails_fails_the_flow(cache_size: int) -> None:
    text = 'activities:\n  start: {trigger: true}\noutput: "start.input.nothing"\n'
    async with staged(text, cache_size=cache_size) as stage:
        error = await stage.failure("f", {})
        assert "output of flow 'f'" in str(error)
        assert stage.states() == {"it": "FAILED"}


TYPED = """
input: {name: string, count: integer, weights: array}
activities:
  start: {trigger: true}
output: "start.input.name"
"""


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"name": "fox", "count": 1}, "weights is missing"),
        ({"name": "fox", "count": "1", "weights": []}, "count is '1'"),
        ({"name": "fox", "count": True, "weights": []}, "count is True"),
        ({"name": "fox", "count": 1, "weights": [], "more": 1}, "it has no more"),
        (["fox"], "not list"),
        ("fox", "not str"),
    ],
)
@played
async def test_C1_a_bad_input_is_refused_where_the_flow_is_known_and_fails_it_elsewhere(
    given: Any, why: str, tmp_path: Path
) -> None:
    store = tmp_path / "f.db"
    async with staged(TYPED, store=store) as stage:
        with pytest.raises(ArgumentError, match=why):
            await stage.start("f", given)
        assert stage.states() == {}
        assert await stage.run("f", {"name": "fox", "count": 1, "weights": []}, id="good") == "fox"
    async with engine_of(store) as client:  # it does not know the flow, so it cannot check
        await client.start("f", given, id="bad")
    async with staged(TYPED, store=store) as stage:
        with pytest.raises(hf.WorkflowFailed, match="flow 'f' takes"):
            await stage.engine.get("bad").result()
        assert stage.states()["bad"] == "FAILED"


# ---------------------------------------------------------------- options of nodes, and what attempts do


@CACHES
@played
async def test_A5_the_options_of_a_node_reach_its_attempts(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  plain: {run: echo, after: start}
  own:   {run: echo, after: plain, queue: special, schedule_to_start: 1m, start_to_close: 30s, schedule_to_close: 1h,
          heartbeat: 5s, retry: {attempts: 7, initial: 0.5, backoff: 3, maximum: 2m, jitter: false, non_retryable: [ValueError]}}
"""  # noqa: E501 - as it is written
    async with staged(text, cache_size=cache_size, queues=["default", "special"]) as stage:
        await stage.run()
        found = rows(path_of(stage.engine), "SELECT queue, options FROM attempts ORDER BY activity")
        plain, own = (decode_options(bytes(options)) for _, options in found)
        assert [queue for queue, _ in found] == ["default", "special"]
        assert own.queue == "special"
        assert (own.schedule_to_start_ms, own.start_to_close_ms) == (60_000, 30_000)
        assert (own.schedule_to_close_ms, own.heartbeat_ms) == (3_600_000, 5_000)
        assert (own.retry.attempts, own.retry.initial_ms, own.retry.backoff) == (7, 500, 3)
        assert (own.retry.maximum_ms, own.retry.jitter) == (120_000, False)
        assert own.retry.non_retryable == frozenset({"ValueError"})
        assert plain.heartbeat_ms != own.heartbeat_ms


@CACHES
@played
async def test_G13_A4_retries_are_those_of_the_node(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  bad:   {run: fail, input: ["'bad'"], after: start, retry: {attempts: 3, initial: 1ms, jitter: false}}
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert str(await stage.failure()) == "bad"
        assert stage.troupe.count("bad") == 3
        assert stage.attempts() == [("fail", "FAILED")] * 3
        assert stage.keys() == [f"{digits}{'0' * 13}" for digits in ("86", "76")], "a retry decides nothing (A4)"


@pytest.mark.parametrize("name", ["ValueError", "builtins.ValueError", "Exception"])
@played
async def test_G13_an_error_that_is_not_to_be_retried_is_named_as_one_that_is_caught(name: str) -> None:
    text = f"""
activities:
  start: {{trigger: true}}
  bad:   {{run: fail, input: ["'bad'"], after: start, retry: {{attempts: 3, initial: 1ms, non_retryable: [{name}]}}}}
"""
    async with staged(text) as stage:
        assert str(await stage.failure()) == "bad"
        assert stage.troupe.count("bad") == 1


@CACHES
@played
async def test_A5_a_node_that_takes_too_long_fails_with_a_time_out_that_can_be_caught(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  slow:  {run: held, input: ["'slow'"], after: start, start_to_close: 50ms, retry: {attempts: 1}}
  saved: {run: echo, input: {value: "slow.error.type"}, after: {slow: {catch: TimeoutError}}}
output: "saved.output"
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert "Time" in await stage.run()
        assert stage.key() == "676"


@CACHES
@played
async def test_a_queue_that_only_a_node_names_is_served(cache_size: int) -> None:
    """Who is told no queues serves those of what it knows, so that nothing waits for a worker that never comes."""
    text = "activities:\n  start: {trigger: true}\n  own: {run: echo, after: start, queue: special}\n"
    async with staged(text, cache_size=cache_size) as stage:
        await stage.run()


@CACHES
@played
async def test_A6_an_activity_that_beats_and_is_retried_moves_its_digit_once(cache_size: int) -> None:
    """Pending, then final: what came before the result never decides the node."""
    seen: list[Any] = []

    @hf.activity(name="slowly", retry=hf.Retry(attempts=3, initial=0.001, jitter=False), heartbeat=30)
    async def slowly() -> int:
        info = hf.activity_info()
        seen.append(info.attempt)
        await asyncio.sleep(0)
        hf.heartbeat({"done": info.attempt})
        if info.attempt < 3:
            raise ConnectionError("not yet")
        return info.attempt

    text = 'activities:\n  start: {trigger: true}\n  slow: {run: slowly, after: start}\noutput: "slow.output"\n'
    async with staged(text, slowly, cache_size=cache_size) as stage:
        assert await stage.run() == 3
        assert stage.keys() == [f"{digits}{'0' * 13}" for digits in ("86", "66")]
        assert len(seen) == 3


@CACHES
@played
async def test_large_values_go_through_a_flow(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  one:   {run: echo, input: {value: "start.input.text"}, after: start}
  two:   {run: echo, input: {value: {list: ["one.output", "one.output"]}}, after: one}
  many:  {run: echo, each: "two.output.list", after: two, limit: 1}
  wait:  {wait: {event: go}, after: many}
output: {many: "many.output", wait: "wait.output", size: "size(one.output)"}
"""
    large = "ü" * 100_000
    async with staged(text, cache_size=cache_size) as stage:
        handle = await stage.start("f", {"text": large})
        await handle.raise_event("go", large)
        assert await handle.result() == {"many": [large, large], "wait": large, "size": len(large)}


@CACHES
@played
async def test_G3_the_same_flow_with_the_same_input_is_the_same_instance(cache_size: int) -> None:
    async with staged(TYPED, cache_size=cache_size) as stage:
        given: dict[str, Any] = {"name": "fox", "count": 1, "weights": []}
        assert await stage.run("f", given) == await stage.run("f", dict(reversed(given.items())))
        with pytest.raises(hf.InstanceConflict):
            await stage.start("f", {**given, "count": 2})


@CACHES
@played
async def test_K4_a_condition_that_fails_is_remembered_until_its_node_starts(cache_size: int) -> None:
    """Between the two parents of `bad` the flow may be read from its history."""
    text = """
activities:
  start: {trigger: true}
  soon:  {run: step, input: ["'soon'"], after: start}
  late:  {run: held, input: ["'late'"], after: start}
  bad:   {run: step, input: ["'bad'"], after: {soon: {when: "soon.output.missing == 1"}, late: {}}}
"""
    async with staged(text, cache_size=cache_size) as stage:
        handle = await stage.start("f")
        await stage.until_key("9866")  # bad late soon start
        stage.troupe.gate("late").set()
        with pytest.raises(hf.WorkflowFailed, match=r"node 'bad', line 7, of flow 'f': when: soon\.output"):
            await handle.result()
        assert stage.key() == "7666"
        assert stage.troupe.count("bad") == 0
