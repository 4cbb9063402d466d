"""Waits of flows: events, times, and events that come too early, too late, or to several (K2, G6)."""

import asyncio
import contextlib
from collections import Counter

import pytest
from tests.scenarios.flow_stage import CACHES, played, staged
from tests.scenarios.support import path_of, rows, together, until

import holdfast as hf
from holdfast.core.admission import EventPolicy
from holdfast.core.history import EventReceived, TimerCancelled, TimerFired
from holdfast.errors import ExpressionError

PATIENT = """
activities:
  start: {trigger: true}
  work:  {run: held, input: ["'work'"], after: start}
  wait:  {wait: {event: go, timeout: 1h}, after: work}
  last:  {run: echo, input: {value: "wait.output"}, after: wait}
output: "last.output"
"""


@CACHES
@played
async def test_G6_an_event_before_the_wait_is_kept_for_it(cache_size: int) -> None:
    async with staged(PATIENT, cache_size=cache_size) as stage:
        handle = await stage.start("f")
        await stage.troupe.began("work")
        assert await handle.raise_event("go", 7)
        assert stage.key() == "9698", "nothing waits yet"  # last start wait work
        stage.troupe.gate("work").set()
        assert await handle.result() == 7
        assert stage.key() == "6646"
        assert rows(path_of(stage.engine), "SELECT 1 FROM timers") == []


@CACHES
@played
async def test_G6_of_two_early_events_none_is_lost_and_of_two_waits_each_wakes(cache_size: int) -> None:
    """HotMesh lost the first of two early signals, and never woke the first of two waiters on one name."""
    text = PATIENT.replace("  last:", "  more:  {wait: {event: go}, after: work}\n  last:").replace(
        'input: {value: "wait.output"}, after: wait',
        'input: {value: ["more.output", "wait.output"]}, after: [more, wait]',
    )
    async with staged(text, cache_size=cache_size) as stage:
        early = await stage.start("f", id="early")
        await stage.troupe.began("work")
        for number in (1, 2):
            await early.raise_event("go", number)
        stage.troupe.gate("work").set()
        assert await early.result() == [1, 2], "the wait that is there longer gets the first"
        late = await stage.start("f", id="late")
        await stage.until_key("95656", "late")  # last more start wait work
        await late.raise_event("go", 3)
        await stage.until_key("94656", "late")
        await late.raise_event("go", 4)
        assert await late.result() == [3, 4]
        assert stage.key("late") == "64646"


@CACHES
@played
async def test_G6_the_same_event_twice_is_delivered_once(cache_size: int) -> None:
    text = """
activities:
  start:  {trigger: true}
  first:  {wait: {event: go}, after: start}
  second: {wait: {event: go}, after: first}
output: ["first.output", "second.output"]
"""
    async with staged(text, cache_size=cache_size) as stage:
        handle = await stage.start("f")
        await handle.raise_event("go", 1, id="one")
        await stage.until_key("456")
        await handle.raise_event("go", 1, id="one")
        await handle.raise_event("go", 2, id="two")
        assert await handle.result() == [1, 2]


@CACHES
@played
async def test_K2_a_timer_alone_pauses_and_releases(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  sleep: {wait: {timer: 10ms}, after: start}
  last:  {run: echo, after: sleep}
output: "sleep.output"
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run() is None
        assert stage.keys() == [f"{digits}{'0' * 12}" for digits in ("956", "846", "646")]  # last sleep start


@CACHES
@played
async def test_K4_a_wait_that_ran_out_is_caught_by_an_error_edge(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  wait:  {wait: {event: go, timeout: "start.input.seconds"}, after: start}
  on_time: {run: step, input: ["'on time'"], after: wait}
  late:  {run: step, input: ["wait.error.type"], after: {wait: {catch: TimeoutError}}}
output: "[on_time.output, late.output].filter(x, x != null)[0]"
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run("f", {"seconds": 0.01}, id="late") == "TimeoutError"
        assert stage.key("late") == "6367"  # late on_time start wait
        soon = await stage.start("f", {"seconds": 3600}, id="soon")
        await soon.raise_event("go")
        assert await soon.result() == "on time"
        assert stage.key("soon") == "3664"


@CACHES
@played
async def test_K2_of_an_event_and_a_time_out_exactly_one_wins(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  wait:  {wait: {event: go, timeout: 20ms}, after: start}
  soon:  {run: step, input: ["'soon'"], after: wait}
  late:  {run: step, input: ["'late'"], after: {wait: {catch: TimeoutError}}}
output: {soon: "soon.output", late: "late.output"}
"""
    async with staged(text, cache_size=cache_size) as stage:
        handles = [await stage.start("f", id=f"it-{number}") for number in range(20)]

        async def at(number: int) -> None:
            await asyncio.sleep(number * 0.002)
            with contextlib.suppress(hf.InstanceClosed):  # one that came too late
                await handles[number].raise_event("go", number)

        await asyncio.gather(*(at(number) for number in range(20)))
        results = await asyncio.gather(*(handle.result() for handle in handles))
        for handle, result in zip(handles, results, strict=True):
            assert [result["soon"], result["late"]] in (["soon", None], [None, "late"])
            events = Counter(type(event) for event in stage.events(handle.id))
            is_in_time = result["soon"] is not None
            assert stage.key(handle.id) == ("3664" if is_in_time else "6367")  # late soon start wait
            assert events[EventReceived] == events[TimerCancelled] == int(is_in_time)
            assert events[TimerFired] == int(not is_in_time)


@CACHES
@played
async def test_G6_a_wait_that_ran_out_takes_no_later_event(cache_size: int) -> None:
    text = """
activities:
  start:  {trigger: true}
  first:  {wait: {event: go, timeout: 10ms}, after: start}
  second: {wait: {event: go}, after: {first: {catch: Exception}}}
output: "second.output"
"""
    async with staged(text, cache_size=cache_size) as stage:
        handle = await stage.start("f")
        await stage.until_key("756")
        await handle.raise_event("go", "late")
        assert await handle.result() == "late"
        assert stage.key() == "746"


@CACHES
@played
async def test_G7_an_event_to_a_finished_flow_changes_nothing(cache_size: int) -> None:
    text = "activities:\n  start: {trigger: true}\n  wait: {wait: {event: go}, after: start}\n"
    async with staged(text, cache_size=cache_size) as stage:
        handle = await stage.start("f")
        assert await handle.raise_event("go")
        await handle.result()
        before = stage.events()
        with pytest.raises(hf.InstanceClosed, match="not delivered"):
            await handle.raise_event("go")
        assert stage.events() == before


RAISING = """
flow: raises
activities:
  start: {trigger: true}
  tell:  {raise: {event: go, to: "start.input.to", value: {from: "flow.id", list: ["start.input.to", 3]}}, after: start}
  last:  {run: echo, after: tell}
"""
WAITING = """
flow: waits
activities:
  start: {trigger: true}
  wait:  {wait: {event: go}, after: start}
output: "wait.output"
"""


@CACHES
@played
async def test_G6_a_flow_raises_an_event_to_another_instance(cache_size: int) -> None:
    async with staged(RAISING, WAITING, cache_size=cache_size) as stage:
        waiting = await stage.start("waits", id="there")
        await stage.run("raises", {"to": "there"}, id="here")
        assert await waiting.result() == {"from": "here", "list": ["there", 3]}
        assert stage.key("here") == "666"


@CACHES
@played
async def test_D1_an_event_to_an_unknown_instance_is_in_nobodys_way(cache_size: int) -> None:
    async with staged(RAISING, WAITING, cache_size=cache_size) as stage:
        waiting = await stage.start("waits", id="there")
        await stage.run("raises", {"to": "nobody"}, id="lost")
        await stage.run("raises", {"to": "there"}, id="here")
        assert (await waiting.result())["from"] == "here"


@CACHES
@played
async def test_G6_a_flow_raises_an_event_to_itself(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  tell:  {raise: {event: go, to: "flow.id", value: 5}, after: start}
  wait:  {wait: {event: go}, after: start}
output: "wait.output"
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run() == 5
        assert stage.key() == "664"


@played
async def test_G8_a_wait_keeps_its_time_when_another_engine_goes_on(tmp_path: object) -> None:
    store = f"{tmp_path}/f.db"
    text = "activities:\n  start: {trigger: true}\n  wait: {wait: {timer: 300ms}, after: start}\n"
    async with staged(text, store=store) as stage:
        await stage.start("f")
        due = rows(path_of(stage.engine), "SELECT due_at_ms FROM timers")
    async with staged(text, store=store) as stage:
        await until(lambda: stage.states() == {"it": "COMPLETED"})
        fired = next(event for event in stage.events() if isinstance(event, TimerFired))
        assert fired.time_ms >= due[0][0]


@pytest.mark.parametrize("seconds", ["'soon'", "-1", "true", "1e300"])
@CACHES
@played
async def test_K4_a_time_that_is_none_fails_the_node(cache_size: int, seconds: str) -> None:
    text = f"""
activities:
  start: {{trigger: true}}
  wait:  {{wait: {{event: go, timeout: "start.input.x == 1 ? {seconds} : {seconds}"}}, after: start}}
"""
    async with staged(text, cache_size=cache_size) as stage:
        error = await stage.failure("f", {"x": 1})
        assert isinstance(error, ExpressionError)
        assert "'wait', line 5" in str(error)
        assert stage.key() == "67"


POLICIES = """
event_policy: POLICY
activities:
  start: {trigger: true}
  go:    {wait: {event: go}, after: start}
  data:  {wait: {event: data}, after: go}
output: data.output
"""


@CACHES
@pytest.mark.parametrize("policy", ["mailbox", "drop_unsubscribed"])
def test_G6_a_flow_keeps_or_drops_events_for_which_no_node_waits(policy: str, cache_size: int) -> None:
    async def scenario() -> None:
        async with staged(POLICIES.replace("POLICY", policy), cache_size=cache_size) as stage:
            handle = await stage.start("f", {})
            await stage.until_key("956")  # data go start
            assert await handle.raise_event("data", "early") is (policy == "mailbox")
            assert await handle.raise_event("go")
            if policy == "drop_unsubscribed":
                await stage.until_key("546")
                assert await handle.raise_event("data", "in time")
            assert await handle.result() == ("early" if policy == "mailbox" else "in time")

    together(scenario())


def test_G6_the_builder_and_yaml_have_the_same_policy() -> None:
    built = hf.Flow("f")
    built.trigger("start")
    built.event_policy("drop_unsubscribed")
    loaded = hf.Flow.parse(built.to_yaml())
    assert loaded.definition.event_policy is EventPolicy.DROP_UNSUBSCRIBED
    assert loaded.hash == built.hash
