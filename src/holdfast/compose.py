"""Makes stores from paths, URLs and objects that implement the `Store` protocol.

The only module outside `holdfast.testing` that names a concrete store.
"""

import shlex
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

from holdfast.errors import InvalidOption, StoreError, UsageError
from holdfast.runtime.platform import ClockAndIds, Platform, SystemClockAndIds
from holdfast.storage.contract import (
    CODE_CHECKS,
    OPEN_CONTRACT,
    PAUSE,
    RAW_TABLES,
    RESTORE,
    RETENTION,
    SEARCH,
    CheckableStore,
    OpenableStore,
    OpenContractStore,
    RestorableStore,
    RetentionStore,
    SearchStore,
    Store,
    StoreDefaults,
)
from holdfast.storage.relational.raw_tables import RawTables

SCHEMES: Final = ("postgresql://", "postgres://")
DURABILITIES: Final = ("full", "relaxed")
REQUIRED: Final = tuple(name for name in vars(Store) if not name.startswith("_"))
"""The methods that an object must have to be a store."""
OPTIONAL: Final = tuple(name for name in vars(OpenableStore) if not name.startswith("_"))
"""The names that an engine uses besides. `StoreDefaults` replaces those that a store leaves out."""
_A_STORE: Final = (
    "a store is the path of a file, a postgresql:// URL, or an object that implements holdfast.storage.contract.Store"
)


def check_platform() -> None:
    """Raise `StoreError` on a platform without the file locks and sockets that stores need."""
    if sys.platform == "win32":
        raise StoreError(
            "stores are not supported on Windows: they need POSIX file locks and sockets; "
            "run Holdfast in WSL or in a Linux container"
        )


def require_psycopg() -> None:
    """Raise `StoreError` unless the extra for PostgreSQL is installed. Called before modules that import psycopg."""
    try:
        import_module("psycopg")
    except ImportError as error:
        raise StoreError(f"a PostgreSQL store needs psycopg: pip install 'holdfast[postgres]' ({error})") from error


def is_address(store: object) -> bool:
    """Whether the name of a store is the URL of a database."""
    return isinstance(store, str) and store.startswith(SCHEMES)


def not_a_store(url: str) -> str:
    """The message about a URL that does not name a store. It shows the scheme only: a password may follow."""
    scheme = url.partition("://")[0]
    return f"{scheme + '://...'!r} is neither the path of a SQLite file nor a postgresql:// URL"


def open_store(store: str | Path | Store, durability: str, platform: Platform) -> OpenableStore:
    """The store of a path or a URL, or `store` itself if it is an object. It is not opened yet."""
    check_platform()
    if durability not in DURABILITIES:
        raise InvalidOption(f"durability must be one of {', '.join(DURABILITIES)}, not {durability!r}")
    if not isinstance(store, str | Path):
        return _complete(store)
    providers = platform.providers
    if is_address(store):
        return _make_postgres_store(str(store), durability, providers)
    path = checked_path(store)
    if isinstance(store, str) and "://" in store:
        raise InvalidOption(not_a_store(store))
    from holdfast.storage.sqlite.store import SqliteStore  # noqa: PLC0415 - imported after the platform is checked

    return SqliteStore(path, clock=providers.now_ms, elapsed_ms=providers.elapsed_precise_ms, durability=durability)


def _complete(store: object) -> OpenableStore:
    """An object that implements `Store`, with defaults for the optional names that it leaves out."""
    missing = [name for name in REQUIRED if not callable(getattr(store, name, None))]
    if isinstance(store, type) or len(missing) == len(REQUIRED):
        raise InvalidOption(f"{_A_STORE}, not {store!r}")
    if missing:
        raise InvalidOption(f"{_A_STORE}; {type(store).__name__} lacks the methods {', '.join(missing)}")
    is_complete = all(hasattr(store, name) for name in OPTIONAL)
    return cast("OpenableStore", store if is_complete else _WithDefaults(store))


class _WithDefaults:
    """A store, with the names of `StoreDefaults` that it leaves out."""

    def __init__(self, store: object) -> None:
        self._store = store
        self._defaults = StoreDefaults()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store if hasattr(self._store, name) else self._defaults, name)


def _make_postgres_store(url: str, durability: str, providers: ClockAndIds) -> OpenableStore:
    """A PostgreSQL store, whose clock is the server's except in a simulation."""
    require_psycopg()
    from holdfast.storage.postgres.store import PostgresStore  # noqa: PLC0415 - psycopg is an extra

    clock = None if isinstance(providers, SystemClockAndIds) else providers.now_ms
    try:
        return PostgresStore(url, clock=clock, elapsed_ms=providers.elapsed_ms, durability=durability)
    except ValueError as error:
        raise InvalidOption(str(error)) from error


def checked_path(store: object) -> str | Path:
    """`store`, if it can be the path of a file."""
    if not isinstance(store, str | Path) or store == "" or "\0" in str(store):
        raise InvalidOption(f"{_A_STORE}, not {store!r}")
    return store


def open_tables(store: str | Path | Store) -> RawTables:
    """The tables of a store, for `verify`. An object has to declare the capability `RAW_TABLES`."""
    if not isinstance(store, str | Path):
        return _tables_of(store)
    if not is_address(store):
        from holdfast.storage.sqlite.connection import SqliteTables  # noqa: PLC0415 - a server does not need apsw

        return SqliteTables(Path(store))
    require_psycopg()
    from holdfast.storage.postgres.store import PostgresTables  # noqa: PLC0415 - psycopg is an extra

    return PostgresTables(str(store))


def copy_store(source: Path, target: Path, progress: Callable[[int, int], None]) -> bool:
    """Copy a live SQLite store into an empty file (R1). Returns whether it has the schema of this release."""
    check_platform()
    from holdfast.storage.sqlite.backup import copy_database  # noqa: PLC0415 - imported after the platform is checked

    return copy_database(source, target, progress)


def file_damage(path: Path) -> list[str]:
    """The findings of SQLite about a file of any release; empty if it is sound."""
    from holdfast.storage.sqlite.backup import damage_of  # noqa: PLC0415 - as above

    return damage_of(path)


def check_pauses(store: object) -> None:
    """Raise `InvalidOption` if a store cannot pause instances (R20)."""
    if PAUSE not in capabilities_of(store):
        raise InvalidOption(f"{type(store).__name__} cannot pause instances: it does not declare {PAUSE!r}")


def restorable(store: object) -> RestorableStore:
    """The store itself, if it can be made fit for use after a restore (R2); `InvalidOption` if it cannot."""
    if RESTORE not in capabilities_of(store):
        raise InvalidOption(f"{type(store).__name__} cannot be restored: it does not declare {RESTORE!r}")
    return cast("RestorableStore", store)


def checkable(store: object) -> CheckableStore:
    """The store itself, if its open instances can be checked against code (R16); `InvalidOption` if not."""
    if CODE_CHECKS not in capabilities_of(store):
        raise InvalidOption(
            f"{type(store).__name__} cannot be checked against code: it does not declare {CODE_CHECKS!r}"
        )
    return cast("CheckableStore", store)


def retention_store_of(store: object) -> RetentionStore:
    """The store itself, if it can delete instances (R30-R36); `InvalidOption` if it cannot."""
    if RETENTION not in capabilities_of(store):
        raise InvalidOption(f"{type(store).__name__} cannot delete instances: it does not declare {RETENTION!r}")
    return cast("RetentionStore", store)


def backup_refusal(url: str) -> str:
    """Why `holdfast backup` does not copy a PostgreSQL store, and the commands that do."""
    require_psycopg()
    from holdfast.storage.postgres.address import parse  # noqa: PLC0415 - psycopg is an extra

    try:
        address = parse(url)
    except ValueError as error:
        raise UsageError(str(error)) from error
    return (
        f"{address} is backed up by PostgreSQL's own tools: pg_dump --format=custom --schema={address.schema} "
        f"--file=FILE {shlex.quote(address.libpq_url)}, or pg_basebackup with archived WAL for point-in-time "
        "recovery. After a restore run holdfast restored"
    )


def capabilities_of(store: object) -> frozenset[str]:
    """The optional features that a store declares."""
    return frozenset(getattr(store, "capabilities", ()))


def open_contract_of(store: object) -> OpenContractStore:
    """The store itself, if it has the tables of the open contract (C2-C4); `InvalidOption` if it has not."""
    if OPEN_CONTRACT not in capabilities_of(store):
        raise InvalidOption(
            f"{type(store).__name__} has no requests and reports: it does not declare {OPEN_CONTRACT!r}"
        )
    return cast("OpenContractStore", store)


def search_store_of(store: object) -> SearchStore:
    """The store itself, if it has attributes and searches by filters (F); `InvalidOption` if it has not."""
    if SEARCH not in capabilities_of(store):
        raise InvalidOption(f"{type(store).__name__} has no attributes and filters: it does not declare {SEARCH!r}")
    return cast("SearchStore", store)


def _tables_of(store: object) -> RawTables:
    if RAW_TABLES not in capabilities_of(store):
        raise InvalidOption(f"{type(store).__name__} cannot be verified: it does not declare {RAW_TABLES!r}")
    return cast("Any", store).open_tables()  # type: ignore[no-any-return]  # the capability promises the method


def display_name(store: str | Path) -> str:
    """The name of a store for output, without the password of a URL."""
    if isinstance(store, Path):
        return str(store)
    require_psycopg()
    from holdfast.storage.postgres.address import parse  # noqa: PLC0415 - psycopg is an extra

    return str(parse(store))


def printed_client_roles(url: str) -> str:
    """The SQL of the roles for clients of the open contract, for the schema of a PostgreSQL URL."""
    require_psycopg()
    from holdfast.storage.postgres.address import parse  # noqa: PLC0415 - psycopg is an extra
    from holdfast.storage.postgres.roles import printed_roles  # noqa: PLC0415

    try:
        return printed_roles(parse(url).schema)
    except ValueError as error:
        raise UsageError(str(error)) from error


def printed_schema(url: str, after: int) -> str:
    """The SQL of the migrations after version `after`, for the schema of a PostgreSQL URL."""
    require_psycopg()
    from holdfast.storage.postgres.address import parse  # noqa: PLC0415 - psycopg is an extra
    from holdfast.storage.postgres.schema import printed  # noqa: PLC0415

    try:
        return printed(parse(url).schema, after)
    except ValueError as error:
        raise UsageError(str(error)) from error
