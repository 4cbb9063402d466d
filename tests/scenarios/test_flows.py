"""The graphs of flows: the fox of the seed, joins, skips, failures, error edges, and how a flow ends (K1-K5, K7)."""

import pytest
from tests.scenarios.flow_stage import CACHES, played, staged
from tests.scenarios.support import path_of, rows

import holdfast as hf

FOX = """
flow: fox
input: {speed: integer, tired: boolean}
activities:
  quick:  {trigger: true}
  brown:  {run: echo, after: quick}
  fox:    {run: echo, after: brown, input: {value: "quick.input.speed"}}
  jumped: {run: echo, after: fox, when: "fox.output > 3"}
  slept:  {run: echo, after: fox, when: "fox.output <= 3"}
  ate:    {wait: {event: dinner, timeout: 1h}, after: slept}
output: {jumped: "jumped.output", ate: "ate.output"}
"""


@CACHES
@played
async def test_K7_the_fox_jumps(cache_size: int) -> None:
    async with staged(FOX, cache_size=cache_size) as stage:
        result = await stage.run("fox", {"speed": 5, "tired": False})
        assert result == {"jumped": None, "ate": None}
        assert stage.keys() == ["989969000000000", "968969000000000", "366863000000000", "366663000000000"]
        assert await stage.stored_key() == "366663000000000"


@CACHES
@played
async def test_K7_the_fox_sleeps_and_eats_when_dinner_is_there(cache_size: int) -> None:
    async with staged(FOX, cache_size=cache_size) as stage:
        handle = await stage.start("fox", {"speed": 3, "tired": False})
        await stage.until_key("566366")
        assert await stage.stored_key() == "566366000000000"
        assert await handle.raise_event("dinner", {"fish": 2})
        assert await handle.result() == {"jumped": None, "ate": {"fish": 2}}
        assert stage.keys()[-3:] == ["966368000000000", "566366000000000", "466366000000000"]


@CACHES
@played
async def test_K7_the_fox_goes_hungry(cache_size: int) -> None:
    hungry = FOX.replace("1h", "10ms")
    async with staged(hungry, cache_size=cache_size) as stage:
        error = await stage.failure("fox", {"speed": 3, "tired": False})
        assert isinstance(error, TimeoutError)
        assert "dinner" in str(error)
        assert await stage.stored_key() == "766366000000000"


@CACHES
@played
async def test_K7_the_fox_chokes(cache_size: int) -> None:
    chokes = FOX.replace("wait: {event: dinner, timeout: 1h}", "run: fail, input: {name: '\"a bone\"'}")
    async with staged(chokes, cache_size=cache_size) as stage:
        error = await stage.failure("fox", {"speed": 3, "tired": False})
        assert (type(error), str(error)) == (ValueError, "a bone")
        assert stage.keys()[-2:] == ["866366000000000", "766366000000000"]


DIAMOND = """
activities:
  start: {trigger: true}
  left:  {run: held, input: {name: "'left'"}, after: start}
  right: {run: held, input: {name: "'right'"}, after: start}
  join:  {run: step, input: {name: "'join'", value: "left.output + right.output"}, after: [left, right]}
  last:  {run: echo, input: {value: "join.output"}, after: join}
output: "last.output"
"""


@pytest.mark.parametrize("order", [("left", "right"), ("right", "left"), ()])
@CACHES
@played
async def test_K3_the_join_of_a_diamond_runs_once(cache_size: int, order: tuple[str, ...]) -> None:
    """In either order, and where both parents finish in the same instant."""
    async with staged(DIAMOND, cache_size=cache_size) as stage:
        troupe = stage.troupe
        handle = await stage.start("f")
        await troupe.began("left", "right")
        assert stage.key() == "99886"  # join last left right start
        for name in order or ("left", "right"):
            troupe.gate(name).set()
            if order and name == order[0]:
                await stage.until_key("99686" if name == "left" else "99866")
                assert troupe.count("join") == 0
        assert await handle.result() == "leftright"
        assert (troupe.count("join"), stage.key()) == (1, "66666")


@CACHES
@played
async def test_K3_a_skip_goes_through_a_diamond_once(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  none:  {run: echo, after: start, when: "false"}
  left:  {run: echo, after: none}
  right: {run: echo, after: none}
  join:  {run: echo, after: [left, right]}
  last:  {run: echo, after: join}
  other: {run: echo, after: start}
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run() is None
        assert stage.keys() == ["333383600000000", "333363600000000"]  # join last left none other right start
        assert stage.troupe.count("echo") == 1


@CACHES
@played
async def test_K3_a_join_runs_when_one_of_its_parents_was_skipped(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  left:  {run: echo, after: start, when: "start.input.left", input: {value: "'l'"}}
  right: {run: echo, after: start, when: "start.input.right", input: {value: "'r'"}}
  join:  {run: echo, after: [left, right], input: {value: ["left.output", "right.output"]}}
output: "join.output"
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run("f", {"left": True, "right": False}, id="left") == ["l", None]
        assert await stage.run("f", {"left": False, "right": True}, id="right") == [None, "r"]
        assert await stage.run("f", {"left": False, "right": False}, id="none") is None
        assert [stage.key(name) for name in ("left", "right", "none")] == ["6636", "6366", "3336"]


@CACHES
@played
async def test_K3_descendants_that_several_share_run_once(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  a: {run: step, input: ["'a'"], after: start}
  b: {run: step, input: ["'b'"], after: start}
  c: {run: step, input: ["'c'"], after: [a, b]}
  d: {run: step, input: ["'d'"], after: [a, b]}
  e: {run: step, input: ["'e'"], after: [a, c, d]}
  g: {run: step, input: ["'g'"], after: [b, d]}
  h: {run: step, input: ["'h'"], after: [e, g, c]}
output: "h.output"
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run() == "h"
        names = [name for name, _ in stage.troupe.calls]
        assert sorted(names) == list("abcdegh")
        for before, after in ("ac", "bc", "ad", "bd", "ce", "de", "dg", "eh", "gh", "ch"):
            assert names.index(before) < names.index(after)


@CACHES
@played
async def test_K4_A4_a_failure_above_a_leaf_skips_it_and_fails_the_flow(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  above: {run: fail, input: ["'no'"], after: start}
  leaf:  {run: echo, after: above}
  under: {run: echo, after: leaf}
  other: {run: step, input: ["'other'"], after: start}
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert str(await stage.failure()) == "no"
        assert stage.key() == "73663"  # above leaf other start under
        assert stage.states() == {"it": "FAILED"}
        assert sorted(name for name, _ in stage.troupe.calls) == ["no", "other"]


CATCHING = """
activities:
  start: {trigger: true}
  risky: {run: fail, input: ["'no'", "start.input.error"], after: start}
  next:  {run: echo, after: risky}
  saved: {run: echo, after: {risky: {catch: CATCH}}, input: {value: {type: "risky.error.type", message: "risky.error.message"}}}
  last:  {run: echo, after: [next, saved], join: any, input: {value: "saved.output"}}
output: "last.output"
"""  # noqa: E501 - as it is written


@pytest.mark.parametrize(
    ("error", "catch", "is_caught"),
    [
        ("ValueError", "[ValueError]", True),
        ("VeryTired", "[ValueError, Tired]", True),
        ("VeryTired", "Exception", True),
        ("VeryTired", "[VeryTired]", True),
        ("Tired", "[VeryTired]", False),
        ("ValueError", "[TimeoutError]", False),
    ],
)
@CACHES
@played
async def test_K4_a_failure_is_caught_by_its_type_or_one_it_derives_from(
    cache_size: int, error: str, catch: str, is_caught: bool
) -> None:
    async with staged(CATCHING.replace("CATCH", catch), cache_size=cache_size) as stage:
        if is_caught:
            assert await stage.run("f", {"error": error}) == {"type": error, "message": "no"}
            assert stage.key() == "63766"  # last next risky saved start
        else:
            assert str(await stage.failure("f", {"error": error})) == "no"
            assert stage.key() == "33736"


@CACHES
@played
async def test_K4_where_nothing_failed_the_error_edge_is_dead(cache_size: int) -> None:
    text = CATCHING.replace('run: fail, input: ["\'no\'", "start.input.error"]', "run: echo").replace(
        "CATCH", "Exception"
    )
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run() is None
        assert stage.key() == "66636"


@CACHES
@played
async def test_K3_join_any_runs_at_the_first_edge_that_is_taken(cache_size: int) -> None:
    text = DIAMOND.replace("after: [left, right]}", "after: [left, right], join: any}").replace(
        "left.output + right.output", "right.output"
    )
    async with staged(text, cache_size=cache_size) as stage:
        handle = await stage.start("f")
        await stage.troupe.began("left", "right")
        stage.troupe.gate("right").set()
        await stage.until_key("66866")
        stage.troupe.gate("left").set()
        assert await handle.result() == "right"
        assert (stage.troupe.count("join"), stage.key()) == (1, "66666")


@CACHES
@played
async def test_K3_join_any_is_skipped_once_nothing_can_enable_it(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  a:     {run: fail, input: ["'a'"], after: start}
  b:     {run: echo, after: start, when: "false"}
  join:  {run: echo, after: [a, b], join: any}
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert str(await stage.failure()) == "a"
        assert stage.key() == "7336"


@pytest.mark.parametrize(
    ("number", "key", "result"), [(1, "6336", "small"), (50, "3636", "large"), (10, "3366", "otherwise")]
)
@CACHES
@played
async def test_K3_the_default_branch_is_taken_if_no_condition_holds(
    cache_size: int, number: int, key: str, result: str
) -> None:
    text = """
activities:
  start: {trigger: true}
  a: {run: echo, input: {value: "'small'"}, after: start, when: "start.input.n < 5"}
  b: {run: echo, input: {value: "'large'"}, after: start, when: "start.input.n > 20"}
  c: {run: echo, input: {value: "'otherwise'"}, after: start, otherwise: true}
output: "[a.output, b.output, c.output].filter(x, x != null)[0]"
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run("f", {"n": number}) == result
        assert stage.key() == key


@CACHES
@played
async def test_K3_the_condition_of_a_node_with_several_parents_is_asked_once_they_are_decided(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  a: {run: echo, input: {value: "start.input.a"}, after: start}
  b: {run: echo, input: {value: "start.input.b"}, after: start}
  c: {run: echo, after: [a, b], when: "a.output + b.output > 10"}
  d: {run: echo, after: c}
"""
    async with staged(text, cache_size=cache_size) as stage:
        await stage.run("f", {"a": 5, "b": 6}, id="more")
        await stage.run("f", {"a": 5, "b": 5}, id="less")
        assert [stage.key(name) for name in ("more", "less")] == ["66666", "66336"]


POLICIES = """
policy: POLICY
activities:
  start: {trigger: true}
  bad:   {run: held_fail, input: ["'bad'"], after: start}
  long:  {run: held, input: ["'long'"], after: start}
  after: {run: step, input: ["'after'"], after: long}
  wait:  {wait: {event: never, timeout: 1h}, after: start, when: "start.input.waits"}
"""


@CACHES
@played
async def test_K4_drain_lets_the_rest_run_on(cache_size: int) -> None:
    async with staged(POLICIES.replace("POLICY", "drain"), cache_size=cache_size) as stage:
        handle = await stage.start("f", {"waits": False})
        await stage.troupe.began("bad", "long")
        stage.troupe.gate("bad").set()
        await stage.until_key("97863")  # after bad long start wait
        stage.troupe.gate("long").set()
        with pytest.raises(hf.WorkflowFailed, match="bad"):
            await handle.result()
        assert stage.key() == "67663"
        assert stage.troupe.count("after") == 1


@CACHES
@played
async def test_K4_fail_fast_cancels_what_is_active_at_once(cache_size: int) -> None:
    async with staged(POLICIES.replace("POLICY", "fail_fast"), cache_size=cache_size) as stage:
        handle = await stage.start("f", {"waits": True})
        await stage.troupe.began("bad", "long")
        stage.troupe.gate("bad").set()
        with pytest.raises(hf.WorkflowFailed, match="bad"):
            await handle.result()
        assert stage.key() == "37767"
        assert ("held", "COMPLETED") not in stage.attempts()
        assert stage.troupe.ended == []
        assert rows(path_of(stage.engine), "SELECT 1 FROM timers") == []


@CACHES
@played
async def test_K4_fail_fast_spares_the_rest_when_the_failure_is_caught(cache_size: int) -> None:
    text = POLICIES.replace("POLICY", "fail_fast") + "  saved: {run: echo, after: {bad: {catch: ValueError}}}\n"
    async with staged(text, cache_size=cache_size) as stage:
        handle = await stage.start("f", {"waits": False})
        await stage.troupe.began("bad", "long")
        stage.troupe.gate("bad").set()
        await stage.until_key("978663")  # after bad long saved start wait
        stage.troupe.gate("long").set()
        await handle.result()
        assert stage.key() == "676663"


@CACHES
@played
async def test_K1_forty_activities_have_a_key_of_three_words(cache_size: int) -> None:
    lines = ["activities:", "  n00: {trigger: true}"]
    lines += [f"  n{at:02}: {{run: echo, input: {{value: '{at}'}}, after: n{at - 1:02}}}" for at in range(1, 40)]
    async with staged("\n".join([*lines, 'output: "n39.output"\n']), cache_size=cache_size) as stage:
        assert await stage.run() == 39
        assert await stage.stored_key() == "6" * 40 + "0" * 5
        assert stage.keys()[:2] == ["68" + "9" * 38 + "00000", "668" + "9" * 37 + "00000"]
        assert len(stage.keys()) == 40, "one commit sees the change from active to complete"


@CACHES
@played
async def test_K5_a_flow_that_is_only_a_trigger_completes_with_its_first_turn(cache_size: int) -> None:
    text = 'activities:\n  start: {trigger: true}\noutput: "start.input.x"\n'
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run("f", {"x": [1, "ü", None]}) == [1, "ü", None]
        assert stage.keys() == ["6" + "0" * 14]
