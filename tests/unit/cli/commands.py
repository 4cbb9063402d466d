"""The command as a person starts it, inside this process: what it printed, and its exit code."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import apsw
import pytest

from holdfast.cli.main import main
from holdfast.storage.relational.transaction import Row

if TYPE_CHECKING:
    from holdfast.storage.sqlite.connection import SqliteConnection

SHOP = '''
"""A little shop, for the tests of the command."""

import asyncio
from dataclasses import dataclass

import holdfast as hf


class Declined(Exception):
    """The bank said no."""


@dataclass
class Order:
    item: str
    cents: int


@hf.activity(retry=hf.Retry(attempts=2, initial=0.01, jitter=False))
async def charge(cents: int) -> str:
    if cents < 0:
        try:
            raise KeyError("account")
        except KeyError as error:
            raise Declined(f"[red]no[/red] money \\x1b[31m for {cents}") from error
    return f"charged {cents}"


@hf.activity(queue="parcels")
def pack(item: str) -> str:
    return f"packed {item}"


@hf.workflow
async def checkout(item: str, cents: int = 300) -> list[str]:
    paid = await charge(cents)
    await asyncio.sleep(0.01)
    return [paid, await pack(item)]


@hf.workflow(name="order-by-value")
async def buy(order: Order) -> str:
    return await pack(order.item)


@hf.workflow
async def total(numbers: list[int]) -> int:
    return sum(numbers)


async def not_marked() -> None: ...
'''


@dataclass(frozen=True)
class Done:
    """What came of a command."""

    code: int
    out: str
    err: str


class Command:
    """Runs ``holdfast`` with arguments in an empty folder that has the shop in it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], folder: Path) -> None:
        self._monkeypatch = monkeypatch
        self._capfd = capfd
        self.folder = folder

    def __call__(self, *arguments: str) -> Done:
        self._monkeypatch.setattr(sys, "argv", ["holdfast", *arguments])
        self._capfd.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        printed = self._capfd.readouterr()
        assert "Traceback (most recent call last)" not in printed.err
        assert isinstance(code, int)
        return Done(code, printed.out, printed.err)

    def refused(self, *arguments: str) -> str:
        """Run it and expect one sentence and code 2."""
        done = self(*arguments)
        assert done.code == 2, done
        assert not done.out
        return done.err


def sql(path: Path, statement: str, *bindings: Any) -> list[Row]:
    """Run statements on a file, past everything that guards it."""
    connection = cast("SqliteConnection", apsw.Connection(str(path)))
    try:
        return connection.execute(statement, bindings).fetchall()
    finally:
        connection.close()
