"""The event loop that runs workflow code deterministically (G10, G12, G14).

It has no selector, no threads and no clock: a queue of callbacks that are ready, a set of durable timers, and
a time that its driver sets. Given the same calls of `advance_to`, `fire_timer` and of the futures the driver
resolves, in the same order, it takes the same steps, because the queue is first in first out, timers fire
only when the record says so, and tasks are numbered by creation.

The driver runs it in slices, `run_until_idle`, on a thread whose own asyncio loop is running at that moment.
The slice puts itself in the place of that loop and steps back on every way out.

Running what is ready: the inner loop of a slice of workflow code.

What the workflow loop tells the one who drives it.

The tasks that the main function of a workflow leaves running, each to be cancelled once (G14).
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
from holdfast.replay.loop import asyncio_patches as compat
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
    """A callback in the ready queue: asyncio's handle without its debug machinery. One is made per step."""

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
"""The number of a timer handle that is no durable timer: due at once, or never."""


def _nothing(*_arguments: object) -> None:
    """Stand in for the callback of a cancelled handle."""


class TimerHandle(asyncio.TimerHandle):
    """What ``call_later`` and ``call_at`` return. Cancelling it tells the loop, once."""

    __slots__ = ("_tell", "number")

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        *,
        context: Context | None,
        number: int = NO_TIMER,
        tell: "Callable[[TimerHandle], None]" = _nothing,
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
        self._tell = tell

    def cancel(self) -> None:
        """Drop the callback, and tell the loop if a durable timer was to bring it."""
        if not self._cancelled:
            self._cancelled = True
            self._callback = _nothing
            self._args = ()
            if self.number != NO_TIMER:
                self._tell(self)


DEADLINE_CHECK_STEPS: Final = 256
"""How many steps pass between two looks at the deadline, which reads a clock and so is not free."""


def drain(
    ready: deque[ReadyHandle | TimerHandle],
    unhandled: list[dict[str, Any]],
    max_steps: int,
    deadline: Callable[[], bool] | None,
) -> int:
    """Run callbacks until none is ready. What they raise and nobody takes is added to `unhandled`."""
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
        context, args = handle._context, handle._args  # noqa: SLF001
        try:
            if len(args) == 1:  # the usual number: what a task waited for
                context.run(handle._callback, args[0])  # noqa: SLF001
            else:
                context.run(handle._callback, *args)  # noqa: SLF001
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - told to the host
            # A SystemExit is kept by the task that raised it: it ends the workflow, not the worker.
            unhandled.append({"message": "exception in a callback of a workflow", "exception": error, "handle": handle})
        if deadline is not None and steps % DEADLINE_CHECK_STEPS == 0 and deadline():
            raise TurnTooLong(f"the turn was still busy at its deadline, after {steps} steps")
    return steps


class LoopHost(Protocol):
    """What the loop tells its driver. No method is called again once an eviction has begun."""

    def timer_started(self, number: int, due_at: float) -> None:
        """The workflow waits for a new durable timer. Numbers count up from 1."""
        ...

    def timer_cancelled(self, number: int) -> None:
        """A durable timer that has not fired is not waited for any more. Told once."""
        ...

    def unhandled(self, context: dict[str, Any]) -> None:
        """An exception that nobody took: asyncio's context with its message and exception."""
        ...


class DetachedHost:
    """Stands in for the driver of a loop that was evicted: neither has to know the other any more."""

    def timer_started(self, number: int, due_at: float) -> None:
        del number, due_at

    def timer_cancelled(self, number: int) -> None:
        del number

    def unhandled(self, context: dict[str, Any]) -> None:
        del context


class LeftoverTasks:
    """Those that were there when the main function ended. Tasks that are started later, to clean up, are not."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: list[WorkflowTask] | None = None

    def note(self, pending: list[WorkflowTask]) -> None:
        """The main function takes its last step, and these have not ended."""
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
"""Callbacks run by one `run_until_idle`. A workflow that never idles would hold its worker for ever."""
MAX_LEFT_OVER_ROUNDS: Final = 100
"""Rounds of cancelling and closing at the end of a workflow. Closing a generator may leave others behind."""
LAST_DUE_AT_SECONDS: Final = 253_402_300_799.0
"""The end of the year 9999, the last time a date can tell. A timer due later is one that never fires."""
MIN_TASKS_BETWEEN_SWEEPS: Final = 64
"""Finished tasks are let go in sweeps, which cost less than a callback on each task."""

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
        compat.install()
        self.host: LoopHost = host
        """Who drives this loop."""
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
        """Return the logical time in seconds: that of the message being applied, the same in every replay."""
        return self._now

    def advance_to(self, seconds: float) -> None:
        """Move the time forward to `seconds`. A time in the past changes nothing: it never goes back."""
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
            tell=self._timer_handle_cancelled,
        )
        self.host.timer_started(number, when)
        return handle

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """Hear from `handle` that its timer, which was still to fire, was cancelled. Tell the host."""
        if self._timers.pop(handle.number, None) is not None and not self._evicting:
            self.host.timer_cancelled(handle.number)

    def fire_timer(self, number: int) -> bool:
        """Make a timer's callback ready and the time at least its due time.

        Return False, and change nothing, for a timer that never was, fired before or was cancelled.
        """
        handle = self._timers.pop(number, None)
        if handle is None:
            return False
        self._now = max(self._now, handle.when())
        handle.number = NO_TIMER
        self._ready.append(handle)
        return True

    def has_timer(self, number: int) -> bool:
        """Tell whether a timer is waited for."""
        return number in self._timers

    @property
    def pending_timers(self) -> dict[int, float]:
        """The due times of the timers that are waited for, by number, in the order they were started."""
        return {number: handle.when() for number, handle in self._timers.items()}

    # ------------------------------------------------------------------ callbacks, futures, tasks

    def call_soon(
        self,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Append `callback` to the ready queue. During an eviction nothing is ever run from it."""
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
        """Do as `call_soon` on the loop's own thread and refuse on any other."""
        if get_ident() != self._thread:
            raise NotInWorkflow(
                "call_soon_threadsafe() reached a workflow from another thread, at a moment no replay could "
                "repeat. Let the thread run in an activity, or raise an event to the instance."
            )
        return self.call_soon(callback, *args, context=context)

    def create_future(self) -> WorkflowFuture:
        """Return a future with the next creation number."""
        future = WorkflowFuture(loop=self)
        self._last_number = future.number = self._last_number + 1
        return future

    def create_own_future(self) -> "asyncio.Future[Any]":
        """Return a future for a wait of our own, which no set of the workflow's ever holds, so that its hash does not
        matter: one of asyncio's very own, as tasks wait for those quickest. It uses a number up, because the numbers
        of those after it, and with them the order of sets, must be what they were when a history was recorded.
        """
        self._last_number += 1
        return asyncio.Future(loop=self)

    def next_number(self) -> int:
        """Take the next creation number, for a future that is made elsewhere (see `compat`)."""
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
            self._let_go_of_finished_tasks()
        return task

    def pending_tasks(self) -> list[WorkflowTask]:
        """Return the tasks that are not done, oldest first."""
        return [task for task, _ in self._tasks.values() if not task.done()]

    def _let_go_of_finished_tasks(self) -> None:
        self._tasks = {number: entry for number, entry in self._tasks.items() if not entry[0].done()}
        self._sweep_at = 2 * len(self._tasks) + MIN_TASKS_BETWEEN_SWEEPS

    # ------------------------------------------------------------------ running

    def is_running(self) -> bool:
        """Tell whether a slice is being run at this moment."""
        return self._running

    def is_closed(self) -> bool:
        """Tell whether an eviction has begun. Nothing the workflow does from now on may count."""
        return self._evicting

    def check_evicted(self) -> None:
        """Raise `Evicted` if an eviction has begun. Every durable call starts with this."""
        if self._evicting:
            raise Evicted

    def get_debug(self) -> bool:
        """Return False: asyncio's debug mode reads clocks and would tell the workflow about them."""
        return False

    def get_task_factory(self) -> None:
        """Return None: tasks are always this loop's own."""

    def get_exception_handler(self) -> None:
        """Return None: exceptions that nobody took go to the host."""

    def run_until_idle(self, *, max_steps: int = MAX_STEPS_PER_RUN, deadline: Callable[[], bool] | None = None) -> int:
        """Run callbacks until none is ready, and return how many were run.

        `TurnTooLong` is raised after `max_steps` callbacks, or when `deadline` answers True; it is asked
        every few hundred of them. The loop is then in the middle of something and can only be evicted.
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
        """Await the main function, and note as its last step which tasks it leaves over."""
        try:
            return await main
        finally:
            self.note_left_over()

    def note_left_over(self) -> None:
        """Every task that is pending now is cancelled by `cancel_left_over`."""
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
        self._let_go_of_finished_tasks()
        self._report_unhandled()
        return self.pending_tasks()

    # ------------------------------------------------------------------ exceptions nobody took

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep `context` for the host.

        asyncio calls this also from finalisers, at moments and on threads of the collector's choosing, so the
        host hears of it when the slice has ended.
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
        """Tear the coroutines down without any effect outside. Return the names of those that would not end.

        `Evicted` is thrown into every pending task, youngest first, and again at every ``await`` it makes;
        then the async generators are closed. From the first moment on the host hears nothing more.
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
        self.host = DetachedHost()  # so that both can go at once, without the collector
