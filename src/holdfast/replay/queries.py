"""The functions by which a workflow answers those outside: queries and updates, registered by its own code.

How an answer is made of what came of asking.
"""

from collections.abc import Callable
from contextvars import Context, copy_context
from inspect import isawaitable
from typing import Any, Final

import msgspec

from holdfast.core.queries import Reply, ReplyKind
from holdfast.payloads.failures import failure_of
from holdfast.payloads.signature import Signature


class Handler:
    """One function, with the context in which it was registered."""

    __slots__ = ("_signature", "context", "fn", "name")

    def __init__(self, name: str, fn: Callable[..., Any]) -> None:
        self.name = name
        self.fn = fn
        self.context: Context = copy_context()
        self._signature: Signature | None = None

    @property
    def signature(self) -> Signature:
        """What it takes and gives, worked out when it is first asked: most runs are never asked anything."""
        if self._signature is None:
            self._signature = Signature.of(self.fn)
        return self._signature

    def call(self, data: bytes) -> Any:
        """Call it with encoded arguments, in its own context."""
        args, kwargs = self.signature.decode_arguments(data)
        return self.context.copy().run(self.fn, *args, **kwargs)


class UpdateHandler(Handler):
    """The function of an update, and the one that judges before it whether the update is accepted."""

    __slots__ = ("validator",)

    def __init__(self, name: str, fn: Callable[..., Any]) -> None:
        super().__init__(name, fn)
        self.validator: Callable[..., object] | None = None

    def validate(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """Ask the validator. What it returns does not count, unless it would have to be awaited."""
        if self.validator is None:
            return None
        found = self.context.copy().run(self.validator, *args, **kwargs)
        return found if isawaitable(found) else None


class Handlers:
    """The handlers of one run by name. One that is registered later takes the place of an earlier one."""

    __slots__ = ("queries", "updates")

    def __init__(self) -> None:
        self.queries: dict[str, Handler] = {}
        self.updates: dict[str, UpdateHandler] = {}


_encode: Final = msgspec.json.Encoder().encode


def failed_reply(error: BaseException) -> Reply:
    """The answer of a handler that raised."""
    return Reply(ReplyKind.FAILED, msgspec.Raw(_encode(failure_of(error))))


def refused_reply(error: BaseException) -> Reply:
    """The answer where nobody could be asked."""
    return Reply(ReplyKind.REFUSED, msgspec.Raw(_encode(failure_of(error))))
