"""``holdfast bench`` on PostgreSQL: a schema of its own in the same database, which is dropped."""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.forking.processes import program
from tests.postgres.processes import ENVIRONMENT, ROOT
from tests.postgres.server import Place

from holdfast.testing.scratch_stores import SCHEMA_PREFIX

COMMAND = [sys.executable, "-m", "holdfast", "bench"]
LIMIT_SECONDS = 60


def bench(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *words], env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS
    )


def schemas(place: Place) -> Sequence[str]:
    with place.connect() as connection:
        rows = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'holdfast%'").fetchall()
    return sorted(str(name) for (name,) in rows)


@pytest.mark.slow
def test_it_measures_in_a_schema_of_its_own_and_drops_it(postgres: Place) -> None:
    before = schemas(postgres)
    done = bench("--store", postgres.url, "--seconds", "1", "--json")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["figures"]
    assert next(iter(figures)) == "ping_ms"
    assert figures["steps_per_s"]["median"] > 0
    assert f"in the schema {SCHEMA_PREFIX}" in done.stderr
    assert schemas(postgres) == before, "neither its own schema nor that of the URL is there"


@pytest.mark.slow
def test_a_schema_that_was_left_is_named_and_a_stopped_measurement_leaves_none(postgres: Place) -> None:
    left = f"{SCHEMA_PREFIX}{postgres.schema}"
    with postgres.connect() as connection:
        connection.execute(f"CREATE SCHEMA {left}".encode())
        try:
            before = schemas(postgres)
            words = [*COMMAND, "--store", postgres.url, "--seconds", "60"]
            with program(words, cwd=ROOT, env=ENVIRONMENT) as process:
                assert process.stderr is not None
                seen = ""
                while f"DROP SCHEMA {left} CASCADE;" not in seen:  # the last line before it begins
                    seen += process.stderr.readline()
                assert "measures for about 60 s" in seen
                assert len(schemas(postgres)) == len(before) + 1
                process.send_signal(signal.SIGTERM)
                assert process.wait(timeout=LIMIT_SECONDS) == 130
            assert schemas(postgres) == before
        finally:
            connection.execute(f"DROP SCHEMA {left}".encode())


@pytest.mark.slow
def test_a_role_that_may_not_create_a_schema_gets_a_sentence(postgres: Place) -> None:
    role = f"role_{postgres.schema}"
    with postgres.connect() as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN".encode())
        try:
            info = conninfo_to_dict(postgres.server)
            url = f"postgresql://{role}@/{info['dbname']}?host={info['host']}&port={info['port']}"
            done = bench("--store", url, "--seconds", "1")
        finally:
            connection.execute(f"DROP ROLE {role}".encode())
    assert done.returncode == 3
    assert "a schema for the measurement cannot be created: permission denied" in " ".join(done.stderr.split())
