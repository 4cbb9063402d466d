"""Runs the body of one activity without an engine: its result, its heartbeats, its reaction to a cancellation (A13).

Arguments, values, results and details of heartbeats are encoded and decoded, so that what cannot be stored fails here
as it does in a worker. Nothing is retried, and time-outs do not apply.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, TypeVarTuple, cast, overload

from holdfast.authoring.activity import Activity, ActivityInfo, AttemptIdentity, Cancelled, current_activity
from holdfast.authoring.provided import NO_CONTEXT
from holdfast.authoring.validation import checked_integer
from holdfast.errors import UsageError
from holdfast.payloads.encoding import decode, encode

Ts = TypeVarTuple("Ts")
R = TypeVar("R")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
INSTANCE_ID: Final = "run_activity"


@dataclass(frozen=True, slots=True)
class ActivityRun(Generic[R_co]):
    """How the body of an activity ended."""

    result: R_co
    """What it returned, or the list of the values that it yielded. None if it was cancelled before it returned."""
    heartbeats: tuple[Any, ...]
    """The details of each call of `hf.heartbeat`, in their order."""
    is_cancelled: bool
    """Whether the cancellation of `cancel_after` ended it. A body that catches it and returns has a result."""


@overload
async def run_activity(
    activity: Callable[[*Ts], Coroutine[Any, Any, R]],
    /,
    *args: *Ts,
    heartbeat_details: Any = None,
    cancel_after: int | None = None,
    context: Any = ...,
) -> ActivityRun[R]: ...
@overload
async def run_activity(
    activity: Callable[[*Ts], AsyncIterator[T]],
    /,
    *args: *Ts,
    heartbeat_details: Any = None,
    cancel_after: int | None = None,
    context: Any = ...,
) -> ActivityRun[list[T]]: ...
async def run_activity(  # type: ignore[misc]  # mypy does not see that Any takes what Ts takes
    activity: Any,
    /,
    *args: Any,
    heartbeat_details: Any = None,
    cancel_after: int | None = None,
    context: Any = NO_CONTEXT,
) -> ActivityRun[Any]:
    """Run the body of an activity once, without an engine. An exception of the body is raised.

    `hf.activity_info`, `hf.heartbeat` and `hf.idempotency_key` work inside, and `hf.context` returns `context`.
    `heartbeat_details` are the details of the attempt before: ``hf.activity_info().details``. `cancel_after` is a
    number of heartbeats, where a yielded value counts as one: after it the body is asked to stop as by a worker, that
    is, a coroutine gets an `asyncio.CancelledError` at its next `await`, and the next `hf.heartbeat` of a thread raises
    `hf.Cancelled`. With 0 it is asked when it begins. A body with ``process=True`` runs in a thread.
    """
    if not isinstance(activity, Activity):
        raise UsageError(f"run_activity takes an activity, and {activity!r} is not marked with @hf.activity")
    known = cast("Activity[..., Any]", activity)
    known.check_body()
    limit = None if cancel_after is None else checked_integer(cancel_after, "cancel_after", least=0)
    attempt = AloneAttempt(known, heartbeat_details, limit, context)
    encoded = known.signature.encode_arguments(args)
    body = asyncio.get_running_loop().create_task(_run(known, encoded, attempt), name=known.name)
    attempt.task = body
    try:
        await asyncio.wait({body})
    except asyncio.CancelledError:  # the caller is cancelled, and the body with it
        body.cancel()
        await asyncio.wait({body})
        raise
    error = asyncio.CancelledError() if body.cancelled() else body.exception()
    if attempt.has_result:  # also if it was asked to stop and returned without another `await`
        return ActivityRun(attempt.result, tuple(attempt.heartbeats), is_cancelled=False)
    if attempt.is_asked and isinstance(error, asyncio.CancelledError):
        return ActivityRun(None, tuple(attempt.heartbeats), is_cancelled=True)
    raise error or UsageError(f"{known.name} ended without a result")


class AloneAttempt:
    """The activity context of the body."""

    def __init__(self, activity: Activity[..., Any], details: Any, cancel_after: int | None, context: Any) -> None:
        self._activity = activity
        self._details = None if details is None else _stored(details)
        self._left = cancel_after
        self._context = context
        self._loop = asyncio.get_running_loop()
        self.prepared: Any = None
        self.result: Any = None
        self.has_result = False
        self.heartbeats: list[Any] = []
        self.is_asked = False
        """The body was asked to stop."""
        self.task: asyncio.Task[Any] | None = None

    @property
    def identity(self) -> AttemptIdentity:
        info = self.info
        return AttemptIdentity(info.instance_id, info.workflow, info.execution, info.activity, info.attempt, None)

    @property
    def info(self) -> ActivityInfo:
        activity = self._activity
        attempt = 1 if self._details is None else 2
        return ActivityInfo(
            INSTANCE_ID,
            "",
            activity.name,
            0,
            attempt,
            activity.options.queue,
            self._details,
            is_cancelled=self.is_asked,
            prepared=self.prepared,
        )

    @property
    def idempotency_key(self) -> str:
        return f"{INSTANCE_ID}/1/1/0"

    @property
    def worker_context(self) -> Any:
        if self._activity.process:
            raise UsageError(f"hf.context: {self._activity.name} has process=True, where no context is available")
        return self._context

    def heartbeat(self, details: Any) -> None:
        """Record a heartbeat. Raises `Cancelled` in a body that learns of its cancellation by heartbeats."""
        if self.is_asked and not (self._activity.is_async and self._is_in_loop()):
            raise self.cancelled()
        self.heartbeats.append(None if details is None else _stored(details))
        self.count()

    def count(self) -> None:
        """One more heartbeat or value: ask the body to stop if it was the last one before the cancellation."""
        if self._left is not None:
            self._left -= 1
        self.ask_if_due()

    def ask_if_due(self) -> None:
        """Ask the body to stop once `cancel_after` heartbeats were sent."""
        if self._left is None or self._left > 0 or self.is_asked:
            return
        self.is_asked = True
        if self._activity.is_async and self.task is not None:
            if self._is_in_loop():
                self.task.cancel()
            else:
                self._loop.call_soon_threadsafe(self.task.cancel)

    def cancelled(self) -> Cancelled:
        return Cancelled(f"attempt {self.info.attempt} of {self._activity.name} was cancelled by run_activity")

    def _is_in_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False


def _stored(details: Any) -> Any:
    """Details as the next attempt would get them."""
    return decode(encode(details, what="the details of a heartbeat"))


async def _run(activity: Activity[..., Any], encoded: bytes, attempt: AloneAttempt) -> None:
    """Prepare the body and run it, in a task whose context it may change."""
    attempt.result = await _result_of(activity, encoded, attempt)
    attempt.has_result = True


async def _result_of(activity: Activity[..., Any], encoded: bytes, attempt: AloneAttempt) -> Any:
    current_activity.set(attempt)
    signature = activity.signature
    args, kwargs = signature.decode_arguments(encoded)
    prepare = activity.prepare
    if prepare is not None:
        if asyncio.iscoroutinefunction(prepare):
            attempt.prepared = await prepare(*args, **kwargs)
        else:
            attempt.prepared = await asyncio.to_thread(prepare, *args, **kwargs)
    attempt.ask_if_due()

    def stored(value: Any) -> Any:
        return signature.decode_result(signature.encode_result(value))

    if activity.yields:
        values: list[Any] = []
        if not activity.is_async:
            await asyncio.to_thread(_take_all, activity.fn(*args, **kwargs), values, stored, attempt)
            return values
        async with aclosing(activity.fn(*args, **kwargs)) as produced:
            async for value in produced:
                values.append(stored(value))
                attempt.count()
                await asyncio.sleep(0)  # where a worker waits until the value is recorded
        return values
    if activity.is_async:
        return stored(await activity.fn(*args, **kwargs))
    return stored(await asyncio.to_thread(activity.fn, *args, **kwargs))


def _take_all(produced: Any, values: list[Any], stored: Callable[[Any], Any], attempt: AloneAttempt) -> None:
    """The values of a plain generator, until the body is asked to stop."""
    with closing(produced):
        iterator: Iterator[Any] = produced
        for value in iterator:
            values.append(stored(value))
            attempt.count()
            if attempt.is_asked:
                raise attempt.cancelled()
