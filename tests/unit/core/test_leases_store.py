"""The store's side of a lease: every case of a heartbeat, and the attempts of a lost worker (W1-W6)."""

import itertools

import pytest
from msgspec.structs import replace

from holdfast.core.leases import (
    DEFAULT_LEASE_MS,
    LONGEST_LEASE_MS,
    LOSS_EVENT,
    SHORTEST_LEASE_MS,
    WORKER_LEASE_MS,
    AttemptId,
    Heartbeat,
    Renewed,
    TokenMismatch,
    WorkerInactive,
    WorkerKey,
    WorkerRecord,
    WorkerState,
    granted_lease_ms,
    judge_heartbeat,
)
from holdfast.core.lifecycle import AttemptEvent, AttemptState, next_state
from holdfast.errors import LeaseError

K = WorkerKey("k1")
A, B = AttemptId("a"), AttemptId("b")


def active(token: int = 3, *bound: AttemptId) -> WorkerRecord:
    return WorkerRecord(K, WorkerState.ACTIVE, token, 10_000, frozenset(bound))


DEAD = replace(active(3, A), state=WorkerState.INACTIVE)


def test_W1_the_first_heartbeat_of_an_unknown_key_registers_it() -> None:
    record, reply = judge_heartbeat(None, Heartbeat(K, lease_ms=8_000, bind=(A,)), now_ms=500)
    assert record == WorkerRecord(K, WorkerState.ACTIVE, 1, 8_500, frozenset({A}))
    assert reply == Renewed(token=1, deadline_ms=8_500, lease_ms=8_000)


def test_W1_a_heartbeat_without_a_lease_gets_sixty_seconds_and_ours_ask_for_eight() -> None:
    assert granted_lease_ms(None) == DEFAULT_LEASE_MS == 60_000
    assert WORKER_LEASE_MS == 8_000
    assert granted_lease_ms(WORKER_LEASE_MS) == WORKER_LEASE_MS


def test_W1_leases_are_clamped_and_nothing_at_or_below_zero_is_granted() -> None:
    assert granted_lease_ms(1) == SHORTEST_LEASE_MS == 1_000
    assert granted_lease_ms(10**12) == LONGEST_LEASE_MS
    for asked in (0, -1):
        with pytest.raises(LeaseError, match=f"not {asked} ms"):
            judge_heartbeat(None, Heartbeat(K, lease_ms=asked), now_ms=0)


TOKENS = [None, 3, 2, 4, 0, -3, "3", "x", ""]


@pytest.mark.parametrize(("record", "token"), list(itertools.product([None, active(), DEAD], TOKENS)))
def test_W2_W3_W4_W5_every_case_of_state_and_token(record: WorkerRecord | None, token: int | str | None) -> None:
    kept, reply = judge_heartbeat(record, Heartbeat(K, token, bind=(B,)), now_ms=1_000)
    if record is None and token is None:
        assert isinstance(reply, Renewed)  # W1
    elif record is None or record.state is WorkerState.INACTIVE:
        assert (kept, reply) == (record, WorkerInactive())  # W5, and W2: before any look at the token
    elif token == 3:
        assert isinstance(reply, Renewed)  # W3
        assert (reply.token, reply.deadline_ms) == (4, 1_000 + DEFAULT_LEASE_MS)
    else:
        assert (kept, reply) == (record, TokenMismatch(3))  # W4


def test_W3_deltas_bind_then_unbind_and_are_idempotent() -> None:
    record, _ = judge_heartbeat(active(3, A), Heartbeat(K, 3, bind=(A, B, B), unbind=(B,)), now_ms=0)
    assert record is not None
    assert record.bound == {A}
    record, _ = judge_heartbeat(record, Heartbeat(K, 4, bind=(A,), unbind=(B, B)), now_ms=0)
    assert record is not None
    assert record.bound == {A}


def test_W3_what_somebody_else_owns_is_rejected_item_by_item() -> None:
    record, reply = judge_heartbeat(active(3, A), Heartbeat(K, 3, bind=(A, B)), now_ms=0, owned_elsewhere={A})
    assert record is not None
    assert record.bound == {B}
    assert isinstance(reply, Renewed)
    assert reply.rejected == (A,)


def test_W3_what_was_bound_and_has_been_taken_by_somebody_else_is_rejected_too() -> None:
    record, reply = judge_heartbeat(active(3, A, B), Heartbeat(K, 3, unbind=(B,)), now_ms=0, owned_elsewhere={A})
    assert record is not None
    assert record.bound == frozenset()
    assert isinstance(reply, Renewed)
    assert reply.rejected == (A,)


def test_W2_a_dead_or_mistaken_worker_is_told_so_whatever_lease_it_asks_for() -> None:
    assert judge_heartbeat(DEAD, Heartbeat(K, 3, lease_ms=0), now_ms=0) == (DEAD, WorkerInactive())
    assert judge_heartbeat(active(), Heartbeat(K, 9, lease_ms=-1), now_ms=0) == (active(), TokenMismatch(3))
    in_words = WorkerRecord(K, "INACTIVE", 3, 10_000)  # type: ignore[arg-type]  # as a database driver gives it
    assert judge_heartbeat(in_words, Heartbeat(K, 3), now_ms=0) == (in_words, WorkerInactive())
    with pytest.raises(LeaseError, match="compared with the record of k1"):
        judge_heartbeat(active(), Heartbeat(WorkerKey("k2"), 3), now_ms=0)
    assert judge_heartbeat(active(1), Heartbeat(K, True), now_ms=0) == (active(1), TokenMismatch(1))


def test_W6_the_loss_of_a_worker_releases_claims_and_ends_what_ran() -> None:
    after = {state: next_state(state, event) for state, event in LOSS_EVENT.items()}
    assert after == {
        AttemptState.QUEUED: AttemptState.READY,
        AttemptState.PREPARING: AttemptState.READY,
        AttemptState.RUNNING: AttemptState.TIMED_OUT,
        AttemptState.CANCELLED_RUNNING: AttemptState.CANCELLED,
    }
    assert all(isinstance(event, AttemptEvent) for event in LOSS_EVENT.values())


def test_W5_a_dead_worker_never_comes_back() -> None:
    assert judge_heartbeat(DEAD, Heartbeat(K, 3), now_ms=0) == (DEAD, WorkerInactive())
