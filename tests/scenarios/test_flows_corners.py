"""Corners of flows: several cycles at once, turns that would not end, errors of earlier rounds, patterns (K8, G12)."""

from typing import Any

import pytest
from tests.scenarios.flow_stage import CACHES, played, staged

from holdfast.errors import CycleLimitExceeded, ExpressionError
from holdfast.flows.expressions import compile_expression


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


def test_a_pattern_looks_at_short_texts_only() -> None:
    matches = compile_expression("a.input.matches('(x?){1000}y')")
    assert matches.evaluate({"a": {"input": "xxy"}}) is True
    with pytest.raises(ExpressionError, match="`matches` looks at 4,096 bytes at most"):
        matches.evaluate({"a": {"input": "x" * 100_000}})
