"""How SQLite is made to follow one index in a search (F8), and the connection on which searches run.

A search may read much, and the other reads of a store run on the event loop of its caller. So searches have a thread
and a connection of their own. SQLite calls a function while it runs a statement, which ends one that takes too long.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import apsw

from holdfast.errors import SearchTimedOut, StoreError
from holdfast.storage.relational.reads import BoundStatement
from holdfast.storage.relational.transaction import Row
from holdfast.storage.search import SEARCH_SECONDS

if TYPE_CHECKING:
    from holdfast.storage.relational.search import Ordered
    from holdfast.storage.sqlite.connection import SqliteConnection

STEPS: Final = 10_000
"""Instructions of SQLite's virtual machine between two looks at the clock: less than a millisecond."""


class SqliteDialect:
    """The statements of a search on SQLite."""

    position = "instr"

    def index_of(self, branch: "Ordered") -> str:
        return f"INDEXED BY {branch.index_name}"

    def range_of(
        self, columns: Sequence[str], values: Sequence[str], key: str, bounds: tuple[str, str] | None
    ) -> list[str]:
        equal = [f"{column} = {value}" for column, value in zip(columns, values, strict=True)]
        return equal if bounds is None else [*equal, f"{key} >= {bounds[0]}", f"{key} <= {bounds[1]}"]

    def order_of(self, columns: Sequence[str], direction: str) -> str:
        del columns, direction
        return ""

    def merged(self, branches: Sequence[str], direction: str) -> str:
        union = " UNION ALL ".join(branches)
        return f"{union} ORDER BY 1 {direction}, 2 {direction} LIMIT -1"  # without a limit the order would be dropped

    def joined(self, condition: str) -> str:
        tests = f" AND {condition}" if condition else ""
        return f" CROSS JOIN instances AS i ON i.number = k.number{tests}"


class SearchConnection:
    """A thread with a connection that reads."""

    def __init__(
        self, path: Path, elapsed_ms: Callable[[], float], open_one: "Callable[[Path], SqliteConnection]"
    ) -> None:
        self._path = path
        self._open_one = open_one
        self._elapsed_ms = elapsed_ms
        self.thread = ThreadPoolExecutor(1, "holdfast-search")
        self._connection: Any = None

    def run(self, asked: Sequence[BoundStatement]) -> list[list[Row]]:
        """The rows of statements. For the thread."""
        if self._connection is None:
            self._connection = self._open_one(self._path)
        ends_at_ms = self._elapsed_ms() + SEARCH_SECONDS * 1_000
        self._connection.set_progress_handler(lambda: self._elapsed_ms() > ends_at_ms, STEPS)
        try:
            return [self._connection.execute(ask[0], ask[1:]).fetchall() for ask in asked]
        except apsw.InterruptError:
            raise SearchTimedOut(
                f"the search took longer than {SEARCH_SECONDS:g} s; add a time range or a test of an indexed field"
            ) from None
        except apsw.Error as error:
            raise StoreError(f"{self._path} could not be searched: {error}") from error
        except UnicodeDecodeError as error:  # SQLite stores any bytes as text
            raise StoreError(
                f"{self._path} has a damaged row, whose text is not UTF-8 ({error}); run holdfast verify"
            ) from error

    def close(self) -> None:
        """Wait for a running search, and close the connection."""
        self.thread.submit(self._close).result()
        self.thread.shutdown()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
