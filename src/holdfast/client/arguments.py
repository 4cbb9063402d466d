"""What those who ask and those who send have in common: arguments by position, and a limit in time."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from holdfast.authoring.durations import Duration, milliseconds
from holdfast.payloads.encoding import encode
from holdfast.payloads.limits import PayloadLimit

_PLAIN: Final = frozenset({dict, list, str, int, float, bool, type(None)})
"""What JSON has by itself."""


def encoded_arguments(args: tuple[Any, ...], what: str, limit: PayloadLimit) -> bytes:
    """Arguments by position, each as the type that it has: whoever asks by name knows no other."""
    parts = [encode(value, _own_type(value), what=what) for value in args]
    return limit.checked(b"[%b]" % b",".join(parts), what)


def _own_type(value: object) -> Any:
    kind = cast(Any, type(value))
    return Any if kind in _PLAIN else kind


@asynccontextmanager
async def limited(duration: Duration | None, otherwise: str) -> AsyncGenerator[None]:
    """A time-out whose error says what did not happen in time."""
    seconds = None if duration is None else milliseconds(duration, "timeout") / 1000
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if limit.expired():
            raise TimeoutError(otherwise) from error
        raise
