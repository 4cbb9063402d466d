"""G3 costs nothing when it is not needed: a new id is one statement on the table of instances, whatever the policy."""

from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.core.admission import IdPolicy
from holdfast.storage.members.outcomes import StartedInstance
from holdfast.storage.relational.apply.dispatch import apply_members
from holdfast.storage.sqlite.connection import migrations, statements
from holdfast.storage.sqlite.writer import SqliteTransaction
from holdfast.testing.conformance.bench import start


class Counting(SqliteTransaction):
    """Keeps what was run."""

    __slots__ = ("ran",)

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, connection.cursor(), 1)
        self.ran: list[str] = []

    def update(self, statement: str, *bindings: Any) -> int:
        self.ran.append(statement)
        return super().update(statement, *bindings)

    def fetch(self, statement: str, *bindings: Any) -> list[tuple[Any, ...]]:
        self.ran.append(statement)
        return super().fetch(statement, *bindings)


@pytest.mark.parametrize("policy", IdPolicy)
def test_G3_starting_a_new_id_is_one_statement_and_the_message_of_its_start(tmp_path: Path, policy: IdPolicy) -> None:
    connection: Any = apsw.Connection(str(tmp_path / "empty.db"))
    for migration in migrations():
        connection.execute(migration.script)
    transaction = Counting(connection)
    (outcome,) = apply_members(transaction, [start("a", policy=policy)])
    connection.close()
    assert isinstance(outcome, StartedInstance)
    assert outcome.created
    assert transaction.ran == [statements().start_instance, statements().insert_inbox]
