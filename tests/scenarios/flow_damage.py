"""A store with flows in every phase, and what its rows can suffer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

from tests.scenarios.flowing import FOX, FOXES, PARENT, ROUNDS, Counter, double, flow_of, gates, twice

import holdfast as hf
from holdfast.audit.problems import Rule
from holdfast.client.views.instances import Description

CATCHING = """
flow: catching
activities:
  start: {trigger: true}
  fox: {run: see_fox, after: start, input: ["-1"]}
  saved: {run: nap, after: {fox: {catch: [TooTired]}}}
  never: {run: nap, after: fox}
  late: {wait: {timer: 10ms}, after: saved}
  either: {run: jump, after: [never, late], join: any}
  told: {raise: {event: news, to: "'nobody'"}, after: either}
"""
FAST = """
flow: fast
policy: fail_fast
activities:
  start: {trigger: true}
  fox: {run: see_fox, after: start, input: ["-1"]}
  long: {wait: {event: never}, after: start}
  then: {run: nap, after: long}
"""


def _in_history(old: str, new: str) -> str:
    """The statement that replaces a text in the history of an instance."""
    return f"""UPDATE history SET events = CAST(replace(CAST(events AS TEXT), '{old}', '{new}') AS BLOB)
        WHERE number = ?1"""  # noqa: S608 - texts of this module


@hf.activity
async def quotes() -> AsyncIterator[int]:
    for number in (1, 2):
        yield number


@hf.activity
async def endless() -> AsyncIterator[int]:
    yield 1
    await asyncio.Event().wait()


HELD = """
flow: held
activities:
  start: {trigger: true}
  review: {run: brown, after: start, hold: {timeout: 1h}}
  passed: {run: brown, after: start, hold: true}
  kept: {run: brown, after: start, hold: true}
  quotes: {run: quotes, after: start}
  price: {run: double, each: quotes.responses, after: quotes}
"""
LISTENING = """
flow: listening
activities:
  start: {trigger: true}
  quotes: {run: endless, after: start}
  price: {run: double, each: quotes.responses, after: quotes}
"""

FLOW_DAMAGE = [
    # rule, instance, statement; ?1 is the number of the instance
    (Rule.FLOW_KEPT, "awake", "DELETE FROM flows WHERE name = 'fox'"),
    (Rule.FLOW_KEPT, "awake", "UPDATE flows SET definition = x'7b' WHERE name = 'fox'"),
    (
        Rule.FLOW_KEPT,
        "awake",
        """UPDATE flows SET definition = CAST(replace(CAST(definition AS TEXT), 'dinner', 'supper') AS BLOB)
        WHERE name = 'fox'""",
    ),
    (Rule.KEY_AGREES, "awake", "UPDATE instances SET collation_key = '366666000000000' WHERE number = ?1"),
    (Rule.KEY_AGREES, "awake", "UPDATE instances SET collation_key = NULL WHERE number = ?1"),
    (Rule.KEY_AGREES, "awake", "UPDATE instances SET collation_key = '366663' WHERE number = ?1"),
    (Rule.KEY_AGREES, "code", "UPDATE instances SET collation_key = '660000000000000' WHERE number = ?1"),
    (Rule.KEY_AGREES, "busy", "UPDATE attempts SET state = 'FAILED' WHERE number = ?1 AND activity = 1"),
    (Rule.KEY_AGREES, "busy", "DELETE FROM attempts WHERE number = ?1 AND activity = 1"),
    (Rule.KEY_AGREES, "awake", "UPDATE attempts SET state = 'FAILED' WHERE number = ?1 AND activity = 1"),
    (Rule.KEY_AGREES, "awake", "UPDATE attempts SET ledger = 889000001000001 WHERE number = ?1 AND activity = 1"),
    (
        Rule.KEY_AGREES,
        "hungry",
        """UPDATE history SET events = CAST(replace(CAST(events AS TEXT), '"quick"', '"stranger"') AS BLOB)
        WHERE number = ?1""",
    ),
    (Rule.KEY_COMPLETE, "awake", "UPDATE instances SET state = 'RUNNING', closed_at_ms = NULL WHERE number = ?1"),
    # the history of a hold without its release, without its timer, and with a release of a node that is held
    (
        Rule.KEY_AGREES,
        "held",
        _in_history('"event":"node_released","node":"passed"', '"event":"node_released","node":"x"'),
    ),
    (Rule.KEY_AGREES, "held", _in_history('{"event":"timer_started"', '{"event":"timer_cancelled"')),
    (Rule.KEY_AGREES, "held", _in_history('"passed":"4"', '"passed":"6"')),
    (Rule.KEY_AGREES, "held", _in_history('"review":"5"', '"review":"6"')),
    (Rule.KEY_AGREES, "held", _in_history('"passed":"4"', '"passed":"5"')),
    # a response that has no item, and a node that completed while its stream is open
    (Rule.KEY_AGREES, "held", _in_history('"more":[{"data":2}]', '"more":[{"data":2},{"data":3}]')),
    (Rule.KEY_AGREES, "held", _in_history('"quotes":"6"', '"quotes":"8"')),
]


async def make_flows(path: Path) -> None:
    """Instances: awake and caught (completed), bad and cut (failed), hungry (it waits), ended (from outside while it
    waited), stopped (cancelled), busy (an activity runs), round (went round), all (with children), wrong (its input),
    held (two nodes are held, one was released, and a stream had items), listening (a stream is open, and its only
    item is done), code.
    """
    gates.__init__()  # type: ignore[misc]  # events of this loop
    fox, rounds, family = flow_of(FOX), flow_of(ROUNDS), flow_of(PARENT)
    catching, fast, held, listening = flow_of(CATCHING), flow_of(FAST), flow_of(HELD), flow_of(LISTENING)
    async with hf.Engine(
        path,
        flows=[fox, rounds, family, catching, fast, held, listening],
        workflows=[twice],
        activities=[*FOXES, quotes, endless, double, Counter().activity()],
    ) as engine:
        await engine.run(fox, {"speed": 5}, id="awake")
        await engine.run(catching, id="caught")
        await engine.run(family, id="all")
        await engine.run(twice, 3, id="code")
        with suppress(hf.WorkflowFailed):
            await engine.run(fox, {"speed": -1}, id="bad")
        with suppress(hf.WorkflowFailed):
            await engine.run(fast, id="cut")
        async with await hf.connect(path) as client:  # it does not know what the flow takes
            handle = await client.start("fox", {"speed": "high"}, id="wrong")
            with suppress(hf.WorkflowFailed):
                await handle.result()
        for name in ("hungry", "ended", "stopped"):
            await until(await engine.start(fox, {"speed": 1}, id=name), lambda seen: seen.collation_key[0] == "5")
        await engine.get("ended").terminate("a test")
        await engine.get("stopped").cancel("a test")
        await until(await engine.start(rounds, id="round"), lambda seen: "5" in seen.collation_key)
        await until(await engine.start(held, id="held"), lambda seen: seen.collation_key[:6] == "556656")
        await engine.get("held").release("passed")
        await until(await engine.start(listening, id="listening"), lambda seen: "double" in _completed(seen))
        await engine.start(fox, {"speed": 0}, id="busy")
        await gates.reached.wait()
        with suppress(hf.WorkflowCancelled):
            await engine.get("stopped").result()


def _completed(seen: Description) -> set[str]:
    return {attempt.activity for attempt in seen.attempts if attempt.state == "COMPLETED"}


async def until(handle: hf.Handle[object], is_so: Callable[[Description], bool]) -> None:
    """Wait until an instance is described so."""
    async with asyncio.timeout(20):
        async for _ in handle.watch():
            if is_so(await handle.describe()):
                return
