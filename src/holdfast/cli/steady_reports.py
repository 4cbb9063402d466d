"""Reports of ``holdfast activity run`` that outlast an outage of the store (A5).

The result of a program that ran for hours must not be lost because the database restarts at that moment. A call that
the store fails is repeated; a report keeps its id, so that a repeated insert is the same report (C2).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from holdfast.cli.console import print_message
from holdfast.client.activity_reports import ActivityReports, Answered, OfferedActivity, OpenActivity
from holdfast.client.instance_calls import InstanceCalls
from holdfast.client.requests import ANSWER_SECONDS
from holdfast.core.activity_events import ReportKind
from holdfast.errors import ClientClosed, ReleaseTooOld, StoreError, StoreReplaced

LONGEST_OUTAGE_SECONDS: Final = 3_600.0
"""After this time the error ends the command."""
PAUSE_SECONDS: Final = 0.5
LASTING: Final = (StoreReplaced, ReleaseTooOld, ClientClosed)
"""Errors that another try meets as well."""
T = TypeVar("T")


class SteadyReports(ActivityReports):
    """Reports that are repeated while the store cannot be used, unless the executor has to end (`is_over`)."""

    def __init__(self, calls: InstanceCalls, *, source: str | None, is_over: Callable[[], bool]) -> None:
        super().__init__(calls, source=source)
        self._new_id = calls.session.platform.providers.unique_text
        self._is_over = is_over
        self._failing_since: float | None = None

    async def open_activities(
        self, *, limit: int, queues: Sequence[str] | None = None, names: Sequence[str] | None = None
    ) -> list[OpenActivity]:
        return await self._repeated(partial(super().open_activities, limit=limit, queues=queues, names=names))

    async def find(self, exec_id: str) -> OfferedActivity | None:
        return await self._repeated(partial(super().find, exec_id))

    async def insert(
        self,
        exec_id: str,
        kind: ReportKind,
        *,
        claim: str | None = None,
        payload: str | None = None,
        error: str | None = None,
        event_id: str | None = None,
        sequence: int | None = None,
    ) -> str:
        insert = partial(super().insert, exec_id, kind, claim=claim, payload=payload, error=error, sequence=sequence)
        return await self._repeated(partial(insert, event_id=event_id or self._new_id()))

    async def answer(self, event_id: str, seconds: float = ANSWER_SECONDS) -> Answered:
        return await self._repeated(partial(super().answer, event_id, seconds))

    async def _repeated(self, call: Callable[[], Awaitable[T]]) -> T:
        """The result of a call, which is repeated while the store fails it."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                found = await call()
            except LASTING:
                raise
            except StoreError as error:
                if self._failing_since is None:
                    self._failing_since = loop.time()
                    print_message(f"the store cannot be used, and is tried again: {error}")
                if self._is_over() or loop.time() - self._failing_since > LONGEST_OUTAGE_SECONDS:
                    raise
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                if self._failing_since is not None:
                    self._failing_since = None
                    print_message("the store can be used again")
                return found
