"""G13: a call that does not fit its activity is not tried again, because what was sent stays the same."""

from typing import Any

import pytest
from tests.scenarios.flow_stage import played

import holdfast as hf
from holdfast.errors import ArgumentError

FOREVER = hf.Retry(attempts=None, initial=3600, maximum=3600)
"""An attempt after the first would come in an hour."""
FLOW = """
flow: f
activities:
  start: {trigger: true}
  it: {run: NAME, after: start, input: [start.input]}
output: it.output
"""
called: list[int] = []


@hf.activity(retry=FOREVER)
async def doubled(number: int) -> int:
    return 2 * number


@hf.activity(retry=FOREVER)
def doubled_in_a_thread(number: int) -> int:
    return 2 * number


@hf.activity(retry=FOREVER, process=True)
def doubled_in_a_process(number: int) -> int:
    return 2 * number


@hf.activity(retry=hf.Retry(attempts=3, initial=0.001))
async def calls_wrongly(number: int) -> int:
    called.append(number)
    if len(called) < 3:
        raise ArgumentError("a call of its own")
    return number


@pytest.mark.parametrize("activity", [doubled, doubled_in_a_thread, doubled_in_a_process], ids=lambda one: one.name)
@played
async def test_G13_arguments_that_do_not_fit_fail_with_the_first_attempt(activity: hf.Activity[Any, Any]) -> None:
    flow = hf.Flow.parse(FLOW.replace("NAME", activity.name))
    async with hf.Engine(":memory:", flows=[flow], activities=[activity]) as engine:
        with pytest.raises(hf.WorkflowFailed) as caught:
            await engine.run(flow, "two", id="a")
        assert isinstance(caught.value.cause, ArgumentError)
        assert await engine.run(flow, 2, id="b") == 4


@played
async def test_G13_an_argument_error_of_the_body_itself_is_tried_again() -> None:
    called.clear()
    flow = hf.Flow.parse(FLOW.replace("NAME", calls_wrongly.name))
    async with hf.Engine(":memory:", flows=[flow], activities=[calls_wrongly]) as engine:
        assert await engine.run(flow, 7, id="a") == 7
    assert called == [7, 7, 7]
