"""Random workflows out of asyncio's tools, and the trace each leaves.

A program is a tree of tuples: its kind, then its arguments. `trace_of` runs it, fires its timers in a given
order and returns every step and every timer. Run as a script with a first seed and a count it prints a hash
for each, on any Python and without any package beside Holdfast, so that interpreters can be compared.
"""
# ruff: noqa: ASYNC109 - the nodes of a program have time-outs

import asyncio
import hashlib
import random  # noqa: TID251 - programs are made from seeds
import sys
from collections.abc import AsyncGenerator
from typing import Any, TypeAlias

from holdfast.replay.loop.event_loop import WorkflowLoop

Program: TypeAlias = tuple[Any, ...]

MAX_TIMERS_FIRED = 200
MAX_STEPS = 20_000
LEAVES = ("sleep", "step", "fail", "put", "get", "set", "event", "notify", "condition", "cancel", "uncancel")
BRANCHES = (
    "sequence",
    "gather",
    "gather_all",
    "first",
    "first_error",
    "all",
    "group",
    "completed",
    "completed_async",
)
WRAPPERS = ("wait_for", "timeout", "shield", "lock", "semaphore", "catch", "spawn", "generator", "repeat")


class Failed(Exception):
    pass


class Interpreter:
    """Runs one program and writes its trace."""

    def __init__(self) -> None:
        self.trace: list[tuple[Any, ...]] = []
        self.queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)
        self.lock, self.semaphore = asyncio.Lock(), asyncio.Semaphore(2)
        self.event, self.condition = asyncio.Event(), asyncio.Condition()
        self.spawned: list[asyncio.Task[Any]] = []

    def timer_started(self, number: int, due_at: float) -> None:
        self.trace.append(("timer", number, due_at))

    def timer_cancelled(self, number: int) -> None:
        self.trace.append(("cancelled", number))

    def unhandled(self, context: dict[str, Any]) -> None:
        """Reports come when the collector finds them; they are no part of a trace."""

    async def run(self, program: Program, path: str) -> str:
        self.trace.append(("enter", path, program[0]))
        outcome = "interrupted"
        try:
            await getattr(self, "do_" + program[0])(path, *program[1:])
            outcome = "done"
        except BaseException as error:
            outcome = type(error).__name__
            raise
        finally:
            self.trace.append(("leave", path, outcome))
        return path

    def tasks(self, path: str, children: list[Program]) -> list[asyncio.Task[Any]]:
        made = [asyncio.create_task(self.run(child, f"{path}.{index}")) for index, child in enumerate(children)]
        self.spawned.extend(made)
        return made

    async def do_sleep(self, _path: str, delay: float) -> None:
        await asyncio.sleep(delay)

    async def do_step(self, _path: str, _delay: float) -> None:
        await asyncio.sleep(0)

    async def do_fail(self, path: str, _delay: float) -> None:
        raise Failed(path)

    async def do_put(self, _path: str, delay: float) -> None:
        await self.queue.put(int(delay))

    async def do_get(self, _path: str, _delay: float) -> None:
        self.trace.append(("got", await self.queue.get()))

    async def do_set(self, _path: str, delay: float) -> None:
        if delay > 2:
            self.event.clear()
        else:
            self.event.set()

    async def do_event(self, _path: str, _delay: float) -> None:
        await self.event.wait()

    async def do_notify(self, _path: str, delay: float) -> None:
        async with self.condition:
            self.condition.notify(int(delay) + 1)

    async def do_condition(self, _path: str, _delay: float) -> None:
        async with self.condition:
            await self.condition.wait()

    async def do_cancel(self, _path: str, delay: float) -> None:
        others = [task for task in self.spawned if task is not asyncio.current_task()]
        if others:
            others[int(delay * 7) % len(others)].cancel()

    async def do_uncancel(self, _path: str, _delay: float) -> None:
        task = asyncio.current_task()
        if task is not None:
            self.trace.append(("cancelling", task.cancelling()))

    async def do_sequence(self, path: str, _timeout: float | None, *children: Program) -> None:
        for index, child in enumerate(children):
            await self.run(child, f"{path}.{index}")

    async def do_gather(self, path: str, _timeout: float | None, *children: Program) -> None:
        await asyncio.gather(*(self.run(child, f"{path}.{index}") for index, child in enumerate(children)))

    async def do_gather_all(self, path: str, _timeout: float | None, *children: Program) -> None:
        made = self.tasks(path, list(children))
        await asyncio.sleep(0)
        outcomes = await asyncio.gather(*made, return_exceptions=True)
        self.trace.append(("gathered", *[str(outcome) for outcome in outcomes]))

    async def _wait(self, path: str, timeout: float | None, children: tuple[Program, ...], when: str) -> None:
        if not children:
            return
        done, pending = await asyncio.wait(self.tasks(path, list(children)), timeout=timeout, return_when=when)
        self.trace.append(("waited", [task.get_name() for task in done], [task.get_name() for task in pending]))

    async def do_first(self, path: str, timeout: float | None, *children: Program) -> None:
        await self._wait(path, timeout, children, asyncio.FIRST_COMPLETED)

    async def do_first_error(self, path: str, timeout: float | None, *children: Program) -> None:
        await self._wait(path, timeout, children, asyncio.FIRST_EXCEPTION)

    async def do_all(self, path: str, timeout: float | None, *children: Program) -> None:
        await self._wait(path, timeout, children, asyncio.ALL_COMPLETED)

    async def do_group(self, path: str, timeout: float | None, *children: Program) -> None:
        async with asyncio.TaskGroup() as group:
            for index, child in enumerate(children):
                self.spawned.append(group.create_task(self.run(child, f"{path}.{index}")))
            if timeout is not None:
                await asyncio.sleep(timeout)

    async def do_completed(self, path: str, timeout: float | None, *children: Program) -> None:
        members = [self.run(child, f"{path}.{index}") for index, child in enumerate(children)]
        for nearest in asyncio.as_completed(members, timeout=timeout):
            self.trace.append(("next", await nearest))

    async def do_completed_async(self, path: str, timeout: float | None, *children: Program) -> None:
        completed: Any = asyncio.as_completed(self.tasks(path, list(children)), timeout=timeout)
        async for task in completed:
            self.trace.append(("next", task.get_name()))

    async def do_wait_for(self, path: str, timeout: float | None, child: Program) -> None:
        await asyncio.wait_for(self.run(child, path + ".w"), timeout)

    async def do_timeout(self, path: str, timeout: float | None, child: Program) -> None:
        async with asyncio.timeout(timeout):
            await self.run(child, path + ".t")

    async def do_shield(self, path: str, _timeout: float | None, child: Program) -> None:
        await asyncio.shield(self.run(child, path + ".s"))

    async def do_lock(self, path: str, _timeout: float | None, child: Program) -> None:
        async with self.lock:
            await self.run(child, path + ".l")

    async def do_semaphore(self, path: str, _timeout: float | None, child: Program) -> None:
        async with self.semaphore:
            await self.run(child, path + ".m")

    async def do_catch(self, path: str, _timeout: float | None, child: Program) -> None:
        try:
            await self.run(child, path + ".c")
        except (Failed, TimeoutError, ExceptionGroup, asyncio.CancelledError) as error:
            self.trace.append(("caught", type(error).__name__))
            await asyncio.sleep(0)

    async def do_spawn(self, path: str, _timeout: float | None, child: Program) -> None:
        self.tasks(path, [child])

    async def do_generator(self, path: str, _timeout: float | None, child: Program) -> None:
        async def generate() -> AsyncGenerator[str, None]:
            try:
                for index in range(3):
                    yield await self.run(child, f"{path}.g{index}")
            finally:
                self.trace.append(("generator ends", path))

        async for _ in generate():
            break

    async def do_repeat(self, path: str, _timeout: float | None, child: Program) -> None:
        for index in range(2):
            await self.run(child, f"{path}.r{index}")


def trace_of(program: Program, order: random.Random) -> list[tuple[Any, ...]]:
    """Run `program`, fire its timers as `order` says, end it, and return the trace."""
    interpreter = Interpreter()
    loop = WorkflowLoop(interpreter)
    main = loop.create_task(interpreter.run(program, "0"))
    interpreter.spawned.append(main)
    steps = loop.run_until_idle(max_steps=MAX_STEPS)
    for _ in range(MAX_TIMERS_FIRED):
        timers = list(loop.pending_timers)
        if main.done() or not timers:
            break
        number = timers[int(order.random() * len(timers))]
        interpreter.trace.append(("fire", number, steps, loop.time()))
        loop.fire_timer(number)
        steps = loop.run_until_idle(max_steps=MAX_STEPS)
    if main.done():
        left = loop.cancel_left_over(main, max_steps=MAX_STEPS)
        interpreter.trace.append(("left over", len(left), main.cancelled()))
        if not main.cancelled():
            main.exception()
    interpreter.trace.append(("stuck", loop.evict()))
    return interpreter.trace


def random_program(source: random.Random, depth: int = 4) -> Program:
    """Make a program. Only ``random()`` is used, whose numbers are the same on every Python."""

    def pick(values: tuple[str, ...]) -> str:
        return values[int(source.random() * len(values))]

    timeout = None if source.random() < 0.4 else int(source.random() * 4)
    shape = source.random()
    if depth == 0 or shape < 0.2:
        return (pick(LEAVES), int(source.random() * 4))
    if shape < 0.6:
        children = (random_program(source, depth - 1) for _ in range(int(source.random() * 5)))
        return (pick(BRANCHES), timeout, *children)
    return (pick(WRAPPERS), timeout, random_program(source, depth - 1))


def trace_of_seed(seed: int) -> list[tuple[Any, ...]]:
    source = random.Random(seed)  # noqa: S311
    return trace_of(("catch", None, random_program(source, 6)), source)


def digest_of_seed(seed: int) -> str:
    return hashlib.sha256(repr(trace_of_seed(seed)).encode()).hexdigest()[:16]


def main() -> None:
    """Print the digests of the seeds from the first argument on, as many as the second says."""
    first, count = int(sys.argv[1]), int(sys.argv[2])
    for seed in range(first, first + count):
        sys.stdout.write(f"{seed} {digest_of_seed(seed)}\n")


if __name__ == "__main__":
    main()
