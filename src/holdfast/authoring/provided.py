"""``hf.context``: what the ``context=`` of a worker made for the bodies of its activities (A12)."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeVar, cast, overload

from holdfast.authoring.activity import activity_context
from holdfast.errors import InvalidOption, UsageError

T = TypeVar("T")
ContextFactory = Callable[[], AbstractAsyncContextManager[Any]]
"""Makes the context of one worker."""


class _NoContext:
    """The context of a worker without ``context=``."""

    def __repr__(self) -> str:
        return "..."


NO_CONTEXT: Final = _NoContext()


@overload
def context(expected: type[T], /) -> T: ...
@overload
def context() -> Any: ...
def context(expected: Any = None, /) -> Any:
    """The object that the worker's ``context=`` made: ``hf.context(Clients).mail``. For the bodies of activities.

    With a class the result has its type, and another object is a `UsageError`. It works in coroutines and in threads,
    and in the function of `prepare=`; a body with ``process=True`` runs in another process and has no context.
    """
    value = activity_context("hf.context").worker_context
    if value is NO_CONTEXT:
        raise UsageError(
            "hf.context: this worker has no context; give it one, such as hf.Worker(client, context=make_clients)"
        )
    if isinstance(expected, type) and not _is_instance(value, expected):
        raise UsageError(f"hf.context({expected.__qualname__}): the context is a {type(value).__qualname__}")
    return value


def _is_instance(value: object, expected: type) -> bool:
    try:
        return isinstance(value, expected)
    except TypeError:
        return True  # a protocol that cannot be checked at run time


def checked_context(context: object) -> ContextFactory | None:
    """The option `context`, checked: a function that makes the context, and not the context itself."""
    if context is None:
        return None
    if hasattr(type(context), "__aenter__"):
        raise InvalidOption(f"context takes the function that makes the context: make_clients, not {context!r}")
    if not callable(context):
        raise InvalidOption(
            f"context takes a function without parameters that returns an async context manager, not {context!r}"
        )
    return cast("ContextFactory", context)
