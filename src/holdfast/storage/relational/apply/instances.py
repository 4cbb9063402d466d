"""Apply members about instances: starts, claims, release, block, saved flows (G1-G3, G12)."""

import msgspec

from holdfast.core.admission import ExistingInstance, StartIdentity, StartVerdict, decide_start
from holdfast.core.checks import require
from holdfast.core.leases import MAX_LOST_OWNERS
from holdfast.core.lifecycle import InstanceState
from holdfast.storage.instance_endings import REPLACED
from holdfast.storage.members.instances import Block, ClaimInstances, Release, RetryBlocked, SaveFlow, Start, Watch
from holdfast.storage.members.outcomes import (
    APPLIED,
    ClaimedInstances,
    Delivered,
    EndedInstance,
    Outcome,
    Rejected,
    RetriedInstance,
    StartedInstance,
    applied_if_changed,
)
from holdfast.storage.records import Fence, InstanceNumber, InstanceRecord, LargePayload
from holdfast.storage.relational.apply.attributes import insert_attribute
from holdfast.storage.relational.apply.children import terminate_with_children
from holdfast.storage.relational.apply.contract_inserts import insert_trace
from holdfast.storage.relational.apply.messages import apply_deliver
from holdfast.storage.relational.apply.shared_writes import (
    input_column,
    insert_payloads,
    large_input,
    set_deadline,
)
from holdfast.storage.relational.apply.turns import write_turn
from holdfast.storage.relational.rows import instance_of
from holdfast.storage.relational.transaction import ConcurrentChange, Transaction
from holdfast.storage.versions import claim_keys, stored_version


def apply_release(transaction: Transaction, release: Release) -> Outcome:
    transaction.wakeups.instances.add(release.number)
    return applied_if_changed(
        transaction.update(transaction.sql.release_instance, release.number, release.fence, release.owner)
    )


def apply_start(transaction: Transaction, start: Start) -> Outcome:
    """G3: create an instance, or apply the policy to the one that has the id. A new id costs one statement."""
    large = large_input(start.input)
    number = _insert_instance(transaction, start, large)
    outcome = _start_again(transaction, start, large) if number is None else _begin(transaction, start, number, large)
    if start.trace is not None and isinstance(outcome, StartedInstance):
        insert_trace(transaction, start.trace, outcome.instance.number)
    if start.mail is None or not isinstance(outcome, StartedInstance) or (outcome.created and start.mail_taken):
        return outcome
    delivered = apply_deliver(transaction, start.mail)
    return msgspec.structs.replace(outcome, mail=delivered) if isinstance(delivered, Delivered) else outcome


def _begin(
    transaction: Transaction, start: Start, number: InstanceNumber, large: LargePayload | None
) -> StartedInstance:
    """Write the first turn of a new instance, or put its start into its inbox."""
    if large is not None:
        insert_payloads(transaction, number, (large,))
    insert_payloads(transaction, number, start.payloads)
    if start.start_at_ms is not None:
        transaction.update(transaction.sql.set_start_at, start.start_at_ms, number)
    if start.deadline is not None:
        set_deadline(transaction, number, start.deadline)
    for attribute in start.attributes:
        insert_attribute(transaction, number, attribute)
    if start.first is not None:
        write_turn(transaction, start.first, number)
    else:
        transaction.update(transaction.sql.insert_inbox, number, 1, transaction.now_ms, start.started)
        transaction.wakeups.instances.add(number)
    effects = start.first.effects if start.first else None
    if effects is None or not (effects.release or effects.next):
        return StartedInstance(instance=_created(start, number, large, transaction.now_ms), created=True)
    return StartedInstance(
        instance=instance_of(transaction.fetch(transaction.sql.find_instance, start.id)[0]), created=True
    )


def _start_again(transaction: Transaction, start: Start, large: LargePayload | None) -> Outcome:
    """The id is taken: apply the policy. The old instance is superseded in the transaction that creates the new one."""
    rows = transaction.fetch(transaction.sql.lock_instance_by_id, start.id)
    if not rows:
        raise ConcurrentChange(f"the id {start.id!r} was taken a moment ago, and is not any more")
    existing = instance_of(rows[0])
    verdict = decide_start(
        StartIdentity(start.workflow, start.input_hash),
        ExistingInstance(StartIdentity(existing.workflow, existing.input_hash), existing.state),
        start.policy,
    )
    ended: tuple[EndedInstance, ...] = ()
    match verdict:
        case StartVerdict.SAME:
            return StartedInstance(instance=existing, created=False)
        case StartVerdict.CONFLICT:
            return Rejected(reason=_conflict(start, existing.workflow))
        case StartVerdict.REPLACE:
            ended = terminate_with_children(transaction, existing, REPLACED)
        case StartVerdict.CREATE:
            pass
    transaction.update(transaction.sql.supersede_instance, transaction.now_ms, existing.number)
    number = _insert_instance(transaction, start, large)
    require(number is not None, f"the id {start.id!r} is still taken after instance {existing.number} gave it up")
    begun = _begin(transaction, start, InstanceNumber(number or 0), large)
    replaced = existing.number if verdict is StartVerdict.REPLACE else None
    return msgspec.structs.replace(begun, replaced=replaced, ended=ended)


def _conflict(start: Start, workflow: str) -> str:
    if workflow != start.workflow:
        return f"the id {start.id!r} is taken by an instance of {workflow!r}, not {start.workflow!r}"
    return f"the id {start.id!r} is taken by an instance of {workflow!r} with a different input"


def _insert_instance(transaction: Transaction, start: Start, large: LargePayload | None) -> InstanceNumber | None:
    first = start.first
    number = transaction.insert_instance(
        transaction.sql.start_instance,
        start.id,
        start.workflow,
        stored_version(start.version),
        InstanceState.RUNNING if first else InstanceState.REQUESTED,
        1 if first else 0,
        first.fence if first else 0,
        first.owner if first else None,
        None if first else start.start_at_ms or 0,
        first.stamp_ms if first else transaction.now_ms,
        input_column(start.input, large),
        start.input_hash,
        _created_at_ms(start, transaction.now_ms),
        first.key if first else start.key,
        start.watcher,
    )
    return None if number is None else InstanceNumber(number)


def _created_at_ms(start: Start, now_ms: int) -> int:
    """The time of the start. A first turn in the same commit began before this transaction."""
    return now_ms if start.first is None else min(start.first.stamp_ms, now_ms)


def _created(start: Start, number: InstanceNumber, large: LargePayload | None, now_ms: int) -> InstanceRecord:
    """The inserted row, as its first turn left it."""
    first = start.first
    closed = first.effects.close if first and first.effects else None
    return InstanceRecord(
        number=number,
        id=start.id,
        workflow=start.workflow,
        version=start.version,
        state=closed.state if closed else InstanceState.RUNNING if first else InstanceState.REQUESTED,
        execution=1,
        turn=1 if first else 0,
        fence=first.fence if first else Fence(0),
        owner=first.owner if first and closed is None else None,
        claimable_at_ms=None if first else start.start_at_ms or 0,
        stamp_ms=first.stamp_ms if first else now_ms,
        input=input_column(start.input, large),
        input_hash=start.input_hash,
        outcome=closed.outcome if closed else None,
        blocked=None,
        created_at_ms=_created_at_ms(start, now_ms),
        closed_at_ms=now_ms if closed else None,
        start_at_ms=start.start_at_ms,
    )


def apply_claim_instances(transaction: Transaction, claim: ClaimInstances) -> Outcome:
    keys = claim_keys(claim.workflows, claim.versions)
    if claim.blocked:
        rows = transaction.fetch(
            transaction.sql.claim_blocked, claim.owner, keys, claim.build, claim.limit, MAX_LOST_OWNERS
        )
    else:
        rows = transaction.fetch(transaction.sql.claim_instances, claim.owner, transaction.now_ms, keys, claim.limit)
    return ClaimedInstances(instances=[instance_of(row) for row in rows])


def apply_block(transaction: Transaction, block: Block) -> Outcome:
    transaction.wakeups.instances.add(block.number)
    return applied_if_changed(
        transaction.update(
            transaction.sql.block_instance, block.reason, block.build, block.number, block.fence, block.owner
        )
    )


def apply_retry_blocked(transaction: Transaction, member: RetryBlocked) -> Outcome:
    """G12: a worker that has the code tries the instance once more, and blocks it again if its turn still fails."""
    sql = transaction.sql
    by_id = (sql.lock_instance_by_id, member.id)
    rows = transaction.fetch(*(by_id if member.number is None else (sql.lock_instance, member.number)))
    if not rows:
        return Rejected(reason=f"no instance has the id {member.id!r}")
    found = RetriedInstance(instance=instance_of(rows[0]))
    if found.was_blocked:
        changed = transaction.update(sql.retry_blocked, found.instance.number)
        require(changed == 1, f"instance {found.instance.number} was not BLOCKED any more inside one transaction")
        transaction.wakeups.instances.add(found.instance.number)
    return found


def apply_watch(transaction: Transaction, watch: Watch) -> Outcome:
    """Write the name of a process that waits for an instance into the instance's row."""
    if transaction.update(transaction.sql.watch_instance, watch.watcher, watch.number):
        return APPLIED
    return Rejected(reason=f"instance {watch.number} has ended")


def apply_save_flow(transaction: Transaction, flow: SaveFlow) -> Outcome:
    transaction.execute(
        transaction.sql.save_flow, flow.hash, flow.name, flow.version, flow.definition, transaction.now_ms
    )
    return APPLIED
