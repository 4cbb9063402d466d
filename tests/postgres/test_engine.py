"""Engines, clients and commands on a PostgreSQL store."""

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest
from benchmarks import scale
from tests.postgres.server import Place
from tests.postgres.stores import ask
from tests.scenarios.support import until
from tests.unit.cli.commands import Command
from tests.unit.cli.conftest import holdfast

import holdfast as hf
from holdfast.audit.auditor import audit

__all__ = ["holdfast"]
PATIENCE_SECONDS = 20


@hf.activity
async def add(number: int) -> int:
    return number + 1


@hf.activity(queue="elsewhere")
async def add_elsewhere(number: int) -> int:
    return number + 10


@hf.workflow
async def adds(number: int) -> int:
    for _ in range(3):
        number = await add(number)
    return number


@hf.workflow
async def waits() -> str:
    return await hf.event("word", str)


@hf.workflow
async def asks_elsewhere(number: int) -> int:
    return await add_elsewhere(number)


@hf.workflow
async def has_child(number: int) -> int:
    return await adds(number) + await adds(number)


WORKFLOWS: list[Any] = [adds, waits, asks_elsewhere, has_child]


def engine(place: Place, *, notify: bool = True, **options: Any) -> hf.Engine:
    url = place.url if notify else f"{place.url}&notify=false&poll_seconds=0.02"
    return hf.Engine(url, workflows=WORKFLOWS, activities=[add, add_elsewhere], **options)


def test_G11_workflows_run_to_their_end_and_the_store_is_sound(postgres: Place) -> None:
    async def scenario() -> None:
        async with engine(postgres) as one:
            results = await asyncio.gather(*(one.run(adds, number, id=f"i{number}") for number in range(20)))
            assert results == [number + 3 for number in range(20)]
            assert await one.run(has_child, 1) == 8
            big = "x" * 200_000
            waiting = await one.start(waits, id="big")
            await waiting.raise_event("word", big)
            assert await waiting.result(timeout=PATIENCE_SECONDS) == big
        async with engine(postgres) as another:
            assert await another.run(adds, 1, id="i1") == 4
            with pytest.raises(hf.InstanceConflict):
                await another.run(adds, 7, id="i1")

    asyncio.run(scenario())
    assert audit(postgres.url) == []


@pytest.mark.parametrize("notify", [True, False])
def test_G5_what_one_process_commits_wakes_another(postgres: Place, notify: bool) -> None:
    """An activity of a queue that only the other serves, and an event from a client for a workflow of another."""

    async def scenario() -> None:
        here = engine(postgres, notify=notify, queues=["default"])
        there = engine(postgres, notify=notify, queues=["elsewhere"])
        async with here, there:
            assert await asyncio.wait_for(here.run(asks_elsewhere, 1), PATIENCE_SECONDS) == 11
            handle = await here.start(waits, id="waits")
            client = await hf.connect(postgres.url)
            await client.get("waits").raise_event("word", "hello")
            assert await client.get("waits").result(timeout=PATIENCE_SECONDS) == "hello"
            assert await handle.result(timeout=PATIENCE_SECONDS) == "hello"
            await client.close()

    asyncio.run(scenario())


def test_a_process_has_the_connections_that_the_guide_names(postgres: Place) -> None:
    """However much it does at the same time; `benchmarks.scale` plans with the same number."""

    async def scenario() -> None:
        url = f"{postgres.url}&application_name={postgres.schema}"
        async with hf.Engine(url, workflows=[adds], activities=[add]) as one:
            runs = [one.run(adds, number, id=f"i{number}") for number in range(20)]
            reads = [one.list() for _ in range(20)]
            await asyncio.gather(*runs, *reads)
            counted = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
            await until(lambda: ask(postgres, counted, postgres.schema) == [(scale.CONNECTIONS,)])

    asyncio.run(scenario())


def test_C15_a_run_that_concerns_no_other_process_sends_no_notification(postgres: Place) -> None:
    """Each NOTIFY wakes every listening backend of the database."""

    async def scenario() -> None:
        async with engine(postgres) as one:
            with postgres.connect() as connection:
                connection.execute(f"LISTEN holdfast_{postgres.schema}".encode())
                await one.run(adds, 1)
                assert await asyncio.to_thread(lambda: list(connection.notifies(timeout=0.5))) == []
                started = await one.start("unknown", id="it")
                [message] = await asyncio.to_thread(lambda: list(connection.notifies(timeout=10, stop_after=1)))
                assert '"workflows":["unknown"]' in message.payload
                await started.terminate("over")

    asyncio.run(scenario())


def test_the_commands_work_on_a_url(postgres: Place, holdfast: Command) -> None:
    url = postgres.url
    absent = holdfast("list", "--store", url)
    assert absent.code == 3
    assert "there is no store" in absent.err
    result = holdfast("run", "shop.py:checkout", "-i", '["tea"]', "--id", "a", "--store", url)
    assert result.code == 0
    assert holdfast("verify", "--store", url).code == 0
    assert [row["id"] for row in json.loads(holdfast("list", "--json", "--store", url).out)] == ["a"]
    assert "charge" in holdfast("show", "a", "--store", url).out
    assert holdfast("history", "a", "--store", url).code == 0
    ask(postgres, "UPDATE {}.instances SET turn = turn + 1")
    broken = holdfast("verify", "--store", url)
    assert broken.code == 1
    assert "history-gap-free" in broken.out


def test_no_command_shows_a_password(postgres: Place, holdfast: Command) -> None:
    url = postgres.url.replace("postgres@", "postgres:secret-word@", 1)
    for arguments in (["verify"], ["migrate"], ["run", "shop.py:checkout", "-i", '["tea"]']):
        shown = holdfast(*arguments, "--store", url)
        assert "secret-word" not in shown.out + shown.err


def test_migrations_are_printed_without_connecting_and_make_a_store(postgres: Place, holdfast: Command) -> None:
    printed = holdfast(
        "migrate", "--print", "--store", f"postgresql://nobody@nowhere.invalid/x?schema={postgres.schema}"
    )
    with postgres.connect() as connection:
        connection.execute(printed.out.encode())
    assert holdfast("verify", "--store", postgres.url).code == 0
    assert "up to date" in holdfast("migrate", "--store", postgres.url).out


def test_nothing_of_postgresql_is_loaded_before_it_is_needed() -> None:
    program = "import sys, holdfast as hf; hf.Engine(':memory:'); hf.Worker if hasattr(hf, 'Worker') else 0; "
    program += "print([name for name in sys.modules if 'psycopg' in name or 'postgres' in name])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
