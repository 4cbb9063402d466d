"""``@hf.on_query`` and ``@hf.on_update``: functions inside a workflow that handle queries and updates."""

import inspect
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, NamedTuple, ParamSpec, Protocol, TypeVar, cast, get_args, overload

from holdfast.authoring.validation import checked_name
from holdfast.authoring.workflow_api import current, readable_run
from holdfast.errors import InvalidOption, UsageError
from holdfast.replay.queries import Handler
from holdfast.replay.updates import UpdateHandler, handled_update

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class _TypedName(Generic[R_co]):
    """A name with the type of the reply."""

    kind = ""

    def __init__(self, name: str) -> None:
        self.name = checked_name(name, self.kind)

    @property
    def annotation(self) -> Any:
        """The type of the reply; `Any` if none was given."""
        return next(iter(get_args(getattr(self, "__orig_class__", None))), Any)

    def __repr__(self) -> str:
        return f"<{self.kind.partition(' ')[2]} {self.name}>"


class Query(_TypedName[R_co]):
    """The typed name of a query, shared by the workflow and its clients: ``hf.Query[int]("total")``."""

    kind = "a query"


class Update(_TypedName[R_co]):
    """The typed name of an update, shared by the workflow and its clients: ``hf.Update[int]("add")``."""

    kind = "an update"


class SameFunction(Protocol):
    """A decorator that returns the function itself."""

    def __call__(self, fn: Callable[P, R], /) -> Callable[P, R]: ...


class SameResult(Protocol[R]):
    """The same, for functions of one type of result."""

    def __call__(self, fn: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def on_query(query: Query[R], /) -> SameResult[R]: ...
@overload
def on_query(name: str, /) -> SameFunction: ...
@overload
def on_query(fn: Callable[P, R], /) -> Callable[P, R]: ...
def on_query(what: Any, /) -> Any:
    """Let a function inside the workflow answer a query: ``@hf.on_query``, or ``@hf.on_query("name")``.

    It is a plain ``def`` that reads the variables of the workflow and changes nothing. Register it before the first
    ``await``, so that the first query finds it. A later function of the same name replaces it.
    """
    if isinstance(what, str | Query):
        name = what.name if isinstance(what, Query) else checked_name(what, "a query")
        return partial(_answer, name)
    return _answer(checked_name(getattr(what, "__name__", None), "a query"), what)


def _answer(name: str, fn: Callable[P, R]) -> Callable[P, R]:
    if not inspect.isfunction(fn) or inspect.iscoroutinefunction(fn) or inspect.isgeneratorfunction(fn):
        raise InvalidOption(f"the query {name!r} must be answered by a plain `def`, which cannot wait, not by {fn!r}")
    current("hf.on_query").queries.by_name[name] = Handler(name, cast("Any", fn))
    return fn


class UpdateFunction(Generic[P, R]):
    """A function that handles an update. Workflow code can call it as before, and add a validator."""

    def __init__(self, name: str, fn: Callable[P, R]) -> None:
        if not inspect.isfunction(fn) or inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            raise InvalidOption(f"the update {name!r} must be handled by a `def` or an `async def`, not by {fn!r}")
        self._fn: Callable[P, R] = fn
        self._handler = UpdateHandler(name, fn)
        current("hf.on_update").updates.handlers[name] = self._handler

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._fn(*args, **kwargs)

    def validator(self, check: Callable[P, object], /) -> Callable[P, object]:
        """Call a plain ``def`` with the same parameters before the handler: an exception rejects the update.

        Like a query it is read-only. A rejected update is not recorded in the history.
        """
        name = self._handler.name
        if not inspect.isfunction(check) or inspect.iscoroutinefunction(check) or inspect.isgeneratorfunction(check):
            raise InvalidOption(f"the validator of update {name!r} must be a plain `def`, which cannot wait: {check!r}")
        current("hf.on_update").updates.handlers[name] = self._handler
        self._handler.validator = check
        return check


class UpdateDecorator(Protocol):
    """The decorator that `on_update(name)` returns."""

    def __call__(self, fn: Callable[P, R], /) -> UpdateFunction[P, R]: ...


class UpdateOfType(Protocol[R]):
    """The same, for functions of one type of result."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> UpdateFunction[P, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> UpdateFunction[P, R]: ...


@overload
def on_update(update: Update[R], /) -> UpdateOfType[R]: ...
@overload
def on_update(name: str, /) -> UpdateDecorator: ...
@overload
def on_update(fn: Callable[P, R], /) -> UpdateFunction[P, R]: ...
def on_update(what: Any, /) -> Any:
    """Let a function inside the workflow handle an update: ``@hf.on_update``, or ``@hf.on_update("name")``.

    It is a ``def`` or an ``async def`` that may change the workflow and await any durable call; its result is the
    reply to the sender. Register it before the first ``await``. A later function of the same name replaces it.
    """
    if isinstance(what, str | Update):
        name = what.name if isinstance(what, Update) else checked_name(what, "an update")
        return partial(UpdateFunction[..., Any], name)
    return UpdateFunction[..., Any](checked_name(getattr(what, "__name__", None), "an update"), what)


class UpdateInfo(NamedTuple):
    """The update that is being handled."""

    id: str
    """The id that its sender gave, or the random one that it got: the same however often the update is sent."""
    name: str


def update_info() -> UpdateInfo:
    """The update that is being handled: for its handler, its validator, and the tasks that they create (G16)."""
    readable_run("hf.update_info")
    handled = handled_update.get()
    if handled is None:
        raise UsageError("hf.update_info works in the handler of an update, in its validator and in their tasks only")
    return UpdateInfo(handled.id, handled.name)


def all_handlers_finished() -> bool:
    """Whether no handler is running: ``await hf.wait_until(hf.all_handlers_finished)`` before the end (G16).

    Handlers are the functions of `hf.on_update`. Events have none: the tasks of the workflow wait for them.
    """
    return not readable_run("hf.all_handlers_finished").has_open_updates
