"""The order of the versions of a workflow (R5). A new instance that names no version runs on the highest one."""

from collections.abc import Iterable
from typing import Final

NO_VERSION: Final = ""
"""The version of a workflow that names none."""
NEWEST: Final = "newest"
"""The option of `hf.continue_as_new` that moves an instance to the highest version (R7)."""

VersionKey = tuple[int, tuple[int, ...], str]


def version_key(version: str) -> VersionKey:
    """The sort key of a version.

    Versions whose parts are all digits compare as dotted integers and rank above all others, which compare as text. No
    version is the lowest. Versions with equal integers ("1" and "01") differ by their text, so that the order is total.
    """
    if version == NO_VERSION:
        return 0, (), version
    parts = version.split(".")
    if all(part.isascii() and part.isdigit() for part in parts):
        return 2, tuple(map(int, parts)), version
    return 1, (), version


def newest_version(versions: Iterable[str]) -> str:
    """The highest of some versions, at least one."""
    return max(versions, key=version_key)


def version_text(version: str) -> str:
    """A version in a sentence."""
    return f"version {version}" if version else "no version"


def in_order(versions: Iterable[str]) -> list[str]:
    """Versions from the lowest to the highest."""
    return sorted(versions, key=version_key)
