"""Roles: one that makes the tables, one that works on them, one that only looks. And no secret is shown by mistake."""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Identifier
from tests.postgres.server import Place
from tests.unit.cli.commands import Command
from tests.unit.cli.conftest import holdfast

import holdfast as hf

__all__ = ["holdfast"]
ROOT = Path(__file__).parents[2]
NAMES = ("shop_worker", "shop_looker")
[GRANTS] = re.findall(
    r"```sql\n(GRANT .*?)```", (ROOT / "docs" / "guide" / "postgresql.md").read_text("utf-8"), re.DOTALL
)
"""As the guide shows them, for the schema `holdfast`."""


@hf.activity
async def double(number: int) -> int:
    return 2 * number


@hf.workflow
async def doubles(number: int) -> int:
    return await double(number)


@hf.workflow
async def waits() -> int:
    number = await hf.event("number", int)
    return await doubles(number) + await hf.event("number", int)


@dataclass(frozen=True)
class Roles:
    """URLs of one schema, by who uses them."""

    owner: str
    worker: str
    looker: str


async def migrate(url: str) -> None:
    await (await hf.connect(url)).close()


@pytest.fixture
def roles(postgres: Place) -> Iterator[Roles]:
    asyncio.run(migrate(postgres.url))
    own = [f"{name}_{postgres.schema}" for name in NAMES]
    grants = GRANTS.replace("SCHEMA holdfast", f"SCHEMA {postgres.schema}")
    for name, role in zip(NAMES, own, strict=True):
        grants = grants.replace(name, role)
    user = conninfo_to_dict(postgres.server)["user"]
    with postgres.connect() as connection:
        for role in own:
            connection.execute(SQL("CREATE ROLE {} LOGIN").format(Identifier(role)))
        connection.execute(grants.encode())
        yield Roles(postgres.url, *(postgres.url.replace(f"//{user}@", f"//{role}@") for role in own))
        for role in own:
            connection.execute(SQL("DROP OWNED BY {}").format(Identifier(role)))
            connection.execute(SQL("DROP ROLE {}").format(Identifier(role)))


def test_a_worker_needs_no_right_to_change_the_schema(roles: Roles, holdfast: Command) -> None:
    async def scenario() -> None:
        async with hf.Engine(roles.worker, workflows=[doubles, waits], activities=[double]) as engine:
            handle = await engine.start(waits, id="it")
            await handle.raise_event("number", 4)
            await handle.raise_event("number", 5)
            assert await handle.result(timeout=30) == 13
            other = await engine.start(waits, id="other")
            await other.cancel("enough")
            with pytest.raises(hf.WorkflowCancelled):
                await other.result(timeout=30)

    asyncio.run(scenario())
    assert holdfast("verify", "--store", roles.worker).code == 0


def test_who_only_looks_needs_no_right_to_write(roles: Roles, holdfast: Command) -> None:
    async def scenario() -> None:
        async with hf.Engine(roles.owner, workflows=[doubles, waits], activities=[double]) as engine:
            assert await engine.run(doubles, 4, id="it") == 8

    asyncio.run(scenario())
    for words in (["list"], ["show", "it"], ["history", "it"], ["workers"], ["queues"], ["verify"]):
        done = holdfast(*words, "--store", roles.looker)
        assert done.code == 0, f"{words}: {done.out}{done.err}"
    assert holdfast("event", "it", "number", "--store", roles.looker).code != 0


@pytest.mark.parametrize("url", ["mysql://app:hunter2@db/shop", "postgresql+psycopg://app:hunter2@db/shop"])
def test_a_url_that_names_no_store_is_not_repeated_with_its_password(url: str, holdfast: Command) -> None:
    with pytest.raises(hf.InvalidOption, match=r"'\w.*://...' is neither the path") as caught:
        hf.Engine(url)
    assert "hunter2" not in str(caught.value)
    done = holdfast("list", "--store", url)
    assert done.code == 2
    assert "is neither the path" in done.out + done.err
    assert "hunter2" not in done.out + done.err
