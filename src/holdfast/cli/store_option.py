"""Which store a command works on, and how it is opened to look at it.

In this order: ``--store``, the variable HOLDFAST_STORE, ``store`` in the table ``[holdfast]`` of ``holdfast.toml`` in
the current folder, and ``holdfast.db`` there. Commands that only look never create a store.
"""

import os
import tomllib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeAlias, cast

from holdfast.client.client import Client, connect
from holdfast.compose import is_address, not_a_store, open_store
from holdfast.errors import UsageError
from holdfast.runtime.platform import Platform
from holdfast.storage.contract import OpenableStore

VARIABLE: Final = "HOLDFAST_STORE"
SETTINGS: Final = "holdfast.toml"
DEFAULT: Final = "holdfast.db"
LONGEST_SHOWN: Final = 100
StoreName: TypeAlias = Path | str
"""A file, or the URL of a database."""


def store_path(option: str | None) -> StoreName:
    """The file or the URL that the option, the environment, the settings or the default names."""
    named = option if option is not None else os.environ.get(VARIABLE) or _setting(Path(SETTINGS)) or DEFAULT
    if not named.strip() or "\0" in named:
        raise UsageError(f"{named!r} is no path of a store")
    if is_address(named):
        return named
    if "://" in named:
        raise UsageError(not_a_store(named))
    if named == ":memory:":
        raise UsageError("a store in memory is gone with its process, so a command cannot use one; give a path")
    return Path(named)


def existing_store(option: str | None) -> StoreName:
    """The same for commands that look: the file must be there."""
    path = store_path(option)
    if isinstance(path, Path) and not is_there(path):
        raise UsageError(f"there is no store at {path}; name one with --store or {VARIABLE}, or make one: holdfast run")
    return path


def is_there(path: StoreName) -> bool:
    """Whether there is anything at a path; one that cannot even be looked at is a `UsageError`. A server is."""
    if isinstance(path, str):
        return True
    try:
        return path.exists()
    except (OSError, ValueError) as error:
        raise UsageError(f"{str(path)[:LONGEST_SHOWN]!r} cannot be looked at: {error}") from error


def open_read_only(option: str | None) -> OpenableStore:
    """The store, open to be read: nothing in it can be changed, and it is not made if it is not there."""
    store = open_store(existing_store(option), "full", Platform())
    store.open_for_reading()
    return store


def _setting(path: Path) -> str | None:
    """The store that the settings name; relative to the folder of the settings, which is the current one."""
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    table = settings.get("holdfast", {})
    store: object = cast("dict[str, object]", table).get("store") if isinstance(table, dict) else table
    if store is not None and not isinstance(store, str):
        raise UsageError(f'{path}: [holdfast] store = "PATH" is expected, not {store!r}')
    return store


@asynccontextmanager
async def connected(path: StoreName) -> AsyncGenerator[Client]:
    """A client of a store, for one command."""
    client = await connect(path)
    try:
        yield client
    finally:
        await client.close()
