"""The table of A by the reports of clients, written by hand: the state of a row for each state of its attempt."""

from typing import Final

from holdfast.core.activity_events import ReportKind, ReportState
from holdfast.core.lifecycle import AttemptState

A, W, R = ReportState.APPLIED, ReportState.WAITING, ReportState.REFUSED

_ROWS: Final = {
    #                  QUEUED PREPARING RUNNING HEARTBEAT RESPONSE COMPLETED FAILED RELEASE CANCEL STOPPED NOTE
    AttemptState.READY: (A, A, A, R, W, W, R, R, A, R, A),
    AttemptState.QUEUED: (R, A, A, A, W, W, A, A, A, R, A),
    AttemptState.PREPARING: (R, R, A, A, W, W, A, A, A, R, A),
    AttemptState.RUNNING: (R, R, R, A, A, A, A, R, A, R, A),
    AttemptState.CANCELLED_RUNNING: (R, R, R, A, R, A, A, R, A, A, A),
    AttemptState.CANCELLED: (R, R, R, R, R, R, R, R, R, R, A),
    AttemptState.TIMED_OUT: (R, R, R, R, R, R, R, R, R, R, A),
    AttemptState.FAILED: (R, R, R, R, R, R, R, R, R, R, A),
    AttemptState.COMPLETED: (R, R, R, R, R, R, R, R, R, R, A),
}
CELLS: Final = {
    (state, kind): found for state, row in _ROWS.items() for kind, found in zip(ReportKind, row, strict=True)
}
