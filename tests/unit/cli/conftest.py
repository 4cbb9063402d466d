"""The command in a folder of its own."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.cli.commands import SHOP, Command

import holdfast as hf


@pytest.fixture
def holdfast(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Command]:
    """The command, in a folder with ``shop.py`` in it and nothing else."""
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield Command(monkeypatch, capfd, tmp_path)
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "").is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.fixture
def filled(holdfast: Command) -> Command:
    """A store with one instance that completed and one that nobody has begun."""
    holdfast("run", "shop.py:checkout", "--input", '["hat", 5]', "--id", "good", "--json")

    async def start() -> None:
        client = await hf.connect(holdfast.folder / "holdfast.db")
        await client.start("checkout", "hat", id="open")
        await client.close()

    asyncio.run(start())
    return holdfast
