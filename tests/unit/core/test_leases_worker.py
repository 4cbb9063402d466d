"""The worker's side of its lease, alone and against the store over a network that loses replies (W3-W5, W7, W9)."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from holdfast.core.leases import (
    AttemptId,
    LeaseAction,
    LeaseState,
    Renewed,
    TokenMismatch,
    WorkerInactive,
    WorkerKey,
    WorkerRecord,
    WorkerState,
    apply_reply,
    bind,
    judge_heartbeat,
    next_heartbeat,
    note_lost_reply,
    unbind,
)
from holdfast.errors import LeaseError

K = WorkerKey("k1")
A, B = AttemptId("a"), AttemptId("b")
NEW = LeaseState(K, lease_ms=8_000)


def may_act(client: LeaseState, *, now_ms: int) -> bool:
    """W7: whether the lease has not run out by the worker's own clock."""
    return client.fenced_at_ms is not None and now_ms < client.fenced_at_ms


def test_W9_a_worker_sends_one_heartbeat_at_a_time() -> None:
    waiting, _ = next_heartbeat(NEW, now_ms=0)
    with pytest.raises(LeaseError, match="one at a time"):
        next_heartbeat(waiting, now_ms=1)
    for without_one in (lambda: apply_reply(NEW, WorkerInactive()), lambda: note_lost_reply(NEW)):
        with pytest.raises(LeaseError, match="no heartbeat in flight"):
            without_one()


def test_W4_W9_a_lost_reply_costs_one_mismatch_and_nothing_else() -> None:
    client, beat = next_heartbeat(bind(NEW, A), now_ms=0)
    record, _ = judge_heartbeat(None, beat, now_ms=0)
    client = note_lost_reply(client)
    client, beat = next_heartbeat(client, now_ms=2_000)
    assert beat.bind == (A,), "the delta is kept"
    record, reply = judge_heartbeat(record, beat, now_ms=2_000)
    assert reply == TokenMismatch(1)
    client, action = apply_reply(client, reply)
    assert action is LeaseAction.GO_ON
    client, beat = next_heartbeat(client, now_ms=2_001)
    record, reply = judge_heartbeat(record, beat, now_ms=2_001)
    client, action = apply_reply(client, reply)
    assert isinstance(reply, Renewed)
    assert action is LeaseAction.GO_ON
    assert client.store_surely_has == client.store_possibly_has == {A}


@pytest.mark.parametrize("lost", [False, True])
def test_W4_a_mismatch_that_no_lost_reply_explains_means_a_new_key(lost: bool) -> None:
    client = LeaseState(K, lease_ms=8_000, token=5, reply_was_lost=lost)
    client, _ = next_heartbeat(client, now_ms=0)
    assert apply_reply(client, TokenMismatch(6))[1] is (LeaseAction.GO_ON if lost else LeaseAction.TAKE_NEW_KEY)
    assert apply_reply(client, TokenMismatch(7))[1] is LeaseAction.TAKE_NEW_KEY
    assert apply_reply(client, TokenMismatch(4))[1] is LeaseAction.TAKE_NEW_KEY


def test_W5_an_inactive_worker_takes_a_new_key() -> None:
    client, _ = next_heartbeat(NEW, now_ms=0)
    assert apply_reply(client, WorkerInactive())[1] is LeaseAction.TAKE_NEW_KEY


def test_W3_rejected_attempts_are_given_up() -> None:
    client, _ = next_heartbeat(bind(bind(NEW, A), B), now_ms=0)
    client, _ = apply_reply(client, Renewed(1, 8_000, 8_000, rejected=(A,)))
    assert client.held == client.store_surely_has == {B}


def test_W7_a_worker_fences_itself_from_the_sending_of_its_last_accepted_heartbeat() -> None:
    assert not may_act(NEW, now_ms=0)
    client, _ = next_heartbeat(NEW, now_ms=1_000)
    client, _ = apply_reply(client, Renewed(1, 99_999, lease_ms=8_000))
    assert may_act(client, now_ms=8_999)
    assert not may_act(client, now_ms=9_000)
    client, _ = next_heartbeat(client, now_ms=5_000)
    assert not may_act(note_lost_reply(client), now_ms=9_000), "a beat without a reply renews nothing"


def test_W7_the_granted_lease_counts_and_not_the_one_that_was_asked_for() -> None:
    client, _ = next_heartbeat(LeaseState(K, lease_ms=60_000), now_ms=0)
    client, _ = apply_reply(client, Renewed(1, 99_999, lease_ms=5_000))
    assert not may_act(client, now_ms=5_000)


@pytest.mark.parametrize("reply", [Renewed(6, 0, 8_000), TokenMismatch(6)])
def test_W4_a_lost_reply_explains_one_mismatch_and_no_second(reply: Renewed | TokenMismatch) -> None:
    client = LeaseState(K, lease_ms=8_000, token=5, reply_was_lost=True)
    client, _ = next_heartbeat(client, now_ms=0)
    client, _ = apply_reply(client, reply)
    client, _ = next_heartbeat(client, now_ms=1)
    assert apply_reply(client, TokenMismatch(7))[1] is LeaseAction.TAKE_NEW_KEY


ATTEMPTS = st.sampled_from([AttemptId(name) for name in "abcd"])


class WorkerAndStore(RuleBasedStateMachine):
    """A worker and the store, joined by a network that delivers, loses the beat, or loses the reply.

    The store's clock runs no faster than the worker's in a lease (both count the same milliseconds here), the store
    expires the worker whenever it may, and a stranger may leave in its name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.client = NEW
        self.record: WorkerRecord | None = None
        self.retired = False

    @rule(passed=st.integers(1, 5_000))
    def time_passes(self, passed: int) -> None:
        self.now_ms += passed

    @rule(attempt=ATTEMPTS)
    def take(self, attempt: AttemptId) -> None:
        self.client = bind(self.client, attempt)

    @rule(attempt=ATTEMPTS)
    def finish(self, attempt: AttemptId) -> None:
        self.client = unbind(self.client, attempt)

    @rule(fate=st.sampled_from(["answered", "answered", "beat lost", "reply lost"]), slow=st.integers(0, 3_000))
    def beat(self, fate: str, slow: int) -> None:
        if self.retired:
            return
        self.client, beat = next_heartbeat(self.client, now_ms=self.now_ms)
        self.now_ms += slow
        if fate == "beat lost":
            self.client = note_lost_reply(self.client)
            return
        before = self.record
        self.record, reply = judge_heartbeat(self.record, beat, now_ms=self.now_ms)
        if not isinstance(reply, Renewed):
            assert self.record == before, "a refusal changes nothing"
        if fate == "reply lost":
            self.client = note_lost_reply(self.client)
            return
        self.client, action = apply_reply(self.client, reply)
        if isinstance(reply, Renewed):
            assert self.record is not None
            assert self.record.bound == self.client.held, "after an answer both sides agree"
        dead = self.record is None or self.record.state is WorkerState.INACTIVE
        assert (action is LeaseAction.TAKE_NEW_KEY) == dead, "nothing but death costs the key"
        self.retired = action is LeaseAction.TAKE_NEW_KEY

    @rule()
    def the_store_looks_for_expired_leases(self) -> None:
        if self.record is not None and self.now_ms >= self.record.deadline_ms:
            self.record = replace(self.record, state=WorkerState.INACTIVE)

    @rule()
    def seen_dead_on_its_host(self) -> None:
        if self.record is not None and not may_act(self.client, now_ms=self.now_ms):
            self.record = replace(self.record, state=WorkerState.INACTIVE)

    @invariant()
    def a_worker_that_may_act_is_alive_for_the_store(self) -> None:
        if may_act(self.client, now_ms=self.now_ms):
            assert self.record is not None
            assert self.record.state is WorkerState.ACTIVE
            assert self.now_ms < self.record.deadline_ms

    @invariant()
    def the_client_knows_the_bounds_of_what_the_store_has(self) -> None:
        if self.record is not None and self.record.state is WorkerState.ACTIVE:
            assert self.client.store_surely_has <= self.record.bound <= self.client.store_possibly_has


TestWorkerAndStore = WorkerAndStore.TestCase
