"""Continue-as-new (G4): workflow code ends its execution and requests the next one.

The call raises `ContinueAsNew`, which derives from BaseException so that an ordinary ``except Exception`` does not
swallow it. ``finally`` blocks run, remaining tasks are cancelled as at any end (G14), and then the run reads it from
the main task.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn, Protocol, cast

from holdfast.errors import NotInMainTask
from holdfast.payloads.signature import Signature


class Continuable(Protocol):
    """A workflow, as `continue_as_new` needs it."""

    @property
    def name(self) -> str: ...
    @property
    def signature(self) -> Signature: ...


class ContinueAsNew(BaseException):
    """Ends the main function. `encoded` is the input of the next execution, which may move to the newest version."""

    def __init__(self, encoded: bytes, *, on_newest: bool = False) -> None:
        super().__init__("continued as new")
        self.encoded = encoded
        self.on_newest = on_newest


def continue_as_new(
    code: Continuable,
    main: "asyncio.Task[Any] | None",
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    checked: Callable[[bytes, str], bytes],
    *,
    on_newest: bool = False,
) -> NoReturn:
    """Raise `ContinueAsNew`, if this is the main task. The arguments are checked here, at the call of the code."""
    current = asyncio.current_task()
    if main is None or current is not main:
        where = "a callback" if current is None else f"the task {current.get_name()}"
        raise NotInMainTask(
            f"hf.continue_as_new was called in {where} of {code.name}; only its main task may: "
            "let that task return, and call it where it is awaited"
        )
    encoded = code.signature.encode_arguments(args, kwargs)
    raise ContinueAsNew(checked(encoded, f"{code.name}(): the payload of the arguments"), on_newest=on_newest)


def find_continuation(error: BaseException) -> ContinueAsNew | None:
    """The request in the exception of the main function. A TaskGroup wraps it; beside real errors it does not count."""
    if isinstance(error, ContinueAsNew):
        return error
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        inside = [find_continuation(part) for part in group.exceptions]
        if all(part is not None for part in inside):
            return inside[0]
    return None
