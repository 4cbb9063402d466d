"""The digits and states of attempts that are prepared, and the order in which things happened."""

import asyncio
import threading
from pathlib import Path
from typing import Any

from tests.scenarios.support import rows

ENTERED = 899_000_000_000_000
CONCLUDED = 889_000_000_000_000
RERUN = 799_000_000_000_000


def stored(path: Path) -> list[tuple[str, int]]:
    """The state and the digits of each attempt."""
    return [(state, ledger) for state, ledger in rows(path, "SELECT state, ledger FROM attempts ORDER BY attempt")]


class Steps:
    """The order in which things happened."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.go = asyncio.Event()
        self.in_thread = threading.Event()

    def has_seen(self, count: int) -> bool:
        return len(self.seen) >= count
