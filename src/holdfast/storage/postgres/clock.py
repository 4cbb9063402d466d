"""The store's time: the server's, which every worker shares, and which never goes back (W9).

Inside a transaction it is read from the server, and that is what decides about leases. Between two of them it goes on
by a clock of this machine from where it was read last. Tests give a clock of their own; then that one decides.
"""

import threading
from collections.abc import Callable
from typing import Final

MARK_EVERY_MS: Final = 1_000
"""How far the mark in the database may be behind. It matters when the server's clock goes back: after a failover."""


MOST_AHEAD_MS: Final = 50
"""What this machine said between two transactions may be so far ahead of the server, and is not taken back."""


class ServerClock:
    """One for each store; its connections read and set it from their threads."""

    def __init__(self, given: Callable[[], int] | None, elapsed_ms: Callable[[], float]) -> None:
        self._given = given
        self._elapsed_ms = elapsed_ms
        self._lock = threading.Lock()
        self._mark_ms = 0
        self._committed_ms = 0
        self._read_ms = 0
        self._read_at_ms = 0.0

    @property
    def slack_ms(self) -> int:
        """How far the mark in the database may be behind the time of a transaction."""
        return 0 if self._given is not None else MARK_EVERY_MS

    @property
    def marks_every_group(self) -> bool:
        """Whether groups keep the mark, and not heartbeats alone."""
        return self._given is not None

    def now_ms(self) -> int:
        """The time between transactions, as far as this machine can tell."""
        with self._lock:
            if self._given is not None:
                now_ms = self._given()
            else:
                now_ms = self._read_ms + int(self._elapsed_ms() - self._read_at_ms)
            self._mark_ms = max(self._mark_ms, now_ms, self._committed_ms)
            return self._mark_ms

    def read(self, server_ms: int, mark_ms: int) -> int:
        """The time of a transaction, from what the server said in it and the mark in the database."""
        with self._lock:
            self._read_ms, self._read_at_ms = server_ms, self._elapsed_ms()
            now_ms = server_ms if self._given is None else self._given()
            said_ms = min(self._mark_ms, now_ms + MOST_AHEAD_MS)
            self._committed_ms = max(self._committed_ms, now_ms, mark_ms, said_ms)
            if self._given is not None:
                self._mark_ms = max(self._mark_ms, self._committed_ms)
            return self._committed_ms
