"""Members that handle rows of the open contract: requests of clients, and reports about external attempts (C2-C4).

A worker reads NEW rows, checks their values against the signatures that it has, and commits one member for each request
and one for the reports of each attempt. The effect of a row and its new state are one commit; a row that another worker
has handled meanwhile is left as it is.
"""

from holdfast.core.activity_events import CheckedReport, ReportState
from holdfast.storage.members.base import CommitMember, WorkerMember
from holdfast.storage.members.contract_rows import InsertReport, InsertRequest
from holdfast.storage.members.instances import Start
from holdfast.storage.members.messages import Deliver
from holdfast.storage.records import AttemptKey, Record, RequestState


class HandleRequest(CommitMember, frozen=True):
    """Handle a NEW row of `requests`: by its action, or by a refusal, or as a trace if it has neither (C3)."""

    row: int
    request_id: str
    action: Start | Deliver | None = None
    refusal: str | None = None


class HandleReports(CommitMember, frozen=True):
    """Handle rows of `activity_events` of one attempt in their order, then its deadline if it has passed (A5).

    `reports` has all WAITING rows of the attempt and its oldest NEW ones. Expiry never overtakes a report: the deadline
    is left to a later member while the attempt has NEW rows that are not in this one.
    """

    exec_id: str
    key: AttemptKey | None
    """None: no offer has the exec id, and every row is refused."""
    reports: tuple[CheckedReport, ...] = ()
    random_number: float = 0.0
    """For the jitter of a retry, in [0, 1)."""


class QueueAttempts(WorkerMember, frozen=True):
    """Claim READY external attempts of these activities in a queue, to be launched by the owner: they are QUEUED (C4).

    `claims` are random strings, one for each attempt, in the order of the attempts of the outcome.
    """

    queue: str
    names: tuple[str, ...]
    claims: tuple[str, ...]


ContractMember = InsertRequest | InsertReport | HandleRequest | HandleReports | QueueAttempts
"""The members that only a store with the capability `contract.OPEN_CONTRACT` applies."""


class HandledRequest(Record, frozen=True):
    """The new state of a request."""

    row: int
    state: RequestState
    refusal: str | None = None
    number: int | None = None


class HandledReport(Record, frozen=True):
    """The new state of a report."""

    row: int
    state: ReportState
    refusal: str | None = None
    cancel_requested: bool = False
