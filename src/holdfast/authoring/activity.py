"""``@hf.activity``: a function with side effects that workflows call and the engine runs.

Called in workflow code it is durable: a worker runs it, and its result is recorded once. Awaited anywhere else it
runs as a plain function. ``charge.fn`` is the function itself. ``hf.Retry`` is its retry policy; ``hf.activity_info``,
``hf.idempotency_key`` and ``hf.heartbeat`` are for its body.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
    runtime_checkable,
)

from msgspec.structs import replace

from holdfast.authoring.definition import Definition, not_a_function, refuse_method
from holdfast.authoring.validation import (
    Duration,
    checked_bool,
    checked_duration_ms,
    checked_integer,
    checked_name,
    checked_number,
    checked_sequence,
    checked_timeout_ms,
)
from holdfast.core.activity_options import (
    DEFAULT_MAX_LOSSES,
    DEFAULT_QUEUE,
    ActivityOptions,
    RetryPolicy,
    StreamOptions,
    encode_options,
)
from holdfast.core.children import NAME_LIMIT_BYTES
from holdfast.errors import InvalidOption, UsageError
from holdfast.payloads.failures import qualified_name
from holdfast.replay.run import current_run


@dataclass(frozen=True, slots=True)
class Retry:
    """`attempts` in all (None: for ever), with delays that grow from `initial` by `backoff` up to `maximum`.

    Errors of the types in `non_retryable`, or of types derived from them, are not retried. A type that cannot be
    imported here is given by its name, short or qualified: ``"Declined"`` or ``"shop.payments.Declined"``.
    """

    attempts: int | None = 5
    initial: Duration = 1.0
    backoff: float = 2.0
    maximum: Duration = 60.0
    jitter: bool = True
    non_retryable: tuple[type[BaseException] | str, ...] = ()

    def __post_init__(self) -> None:
        self.policy()

    def policy(self) -> RetryPolicy:
        """The policy of the core. Values out of range raise `InvalidOption`."""
        attempts = None if self.attempts is None else checked_integer(self.attempts, "Retry(attempts)", least=1)
        initial_ms = checked_duration_ms(self.initial, "Retry(initial)")
        maximum_ms = checked_duration_ms(self.maximum, "Retry(maximum)")
        if maximum_ms < initial_ms:
            raise InvalidOption(
                f"Retry(maximum) must be at least Retry(initial), and {maximum_ms / 1000:g} s is less than "
                f"{initial_ms / 1000:g} s"
            )
        return RetryPolicy(
            attempts=attempts,
            initial_ms=initial_ms,
            backoff=checked_number(self.backoff, "Retry(backoff)"),
            maximum_ms=maximum_ms,
            jitter=checked_bool(self.jitter, "Retry(jitter)"),
            non_retryable=frozenset(_name_of(error) for error in checked_sequence(self.non_retryable, "non_retryable")),
        )


def _name_of(error: object) -> str:
    if isinstance(error, str) and len(error) <= NAME_LIMIT_BYTES and all(map(str.isidentifier, error.split("."))):
        return error
    if isinstance(error, type) and issubclass(error, BaseException):
        return qualified_name(error)
    raise InvalidOption(
        f"Retry(non_retryable) takes exception types such as ValueError, or their names such as 'shop.Declined', "
        f"not {error!r}"
    )


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
F_co = TypeVar("F_co", covariant=True)


@runtime_checkable
class ActivityLike(Protocol[P, R_co]):
    """``hf.Activity`` for type checkers: an activity with its parameters and its result.

    A protocol, because the decorators return `ActivityOf`, which has one type parameter where this has two.
    """

    @property
    def fn(self) -> Callable[..., Any]: ...
    @property
    def name(self) -> str: ...
    @property
    def options(self) -> ActivityOptions: ...
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, object, R_co]: ...


class Activity(Definition, Generic[P, R]):
    """A function marked by `activity`, with its name and options. An engine or a worker runs it."""

    __slots__ = ("encoded_options", "is_async", "options", "process", "yields")

    def __init__(self, fn: Callable[..., Any], name: str, options: ActivityOptions, *, process: bool = False) -> None:
        super().__init__(fn, name)
        self.options = options
        self.encoded_options = encode_options(options)
        self.process = process
        self.yields = inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn)
        self.is_async = inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, object, R]:
        run = current_run()
        call: Any
        if run is None:
            call = self._run_body(args, kwargs)
        else:
            signature = self.signature
            call = run.activities.run(self, signature, signature.encode_arguments(args, kwargs))
        call.__qualname__ = self.name  # Python's warning names it if the call is never awaited
        typed: Coroutine[object, object, R] = call
        return typed

    async def _run_body(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        if self.is_async:
            result: R = await self.fn(*args, **kwargs)
            return result
        return await asyncio.to_thread(self.fn, *args, **kwargs)


class StreamActivity(Activity[P, AsyncIterator[T]], Generic[P, T]):
    """A generator marked by `activity`, for ``async for part in write_story("x")`` (L15)."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:  # type: ignore[override, misc]  # not awaited
        run = current_run()
        if run is not None:
            return run.streams.open(self, self.signature.encode_arguments(args, kwargs))
        values: Any = self.fn(*args, **kwargs)
        return values if self.is_async else _one_by_one(values)


AnyActivity = Activity[..., Any] | ActivityLike[..., Any]
"""An activity with any parameters."""


async def _one_by_one(values: Iterator[T]) -> AsyncIterator[T]:
    """The values of a plain generator, each computed in a thread."""
    end = object()
    while (value := await asyncio.to_thread(next, values, end)) is not end:
        yield cast("T", value)


if TYPE_CHECKING:

    class ActivityOf(Activity[..., Any], Generic[F_co]):
        """An activity as type checkers see it, with the type of its function: ``ActivityOf[Callable[[str], int]]``.

        This gives a list of activities with different parameters a common type. mypy joins two types that differ in
        a `ParamSpec` to `object`.
        """

        def __call__(
            self: "ActivityOf[Callable[P, R]]", *args: P.args, **kwargs: P.kwargs
        ) -> Coroutine[object, object, R]: ...

    class StreamActivityOf(StreamActivity[..., Any], ActivityLike[..., Any], Generic[F_co]):
        """A generator as type checkers see it, with the values that it yields as the result of its function."""

        def __call__(  # type: ignore[override]
            self: "StreamActivityOf[Callable[P, T]]", *args: P.args, **kwargs: P.kwargs
        ) -> AsyncIterator[T]: ...


def _checked_retry(retry: object) -> Retry:
    if retry is not None and not isinstance(retry, Retry):
        raise InvalidOption(f"retry takes hf.Retry(...), such as hf.Retry(attempts=3), not {retry!r}")
    return retry or Retry()


class ActivityDecorator(Protocol):
    """The decorator that `activity(...)` with options returns."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> "ActivityOf[Callable[P, R]]": ...
    @overload
    def __call__(  # type: ignore[overload-overlap]  # a generator is a function, too
        self, fn: Callable[P, AsyncIterator[T] | Iterator[T]], /
    ) -> "StreamActivityOf[Callable[P, T]]": ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> "ActivityOf[Callable[P, R]]": ...


@overload
def activity(fn: Callable[P, Coroutine[Any, Any, R]], /) -> "ActivityOf[Callable[P, R]]": ...
@overload
def activity(  # type: ignore[overload-overlap]
    fn: Callable[P, AsyncIterator[T] | Iterator[T]], /
) -> "StreamActivityOf[Callable[P, T]]": ...
@overload
def activity(fn: Callable[P, R], /) -> "ActivityOf[Callable[P, R]]": ...
@overload
def activity(
    *,
    name: str | None = None,
    queue: str = DEFAULT_QUEUE,
    retry: Retry | None = None,
    start_to_close: Duration | None = None,
    schedule_to_start: Duration | None = None,
    schedule_to_close: Duration | None = None,
    heartbeat: Duration | None = None,
    process: bool = False,
    rerun_after_loss: bool = True,
    max_losses: int = DEFAULT_MAX_LOSSES,
    resumable: bool = False,
) -> ActivityDecorator: ...
def activity(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    queue: str = DEFAULT_QUEUE,
    retry: Retry | None = None,
    start_to_close: Duration | None = None,
    schedule_to_start: Duration | None = None,
    schedule_to_close: Duration | None = None,
    heartbeat: Duration | None = None,
    process: bool = False,
    rerun_after_loss: bool = True,
    max_losses: int = DEFAULT_MAX_LOSSES,
    resumable: bool = False,
) -> Any:
    """Mark a function as an activity.

    `async def` runs on the engine's event loop, `def` in a thread, and with `process` in a process that ends with its
    parent. The four time-outs: `start_to_close` bounds one attempt, `heartbeat` the time between two
    `hf.heartbeat` calls, `schedule_to_start` the wait for a worker, `schedule_to_close` all attempts together.

    A generator delivers each value that it yields, and a yield counts as a heartbeat. With `resumable` an attempt
    continues where the one before ended (`hf.activity_info().delivered`); without, the workflow receives
    `hf.StreamRestarted`.
    """
    checked_bool(process, "process")
    checked_bool(resumable, "resumable")
    options = ActivityOptions(
        queue=checked_name(queue, "a queue"),
        retry=_checked_retry(retry).policy(),
        schedule_to_start_ms=checked_timeout_ms(schedule_to_start, "schedule_to_start"),
        start_to_close_ms=checked_timeout_ms(start_to_close, "start_to_close"),
        schedule_to_close_ms=checked_timeout_ms(schedule_to_close, "schedule_to_close"),
        heartbeat_ms=checked_timeout_ms(heartbeat, "heartbeat"),
        rerun_after_loss=checked_bool(rerun_after_loss, "rerun_after_loss"),
        max_losses=checked_integer(max_losses, "max_losses", least=0),
    )

    def mark(function: Callable[..., Any]) -> Activity[Any, Any]:
        if not inspect.isfunction(function):
            raise InvalidOption(f"@hf.activity marks a function: {not_a_function(function)}")
        refuse_method(function, "@hf.activity")
        if process and inspect.iscoroutinefunction(function):
            raise InvalidOption(f"{function.__qualname__}: process=True is for `def`; an `async def` runs in the loop")
        if not (inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function)):
            if resumable:
                raise InvalidOption(f"{function.__qualname__}: resumable=True is for generators, which yield values")
            kind, chosen = Activity[Any, Any], options
        elif process:
            raise InvalidOption(f"{function.__qualname__}: process=True is for functions that return, not generators")
        else:
            kind, chosen = StreamActivity[Any, Any], replace(options, stream=StreamOptions(resumable=resumable))
        checked = checked_name(function.__name__ if name is None else name, "an activity")
        return kind(function, checked, chosen, process=process)

    return mark if fn is None else mark(fn)


class Cancelled(asyncio.CancelledError):
    """Raised by `hf.heartbeat()` in the body of an activity that should stop. ``except Exception`` does not catch it.

    The attempt was cancelled, is beyond a time-out, or belongs to another worker. Clean up, and do not catch it.
    """


class ActivityInfo(NamedTuple):
    """The running attempt. `details`: those of the last heartbeat of the attempt before. `delivered`: how many values
    the attempts before delivered, if it yields. `is_cancelled`: whether the body should stop, as of this call: the
    attempt was cancelled, is beyond a time-out, or belongs to another worker by now."""

    instance_id: str
    workflow: str
    activity: str
    number: int
    attempt: int
    queue: str
    details: Any
    delivered: int = 0
    is_cancelled: bool = False
    execution: int = 1
    worker: str = ""


class AttemptIdentity(NamedTuple):
    """The attempt, its instance and its worker, for log records."""

    instance_id: str
    workflow: str
    execution: int
    activity: str
    attempt: int
    worker: str | None


class ActivityContext(Protocol):
    """The running attempt, for the functions that its body calls."""

    @property
    def identity(self) -> AttemptIdentity: ...
    @property
    def info(self) -> ActivityInfo: ...
    @property
    def idempotency_key(self) -> str: ...
    def heartbeat(self, details: Any) -> None: ...


current_activity: Final[ContextVar[ActivityContext | None]] = ContextVar("holdfast_activity", default=None)


def activity_info() -> ActivityInfo:
    """The running attempt: its instance, number, details of the last heartbeat."""
    return _context("hf.activity_info").info


def idempotency_key() -> str:
    """A key that all attempts of this call share, and no other call has. Pass it to services that deduplicate."""
    return _context("hf.idempotency_key").idempotency_key


def heartbeat(details: Any = None) -> None:
    """Report that the body is alive. `details` reach the next attempt if this one is lost.

    Raises `hf.Cancelled` if the body should stop. A coroutine receives `asyncio.CancelledError` at its `await` instead,
    and can send heartbeats while it cleans up.
    """
    _context("hf.heartbeat").heartbeat(details)


def _context(called: str) -> ActivityContext:
    context = current_activity.get()
    if context is None:
        raise UsageError(f"{called} works in the body of an activity only")
    return context
