"""Statements by the names of their files: ``statements.commit_turn`` is ``sql/commit_turn.sql``.

Most of them are the same for every database and are in this package. What a database has to say differently is a file
of the same name in its own package, which is found first. The shared ones are written for SQLite; a `translate` makes
them fit another database where a rule for all of them does.
"""

from collections.abc import Callable
from importlib.resources import files
from typing import Final

SHARED: Final = "holdfast.storage.relational"


def _as_it_is(text: str) -> str:
    return text


class Statements:
    """The statements of one database. Each file is read once, when it is first asked for."""

    def __init__(self, package: str, translate: Callable[[str], str] = _as_it_is) -> None:
        self._package = package
        self._translate = translate

    def __getattr__(self, name: str) -> str:
        if name.startswith("_"):
            raise AttributeError(name)
        source = files(self._package) / "sql" / f"{name}.sql"
        if not source.is_file():
            source = files(SHARED) / "sql" / f"{name}.sql"
        lines = source.read_text(encoding="utf-8").splitlines()
        text = self._translate(" ".join(line.strip() for line in lines if not line.lstrip().startswith("--")))
        setattr(self, name, text)
        return text


class StepStatements:
    """The statements of every step and every event, read when they are put together.

    Python leaves its fast path for every attribute of a class that has `__getattr__`, as `Statements` has: such a look
    costs more than binding the values of the statement.
    """

    __slots__ = (
        "append_history",
        "change_waits",
        "close_instance",
        "commit_flow_turn",
        "commit_turn",
        "has_pending",
        "insert_attempt",
        "move_attempt",
        "start_instance",
    )

    def __init__(self, statements: Statements) -> None:
        self.append_history = statements.append_history
        self.change_waits = statements.change_waits
        self.close_instance = statements.close_instance
        self.commit_flow_turn = statements.commit_flow_turn
        self.commit_turn = statements.commit_turn
        self.has_pending = statements.has_pending
        self.insert_attempt = statements.insert_attempt
        self.move_attempt = statements.move_attempt
        self.start_instance = statements.start_instance
