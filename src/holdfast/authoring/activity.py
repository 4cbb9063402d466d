"""``@hf.activity``: a function with side effects that workflows call and the engine runs.

Called in workflow code it is durable: a worker runs it, and its result is recorded once. Awaited anywhere else it
runs as a plain function. ``charge.fn`` is the function itself. ``hf.Retry`` is its retry policy; ``hf.activity_info``,
``hf.idempotency_key`` and ``hf.heartbeat`` are for its body.
"""

import asyncio
import datetime as dt
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing
from contextvars import ContextVar
from functools import cached_property
from types import MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    NamedTuple,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    cast,
    overload,
    runtime_checkable,
)

from msgspec import UNSET

from holdfast.authoring.activity_function import (
    NO_OBJECT,
    check_options,
    is_method,
    options_of,
    preparation,
    without_object,  # pyright: ignore[reportUnusedImport]  # it is used where type checkers do not look
)
from holdfast.authoring.call_options import (
    CallOptions,
    OnExhausted,
    changed_options,
    checked_on_cancel,
    checked_on_exhausted,
)
from holdfast.authoring.definition import Definition
from holdfast.authoring.retry import Retry, checked_retry
from holdfast.authoring.validation import (
    Duration,
    checked_bool,
    checked_integer,
    checked_name,
    checked_timeout_ms,
)
from holdfast.core.activity_options import (
    DEFAULT_CLAIM_TIMEOUT_MS,
    DEFAULT_MAX_LOSSES,
    DEFAULT_QUEUE,
    ActivityOptions,
    ExternalOptions,
    OnCancel,
    OnCancelOption,
    encode_options,
)
from holdfast.core.ledger import DEFAULT_LEG1_LIMIT, MAX_LEG1_ENTRIES
from holdfast.errors import InvalidOption, UsageError
from holdfast.payloads.signature import Signature
from holdfast.replay.run import current_run

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
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

    __slots__ = (
        "declaration",
        "encoded_options",
        "is_async",
        "is_stand_in",
        "options",
        "prepare",
        "process",
        "receiver",
        "yields",
    )

    def __init__(
        self,
        fn: Callable[..., Any],
        name: str,
        options: ActivityOptions,
        *,
        process: bool = False,
        prepare: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(fn, name)
        self.receiver: object = NO_OBJECT if is_method(fn) else None
        """The object of a method; `NO_OBJECT` for a method in its class, None for a function."""
        self.declaration: Activity[..., Any] = self
        """The activity in the class; of a function itself."""
        self.options = options
        self.encoded_options = encode_options(options)
        self.process = process
        self.is_stand_in = False
        """It replaces another one in a test, and its body runs in the process of the test."""
        self.prepare = prepare
        self.yields = options.stream is not None
        self.is_async = inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, object, R]:
        run = current_run()
        call: Any
        if run is None:
            call = self.run_body(args, kwargs)
        else:
            signature = self.signature
            call = run.activities.run(self, signature, signature.encode_arguments(args, kwargs))
        call.__qualname__ = self.name  # Python's warning names it if the call is never awaited
        typed: Coroutine[object, object, R] = call
        return typed

    def with_options(self, **options: Unpack[CallOptions]) -> "ActivityCall[P, R]":
        """This activity with other options for some of its calls: ``charge.with_options(queue="gpu")(order)``.

        An omitted option is that of the activity; None for a time-out means none. Keep the result if many calls use
        it: the options are checked and encoded here, once. A worker that is given no `queues=` does not know a queue
        that only calls name.
        """
        return ActivityCall(self, self.options_of_call(self.options, options))

    def options_of_call(self, before: ActivityOptions, given: CallOptions) -> ActivityOptions:
        """The options `before`, changed by the given ones. Raises `InvalidOption` if they do not fit this activity."""
        options = changed_options(self.name, before, given)
        in_process = self.process if options.process is UNSET else options.process
        preparation(self.prepare, self.fn, process=in_process)
        check_options(self.fn, options, process=in_process)
        return options

    if not TYPE_CHECKING:

        @cached_property
        def signature(self) -> Signature:
            if self.declaration is not self:
                return self.declaration.signature
            return Signature(without_object(self.fn) if self.receiver is NO_OBJECT else self.fn, yields=self.yields)

    if not TYPE_CHECKING:  # type checkers see `ActivityOf.__get__`

        def __get__(self, instance: object, owner: type | None = None) -> "Activity[..., Any]":
            """A method is bound to its object: ``mail.send``. ``Mail.send``, and functions, are the activity itself."""
            return self if instance is None or self.receiver is not NO_OBJECT else self.bound_to(instance)

    def bound_to(self, instance: object) -> "Activity[..., Any]":
        """This method of an object."""
        bound = type(self).__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound.fn = MethodType(self.fn, instance)
        bound.name = self.name
        bound.options = self.options
        bound.encoded_options = self.encoded_options
        bound.process = self.process
        bound.is_stand_in = self.is_stand_in
        prepare = self.prepare
        if isinstance(prepare, MethodType) and prepare.__self__ is NO_OBJECT:
            prepare = MethodType(prepare.__func__, instance)
        bound.prepare = prepare
        bound.yields = self.yields
        bound.is_async = self.is_async
        bound.receiver = instance
        bound.declaration = self
        return bound

    def check_body(self) -> None:
        """Raise `UsageError` if there is no body here, or no object to call it on."""
        if self.options.external is not None:
            raise UsageError(f"{self.name} is external and has no body here: call it in a workflow")
        if self.receiver is NO_OBJECT:
            cls, _, method = self.fn.__qualname__.rpartition(".")
            raise UsageError(
                f"{cls}.{method} is a method: outside of workflows call it on an object, {cls}(...).{method}(...)"
            )

    async def run_body(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        """Run the body as a plain function, outside of a workflow."""
        self.check_body()
        if self.prepare is None:
            return await self._call_body(args, kwargs)
        token = current_activity.set(await self._prepare_call(args, kwargs))
        try:
            return await self._call_body(args, kwargs)
        finally:
            current_activity.reset(token)

    async def _call_body(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        if self.is_async:
            result: R = await self.fn(*args, **kwargs)
            return result
        return await asyncio.to_thread(self.fn, *args, **kwargs)

    async def _prepare_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "PlainCall":
        """Prepare a call outside of a workflow. Returns the context of its body."""
        prepare = self.prepare
        if prepare is None:
            return PlainCall(self, None)
        token = current_activity.set(PlainCall(self, None))
        try:
            if inspect.iscoroutinefunction(prepare):
                return PlainCall(self, await prepare(*args, **kwargs))
            return PlainCall(self, await asyncio.to_thread(prepare, *args, **kwargs))
        finally:
            current_activity.reset(token)


class StreamActivity(Activity[P, AsyncIterator[T]], Generic[P, T]):
    """A generator marked by `activity`, for ``async for part in write_story("x")`` (L15)."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:  # type: ignore[override, misc]  # not awaited
        run = current_run()
        if run is not None:
            return run.streams.open(self, self.signature.encode_arguments(args, kwargs))
        self.check_body()
        if self.prepare is not None:
            return self._prepared_values(args, kwargs)
        return self._values(args, kwargs)

    def with_options(self, **options: Unpack[CallOptions]) -> "StreamCall[P, T]":
        """As for any activity; see `Activity.with_options`."""
        return StreamCall(self, self.options_of_call(self.options, options))

    def _values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AsyncGenerator[T, None]:
        values: Any = self.fn(*args, **kwargs)
        return values if self.is_async else _one_by_one(values)

    async def _prepared_values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AsyncGenerator[T, None]:
        call = await self._prepare_call(args, kwargs)
        async with aclosing(self._values(args, kwargs)) as values:
            while True:
                token = current_activity.set(call)  # set for each step: the steps may run in different contexts
                try:
                    value = await anext(values)
                except StopAsyncIteration:
                    return
                finally:
                    current_activity.reset(token)
                yield value


class ActivityCall(Generic[P, R]):
    """An activity with options of its own for its calls, made by `with_options` (A15). It is called as the activity is.

    It is no definition: the activity is what a worker registers, and a module may hold any number of these.
    """

    __slots__ = ("activity", "encoded_options", "name", "options", "signature")

    def __init__(self, activity: Activity[P, R], options: ActivityOptions) -> None:
        self.activity = activity
        self.name = activity.name
        self.options = options
        self.encoded_options = encode_options(options)
        self.signature = activity.signature

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, object, R]:
        run = current_run()
        call: Any
        if run is None:
            call = self.activity.run_body(args, kwargs)
        else:
            signature = self.signature
            call = run.activities.run(self, signature, signature.encode_arguments(args, kwargs))
        call.__qualname__ = self.name
        typed: Coroutine[object, object, R] = call
        return typed

    def with_options(self, **options: Unpack[CallOptions]) -> "ActivityCall[P, R]":
        """These options, changed by further ones."""
        changed = self.activity.options_of_call(self.options, options)
        return type(self)(self.activity, changed)

    def __repr__(self) -> str:
        return f"<activity {self.name} with options of its own>"


class StreamCall(ActivityCall[P, AsyncIterator[T]], Generic[P, T]):
    """A generator with options of its own for its calls: ``async for part in write.with_options(...)("x")``."""

    __slots__ = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:  # type: ignore[override, misc]  # not awaited
        run = current_run()
        if run is None:
            values: Any = self.activity(*args, **kwargs)
        else:
            values = run.streams.open(self, self.signature.encode_arguments(args, kwargs))
        typed: AsyncIterator[T] = values
        return typed


AnyActivity = Activity[..., Any] | ActivityLike[..., Any]
"""An activity with any parameters."""


async def _one_by_one(values: Iterator[T]) -> AsyncGenerator[T, None]:
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

        def with_options(
            self: "ActivityOf[Callable[P, R]]", **options: Unpack[CallOptions]
        ) -> "ActivityCall[P, R]": ...

        @overload  # a method is called without its object, on the class in workflow code: ``await Mail.send("x")``
        def __get__(
            self: "ActivityOf[Callable[Concatenate[S, P], R]]", instance: S | None, owner: type[S]
        ) -> "ActivityOf[Callable[P, R]]": ...
        @overload  # a function
        def __get__(self, instance: object, owner: type) -> Self: ...
        def __get__(self, instance: object, owner: type) -> Any: ...

    class StreamActivityOf(StreamActivity[..., Any], ActivityLike[..., Any], Generic[F_co]):
        """A generator as type checkers see it, with the values that it yields as the result of its function."""

        def __call__(  # type: ignore[override]
            self: "StreamActivityOf[Callable[P, T]]", *args: P.args, **kwargs: P.kwargs
        ) -> AsyncIterator[T]: ...

        def with_options(
            self: "StreamActivityOf[Callable[P, T]]", **options: Unpack[CallOptions]
        ) -> "StreamCall[P, T]": ...

        @overload
        def __get__(
            self: "StreamActivityOf[Callable[Concatenate[S, P], T]]", instance: S | None, owner: type[S]
        ) -> "StreamActivityOf[Callable[P, T]]": ...
        @overload
        def __get__(self, instance: object, owner: type) -> Self: ...
        def __get__(self, instance: object, owner: type) -> Any: ...


def _check_flags(**flags: bool) -> None:
    for name, value in flags.items():
        checked_bool(value, name)


def _external_options(claim_timeout: Duration | None, *, is_external: bool) -> ExternalOptions | None:
    timeout_ms = checked_timeout_ms(claim_timeout, "claim_timeout", omitted="300 s")
    if timeout_ms is not None and not is_external:
        raise InvalidOption(
            "claim_timeout is for external activities: the claim of a worker lasts as long as its lease"
        )
    return ExternalOptions(timeout_ms or DEFAULT_CLAIM_TIMEOUT_MS) if is_external else None


def _kind_of(options: ActivityOptions) -> type[Activity[Any, Any]]:
    return Activity[Any, Any] if options.stream is None else StreamActivity[Any, Any]


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
    prepare: Callable[..., Any] | None = None,
    external: bool = False,
    claim_timeout: Duration | None = None,
    max_claims: int = DEFAULT_LEG1_LIMIT,
    on_cancel: OnCancelOption = "request",
    on_exhausted: OnExhausted = "fail",
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
    prepare: Callable[..., Any] | None = None,
    external: bool = False,
    claim_timeout: Duration | None = None,
    max_claims: int = DEFAULT_LEG1_LIMIT,
    on_cancel: OnCancelOption = "request",
    on_exhausted: OnExhausted = "fail",
) -> Any:
    """Mark a function, or a method of objects that workers register, as an activity (A11).

    `async def` runs on the engine's event loop, `def` in a thread, with `process` in a process that ends with its
    parent. Time-outs: `start_to_close` bounds one attempt, `heartbeat` the time between two `hf.heartbeat` calls,
    `schedule_to_start` the wait for a worker, `schedule_to_close` all attempts together. A generator delivers what it
    yields, and a yield is a heartbeat. With `resumable` an attempt continues where the one before ended; without, the
    workflow receives `hf.StreamRestarted`. `prepare` runs before each body: ``hf.activity_info().prepared``.

    With `external` the function has no body: it declares an activity that an executor outside of Holdfast claims, runs
    and reports, by rows (`activity_events`) or by ``holdfast activity``. `claim_timeout` (300 s) releases a claim that
    is silent before it runs; after `max_claims` claims the activity fails with `hf.ClaimsExhausted`. With the result
    ``AsyncIterator[T]`` the executor sends values as responses. `on_cancel`: a cancelled body is asked to stop; "wait"
    waits for its end, "abandon" leaves it alone. ``on_exhausted="pause"`` pauses the instance after the last retry.
    """
    _check_flags(process=process, resumable=resumable, external=external)
    options = ActivityOptions(
        queue=checked_name(queue, "a queue"),
        retry=(checked_retry(retry) or Retry()).policy(),
        schedule_to_start_ms=checked_timeout_ms(schedule_to_start, "schedule_to_start"),
        start_to_close_ms=checked_timeout_ms(start_to_close, "start_to_close"),
        schedule_to_close_ms=checked_timeout_ms(schedule_to_close, "schedule_to_close"),
        heartbeat_ms=checked_timeout_ms(heartbeat, "heartbeat"),
        rerun_after_loss=checked_bool(rerun_after_loss, "rerun_after_loss"),
        max_losses=checked_integer(max_losses, "max_losses", least=0),
        prepares=prepare is not None,
        max_claims=checked_integer(max_claims, "max_claims", least=1, most=MAX_LEG1_ENTRIES),
        external=_external_options(claim_timeout, is_external=external),
        on_cancel=UNSET if (mode := checked_on_cancel(on_cancel)) is OnCancel.REQUEST else mode,
        pauses=checked_on_exhausted(on_exhausted),
    )

    def mark(function: Callable[..., Any]) -> Activity[Any, Any]:
        chosen = options_of(function, options, process=process, resumable=resumable)
        before = preparation(prepare, function, process=process)
        checked = checked_name(function.__name__ if name is None else name, "an activity")
        return _kind_of(chosen)(function, checked, chosen, process=process, prepare=before)

    return mark if fn is None else mark(fn)


class Cancelled(asyncio.CancelledError):
    """Raised by `hf.heartbeat()` in the body of an activity that should stop. ``except Exception`` does not catch it.

    The attempt was cancelled, is beyond a time-out, or belongs to another worker. Clean up, and do not catch it.
    """


class ActivityInfo(NamedTuple):
    """The running attempt. `details`: those of the last heartbeat of the attempt before. `delivered`: how many values
    the attempts before delivered, if it yields. `is_cancelled`: whether the body should stop, as of this call: the
    attempt was cancelled, is beyond a time-out, or belongs to another worker by now. `prepared`: the value of the
    function of `prepare=`. `scheduled_at`: when the workflow called the activity; `started_at`: when this attempt
    began; `deadline`: when its time-outs end it, None without any. The times are those of the store, in UTC. Outside
    of a workflow there are none."""

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
    prepared: Any = None
    scheduled_at: dt.datetime | None = None
    started_at: dt.datetime | None = None
    deadline: dt.datetime | None = None


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
    @property
    def worker_context(self) -> Any: ...
    def heartbeat(self, details: Any) -> None: ...


class PlainCall:
    """The context of an activity with `prepare=` that is called outside of a workflow."""

    __slots__ = ("_activity", "_prepared")

    def __init__(self, activity: Activity[..., Any], prepared: Any) -> None:
        self._activity = activity
        self._prepared = prepared

    @property
    def identity(self) -> AttemptIdentity:
        return AttemptIdentity("", "", 1, self._activity.name, 1, None)

    @property
    def info(self) -> ActivityInfo:
        activity = self._activity
        return ActivityInfo("", "", activity.name, 0, 1, activity.options.queue, None, prepared=self._prepared)

    @property
    def idempotency_key(self) -> str:
        raise _not_in_body("hf.idempotency_key")

    @property
    def worker_context(self) -> Any:
        raise _not_in_body("hf.context")

    def heartbeat(self, details: Any) -> None:
        del details
        raise _not_in_body("hf.heartbeat")


current_activity: Final[ContextVar[ActivityContext | None]] = ContextVar("holdfast_activity", default=None)


def activity_info() -> ActivityInfo:
    """The running attempt: its instance, number, details of the last heartbeat."""
    return activity_context("hf.activity_info").info


def idempotency_key() -> str:
    """A key that all attempts of this call share, and no other call has. Pass it to services that deduplicate."""
    return activity_context("hf.idempotency_key").idempotency_key


def heartbeat(details: Any = None) -> None:
    """Report that the body is alive. `details` reach the next attempt if this one is lost.

    Raises `hf.Cancelled` if the body should stop. A coroutine receives `asyncio.CancelledError` at its `await` instead,
    and can send heartbeats while it cleans up.
    """
    activity_context("hf.heartbeat").heartbeat(details)


def activity_context(called: str) -> ActivityContext:
    """The running attempt, for the function `called`."""
    context = current_activity.get()
    if context is None:
        raise _not_in_body(called)
    return context


def _not_in_body(called: str) -> UsageError:
    return UsageError(f"{called} works in the body of an activity that a worker runs only")
