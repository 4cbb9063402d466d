"""Corners of flows: several cycles at once, turns that would not end, errors of earlier rounds, patterns (K8, G12)."""

from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.flow_stage import CACHES, flow, played, staged
from tests.scenarios.support import engine_of, path_of, rows, until

import holdfast as hf
from holdfast.errors import CycleLimitExceeded, ExpressionError
from holdfast.flows.expressions.expression import compile_expression


@CACHES
@played
async def test_K8_of_two_cycles_that_wait_the_first_by_its_id_goes_round_also_after_a_restart(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  a:     {run: step, input: ["'a'"], after: start}
  b:     {run: step, input: ["'b'"], after: a}
  slow:  {wait: {timer: 50ms}, after: b}
  zz:    {cycle: a, after: b, limit: 1}
  cc:    {cycle: b, after: b, limit: 1}
  after_zz: {run: step, input: ["'end'"], after: {zz: {catch: [CycleLimitExceeded]}}}
  after_cc: {run: step, input: ["'end'"], after: {cc: {catch: [CycleLimitExceeded]}}}
"""
    async with staged(text, cache_size=cache_size) as stage:
        await stage.run()
        assert (stage.troupe.count("a"), stage.troupe.count("b")) == (2, 4), "the inner one goes round once in each"


@CACHES
@played
async def test_K8_a_cycle_whose_target_is_still_to_run_waits_for_it(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  slow:  {wait: {timer: 30ms}, after: start}
  w:     {run: step, input: ["'w'"], after: slow}
  b:     {run: step, input: ["'b'"], after: start}
  c:     {cycle: w, after: [w, b], join: any, limit: 1}
  end:   {run: step, input: ["'end'"], after: {c: {catch: [CycleLimitExceeded]}}}
"""
    async with staged(text, cache_size=cache_size) as stage:
        await stage.run()
        assert stage.troupe.count("w") == 2
        assert stage.troupe.count("end") == 1


@played
async def test_G12_a_cycle_that_waits_for_nothing_does_not_keep_the_worker_for_ever() -> None:
    text = """
activities:
  start: {trigger: true}
  a:     {each: "[]", run: step, after: start}
  c:     {cycle: a, after: a, limit: 1000000}
"""
    async with staged(text) as stage:
        error = await stage.failure()
        assert isinstance(error, CycleLimitExceeded)
        assert "1,000 times without waiting" in str(error)


@CACHES
@played
async def test_K5_a_flow_fails_with_the_error_that_nobody_caught_and_not_with_one_of_an_earlier_round(
    cache_size: int,
) -> None:
    text = """
activities:
  start: {trigger: true}
  a:     {run: step, input: ["'a'"], after: start}
  old:   {run: fail, input: ["'old'"], after: a, when: "mend.output == null", retry: {attempts: 1}}
  mend:  {run: step, input: ["'mend'"], after: {old: {catch: [ValueError]}}}
  again: {cycle: a, after: mend, limit: 1}
  new:   {run: fail, input: ["'new'"], after: a, when: "mend.output != null", retry: {attempts: 1}}
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert str(await stage.failure()) == "new"


@played
async def test_the_output_of_the_trigger_is_its_input_wherever_it_is_read() -> None:
    text = """
activities:
  start: {trigger: true}
output: ["start.output", "start.output == start.input", "start.input"]
"""
    async with staged(text) as stage:
        given: dict[str, Any] = {"x": 1}
        assert await stage.run("f", given) == [given, True, given]


def test_a_pattern_reads_short_strings_only() -> None:
    matches = compile_expression("a.input.matches('(x?){1000}y')")
    assert matches.evaluate({"a": {"input": "xxy"}}) is True
    with pytest.raises(ExpressionError, match="reads at most 4,082 bytes, and this reads 100,048"):
        matches.evaluate({"a": {"input": "x" * 100_000}})


@played
async def test_a_computed_duration_out_of_bounds_names_the_bounds() -> None:
    text = """
activities:
  start: {trigger: true}
  sleep: {wait: {timer: start.input.seconds}, after: start}
"""
    async with staged(text) as stage:
        error = await stage.failure("f", {"seconds": 1e10})
    assert isinstance(error, ExpressionError)
    assert "a duration is a number of seconds from 0 to 3,153,600,000 (36,500 days), not 10000000000" in str(error)


@played
async def test_a_flow_that_starts_itself_without_end_fails_and_names_the_node() -> None:
    text = """
activities:
  start: {trigger: true}
  deeper: {flow: f, after: start}
"""
    async with staged(text) as stage:
        error = await stage.failure("f")
    assert "its node 'deeper' cannot start 'f'; to repeat itself, a flow uses a cycle" in str(error)


@pytest.mark.parametrize(
    ("node", "error"),
    [
        ('{run: echo, input: ["1 / 0"], after: start}', "ExpressionError"),
        ("{cycle: first, after: first, limit: 1}", "CycleLimitExceeded"),
        ("{flow: f, id: flow.id, after: first}", "InstanceConflict"),
    ],
)
@played
async def test_K4_what_a_node_fails_with_by_itself_is_a_name_of_the_library(node: str, error: str) -> None:
    text = f"""
activities:
  start: {{trigger: true}}
  first: {{run: step, input: ["'first'"], after: start}}
  it: {node}
"""
    async with staged(text) as stage:
        assert isinstance(await stage.failure(), getattr(hf.errors, error))


WAITING = """
activities:
  start: {trigger: true}
  go: {wait: {event: go}, after: start}
"""


@hf.workflow(name="f")
async def waiting_code() -> None:
    await hf.event("go")


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (flow(WAITING), waiting_code, "this instance was started as a flow, and 'f' is code here; it continues where"),
        (waiting_code, flow(WAITING), "this instance was started as code, and 'f' is a flow here; it continues where"),
    ],
)
@played
async def test_G12_an_instance_whose_name_is_of_another_kind_now_says_so(
    before: hf.Workflow[..., Any], now: hf.Workflow[..., Any], said: str, tmp_path: Path
) -> None:
    store = tmp_path / "f.db"
    async with engine_of(store, before) as engine:
        await engine.start(before, id="it")
    async with engine_of(store, now) as engine:
        await engine.get("it").raise_event("go")
        await until(lambda: rows(store, "SELECT state FROM instances") == [("BLOCKED",)])
        ((why,),) = rows(path_of(engine), "SELECT blocked FROM instances")
        assert why.startswith(f"HistoryMismatch: {said}")
        with pytest.raises(hf.WorkflowBlocked, match="continues where 'f' is"):
            await engine.get("it").query("anything")
    async with engine_of(store, before) as engine:
        await until(lambda: rows(store, "SELECT state FROM instances") != [("BLOCKED",)])


@played
async def test_G12_a_start_that_names_a_flow_is_not_run_by_code_of_that_name(tmp_path: Path) -> None:
    store, known = tmp_path / "f.db", flow(WAITING)
    async with await hf.connect(store, flows=[known]) as client:
        await client.start(known, id="it")
    async with engine_of(store, waiting_code):
        await until(lambda: rows(store, "SELECT state FROM instances") == [("BLOCKED",)])
        ((why,),) = rows(store, "SELECT blocked FROM instances")
        assert "was started as a flow, and 'f' is code here" in why


@played
async def test_G11_a_flow_whose_input_was_refused_is_asked_like_any_other_and_shows_no_code_of_ours(
    tmp_path: Path,
) -> None:
    store = tmp_path / "f.db"
    async with await hf.connect(store) as client:  # it does not know what the flow takes
        await client.start("f", {"speed": "high"}, id="it")
    async with staged(f"input: {{speed: integer}}{WAITING}", store=store) as stage:
        handle = stage.engine.get("it")
        with pytest.raises(hf.WorkflowFailed) as failed:
            await handle.result()
        assert "speed is 'high'" in str(failed.value.cause)
        assert getattr(failed.value.cause, "__notes__", []) == [], "frames of the library say nothing to its users"
        with pytest.raises(hf.errors.UnknownQuery, match="'it' has no query 'where'; it has none"):
            await handle.query("where")


MOVED = """
activities:
  start: {trigger: true}
  wait:  {wait: {event: go}, after: start}
  it:    {run: step, input: ["wait.output.nothing"], after: wait}
"""


@CACHES
@played
async def test_K1_messages_name_the_lines_of_the_file_as_it_is_now(cache_size: int, tmp_path: Path) -> None:
    store = tmp_path / "f.db"
    before, now = flow(MOVED), flow(f"# more is said above\n\n{MOVED}")
    assert (before.hash, before.line_of("it") + 2) == (now.hash, now.line_of("it"))
    async with staged(before, store=store, cache_size=cache_size) as stage:
        await stage.start("f", id="a")
        await stage.until_key("965", "a")  # it start wait
    async with staged(now, store=store, cache_size=cache_size) as stage:
        handle = stage.engine.get("a")
        await handle.raise_event("go", {})
        with pytest.raises(hf.WorkflowFailed, match=f"line {now.line_of('it')},"):
            await handle.result()


ENDED = """
activities:
  start: {trigger: true}
  a:     {run: NAME, input: ["'a'"], after: start}
  plain: {run: step, input: ["'plain'"], after: {a: [{}, {catch: Exception}]}}
  any:   {run: step, input: ["'any'"], after: {a: [{}, {catch: Exception}]}, join: any}
output: [plain.output, any.output]
"""


@CACHES
@played
async def test_K3_what_runs_when_another_has_ended_either_way_has_join_any(cache_size: int) -> None:
    """As the guide says it. With the default join the failed plain edge bars the node."""
    async with staged(ENDED.replace("NAME", "step"), cache_size=cache_size) as stage:
        assert await stage.run() == ["plain", "any"]
    async with staged(ENDED.replace("NAME", "fail"), cache_size=cache_size) as stage:
        assert await stage.run() == [None, "any"]
        assert stage.troupe.count("any") == 1


@CACHES
@played
async def test_K8_a_cycle_waits_for_what_waits_beside_it(cache_size: int) -> None:
    text = """
activities:
  start:  {trigger: true}
  look:   {run: tally, input: ["'look'"], after: start}
  beside: {wait: {event: go}, after: look}
  turn:   {cycle: look, after: look, when: look.output < 2}
output: look.output
"""
    async with staged(text, cache_size=cache_size) as stage:
        handle = await stage.start("f")
        await stage.until_key("5668")  # beside look start turn
        assert stage.troupe.count("look") == 1
        for _ in range(2):
            await handle.raise_event("go")
        assert await handle.result() == 2


@CACHES
@played
async def test_K8_a_skipped_node_shows_its_output_of_an_earlier_round(cache_size: int) -> None:
    text = """
activities:
  start: {trigger: true}
  look:  {run: tally, input: ["'look'"], after: start}
  once:  {run: step, input: ["'first'"], after: look, when: look.output == 1}
  seen:  {run: step, input: [once.output], after: [look, once]}
  turn:  {cycle: look, after: seen, when: look.output < 3}
output: [once.output, seen.output]
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run() == ["first", "first"]
        assert stage.key() == "63663", "once is skipped in the last round: look once seen start turn"


@pytest.mark.parametrize(("caught", "is_caught"), [("Exception", False), ("BaseException", True), ("SystemExit", True)])
@played
async def test_K4_exception_does_not_catch_an_exit(caught: str, is_caught: bool) -> None:
    @hf.activity(name="leave", retry=hf.Retry(attempts=1))
    async def leave() -> None:
        raise SystemExit(3)

    text = f"""
activities:
  start: {{trigger: true}}
  a: {{run: leave, after: start}}
  c: {{run: step, input: [a.error.type], after: {{a: {{catch: {caught}}}}}}}
output: c.output
"""
    async with staged(text, leave) as stage:
        if is_caught:
            assert await stage.run() == "SystemExit"
        else:
            failure = await stage.failure()
            assert isinstance(failure, hf.errors.RemoteError)
            assert failure.type_name == "builtins.SystemExit"
