"""What an error of PostgreSQL's means for the group that was being written.

Decided by SQLSTATE, the five characters that mean the same in every release and language. Errors that have none come
from the client's side: of a connection that is gone or cannot be made, or of a value that cannot be sent.
"""

from enum import Enum
from typing import Final

import psycopg

from holdfast.errors import StoreError


class ErrorClass(Enum):
    """What to do now."""

    TRY_AGAIN = "nothing was wrong but the moment: the same group may pass"
    CONNECTION_LOST = "this connection is of no use any more: connect again, and settle a commit by its id"
    MEMBER = "a member of the group cannot be stored: the others can"
    BROKEN = "nothing can be stored until somebody mends the database, or Holdfast"


class NotPrimary(psycopg.OperationalError):
    """A standby answered. After a failover the primary is elsewhere, or will be here soon."""


CODES: Final = {
    "25006": ErrorClass.CONNECTION_LOST,  # read-only transaction: a standby, or a primary that is not one any more
    "25P03": ErrorClass.CONNECTION_LOST,  # idle in a transaction for too long
    "25P04": ErrorClass.TRY_AGAIN,  # transaction_timeout
    "40003": ErrorClass.CONNECTION_LOST,  # statement completion unknown
    "53100": ErrorClass.BROKEN,  # disk full
    "53200": ErrorClass.MEMBER,  # out of memory, or of room for locks: a smaller group may pass
    "53300": ErrorClass.CONNECTION_LOST,  # too many connections
    "55006": ErrorClass.TRY_AGAIN,  # object in use
    "55P03": ErrorClass.TRY_AGAIN,  # lock not available in time
    "57014": ErrorClass.TRY_AGAIN,  # statement_timeout, or somebody cancelled it
    "57P01": ErrorClass.CONNECTION_LOST,  # admin shutdown
    "57P02": ErrorClass.CONNECTION_LOST,  # crash of another backend
    "57P03": ErrorClass.CONNECTION_LOST,  # cannot connect now: starting or stopping
    "57P05": ErrorClass.CONNECTION_LOST,  # idle for too long
}
CLASSES: Final = {
    "08": ErrorClass.CONNECTION_LOST,
    "21": ErrorClass.MEMBER,  # cardinality
    "22": ErrorClass.MEMBER,  # data
    "23": ErrorClass.MEMBER,  # constraints
    "27": ErrorClass.MEMBER,  # triggered data change
    "40": ErrorClass.TRY_AGAIN,  # serialization failure, deadlock
    "44": ErrorClass.MEMBER,  # check option
    "54": ErrorClass.MEMBER,  # too large for an index, too many columns
    "P0": ErrorClass.MEMBER,  # raised by a function
}
CLASS_LENGTH: Final = 2
REFUSALS: Final = (
    "authentication failed",
    "does not exist",
    "no pg_hba.conf entry",
    "permission denied",
    "is not permitted to log in",
    "no password supplied",
    "does not support SSL",
    "certificate",
    "definition of service",
    "invalid port number",
    "invalid integer value",
    ' value: "',
)
"""What libpq says when connecting again will not help. It gives no SQLSTATE then, and speaks the server's language: in
another one than English we only try a few times more."""


def classify(error: BaseException) -> ErrorClass:
    """What an error means. One that is not PostgreSQL's is about a value that could not be sent."""
    if isinstance(error, StoreError):
        return ErrorClass.BROKEN
    if isinstance(error, psycopg.Error):
        return _by_state(error.sqlstate) if error.sqlstate else _without_state(error)
    return ErrorClass.CONNECTION_LOST if isinstance(error, OSError) else ErrorClass.MEMBER


def _by_state(state: str) -> ErrorClass:
    return CODES.get(state) or CLASSES.get(state[:CLASS_LENGTH], ErrorClass.BROKEN)


def _without_state(error: psycopg.Error) -> ErrorClass:
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        text = str(error)
        return ErrorClass.BROKEN if any(refusal in text for refusal in REFUSALS) else ErrorClass.CONNECTION_LOST
    return ErrorClass.MEMBER
