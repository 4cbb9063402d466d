"""Stores that are named by a path or a URL, and what those who open them need besides the contract."""

import sys
from pathlib import Path
from typing import Final, cast

from holdfast.errors import InvalidOption, StoreError, UsageError
from holdfast.runtime.platform import ClockAndIds, Platform, SystemClockAndIds
from holdfast.storage.contract import OpenableStore
from holdfast.storage.relational.raw_tables import RawTables
from holdfast.storage.sqlite.connection import SqliteTables

SCHEMES: Final = ("postgresql://", "postgres://")


def check_platform() -> None:
    """Refuse to open a store where the system lacks what every store uses."""
    if sys.platform == "win32":
        raise StoreError(
            "stores are not supported on Windows: they need file locks and sockets of POSIX; "
            "run Holdfast in WSL or in a Linux container"
        )


def is_address(store: object) -> bool:
    """Whether the name of a store is the URL of a database."""
    return isinstance(store, str) and store.startswith(SCHEMES)


def not_a_store(url: str) -> str:
    """The complaint about a URL that names no store. Only its beginning is shown: a password may be in the rest."""
    scheme = url.partition("://")[0]
    return f"{scheme + '://...'!r} is neither the path of a SQLite file nor a postgresql:// URL"


DURABILITIES: Final = ("full", "relaxed")


def open_store(store: str | Path | OpenableStore, durability: str, surroundings: Platform) -> OpenableStore:
    """The store that a path or URL names."""
    check_platform()
    if durability not in DURABILITIES:
        raise InvalidOption(f"durability must be one of {', '.join(DURABILITIES)}, not {durability!r}")
    from holdfast.storage.relational.reads import RelationalReads  # noqa: PLC0415 - imported when a store is opened

    if isinstance(store, RelationalReads):
        return cast("OpenableStore", store)
    providers = surroundings.providers
    if is_address(store):
        return _on_a_server(str(store), durability, providers)
    path = checked_path(store)
    if isinstance(store, str) and "://" in store:
        raise InvalidOption(not_a_store(store))
    from holdfast.storage.sqlite.store import SqliteStore  # noqa: PLC0415 - imported after the platform is checked

    return SqliteStore(path, clock=providers.now_ms, elapsed_ms=providers.elapsed_precise_ms, durability=durability)


def _on_a_server(url: str, durability: str, providers: ClockAndIds) -> OpenableStore:
    """Loaded where it is asked for: it needs a library that not everybody has. In a simulation its clock decides."""
    from holdfast.storage.postgres.store import PostgresStore  # noqa: PLC0415

    clock = None if isinstance(providers, SystemClockAndIds) else providers.now_ms
    try:
        return PostgresStore(url, clock=clock, elapsed_ms=providers.elapsed_ms, durability=durability)
    except ValueError as error:
        raise InvalidOption(str(error)) from error


def checked_path(store: object) -> str | Path:
    """`store`, if it can be the path of a file."""
    if not isinstance(store, str | Path) or store == "" or "\0" in str(store):
        raise InvalidOption(f"a store is the path of a file or a postgresql:// URL, not {store!r}")
    return store


def open_tables(store: str | Path) -> RawTables:
    """The tables of the store that a path or URL names."""
    if not is_address(store):
        return SqliteTables(Path(store))
    from holdfast.storage.postgres.store import PostgresTables  # noqa: PLC0415 - it needs a library of its own

    return PostgresTables(str(store))


def display_name(store: str | Path) -> str:
    """The name of a store in output: without the password that a URL may contain."""
    if isinstance(store, Path):
        return str(store)
    from holdfast.storage.postgres.address import parse  # noqa: PLC0415 - it needs a library of its own

    return str(parse(store))


def printed_schema(url: str, after: int) -> str:
    """The SQL of the migrations behind `after`, for the schema that a PostgreSQL URL names."""
    from holdfast.storage.postgres.address import parse  # noqa: PLC0415 - it needs a library of its own
    from holdfast.storage.postgres.schema import printed  # noqa: PLC0415

    try:
        return printed(parse(url).schema, after)
    except ValueError as error:
        raise UsageError(str(error)) from error
