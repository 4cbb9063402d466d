"""Sessions at a shell and statements in SQL that the guide shows are real."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from tests.postgres.server import Place

import holdfast as hf

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
PRODUCTION = (GUIDE / "production.md").read_text("utf-8")
STARTED = (GUIDE / "getting-started.md").read_text("utf-8")


def statements(store: str) -> dict[str, str]:
    """What the production page shows for a store: each statement by its comment."""
    return dict(re.findall(rf"^-- {store}: (.*?)\n(.*?;)$", PRODUCTION, re.DOTALL | re.MULTILINE))


@hf.activity(retry=hf.Retry(attempts=None, initial=60))
async def fails() -> None:
    raise ConnectionError("not there")


@hf.activity(queue="elsewhere")
async def waits() -> None: ...


@hf.workflow
async def stuck(name: str) -> None:
    await (fails() if name == "fails" else waits())


@hf.workflow
async def broken() -> None:
    raise ValueError(1)


async def fill(store: str) -> None:
    """Instances of each kind that the statements look for."""
    async with hf.Engine(store, workflows=[stuck, broken], activities=[fails, waits], queues=["default"]) as engine:
        one = await engine.start(stuck, "fails")
        two = await engine.start(stuck, "waits")
        with pytest.raises(hf.WorkflowFailed):
            await engine.run(broken)
        async with asyncio.timeout(30):
            while len((await one.describe()).attempts) < 2 or not (await two.describe()).attempts:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


OLD_REQUEST = "INSERT INTO {schema}requests (request_id, workflow, inserted_at_ms) VALUES ('r-1', 'lost', 0)"


def check(rows: dict[str, list[tuple[object, ...]]]) -> None:
    found = {comment.partition(",")[0].partition(";")[0]: result for comment, result in rows.items()}
    assert sorted(map(str, found["open instances by workflow and state"])) == ["('stuck', 'RUNNING', 2)"]
    assert found["instances that failed within an hour"] == [("broken", 1)]
    assert found["blocked instances"] == []
    assert found["activities that wait for a worker"][0][:2] == ("elsewhere", 1)
    assert found["activities that failed and will be tried again"] == [("fails", 1, 1)]
    assert found["workers with a lease"] == []
    assert found["timers that are overdue by more than a minute"] == [(0,)]
    assert found["requests that no worker has handled within a minute"] == [("lost", 1)]


def test_both_stores_have_the_same_statements() -> None:
    assert list(statements("SQLite")) == list(statements("PostgreSQL"))


def test_statements_for_sqlite_find_what_they_say(tmp_path: Path) -> None:
    path = str(tmp_path / "shop.db")
    asyncio.run(fill(path))
    connection: Any = apsw.Connection(path)
    try:
        connection.execute(OLD_REQUEST.format(schema=""))
        check({comment: list(connection.execute(sql)) for comment, sql in statements("SQLite").items()})
    finally:
        connection.close()


@pytest.mark.slow
def test_statements_for_postgresql_find_what_they_say(postgres: Place) -> None:
    asyncio.run(fill(postgres.url))
    with psycopg.connect(postgres.server) as connection:
        connection.execute(OLD_REQUEST.format(schema=f"{postgres.schema}.").encode())
        shown = {
            comment: connection.execute(sql.replace("holdfast.", f"{postgres.schema}.").encode()).fetchall()
            for comment, sql in statements("PostgreSQL").items()
        }
    check(shown)


def normal(text: str) -> str:
    """Without times, durations and the spaces that depend on their width."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"\d+(\.\d+)? (ms|s)\b", "DURATION", text)
    return re.sub(r"[ \t]+", " ", text).strip()


@pytest.mark.slow
def test_the_session_of_getting_started_is_what_a_reader_sees(tmp_path: Path) -> None:
    program = re.search(r"```python\n(.*?)```", STARTED, re.DOTALL)
    assert program is not None
    (tmp_path / "shop.py").write_text(program[1], encoding="utf-8")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    sessions = re.findall(r"```console\n\$ (.*?)\n(.*?)```", STARTED, re.DOTALL)
    assert len(sessions) == 4
    for command, printed in sessions:
        done = subprocess.run(
            ["bash", "-c", command],  # noqa: S607 - the guide is for a shell
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        seen = [normal(line) for line in done.stdout.splitlines()]
        assert seen == [normal(line) for line in printed.splitlines()], done.stderr
