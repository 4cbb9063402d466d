"""Streams in flows: nodes whose activity yields values, and nodes that run once for each of them (K10)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.scenarios.flow_stage import CACHES, Stage, Troupe, played, staged
from tests.scenarios.support import until

import holdfast as hf
from holdfast.core.history import ActivityScheduled, ActivityYielded, FanOutStarted
from holdfast.errors import FlowError, PayloadError, StreamRestarted, UsageError

LIST = """
activities:
  start:  {trigger: true}
  quotes: {run: count, input: [start.input.number], after: start}
  last:   {run: echo, input: {value: quotes.output}, after: quotes}
output: last.output
"""
EACH = """
activities:
  start:  {trigger: true}
  quotes: {run: gated, input: [start.input.number], after: start}
  price:  {run: held, input: {name: item, value: index}, each: quotes.responses, after: quotes}
  last:   {run: echo, input: {value: price.output}, after: price}
output: [last.output, quotes.output]
"""
"""Its key: last, price, quotes, start."""


class Source:
    """An activity that yields when the test allows it."""

    def __init__(self, *, resumable: bool = False) -> None:
        self.allowed = asyncio.Semaphore(0)
        self.failing: set[tuple[int, int]] = set()
        """Attempt and number of values after which it fails."""
        self.attempts = 0
        self.starts: list[int] = []
        self._resumable = resumable

    def let(self, number: int = 1) -> None:
        for _ in range(number):
            self.allowed.release()

    @property
    def activity(self) -> hf.Activity[..., Any]:
        retry = hf.Retry(attempts=2, initial=0.001)

        @hf.activity(name="gated", resumable=self._resumable, retry=retry)
        async def gated(number: int) -> AsyncIterator[str]:
            self.attempts += 1
            attempt = self.attempts
            first = hf.activity_info().delivered if self._resumable else 0
            self.starts.append(first)
            for at in range(first, number):
                if (attempt, at) in self.failing:
                    raise ValueError(f"attempt {attempt} lost after {at}")
                await self.allowed.acquire()
                yield f"q{at}"
            if (attempt, number) in self.failing:
                raise ValueError(f"attempt {attempt} lost at the end")
            await self.allowed.acquire()

        return gated


@hf.activity(name="count")
async def count(number: int) -> AsyncIterator[int]:
    for at in range(number):
        yield at


@hf.activity(name="plain_count")
def plain_count(number: int) -> Any:
    yield from range(number)


def items_of(stage: Stage) -> list[int]:
    return [event.item for event in stage.events() if isinstance(event, ActivityScheduled) and event.node == "price"]


@CACHES
@played
async def test_K10_the_output_of_a_generator_is_the_list_of_its_values(cache_size: int) -> None:
    async with staged(LIST, count, cache_size=cache_size) as stage:
        assert await stage.run("f", {"number": 3}) == [0, 1, 2]
        assert await stage.run("f", {"number": 0}, id="none") == []
        assert await stage.run("f", {"number": 2_000}, id="many") == list(range(2_000))
        await stage.until_key("666")


@played
async def test_K10_a_generator_without_async_is_a_stream_too() -> None:
    async with staged(LIST.replace("run: count", "run: plain_count"), plain_count) as stage:
        assert await stage.run("f", {"number": 3}) == [0, 1, 2]


@CACHES
@played
async def test_K10_each_item_of_a_fan_out_may_be_a_stream(cache_size: int) -> None:
    text = LIST.replace("input: [start.input.number]", 'each: "[2, 0, 3]", limit: 2')
    async with staged(text, count, cache_size=cache_size) as stage:
        assert await stage.run("f", {}) == [[0, 1], [], [0, 1, 2]]


@CACHES
@played
async def test_K10_an_item_starts_for_each_response_as_it_arrives(cache_size: int) -> None:
    source = Source()
    async with staged(EACH, source.activity, cache_size=cache_size) as stage:
        handle = await stage.start("f", {"number": 3})
        await until(lambda: source.attempts == 1)
        await stage.until_key("9986")  # last price quotes start: no response yet
        source.let()
        await stage.troupe.began("q0")
        await stage.until_key("9886")
        stage.check()
        stage.troupe.gate("q0").set()
        await stage.troupe.finished("q0")
        source.let()
        await stage.troupe.began("q1")
        source.let()
        await stage.troupe.began("q2")
        stage.troupe.gate("q2").set()
        await stage.troupe.finished("q2")
        await stage.until_key("9886")  # the stream is open, and an item runs
        source.let()
        await stage.until_key("9866")
        stage.check()
        stage.troupe.gate("q1").set()
        assert await handle.result() == [[0, 1, 2], ["q0", "q1", "q2"]]
        dimensions = [view.dimension for view in (await handle.describe()).attempts if view.node == "price"]
        assert dimensions == ["0/0:0/0", "0/0:1/0", "0/0:2/0"]
        await stage.until_key("6666")


@CACHES
@played
async def test_K10_the_node_stays_open_while_the_stream_is(cache_size: int) -> None:
    source = Source()
    async with staged(EACH.replace("run: held", "run: step"), source.activity, cache_size=cache_size) as stage:
        handle = await stage.start("f", {"number": 1})
        source.let()
        await stage.troupe.began("q0")
        await until(lambda: stage.attempts()[-1] == ("step", "COMPLETED"))
        await stage.until_key("9886")
        stage.check()
        source.let()
        assert (await handle.result())[0] == [0]


@CACHES
@played
async def test_K10_a_stream_without_responses_completes_its_consumer_at_once(cache_size: int) -> None:
    source = Source()
    source.let()
    async with staged(EACH, source.activity, cache_size=cache_size) as stage:
        assert await stage.run("f", {"number": 0}) == [[], []]


@CACHES
@played
async def test_K10_no_more_items_than_the_limit_run_at_a_time(cache_size: int) -> None:
    source = Source()
    source.let(6)
    async with staged(EACH.replace("each:", "limit: 2, each:"), source.activity, cache_size=cache_size) as stage:
        handle = await stage.start("f", {"number": 5})
        await stage.until_key("9866")
        for begun in range(2, 6):
            assert items_of(stage) == list(range(begun))
            stage.troupe.gate(f"q{begun - 1}").set()
            await stage.troupe.finished(f"q{begun - 1}")
            await until(lambda begun=begun: len(items_of(stage)) == min(begun + 1, 5))  # type: ignore[misc]
        stage.troupe.gate("q0").set()
        assert (await handle.result())[0] == [0, 1, 2, 3, 4]


@CACHES
@played
async def test_K10_a_consumer_that_waits_for_another_node_takes_the_responses_before_it(cache_size: int) -> None:
    source = Source()
    text = EACH.replace("after: quotes}\n  last", "after: [quotes, other]}\n  last").replace(
        "output:", "  other: {run: held, input: {name: \"'other'\"}, after: start}\noutput:"
    )
    for closed in (False, True):
        async with staged(text, source.activity, cache_size=cache_size) as stage:
            handle = await stage.start("f", {"number": 2})
            source.let(3 if closed else 2)
            await until(lambda: sum(len(e.values) for e in stage.events() if isinstance(e, ActivityYielded)) == 2)
            await stage.until_key("98966" if closed else "98986")
            stage.check()
            for name in ("other", "q0", "q1"):
                stage.troupe.gate(name).set()
            if not closed:
                await stage.troupe.finished("q1")
                source.let()
            assert (await handle.result())[0] == [0, 1]


@CACHES
@played
async def test_K10_several_nodes_and_children_take_the_responses_of_one_stream(cache_size: int) -> None:
    source = Source()
    source.let(3)
    text = """
activities:
  start:  {trigger: true}
  quotes: {run: gated, input: [start.input.number], after: start}
  price:  {run: echo, each: quotes.responses, after: quotes}
  inner:  {flow: inner, each: quotes.responses, input: {q: item}, after: quotes}
  aside:  {flow: inner, detached: true, each: quotes.responses, input: {q: item}, after: quotes}
output: [price.output, inner.output, "size(aside.output)"]
"""
    inner = "flow: inner\nactivities:\n  start: {trigger: true}\noutput: start.input.q"
    async with staged(text, inner, source.activity, cache_size=cache_size) as stage:
        assert await stage.run("f", {"number": 2}) == [["q0", "q1"], ["q0", "q1"], 2]


@CACHES
@played
async def test_K10_a_stream_that_fails_fails_its_consumer_with_the_same_error(cache_size: int) -> None:
    source = Source()
    source.failing = {(1, 1), (2, 0)}
    async with staged(EACH, source.activity, cache_size=cache_size) as stage:
        handle = await stage.start("f", {"number": 2})
        source.let()
        with pytest.raises(hf.WorkflowFailed) as caught:
            await handle.result()
        assert isinstance(caught.value.cause, ValueError | StreamRestarted)
        await stage.until_key("3776")
        assert ("held", "CANCELLED") in stage.attempts() or ("held", "CANCELLED_RUNNING") in stage.attempts()


@CACHES
@played
async def test_K10_a_stream_that_fails_before_a_response_skips_its_consumer(cache_size: int) -> None:
    source = Source()
    source.failing = {(1, 0), (2, 0)}
    async with staged(EACH, source.activity, cache_size=cache_size) as stage:
        assert "attempt 2" in str(await stage.failure("f", {"number": 2}))
        await stage.until_key("3376")


@CACHES
@played
async def test_K10_error_edges_catch_both_failures_of_a_stream(cache_size: int) -> None:
    source = Source()
    source.failing = {(1, 1), (2, 1)}
    text = EACH.replace(
        "output: [last.output, quotes.output]",
        "  sorry: {run: echo, input: {value: price.error.message}, "
        "after: {quotes: {catch: [ValueError]}, price: {catch: [ValueError]}}}\noutput: sorry.output",
    )
    resumable = Source(resumable=True)
    resumable.failing = {(1, 1), (2, 1)}
    async with staged(text, resumable.activity, cache_size=cache_size) as stage:
        resumable.let()
        assert await stage.run("f", {"number": 2}) == "attempt 2 lost after 1"
        await stage.until_key("37766")  # last price quotes sorry start


@CACHES
@played
async def test_L15_a_stream_that_restarts_fails_a_consumer_that_has_begun(cache_size: int) -> None:
    source = Source()
    source.failing = {(1, 1)}
    text = EACH.replace(
        "output: [last.output, quotes.output]",
        "  sorry: {run: echo, input: {value: price.error.type}, "
        "after: {price: {catch: [StreamRestarted]}}}\noutput: [sorry.output, quotes.output]",
    )
    async with staged(text, source.activity, cache_size=cache_size) as stage:
        handle = await stage.start("f", {"number": 2})
        source.let(4)
        assert await handle.result() == ["StreamRestarted", ["q0", "q1"]]
        assert source.starts == [0, 0]


@CACHES
@played
async def test_K4_a_stream_that_restarts_ends_a_flow_that_fails_fast(cache_size: int) -> None:
    source = Source()
    source.failing = {(1, 1)}
    async with staged(f"flow: f\npolicy: fail_fast\n{EACH}", source.activity, cache_size=cache_size) as stage:
        handle = await stage.start("f", {"number": 2})
        source.let(2)
        with pytest.raises(hf.WorkflowFailed) as caught:
            await handle.result()
        assert isinstance(caught.value.cause, StreamRestarted)
        await stage.until_key("3776")


@CACHES
@played
async def test_L15_the_list_of_a_stream_that_restarts_has_the_values_of_its_last_attempt(cache_size: int) -> None:
    source = Source()
    source.failing = {(1, 2)}
    text = LIST.replace("run: count", "run: gated")
    async with staged(text, source.activity, cache_size=cache_size) as stage:
        source.let(6)
        assert await stage.run("f", {"number": 3}) == ["q0", "q1", "q2"]
        assert source.starts == [0, 0]


@CACHES
@played
async def test_L15_a_resumable_stream_continues_its_list_and_its_items(cache_size: int) -> None:
    source = Source(resumable=True)
    source.failing = {(1, 2)}
    async with staged(EACH.replace("run: held", "run: step"), source.activity, cache_size=cache_size) as stage:
        source.let(5)
        assert await stage.run("f", {"number": 4}) == [[0, 1, 2, 3], ["q0", "q1", "q2", "q3"]]
        assert source.starts == [0, 2]


@CACHES
@played
async def test_K10_a_failed_item_fails_the_consumer_and_not_the_stream(cache_size: int) -> None:
    source = Source()
    async with staged(
        EACH.replace("run: held", "run: fail").replace("value: index", "error: \"'ValueError'\""),
        source.activity,
        cache_size=cache_size,
    ) as stage:
        handle = await stage.start("f", {"number": 2})
        source.let()
        await stage.until_key("3786")
        stage.check()
        source.let(2)
        with pytest.raises(hf.WorkflowFailed):
            await handle.result()
        await stage.until_key("3766")


@CACHES
@played
async def test_K8_a_cycle_runs_a_stream_and_its_items_again(cache_size: int) -> None:
    text = """
activities:
  start:  {trigger: true}
  quotes: {run: count, input: ["2"], after: start}
  price:  {run: tally, input: {name: "'price'"}, each: quotes.responses, after: quotes}
  again:  {cycle: TARGET, after: price, when: "price.output[0] < 3"}
output: [quotes.output, price.output]
"""
    for target in ("quotes", "price"):
        async with staged(text.replace("TARGET", target), count, cache_size=cache_size) as stage:
            quotes, price = await stage.run("f", {})
            assert quotes == [0, 1]
            assert sorted(price) == [3, 4]
            began = [event for event in stage.events() if isinstance(event, FanOutStarted)]
            assert [event.stream for event in began] == ["quotes", "quotes"]


@CACHES
@played
async def test_K10_fail_fast_cancels_a_stream_and_its_items(cache_size: int) -> None:
    source = Source()
    text = f"""policy: fail_fast\n{EACH}""".replace(
        "output:", "  bad: {run: held_fail, input: {name: \"'bad'\"}, after: start}\noutput:"
    )
    async with staged(f"flow: f\n{text}", source.activity, cache_size=cache_size) as stage:
        handle = await stage.start("f", {"number": 2})
        source.let()
        await stage.troupe.began("q0", "bad")
        stage.troupe.gate("bad").set()
        with pytest.raises(hf.WorkflowFailed):
            await handle.result()
        await stage.until_key("73776")


@CACHES
@played
async def test_K11_a_stream_and_its_consumer_can_be_held(cache_size: int) -> None:
    text = EACH.replace("run: gated", "run: count").replace(
        "after: quotes}\n  last", "after: quotes, hold: true}\n  last"
    )
    async with staged(
        text.replace("run: held, input: {name: item, value: index}", "run: echo"), count, cache_size=cache_size
    ) as stage:
        handle = await stage.start("f", {"number": 2})
        await stage.until_key("9566")
        await handle.release("price", output=["other"])
        assert await handle.result() == [["other"], [0, 1]]


@played
async def test_K10_large_values_are_items_too() -> None:
    @hf.activity(name="gated")
    async def large(number: int) -> AsyncIterator[str]:
        for at in range(number):
            yield f"{at}" * 100_000

    text = EACH.replace("run: held, input: {name: item, value: index}", 'run: echo, input: {value: "size(item)"}')
    for cache_size in (1_000, 0):
        async with staged(text.replace(", quotes.output", ""), large, cache_size=cache_size) as stage:
            assert await stage.run("f", {"number": 3}) == [[100_000] * 3]


@played
async def test_K10_a_list_that_is_too_large_fails_its_node_and_its_consumer() -> None:
    @hf.activity(name="gated")
    async def large(number: int) -> AsyncIterator[str]:
        for _ in range(number):
            yield "x" * 60_000

    text = EACH.replace("run: held, input: {name: item, value: index}", "run: held, input: {name: \"'q'\"}")
    async with staged(text, large, payload_limit=100_000) as stage:
        assert isinstance(await stage.failure("f", {"number": 2}), PayloadError)
        await stage.until_key("3776")


@played
async def test_K10_responses_of_an_activity_that_yields_nothing_are_refused_when_a_worker_starts() -> None:
    text = f"flow: f{LIST}".replace("run: echo, input: {value: quotes.output}", "run: echo, each: quotes.responses")
    echo = next(one for one in Troupe().activities if one.name == "echo")
    assert hf.Flow.parse(text, activities=[count, echo]).warnings == ()
    with pytest.raises(FlowError, match='quotes has no responses, because "echo" yields no values'):
        hf.Flow.parse(text.replace("run: count", "run: echo"), activities=[count, echo])
    with pytest.raises(UsageError, match="echo yields no values; price has its responses in each"):
        async with staged(EACH.replace("run: gated", "run: echo")):
            pass
