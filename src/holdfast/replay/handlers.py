"""The functions by which a workflow answers from outside: queries. Registered by its code, the same in every replay."""

from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

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


class Handlers:
    """The handlers of one run by name. One that is registered later takes the place of an earlier one."""

    __slots__ = ("queries",)

    def __init__(self) -> None:
        self.queries: dict[str, Handler] = {}
