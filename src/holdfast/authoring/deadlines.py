"""Deadlines as people write them: with the workflow, and with a start that says otherwise."""

from types import EllipsisType

from holdfast.authoring.durations import Duration, timeout_milliseconds
from holdfast.core.deadlines import Deadline

DeadlineOption = Duration | None | EllipsisType
"""Seconds or a timedelta, None for none at all; left out, it is the workflow's own."""


def said_deadline(own: Deadline | None, given: DeadlineOption) -> Deadline | None:
    """What a start says: what is given, or else what the code says. None: that is not known here, or is nothing."""
    if isinstance(given, EllipsisType):
        return own if own is not None and own.limit_ms is not None else None
    limit_ms = timeout_milliseconds(given, "deadline")
    return Deadline(limit_ms) if own is None else own._replace(limit_ms=limit_ms)
