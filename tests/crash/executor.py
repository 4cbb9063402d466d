"""A program that runs an external activity, as one without Holdfast does it: two rows by Python's own sqlite3 (C4).

The store is its argument, the input is its standard input, and the ids are in its environment, as a launcher sets them.
"""

import json
import os
import sqlite3
import sys
from contextlib import closing


def main() -> None:
    number = json.load(sys.stdin)["number"]
    with closing(sqlite3.connect(sys.argv[1], timeout=20, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        for sequence, (transition, payload) in enumerate(
            (("RUNNING", None), ("COMPLETED", json.dumps(number * 10))), 1
        ):
            connection.execute(
                "INSERT INTO activity_events (event_id, activity_exec_id, claim, transition, sequence, payload) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (
                    f"{os.environ['HOLDFAST_CLAIM']}/{sequence}",
                    os.environ["HOLDFAST_ACTIVITY_EXEC_ID"],
                    os.environ["HOLDFAST_CLAIM"],
                    transition,
                    sequence,
                    payload,
                ),
            )


if __name__ == "__main__":
    main()
