"""Failures of flows that are easily lost: of handlers that do not run, unreadable conditions, refused children."""

from pathlib import Path

import pytest
from tests.scenarios.flow_stage import CACHES, played, staged

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.errors import CycleLimitExceeded, ExpressionError, InstanceConflict
from holdfast.runtime.platform import FaultPoint


@CACHES
@pytest.mark.parametrize(("severe", "calls"), [(True, ["mend"]), (False, [])])
@played
async def test_K4_a_failure_whose_handler_is_skipped_by_its_own_condition_is_uncaught(
    cache_size: int, severe: bool, calls: list[str]
) -> None:
    text = """
input: {severe: boolean}
activities:
  start: {trigger: true}
  work:  {run: fail, input: ["'work'"], after: start}
  slow:  {run: held, input: ["'slow'"], after: start}
  mend:  {run: step, input: ["'mend'"], after: {work: {catch: [ValueError]}, slow: {}}, when: "start.input.severe"}
"""
    async with staged(text, cache_size=cache_size) as stage:
        handle = await stage.start("f", {"severe": severe})
        await stage.until_key("9867")  # mend waits, slow runs, work failed
        stage.troupe.gate("slow").set()
        if severe:
            await handle.result()
        else:
            with pytest.raises(hf.WorkflowFailed, match="work"):
                await handle.result()
        assert [name for name, _ in stage.troupe.calls if name == "mend"] == calls


@CACHES
@played
async def test_K4_fail_fast_ends_the_rest_when_a_handler_turns_out_not_to_run(cache_size: int) -> None:
    text = """
policy: fail_fast
activities:
  start: {trigger: true}
  work:  {run: fail, input: ["'work'"], after: start}
  slow:  {run: held, input: ["'slow'"], after: start}
  other: {run: held, input: ["'other'"], after: start}
  next:  {run: step, input: ["'next'"], after: slow}
  mend:  {run: step, input: ["'mend'"], after: {work: {catch: [ValueError]}, slow: {}}, when: "false"}
"""
    async with staged(text, cache_size=cache_size) as stage:
        handle = await stage.start("f")
        await stage.until_key("998867")  # mend, next, other, slow, start, work
        stage.troupe.gate("slow").set()
        with pytest.raises(hf.WorkflowFailed, match="work"):
            await handle.result()
        assert stage.key() == "337667"
        assert stage.troupe.count("next") == 0


@played
async def test_K4_fail_fast_skips_what_was_about_to_start_in_the_same_turn() -> None:
    text = """
policy: fail_fast
activities:
  start: {trigger: true}
  a:     {run: step, input: ["start.input.nothing"], after: start}
  b:     {run: step, input: ["'b'"], after: start}
"""
    async with staged(text) as stage:
        assert isinstance(await stage.failure(), ExpressionError)
        assert stage.key() == "736"
        assert stage.troupe.calls == []


@CACHES
@played
async def test_K8_a_condition_from_outside_that_cannot_be_read_fails_its_node_in_every_round(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  out:   {run: step, input: ["'out'"], after: start}
  a:     {run: tally, input: ["'a'"], after: out}
  meet:  {run: step, input: ["'meet'"], after: {out: {when: "out.output.nothing > 1"}, a: {}}}
  mend:  {run: tally, input: ["'mend'"], after: {meet: {catch: [ExpressionError]}}}
  again: {cycle: a, after: {mend: {when: "a.output < 3"}}}
output: "mend.output"
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run() == 3
        assert stage.troupe.count("meet") == 0


@CACHES
@played
async def test_K8_a_condition_that_could_not_be_read_is_forgotten_with_its_round(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  a:     {run: tally, input: ["'a'"], after: start}
  pause: {wait: {timer: 1ms}, after: a}
  meet:  {run: step, input: ["'meet'"], after: {a: {when: "a.output < 2 ? a.output.nothing > 1 : true"}, pause: {}}}
  mend:  {run: step, input: ["'mend'"], after: {meet: {catch: [ExpressionError]}}}
  again: {cycle: a, after: mend}
output: "meet.output"
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run() == "meet"
        assert (stage.troupe.count("a"), stage.troupe.count("mend")) == (2, 1)


@CACHES
@played
async def test_K8_the_limit_of_a_cycle_counts_anew_in_each_round_of_one_around_it(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  outer: {run: tally, input: ["'outer'"], after: start}
  inner: {run: tally, input: ["'inner'"], after: outer}
  more:  {cycle: inner, after: {inner: {when: "inner.output % 3 != 0"}}, limit: 2}
  again: {cycle: outer, after: {inner: {when: "inner.output % 3 == 0 && outer.output < 3"}}, limit: 2}
output: "inner.output"
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run() == 9
    too_many = text.replace("% 3 != 0", "% 4 != 0").replace("% 3 == 0", "% 4 == 0")
    async with staged(too_many, cache_size=cache_size) as stage:
        error = await stage.failure()
        assert isinstance(error, CycleLimitExceeded)
        assert "'more' went round 2 times" in str(error)


@played
async def test_K8_two_cycles_to_one_activity_do_not_set_each_other_back() -> None:
    text = """
activities:
  start: {trigger: true}
  work:  {run: tally, input: ["'work'"], after: start}
  odd:   {cycle: work, after: {work: {when: "work.output % 2 == 1 && work.output < 20"}}, limit: 3}
  even:  {cycle: work, after: {work: {when: "work.output % 2 == 0 && work.output < 20"}}, limit: 3}
"""
    async with staged(text) as stage:
        assert isinstance(await stage.failure(), CycleLimitExceeded)
        assert stage.troupe.count("work") == 7


CHILDREN = """
activities:
  start: {{trigger: true}}
  send:  {{flow: child, id: "start.input.id", detached: true{each}, after: start}}
  next:  {{run: step, input: ["'next'"], after: send}}
output: "send.output"
"""
CHILD = """
flow: child
activities:
  start: {trigger: true}
  wait:  {wait: {event: never}, after: start}
"""


@CACHES
@played
async def test_K6_a_detached_child_that_is_refused_fails_its_node(cache_size: int) -> None:
    text = "input: {id: string}" + CHILDREN.format(each="")
    async with staged(text, CHILD, cache_size=cache_size) as stage:
        assert await stage.run("f", {"id": "other"}) == "other"
        assert "other" in stage.states()
        error = await stage.failure("f", {"id": "other"}, id="second")
        assert isinstance(error, InstanceConflict)
        assert stage.key("second") == "376"
        assert stage.troupe.count("next") == 1
        await stage.engine.get("other").terminate("enough")


@CACHES
@played
async def test_K6_detached_children_of_a_list_are_there_when_their_node_completes(cache_size: int) -> None:
    each = ', each: "[1, 2, 3]", limit: 2'
    text = "input: {id: string}" + CHILDREN.format(each=each).replace(
        '"start.input.id"', '"start.input.id + string(item)"'
    )
    async with staged(text, CHILD, cache_size=cache_size) as stage:
        assert await stage.run("f", {"id": "c"}) == ["c1", "c2", "c3"]
        taken = await stage.failure("f", {"id": "c"}, id="second")
        assert isinstance(taken, InstanceConflict)
        for name in ("c1", "c2", "c3"):
            await stage.engine.get(name).terminate("enough")


@played
async def test_K6_a_node_that_waits_until_its_detached_child_is_there_is_sound(tmp_path: Path) -> None:
    store, found = tmp_path / "f.db", list[str]()

    def look(point: FaultPoint, members: object) -> None:
        del members
        if point is FaultPoint.AFTER_COMMIT:
            found.extend(map(str, audit(store)))

    text = "input: {id: string}" + CHILDREN.format(each="")
    async with staged(text, CHILD, store=store, fault_hook=look) as stage:
        assert await stage.run("f", {"id": "other"}) == "other"
        await stage.engine.get("other").terminate("enough")
    assert found == []


@CACHES
@played
async def test_K4_a_hasty_flow_fails_with_the_failure_that_ended_it(cache_size: int) -> None:
    """And not with one before it, for which a handler still waited."""
    text = """
policy: fail_fast
activities:
  start: {trigger: true}
  first: {run: fail, input: ["'first'"], after: start}
  slow:  {run: held, input: ["'slow'"], after: start}
  mend:  {run: step, input: ["'mend'"], after: {first: {catch: [ValueError]}, slow: {}}}
  last:  {run: held_fail, input: ["'last'"], after: start}
"""
    async with staged(text, cache_size=cache_size) as stage:
        handle = await stage.start("f")
        await stage.until_key("78986")  # first, last, mend, slow, start
        stage.troupe.gate("last").set()
        with pytest.raises(hf.WorkflowFailed, match="last"):
            await handle.result()


CAUGHT = """
activities:
  start: {trigger: true}
  work:  {run: fail, input: ["'work'"], after: start}
  other: {run: step, input: ["'other'"], after: start, when: "false"}
  good:  {run: step, input: ["'good'"], after: start}
  mend:  {run: step, input: ["'mend'"], after: {work: {catch: [ValueError]}}}
output: OUTPUT
"""


@CACHES
@pytest.mark.parametrize(
    ("output", "result"),
    [
        ("work.output.receipt", None),
        ("{a: work.output.receipt, b: mend.output}", {"a": None, "b": "mend"}),
        ('["work.output.cents + 1", "other.output.parcel"]', [None, None]),
        ("\"work.output == null ? 'none' : work.output.receipt\"", "none"),
        ("work.error.message", "work"),
    ],
)
@played
async def test_K4_the_output_of_a_flow_sees_null_for_a_node_that_failed_and_was_caught(
    cache_size: int, output: str, result: object
) -> None:
    """Its work is done by then, and must not be lost to an expression."""
    async with staged(CAUGHT.replace("OUTPUT", output), cache_size=cache_size) as stage:
        handle = await stage.start("f")
        assert await handle.result() == result


@pytest.mark.parametrize("output", ["good.output.missing", "start.input.missing", "'a' + 1"])
@played
async def test_K4_an_output_that_is_wrong_about_what_completed_fails_the_flow(output: str) -> None:
    async with staged(CAUGHT.replace("OUTPUT", f'"{output}"')) as stage:
        assert isinstance(await stage.failure(), ExpressionError)
