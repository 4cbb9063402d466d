"""A client and executor that has nothing but the tables: it inserts rows, and reads the answers in the views."""

import itertools
from pathlib import Path
from typing import Any

from tests.scenarios.support import rows, until


class ByRows:
    """The tables of one store."""

    def __init__(self, path: Path, name: str = "x") -> None:
        self.path = path
        self._name = name
        self._ids = itertools.count(1)

    # ------------------------------------------------------------ requests

    def request(self, workflow: str | None = None, *, request_id: str | None = None, **columns: Any) -> str:
        """Insert a request; returns its id."""
        given = request_id or f"{self._name}-r{next(self._ids)}"
        self._insert("requests", {"request_id": given, "workflow": workflow} | columns)
        return given

    def answer_to(self, request_id: str) -> tuple[str, str | None]:
        """The state and refusal of a request."""
        [found] = rows(self.path, "SELECT state, refusal FROM request_status WHERE request_id = ?", request_id)
        return found[0], found[1]

    async def ask(self, workflow: str | None = None, **columns: Any) -> tuple[str, str | None]:
        """Insert a request and wait for the answer: its state and refusal."""
        request_id = self.request(workflow, **columns)
        await until(lambda: self.answer_to(request_id)[0] != "NEW")
        return self.answer_to(request_id)

    # ------------------------------------------------------------ reports

    def offers(self, instance: str = "") -> list[str]:
        """The exec ids that an executor finds."""
        found = rows(self.path, "SELECT activity_exec_id, workflow_exec_id FROM open_activities ORDER BY 2, 1")
        return [exec_id for exec_id, owner in found if instance in ("", owner)]

    async def offer(self, instance: str = "", *, other_than: str = "") -> str:
        """Wait for an offer."""

        def found() -> list[str]:
            return [one for one in self.offers(instance) if one != other_than]

        await until(found)
        return found()[0]

    def insert(self, exec_id: str, transition: str, **columns: Any) -> str:
        """Insert a report; returns its id."""
        event_id: str = columns.pop("event_id", "") or f"{self._name}-e{next(self._ids)}"
        columns = {"event_id": event_id, "activity_exec_id": exec_id, "transition": transition} | columns
        self._insert("activity_events", columns)
        return event_id

    def answer(self, event_id: str) -> tuple[str, str | None]:
        """The state and refusal of a report."""
        [found] = rows(self.path, "SELECT state, refusal FROM activity_event_status WHERE event_id = ?", event_id)
        return found[0], found[1]

    async def answered(self, event_id: str) -> tuple[str, str | None]:
        await until(lambda: self.answer(event_id)[0] != "NEW")
        return self.answer(event_id)

    async def report(self, exec_id: str, transition: str, **columns: Any) -> tuple[str, str | None]:
        """Insert a report and wait for the answer."""
        return await self.answered(self.insert(exec_id, transition, **columns))

    def is_told_to_cancel(self, event_id: str) -> bool:
        statement = "SELECT cancel_requested FROM activity_event_status WHERE event_id = ?"
        [(found,)] = rows(self.path, statement, event_id)
        return bool(found)

    def attempts(self, instance: str) -> list[tuple[str, int]]:
        """The state and the first three digits of each attempt of an instance."""
        found = rows(
            self.path,
            "SELECT state, ledger FROM activities WHERE workflow_exec_id = ? "
            "ORDER BY execution, activity_number, attempt",
            instance,
        )
        return [(state, int(ledger) // 10**12) for state, ledger in found]

    async def reached(self, instance: str, *states: str) -> None:
        """Wait until the attempts of an instance have these states."""
        await until(lambda: [state for state, _ in self.attempts(instance)] == list(states))

    def _insert(self, table: str, columns: dict[str, Any]) -> None:
        names = ", ".join(columns)
        places = ", ".join("?" for _ in columns)
        statement = f"INSERT INTO {table} ({names}) VALUES ({places}) ON CONFLICT DO NOTHING"  # noqa: S608
        rows(self.path, statement, *columns.values())
