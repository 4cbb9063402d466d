"""Sample workflows for the crash tests, and a program that runs one of them (`tests.crash.program`)."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.crash.program import KillAt, ran, run_program

import holdfast as hf
from holdfast.runtime.platform import Platform

CONTINUED_UNTIL = 3
EXECUTOR = Path(__file__).with_name("executor.py")
"""The program that runs external activities."""


@hf.activity(max_losses=1_000)
async def step(number: int) -> int:
    ran(f"step {number}")
    return number + 1


@hf.activity(retry=hf.Retry(attempts=4, initial=0.005), max_losses=1_000)
async def flaky(number: int) -> int:
    attempt = hf.activity_info().attempt
    ran(f"flaky {number}")
    await asyncio.sleep(0.001)
    if number % 2 == 0 and attempt == 1:
        raise ConnectionError(f"{number} is even")
    return number * number


@hf.activity(max_losses=1_000)
def blocking(number: int) -> int:
    ran(f"blocking {number}")
    return number * 10


async def get_ready(number: int) -> int:
    ran(f"get_ready {number}")
    await asyncio.sleep(0.001)
    return number + 100


def get_ready_in_thread(number: int) -> int:
    ran(f"get_ready_in_thread {number}")
    return number + 200


@hf.activity(prepare=get_ready, max_losses=1_000)
async def readied(number: int) -> int:
    ran(f"readied {number}")
    return int(hf.activity_info().prepared)


@hf.activity(prepare=get_ready_in_thread, max_losses=1_000)
def readied_in_thread(number: int) -> int:
    ran(f"readied_in_thread {number}")
    return int(hf.activity_info().prepared)


@hf.workflow
async def preparing() -> list[int]:
    """Activities that are prepared, one after the other and side by side (L2, L3)."""
    first = await readied(0)
    return [first, *await asyncio.gather(readied_in_thread(1), readied(2)), await readied(3)]


@hf.activity(external=True, queue="launched", start_to_close=60)
async def launched(number: int) -> int: ...  # type: ignore[empty-body]


@hf.workflow
async def launching() -> list[int]:
    """External activities that are launched, beside a step that the worker runs (C4)."""
    return [await launched(1), *await asyncio.gather(launched(2), step(2))]


@hf.workflow
async def sequence() -> int:
    number = 0
    for _ in range(4):
        number = await step(number)
    return number


@hf.workflow
async def fan_out() -> list[int]:
    return list(await asyncio.gather(*(flaky(number) for number in range(5))))


@hf.workflow
async def timers() -> list[int]:
    async def later(number: int) -> int:
        await asyncio.sleep(0.01 * number)
        return await blocking(number)

    first = list(await asyncio.gather(*(later(number) for number in range(1, 4))))
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(3600)
    except TimeoutError:
        first.append(hf.side_effect(lambda: 7, int))
    return [*first, await step(0)]


@hf.workflow
async def cleaning() -> int:
    """Ends with a task left over, whose clean-up takes several steps, side by side and one after the other (G14)."""

    async def stay() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.gather(step(10), step(20))
            await step(30)

    left_over = asyncio.create_task(stay())
    number = await step(0)
    return number if not left_over.done() else -1


@hf.activity(max_losses=1_000, resumable=True)
async def resuming(count: int) -> AsyncIterator[int]:
    ran(f"resuming {count}")
    for number in range(hf.activity_info().delivered, count):
        yield number
        await asyncio.sleep(0.001)


@hf.activity(max_losses=1_000)
async def restarting(count: int) -> AsyncIterator[int]:
    ran(f"restarting {count}")
    for number in range(count):
        yield number
        await asyncio.sleep(0.001)


@hf.workflow
async def streaming() -> list[list[int]]:
    """Two streams: one goes on where it was, and of the other the values of its last attempt count (L15)."""
    first = [number async for number in resuming(5)]
    second: list[int] = []
    stream = restarting(4)
    while True:
        try:
            async for number in stream:
                second.append(number)
        except hf.StreamRestarted as restarted:
            if len(second) != restarted.delivered:
                raise
            second.clear()
        else:
            return [first, second]


@hf.workflow
async def keeping() -> list[int]:
    """Counts in its state, and goes on when the state says so."""
    hf.state["done"] = []

    async def count(number: int) -> None:
        result = await step(number)
        hf.state["done"] = [*hf.state["done"], result]
        hf.set_status(f"{len(hf.state['done'])} done")

    counting = [asyncio.create_task(count(number)) for number in range(3)]
    await hf.wait_until(lambda: len(hf.state["done"]) == len(counting), timeout=3600)
    for number in range(3, 5):
        await count(number)
    return sorted(hf.state["done"])


@hf.workflow
async def continuing(number: int = 0) -> int:
    """Three executions, each of which leaves a timer behind (G4)."""
    left_over = asyncio.create_task(asyncio.sleep(3600))
    number = await step(number)
    if number < CONTINUED_UNTIL and not left_over.done():
        hf.continue_as_new(number)
    return number


@hf.workflow
async def talking() -> list[int]:
    """Raises events to itself, reads some late and some in another order, and gives one wait up (G6)."""
    me = hf.info().id
    for number in range(3):
        hf.raise_event(me, "number", number)
        hf.raise_event(me, "other", number * 10)
    first = await step(await hf.event("number", int))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            await hf.event("never", int)
    others = [await hf.event("other", int) for _ in range(3)]
    rest = await asyncio.gather(hf.event("number", int), hf.event("number", int))
    return [first, *others, *rest]


@hf.workflow(deadline=0.05)
async def overdue() -> list[int]:
    """Asked to end at its deadline, cleans up in several steps, and answers (A9)."""
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        return [await step(0), *await asyncio.gather(step(1), step(2)), await step(3)]
    return []


@hf.workflow
async def updating() -> list[int]:
    """Is changed by its own sender, with activities and timers in between; one change is rejected."""
    found: list[int] = []

    @hf.on_update
    async def add(number: int) -> int:
        found.append(await step(number))
        await asyncio.sleep(0.001)
        return len(found)

    @add.validator
    def check(number: int) -> None:
        if number < 0:
            raise ValueError("too small")

    await hf.wait_until(lambda: len(found) == len(SENT))
    await hf.wait_until(hf.all_handlers_finished)
    return sorted(found)


SENT = (4, 5, 6)


async def send(handle: hf.Handle[object]) -> None:
    """The sender: one who was killed sends the same again, and gets the same answers."""
    answers = [await handle.update("add", number, id=f"add {number}", returns=int) for number in SENT]
    assert answers == [1, 2, 3]
    with contextlib.suppress(hf.UpdateRejected, hf.InstanceClosed):
        await handle.update("add", -1, id="no")
        raise AssertionError("it was accepted")


@hf.workflow
async def accepting() -> list[int]:
    """Its start brings the first update; the sender of the others goes on when they are accepted (G17)."""
    found: list[int] = []

    @hf.on_update
    async def add(number: int) -> int:
        found.append(await step(number))
        await asyncio.sleep(0.001)
        return number

    await hf.wait_until(lambda: len(found) == len(SENT))
    await hf.wait_until(hf.all_handlers_finished)
    return sorted(found)


async def accept(engine: hf.Engine) -> None:
    """Start the workflow with an update and send the others. A sender that was killed does the same again."""
    first, *others = SENT
    handle = await engine.start(accepting, id="it", update=("add", (first,)), update_id=f"add {first}")
    assert handle.sent_update is not None
    sent = [handle.sent_update, *[await handle.start_update("add", each, id=f"add {each}") for each in others]]
    assert [await each.result() for each in sent] == list(SENT)
    assert [await engine.get_update("it", f"add {each}").result() for each in SENT] == list(SENT)


@hf.workflow
async def packs(number: int) -> int:
    return await step(10 * number) + await step(10 * number + 1)


@hf.workflow
async def stumbles() -> None:
    raise ValueError(f"no room after {await step(90)}")


@hf.workflow
async def tidies(ready: str) -> None:
    """Waits until it is asked to end, and cleans up."""
    hf.raise_event(ready, "ready")
    try:
        await asyncio.sleep(3600)
    finally:
        await step(95)


@hf.workflow
async def family() -> list[object]:
    """Children that return, fail, are cancelled, are refused, and are open at the end (G11, A9)."""
    found: list[object] = list(await asyncio.gather(packs(1), packs(2)))
    try:
        await stumbles()
    except hf.WorkflowFailed as error:
        found.append(str(error.cause))
    handle = await hf.start(tidies, hf.info().id, id="tidy")
    await hf.event("ready")
    handle.cancel("enough")
    try:
        await handle
    except hf.WorkflowCancelled as error:
        found.append(str(error))
    with contextlib.suppress(hf.InstanceConflict):
        await hf.start(packs, 3, id="tidy")
    await hf.start("nobody has this")
    return found


@hf.workflow(name="patching")
async def before_patches(rounds: int = 2) -> int:
    """The code of "patching" before a deploy."""
    number = await step(100 * rounds)
    await hf.event("deployed")
    return number


@hf.workflow
async def patching(rounds: int = 2) -> list[int]:
    """An execution that began before its patches keeps the old branch; the next one takes the new ones (R14)."""
    found: list[int] = []
    for number in range(2):
        base = 100 * rounds + 10 * number
        found.append(await step(base + 5 if hf.patched("other") else base))
        if number == 0 and rounds > 1:
            await hf.event("deployed")
    if hf.patched("last"):
        found.append(await step(100 * rounds + 50))
    if rounds > 1:
        hf.continue_as_new(rounds - 1)
    return found


async def deploy(store: str, world: Platform) -> None:
    """Run the instance on its former code until it waits, and raise the event that it waits for."""
    async with hf.Engine(store, workflows=[before_patches], activities=ACTIVITIES, _platform=world) as engine:
        handle = await engine.start("patching", id="it")
        while (found := await handle.describe()).execution == 1 and found.turn < WAITING_TURN:  # noqa: ASYNC110
            await asyncio.sleep(0.002)


WAITING_TURN = 2
"""The turns of "patching" after which it waits."""


EXPECTED = {
    "sequence": 4,
    "fan_out": [0, 1, 4, 9, 16],
    "timers": [10, 20, 30, 7, 1],
    "preparing": [100, 201, 102, 103],
    "launching": [10, 20, 3],
    "cleaning": 1,
    "streaming": [[0, 1, 2, 3, 4], [0, 1, 2, 3]],
    "keeping": [1, 2, 3, 4, 5],
    "continuing": CONTINUED_UNTIL,
    "talking": [1, 0, 10, 20, 1, 2],
    "overdue": [1, 2, 3, 4],
    "updating": [5, 6, 7],
    "accepting": [5, 6, 7],
    "patching": [106, 116, 151],
    "family": [23, 43, "no room after 91", "tidy was cancelled: enough"],
}
STATES = {
    "family": {
        "it": "COMPLETED",
        "it/1/0": "COMPLETED",
        "it/1/1": "COMPLETED",
        "it/1/2": "FAILED",
        "tidy": "CANCELLED",
        "it/1/5": "TERMINATED",
    }
}
"""Where the instances are in the end, of workflows that have others."""
WORKFLOWS = {workflow.name: workflow for workflow in (sequence, fan_out, timers)}
"""What the tests with many instances mix."""
ACTIVITIES: list[hf.Activity[..., Any]] = [
    step,
    flaky,
    blocking,
    readied,
    readied_in_thread,
    launched,
    resuming,
    restarting,
]


async def finish(store: str, workflow: str, hook: KillAt | None) -> object:
    world = Platform(fault_hook=hook)
    workflows: list[hf.Workflow[..., Any]] = [
        *WORKFLOWS.values(),
        preparing,
        launching,
        cleaning,
        streaming,
        keeping,
        continuing,
        talking,
        overdue,
        updating,
        accepting,
        patching,
    ]
    workflows += [family, packs, stumbles, tidies]
    launcher = hf.CommandLauncher([sys.executable, str(EXECUTOR), store])
    engine = hf.Engine(
        store, workflows=workflows, activities=ACTIVITIES, launchers={"launched": launcher}, _platform=world
    )
    if workflow == patching.name:
        await deploy(store, world)
    async with engine:
        if workflow == patching.name:
            with contextlib.suppress(hf.InstanceClosed):
                await engine.get("it").raise_event("deployed", id="once")
        if workflow == updating.name:
            await send(await engine.start(workflow, id="it"))
        if workflow == accepting.name:
            await accept(engine)
        return await engine.run(workflow, id="it")


def main() -> None:
    run_program(finish)
