"""Continue-as-new (G4): workflow code ends its execution and requests the next one.

The call raises `ContinueAsNew`, which derives from BaseException so that an ordinary ``except Exception`` does not
swallow it. ``finally`` blocks run, remaining tasks are cancelled as at any end (G14), and then the run reads it from
the main task.

A workflow with a retry policy continues in the same way when its code fails (G18). The decision depends on the recorded
start and the error only, so that a replay makes it again.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random  # noqa: TID251 - seeded from the history: the same numbers in every replay
from typing import Any, NoReturn, Protocol, cast

from holdfast.core.activity_options import NoRetry, RetryDecision, RetryPolicy, after_failure
from holdfast.core.deadlines import MILLISECONDS
from holdfast.errors import NotInMainTask
from holdfast.payloads.failures import error_names, failure_of
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


def decide_retry(policy: RetryPolicy, error: BaseException, *, attempt: int, seed: int) -> RetryDecision:
    """Whether execution number `attempt` of an input is followed by another one after `error`."""
    failure = failure_of(error)
    if failure.retryable is False:
        return NoRetry("the failure is marked as not retryable")
    asked = failure.next_delay_seconds
    return after_failure(
        policy,
        failures=attempt,
        error_types=error_names(error),
        random_number=Random(seed).random(),  # noqa: S311 - reproducible on purpose
        asked_delay_ms=None if asked is None else round(asked * MILLISECONDS),
    )


async def begin_later(
    at_ms: int, function: Callable[..., Coroutine[Any, Any, Any]], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call the main function when the delay of its retry has passed. A cancel ends the execution before."""
    await asyncio.sleep(max(0.0, at_ms / MILLISECONDS - asyncio.get_running_loop().time()))
    return await function(*args, **kwargs)
