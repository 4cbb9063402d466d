"""Refuses engines and clients that user code opens while Holdfast imports it for its workflows and activities.

A program without ``if __name__ == "__main__":`` opens one: its import would run it a second time, and in the process of
an activity it would deadlock, waiting for the work of that process.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from holdfast.errors import UsageError

_is_importing: Final[ContextVar[bool]] = ContextVar("holdfast_importing", default=False)
"""A context variable: `asyncio.run` starts with the context of its caller, other threads do not."""
GUARD: Final = 'if __name__ == "__main__": asyncio.run(main())'


class StartedByImport(UsageError):
    """The import of a module opens an engine or a client."""


@contextmanager
def importing() -> Generator[None]:
    """A context in which user code is imported, and engines and clients refuse to open."""
    token = _is_importing.set(True)
    try:
        yield
    finally:
        _is_importing.reset(token)


def refuse_while_importing() -> None:
    """Raise `StartedByImport` inside of `importing`."""
    if _is_importing.get():
        raise StartedByImport(
            f"its import starts an engine or a client; start it only where the file is run as a program: {GUARD}"
        )
