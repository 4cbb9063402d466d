"""Stores that are named by a path or a URL, and what those who open them need besides the contract."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from holdfast.errors import StoreError
from holdfast.storage.contract import Store

SCHEMES: Final = ("postgresql://", "postgres://")


class Notifier(Protocol):
    """Wakes the others who use the store, and is woken by them."""

    def open(self) -> None: ...
    def close(self) -> None: ...
    def notify(self) -> None: ...


class OpenableStore(Store, Protocol):
    """A store that programs open by its name."""

    @property
    def path(self) -> Path:
        """Beside this path the processes of one machine leave what is for each other only."""
        ...

    @property
    def words(self) -> Path:
        """A folder that workers of one machine share: in it they keep what they run, for when they are gone (G12)."""
        ...

    def make_bell(self, name: str, heard: Callable[[], None]) -> Notifier:
        """Make the notifier of one process. It calls `heard` when another process has notified."""
        ...

    async def check_files(self) -> None:
        """Raise `StoreReplaced` if a file of the store was removed or replaced. Commits check this by themselves."""
        ...

    def open_for_reading(self) -> None:
        """Open a store that is there, to look at it: nothing is created, migrated or changed."""
        ...


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
