"""Cycles of flows: rounds, limits, and what they wait for (K8)."""

from collections import Counter

import pytest
from tests.scenarios.flow_stage import CACHES, played, staged
from tests.scenarios.support import path_of, rows

from holdfast.audit.auditor import audit
from holdfast.core.history import CycleRestarted, TimerFired
from holdfast.errors import CycleLimitExceeded

FIVE = """
activities:
  start: {trigger: true}
  check: {run: tally, input: ["'check'"], after: start}
  work:  {run: step, input: ["'work'", "check.output"], after: check}
  again: {cycle: check, after: work, when: "check.output < 5"}
  done:  {run: step, input: ["'done'", "work.output"], after: work, when: "check.output >= 5"}
output: "done.output"
"""


@CACHES
@played
async def test_K8_a_cycle_goes_round_five_times_by_condition(cache_size: int) -> None:
    async with staged(FIVE, cache_size=cache_size) as stage:
        assert await stage.run() == 5
        assert stage.troupe.calls[-1] == ("done", 5)
        assert Counter(name for name, _ in stage.troupe.calls) == {"check": 5, "work": 5, "done": 1}
        assert stage.key() == "36666"  # again check done start work
        assert stage.keys()[1] == "969680000000000"
        rounds = [event.round for event in stage.events() if isinstance(event, CycleRestarted)]
        assert rounds == [1, 2, 3, 4]


@CACHES
@played
async def test_K8_each_round_has_attempts_and_ledgers_of_its_own(cache_size: int) -> None:
    async with staged(FIVE, cache_size=cache_size) as stage:
        await stage.run()
        attempts = rows(
            path_of(stage.engine), "SELECT activity, attempt, state, ledger FROM attempts ORDER BY activity"
        )
        assert attempts == [(number, 1, "COMPLETED", 888000001000001) for number in range(11)]


@CACHES
@played
async def test_K8_a_cycle_waits_for_its_delay(cache_size: int) -> None:
    text = FIVE.replace("again: {cycle: check,", 'again: {cycle: check, delay: "double(check.output) * 0.002",')
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run() == 5
        assert sum(isinstance(event, TimerFired) for event in stage.events()) == 4


@CACHES
@played
async def test_K8_the_limit_ends_a_runaway_with_a_typed_error(cache_size: int) -> None:
    async with staged(
        FIVE.replace('when: "check.output < 5"', 'limit: 3, when: "true"'), cache_size=cache_size
    ) as stage:
        error = await stage.failure()
        assert isinstance(error, CycleLimitExceeded)
        assert "'again' went round 3 times" in str(error)
        assert stage.troupe.count("check") == 4
        assert stage.key() == "76366"


@CACHES
@played
async def test_K8_the_limit_can_be_caught(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  check: {run: tally, input: ["'check'"], after: start}
  again: {cycle: check, after: check, limit: 2}
  enough: {run: step, input: ["again.error.type"], after: {again: {catch: CycleLimitExceeded}}}
output: "enough.output"
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run() == "CycleLimitExceeded"
        assert (stage.troupe.count("check"), stage.key()) == (3, "7666")


@CACHES
@played
async def test_K8_a_cycle_waits_for_a_branch_that_it_would_run_again(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  check: {run: tally, input: ["'check'"], after: start}
  slow:  {run: held, input: ["'slow'"], after: check}
  again: {cycle: check, after: check, when: "check.output < 2"}
"""
    async with staged(text, cache_size=cache_size) as stage:
        handle = await stage.start("f")
        await stage.troupe.began("slow")
        await stage.until_key("8686")  # again check slow start
        assert stage.troupe.count("check") == 1
        stage.troupe.gate("slow").set()
        await handle.result()
        assert Counter(name for name, _ in stage.troupe.calls) == {"check": 2, "slow": 2}
        assert stage.key() == "3666"


@CACHES
@played
async def test_K8_two_cycles_side_by_side_go_round_by_themselves(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  a:     {run: tally, input: ["'a'"], after: start}
  b:     {run: tally, input: ["'b'"], after: start}
  more_a: {cycle: a, after: a, when: "a.output < 3"}
  more_b: {cycle: b, after: b, when: "b.output < 5"}
output: ["a.output", "b.output"]
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run() == [3, 5]
        assert Counter(name for name, _ in stage.troupe.calls) == {"a": 3, "b": 5}
        assert stage.key() == "66336"


@CACHES
@played
async def test_K8_two_cycles_to_one_target_go_round_together(cache_size: int) -> None:
    """Both want it to run again, so it does, once."""
    text = """
activities:
  start: {trigger: true}
  a:     {run: tally, input: ["'a'"], after: start}
  one:   {cycle: a, after: a, when: "a.output < 3"}
  two:   {cycle: a, after: a, when: "a.output < 3"}
output: "a.output"
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run() == 3
        assert stage.key() == "6363"


@CACHES
@played
async def test_K8_a_cycle_inside_a_cycle(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  outer: {run: tally, input: ["'outer'"], after: start}
  inner: {run: tally, input: ["'inner'"], after: outer}
  more_inner: {cycle: inner, after: inner, when: "inner.output % 3 != 0"}
  more_outer: {cycle: outer, after: inner, when: "inner.output % 3 == 0 && outer.output < 2"}
output: ["outer.output", "inner.output"]
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run() == [2, 6]
        assert [name for name, _ in stage.troupe.calls] == ["outer", *["inner"] * 3] * 2


@CACHES
@played
async def test_K8_outputs_are_those_of_the_nearest_round(cache_size: int) -> None:
    """What is outside of the cycle keeps its output; what was not run in this round has that of an earlier one."""
    text = """
activities:
  start: {trigger: true}
  fixed: {run: step, input: ["'fixed'"], after: start}
  check: {run: tally, input: ["'check'"], after: fixed}
  odd:   {run: step, input: ["'odd'", "check.output"], after: check, when: "check.output % 2 == 1"}
  seen:  {run: step, input: ["'seen'", ["fixed.output", "check.output", "odd.output"]], after: [check, odd]}
  again: {cycle: check, after: seen, when: "check.output < 4"}
output: "seen.output"
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run() == ["fixed", 4, 3]
        seen = [value for name, value in stage.troupe.calls if name == "seen"]
        assert seen == [["fixed", 1, 1], ["fixed", 2, 1], ["fixed", 3, 3], ["fixed", 4, 3]]


@CACHES
@played
async def test_K8_waits_and_fan_outs_are_run_again_too(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  wait:  {wait: {event: go, timeout: 1h}, after: start}
  many:  {run: echo, each: "wait.output", limit: 2, after: wait}
  again: {cycle: wait, after: many, when: "size(many.output) > 0"}
output: "many.output"
"""
    async with staged(text, cache_size=cache_size) as stage:
        handle = await stage.start("f")
        for items in ([1, 2, 3], [4], []):
            await handle.raise_event("go", items)
        assert await handle.result() == []
        assert [value for _, value in stage.troupe.calls] == [1, 2, 3, 4]
        assert stage.key() == "3664"  # again many start wait


@CACHES
@played
async def test_K8_a_failure_that_the_next_round_makes_good_is_no_error(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  count: {run: tally, input: ["'count'"], after: start}
  risky: {run: fail, input: ["'risky'"], after: count, when: "count.output < 3"}
  again: {cycle: count, after: {risky: {catch: ValueError}}}
output: "count.output"
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run() == 3
        assert (stage.troupe.count("risky"), stage.key()) == (2, "3636")


@pytest.mark.parametrize("rounds", [40])
@played
async def test_K8_many_rounds_cost_no_more_each(rounds: int) -> None:
    text = FIVE.replace("5", str(rounds))
    async with staged(text) as stage:
        assert await stage.run() == rounds


@CACHES
@played
async def test_K8_what_leads_in_from_outside_counts_in_every_round(cache_size: int) -> None:
    """Also where the flow was read from its history in between: those edges were decided before the first round."""
    text = """
activities:
  start: {trigger: true}
  other: {run: step, input: ["'other'"], after: start}
  count: {run: tally, input: ["'count'"], after: start}
  both:  {run: tally, input: ["'both'"], after: {count: {when: "count.output == 1"}, start: {}}}
  none:  {run: tally, input: ["'none'"], after: {count: {when: "count.output == 7"}, start: {when: "false"}}}
  first: {run: tally, input: ["'first'"], after: {count: {when: "false"}, start: {}}, join: any}
  again: {cycle: count, after: [count, both], when: "count.output < 3"}
output: ["count.output", "both.output", "none.output", "first.output"]
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run() == [3, 3, None, 1]
        assert stage.key() == "3663366"  # again both count first none other start


@CACHES
@played
async def test_K8_what_an_outside_failure_bars_is_barred_in_every_round(cache_size: int) -> None:
    text = """
activities:
  start:  {trigger: true}
  bad:    {run: fail, input: ["'bad'"], after: start}
  mended: {run: echo, after: {bad: {catch: ValueError}}}
  count:  {run: tally, input: ["'count'"], after: mended}
  barred: {run: tally, input: ["'barred'"], after: [count, bad]}
  again:  {cycle: count, after: count, when: "count.output < 3"}
output: "count.output"
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run() == 3
        assert stage.troupe.count("barred") == 0
        assert stage.key() == "373666"  # again bad barred count mended start


SKIPPED_AT_FIRST = """
activities:
  start: {trigger: true}
  maybe: {run: tally, input: ["'maybe'"], after: {start: {when: "false"}}}
  work:  {run: step, input: ["'work'", "maybe.output"], after: [maybe, start]}
  again: {cycle: maybe, after: work, when: "maybe.output == null"}
output: "work.output"
"""


@CACHES
@played
async def test_K8_a_cycle_runs_its_target_also_if_that_was_skipped_before(cache_size: int) -> None:
    async with staged(SKIPPED_AT_FIRST, cache_size=cache_size) as stage:
        assert await stage.run() == 1
        assert stage.troupe.calls == [("work", None), ("maybe", None), ("work", 1)]
        assert stage.key() == "3666"  # again maybe start work
        assert audit(path_of(stage.engine)) == []
