"""Retries of executions: a workflow with a retry policy begins again when its code fails (G16).

The failing turn decides: its commit ends the execution and creates the next one, as continue-as-new does. The decision
depends on the recorded start and the error only, so that a replay makes it again.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random  # noqa: TID251 - seeded from the history: the same numbers in every replay
from typing import Any

from holdfast.core.activity_options import NoRetry, RetryDecision, RetryPolicy, after_failure
from holdfast.core.deadlines import MILLISECONDS
from holdfast.payloads.failures import error_names, failure_of


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
