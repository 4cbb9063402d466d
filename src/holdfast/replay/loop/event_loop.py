"""The event loop that runs workflow code deterministically (G10, G12, G14).

It has no selector, no threads and no clock: a queue of callbacks that are ready, a set of durable timers, and
a time that its driver sets. Given the same calls of `advance_to`, `fire_timer` and of the futures that the driver
resolves, in the same order, it takes the same steps, because the queue is first in first out, timers fire
only when the history has it, and tasks are numbered by creation.

The driver runs it in slices, `run_until_idle`, on a thread whose own asyncio loop is running at that moment. For the
time of a slice it takes the place of that loop (`loop_swap`). It reports timers and unhandled exceptions to its
`LoopHost`. Tasks that the main function leaves running are cancelled once each (G14).
"""

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from threading import get_ident
from typing import Any, Final, Protocol, TypeVarTuple, Unpack

from holdfast.core.checks import require
from holdfast.core.run import SliceRunner, run_unwatched
from holdfast.errors import InvalidDelay, NotInWorkflow, TurnTooLong
from holdfast.replay.loop import asyncio_patches
from holdfast.replay.loop.loop_swap import run_swapped, swap_in, swap_out
from holdfast.replay.loop.restricted_loops import IsolatedLoop
from holdfast.replay.loop.tasks import (
    Evicted,
    HeldGenerators,
    WorkflowFuture,
    WorkflowTask,
    close,
    keep_suspended,
    tear_down_tasks,
)


class ReadyHandle(asyncio.Handle):
    """A callback in the ready queue: asyncio's handle without its debug fields. One is made per step."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


NO_TIMER = 0
"""The number of a timer handle without a durable timer: due at once, or never."""


def _nothing(*_arguments: object) -> None:
    """The callback of a cancelled handle."""


class TimerHandle(asyncio.TimerHandle):
    """The handle that ``call_later`` and ``call_at`` return. Cancelling it notifies the loop once."""

    __slots__ = ("_on_cancel", "number")

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        *,
        context: Context | None,
        number: int = NO_TIMER,
        on_cancel: "Callable[[TimerHandle], None]" = _nothing,
    ) -> None:
        self._when = when
        self._scheduled = False
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self.number = number
        self._on_cancel = on_cancel

    def cancel(self) -> None:
        """Drop the callback, and cancel the durable timer, if there is one."""
        if not self._cancelled:
            self._cancelled = True
            self._callback = _nothing
            self._args = ()
            if self.number != NO_TIMER:
                self._on_cancel(self)


DEADLINE_CHECK_STEPS: Final = 256
"""Steps between two calls of the deadline function, which reads a clock."""


def drain(
    ready: deque[ReadyHandle | TimerHandle],
    unhandled: list[dict[str, Any]],
    max_steps: int,
    deadline: Callable[[], bool] | None,
) -> int:
    """Run callbacks until none is ready. The exceptions that they raise are added to `unhandled`."""
    steps = 0
    while ready:
        if steps >= max_steps:
            raise TurnTooLong(
                f"the workflow took max_steps={max_steps} steps without waiting for anything durable; "
                "look for a loop around asyncio.sleep(0), or split the work over several turns"
            )
        steps += 1
        handle = ready.popleft()
        if handle._cancelled:  # noqa: SLF001 - asyncio's own loops read these too
            continue
        context = handle._context  # noqa: SLF001
        args = handle._args  # noqa: SLF001
        try:
            if len(args) == 1:  # most callbacks are steps of a task, with the awaited future as argument
                context.run(handle._callback, args[0])  # noqa: SLF001
            else:
                context.run(handle._callback, *args)  # noqa: SLF001
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - reported to the host
            # The task that raised a SystemExit stores it: it ends the workflow, not the worker.
            unhandled.append({"message": "exception in a callback of a workflow", "exception": error, "handle": handle})
        if deadline is not None and steps % DEADLINE_CHECK_STEPS == 0 and deadline():
            raise TurnTooLong(f"the turn was still busy at its deadline, after {steps} steps")
    return steps


class LoopHost(Protocol):
    """Receives the reports of a loop. No method is called once an eviction has begun."""

    def timer_started(self, number: int, due_at: float) -> None:
        """The workflow has started a durable timer. Numbers count up from 1."""
        ...

    def timer_cancelled(self, number: int) -> None:
        """The workflow has cancelled a durable timer that has not fired. Called once for a timer."""
        ...

    def unhandled(self, context: dict[str, Any]) -> None:
        """No code has handled an exception: asyncio's context with its message and exception."""
        ...


class DetachedHost:
    """The host of an evicted loop: it replaces the run, so that run and loop do not refer to each other."""

    def timer_started(self, number: int, due_at: float) -> None:
        del number, due_at

    def timer_cancelled(self, number: int) -> None:
        del number

    def unhandled(self, context: dict[str, Any]) -> None:
        del context


class LeftoverTasks:
    """The tasks that were pending when the main function ended. Tasks started later, to clean up, are not included."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: list[WorkflowTask] | None = None

    def note(self, pending: list[WorkflowTask]) -> None:
        """Store the tasks that are pending in the last step of the main function."""
        self._tasks = pending

    def cancel(self, pending: list[WorkflowTask]) -> bool:
        """Cancel the tasks that were not cancelled yet. Whether one was.

        A task that is being cancelled already, by the workflow's own code or with another task, may clean up first. If
        it continues afterwards, as after a time-out of its own, a later call cancels it.
        """
        is_cancelled = False
        being_cancelled: list[WorkflowTask] = []
        for task in pending if self._tasks is None else self._tasks:
            if task.cancelling():
                being_cancelled.append(task)
            else:
                is_cancelled = task.cancel() or is_cancelled
        self._tasks = being_cancelled
        return is_cancelled


MAX_STEPS_PER_RUN: Final = 1_000_000
"""Callbacks run by one `run_until_idle`. A workflow that never idles would block its worker for ever."""
MAX_LEFT_OVER_ROUNDS: Final = 100
"""Rounds of cancelling and closing at the end of a workflow. Closing a generator may leave others behind."""
LAST_DUE_AT_SECONDS: Final = 253_402_300_799.0
"""The end of the year 9999, the last time that a `datetime` can hold. A timer due later never fires."""
MIN_TASKS_BETWEEN_SWEEPS: Final = 64
"""Finished tasks are removed in sweeps, which cost less than a callback on each task."""

Arguments = TypeVarTuple("Arguments")


class WorkflowLoop(IsolatedLoop):
    """A deterministic event loop for one workflow instance."""

    def __init__(
        self,
        host: LoopHost,
        *,
        start_at: float = 0.0,
        watch: SliceRunner | None = None,
        watch_teardown: SliceRunner | None = None,
    ) -> None:
        asyncio_patches.install()
        self.host: LoopHost = host
        """Receives timers and unhandled exceptions."""
        self.watch = watch or run_unwatched
        self._watch_teardown = watch_teardown or self.watch
        self._now = start_at
        self._ready: deque[ReadyHandle | TimerHandle] = deque()
        self._timers: dict[int, TimerHandle] = {}
        self._last_timer = 0
        self._last_number = 0
        self._tasks: dict[int, tuple[WorkflowTask, Context]] = {}
        self._sweep_at = MIN_TASKS_BETWEEN_SWEEPS
        self._generators = HeldGenerators()
        self._unhandled: list[dict[str, Any]] = []
        self._left_over = LeftoverTasks()
        self._running = False
        self._evicting = False
        self._thread = get_ident()

    # ------------------------------------------------------------------ time and timers

    def time(self) -> float:
        """The logical time in seconds: that of the input being applied, the same in every replay."""
        return self._now

    def advance_to(self, seconds: float) -> None:
        """Move the time forward to `seconds`. A time in the past changes nothing."""
        if seconds > self._now:
            self._now = seconds
        elif math.isnan(seconds):
            raise InvalidDelay("the time of a workflow cannot become NaN")

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule `callback` after `delay` seconds, by a durable timer if the delay is above zero."""
        return self._schedule(self._now + delay, callback, args, context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule `callback` for `when`. A time that is not in the future needs no timer."""
        return self._schedule(when, callback, args, context)

    def _schedule(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> asyncio.TimerHandle:
        if when != when:  # noqa: PLR0124 - only NaN differs from itself
            raise InvalidDelay("a delay or a due time was NaN, expected a number of seconds")
        if when <= self._now:
            handle = TimerHandle(when, callback, args, self, context=context)
            if not self._evicting:
                self._ready.append(handle)
            return handle
        if self._evicting or when > LAST_DUE_AT_SECONDS:
            return TimerHandle(when, callback, args, self, context=context)
        self._last_timer = number = self._last_timer + 1
        handle = self._timers[number] = TimerHandle(
            when,
            callback,
            args,
            self,
            context=context,
            number=number,
            on_cancel=self._timer_handle_cancelled,
        )
        self.host.timer_started(number, when)
        return handle

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """Report the cancellation of a timer that has not fired."""
        if self._timers.pop(handle.number, None) is not None and not self._evicting:
            self.host.timer_cancelled(handle.number)

    def fire_timer(self, number: int) -> bool:
        """Make a timer's callback ready and the time at least its due time.

        False, without any change, for a timer that does not exist, has fired or was cancelled.
        """
        handle = self._timers.pop(number, None)
        if handle is None:
            return False
        self._now = max(self._now, handle.when())
        handle.number = NO_TIMER
        self._ready.append(handle)
        return True

    def has_timer(self, number: int) -> bool:
        """Whether a timer is pending."""
        return number in self._timers

    @property
    def pending_timers(self) -> dict[int, float]:
        """The due times of the pending timers, by number, in the order they were started."""
        return {number: handle.when() for number, handle in self._timers.items()}

    # ------------------------------------------------------------------ callbacks, futures, tasks

    def call_soon(
        self,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Append `callback` to the ready queue. During an eviction it is never run."""
        handle = ReadyHandle(callback, args, self, context)
        if not self._evicting:
            self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """`call_soon` on the loop's own thread; refused on any other."""
        if get_ident() != self._thread:
            raise NotInWorkflow(
                "call_soon_threadsafe() reached a workflow from another thread, at a moment no replay could "
                "repeat. Let the thread run in an activity, or raise an event to the instance."
            )
        return self.call_soon(callback, *args, context=context)

    def create_future(self) -> WorkflowFuture:
        """A future with the next creation number."""
        future = WorkflowFuture(loop=self)
        self._last_number = future.number = self._last_number + 1
        return future

    def next_number(self) -> int:
        """Take the next creation number, for a future that is made elsewhere (see `asyncio_patches`)."""
        self._last_number += 1
        return self._last_number

    def create_task(
        self,
        coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
        **_newer_options: object,
    ) -> WorkflowTask:
        """Start a task and hold it until it is done.

        Its default name carries the creation number, not the process-wide count of asyncio. Options of newer
        Pythons (``eager_start``) are accepted and have no effect, so that the order of steps is the same on
        all of them.
        """
        if self._evicting:
            coro.close()
            raise Evicted
        number = self._last_number + 1
        if context is None:
            context = copy_context()
        task = WorkflowTask(coro, loop=self, name=name or f"Task-{number}", context=context)
        self._last_number = task.number = number
        task._log_destroy_pending = False  # type: ignore[attr-defined] # noqa: SLF001 - asyncio's own switch
        self._tasks[number] = (task, context)
        if len(self._tasks) >= self._sweep_at:
            self._remove_finished_tasks()
        return task

    def pending_tasks(self) -> list[WorkflowTask]:
        """The tasks that are not done, oldest first."""
        return [task for task, _ in self._tasks.values() if not task.done()]

    def _remove_finished_tasks(self) -> None:
        self._tasks = {number: entry for number, entry in self._tasks.items() if not entry[0].done()}
        self._sweep_at = 2 * len(self._tasks) + MIN_TASKS_BETWEEN_SWEEPS

    # ------------------------------------------------------------------ running

    def is_running(self) -> bool:
        """Whether a slice is running."""
        return self._running

    def is_closed(self) -> bool:
        """Whether an eviction has begun. No call of the workflow has an effect from then on."""
        return self._evicting

    def check_evicted(self) -> None:
        """Raise `Evicted` if an eviction has begun. Every durable call starts with this."""
        if self._evicting:
            raise Evicted

    def get_debug(self) -> bool:
        """False: asyncio's debug mode reads clocks."""
        return False

    def get_task_factory(self) -> None:
        """None: tasks are always this loop's own."""

    def get_exception_handler(self) -> None:
        """None: unhandled exceptions are reported to the host."""

    def run_until_idle(self, *, max_steps: int = MAX_STEPS_PER_RUN, deadline: Callable[[], bool] | None = None) -> int:
        """Run callbacks until none is ready. The number of callbacks.

        `TurnTooLong` is raised after `max_steps` callbacks, or when `deadline`, which is called every few hundred of
        them, returns True. The loop has stopped between two steps then, and can only be evicted.
        """
        if self._evicting or self._running:
            self._refuse_to_run()
        steps = 0
        if self._ready:
            self._thread = get_ident()
            self._running = True
            outer = swap_in(self)
            try:
                watch = self.watch
                steps = watch(drain, self._ready, self._unhandled, max_steps, deadline)
            finally:
                swap_out(outer)
                self._running = False
        if self._unhandled:
            self._report_unhandled()
        return steps

    def _refuse_to_run(self) -> None:
        require(not self._evicting, "an evicted workflow loop cannot run again; replay it in a new one")
        require(not self._running, "the workflow loop is running already; a slice cannot contain another")

    async def run_main(self, main: Coroutine[Any, Any, Any]) -> Any:
        """Await the main function, and record as its last step which tasks it leaves running."""
        try:
            return await main
        finally:
            self.note_left_over()

    def note_left_over(self) -> None:
        """Let `cancel_left_over` cancel every task that is pending now."""
        self._left_over.note(self.pending_tasks())

    def cancel_left_over(
        self,
        main: "asyncio.Task[Any]",
        *,
        max_steps: int = MAX_STEPS_PER_RUN,
        deadline: Callable[[], bool] | None = None,
    ) -> list[WorkflowTask]:
        """Cancel the tasks that `main`, which is done, left running, and run until idle (G14).

        Every task that was pending at its end is cancelled once, however often this is called; one that is being
        cancelled already may clean up first. Tasks that were started since then, by cleaning up, end by themselves.
        Generators are closed when no task is pending. The returned tasks wait for something durable: apply further
        inputs and call again. `TurnTooLong` after `MAX_LEFT_OVER_ROUNDS`.
        """
        require(main.done(), "left-over tasks are cancelled after the main task, which is not done")
        if not (self._generators or self._unhandled or self.pending_tasks()):
            self._left_over.note([])
            self._tasks.clear()
            return []
        for _ in range(MAX_LEFT_OVER_ROUNDS):
            is_cancelled = self._left_over.cancel(self.pending_tasks())
            abandoned = [] if self.pending_tasks() else self._generators.take_abandoned()
            if not is_cancelled and not abandoned:
                break
            for generator in abandoned:
                self.create_task(close(generator))
            self.run_until_idle(max_steps=max_steps, deadline=deadline)
        else:
            raise TurnTooLong(
                f"the end of the workflow took {MAX_LEFT_OVER_ROUNDS} rounds of closing async generators; "
                "look for one whose clean-up starts another"
            )
        self._remove_finished_tasks()
        self._report_unhandled()
        return self.pending_tasks()

    # ------------------------------------------------------------------ unhandled exceptions

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Store `context` for the host.

        asyncio calls this also from finalisers, at any moment and on any thread, so that it is reported at the end of
        the slice.
        """
        if not self._evicting:
            self._unhandled.append(context)

    def hold_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Hold an async generator that takes its first step in the workflow."""
        self._generators.hold(generator)

    def _report_unhandled(self) -> None:
        while self._unhandled:
            self.host.unhandled(self._unhandled.pop(0))

    # ------------------------------------------------------------------ eviction

    def evict(self) -> list[str]:
        """Tear the coroutines down without any effect outside. The names of those that did not end.

        `Evicted` is thrown into every pending task, youngest first, and again at every ``await`` it makes;
        then the async generators are closed. The host receives no report from the beginning on.
        """
        if self._evicting:
            return []
        require(not self._running, "a workflow loop cannot be evicted from inside its own slice")
        self._evicting = True
        self._ready.clear()
        stuck: list[str] = []
        generators = self._generators.take_all()
        if generators or self.pending_tasks():
            try:
                stuck = run_swapped(
                    self, self._watch_teardown, tear_down_tasks, self, list(self._tasks.values()), generators
                )
            except TurnTooLong as error:
                stuck = [str(error)]
        self._clear()
        return stuck

    def abandon(self) -> None:
        """Evict without running any code. The coroutines and generators stay suspended until the process ends."""
        if self._evicting:
            return
        require(not self._running, "a workflow loop cannot be abandoned from inside its own slice")
        self._evicting = True
        self._ready.clear()
        keep_suspended([task.get_coro() for task in self.pending_tasks()])
        keep_suspended(self._generators.take_all())
        self._clear()

    def _clear(self) -> None:
        self._timers.clear()
        self._tasks.clear()
        self._generators.take_all()
        self._unhandled.clear()
        self.host = DetachedHost()  # without a reference cycle both are freed at once
