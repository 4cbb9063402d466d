"""How a loop that goes on reports trouble: a store that cannot be used is one line, an unforeseen error a traceback."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from holdfast.errors import HoldfastError, StoreReplaced

logger = logging.getLogger("holdfast")

PERIOD_MS: Final = 60_000
MILLISECONDS: Final = 1_000


def tell_trouble(what: str, error: Exception) -> None:
    """Log what could not be done, and why. The loss of the store's files was logged by the store, once."""
    if not isinstance(error, StoreReplaced):
        logger.error("%s: %s", what, error, exc_info=None if isinstance(error, HoldfastError) else error)


class RepeatedTrouble:
    """Trouble that comes with every row and every retry: the first is logged at once, the others once a minute.

    A thread without an event loop passes a clock in `now_ms`.
    """

    def __init__(self, now_ms: Callable[[], float] | None = None) -> None:
        self._now_ms = now_ms or _loop_ms
        self._logged_at_ms: float | None = None
        self._count = 0

    def tell(self, what: str, error: Exception) -> None:
        """Log it, or count it for the next line."""
        now_ms = self._now_ms()
        self._count += 1
        if self._logged_at_ms is not None and now_ms - self._logged_at_ms < PERIOD_MS:
            return
        times = "" if self._logged_at_ms is None else f" ({self._count:,} times since the last such line)"
        self._logged_at_ms = now_ms
        self._count = 0
        tell_trouble(f"{what}{times}", error)


def _loop_ms() -> float:
    return asyncio.get_running_loop().time() * MILLISECONDS
