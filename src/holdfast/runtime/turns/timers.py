"""Times at which instances have something due, with one timer of the event loop for the nearest of them."""

import asyncio
import heapq
import logging
from collections.abc import Callable
from typing import Final

from holdfast.storage.records import InstanceNumber

logger = logging.getLogger("holdfast")

RETRY_MS: Final = 1_000
LONGEST_WAIT_SECONDS: Final = 3600.0
"""The store's clock and the loop's clock may drift apart: a longer wait is split."""


class TimerHeap:
    """Calls back once for each time added, never before it. Adding a time twice costs a needless call, no more."""

    def __init__(self, now_ms: Callable[[], int], due: Callable[[InstanceNumber], None]) -> None:
        self._now_ms = now_ms
        self._due = due
        self._heap: list[tuple[int, InstanceNumber]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._is_closed = False

    def add(self, at_ms: int, number: InstanceNumber) -> None:
        """Call back for this instance at `at_ms`, unless the heap is closed."""
        if self._is_closed:
            return
        heapq.heappush(self._heap, (at_ms, number))
        if self._timer is None or at_ms < self._timer_at_ms:
            self._arm()

    @property
    def next_ms(self) -> int | None:
        """The nearest time, if there is any."""
        return self._heap[0][0] if self._heap else None

    def clear(self) -> None:
        """Remove every time."""
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Remove every time and accept no more."""
        self._is_closed = True
        self.clear()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            self._timer_at_ms = self._heap[0][0]
            wait = max(0.0, (self._timer_at_ms - self._now_ms()) / 1000)
            self._timer = asyncio.get_running_loop().call_later(min(wait, LONGEST_WAIT_SECONDS), self._fire)

    def _fire(self) -> None:
        self._timer = None
        now_ms = self._now_ms()
        numbers: dict[InstanceNumber, None] = {}
        while self._heap and self._heap[0][0] <= now_ms:
            numbers[heapq.heappop(self._heap)[1]] = None
        try:
            for number in numbers:
                self._call(number)
        finally:
            self._arm()

    def _call(self, number: InstanceNumber) -> None:
        try:
            self._due(number)
        except Exception:  # an error about one instance must not stop the timers of the others
            logger.exception("a timer of instance number %d failed; the worker tries again", number)
            self.add(self._now_ms() + RETRY_MS, number)
