"""Members that insert rows of the open contract (C2-C4): requests of clients, and reports about external attempts.

A client inserts a row under an id of its own, so that a repeated insert is the same row. Workers handle the rows in
commits of their own (`members.row_handling`).
"""

from holdfast.storage.members.base import CommitMember


class InsertRequest(CommitMember, frozen=True):
    """Insert a row of `requests` (C2). `Applied.changed` is 0 if a row with this id exists, which is not changed."""

    request_id: str
    kind: str = "start"
    workflow: str | None = None
    instance_id: str | None = None
    event_name: str | None = None
    input: str = "[]"
    policy: str | None = None
    start_at_ms: int | None = None
    deadline_after_ms: int | None = None
    manual: bool = False
    source: str | None = None

    @property
    def needs_lease(self) -> bool:
        return False


class InsertReport(CommitMember, frozen=True):
    """Insert a row of `activity_events` (C2). `Applied.changed` is 0 if a row with this id exists."""

    event_id: str
    activity_exec_id: str
    transition: str
    claim: str | None = None
    sequence: int | None = None
    payload: str | None = None
    error: str | None = None
    source: str | None = None
    sent_at: str | None = None

    @property
    def needs_lease(self) -> bool:
        return False
