"""Sample flows for the crash tests, and a program that runs one of them (`tests.crash.program`)."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.crash.program import BODIES, KillAt, ran, run_program

import holdfast as hf
from holdfast.errors import NodeNotHeld
from holdfast.runtime.platform import Platform

ORDER = Path(__file__).parents[1] / "unit" / "flows" / "samples" / "order.yaml"
INPUT = {"order_id": "o-1", "cents": 250_000, "items": ["hat", "coat", "scarf"]}
DELIVERED_AT = 3


class CardDeclined(Exception):
    """Never, in these tests."""


@hf.activity(name="step", max_losses=1_000)
async def step(name: str, value: Any = None) -> Any:
    ran(f"{name} {value}")
    await asyncio.sleep(0.001)
    return name if value is None else value


@hf.activity(name="fail", retry=hf.Retry(attempts=1), max_losses=1_000)
async def fail(name: str) -> Any:
    ran(f"fail {name}")
    raise ValueError(name)


@hf.activity(name="quotes", resumable=True, max_losses=1_000)
async def quotes() -> AsyncIterator[int]:
    ran("quotes -")
    for number in range(1 + hf.activity_info().delivered, 4):
        await asyncio.sleep(0.001)
        yield number


@hf.activity(name="shop.reserve", max_losses=1_000)
async def reserve(id: str) -> str:  # noqa: A002 - as the flow says
    ran(f"reserve {id}")
    return f"r-{id}"


@hf.activity(name="shop.charge", max_losses=1_000)
async def charge(id: str, cents: int) -> int:  # noqa: A002 - as the flow says
    ran(f"charge {id} {cents}")
    return cents


@hf.activity(name="shop.release", max_losses=1_000)
async def release() -> None:
    ran("release -")


@hf.activity(name="shop.pack", max_losses=1_000)
async def pack(item: str) -> str:
    ran(f"pack {item}")
    return f"packed {item}"


@hf.activity(name="shop.delivered", max_losses=1_000)
def delivered() -> bool:
    """On the third look, which the lines of its own runs tell. A lost look counts, too, so there are fewer then."""
    ran("delivered -")
    lines = Path(os.environ[BODIES]).read_text(encoding="utf-8").splitlines()
    return sum(line.startswith("delivered") for line in lines) >= DELIVERED_AT


@hf.activity(name="shop.close", max_losses=1_000)
async def close() -> str:
    ran("close -")
    return "closed"


@hf.workflow(name="shipping")
async def shipping() -> str:
    shipped: str = await step("shipped")
    return shipped


DIAMOND = """
flow: e2_siblings
activities:
  start: {trigger: true}
  left:  {run: step, input: ["'left'"], after: start}
  right: {run: step, input: ["'right'"], after: start}
  more:  {run: step, input: ["'more'", "right.output + '!'"], after: right}
  join:  {run: step, input: ["'join'", "left.output + more.output"], after: [left, more]}
  skip:  {run: step, input: ["'skip'"], after: left, when: "left.output == 'no'"}
  last:  {run: step, input: ["'last'", "join.output"], after: [join, skip]}
output: "last.output"
"""
ROUNDS = """
flow: e4_rounds
activities:
  start: {trigger: true}
  count: {run: step, input: ["'count'", "count.output == null ? 1 : count.output + 1"], after: start}
  data:  {run: step, input: ["'data'", {round: "count.output", seed: "start.input.seed"}], after: count}
  next:  {run: step, input: ["'next'", "data.output"], after: data}
  again: {cycle: count, after: next, when: "count.output < 3", delay: 5ms}
output: ["count.output", "next.output"]
"""
CHILD = """
flow: small
activities:
  start: {trigger: true}
  work:  {run: step, input: ["'small'", "start.input.n"], after: start}
output: "work.output"
"""
CHILDREN = """
flow: e1_children
activities:
  start: {trigger: true}
  one:   {flow: small, input: {n: 1}, after: start}
  many:  {flow: small, each: "[2, 3, 4]", input: {n: "item"}, after: start}
  loose: {flow: small, id: "'loose'", detached: true, input: {n: 9}, after: one}
  last:  {run: step, input: ["'last'", ["one.output", "many.output", "loose.output"]], after: [one, many, loose]}
output: "last.output"
"""
WAITS = """
flow: waits
activities:
  start: {trigger: true}
  early: {raise: {event: go, to: "flow.id", value: 1}, after: start}
  slow:  {wait: {timer: 10ms}, after: early}
  go:    {wait: {event: go, timeout: 1h}, after: slow}
  never: {wait: {event: never, timeout: 5ms}, after: start}
  saved: {run: step, input: ["'saved'", "never.error.type"], after: {never: {catch: TimeoutError}}}
  last:  {run: step, input: ["'last'", ["go.output", "saved.output"]], after: [go, saved]}
output: "last.output"
"""
EDGES = """
flow: error_edges
activities:
  start:  {trigger: true}
  bad:    {run: fail, input: ["'broken'"], after: start}
  behind: {run: step, input: ["'behind'"], after: bad}
  saved:  {run: step, input: ["'saved'", "bad.error.message"], after: {bad: {catch: ValueError}}}
  other:  {run: step, input: ["'other'"], after: {bad: {catch: KeyError}}}
  many:   {run: step, each: "[1, 2, 3, 4]", limit: 2, input: ["'many'", "item * 10"], after: saved}
  last:   {run: step, input: ["'last'", ["saved.output", "many.output"]], after: [many, other]}
output: "last.output"
"""
HOLDS = """
flow: holds
activities:
  start:  {trigger: true}
  review: {run: step, input: ["'draft'"], after: start, hold: true}
  ship:   {run: step, input: ["'ship'", "review.output"], after: review}
  many:   {run: step, each: "[1, 2]", input: ["'many'", "item"], after: start, hold: {timeout: 1h}}
  late:   {run: step, input: ["'late'"], after: start, hold: {timeout: 5ms}}
  saved:  {run: step, input: ["'saved'", "late.error.type"], after: {late: {catch: TimeoutError}}}
  last:   {run: step, input: ["'last'", ["ship.output", "many.output", "saved.output"]], after: [ship, many, saved]}
output: "last.output"
"""
STREAMS = """
flow: streams
activities:
  start:  {trigger: true}
  quotes: {run: quotes, after: start}
  price:  {run: step, each: quotes.responses, limit: 2, input: ["'price'", "item * 10"], after: quotes}
  small:  {flow: small, each: quotes.responses, input: {n: "item"}, after: quotes}
  last:   {run: step, input: ["'last'", [quotes.output, price.output, small.output]], after: [quotes, price, small]}
output: "last.output"
"""
DROPS = """
flow: drops
event_policy: drop_unsubscribed
activities:
  start: {trigger: true}
  first: {run: step, input: ["'first'"], after: start}
  go:    {wait: {event: go}, after: first}
  last:  {run: step, input: ["'last'", "go.output"], after: go}
output: "last.output"
"""
FLOWS: dict[str, tuple[hf.Flow, dict[str, Any]]] = {
    "e1_children": (hf.Flow.parse(CHILDREN), {}),
    "e2_siblings": (hf.Flow.parse(DIAMOND), {}),
    "e4_rounds": (hf.Flow.parse(ROUNDS), {"seed": [1, {"x": "y"}]}),
    "waits": (hf.Flow.parse(WAITS), {}),
    "error_edges": (hf.Flow.parse(EDGES), {}),
    "holds": (hf.Flow.parse(HOLDS), {}),
    "streams": (hf.Flow.parse(STREAMS), {}),
    "drops": (hf.Flow.parse(DROPS), {}),
    "order": (hf.Flow.parse(ORDER.read_text(encoding="utf-8").replace("delay: 1h", "delay: 5ms")), INPUT),
}
EXPECTED = {
    "e1_children": [1, [2, 3, 4], "loose"],
    "e2_siblings": "leftright!",
    "e4_rounds": [3, {"round": 3, "seed": [1, {"x": "y"}]}],
    "waits": [1, "TimeoutError"],
    "error_edges": ["broken", [10, 20, 30, 40]],
    "holds": ["approved", [1, 2], "TimeoutError"],
    "streams": [[1, 2, 3], [10, 20, 30], [1, 2, 3]],
    "drops": "taken",
    "order": "closed",
}
KEYS = {
    "e1_children": "66666",
    "e2_siblings": "6666636",
    "e4_rounds": "36666",
    "waits": "6467646",
    "error_edges": "7366366",
    "holds": "6744666",
    "streams": "66666",
    "drops": "6466",
    "order": "3466666366",
}
"""The activities in ascending order, each with its digit."""


async def release_held(handle: hf.Handle[Any], node: str, output: object) -> None:
    """Release a node as soon as it is held. The id is the same in every run of the program."""
    for _ in range(2_000):
        if (await handle.describe()).closed_at is not None:
            return
        try:
            await handle.release(node, output=output, id=f"{node}-once")
        except NodeNotHeld:
            await asyncio.sleep(0.005)
        except hf.InstanceClosed:
            return
        else:
            return
    raise AssertionError(f"{node} was never held")


async def raise_until_taken(handle: hf.Handle[Any]) -> None:
    """Raise events until one is taken: by now, or before an earlier process was killed."""
    for _ in range(2_000):
        try:
            if await handle.raise_event("go", "taken") or (await handle.describe()).closed_at is not None:
                return
        except hf.InstanceClosed:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("no event was taken")


async def finish(store: str, flow: str, hook: KillAt | None) -> object:
    code, given = FLOWS[flow]
    flows = [each for each, _ in FLOWS.values()] + [hf.Flow.parse(CHILD)]
    activities: list[hf.Activity[..., Any]] = [step, fail, quotes, reserve, charge, release, pack, delivered, close]
    world = Platform(fault_hook=hook)
    engine = hf.Engine(store, workflows=[shipping], activities=activities, flows=flows, _platform=world)
    async with engine:
        handle = await engine.start(code, given, id="it")
        if flow == "order" and (await handle.describe()).closed_at is None:
            await handle.raise_event("approved", id="yes")
        if flow == "holds":
            await release_held(handle, "review", "approved")
            await release_held(handle, "many", ...)
        if flow == "drops":
            await raise_until_taken(handle)
        result = await handle.result()
        if flow == "e1_children":
            await engine.get("loose").result()
        return result


def main() -> None:
    run_program(finish)
