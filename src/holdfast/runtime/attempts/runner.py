"""Prepares attempts, runs the bodies of activities, and turns their ends into members.

A body that returns, raises, exits, hangs or returns a value that cannot be stored ends its attempt and not the worker.

A body that is asked to stop (`StopReason`) keeps its slot until it ends, at most for a grace period. A process is
killed then. A coroutine or a thread cannot be killed: it is abandoned, that is, it runs on without a slot and is
counted (A5).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from functools import lru_cache, partial
from typing import Any, Final

import msgspec

from holdfast.authoring.activity import Activity
from holdfast.core.activity_options import OnCancel, decode_options
from holdfast.core.deadlines import MILLISECONDS
from holdfast.core.history import ActivityCompleted, Payload
from holdfast.core.leases import WorkerKey
from holdfast.core.ledger import enter_leg2, exit_leg2
from holdfast.core.lifecycle import AttemptEvent, AttemptState
from holdfast.core.streams import values_delivered
from holdfast.errors import ActivityTimedOut, HoldfastError, StreamTooLong
from holdfast.fork import generation, leave_if_forked
from holdfast.payloads.failures import failure_of, qualified_name
from holdfast.runtime.attempts.executors import DaemonThreads, FailedInProcess, ProcessPool, end_of
from holdfast.runtime.attempts.preparation import Preparer, is_preparing, prepares_in_thread
from holdfast.runtime.attempts.running_attempt import (
    AttemptHost,
    AttemptSink,
    ResultNotStored,
    RunningAttempt,
    StopReason,
    limited_result,
    stored_result,
)
from holdfast.runtime.attempts.shared_tasks import SharedTasks
from holdfast.runtime.attempts.slots import ActivitySlots
from holdfast.runtime.attempts.streams import NO_VALUE, StreamSender
from holdfast.runtime.signals import log_failed_attempt
from holdfast.runtime.worker_context import WorkerContext
from holdfast.storage.attempt_endings import end_by_cancel, end_by_failure, is_awaited
from holdfast.storage.members.attempts import Completion, HeartbeatAttempt
from holdfast.storage.members.member import CANCEL_AWAITED, CANCEL_REQUESTED
from holdfast.storage.members.outcomes import Outcome, Rejected
from holdfast.storage.records import AttemptKey, AttemptRecord

logger = logging.getLogger("holdfast")

SHUTDOWN_SECONDS: Final = 5.0
"""How long a worker that stops waits for bodies that were asked to stop. It does not wait for the others."""
GRACE_SECONDS: Final = 5.0
"""How long a body that was asked to stop keeps its slot. Then a process is killed, and other bodies are abandoned."""


RUNNING: Final = AttemptState.RUNNING
COMPLETED: Final = AttemptState.COMPLETED


class AttemptRunner:
    """Runs the bodies of attempts. Each attempt has a slot, which was reserved before it was committed in the name of
    this worker."""

    def __init__(self, context: WorkerContext, slots: ActivitySlots) -> None:
        self._context = context
        self._slots = slots
        self._activities = context.registry.activities
        self._now_ms = context.session.store.now_ms
        self._limit = context.payload_limit
        self._set_current = context.session.spans.set_current
        self._threads = DaemonThreads("holdfast-activity")
        self._processes = ProcessPool()
        self._preparer = Preparer(context.committer, self._now_ms, self)
        self._host: AttemptHost | None = None
        self._sink: AttemptSink
        """Set by `report_to`, as `_tasks`."""
        self._tasks: SharedTasks
        self.running: dict[AttemptKey, RunningAttempt] = {}
        """Attempts whose end is not decided here yet. Each has a slot."""
        self.abandoned: set[RunningAttempt] = set()
        """Bodies that were asked to stop and run on, without a slot."""
        self.abandoned_threads = 0
        """How many threads were abandoned so far, including those that have ended since."""
        self._is_draining = False
        self._is_stopped = False
        self._is_closed = False
        self._generation = generation()
        self._dismissed: set[RunningAttempt] = set()

    def report_to(self, sink: AttemptSink) -> None:
        """Report the ends of attempts to `sink`. Called once, before the first `start`."""
        self._sink = sink
        self._tasks = SharedTasks(self._run, sink.take_turns)

    def start(self, attempt: AttemptRecord) -> None:
        """Run an attempt whose slot was reserved and which is committed as RUNNING or PREPARING."""
        if self._is_stopped:
            return  # its attempt belongs to a key that is about to be marked as lost, and moves with it (W10)
        activity = self._activities[attempt.name]
        running = RunningAttempt(activity, attempt, self._host or self._make_host())
        self.running[attempt.key] = running
        self._tasks.add(running)

    def _make_host(self) -> AttemptHost:
        """Made once: `get_running_loop` costs a system call."""
        self._host = AttemptHost(
            loop=asyncio.get_running_loop(),
            now_ms=self._now_ms,
            lease=self._context.lease,
            beat=self._commit_heartbeat,
            provided=self._context.provided.value,
        )
        return self._host

    def _commit_heartbeat(self, beat: HeartbeatAttempt) -> None:
        def done(outcome: Outcome) -> None:
            if isinstance(outcome, Rejected):
                self.stop_rejected(beat.key, outcome)

        self._context.committer.submit(beat, done)

    def known(self, owner: WorkerKey | None = None) -> set[AttemptKey]:
        """Attempts whose bodies run here, including abandoned ones; with `owner`, only those under this key."""
        bodies = (*self.running.values(), *self.abandoned)
        return {each.attempt.key for each in bodies if owner is None or each.attempt.owner == owner}

    # ------------------------------------------------------------ asking bodies to stop

    def cancel_activities(self, number: int, execution: int, activities: set[int], *, is_awaited: bool = False) -> None:
        """Ask the bodies of these activities to stop. `is_awaited`: the workflow waits for their ends (A14)."""
        requested_at_ms = self._now_ms() if is_awaited else None
        for key, running in self.running.items():
            if key.number == number and key.execution == execution and key.activity in activities:
                self._cancel(running, requested_at_ms)

    def cancel_instance(self, number: int) -> None:
        """Ask all bodies of a closed instance to stop."""
        for key, running in self.running.items():
            if key.number == number:
                self._cancel(running)

    def cancel_attempt(self, key: AttemptKey, *, is_awaited: bool) -> None:
        """Ask one body to stop. `is_awaited`: the request came from outside, and the workflow waits for its end."""
        running = self.running.get(key)
        if running is not None:
            self._cancel(running, self._now_ms() if is_awaited else None)

    def _cancel(self, running: RunningAttempt, requested_at_ms: int | None = None) -> None:
        """The commit that cancels an attempt which is PREPARING closes it, see `enter_running`."""
        attempt = running.attempt
        state = attempt.state if is_preparing(running) else AttemptState.CANCELLED_RUNNING
        running.attempt = msgspec.structs.replace(attempt, state=state, cancel_requested_at_ms=requested_at_ms)
        is_abandoned = decode_options(attempt.options).on_cancel is OnCancel.ABANDON and not is_preparing(running)
        if is_abandoned and requested_at_ms is None:
            return  # A14: the body runs on, and nothing waits for its end
        self._ask_to_stop(running, StopReason.CANCELLED)

    def stop_rejected(self, key: AttemptKey, outcome: Rejected) -> None:
        """Stop a body whose heartbeat or streamed value the store rejected."""
        if outcome.reason in (CANCEL_REQUESTED, CANCEL_AWAITED):
            self.cancel_attempt(key, is_awaited=outcome.reason == CANCEL_AWAITED)
        else:
            self.disown(key)

    def disown(self, key: AttemptKey) -> None:
        """W3: the attempt was ended in the store: ask its body to stop, and do not record its end."""
        running = self.running.get(key) or next((each for each in self.abandoned if each.attempt.key == key), None)
        if running is not None:
            self._ask_to_stop(running, StopReason.NOT_HELD)
            running.stop_reason = StopReason.NOT_HELD

    def evict_all(self) -> None:
        """W7: ask every body to stop and record none of their ends: the attempts move to other workers (W6)."""
        for running in self.running.values():
            running.give_up()
            self._begin_grace(running)
            running.interrupt()  # kills a process that was asked to stop before
        for running in self.abandoned:
            running.give_up()

    def _time_out(self, running: RunningAttempt) -> None:
        self._ask_to_stop(running, StopReason.TIMED_OUT)

    def _ask_to_stop(self, running: RunningAttempt, reason: StopReason) -> None:
        """The first reason counts, unless a caller replaces it."""
        if running.stop_reason is not None:
            return
        running.stop_reason = reason
        self._begin_grace(running)
        running.interrupt()

    def _begin_grace(self, running: RunningAttempt) -> None:
        if running.timer is not None:
            running.timer.cancel()
        running.timer = asyncio.get_running_loop().call_later(GRACE_SECONDS, self._end_grace, running)

    def _end_grace(self, running: RunningAttempt) -> None:
        """A5: the body was asked to stop and has not ended. A process is killed; everything else is abandoned."""
        if self._is_stopped:
            return  # `stop` and `close` decide
        self._set_current(None)  # log records from here on are not the body's
        if running.in_process:
            if running.task is not None:
                running.task.cancel()
            return
        running.is_evicted = True
        self.running.pop(running.attempt.key, None)
        self.abandoned.add(running)
        self.abandoned_threads += running.thread is not None
        try:
            if running.stop_reason is StopReason.TIMED_OUT and running.thread is None:
                running.stop_reason = StopReason.NOT_HELD  # its end is recorded now
                self._finish_failed(running, self._timed_out(running))
        finally:  # a log handler or filter of the user may raise
            self._slots.release()
            self._sink.take_turns()
            self._warn_of_abandoned(running)

    def _warn_of_abandoned(self, running: RunningAttempt) -> None:
        attempt = running.attempt
        logger.warning(
            "attempt %d of %s of instance %s was asked to stop %g s ago and still runs in %s: its slot is free again, "
            "and whatever it does counts for nothing (bodies that this worker has abandoned: %d). %s",
            attempt.key.attempt,
            attempt.name,
            attempt.instance_id,
            GRACE_SECONDS,
            "the event loop" if running.thread is None else "its thread",
            len(self.abandoned),
            "Let asyncio.CancelledError through: `except BaseException` and a bare `except` catch it"
            if running.thread is None
            else "Call hf.heartbeat() in its loops, give its calls time-outs, or run it with process=True",
        )

    def release_preparing(self) -> None:
        """W10: the worker drains. Release the attempts that are being prepared: their bodies run elsewhere."""
        self._is_draining = True
        for running in self.running.values():
            if self._preparer.may_be_released(running):
                self._ask_to_stop(running, StopReason.GIVEN_UP)

    async def wait_for_bodies(self) -> None:
        """W10: wait for every body, without a limit; not for those that are abandoned meanwhile."""
        while tasks := {task for each in self.running.values() if (task := each.task or self._tasks.current_task)}:
            await asyncio.wait(tasks, timeout=GRACE_SECONDS)

    async def stop(self) -> None:
        """W10: ask every body to stop, and wait `SHUTDOWN_SECONDS` for those that are not threads. A result that comes
        meanwhile is recorded; the other attempts stay RUNNING until this worker is marked as lost.

        A thread is asked by its next heartbeat, if it sends any, and is not waited for.
        """
        self._is_stopped = True
        threads = [running for running in self.running.values() if _is_thread(running)]
        for running in threads:
            running.stop_reason = running.stop_reason or StopReason.GIVEN_UP
        await self._stop_and_wait(running for running in self.running.values() if running not in threads)

    async def close(self) -> None:
        """Record no more ends, and end threads and processes. A body that does not stop is left running."""
        self._is_stopped = True
        self._is_closed = True
        await self._stop_and_wait(running for running in self.running.values() if running not in self._dismissed)
        for running in [*self.running.values(), *self.abandoned]:
            running.give_up()
            running.is_evicted = True
            running.interrupt()
        self._threads.close()
        await self._processes.close()

    async def _stop_and_wait(self, bodies: Iterable[RunningAttempt]) -> None:
        dismissed = list(bodies)
        self._dismissed.update(dismissed)
        for running in dismissed:
            running.stop_reason = running.stop_reason or StopReason.GIVEN_UP
            if running.task is not None and running.has_begun:
                running.task.cancel()
        tasks = {running.task or self._tasks.current_task for running in dismissed}
        if waited_for := [task for task in tasks if task is not None]:
            await asyncio.wait(waited_for, timeout=SHUTDOWN_SECONDS)

    # ------------------------------------------------------------ running

    async def _run(self, running: RunningAttempt) -> None:
        activity = running.activity
        self._set_current(running)  # in the context of the body, which ends with it
        running.has_begun = True
        data, error = b"", None
        try:
            signature = activity.signature
            is_direct = activity.is_async and running.deadline_ms is None and not activity.yields
            if is_direct and activity.prepare is None and running.attempt.state is RUNNING:
                args, kwargs = signature.decode_arguments(running.attempt.input)
                running.begin()
                value = await (activity.fn(*args, **kwargs) if kwargs else activity.fn(*args))
            else:
                value = await self._call(activity, running)
            data = value if running.in_process or activity.yields else stored_result(signature, self._limit, value)
        except BaseException as raised:  # noqa: BLE001 - SystemExit and the like end the attempt, not the worker
            error = raised
        self._set_current(None)  # log records from here on are not the body's
        try:  # outside of the handler: exceptions of workflow code get no `__context__` from this body
            if self._generation != generation():
                leave_if_forked(self._generation, error)
            if error is None and running.stop_reason is None and running.deadline_ms is None:
                self._finish_completed(running, data)
            else:
                self._finish(running, data, error)
        finally:
            error = None
            self.running.pop(running.attempt.key, None)
            running.task = None  # breaks a reference cycle with the body, so that no garbage collection is needed
            thread = running.thread
            if thread is None:
                self._body_ended(running)
            elif thread.done():
                self._thread_ended(running, thread)
            else:
                thread.add_done_callback(partial(self._thread_ended, running))

    def _thread_ended(self, running: RunningAttempt, thread: "asyncio.Future[Any]") -> None:
        """The thread of an attempt has ended, perhaps after the attempt. Its result is not used."""
        if not thread.cancelled():
            thread.exception()  # asyncio logs exceptions that are never retrieved
        self._body_ended(running)

    def _body_ended(self, running: RunningAttempt) -> None:
        if running.timer is not None:
            running.timer.cancel()
        if running.is_evicted:
            self.abandoned.discard(running)
        else:
            self._slots.release()

    async def _call(self, activity: Activity[..., Any], running: RunningAttempt) -> Any:
        """The value that the body returns; from a process, its encoded result."""
        self._set_timer(running)
        if activity.prepare is not None or is_preparing(running):
            await self._preparer.prepare(running)
            self._set_timer(running)
        if running.in_process:
            data = await self._processes.run(activity, running.attempt.input, running)
            if len(data) <= self._limit.quiet_bytes:
                return data
            return limited_result(activity.signature, self._limit, data, activity.signature.decode_bytes(data))
        args, kwargs = activity.signature.decode_arguments(running.attempt.input)
        if activity.yields:
            return await self._stream(activity, running, args, kwargs)
        if activity.is_async:
            running.begin()
            return await activity.fn(*args, **kwargs)

        def body() -> Any:
            running.begin()
            return activity.fn(*args, **kwargs)

        thread = self.in_thread(running, body)
        return await self.from_thread(running, end_of(thread))

    def _set_timer(self, running: RunningAttempt) -> None:
        """Set the timer of the time-out that counts now. Once it was asked to stop, the grace period has the timer."""
        if running.stop_reason is not None:
            return
        if running.timer is not None:
            running.timer.cancel()
            running.timer = None
        if running.deadline_ms is not None:
            left_seconds = max(0, running.deadline_ms - self._now_ms()) / MILLISECONDS
            running.timer = asyncio.get_running_loop().call_later(left_seconds, self._time_out, running)

    def in_thread(self, running: RunningAttempt, work: Callable[[], Any]) -> "asyncio.Future[Any]":
        running.thread = thread = self._threads.run(partial(copy_context().run, work))
        return thread

    async def _stream(
        self, activity: Activity[..., Any], running: RunningAttempt, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> bytes:
        """Deliver the values of a generator (L15). Its end is a response without a value."""
        encode = partial(stored_result, activity.signature, self._limit)
        sender = StreamSender(running, encode, self._sink, self.stop_rejected, self._now_ms)
        if activity.is_async:
            running.begin()
            await sender.deliver(activity.fn(*args, **kwargs))
        else:

            def body() -> None:
                running.begin()
                sender.produce(activity.fn(*args, **kwargs))

            thread = self.in_thread(running, body)
            await self.from_thread(running, sender.deliver_from(thread))
        return NO_VALUE

    async def from_thread(self, running: RunningAttempt, answer: Awaitable[Any]) -> Any:
        """The result of a thread. A cancelled attempt stays CANCELLED_RUNNING until its thread has ended (A6)."""
        try:
            return await answer
        except asyncio.CancelledError:
            if running.stop_reason is StopReason.CANCELLED and running.thread is not None:
                return await end_of(running.thread)
            raise

    # ------------------------------------------------------------ endings

    def _finish(self, running: RunningAttempt, data: bytes, error: BaseException | None) -> None:
        """Record the end of a body that was asked to stop, that has a time-out, or that raised."""
        if self._is_closed:
            return
        reason = running.stop_reason
        is_given_up = reason is StopReason.GIVEN_UP and (error is not None or not running.holds_lease())
        if is_given_up or reason is StopReason.NOT_HELD:
            if is_given_up and self._is_draining and is_preparing(running) and running.holds_lease():
                self._preparer.release(running)
            return  # it is run again elsewhere; the body raised most likely because it was asked to stop
        if reason is StopReason.CANCELLED and is_preparing(running):
            return  # the commit that cancelled it has closed it (A1)
        if reason is StopReason.TIMED_OUT or (reason is not StopReason.CANCELLED and running.is_past_deadline()):
            self._finish_failed(running, self._timed_out(running))
        elif error is None:
            self._finish_completed(running, data)
        elif isinstance(error, asyncio.CancelledError):
            self._finish_cancelled(running, error)
        else:
            self._finish_failed(running, error)

    def _timed_out(self, running: RunningAttempt) -> ActivityTimedOut:
        options = decode_options(running.attempt.options)
        if is_preparing(running):
            limits = {"schedule_to_start": options.schedule_to_start_ms}
            late = f"{running.attempt.name} was not prepared in time"
        else:
            limits = {"start_to_close": options.start_to_close_ms}
            late = f"{running.attempt.name} did not answer in time"
        limits["schedule_to_close"] = options.schedule_to_close_ms
        named = [f"{what} is {limit_ms / 1000:g} s" for what, limit_ms in limits.items() if limit_ms is not None]
        error = ActivityTimedOut(f"{late}: {', '.join(named)}")
        error.kind = running.first_deadline(is_preparing=is_preparing(running))
        return error

    def _finish_completed(self, running: RunningAttempt, data: bytes) -> None:
        attempt = running.attempt
        key = attempt.key
        answer = ActivityCompleted(
            time_ms=self._now_ms(),
            activity=key.activity,
            attempt=key.attempt,
            result=Payload(msgspec.Raw(data)),
        )
        entered, applied = _response_digits(attempt.ledger)
        completion = Completion(
            key=key,
            owner=attempt.owner,
            from_state=attempt.state,
            from_ledger=attempt.ledger,
            to_state=COMPLETED,
            entered_ledger=entered,
            applied_ledger=applied,
            event=answer if attempt.state is RUNNING or is_awaited(attempt) else None,
            values=_values(attempt) if running.activity.yields else None,
            attempt=attempt,
        )
        self._sink.attempt_ended(completion)

    def _finish_failed(self, running: RunningAttempt, error: BaseException) -> None:
        running.note_newest_details()
        attempt = running.attempt
        timed_out = isinstance(error, ActivityTimedOut)
        is_final = isinstance(error, StreamTooLong | ResultNotStored)  # the next attempt would end in the same way
        if isinstance(error, ResultNotStored):
            error = error.reason
        if isinstance(error, FailedInProcess):
            failure, types = error.failure, error.types
        else:
            failure, types = failure_of(error), tuple(qualified_name(cls) for cls in type(error).__mro__)
        if is_final:
            failure = msgspec.structs.replace(failure, retryable=False)
        now_ms = self._now_ms()
        ended = end_by_failure(
            attempt,
            failure,
            types,
            event=AttemptEvent.EXPIRE if timed_out else AttemptEvent.FAIL,
            now_ms=now_ms,
            random_number=self._context.session.platform.providers.random_number(),
        )
        self._sink.attempt_ended(ended)
        log_failed_attempt(attempt, failure, ended, now_ms=now_ms)  # last: a handler or filter of the user may raise

    def _finish_cancelled(self, running: RunningAttempt, error: asyncio.CancelledError) -> None:
        if running.stop_reason is not StopReason.CANCELLED:
            what = "preparation" if is_preparing(running) else "body"
            self._finish_failed(running, HoldfastError(f"the {what} cancelled itself: {error}"))
            return
        self._sink.attempt_ended(end_by_cancel(running.attempt, AttemptEvent.STOPPED, now_ms=self._now_ms()))


def _values(attempt: AttemptRecord) -> int:
    stream = decode_options(attempt.options).stream
    return values_delivered(stream.delivered if stream else 0, attempt.ledger)


def _is_thread(running: RunningAttempt) -> bool:
    if is_preparing(running):
        return prepares_in_thread(running)
    return not (running.activity.is_async or running.in_process)


@lru_cache(maxsize=256)
def _response_digits(ledger: int) -> tuple[int, int]:
    """L4, L5: the digits after the one, final response has entered, and after it was applied. Few values occur."""
    entered, _ = enter_leg2(ledger)
    return entered, exit_leg2(entered, final=True)
