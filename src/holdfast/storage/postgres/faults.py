"""What an error of PostgreSQL's means for the group that was being written.

Decided by SQLSTATE, the five characters that mean the same in every release and language. Errors that have none come
from the client's side: of a connection that is gone or cannot be made, or of a value that cannot be sent.
"""

from enum import Enum
from typing import Final

import psycopg

from holdfast.errors import StoreError


class Fault(Enum):
    """What to do now."""

    TRY_AGAIN = "nothing was wrong but the moment: the same group may pass"
    CONNECTION_LOST = "this connection is of no use any more: connect again, and settle a commit by its id"
    MEMBER = "a member of the group cannot be stored: the others can"
    BROKEN = "nothing can be stored until somebody mends the database, or Holdfast"


class NotPrimary(psycopg.OperationalError):
    """A standby answered. After a failover the primary is elsewhere, or will be here soon."""


CODES: Final = {
    "25006": Fault.CONNECTION_LOST,  # read-only transaction: a standby, or a primary that is not one any more
    "25P03": Fault.CONNECTION_LOST,  # idle in a transaction for too long
    "25P04": Fault.TRY_AGAIN,  # transaction_timeout
    "40003": Fault.CONNECTION_LOST,  # statement completion unknown
    "53100": Fault.BROKEN,  # disk full
    "53200": Fault.MEMBER,  # out of memory, or of room for locks: a smaller group may pass
    "53300": Fault.CONNECTION_LOST,  # too many connections
    "55006": Fault.TRY_AGAIN,  # object in use
    "55P03": Fault.TRY_AGAIN,  # lock not available in time
    "57014": Fault.TRY_AGAIN,  # statement_timeout, or somebody cancelled it
    "57P01": Fault.CONNECTION_LOST,  # admin shutdown
    "57P02": Fault.CONNECTION_LOST,  # crash of another backend
    "57P03": Fault.CONNECTION_LOST,  # cannot connect now: starting or stopping
    "57P05": Fault.CONNECTION_LOST,  # idle for too long
}
CLASSES: Final = {
    "08": Fault.CONNECTION_LOST,
    "21": Fault.MEMBER,  # cardinality
    "22": Fault.MEMBER,  # data
    "23": Fault.MEMBER,  # constraints
    "27": Fault.MEMBER,  # triggered data change
    "40": Fault.TRY_AGAIN,  # serialization failure, deadlock
    "44": Fault.MEMBER,  # check option
    "54": Fault.MEMBER,  # too large for an index, too many columns
    "P0": Fault.MEMBER,  # raised by a function
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


def classify(error: BaseException) -> Fault:
    """What an error means. One that is not PostgreSQL's is about a value that could not be sent."""
    if isinstance(error, StoreError):
        return Fault.BROKEN
    if isinstance(error, psycopg.Error):
        return _by_state(error.sqlstate) if error.sqlstate else _without_state(error)
    return Fault.CONNECTION_LOST if isinstance(error, OSError) else Fault.MEMBER


def _by_state(state: str) -> Fault:
    return CODES.get(state) or CLASSES.get(state[:CLASS_LENGTH], Fault.BROKEN)


def _without_state(error: psycopg.Error) -> Fault:
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        text = str(error)
        return Fault.BROKEN if any(refusal in text for refusal in REFUSALS) else Fault.CONNECTION_LOST
    return Fault.MEMBER
