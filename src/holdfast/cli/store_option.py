"""The store of a command, and how the command opens it.

The first of these names it: ``--store``, the variable HOLDFAST_STORE, ``store`` in the table ``[holdfast]`` of
``holdfast.toml`` in the current folder, ``holdfast.db`` there. Commands that only read open the store read-only and
never create a file.
"""

import asyncio
import os
import tomllib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeAlias, TypeVar, cast

from holdfast.client.client import Client, connect
from holdfast.compose import is_address, not_a_store, open_store
from holdfast.errors import InstanceNotFound, UsageError
from holdfast.runtime.platform import Platform
from holdfast.storage.contract import OpenableStore, Store
from holdfast.storage.records import InstanceId, InstanceRecord

VARIABLE: Final = "HOLDFAST_STORE"
SETTINGS: Final = "holdfast.toml"
DEFAULT: Final = "holdfast.db"
LONGEST_SHOWN: Final = 100
T = TypeVar("T")
StoreName: TypeAlias = Path | str
"""A file, or the URL of a database."""


def store_path(option: str | None) -> StoreName:
    """The file or the URL of the store, which need not exist."""
    named = option if option is not None else os.environ.get(VARIABLE) or _setting(Path(SETTINGS)) or DEFAULT
    if not named.strip() or "\0" in named:
        raise UsageError(f"{named!r} is not the path of a store")
    if is_address(named):
        return named
    if "://" in named:
        raise UsageError(not_a_store(named))
    if named == ":memory:":
        raise UsageError("a store in memory ends with its process, so a command cannot use one; give a path")
    return Path(named)


def existing_store(option: str | None, *, may_be_empty: bool = False) -> StoreName:
    """The file or the URL of a store; `UsageError` if there is no such file, or it is empty and must not be."""
    path = store_path(option)
    if isinstance(path, str):
        return path
    remedy = f"name one with --store or {VARIABLE}, or make one: holdfast run"
    if not is_there(path):
        raise UsageError(f"there is no store at {path}; {remedy}")
    if not may_be_empty and path.is_file() and path.stat().st_size == 0:
        raise UsageError(f"{path} is empty, so it is not a Holdfast store; {remedy}")
    return path


def is_there(path: StoreName) -> bool:
    """Whether a path exists; a URL counts as existing. `UsageError` for a path that the system does not accept."""
    if isinstance(path, str):
        return True
    try:
        return path.exists()
    except (OSError, ValueError) as error:
        raise UsageError(f"{str(path)[:LONGEST_SHOWN]!r} cannot be read: {error}") from error


def read_store(option: str | None, read: Callable[[OpenableStore], Awaitable[T]]) -> T:
    """Opens an existing store read-only, and returns the result of `read`."""
    return asyncio.run(_read(existing_store(option), read))


async def _read(path: StoreName, read: Callable[[OpenableStore], Awaitable[T]]) -> T:
    store = open_store(path, "full", Platform())
    store.open_for_reading()
    try:
        return await read(store)
    finally:
        await store.close()


def use_client(option: str | None, use: Callable[[Client], Awaitable[T]], *, may_be_empty: bool = False) -> T:
    """Connects a client to an existing store, and returns the result of `use`."""
    return asyncio.run(_use(existing_store(option, may_be_empty=may_be_empty), use))


async def _use(path: StoreName, use: Callable[[Client], Awaitable[T]]) -> T:
    client = await connect(path)
    try:
        return await use(client)
    finally:
        await client.close()


async def require_instance(store: Store, instance_id: str) -> InstanceRecord:
    """The newest instance with an id; `InstanceNotFound` if there is none."""
    record = await store.find_instance(InstanceId(instance_id))
    if record is None:
        raise InstanceNotFound(f"no instance has the id {instance_id!r}")
    return record


def _setting(path: Path) -> str | None:
    """The store in the settings, relative to their folder, which is the current one."""
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
