"""Workflows with instances of every kind in the stores of earlier releases.

Never change a definition of this module: the histories in the checked-in stores belong to it. Add others for the store
of the next release.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import holdfast as hf

LATER = "later"
"""The queue that no worker serves while a store is written."""
NEVER = 3_600.0
LARGE = 20_000
PARTS = 5


class Switch:
    """Whether bodies hang: while a store is written, until the process ends."""

    is_recording = False


async def hang_while_recording() -> None:
    if Switch.is_recording:
        await asyncio.sleep(NEVER)


@hf.activity
async def double(number: int) -> int:
    return 2 * number


@hf.activity(queue=LATER)
async def later(number: int) -> int:
    return number


@hf.activity(retry=hf.Retry(attempts=3, initial=60.0, jitter=False))
async def fails_once(number: int) -> int:
    if hf.activity_info().attempt == 1:
        raise ValueError("the first attempt fails")
    return number


@hf.activity
async def hangs(number: int) -> int:
    await hang_while_recording()
    return number


@hf.activity(resumable=True)
async def parts() -> AsyncIterator[int]:
    for number in range(hf.activity_info().delivered, PARTS):
        if number == 2:
            await hang_while_recording()
        yield number


@hf.workflow
async def retries() -> int:
    return await fails_once(await double(1))


@hf.workflow
async def queued() -> int:
    return await later(await double(2))


@hf.workflow
async def sleeps() -> int:
    number = await double(3)
    await asyncio.sleep(60)
    return number


@hf.workflow
async def listens() -> str:
    first = await hf.event("early", str)
    return f"{first} {await hf.event('go', str)}"


@hf.workflow
async def child(number: int) -> int:
    return number + await hf.event("go", int)


@hf.workflow
async def parent() -> int:
    return await double(await child(4))


@hf.workflow
async def streams() -> list[int]:
    return [number async for number in parts()]


@hf.workflow
async def runs_while_the_worker_dies() -> int:
    return await hangs(5)


@hf.workflow
async def updates() -> list[int]:
    taken: list[int] = []

    @hf.on_update
    async def take(number: int) -> int:
        taken.append(await later(number))
        return len(taken)

    await hf.event("go")
    await hf.wait_until(getattr(hf, "all_handlers_finished", None) or getattr(hf, "updates_finished"))  # noqa: B009
    return taken


@hf.workflow
async def keeps() -> int:
    hf.set_status("kept")
    hf.state["total"] = await double(6)
    await hf.event("go")
    total: int = hf.state["total"]
    return total


@hf.workflow
async def continues(execution: int = 1) -> int:
    hf.state["executions"] = execution
    if execution < 2:
        hf.continue_as_new(execution + 1)
    await hf.event("go")
    return execution


@hf.workflow
async def blocks() -> int:
    number = await double(7)
    await hf.event("go")
    return await double(number)


@hf.workflow(name="blocks")
async def blocks_changed() -> int:
    """Does not fit the history of `blocks`: it is registered once, while a store is written."""
    await asyncio.sleep(1)
    return 0


@hf.workflow
async def cleans_up() -> int:
    try:
        await hf.event("never")
    except asyncio.CancelledError:
        await later(8)
        raise
    return 0


@hf.workflow
async def reads(text: str) -> int:
    await hf.event("go")
    return len(text)


@hf.workflow
async def begins_later(number: int) -> int:
    return await double(number)


FLOWS = [
    hf.Flow.parse(
        """
flow: waits
activities:
  start: {trigger: true}
  ask: {wait: {event: answer, timeout: 1000d}, after: start}
  twice: {run: double, input: [ask.output], after: ask}
output: twice.output
"""
    ),
    hf.Flow.parse(
        """
flow: many
activities:
  start: {trigger: true}
  first: {run: double, each: start.input.numbers, after: start}
  second: {run: later, each: first.output, limit: 2, after: first}
output: second.output
"""
    ),
    hf.Flow.parse(
        """
flow: rounds
activities:
  start: {trigger: true}
  look: {run: double, input: ["look.output == null ? 1 : look.output"], after: start}
  again: {cycle: look, after: look, when: look.output < 8, delay: 1ms, limit: 10}
  ask: {wait: {event: answer, timeout: 1000d}, after: look, when: look.output >= 8}
  once: {cycle: look, after: ask, when: look.output < 20, delay: 1ms, limit: 10}
  done: {run: later, input: [look.output], after: ask, when: look.output >= 20}
output: done.output
"""
    ),
    hf.Flow.parse(
        """
flow: family
activities:
  start: {trigger: true}
  inner: {flow: waits, after: start, id: "'family-child'"}
  code: {flow: child, input: [inner.output], after: inner, id: "'family-code'"}
output: code.output
"""
    ),
]
CHANGED = "changed"
WORKFLOWS: list[hf.Workflow[..., Any]] = [
    each for name, each in vars(sys.modules[__name__]).items() if isinstance(each, hf.Workflow) and CHANGED not in name
]
ACTIVITIES: list[hf.Activity[..., Any]] = [
    each for each in vars(sys.modules[__name__]).values() if isinstance(each, hf.Activity)
]
