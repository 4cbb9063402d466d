"""Running the bodies of activities, and turning how they end into what is committed.

A body that returns, raises, exits, hangs or gives back what cannot be stored ends its attempt; the worker lives.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextvars import copy_context
from functools import lru_cache, partial
from typing import Any, Final, NoReturn

import msgspec

from holdfast.authoring.activity import Activity
from holdfast.authoring.activity_context import current_activity
from holdfast.authoring.registry import Registry
from holdfast.core.events import ActivityCompleted, Payload
from holdfast.core.ledger import enter_leg2, exit_leg2
from holdfast.core.lifecycle import AttemptEvent, AttemptState, next_state
from holdfast.core.options import ActivityOptions, decode_options
from holdfast.core.streams import values_delivered
from holdfast.errors import ActivityTimedOut, HoldfastError, StreamTooLong
from holdfast.payloads.failures import failure_of, qualified_name
from holdfast.runtime.carriers import Carriers
from holdfast.runtime.entries import Respond
from holdfast.runtime.processes.pool import FailedInProcess, ProcessPool
from holdfast.runtime.providers import Providers
from holdfast.runtime.running_attempt import ResultNotStored, RunningAttempt, stored_result
from holdfast.runtime.streams import NO_VALUE, StreamSender
from holdfast.runtime.threads import Threads
from holdfast.storage.contract import AttemptRecord, Completion, HeartbeatAttempt, Retry
from holdfast.storage.endings import end_by_failure
from holdfast.storage.forks import generation, leave_if_forked

logger = logging.getLogger("holdfast")

LONGEST_FAREWELL_SECONDS: Final = 5.0
"""How long a worker that stops waits for bodies that were told to. One that will not end is left behind."""

RUNNING: Final = AttemptState.RUNNING
COMPLETED: Final = AttemptState.COMPLETED

AttemptEnd = Callable[[Completion | Retry], None]
"""Who is told how an attempt ended."""


class AttemptRunner:
    """Runs attempts up to a number of slots. Slots are reserved before an attempt is committed as RUNNING."""

    def __init__(
        self,
        registry: Registry,
        providers: Providers,
        now_ms: Callable[[], int],
        *,
        slots: int,
        ended: AttemptEnd,
        beat: Callable[[HeartbeatAttempt], None],
        respond: Respond,
        all_told: Callable[[], None] = lambda: None,
    ) -> None:
        self._registry = registry
        self._providers = providers
        self._now_ms = now_ms
        self._ended = ended
        self._beat = beat
        self._respond = respond
        self._carriers = Carriers(self._run, all_told)
        self._threads = Threads("holdfast-activity")
        self._processes = ProcessPool()
        self.running: dict[Any, RunningAttempt] = {}
        self.slots = slots
        self.free = slots
        self.abandoned_threads = 0
        """Threads left behind because nothing stops them: of bodies beyond their time-out, cancelled, or given up."""
        self._is_stopped = False
        self._generation = generation()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._dismissed: set[RunningAttempt] = set()

    def reserve(self) -> bool:
        """Take a slot, if one is free."""
        if self.free <= 0:
            return False
        self.free -= 1
        return True

    def give_back(self, count: int = 1) -> None:
        """Return slots whose attempts did not come to run."""
        self.free += count

    def start(self, attempt: AttemptRecord) -> None:
        """Run an attempt whose slot was reserved and whose RUNNING state is committed."""
        if self._is_stopped:
            return  # its attempt is RUNNING in the name of a worker that leaves, and moves on with the rest (W10)
        activity = self._registry.activities[attempt.name]
        loop = self._loop = self._loop or asyncio.get_running_loop()  # which costs a system call
        running = RunningAttempt(activity, attempt, loop, self._now_ms, self._beat)
        self.running[attempt.key] = running
        self._carriers.add(running)

    def cancel(self, number: int, execution: int, activities: set[int]) -> None:
        """Ask the bodies of these activities to stop, at once."""
        for key, running in self.running.items():
            if key.number == number and key.execution == execution and key.activity in activities:
                self._cancel(running)

    def cancel_instance(self, number: int) -> None:
        """Ask all bodies of a closed instance to stop."""
        for key, running in self.running.items():
            if key.number == number:
                self._cancel(running)

    def request_cancel(self, key: Any) -> None:
        """Ask one body to stop."""
        running = self.running.get(key)
        if running is not None:
            self._cancel(running)

    def _cancel(self, running: RunningAttempt) -> None:
        if not running.cancel_requested:
            running.cancel_requested = True
            running.attempt = msgspec.structs.replace(running.attempt, state=AttemptState.CANCELLED_RUNNING)
            running.stop()

    def abandon_all(self) -> None:
        """Stop every body without a word about it: the store moves their attempts on (W6)."""
        for running in list(self.running.values()):
            running.is_abandoned = True
            running.stop()

    async def finish(self) -> None:
        """W10: give every body its time, however long it needs."""
        while tasks := {task for each in self.running.values() if (task := each.task or self._carriers.carrier)}:
            await asyncio.wait(tasks)

    async def stop(self) -> None:
        """W10: tell every body to stop that can be told, and wait a while for them. Whoever gives a result meanwhile is
        heard; the attempts of the others stay RUNNING in the store until somebody takes them over.

        A thread cannot be told, and is not waited for. Its answer counts if it comes before the worker has left.
        """
        self._is_stopped = True
        await self._dismiss(running for running in self.running.values() if not self._is_thread(running))

    async def leave(self) -> None:
        """The worker has left: nobody hears any more how a body ends. One that will not end is left behind."""
        self._is_stopped = True
        self._ended = _nobody
        await self._dismiss(running for running in self.running.values() if running not in self._dismissed)
        self._threads.close()
        await self._processes.close()

    async def _dismiss(self, bodies: Iterable[RunningAttempt]) -> None:
        dismissed = list(bodies)
        self._dismissed.update(dismissed)
        for running in dismissed:
            running.is_abandoned = not running.cancel_requested
            running.stop()
        tasks = {running.task or self._carriers.carrier for running in dismissed}
        if waited_for := [task for task in tasks if task is not None]:
            await asyncio.wait(waited_for, timeout=LONGEST_FAREWELL_SECONDS)

    def _is_thread(self, running: RunningAttempt) -> bool:
        return not (running.activity.is_async or running.activity.process)

    async def _run(self, running: RunningAttempt) -> None:
        activity = running.activity
        current_activity.set(running)  # in the body's own context, which ends with it
        running.has_begun = True
        data, error = b"", None
        try:
            if running.cancel_requested or running.is_abandoned:
                await _stopped_before_it_began()
            signature = activity.signature
            if activity.is_async and running.attempt.expires_at_ms is None and not activity.yields:
                args, kwargs = signature.decode_arguments(running.attempt.input)
                value = await (activity.fn(*args, **kwargs) if kwargs else activity.fn(*args))
            else:
                value = await self._body(activity, running)
            data = value if activity.process or activity.yields else stored_result(signature, value)
        except BaseException as raised:  # noqa: BLE001 - SystemExit and the like end the attempt, not the worker
            error = raised
        try:  # here nothing is being handled: what workflow code raises next gets no context that is not its own
            if self._generation != generation():
                leave_if_forked(self._generation, error)
            if error is None:
                self._finish_completed(running, data)
            else:
                self._finish(running, error)
        finally:
            error = None
            self.running.pop(running.attempt.key, None)
            running.task = None  # it knows the body, which knows `running`: a circle that only the collector could open

    def _finish(self, running: RunningAttempt, error: BaseException) -> None:
        if running.is_abandoned:
            self.give_back()  # an error, too, came most likely because it was told to stop: it runs again elsewhere
        elif isinstance(error, asyncio.CancelledError):
            self._finish_cancelled(running, error)
        else:
            self._finish_failed(running, error)

    async def _body(self, activity: Activity[..., Any], running: RunningAttempt) -> Any:
        """What the body returns; of one in a process, encoded already."""
        seconds = self._seconds_left(running.attempt)
        if seconds is None:
            return await self._call(activity, running)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await self._call(activity, running)
        except TimeoutError:
            if not limit.expired():
                raise  # the body's own
            raise ActivityTimedOut(_late(activity.name, decode_options(running.attempt.options))) from None

    async def _call(self, activity: Activity[..., Any], running: RunningAttempt) -> Any:
        if activity.process:
            return await self._processes.run(activity, running.attempt.input, running)
        args, kwargs = activity.signature.decode_arguments(running.attempt.input)
        if activity.yields:
            return await self._stream(activity, running, activity.fn(*args, **kwargs))
        if activity.is_async:
            return await activity.fn(*args, **kwargs)
        context = copy_context()
        answer = self._threads.run(lambda: context.run(activity.fn, *args, **kwargs))
        return await self._from_thread(running, answer, answer)

    async def _stream(self, activity: Activity[..., Any], running: RunningAttempt, values: Any) -> bytes:
        """Deliver what a generator yields (L15); its end is a response without a value."""
        encode = partial(stored_result, activity.signature)
        sender = StreamSender(running, encode, self._respond, self.request_cancel, self._now_ms)
        if activity.is_async:
            await sender.deliver(values)
        else:
            context = copy_context()
            answer = self._threads.run(lambda: context.run(sender.produce, values))
            await self._from_thread(running, answer, sender.deliver_from(answer))
        return NO_VALUE

    async def _from_thread(self, running: RunningAttempt, answer: "asyncio.Future[Any]", told: Awaitable[Any]) -> Any:
        try:
            return await told
        except asyncio.CancelledError:
            if answer.cancelled():
                self._abandon_thread(running.attempt)
            raise

    def _abandon_thread(self, attempt: AttemptRecord) -> None:
        """A5: nothing stops a thread. It goes on until its body ends, its answer is ignored, and its slot is free."""
        self.abandoned_threads += 1
        if not self._is_stopped:
            logger.warning(
                "attempt %d of %s of instance %s is over, but its thread goes on: %d threads left behind so far. "
                "Give its calls time-outs of their own, or run it with process=True",
                attempt.key.attempt,
                attempt.name,
                attempt.instance_id,
                self.abandoned_threads,
            )

    def _seconds_left(self, attempt: AttemptRecord) -> float | None:
        if attempt.expires_at_ms is None:
            return None
        options = decode_options(attempt.options)
        started = attempt.started_at_ms or attempt.scheduled_at_ms
        deadlines = [
            limit
            for limit in (
                None if options.start_to_close_ms is None else started + options.start_to_close_ms,
                None
                if options.schedule_to_close_ms is None
                else attempt.scheduled_at_ms + options.schedule_to_close_ms,
            )
            if limit is not None
        ]
        return None if not deadlines else max(0.0, (min(deadlines) - self._now_ms()) / 1000)

    # ------------------------------------------------------------ endings

    def _finish_completed(self, running: RunningAttempt, data: bytes) -> None:
        attempt, now_ms, ended = running.attempt, self._now_ms, self._ended
        key = attempt.key
        answer = ActivityCompleted(
            time_ms=now_ms(),
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
            event=answer if attempt.state is RUNNING else None,
            values=_values(attempt) if running.activity.yields else None,
        )
        ended(completion)

    def _finish_failed(self, running: RunningAttempt, error: BaseException) -> None:
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
        ended = end_by_failure(
            attempt,
            failure,
            types,
            event=AttemptEvent.EXPIRE if timed_out else AttemptEvent.FAIL,
            now_ms=self._now_ms(),
            random_number=self._providers.random_number(),
        )
        self._ended(ended)

    def _finish_cancelled(self, running: RunningAttempt, error: asyncio.CancelledError) -> None:
        if not running.cancel_requested:
            self._finish_failed(running, HoldfastError(f"the body cancelled itself: {error}"))
            return
        attempt = running.attempt
        ended = Completion(
            key=attempt.key,
            owner=attempt.owner,
            from_state=attempt.state,
            from_ledger=attempt.ledger,
            to_state=next_state(attempt.state, AttemptEvent.STOPPED),
            entered_ledger=attempt.ledger,
            applied_ledger=attempt.ledger,
            event=None,
        )
        self._ended(ended)


def _values(attempt: AttemptRecord) -> int:
    stream = decode_options(attempt.options).stream
    return values_delivered(stream.delivered if stream else 0, attempt.ledger)


async def _stopped_before_it_began() -> NoReturn:
    raise asyncio.CancelledError


def _late(name: str, options: ActivityOptions) -> str:
    limits = {"start_to_close": options.start_to_close_ms, "schedule_to_close": options.schedule_to_close_ms}
    named = [f"{what} is {limit_ms / 1000:g} s" for what, limit_ms in limits.items() if limit_ms is not None]
    return f"{name} did not answer in time: {', '.join(named)}"


@lru_cache(maxsize=256)
def _response_digits(ledger: int) -> tuple[int, int]:
    """L4, L5: the digits after the one, final response has entered, and after it was applied. They hardly ever vary."""
    entered, _ = enter_leg2(ledger)
    return entered, exit_leg2(entered, final=True)


def _nobody(ended: Completion | Retry) -> None:
    del ended
