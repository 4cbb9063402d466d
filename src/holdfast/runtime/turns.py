"""From what the code did in a turn to what is committed: one `Turn`, all or nothing (G11).

Decides which new attempts start here at once (eager dispatch) and which wait for any worker, and moves large payloads
out of the history.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from holdfast.core.events import (
    ActivityCompleted,
    ActivityFailed,
    HistoryEvent,
    Input,
    TimerFired,
    WorkflowCompleted,
    WorkflowFailed,
    encode_events,
    payload_of,
)
from holdfast.core.ledger import SEED, conclude_leg1, enter_leg1, exit_leg2, read
from holdfast.core.lifecycle import ATTEMPT_FINAL, AttemptState, InstanceState
from holdfast.core.liveness import WorkerKey
from holdfast.payloads.limits import INLINE_LIMIT_BYTES
from holdfast.replay.output import LogLine, Output, ScheduledActivity
from holdfast.runtime.live import LiveInstance, Message
from holdfast.storage.contract import (
    AttemptKey,
    AttemptRecord,
    Close,
    Completion,
    LargePayload,
    NewAttempt,
    TimerRow,
    Transition,
    Turn,
)
from holdfast.storage.large import offload

EAGER_LEDGER: Final = conclude_leg1(enter_leg1(SEED)[0])
"""A8: entry and conclusion in one commit, because the one who schedules runs it at once."""


class BuiltTurn(NamedTuple):
    """A turn to be committed, and the attempts that start here once it is."""

    turn: Turn
    eager: list[NewAttempt]
    logs: Sequence[LogLine]


def build_turn(
    live: LiveInstance,
    messages: list[Message],
    output: Output,
    *,
    owner: WorkerKey,
    now_ms: int,
    reserve: Callable[[ScheduledActivity], bool],
    release: bool,
) -> BuiltTurn:
    """Put everything one turn did together. `reserve` says whether an activity may start here at once."""
    attempts: list[NewAttempt] = []
    eager: list[NewAttempt] = []
    for scheduled in output.scheduled:
        starts_here = scheduled.activity not in output.abandoned and reserve(scheduled)
        new = _new_attempt(scheduled, owner if starts_here else None, now_ms)
        attempts.append(new)
        if new.owner is not None:
            eager.append(new)
    payloads: list[LargePayload] = []
    events = output.events
    encoded = encode_events(events) if events else b""
    if len(encoded) > INLINE_LIMIT_BYTES:
        events = [offload(event, payloads) for event in events]
        encoded = encode_events(events)
    completions: list[Completion] = []
    responses: list[Transition] = []
    consumed: list[int] = []
    ended = list(output.timers_ended)
    for event, completion, row, response in messages:
        if completion is not None:
            completions.append(completion)
        elif row:
            consumed.append(row)
            if response is not None:
                responses.append(response)
        elif type(event) is TimerFired:
            ended.append(event.timer)
    turn = Turn(
        number=live.number,
        execution=live.execution,
        owner=owner,
        fence=live.fence,
        turn=live.turn,
        stamp_ms=live.stamp_ms,
        events=encoded,
        completions=tuple(completions),
        responses=tuple(responses),
        consumed=tuple(consumed),
        attempts=tuple(attempts),
        abandoned=tuple(output.abandoned),
        timers_started=_change_timers(live, output.timers_started, ended) if ended or output.timers_started else (),
        timers_ended=tuple(ended),
        payloads=tuple(payloads),
        close=None if output.outcome is None else close_of(events, output.outcome),
        release=release,
    )
    return BuiltTurn(turn, eager, output.logs)


def _change_timers(live: LiveInstance, started: dict[int, int], ended: list[int]) -> tuple[TimerRow, ...]:
    for timer in ended:
        live.timers.pop(timer, None)
    live.timers.update(started)
    return tuple(TimerRow(timer=timer, due_at_ms=due) for timer, due in started.items())


def close_of(events: list[HistoryEvent], outcome: WorkflowCompleted | WorkflowFailed) -> Close:
    """The end of the instance, now that the code has come to its end."""
    state = InstanceState.COMPLETED if isinstance(outcome, WorkflowCompleted) else InstanceState.FAILED
    payload = payload_of(events[-1])
    return Close(state=state, outcome=msgspec.json.encode(payload))


def _new_attempt(scheduled: ScheduledActivity, owner: WorkerKey | None, now_ms: int) -> NewAttempt:
    options = scheduled.options
    if owner is None:
        expires = options.expires_at_ready_ms(scheduled_at_ms=now_ms, available_at_ms=now_ms)
    else:
        expires = options.expires_at_running_ms(scheduled_at_ms=now_ms, started_at_ms=now_ms, heard_at_ms=now_ms)
    return NewAttempt(
        activity=scheduled.activity,
        attempt=1,
        name=scheduled.name,
        queue=options.queue,
        state=AttemptState.READY if owner is None else AttemptState.RUNNING,
        ledger=SEED if owner is None else EAGER_LEDGER,
        input=scheduled.input,
        options=scheduled.encoded_options,
        available_at_ms=now_ms,
        scheduled_at_ms=now_ms,
        expires_at_ms=expires,
        owner=owner,
    )


def running_record(live: LiveInstance, new: NewAttempt) -> AttemptRecord:
    """The attempt as it is stored, for the one who runs it here."""
    return AttemptRecord(
        key=AttemptKey(live.number, live.execution, new.activity, new.attempt),
        name=new.name,
        queue=new.queue,
        state=new.state,
        ledger=new.ledger,
        input=new.input,
        options=new.options,
        available_at_ms=new.available_at_ms,
        scheduled_at_ms=new.scheduled_at_ms,
        started_at_ms=new.scheduled_at_ms,
        expires_at_ms=new.expires_at_ms,
        heartbeat_at_ms=new.scheduled_at_ms,
        owner=new.owner,
        instance_id=live.id,
        workflow=live.workflow,
    )


def exit_of(event: Input, attempts: dict[tuple[int, int], AttemptRecord]) -> Transition | None:
    """The leg 2 exit of a response that waited in the inbox (L5, L6); none for an attempt that timed out (A8)."""
    match event:
        case ActivityCompleted() | ActivityFailed():
            attempt = attempts.get((event.activity, event.attempt))
            if attempt is None or attempt.state not in ATTEMPT_FINAL or not read(attempt.ledger).unapplied_responses:
                return None
            return Transition(
                key=attempt.key,
                owner=attempt.owner,
                from_state=attempt.state,
                from_ledger=attempt.ledger,
                to_state=attempt.state,
                to_ledger=exit_leg2(attempt.ledger, final=True),
            )
        case _:
            return None
