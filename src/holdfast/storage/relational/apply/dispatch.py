"""Applies the members of a group in its transaction, one after the other.

A member whose guard does not hold is `Rejected` and changes nothing, except that the completions of a rejected turn are
put into the inbox (G5).
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast.core.leases import WorkerKey
from holdfast.storage.members.attempts import (
    CancelActivity,
    ClaimAttempts,
    Completion,
    HeartbeatAttempt,
    OpenNextAttempt,
    RunPrepared,
)
from holdfast.storage.members.contract_rows import InsertReport, InsertRequest
from holdfast.storage.members.instances import (
    Block,
    ClaimInstances,
    CloseChildren,
    Expire,
    Pause,
    Release,
    Resume,
    RetryBlocked,
    SaveFlow,
    SetAttributes,
    SetDeadline,
    Start,
    Terminate,
    Watch,
)
from holdfast.storage.members.member import Member
from holdfast.storage.members.messages import AnswerQuery, AskQuery, ClaimQueries, DeleteQueries, Deliver
from holdfast.storage.members.outcomes import Outcome, Rejected
from holdfast.storage.members.restoring import LiftNumbers, RestoreInstances
from holdfast.storage.members.retention import DeleteExecutions, DeleteFamilies
from holdfast.storage.members.row_handling import HandleReports, HandleRequest, QueueAttempts
from holdfast.storage.members.turns import StreamValues, Turn
from holdfast.storage.members.workers import MarkWorkerLost, ReleaseUnknown
from holdfast.storage.relational.apply import attempts
from holdfast.storage.relational.apply.activity_events import apply_handle_reports
from holdfast.storage.relational.apply.attributes import apply_set_attributes
from holdfast.storage.relational.apply.children import apply_close_children, apply_terminate
from holdfast.storage.relational.apply.contract_inserts import apply_insert_report, apply_insert_request
from holdfast.storage.relational.apply.deadlines import apply_expire, apply_set_deadline
from holdfast.storage.relational.apply.instances import (
    apply_block,
    apply_claim_instances,
    apply_release,
    apply_retry_blocked,
    apply_save_flow,
    apply_start,
    apply_watch,
)
from holdfast.storage.relational.apply.launches import apply_queue_attempts
from holdfast.storage.relational.apply.messages import apply_deliver
from holdfast.storage.relational.apply.pauses import apply_pause, apply_resume
from holdfast.storage.relational.apply.queries import (
    apply_answer_query,
    apply_ask_query,
    apply_claim_queries,
    apply_delete_queries,
)
from holdfast.storage.relational.apply.requests import apply_handle_request
from holdfast.storage.relational.apply.restoring import apply_lift_numbers, apply_restore_instances
from holdfast.storage.relational.apply.retention import apply_delete_executions, apply_delete_families
from holdfast.storage.relational.apply.streams import apply_stream_values
from holdfast.storage.relational.apply.turns import apply_turn
from holdfast.storage.relational.apply.workers import apply_mark_worker_lost, apply_release_unknown
from holdfast.storage.relational.transaction import Transaction


def is_active(transaction: Transaction, key: WorkerKey) -> bool:
    """W6: whether a worker may act."""
    return transaction.exists(transaction.sql.active_worker, key)


def apply_members(transaction: Transaction, members: Sequence[Member]) -> list[Outcome]:
    """Apply a group. Members of a worker that is not ACTIVE are rejected (W6, W7)."""
    alive: dict[WorkerKey, bool] = {}
    outcomes: list[Outcome] = []
    for member in members:
        actor = member.actor
        if actor is not None and actor not in alive:
            alive[actor] = is_active(transaction, actor)
        if actor is not None and not alive[actor]:
            outcomes.append(Rejected(reason=f"worker {actor} is not active"))
        else:
            outcomes.append(APPLY_BY_TYPE[type(member)](transaction, member))
    return outcomes


APPLY_BY_TYPE: Final[dict[type[Member], Callable[[Transaction, Any], Outcome]]] = {
    Turn: apply_turn,
    Start: apply_start,
    Completion: attempts.apply_completion,
    Terminate: apply_terminate,
    OpenNextAttempt: attempts.apply_open_next_attempt,
    CancelActivity: attempts.apply_cancel_activity,
    ClaimAttempts: attempts.apply_claim_attempts,
    RunPrepared: attempts.apply_run_prepared,
    ClaimInstances: apply_claim_instances,
    Release: apply_release,
    Block: apply_block,
    RetryBlocked: apply_retry_blocked,
    Pause: apply_pause,
    Resume: apply_resume,
    HeartbeatAttempt: attempts.apply_heartbeat,
    MarkWorkerLost: apply_mark_worker_lost,
    ReleaseUnknown: apply_release_unknown,
    Deliver: apply_deliver,
    StreamValues: apply_stream_values,
    SetDeadline: apply_set_deadline,
    Expire: apply_expire,
    CloseChildren: apply_close_children,
    SaveFlow: apply_save_flow,
    SetAttributes: apply_set_attributes,
    Watch: apply_watch,
    LiftNumbers: apply_lift_numbers,
    RestoreInstances: apply_restore_instances,
    DeleteFamilies: apply_delete_families,
    DeleteExecutions: apply_delete_executions,
    AskQuery: apply_ask_query,
    ClaimQueries: apply_claim_queries,
    AnswerQuery: apply_answer_query,
    DeleteQueries: apply_delete_queries,
    HandleRequest: apply_handle_request,
    HandleReports: apply_handle_reports,
    QueueAttempts: apply_queue_attempts,
    InsertRequest: apply_insert_request,
    InsertReport: apply_insert_report,
}
"""The function for each type of member. A test compares the keys with the union."""
