"""Tears the coroutines of a workflow down when the worker lets go of it.

A coroutine that is simply dropped would be closed by the collector, at any moment and on any thread, with
``GeneratorExit`` that user code may turn into awaits. Here it happens at once, in a fixed order, under the
workflow's own loop and contexts, and silently: no durable step, no warning and no report comes out of it.
"""

import asyncio
import gc
from asyncio import tasks
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import Context
from traceback import walk_tb
from types import AsyncGeneratorType, CoroutineType
from typing import Any, Final, TypeGuard

from holdfast.replay.evicted import Evicted
from holdfast.replay.futures import WorkflowTask

MAX_THROWS_PER_TASK: Final = 100
"""How often `Evicted` is thrown into one coroutine. One that awaits after that many catches it for ever."""

MAX_SEARCHED_OBJECTS: Final = 10_000
"""How many objects are searched for coroutines never begun. Beyond that a warning may be printed."""

MAX_SEARCHED_ON_THE_WAY_OUT: Final = 200
"""The same for what one task made while it was torn down: the innermost frames, where a ``gather`` is, come first."""


def _never_let_go(endless: object) -> None:
    """Keep what would not end until the process is gone. Dropping it would run it once more: it raises "coroutine
    ignored GeneratorExit" out of nowhere, or, at the end of the program, never comes back.
    """
    import ctypes  # noqa: PLC0415 - it is slow to import, and nearly nobody ever needs it

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(endless))


def keep_suspended(coroutines: Iterable[object]) -> None:
    """Keep coroutines and generators as they are until the process is gone, without running them."""
    for coroutine in coroutines:
        _never_let_go(coroutine)


def tear_down(
    loop: asyncio.AbstractEventLoop,
    entries: Sequence[tuple[WorkflowTask, Context]],
    generators: Sequence[Any],
) -> list[str]:
    """End every pending task, youngest first, then every generator. Return the names of those that did not
    end.

    The caller has made `loop` the running one and deaf: nothing scheduled on it from here on is ever run.
    """
    stuck: list[str] = []
    pending = [(task, context) for task, context in reversed(entries) if not task.done()]
    unbegun = list(_coroutines_never_begun([task.get_coro() for task, _ in pending] + list(generators)))
    interrupt: KeyboardInterrupt | None = None
    for task, context in pending:
        coroutine = task.get_coro()
        try:
            if not _end_task(loop, task, context, unbegun):
                _never_let_go(coroutine)
                stuck.append(task.get_name())
        except KeyboardInterrupt as error:
            interrupt = error
    for generator in reversed(generators):
        if not _end_generator(generator, unbegun):
            _never_let_go(generator)
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
    """Repeat `step` for as long as the coroutine answers with another await. Tell whether it ended.

    Coroutines that it made on its way out, for a ``gather`` that could not take them, go to `unbegun`.
    """
    for _ in range(MAX_THROWS_PER_TASK):
        try:
            step()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it ends with, it has ended, and nobody is to hear of it
            its_own = error.__traceback__.tb_next if error.__traceback__ else None
            frames = [list(frame.f_locals.values()) for frame, _ in walk_tb(its_own)]
            unbegun.extend(_coroutines_never_begun(frames, MAX_SEARCHED_ON_THE_WAY_OUT))
            return True
    return False


def _coroutines_never_begun(
    roots: Sequence[object], most: int = MAX_SEARCHED_OBJECTS
) -> Iterator["CoroutineType[Any, Any, Any]"]:
    """Find the coroutines that the frames of `roots` hold and never awaited.

    Python warns about such a coroutine when it is dropped. In an evicted workflow that is no mistake: the
    replay will await it. The frames' own references are followed, through the coroutines they await and plain
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
