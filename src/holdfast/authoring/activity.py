"""``@hf.activity``: a function with side effects that workflows call and the engine runs.

Called in a workflow it is durable: it is scheduled, run by some worker, and its result is recorded once. Awaited
anywhere else it simply runs. ``charge.fn`` is the function itself.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, cast, overload, runtime_checkable

from msgspec.structs import replace

from holdfast.authoring.definition import Definition, not_a_function, refuse_method
from holdfast.authoring.durations import Duration, timeout_milliseconds
from holdfast.authoring.names import checked_name
from holdfast.authoring.options import switch, whole_number
from holdfast.authoring.retry import Retry
from holdfast.core.options import DEFAULT_QUEUE, ActivityOptions, StreamOptions, encode_options
from holdfast.core.retry import DEFAULT_MAX_LOSSES
from holdfast.errors import InvalidOption
from holdfast.replay.run import current_run

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
F_co = TypeVar("F_co", covariant=True)


@runtime_checkable
class ActivityLike(Protocol[P, R_co]):
    """What type checkers know as ``hf.Activity``: an activity with its parameters and its result.

    A protocol, because the decorators return `ActivityOf`, from whose one parameter no base class could take these two.
    """

    @property
    def fn(self) -> Callable[..., Any]: ...
    @property
    def name(self) -> str: ...
    @property
    def options(self) -> ActivityOptions: ...
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, object, R_co]: ...


class Activity(Definition, Generic[P, R]):
    """A function marked by `activity`. It knows its name and options; an engine makes it run."""

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
            call = run.run_activity(self, signature, signature.encode_arguments(args, kwargs))
        call.__qualname__ = self.name  # Python's warning names it if the call is never awaited
        typed: Coroutine[object, object, R] = call
        return typed

    async def _run_body(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        if self.is_async:
            result: R = await self.fn(*args, **kwargs)
            return result
        return await asyncio.to_thread(self.fn, *args, **kwargs)


class StreamActivity(Activity[P, AsyncIterator[T]], Generic[P, T]):
    """A generator marked by `activity`: a call of it is iterated over, ``async for part in write_story("x")`` (L15)."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:  # type: ignore[override, misc]  # not awaited
        run = current_run()
        if run is not None:
            return run.streams.open(self, self.signature.encode_arguments(args, kwargs))
        values: Any = self.fn(*args, **kwargs)
        return values if self.is_async else _one_by_one(values)


AnyActivity = Activity[..., Any] | ActivityLike[..., Any]
"""Whatever `activity` has marked, where the parameters do not matter."""


async def _one_by_one(values: Iterator[T]) -> AsyncIterator[T]:
    """The values of a plain generator, each made in a thread."""
    end = object()
    while (value := await asyncio.to_thread(next, values, end)) is not end:
        yield cast(T, value)


if TYPE_CHECKING:

    class ActivityOf(Activity[..., Any], Generic[F_co]):
        """An activity as type checkers see it, with the type of its function: ``ActivityOf[Callable[[str], int]]``.

        A list of activities with different parameters has a common type so. mypy joins two types that differ in a
        `ParamSpec` to `object`.
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
    """What `activity(...)` with options gives: it keeps the parameters and the result of the function."""

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

    `async def` runs on the engine's event loop, `def` in a thread, and with `process` in a process that dies with its
    parent. The four time-outs: `start_to_close` bounds one attempt, `heartbeat` the silence between two
    `hf.heartbeat` calls, `schedule_to_start` the wait for a worker, `schedule_to_close` everything with its retries.

    A generator delivers each value that it yields, and a yield counts as a heartbeat. With `resumable` an attempt goes
    on where the one before ended (`hf.activity_info().delivered`); without, the workflow gets `hf.StreamRestarted`.
    """
    switch(process, "process")
    switch(resumable, "resumable")
    options = ActivityOptions(
        queue=checked_name(queue, "a queue"),
        retry=_checked_retry(retry).policy(),
        schedule_to_start_ms=timeout_milliseconds(schedule_to_start, "schedule_to_start"),
        start_to_close_ms=timeout_milliseconds(start_to_close, "start_to_close"),
        schedule_to_close_ms=timeout_milliseconds(schedule_to_close, "schedule_to_close"),
        heartbeat_ms=timeout_milliseconds(heartbeat, "heartbeat"),
        rerun_after_loss=switch(rerun_after_loss, "rerun_after_loss"),
        max_losses=whole_number(max_losses, "max_losses", least=0),
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
