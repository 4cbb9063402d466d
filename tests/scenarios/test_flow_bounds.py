"""What bounds flows: the size and shape of what they put together, and the time of a turn. Errors of this round."""

import sys
from pathlib import Path

import pytest
from tests.forking.processes import program
from tests.scenarios.flow_stage import CACHES, flow, played, staged
from tests.scenarios.support import engine_of, until

import holdfast as hf
from holdfast.errors import PayloadError, PayloadTooLarge
from holdfast.flows.run import failure_payload, types_in
from holdfast.payloads.failures import resolve_builtin
from holdfast.payloads.limits import PAYLOAD_LIMIT_BYTES

A_THIRD = PAYLOAD_LIMIT_BYTES // 3 + 1
INPUT = "input: {text: string}\n"


@pytest.mark.parametrize(
    ("nodes", "output"),
    [
        ("a: {run: echo, input: [[start.input.text, start.input.text, start.input.text]], after: start}", "1"),
        ('a: {run: echo, each: "[1, 2, 3]", input: [start.input.text], after: start}', "1"),
        ("a: {raise: {event: e, to: flow.id, value: [start.input, start.input, start.input]}, after: start}", "1"),
        ("a: {run: step, input: [\"'a'\"], after: start}", "[start.input.text, start.input.text, start.input.text]"),
    ],
    ids=["input", "each", "raise", "output"],
)
@played
async def test_K_what_a_flow_puts_together_weighs_no_more_than_any_payload(nodes: str, output: str) -> None:
    text = f"{INPUT}activities:\n  start: {{trigger: true}}\n  {nodes}\noutput: {output}\n"
    async with staged(text) as stage:
        assert isinstance(await stage.failure("f", {"text": "x" * A_THIRD}), PayloadTooLarge)
        assert await stage.run("f", {"text": "x"}, id="small")


@played
async def test_K_what_a_flow_puts_together_nests_no_deeper_than_any_payload() -> None:
    lines = ["activities:", "  n0: {trigger: true}"]
    for at in range(1, 4):
        given = "[" * 25 + f"n{at - 1}.output" + "]" * 25
        lines.append(f"  n{at}: {{run: echo, input: [{given}], after: n{at - 1}}}")
    async with staged("\n".join(lines[:-1]), "\n".join(["flow: g", *lines])) as stage:
        await stage.run("f", {})
        error = await stage.failure("g", {}, id="deeper")
        assert isinstance(error, PayloadError)
        assert "nested too deep" in str(error)


@CACHES
@played
async def test_K8_an_item_may_have_a_field_called_output(cache_size: int) -> None:
    text = """
input: {several: array}
activities:
  start: {trigger: true}
  plain: {run: echo, each: start.input.several, input: [item.output], after: start}
  named: {run: echo, each: start.input.several, input: {value: item.output}, after: start}
output: [plain.output, named.output]
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert await stage.run("f", {"several": [{"output": 5}, {"output": 7}]}) == [[5, 7], [5, 7]]


@CACHES
@played
async def test_K4_a_hasty_flow_fails_with_the_error_of_this_round(cache_size: int) -> None:
    """One that was caught in an earlier round is old, although its node was cancelled in this one."""
    text = """
policy: fail_fast
activities:
  start: {trigger: true}
  a:    {run: tally, input: ["'a'"], after: start}
  w:    {wait: {event: go, timeout: "a.output == 1 ? 0.01 : 60"}, after: a}
  late: {run: step, input: ["'late'"], after: {w: {catch: TimeoutError}}}
  c:    {cycle: a, after: late}
  bad:  {run: fail, input: ["'the real one'"], after: a, when: a.output == 2}
"""
    async with staged(text, cache_size=cache_size) as stage:
        assert str(await stage.failure()) == "the real one"


@played
async def test_G12_a_turn_of_a_flow_that_takes_too_long_blocks_its_instance(tmp_path: Path) -> None:
    text = """
input: {several: array}
activities:
  start: {trigger: true}
  a: {run: echo, each: start.input.several, input: ["start.input.several.filter(x, x != item).size()"], after: start}
"""
    async with staged(text, store=tmp_path / "f.db", turn_limit_ms=200) as stage:
        await stage.start("f", {"several": list(range(900))})
        await until(lambda: stage.states()["it"] == "BLOCKED")
        assert "ran for more than 0.2 s" in str((await stage.engine.get("it").describe()).blocked)


RAISES = """
import asyncio, sys
import holdfast as hf

class Gone(ConnectionError):
    pass

@hf.activity(name="call", queue="far", retry=hf.Retry(attempts=1))
async def call() -> None:
    class Lost(Gone):
        pass
    raise Lost("away")

async def main() -> None:
    async with await hf.connect(sys.argv[1]) as client, hf.Worker(client, activities=[call], queues=["far"]):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@played
async def test_K4_an_error_is_caught_by_its_base_also_where_its_class_is_not_known(tmp_path: Path) -> None:
    @hf.activity(name="call", queue="far", retry=hf.Retry(attempts=1))
    async def call() -> None:
        raise NotImplementedError

    text = """
activities:
  start: {trigger: true}
  far:   {run: call, after: start}
  mend:  {run: mend, after: {far: {catch: [OSError]}}}
output: mend.output
"""

    @hf.activity(name="mend")
    async def mend() -> str:
        return "mended"

    store, script = tmp_path / "f.db", tmp_path / "far.py"
    script.write_text(RAISES, encoding="utf-8")
    async with engine_of(store, flow(text), call, mend, queues=["default"]) as engine:
        with program([sys.executable, str(script), str(store)], cwd=tmp_path) as far:
            assert far.stdout is not None
            assert far.stdout.readline() == "ready\n"
            assert await engine.run("f", id="it") == "mended"
            far.communicate()


class Odd(ConnectionResetError, LookupError):
    """With two lines of bases."""


def test_K4_the_names_of_a_failure_do_not_depend_on_who_reads_it() -> None:
    failure = failure_payload(Odd("x"))
    names = types_in(failure.data, resolve_builtin)
    assert {"Odd", "ConnectionResetError", "ConnectionError", "OSError", "LookupError", "Exception"} <= set(names)
    assert "BaseException" not in names
