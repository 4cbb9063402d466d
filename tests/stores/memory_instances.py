"""Members about starts, turns, claims, messages and queries, applied to the tables in memory (G1-G14)."""

import hashlib
import logging
from collections.abc import Sequence

import msgspec
from tests.stores.memory_attempts import (
    apply_cancel_activity,
    apply_completion,
    cancel_attempts,
    close_attempt,
    exit_all_responses,
    exit_response,
    exit_values,
    insert_attempt,
    pass_values,
    release_instance,
    stored_input,
    write_payloads,
)
from tests.stores.memory_endings import (
    Ended,
    answer_parent,
    cancel,
    clear_timers,
    close_children,
    decoded,
    note_closing,
    put_message,
    set_deadline,
    settle,
    tell_parent,
    terminate,
)
from tests.stores.memory_tables import (
    CLAIMABLE_STATES,
    Attribute,
    Flow,
    Instance,
    MemoryTables,
    Query,
    Received,
    Update,
    Value,
    instance_record,
)

from holdfast.core.admission import (
    EventVerdict,
    ExistingInstance,
    StartIdentity,
    StartVerdict,
    decide_child_start,
    decide_event,
    decide_start,
)
from holdfast.core.attributes import MOST_ATTRIBUTES, AttributeChange
from holdfast.core.checks import require
from holdfast.core.children import ParentEnd
from holdfast.core.history import (
    ANSWERS,
    AttributesChanged,
    CancelRequested,
    ChildRefused,
    ChildStarted,
    EventReceived,
    SendJudged,
    UpdateAccepted,
    encode_event,
)
from holdfast.core.leases import MAX_LOST_OWNERS, SUSPECT_AFTER
from holdfast.core.lifecycle import InstanceState
from holdfast.core.queries import MAX_QUERIES
from holdfast.core.updates import REFUSALS, REJECTION_KEPT_MS, UpdateState, decide_update
from holdfast.storage.instance_endings import REPLACED
from holdfast.storage.members.attempts import CancelActivity
from holdfast.storage.members.instances import (
    Block,
    ClaimInstances,
    Release,
    RetryBlocked,
    SaveFlow,
    SetAttributes,
    Start,
    Watch,
)
from holdfast.storage.members.messages import AnswerQuery, AskQuery, ClaimQueries, DeleteQueries, Deliver, QueryRow
from holdfast.storage.members.outcomes import (
    Applied,
    ChangedAttributes,
    ClaimedInstances,
    ClaimedQueries,
    Delivered,
    EndedInstance,
    Outcome,
    Rejected,
    RetriedInstance,
    StartedInstance,
    TargetInstance,
)
from holdfast.storage.members.turns import NewChild, NextExecution, Turn, TurnEffects
from holdfast.storage.records import Fence, HistoryRow, InstanceNumber, Parent
from holdfast.storage.versions import CodeVersion

logger = logging.getLogger("holdfast")

MOVED_ON = "the fence or the owner has moved on"
TAKEN = (EventVerdict.DELIVER, EventVerdict.KEEP, EventVerdict.DUPLICATE)


# ---------------------------------------------------------------- starts


def apply_start(tables: MemoryTables, start: Start) -> Outcome:
    """G3: create an instance, or do with the one that has the id as the policy says."""
    existing = tables.current(start.id)
    outcome = _create(tables, start) if existing is None else _start_again(tables, start, existing)
    if start.mail is None or not isinstance(outcome, StartedInstance) or (outcome.created and start.mail_taken):
        return outcome
    told = apply_deliver(tables, start.mail)
    return msgspec.structs.replace(outcome, mail=told) if isinstance(told, Delivered) else outcome


def _start_again(tables: MemoryTables, start: Start, existing: Instance) -> Outcome:
    verdict = decide_start(
        StartIdentity(start.workflow, start.input_hash),
        ExistingInstance(StartIdentity(existing.workflow, existing.input_hash), existing.state),
        start.policy,
    )
    if verdict is StartVerdict.SAME:
        return StartedInstance(instance=instance_record(existing), created=False)
    if verdict is StartVerdict.CONFLICT:
        other = f", not {start.workflow!r}" if existing.workflow != start.workflow else " with a different input"
        return Rejected(reason=f"the id {start.id!r} is taken by an instance of {existing.workflow!r}{other}")
    is_replaced = verdict is StartVerdict.REPLACE
    ended = terminate(tables, existing, REPLACED) if is_replaced else ()
    tables.instances.change(existing.number, superseded_at_ms=tables.now_ms)
    begun = _create(tables, start)
    return msgspec.structs.replace(begun, replaced=existing.number if is_replaced else None, ended=ended)


def _create(tables: MemoryTables, start: Start) -> StartedInstance:
    """The instance, with its first turn, or with its start in its inbox."""
    number, first, now_ms = tables.next_number(), start.first, tables.now_ms
    row = Instance(
        number=number,
        id=start.id,
        workflow=start.workflow,
        version=start.version,
        state=InstanceState.RUNNING if first else InstanceState.REQUESTED,
        execution=1,
        turn=1 if first else 0,
        fence=first.fence if first else Fence(0),
        owner=first.owner if first else None,
        claimable_at_ms=None if first else start.start_at_ms or 0,
        start_at_ms=start.start_at_ms,
        stamp_ms=first.stamp_ms if first else now_ms,
        input=stored_input(tables, number, start.input),
        input_hash=start.input_hash,
        outcome=None,
        blocked=None,
        created_at_ms=min(first.stamp_ms, now_ms) if first else now_ms,
        closed_at_ms=None,
        key=first.key if first else start.key,
    )
    tables.instances.insert(number, row)
    write_payloads(tables, number, list(start.payloads))
    write_attributes(tables, number, start.attributes)
    if start.deadline is not None:
        set_deadline(tables, number, start.deadline)
    if first is None:
        tables.put_in_inbox(number, 1, start.started)
    else:
        _write_turn(tables, first, number)
    return StartedInstance(instance=instance_record(tables.instances[number]), created=True)


# ---------------------------------------------------------------- turns


def apply_turn(tables: MemoryTables, turn: Turn) -> Outcome:
    """G11: all of a turn or nothing. Of a rejected one the completions are kept: they are applied without it (G5)."""
    mark = tables.mark()
    refusal = _refusal(tables, turn)
    if refusal is None:
        return Applied(ended=_write_turn(tables, turn, turn.number))
    tables.undo_to(mark)
    kept = [completion for completion in turn.completions if isinstance(apply_completion(tables, completion), Applied)]
    return Rejected(reason=refusal, stale=tuple(each.key for each in turn.completions if each not in kept))


def _refusal(tables: MemoryTables, turn: Turn) -> str | None:
    """Apply what a turn answers, and its guard. Why it is rejected; None: go on with it."""
    effects = turn.effects or TurnEffects()
    fresh = [close_attempt(tables, each, each.applied_ledger) for each in turn.completions]
    fresh += [pass_values(tables, each) for each in effects.stream_values]
    if effects.read_to is not None and _has_unread(tables, turn.number, effects.read_to):
        return "an event or an update came before the end, and the owner has not read it"
    if not all(fresh):
        return "an answer was stale"
    row = tables.instances.get(turn.number)
    if row is None or (row.fence, row.owner, row.turn) != (turn.fence, turn.owner, turn.turn):
        return "the fence, the owner or the turn has moved on"
    tables.instances.change(
        row.number,
        turn=turn.turn + 1 if turn.events else turn.turn,
        stamp_ms=turn.stamp_ms,
        losses=0,
        state=InstanceState.RUNNING if row.state is InstanceState.REQUESTED else row.state,
        key=row.key if turn.key is None else turn.key,
    )
    return None


def _has_unread(tables: MemoryTables, number: InstanceNumber, read_to: int) -> bool:
    """Whether an event or an update is behind the last inbox row that the owner has read (G14)."""
    return any(
        message.row.number == number and message.row.row > read_to and message.name is not None
        for message in tables.inbox.values()
    )


def _write_turn(tables: MemoryTables, turn: Turn, number: InstanceNumber) -> Ended:
    """What a turn did. Which children ended with it."""
    execution = turn.execution
    if turn.events:
        tables.history.insert((number, execution, turn.turn), HistoryRow(turn=turn.turn, events=turn.events))
    for new in turn.attempts:
        insert_attempt(tables, number, execution, new)
    return () if turn.effects is None else _write_effects(tables, turn, turn.effects, number)


def _write_effects(tables: MemoryTables, turn: Turn, effects: TurnEffects, number: InstanceNumber) -> Ended:
    execution = turn.execution
    for applied in effects.applied_values:
        exit_values(tables, applied)
    if effects.version is not None:
        tables.instances.change(number, version=effects.version)
    write_payloads(tables, number, list(effects.payloads))
    for row in effects.consumed:
        is_mine = row in tables.inbox and tables.inbox[row].row.number == number
        require(is_mine and tables.inbox.remove(row), f"message {row} of instance {number} was gone")
    for response in effects.responses:
        exit_response(tables, response)
    for activity in effects.abandoned:
        cancel_attempts(tables, number, (execution, activity))
    for activity in effects.activities_asked:
        apply_cancel_activity(tables, CancelActivity(number=number, execution=execution, activity=activity))
    for timer in effects.timers_started:
        tables.timers.insert((number, execution, timer.timer), timer)
    tables.timers.remove_all((number, execution, timer) for timer in effects.timers_ended)
    ended = _write_children(tables, effects, number, execution)
    _write_mailbox(tables, effects, number, execution)
    _write_values(tables, effects, number)
    return ended + _leave(tables, turn, effects, number)


def _write_mailbox(tables: MemoryTables, effects: TurnEffects, number: InstanceNumber, execution: int) -> None:
    row = tables.instances[number]
    tables.instances.change(
        number,
        waits=row.waits if effects.waits is None else frozenset(effects.waits),
        events_waiting=row.events_waiting - effects.events_taken,
        mailbox=effects.mailbox or row.mailbox,
    )
    tables.received.remove_all((number, message_id) for message_id in effects.ids_set_aside)
    for message in effects.sent:
        outcome = apply_deliver(tables, message)
        if message.reply_to is not None:
            verdict = outcome.verdict if isinstance(outcome, Delivered) else EventVerdict.UNKNOWN
            judged = SendJudged(time_ms=tables.now_ms, number=message.reply_to, verdict=verdict.name)
            tables.put_in_inbox(number, execution, encode_event(judged))
            tables.wake(number)
        elif not isinstance(outcome, Delivered) or outcome.verdict not in TAKEN:
            logger.warning("a message of a workflow for %r was not delivered: %s", message.id, outcome)


def write_attributes(tables: MemoryTables, number: InstanceNumber, changes: tuple[AttributeChange, ...]) -> None:
    for change in changes:
        if change.value is None:
            tables.attributes.remove((number, change.name))
        else:
            tables.attributes.put((number, change.name), Attribute(value=change.value))


def _write_values(tables: MemoryTables, effects: TurnEffects, number: InstanceNumber) -> None:
    for change in effects.state_values:
        if change.value is None:
            tables.state_values.remove((number, change.key))
        else:
            tables.state_values.put((number, change.key), Value(data=change.value))
    write_attributes(tables, number, effects.attributes)
    for answer in effects.answers:
        found = tables.updates.get((number, answer.id))
        require(found is not None and found.answer is None, f"update {answer.id!r} was answered before, or never sent")
        expires_at_ms = tables.now_ms + REJECTION_KEPT_MS if answer.state in REFUSALS else None
        tables.updates.change(
            (number, answer.id), state=answer.state, answer=answer.answer, expires_at_ms=expires_at_ms
        )


def _leave(tables: MemoryTables, turn: Turn, effects: TurnEffects, number: InstanceNumber) -> Ended:
    """The instance ends, or its execution does and the next begins (G4), or the instance is released (G2)."""
    if effects.close is not None:
        settle(tables, number)
        tables.instances.change(
            number,
            state=effects.close.state,
            outcome=effects.close.outcome,
            error=effects.close.error,
            closed_at_ms=tables.now_ms,
            owner=None,
            claimable_at_ms=None,
        )
        answer_parent(tables, tables.instances[number])
    elif effects.next is not None:
        _start_next_execution(tables, turn, number, effects.next, release=effects.release)
    else:
        if effects.release:
            release_instance(tables, number, turn.fence, turn.owner)
        return ()
    note_closing(tables, number, turn.execution, ParentEnd.BY_ITSELF)
    return close_children(tables, number, turn.execution)[0]


def _start_next_execution(
    tables: MemoryTables, turn: Turn, number: InstanceNumber, following: NextExecution, *, release: bool
) -> None:
    """What answers the old execution ends with it; the rest of the inbox is carried over."""
    row = tables.instances[number]
    exit_all_responses(tables, number)
    for message in [each for each in tables.inbox.values() if each.row.number == number]:
        if isinstance(decoded(message.row.event), ANSWERS):
            tables.inbox.remove(message.row.row)
        else:
            moved = msgspec.structs.replace(message.row, execution=turn.execution + 1)
            tables.inbox.change(message.row.row, row=moved)
    clear_timers(tables, number)
    cancel_attempts(tables, number)
    tables.instances.change(
        number,
        execution=turn.execution + 1,
        turn=0,
        fence=Fence(row.fence + 1),
        input=stored_input(tables, number, following.input),
        owner=None if release else turn.owner,
        claimable_at_ms=0 if release else None,
        version=None if following.is_on_newest else row.version,
    )
    tables.put_in_inbox(number, turn.execution + 1, following.started)


# ---------------------------------------------------------------- children


def _write_children(tables: MemoryTables, effects: TurnEffects, number: InstanceNumber, execution: int) -> Ended:
    """Create the children of a turn, and cancel those that it names. Returns the children that ended at once."""
    ended: list[EndedInstance] = []
    for new in effects.children:
        ended += _create_child(tables, new, tables.instances[number], execution)
    for cancelled in effects.children_cancelled:
        child = _child(tables, number, execution, cancelled.child)
        request = CancelRequested(time_ms=0, reason=cancelled.reason, descendants=cancelled.descendants)
        if child is not None and cancel(tables, child, request).ends_at_once:
            ended.append(EndedInstance(child.id, child.number, child.workflow, tables.instances[child.number].state))
            ended += close_children(tables, child.number, child.execution)[0]
    return tuple(ended)


def _child(tables: MemoryTables, number: InstanceNumber, execution: int, step: int) -> Instance | None:
    children = (row for row in tables.instances.values() if row.is_child_of(number, execution))
    return next((row for row in children if row.parent is not None and row.parent.child == step), None)


def _create_child(tables: MemoryTables, new: NewChild, parent: Instance, execution: int) -> Ended:
    """The child with its start in its inbox; or, if the id is taken, the refusal in the inbox of its parent (G11)."""
    require(_child(tables, parent.number, execution, new.child) is None, f"child {new.child} was started before")
    existing, now_ms = tables.current(new.id), tables.now_ms
    if existing is not None and not new.named and _may_take_id_of(existing, parent):
        tables.instances.change(existing.number, superseded_at_ms=now_ms)
        existing = None
    ended: Ended = ()
    if existing is not None and new.named:
        verdict = decide_child_start(existing.state, new.policy)
        if verdict is StartVerdict.REPLACE and not _is_above(tables, existing.number, parent):
            ended = terminate(tables, existing, REPLACED)
            verdict = StartVerdict.CREATE
        if verdict is StartVerdict.CREATE:
            tables.instances.change(existing.number, superseded_at_ms=now_ms)
            existing = None
    if existing is not None:
        reason = f"the id {new.id!r} is taken, so no child of {new.workflow!r} was started with it"
        tell_parent(tables, parent.number, execution, ChildRefused(time_ms=now_ms, child=new.child, reason=reason))
        return ()
    number = tables.next_number()
    row = Instance(
        number=number,
        id=new.id,
        workflow=new.workflow,
        version=new.version,
        state=InstanceState.REQUESTED,
        execution=1,
        turn=0,
        fence=Fence(0),
        owner=None,
        claimable_at_ms=0,
        stamp_ms=now_ms,
        input=stored_input(tables, number, new.input),
        input_hash=new.input_hash,
        outcome=None,
        blocked=None,
        created_at_ms=now_ms,
        closed_at_ms=None,
        parent=Parent(id=parent.id, number=parent.number, execution=execution, child=new.child),
        parent_close=new.parent_close,
    )
    tables.instances.insert(number, row)
    write_payloads(tables, number, list(new.payloads))
    tables.put_in_inbox(number, 1, new.started)
    if new.deadline is not None:
        set_deadline(tables, number, new.deadline)
    if new.named:
        tell_parent(tables, parent.number, execution, ChildStarted(time_ms=now_ms, child=new.child))
    return ended


def _is_above(tables: MemoryTables, number: InstanceNumber, below: Instance) -> bool:
    """Whether an instance is `below` itself or one of its ancestors."""
    current: Instance | None = below
    while current is not None and current.number != number:
        current = None if current.parent is None else tables.instances.get(current.parent.number)
    return current is not None


def _may_take_id_of(existing: Instance, parent: Instance) -> bool:
    """A derived id is free again if its instance has ended and was the child of an earlier instance of the parent."""
    other = existing.parent
    return not existing.is_open and other is not None and other.number != parent.number and other.id == parent.id


# ---------------------------------------------------------------- claims


def apply_claim_instances(tables: MemoryTables, claim: ClaimInstances) -> Outcome:
    """G1: each claim raises the fence."""
    rows = _blocked_candidates(tables, claim) if claim.blocked else _candidates(tables, claim)
    more = {"state": InstanceState.RUNNING, "blocked": None, "losses": 0} if claim.blocked else {}
    claimed = [
        tables.instances.change(row.number, owner=claim.owner, fence=Fence(row.fence + 1), claimable_at_ms=None, **more)
        for row in rows[: claim.limit]
    ]
    return ClaimedInstances(instances=[instance_record(row) for row in claimed])


def may_run(tables: MemoryTables, workflows: Sequence[str], versions: Sequence[CodeVersion], row: Instance) -> bool:
    """R8: whether a worker with this code may run an instance."""
    if row.workflow not in workflows:
        return False
    if row.version is None or (row.workflow, row.version) in versions:
        return True
    if any(name == row.workflow for name, _ in versions):
        return False
    saved = [flow.version for flow in tables.flows.values() if flow.name == row.workflow]
    return row.version in ("", *saved)


def _candidates(tables: MemoryTables, claim: ClaimInstances) -> list[Instance]:
    """Oldest first. Of instances that owners were lost with, a worker has one at a time, which comes first (G12)."""
    free = [
        row
        for row in tables.instances.values()
        if row.owner is None
        and row.claimable_at_ms is not None
        and row.claimable_at_ms <= tables.now_ms
        and may_run(tables, claim.workflows, claim.versions, row)
    ]
    has_suspect = any(row.losses >= SUSPECT_AFTER for row in tables.owned_instances(claim.owner))
    suspects = [] if has_suspect else [row for row in free if row.losses >= SUSPECT_AFTER][:1]
    others = [row for row in free if row.losses < SUSPECT_AFTER]
    return suspects + sorted(others, key=lambda row: row.claimable_at_ms or 0)


def _blocked_candidates(tables: MemoryTables, claim: ClaimInstances) -> list[Instance]:
    return [
        row
        for row in tables.instances.values()
        if row.state is InstanceState.BLOCKED
        and may_run(tables, claim.workflows, claim.versions, row)
        and (claim.build not in row.blocked_by if claim.build else row.losses < MAX_LOST_OWNERS)
    ]


def apply_release(tables: MemoryTables, release: Release) -> Outcome:
    is_mine = release_instance(tables, release.number, release.fence, release.owner)
    return Applied() if is_mine else Rejected(reason=MOVED_ON)


def apply_retry_blocked(tables: MemoryTables, member: RetryBlocked) -> Outcome:
    """G12: a BLOCKED instance is claimable again, for every build."""
    row = tables.current(member.id) if member.number is None else tables.instances.get(member.number)
    if row is None:
        return Rejected(reason=f"no instance has the id {member.id!r}")
    found = RetriedInstance(instance=instance_record(row))
    if found.was_blocked:
        tables.instances.change(
            row.number,
            state=InstanceState.RUNNING,
            blocked=None,
            blocked_by=frozenset(),
            losses=0,
            claimable_at_ms=0,
        )
    return found


def apply_block(tables: MemoryTables, block: Block) -> Outcome:
    """G12: an instance whose turn this build cannot take is parked. The same again changes nothing."""
    row = tables.instances.get(block.number)
    if row is None or row.fence != block.fence:
        return Rejected(reason=MOVED_ON)
    is_mine = row.owner == block.owner and row.state in CLAIMABLE_STATES
    if not is_mine and (row.state, row.blocked) != (InstanceState.BLOCKED, block.reason):
        return Rejected(reason=MOVED_ON)
    tables.instances.change(
        block.number,
        state=InstanceState.BLOCKED,
        blocked=block.reason,
        owner=None,
        claimable_at_ms=None,
        blocked_by=row.blocked_by | {block.build},
    )
    return Applied()


def apply_set_attributes(tables: MemoryTables, member: SetAttributes) -> Outcome:
    found = tables.current(member.id) if member.number is None else tables.instances.get(member.number)
    if found is None:
        return Rejected(reason=f"no instance has the id {member.id!r}")
    before = {name: row.value for (number, name), row in tables.attributes.items() if number == found.number}
    after = before | {change.name: change.value for change in member.changes if change.value is not None}
    for change in member.changes:
        if change.value is None:
            after.pop(change.name, None)
    if len(after) <= MOST_ATTRIBUTES:
        write_attributes(tables, found.number, member.changes)
        if found.closed_at_ms is None:
            event = AttributesChanged(time_ms=0, values={change.name: change.value for change in member.changes})
            put_message(tables, found, event, name=None)
            if found.may_begin(tables.now_ms):
                tables.wake(found.number)
    return ChangedAttributes(instance=instance_record(found), attributes=after)


def apply_watch(tables: MemoryTables, watch: Watch) -> Outcome:
    """Wake-ups of this store go to all processes, so the name is not needed."""
    row = tables.instances.get(watch.number)
    return Applied() if row is not None and row.is_open else Rejected(reason=f"instance {watch.number} has ended")


def apply_save_flow(tables: MemoryTables, flow: SaveFlow) -> Outcome:
    if flow.hash not in tables.flows:
        row = Flow(name=flow.name, version=flow.version, saved_at_ms=tables.now_ms, definition=flow.definition)
        tables.flows.put(flow.hash, row)
    return Applied()


# ---------------------------------------------------------------- messages


def apply_deliver(tables: MemoryTables, message: Deliver) -> Outcome:
    """Take a message for an instance, or say why not (G5, G6, G7)."""
    found = tables.current(message.id) if message.number is None else tables.instances.get(message.number)
    if found is None:
        return Rejected(reason=f"no instance has the id {message.id!r}")
    event = message.event
    if isinstance(event, EventReceived):
        verdict = _deliver_event(tables, found, event, message.message_id)
        target = TargetInstance(number=found.number, state=found.state, execution=found.execution)
        return Delivered(instance=target, verdict=verdict)
    if isinstance(event, UpdateAccepted):
        return Delivered(instance=instance_record(found), verdict=_deliver_update(tables, found, event))
    verdict, ends_at_once = cancel(tables, found, event)
    ended = close_children(tables, found.number, found.execution)[0] if ends_at_once else ()
    return Delivered(instance=instance_record(found), verdict=verdict, ended=ended)


def _deliver_event(tables: MemoryTables, found: Instance, event: EventReceived, message_id: str) -> EventVerdict:
    number = found.number
    verdict = decide_event(
        found.state,
        seen_before=bool(message_id) and (number, message_id) in tables.received,
        is_awaited=event.name in found.waits,
        kept=found.events_waiting,
        policy=found.mailbox.policy,
        limit=found.mailbox.limit,
    )
    if verdict in (EventVerdict.DELIVER, EventVerdict.KEEP):
        if message_id:
            tables.received.insert((number, message_id), Received())
        tables.instances.change(number, events_waiting=found.events_waiting + 1)
        put_message(tables, found, event, event.name)
    if verdict is EventVerdict.DELIVER:
        tables.wake(number)
    return verdict


def _deliver_update(tables: MemoryTables, found: Instance, event: UpdateAccepted) -> EventVerdict:
    content = hashlib.sha256(b"%b\0%b" % (event.name.encode(), bytes(event.input.data))).digest()
    known = tables.updates.get((found.number, event.id))
    open_updates = sum(key[0] == found.number and row.answer is None for key, row in tables.updates.items())
    verdict = decide_update(
        found.state,
        known=None if known is None else known.state,
        is_same=known is None or known.content == content,
        open_updates=open_updates,
    )
    if verdict is EventVerdict.DELIVER:
        tables.updates.put((found.number, event.id), Update(state=UpdateState.ASKED, content=content))
        put_message(tables, found, event, name="")
        if found.may_begin(tables.now_ms):
            tables.wake(found.number)
    return verdict


# ---------------------------------------------------------------- queries


def apply_ask_query(tables: MemoryTables, ask: AskQuery) -> Outcome:
    if len(tables.queries) >= MAX_QUERIES or ask.query.id in tables.queries:
        return Rejected(reason=f"{MAX_QUERIES} queries wait for their answers already, or this one was sent before")
    tables.queries.put(ask.query.id, Query(query=ask.query, expires_at_ms=ask.expires_at_ms))
    return Applied()


def apply_claim_queries(tables: MemoryTables, claim: ClaimQueries) -> Outcome:
    """Queries for instances of the owner, and for those of its workflows that nobody owns and that have begun."""
    taken: list[QueryRow] = []
    for waiting in list(tables.queries.values()):
        instance = tables.instances.get(waiting.query.number)
        if waiting.taken_by is not None or waiting.expires_at_ms <= tables.now_ms or len(taken) >= claim.limit:
            continue
        if instance is None or instance.turn == 0 or instance.owner not in (None, claim.owner):
            continue
        if instance.owner == claim.owner or may_run(tables, claim.workflows, claim.versions, instance):
            taken.append(tables.queries.change(waiting.query.id, taken_by=claim.owner).query)
    return ClaimedQueries(queries=taken)


def apply_answer_query(tables: MemoryTables, answer: AnswerQuery) -> Outcome:
    waiting = tables.queries.get(answer.id)
    if waiting is None or waiting.taken_by != answer.owner or waiting.answer is not None:
        return Rejected(reason=f"no client waits for the answer to query {answer.id!r}")
    tables.queries.change(answer.id, answer=answer.answer)
    return Applied()


def apply_delete_queries(tables: MemoryTables, delete: DeleteQueries) -> Outcome:
    """A query that nobody waits for; without one, queries and rejections of updates that are kept no longer."""
    if delete.query_id is not None:
        return Applied(changed=int(tables.queries.remove(delete.query_id)))
    gone = tables.queries.remove_all(key for key, row in tables.queries.items() if row.expires_at_ms <= tables.now_ms)
    gone += tables.updates.remove_all(
        key
        for key, row in tables.updates.items()
        if row.expires_at_ms is not None and row.expires_at_ms <= tables.now_ms
    )
    return Applied(changed=gone)
