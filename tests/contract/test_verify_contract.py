"""``holdfast verify`` of offers and of rows of clients (A8, C2, C4): sound after real runs, and damage is named."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from tests.forking.processes import run
from tests.postgres.server import Place
from tests.scenarios.contract_damage import CONTRACT_DAMAGE, LIVE, STRANDINGS
from tests.scenarios.contract_store import PHASES, make_contract_store
from tests.unit.cli.commands import sql

from holdfast.audit.auditor import audit, inspect
from holdfast.audit.problems import Rule

TABLES = ("attempts", "offers", "requests", "activity_events", "workers")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "sound.db"
    asyncio.run(make_contract_store(path))
    return path


@pytest.fixture
def store(sound: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    copy = tmp_path / "copy.db"
    for suffix in ("", "-wal"):
        if (source := Path(f"{sound}{suffix}")).exists():
            shutil.copy(source, f"{copy}{suffix}")
    return copy


def test_A8_a_store_with_external_attempts_in_every_phase_is_sound(sound: Path) -> None:
    report = inspect(sound)
    assert report.problems == ()
    assert report.attempts == len(PHASES) + 1
    states: dict[str, str] = dict(
        sql(sound, "SELECT id, attempts.state FROM attempts JOIN instances USING (number) ORDER BY attempt")
    )
    assert [states[phase] for phase in PHASES] == [
        *("READY", "QUEUED", "PREPARING", "RUNNING", "CANCELLED_RUNNING", "READY", "COMPLETED", "READY")
    ]


@pytest.mark.parametrize(("rule", "instance", "statement"), CONTRACT_DAMAGE)
def test_A8_damage_of_offers_and_rows_is_found_and_named(
    store: Path, rule: Rule, instance: str, statement: str
) -> None:
    sql(store, statement)
    problems = audit(store)
    assert (instance, rule) in {(problem.instance, problem.rule) for problem in problems}, problems
    assert {problem.instance for problem in problems} <= {instance, ""}, "others are not blamed"


def test_A8_a_claim_of_a_launcher_may_have_an_owner(store: Path) -> None:
    sql(store, "UPDATE attempts SET owner = (SELECT key FROM workers) WHERE state = 'QUEUED'")
    assert audit(store) == []


@pytest.mark.parametrize("statement", STRANDINGS)
def test_L10_a_report_that_waits_for_nothing_is_found_while_a_worker_lives(store: Path, statement: str) -> None:
    sql(store, statement)
    assert audit(store) == [], "no worker was there to refuse it"
    sql(store, LIVE)
    assert [problem.rule for problem in audit(store)] == [Rule.ROWS_HANDLED]
    sql(store, "UPDATE workers SET registered_at_ms = deadline_ms - 50000")
    assert audit(store) == [], "the worker has been there for less than a minute"


def test_L10_a_worker_without_the_activity_need_not_refuse_its_reports(store: Path) -> None:
    sql(store, STRANDINGS[0])
    sql(store, LIVE)
    sql(store, """UPDATE workers SET activities = '["other"]'""")
    assert audit(store) == []


def test_pruned_offers_of_a_closed_instance_are_not_missed(store: Path) -> None:
    sql(
        store,
        "DELETE FROM activity_events WHERE activity_exec_id IN (SELECT exec_id FROM offers WHERE claim = 'claim done')",
    )
    sql(store, "DELETE FROM offers WHERE claim = 'claim done'")
    assert audit(store) == []


def test_texts_of_clients_are_never_a_problem(store: Path) -> None:
    sql(store, "INSERT INTO requests (request_id, kind, input) VALUES (CAST(x'ff' AS TEXT), '?', CAST(x'fe' AS TEXT))")
    sql(
        store,
        "INSERT INTO activity_events (event_id, activity_exec_id, transition) "
        "VALUES (CAST(x'ff' AS TEXT), CAST(x'fd' AS TEXT), CAST(x'fe' AS TEXT))",
    )
    assert audit(store) == []


@pytest.mark.slow
def test_the_command_prints_damage_of_offers_and_rows(store: Path) -> None:
    assert json.loads(run("holdfast.cli:main", "verify", "--store", store, "--json").said)["problems"] == []
    sql(store, CONTRACT_DAMAGE[0][2])
    sql(store, "UPDATE requests SET state = 'GONE' WHERE request_id = 'r-done'")
    done = run("holdfast.cli:main", "verify", "--store", store, "--json")
    assert done.code == 1
    found = {(problem["instance"], problem["rule"]) for problem in json.loads(done.said)["problems"]}
    assert found == {("ready", "offers-agree"), ("", "rows-readable")}


@pytest.mark.slow
def test_A8_damage_is_found_on_postgres(postgres: Place) -> None:
    """Each in turn, and undone."""
    asyncio.run(make_contract_store(postgres.url))
    assert audit(postgres.url) == []
    with postgres.connect() as connection:
        connection.execute(f'SET search_path = "{postgres.schema}"'.encode())
        cases = [*CONTRACT_DAMAGE, *((Rule.ROWS_HANDLED, "", f"{LIVE}; {each}") for each in STRANDINGS)]
        for rule, instance, statement in cases:
            connection.execute("BEGIN")
            for table in TABLES:
                connection.execute(f"CREATE TABLE kept_{table} AS TABLE {table}".encode())
            connection.execute("COMMIT")
            connection.execute(statement.encode())
            problems = audit(postgres.url)
            assert (instance, rule) in {(problem.instance, problem.rule) for problem in problems}, (statement, problems)
            assert {problem.instance for problem in problems} <= {instance, ""}, (statement, problems)
            connection.execute("BEGIN")
            for table in TABLES:
                connection.execute(f"DELETE FROM {table}".encode())  # noqa: S608
                connection.execute(f"INSERT INTO {table} OVERRIDING SYSTEM VALUE SELECT * FROM kept_{table}".encode())  # noqa: S608
                connection.execute(f"DROP TABLE kept_{table}".encode())
            connection.execute("COMMIT")
        assert audit(postgres.url) == []
