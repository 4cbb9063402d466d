"""A program without Holdfast that claims every open activity, and runs those that it gets: STORE SCHEMA NAME ROUNDS.

SCHEMA is empty for a file. Prints a line when it looks for activities, and how many claims it won and lost.
"""

import json
import sqlite3
import sys
import time
from typing import Any

PAUSE_SECONDS = 0.002
BUSY_SECONDS = 20
REPORT = "INSERT INTO activity_events (event_id, activity_exec_id, transition, payload, claim) VALUES (?, ?, ?, ?, ?)"
ANSWER = "SELECT state FROM activity_event_status WHERE event_id = ?"
OPEN = "SELECT activity_exec_id FROM open_activities"
ENDED = "SELECT count(*) FROM workflows WHERE closed_at_ms IS NOT NULL"


class Tables:
    """One connection; each statement is a transaction."""

    def __init__(self, store: str, schema: str) -> None:
        self._connection: Any
        self._mark = "%s" if schema else "?"
        if schema:
            import psycopg  # noqa: PLC0415 - only with PostgreSQL

            self._connection = psycopg.connect(store, autocommit=True)
            self._connection.execute(f'SET search_path = "{schema}"')
        else:
            self._connection = sqlite3.connect(store, timeout=BUSY_SECONDS, isolation_level=None)
            self._connection.execute("PRAGMA wal_autocheckpoint=0")

    def run(self, statement: str, *values: object) -> list[Any]:
        done = self._connection.execute(statement.replace("?", self._mark), values)
        return [] if statement.startswith("INSERT") else [row[0] for row in done.fetchall()]


def main(store: str, schema: str, name: str, rounds: int) -> None:
    tables = Tables(store, schema)
    seen: set[str] = set()
    open_claims: set[str] = set()
    counts = {"APPLIED": 0, "REFUSED": 0}

    def report(exec_id: str, transition: str, payload: str | None = None) -> None:
        tables.run(REPORT, f"{name} {transition} {exec_id}", exec_id, transition, payload, name)

    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while tables.run(ENDED) != [rounds]:
        for exec_id in set(tables.run(OPEN)) - seen:
            seen.add(exec_id)
            open_claims.add(exec_id)
            report(exec_id, "QUEUED")
        for exec_id in list(open_claims):
            [state] = tables.run(ANSWER, f"{name} QUEUED {exec_id}")
            if state != "NEW":
                open_claims.discard(exec_id)
                counts[state] += 1
            if state == "APPLIED":
                report(exec_id, "RUNNING")
                report(exec_id, "COMPLETED", json.dumps(name))
        time.sleep(PAUSE_SECONDS)
    sys.stdout.write(json.dumps(counts))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
