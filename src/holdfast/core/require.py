"""Checks of what must always hold. Unlike ``assert`` they stay when Python runs with ``-O``."""

from holdfast.errors import InvariantBroken


def require(condition: bool, why: str) -> None:
    """Raise `InvariantBroken` with `why` unless `condition` holds."""
    if not condition:
        raise InvariantBroken(why)
