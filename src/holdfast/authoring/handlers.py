"""``@hf.on_query``: functions inside a workflow that answer those who ask it from outside."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast, get_args, overload

from holdfast.authoring.inside import current
from holdfast.authoring.names import checked_name
from holdfast.errors import InvalidOption
from holdfast.replay.handlers import Handler

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Query(Generic[R_co]):
    """The typed name of a query, which the workflow and those who ask it share: ``hf.Query[int]("total")``."""

    def __init__(self, name: str) -> None:
        self.name = checked_name(name, "a query")

    @property
    def annotation(self) -> Any:
        """The type of the answer; anything if none was given."""
        return next(iter(get_args(getattr(self, "__orig_class__", None))), Any)

    def __repr__(self) -> str:
        return f"<query {self.name}>"


class Keeping(Protocol):
    """A decorator that leaves a function as it is."""

    def __call__(self, fn: Callable[P, R], /) -> Callable[P, R]: ...


class KeepingResult(Protocol[R]):
    """The same, for functions of one type of result."""

    def __call__(self, fn: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def on_query(query: Query[R], /) -> KeepingResult[R]: ...
@overload
def on_query(name: str, /) -> Keeping: ...
@overload
def on_query(fn: Callable[P, R], /) -> Callable[P, R]: ...
def on_query(what: Any, /) -> Any:
    """Let a function inside the workflow answer a query: ``@hf.on_query``, or ``@hf.on_query("name")``.

    It is a plain ``def`` that looks at the variables of the workflow and changes nothing. Register it before the first
    ``await``, so that nobody asks in vain. A later one of the same name takes its place.
    """
    if isinstance(what, str | Query):
        name = what.name if isinstance(what, Query) else checked_name(what, "a query")
        return partial(_answer, name)
    return _answer(checked_name(getattr(what, "__name__", None), "a query"), what)


def _answer(name: str, fn: Callable[P, R]) -> Callable[P, R]:
    if not inspect.isfunction(fn) or inspect.iscoroutinefunction(fn) or inspect.isgeneratorfunction(fn):
        raise InvalidOption(f"the query {name!r} must be answered by a plain `def`, which cannot wait, not by {fn!r}")
    current("hf.on_query").handlers.queries[name] = Handler(name, cast(Any, fn))
    return fn
