"""What passes between those who ask an instance something and those who have its code, through the store.

A question is a row with an end in time. One worker takes it, so that a question which kills those who try to answer it
kills one; the row goes when its asker has the answer, or when its time is over. None of it is history, and no turn.
"""

from holdfast.core.liveness import WorkerKey
from holdfast.core.updates import UpdateState
from holdfast.storage.records import InstanceNumber, Record


class UpdateAnswer(Record, frozen=True):
    """How far an update has come with a turn. `answer` is an encoded payload, None while there is none."""

    id: str
    state: UpdateState
    answer: bytes | None = None


class QueryRow(Record, frozen=True):
    """A query for an instance."""

    id: str
    number: InstanceNumber
    name: str
    input: bytes


class AskQuery(Record, frozen=True):
    """Put a question, for whoever has the code. A client's member, in nobody's name."""

    question: QueryRow
    expires_at_ms: int


class ClaimQueries(Record, frozen=True):
    """Take questions that nobody has taken: for instances of the owner, and for those that nobody owns."""

    owner: WorkerKey
    workflows: tuple[str, ...]
    limit: int


class AnswerQuery(Record, frozen=True):
    """Answer a question that the owner has taken."""

    id: str
    owner: WorkerKey
    answer: bytes


class DeleteQueries(Record, frozen=True):
    """Remove a question that nobody waits for any more; without one, whatever has outlived its time."""

    question: str | None = None


class ClaimedQueries(Record, frozen=True):
    """What was taken."""

    questions: list[QueryRow]


class PendingQueries(Record, frozen=True):
    """Whether there are questions that nobody has taken, and rows that have outlived their time."""

    has_questions: bool
    has_expired: bool


QueryMember = AskQuery | ClaimQueries | AnswerQuery | DeleteQueries
