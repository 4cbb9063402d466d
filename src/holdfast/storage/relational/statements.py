"""Statements by the names of their files: ``statements.commit_turn`` is ``sql/commit_turn.sql``.

Most of them are the same for every database and are in this package. What a database has to say differently is a file
of the same name in its own package, which is found first. The shared ones are written for SQLite; a `translate` makes
them fit another database where a rule for all of them does.
"""

from collections.abc import Callable
from importlib.resources import files
from typing import Final

SHARED: Final = "holdfast.storage.relational"
SUFFIX: Final = ".sql"


def _as_it_is(text: str) -> str:
    return text


class Statements:
    """The statements of one database. All files are read together, at the latest when a store opens.

    Reading each file when it is first needed would fail, or mix two releases, in a worker whose package is upgraded
    while it runs.
    """

    def __init__(self, package: str, translate: Callable[[str], str] = _as_it_is) -> None:
        self._package = package
        self._translate = translate
        self._is_loaded = False

    def load(self) -> None:
        """Read every file. Further calls do nothing."""
        if self._is_loaded:
            return
        for package in (SHARED, self._package):  # a file of the database's own package replaces the shared one
            for source in (files(package) / "sql").iterdir():
                if source.name.endswith(SUFFIX):
                    lines = source.read_text(encoding="utf-8").splitlines()
                    text = " ".join(line.strip() for line in lines if not line.lstrip().startswith("--"))
                    setattr(self, source.name.removesuffix(SUFFIX), self._translate(text))
        self._is_loaded = True

    def __getattr__(self, name: str) -> str:
        if name.startswith("_") or self._is_loaded:
            raise AttributeError(name)
        self.load()
        statement: str = getattr(self, name)
        return statement


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
        "has_read_all",
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
        self.has_read_all = statements.has_read_all
        self.insert_attempt = statements.insert_attempt
        self.move_attempt = statements.move_attempt
        self.start_instance = statements.start_instance
