"""The end of code that was asked to end at its deadline, and gave no result."""

import asyncio

from holdfast.errors import DeadlineExceeded
from holdfast.replay.continuing import asked_to_continue


def overdue(reason: str, error: BaseException) -> DeadlineExceeded:
    """The failure of the workflow. What its code stumbled over besides is its cause; that it was cancelled is not."""
    exceeded = DeadlineExceeded(reason)
    if not isinstance(error, asyncio.CancelledError) and asked_to_continue(error) is None:
        exceeded.__cause__ = error
    return exceeded
