"""Tasks, futures and async generators of the workflow loop, and their teardown on eviction.

``asyncio.wait``, ``as_completed`` and ``TaskGroup`` keep tasks and futures in sets, and a set iterates in the
order of hashes. The usual hash is the address, which differs from run to run; here it is the creation number
within the loop, so that every set of them iterates in the same order in every replay. Equality stays identity.

An async generator is held from its first step to its end. The garbage collector would otherwise choose the moment at
which an abandoned one runs its ``finally``, and a replay would choose another. It runs when the workflow ends;
``contextlib.aclosing`` is the way to have it earlier.

An evicted workflow has not failed: its history remains, and a replay rebuilds it, in this process or another. Its
coroutines are torn down at once, in a fixed order, under the workflow's own loop and contexts, and without any durable
step, warning or report. Coroutines that are only dropped would be closed by the collector, at any moment and on any
thread, with ``GeneratorExit`` that user code may turn into awaits.
"""

import asyncio
import gc
from asyncio import tasks
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextvars import Context
from traceback import walk_tb
from types import AsyncGeneratorType, CoroutineType
from typing import Any, Final, TypeGuard


class WorkflowFuture(asyncio.Future[Any]):
    """A future that is hashed by its creation number."""

    __slots__ = ("number",)
    number: int

    def __hash__(self) -> int:
        """The creation number, or the address until it is set (see `WorkflowTask`)."""
        try:
            return self.number
        except AttributeError:
            return id(self)


class WorkflowTask(asyncio.Task[Any]):
    """A task that is hashed by its creation number.

    The number is set right after construction, and that order matters. The constructor enters the task into
    asyncio's process-wide set of weak references, which stores the hash of that moment: the address. With the number
    as hash, the first tasks of ten thousand workflows would all collide in that set.
    """

    __slots__ = ("number",)
    number: int

    def __hash__(self) -> int:
        """The creation number, or the address while asyncio's constructor runs."""
        try:
            return self.number
        except AttributeError:
            return id(self)


class Evicted(BaseException):
    """Raised in workflow code that is being torn down, and by every Holdfast call that it makes from then on.

    It derives from BaseException, so that ``except Exception`` in a workflow does not swallow it. Plain
    Python in a ``finally`` block runs, once for each eviction; a durable step from there is impossible.
    """


MAX_THROWS_PER_TASK: Final = 100
"""How often `Evicted` is thrown into one coroutine. One that still awaits afterwards catches it for ever."""

MAX_SEARCHED_OBJECTS: Final = 10_000
"""Objects that are searched for coroutines never begun. Beyond that Python may print a warning."""

MAX_SEARCHED_AT_THE_END: Final = 200
"""The same for the objects that one task made while it was torn down, innermost frames first."""


def _hold_until_exit(endless: object) -> None:
    """Hold a coroutine that did not end until the process exits.

    Dropping it would run it once more: it would raise "coroutine ignored GeneratorExit", or, at the end of the
    program, never return.
    """
    import ctypes  # noqa: PLC0415 - slow to import, and rarely needed

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(endless))


def keep_suspended(coroutines: Iterable[object]) -> None:
    """Hold coroutines and generators suspended until the process exits, without running them."""
    for coroutine in coroutines:
        _hold_until_exit(coroutine)


def tear_down_tasks(
    loop: asyncio.AbstractEventLoop,
    entries: Sequence[tuple[WorkflowTask, Context]],
    generators: Sequence[Any],
) -> list[str]:
    """End every pending task, youngest first, then every generator. The names of those that did not end.

    The caller has made `loop` the running one. Callbacks scheduled on it from here on are never run.
    """
    stuck: list[str] = []
    pending = [(task, context) for task, context in reversed(entries) if not task.done()]
    unbegun = list(_coroutines_never_begun([task.get_coro() for task, _ in pending] + list(generators)))
    interrupt: KeyboardInterrupt | None = None
    for task, context in pending:
        coroutine = task.get_coro()
        try:
            if not _end_task(loop, task, context, unbegun):
                _hold_until_exit(coroutine)
                stuck.append(task.get_name())
        except KeyboardInterrupt as error:
            interrupt = error
    for generator in reversed(generators):
        if not _end_generator(generator, unbegun):
            _hold_until_exit(generator)
            stuck.append(getattr(generator, "__qualname__", "async generator"))
    for coroutine in unbegun:
        if _was_never_begun(coroutine):
            coroutine.close()
    if interrupt is not None:
        raise interrupt
    return stuck


def _end_task(
    loop: asyncio.AbstractEventLoop,
    task: WorkflowTask,
    context: Context,
    unbegun: "list[CoroutineType[Any, Any, Any]]",
) -> bool:
    coroutine: Any = task.get_coro()
    tasks._enter_task(loop, task)  # noqa: SLF001 - so that current_task() is right in a finally
    try:
        return _throw_until_ended(lambda: context.run(coroutine.throw, Evicted()), unbegun)
    finally:
        tasks._leave_task(loop, task)  # noqa: SLF001


def _end_generator(generator: Any, unbegun: "list[CoroutineType[Any, Any, Any]]") -> bool:
    if generator.ag_frame is None:
        return True
    closing: Any = generator.aclose()
    begun = False

    def step() -> object:
        nonlocal begun
        if begun:
            return closing.throw(Evicted())
        begun = True
        return closing.send(None)

    return _throw_until_ended(step, unbegun) and generator.ag_frame is None


def _throw_until_ended(step: Callable[[], object], unbegun: "list[CoroutineType[Any, Any, Any]]") -> bool:
    """Repeat `step` while the coroutine awaits once more. Whether it ended.

    Coroutines that it made while it ended, for a ``gather`` that could not start them, are added to `unbegun`.
    """
    for _ in range(MAX_THROWS_PER_TASK):
        try:
            step()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - it has ended, and its error is not reported
            its_own = error.__traceback__.tb_next if error.__traceback__ else None
            frames = [list(frame.f_locals.values()) for frame, _ in walk_tb(its_own)]
            unbegun.extend(_coroutines_never_begun(frames, MAX_SEARCHED_AT_THE_END))
            return True
    return False


def _coroutines_never_begun(
    roots: Sequence[object], most: int = MAX_SEARCHED_OBJECTS
) -> Iterator["CoroutineType[Any, Any, Any]"]:
    """The coroutines that the frames of `roots` hold and never awaited.

    Python warns about such a coroutine when it is dropped. In an evicted workflow that is no mistake: the
    replay will await it. The search follows the references of frames, of the coroutines they await, and of plain
    containers.
    """
    seen: set[int] = set()
    waiting: list[object] = [root for root in roots if root is not None]
    while waiting and len(seen) < most:
        held = waiting.pop()
        if id(held) in seen:
            continue
        seen.add(id(held))
        if _is_coroutine(held):
            if _was_never_begun(held):
                yield held
            waiting.extend(gc.get_referents(held))
        elif isinstance(held, AsyncGeneratorType | list | tuple | set | frozenset | dict):
            waiting.extend(gc.get_referents(held))


def _is_coroutine(held: object) -> "TypeGuard[CoroutineType[Any, Any, Any]]":
    return isinstance(held, CoroutineType)


def _was_never_begun(coroutine: "CoroutineType[Any, Any, Any]") -> bool:
    return coroutine.cr_frame is not None and not coroutine.cr_running and not coroutine.cr_suspended


MIN_GENERATORS_BETWEEN_SWEEPS: Final = 64
"""Finished generators are removed in sweeps."""


class HeldGenerators:
    """Generators that have begun, oldest first."""

    __slots__ = ("_held", "_sweep_at")

    def __init__(self) -> None:
        self._held: dict[int, AsyncGenerator[Any, Any]] = {}
        self._sweep_at = MIN_GENERATORS_BETWEEN_SWEEPS

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Hold `generator`, which takes its first step."""
        if len(self._held) >= self._sweep_at:
            self._held = {key: held for key, held in self._held.items() if is_unfinished(held)}
            self._sweep_at = 2 * len(self._held) + MIN_GENERATORS_BETWEEN_SWEEPS
        self._held[id(generator)] = generator

    def take_abandoned(self) -> list[AsyncGenerator[Any, Any]]:
        """Remove and return the unfinished generators that no task is executing."""
        abandoned = [
            generator
            for generator in self._held.values()
            if is_unfinished(generator) and not getattr(generator, "ag_running", False)
        ]
        for generator in abandoned:
            del self._held[id(generator)]
        return abandoned

    def take_all(self) -> list[AsyncGenerator[Any, Any]]:
        """Remove and return all generators."""
        everything = list(self._held.values())
        self._held.clear()
        return everything


def is_unfinished(generator: AsyncGenerator[Any, Any]) -> bool:
    """Whether an async generator still has a frame, and so perhaps a ``finally`` to run."""
    return getattr(generator, "ag_frame", None) is not None


async def close(generator: AsyncGenerator[Any, Any]) -> None:
    """Close a generator from a task of its own."""
    await generator.aclose()
