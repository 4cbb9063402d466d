"""Files that cannot be a store: refused with a sentence that names them, and left as they were."""

import os
import stat
from collections.abc import Generator
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.scenarios.support import engine_of, rows, together

import holdfast as hf

NOBODY = 65534


@hf.workflow
async def keeps(value: int) -> int:
    return value


async def open_and_close(path: Path) -> None:
    async with engine_of(path, keeps) as engine:
        await engine.run(keeps, 1, id="a")


def refused(path: Path, match: str) -> None:
    with pytest.raises(hf.StoreError, match=match):
        together(open_and_close(path))

    async def as_client() -> None:
        await hf.connect(path)

    with pytest.raises(hf.StoreError, match=match):
        together(as_client())


def modes_in(folder: Path) -> dict[str, int]:
    return {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in folder.iterdir()}


def test_the_store_and_what_lies_beside_it_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", keeps) as engine:
            await engine.run(keeps, 1, id="a")
            modes = modes_in(tmp_path)
            (words,) = modes_in(tmp_path / "shop.db-turns").values()
        assert {"shop.db", "shop.db-wal", "shop.db-lock", "shop.db-gate", "shop.db-turns"} <= set(modes)
        for name, mode in modes.items():
            assert mode == (0o700 if name.endswith(("-wake", "-turns")) else 0o600), name
        assert words == 0o600

    before = os.umask(0)
    try:
        together(scenario())
    finally:
        os.umask(before)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, str(tmp_path))


def test_a_corrupt_file_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    path.write_bytes(b"this is no database at all" * 100)
    refused(path, "shop.db")
    assert path.read_bytes() == b"this is no database at all" * 100


def test_a_truncated_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    together(open_and_close(path))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2 + 100])
    with pytest.raises(hf.HoldfastError):
        together(open_and_close(path))


def test_somebody_else_s_database_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    rows_of_others: Any = apsw.Connection(str(path))
    rows_of_others.execute("CREATE TABLE theirs (a); INSERT INTO theirs VALUES (1)")
    rows_of_others.close()
    refused(path, "something else")
    assert rows(path, "SELECT name FROM sqlite_schema") == [("theirs",)]


def test_a_store_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    together(open_and_close(path))
    rows(path, "PRAGMA user_version = 999")
    refused(path, "newer release.*999")


@pytest.fixture
def as_nobody() -> Generator[None]:
    """Permissions do not bind root, so these tests run as somebody else where they can."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_read_only_file_is_refused(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "shop.db"
    together(open_and_close(path))
    path.chmod(0o444)
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o555)
    request.getfixturevalue("as_nobody")
    refused(path, "shop.db")


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    together(open_and_close(tmp_path / "warm.db"))
    folder = tmp_path / "closed"
    folder.mkdir(0o555)
    for above in (tmp_path, *tmp_path.parents[:3]):
        above.chmod(above.stat().st_mode | 0o555)
    request.getfixturevalue("as_nobody")
    refused(folder / "shop.db", "shop.db")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mysql://localhost/shop", "nor a postgresql:// URL"),
        ("postgresql://localhost/shop?schema=A-B", "schema='A-B'"),
        ("postgresql://localhost:x/shop", "port"),
    ],
)
def test_a_url_of_no_store_is_a_clear_error(url: str, sentence: str) -> None:
    with pytest.raises(hf.errors.InvalidOption, match=sentence):
        hf.Engine(url)


def test_a_closed_engine_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = engine_of(tmp_path / "shop.db", keeps)
        with pytest.raises(hf.errors.UsageError, match="is not open"):
            await engine.start(keeps, 1, id="a")
        async with engine:
            handle = await engine.start(keeps, 1, id="a")
            assert await handle.result() == 1
        with pytest.raises(hf.errors.ClientClosed, match="is closed"):
            await handle.describe()
        with pytest.raises(hf.errors.ClientClosed, match="is closed"):
            await engine.start(keeps, 1, id="b")

    together(scenario())
