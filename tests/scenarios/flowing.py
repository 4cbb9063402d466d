"""Flows for the tests of how they are seen: the fox of the seeds, and families of flows and code."""

import asyncio
from typing import Any

import holdfast as hf

FOX = """
flow: fox
input: {speed: integer}
activities:
  quick: {trigger: true}
  brown: {run: brown, after: quick}
  fox: {run: see_fox, after: brown, input: ["quick.input.speed"]}
  jumped: {run: jump, after: fox, when: "fox.output > 3"}
  slept: {run: nap, after: fox, when: "fox.output <= 3"}
  ate: {wait: {event: dinner, timeout: 1h}, after: slept}
output: "fox.output"
"""
"""Its key: ate, brown, fox, jumped, quick, slept."""


def flow_of(text: str) -> hf.Flow:
    return hf.Flow.parse(text)


class TooTired(Exception):
    """A fox that does not run."""


class Gates:
    """Where activities wait until the test lets them go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()


gates = Gates()


@hf.activity
async def brown() -> str:
    return "brown"


@hf.activity(retry=hf.Retry(attempts=1))
async def see_fox(speed: int) -> int:
    if speed < 0:
        raise TooTired(f"at {speed}")
    if speed == 0:
        gates.reached.set()
        await gates.go_on.wait()
    return speed


@hf.activity
async def jump() -> str:
    return "jumped"


@hf.activity
async def nap() -> str:
    return "slept"


FOXES: list[hf.Activity[..., Any]] = [brown, see_fox, jump, nap]

PARENT = """
flow: parent
activities:
  start: {trigger: true}
  one: {flow: fox, after: start, input: {speed: "5"}}
  several: {flow: twice, each: "[1, 2]", after: start}
  aside: {flow: twice, after: start, input: ["7"], detached: true}
  last: {run: nap, after: [one, several]}
"""
"""Its key: aside, last, one, several, start."""
ROUNDS = """
flow: rounds
activities:
  start: {trigger: true}
  count: {run: count, after: start}
  more: {run: count, after: count}
  again: {cycle: count, after: more, when: "more.output < 4"}
  end: {run: nap, after: more, when: "more.output >= 4"}
  ready: {wait: {event: ready}, after: end}
"""
"""Its key: again, count, end, more, ready, start."""


@hf.activity
async def double(number: int) -> int:
    return number * 2


@hf.workflow
async def twice(number: int) -> int:
    """A child that is code, with two digits."""
    return await double(await double(number))


class Counter:
    """Counts calls across the rounds of a cycle, and waits in one of them."""

    def __init__(self, waits_at: int = 0) -> None:
        self.calls = 0
        self.waits_at = waits_at
        self.waits = asyncio.Event()

    def activity(self) -> hf.Activity[..., Any]:
        @hf.activity(name="count")
        async def count() -> int:
            self.calls += 1
            if self.calls == self.waits_at:
                self.waits.set()
                await asyncio.Event().wait()
            return self.calls

        return count
