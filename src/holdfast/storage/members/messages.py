"""Members about messages for instances and about queries of other processes.

A query is a row that expires. One worker claims it, so that a query which crashes the process that answers it crashes
one worker only. The row is deleted when the client has the answer, or after it has expired. A query leaves nothing in
the history and is not part of a turn.
"""

from holdfast.core.history import CancelRequested, EventReceived, UpdateAccepted
from holdfast.storage.members.base import CommitMember, WorkerMember
from holdfast.storage.records import InstanceId, InstanceNumber, Record
from holdfast.storage.versions import CodeVersion


class QueryRow(Record, frozen=True):
    """A query for an instance."""

    id: str
    """The name of the process that asks it, a colon, and a unique text."""
    number: InstanceNumber
    name: str
    input: bytes


def asker_of(query_id: str) -> str:
    """The name of the process that asks a query. Ids of queries begin with it, so that the answer finds the process."""
    return query_id.partition(":")[0]


class AskQuery(CommitMember, frozen=True):
    """Insert the query of a client, for a worker that has the code of the instance."""

    query: QueryRow
    expires_at_ms: int

    @property
    def needs_lease(self) -> bool:
        return False


class ClaimQueries(WorkerMember, frozen=True):
    """Claim queries about instances of the owner, and about instances without an owner that it may run (R8).

    `workflows` and `versions` are those of `ClaimInstances`.
    """

    workflows: tuple[str, ...]
    limit: int
    versions: tuple[CodeVersion, ...] = ()


class AnswerQuery(WorkerMember, frozen=True):
    """Answer a query that the owner has claimed."""

    id: str
    answer: bytes


class DeleteQueries(CommitMember, frozen=True):
    """Delete one query; without `query_id`, all queries and all rejections of updates that have expired."""

    query_id: str | None = None


QueryMember = AskQuery | ClaimQueries | AnswerQuery | DeleteQueries


class Deliver(CommitMember, frozen=True):
    """A message from outside, or from another instance's turn, for the newest instance of an id (G5, G7).

    A message with a `message_id` is delivered once, however often it is sent. An update has an id of its own. `number`
    selects one instance of the id.
    """

    id: InstanceId
    event: EventReceived | CancelRequested | UpdateAccepted
    number: InstanceNumber | None = None
    reply_to: int | None = None
    """In a turn: the number of the message, if the code that sent it waits for the verdict (G19)."""
    message_id: str = ""
    watcher: str | None = None
    """With an update: the process that waits for the answer, as in `Watch`."""

    @property
    def needs_lease(self) -> bool:
        return False
