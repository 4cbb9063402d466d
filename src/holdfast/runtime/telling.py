"""How a loop that goes on tells of trouble: a store that cannot be used is a line, what nobody foresaw a traceback."""

import logging

from holdfast.errors import StoreError

logger = logging.getLogger("holdfast")


def tell_trouble(what: str, error: Exception) -> None:
    """Log what could not be done, and why."""
    logger.error("%s: %s", what, error, exc_info=None if isinstance(error, StoreError) else error)
