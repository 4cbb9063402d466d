"""What passes between those who ask an instance something and those who have its code, through the store.

A question is a row with an end in time. One worker takes it, so that a question which kills those who try to answer it
kills one; the row goes when its asker has the answer, or when its time is over. None of it is history, and no turn.
"""

from holdfast.core.history import CancelRequested, EventReceived, UpdateAccepted
from holdfast.storage.members.base import CommitMember, WorkerMember
from holdfast.storage.records import InstanceId, InstanceNumber, Record


class QueryRow(Record, frozen=True):
    """A query for an instance."""

    id: str
    number: InstanceNumber
    name: str
    input: bytes


class AskQuery(CommitMember, frozen=True):
    """Put a question, for whoever has the code. A client's member, in nobody's name."""

    question: QueryRow
    expires_at_ms: int


class ClaimQueries(WorkerMember, frozen=True):
    """Take questions that nobody has taken: for instances of the owner, and for those that nobody owns."""

    workflows: tuple[str, ...]
    limit: int

    @property
    def notifies(self) -> bool:
        return False


class AnswerQuery(WorkerMember, frozen=True):
    """Answer a question that the owner has taken."""

    id: str
    answer: bytes


class DeleteQueries(CommitMember, frozen=True):
    """Remove a question that nobody waits for any more; without one, whatever has outlived its time."""

    question: str | None = None

    @property
    def notifies(self) -> bool:
        return False


QueryMember = AskQuery | ClaimQueries | AnswerQuery | DeleteQueries


class Deliver(CommitMember, frozen=True):
    """A message from outside, or from another instance's turn, for the newest instance of an id (G5, G7).

    `message_id` makes it one message however often it is sent; without one, each is another. An update has its own id.
    `number` names one instance of the id.
    """

    id: InstanceId
    event: EventReceived | CancelRequested | UpdateAccepted
    number: InstanceNumber | None = None
    message_id: str = ""
