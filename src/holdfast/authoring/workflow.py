"""``@hf.workflow``: an async function that the engine runs durably."""

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from holdfast.authoring.names import checked_name
from holdfast.errors import InvalidOption, UsageError
from holdfast.payloads.signature import Signature

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class BoundWorkflow(Generic[R_co]):
    """A workflow with its arguments, also those by keyword: ``engine.start(checkout.bind(order=order), id=...)``."""

    def __init__(self, workflow: "Workflow[..., Any]", encoded: bytes) -> None:
        self.workflow = workflow
        self.encoded = encoded


class Workflow(Generic[P, R]):
    """A function marked by `workflow`. It knows its name and version; an engine makes it run."""

    def __init__(self, fn: Callable[..., Any], name: str, version: str) -> None:
        self.fn = fn
        self.name = name
        self.version = version
        self.__doc__ = fn.__doc__
        self.__name__ = getattr(fn, "__name__", name)
        self.__module__ = fn.__module__
        self.__wrapped__ = fn
        self._signature: Signature | None = None

    @property
    def signature(self) -> Signature:
        """What it takes and returns. Worked out when first needed, because annotations may name later classes."""
        if self._signature is None:
            self._signature = Signature.of(self.fn)
        return self._signature

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> BoundWorkflow[R]:
        """Put the arguments in, checked against the signature, for a later start."""
        return BoundWorkflow(self, self.signature.encode_arguments(args, kwargs))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        del args, kwargs
        raise UsageError(
            f"{self.name} is a workflow: run it with `await engine.run({self.__name__}, ...)`; "
            f"`{self.__name__}.fn` is the plain function"
        )

    def __repr__(self) -> str:
        return f"<workflow {self.name}>"


class WorkflowDecorator(Protocol):
    """What `workflow(...)` with options gives."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...


@overload
def workflow(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(*, name: str | None = None, version: str = "") -> WorkflowDecorator: ...
def workflow(fn: Callable[..., Any] | None = None, /, *, name: str | None = None, version: str = "") -> Any:
    """Mark an async function as a workflow. Its code must be deterministic: side effects belong into activities."""

    def mark(function: Callable[..., Any]) -> Workflow[Any, Any]:
        if not inspect.iscoroutinefunction(function):
            raise InvalidOption(f"@hf.workflow marks an `async def`, not {function!r}")
        return Workflow(function, checked_name(name or function.__name__, "a workflow"), version)

    return mark if fn is None else mark(fn)
