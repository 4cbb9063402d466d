"""``holdfast verify`` on PostgreSQL: tables are streamed through cursors of the server, and damage is named."""

import asyncio

import pytest
from tests.postgres.server import Place
from tests.scenarios import stores

import holdfast as hf
from holdfast.audit.auditor import audit, inspect
from holdfast.audit.problems import Rule
from holdfast.storage.postgres import store as tables

MADE = """INSERT INTO {schema}.history SELECT 999, 1, number, '\\x5b5d' FROM generate_series(0, 9) AS number"""
DAMAGE = [
    (Rule.ROWS_BELONG, "", MADE),
    (Rule.ONE_SUCCESSOR, "1", "UPDATE {schema}.instances SET execution = 4611686018427387904 WHERE id = '1'"),
    (Rule.EVENTS_READABLE, "1", "UPDATE {schema}.history SET events = '\\xff' WHERE number = 1 AND turn = 1"),
    (Rule.HISTORY_GAP_FREE, "1", "DELETE FROM {schema}.history WHERE number = 1 AND turn = 1"),
    (Rule.ATTEMPTS_COMPLETE, "1", "DELETE FROM {schema}.attempts WHERE number = 1"),
    (Rule.ROWS_READABLE, "1", "UPDATE {schema}.instances SET state = 'FOO' WHERE id = '1'"),
    (Rule.ONE_CURRENT, "1", "UPDATE {schema}.instances SET superseded_at_ms = 1 WHERE id = '1'"),
]


@pytest.mark.slow
def test_damage_is_found_and_the_others_are_not_blamed(postgres: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in turn, and undone."""
    monkeypatch.setattr(tables, "FETCH", 2)  # more than one look at each cursor

    async def fill() -> None:
        async with hf.Engine(postgres.url, workflows=[stores.completes], activities=[stores.step]) as engine:
            for number in range(1, 6):
                await engine.run(stores.completes, number, id=str(number))

    asyncio.run(fill())
    report = inspect(postgres.url)
    assert (report.instances, report.attempts, report.problems) == (5, 10, ())
    with postgres.connect() as connection:
        for table in ("instances", "history", "attempts"):
            copy = f'CREATE TABLE "{postgres.schema}".kept_{table} AS TABLE "{postgres.schema}".{table}'
            connection.execute(copy.encode())
        for rule, instance, statement in DAMAGE:
            connection.execute(statement.format(schema=f'"{postgres.schema}"').encode())
            connection.commit()
            found = audit(postgres.url)
            assert (instance, rule) in {(problem.instance, problem.rule) for problem in found}, (statement, found)
            assert {problem.instance for problem in found} <= {instance, ""}
            for table in ("instances", "history", "attempts"):
                for restored in ("DELETE FROM {0}.{1}", "INSERT INTO {0}.{1} SELECT * FROM {0}.kept_{1}"):
                    connection.execute(restored.format(f'"{postgres.schema}"', table).encode())
            connection.commit()
    assert audit(postgres.url) == []
