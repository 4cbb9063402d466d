"""How the engine judges reports about external attempts, and their deadlines (A1, A2, A5, A6, A7, L10)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.report_cells import CELLS, A, R, W

from holdfast.core.activity_events import (
    EVENT_OF,
    TOO_EARLY,
    CheckedReport,
    ExternalDeadline,
    OfferedAttempt,
    ReportKind,
    ReportState,
    ReportVerdict,
    external_deadline,
    is_early,
    judge,
)
from holdfast.core.activity_options import SILENCE_AFTER_CANCEL_MS, ActivityOptions, ExternalOptions
from holdfast.core.lifecycle import ATTEMPT_FINAL, ATTEMPT_TABLE, AttemptEvent, AttemptState

NOW_MS = 1_000
OFFERED = [state for state in AttemptState if state is not AttemptState.REQUESTED]
OPEN = [state for state in OFFERED if state not in ATTEMPT_FINAL]
EARLY = (AttemptState.READY, AttemptState.QUEUED, AttemptState.PREPARING)


def offered(state: AttemptState = AttemptState.RUNNING, **more: Any) -> OfferedAttempt:
    fields: dict[str, Any] = {
        "state": state,
        "is_withdrawn": False,
        "claim": None,
        "expires_at_ms": None,
        "available_at_ms": 0,
        "takes_responses": True,
        "handled_sequence": 0,
    }
    return OfferedAttempt(**(fields | more))


def report(kind: ReportKind | None = ReportKind.COMPLETED, **more: Any) -> CheckedReport:
    return CheckedReport(row=1, kind=kind, inserted_at_ms=more.pop("inserted_at_ms", NOW_MS), **more)


def verdict(attempt: OfferedAttempt, one: CheckedReport) -> ReportVerdict:
    return judge(attempt, one, now_ms=NOW_MS)


@pytest.mark.parametrize("state", OFFERED)
@pytest.mark.parametrize("kind", ReportKind)
def test_A1_every_cell_of_the_table(state: AttemptState, kind: ReportKind) -> None:
    found = verdict(offered(state), report(kind))
    assert found.state is CELLS[state, kind]
    assert (found.reason is None) == (found.state is A)
    if found.state is W:
        assert found.reason == TOO_EARLY
        assert is_early(state, found)


@pytest.mark.parametrize("state", OPEN)
@pytest.mark.parametrize("kind", EVENT_OF)
def test_A1_an_applied_change_is_an_edge_of_the_one_table(state: AttemptState, kind: ReportKind) -> None:
    found = verdict(offered(state), report(kind))
    assert (found.state is A) == (EVENT_OF[kind] in ATTEMPT_TABLE[state]) or found.state is W


@pytest.mark.parametrize("kind", ReportKind)
@pytest.mark.parametrize("state", OFFERED)
def test_C4_a_withdrawn_offer_takes_notes_only(state: AttemptState, kind: ReportKind) -> None:
    found = verdict(offered(state, is_withdrawn=True), report(kind))
    assert found.state is (A if kind is ReportKind.NOTE else R)
    assert kind is ReportKind.NOTE or "was released" in (found.reason or "")


@pytest.mark.parametrize("given_claim", [None, "other", ""])
@pytest.mark.parametrize("state", [state for state in OPEN if state is not AttemptState.READY])
@pytest.mark.parametrize("kind", ReportKind)
def test_A2_events_under_another_claim_are_refused(
    state: AttemptState, kind: ReportKind, given_claim: str | None
) -> None:
    attempt = offered(state, claim="mine")
    found = verdict(attempt, report(kind, claim=given_claim))
    if kind in (ReportKind.NOTE, ReportKind.CANCEL):
        assert found.state is A
    else:
        assert found.state is R
        assert "claim" in (found.reason or "")
    assert verdict(attempt, report(kind, claim="mine")) == verdict(offered(state), report(kind))


@pytest.mark.parametrize("kind", ReportKind)
@pytest.mark.parametrize("state", OPEN)
def test_A2_without_a_stored_claim_claims_are_ignored(state: AttemptState, kind: ReportKind) -> None:
    assert verdict(offered(state), report(kind, claim="x")) == verdict(offered(state), report(kind))


@pytest.mark.parametrize("kind", ReportKind)
def test_A2_nobody_has_a_claim_in_ready(kind: ReportKind) -> None:
    ready = offered(AttemptState.READY, claim="old")
    assert verdict(ready, report(kind, claim="new")) == verdict(offered(AttemptState.READY), report(kind))


@pytest.mark.parametrize(
    ("sequence", "handled", "state"),
    [(1, 0, A), (2, 0, W), (1, 1, ReportState.DUPLICATE), (2, 1, A), (0, 0, R), (-5, 0, R), (2**62, 3, W)],
)
def test_C2_a_sequence_waits_for_the_ones_before_it(sequence: int, handled: int, state: ReportState) -> None:
    attempt = offered(handled_sequence=handled)
    for kind in (ReportKind.HEARTBEAT, ReportKind.NOTE, ReportKind.COMPLETED):
        found = verdict(attempt, report(kind, sequence=sequence))
        assert found.state is state
        if state is W:
            assert f"sequence {handled + 1}" in (found.reason or "")
            assert not is_early(attempt.state, found)


def test_C2_a_faulty_row_waits_for_its_turn_and_is_refused_then() -> None:
    faulty = report(fault="it is not valid JSON", sequence=2)
    assert verdict(offered(), faulty).state is W
    assert verdict(offered(handled_sequence=1), faulty) == ReportVerdict(R, "it is not valid JSON")
    unknown = report(None, fault="the transition is unknown")
    assert verdict(offered(), unknown).state is R
    assert verdict(offered(), report(None)).state is R
    note = report(ReportKind.NOTE, fault="it is too long")
    assert verdict(offered(AttemptState.COMPLETED), note) == ReportVerdict(R, "it is too long")


@pytest.mark.parametrize("kind", ReportKind)
@pytest.mark.parametrize("state", EARLY)
def test_L10_a_row_that_waits_for_running_holds_back_results_only(state: AttemptState, kind: ReportKind) -> None:
    held_back = verdict(offered(state, holds_back=True), report(kind))
    if kind in (ReportKind.RESPONSE, ReportKind.COMPLETED, ReportKind.FAILED):
        assert held_back == ReportVerdict(W, TOO_EARLY)
    else:
        assert held_back == verdict(offered(state), report(kind))


def test_L15_a_response_needs_a_stream() -> None:
    for state in OPEN:
        found = verdict(offered(state, takes_responses=False), report(ReportKind.RESPONSE))
        assert found.state is R
        assert "AsyncIterator" in (found.reason or "")


@pytest.mark.parametrize("kind", ReportKind)
def test_A5_a_row_inserted_after_a_deadline_is_refused(kind: ReportKind) -> None:
    attempt = offered(expires_at_ms=500)
    assert verdict(attempt, report(kind, inserted_at_ms=500)) == verdict(offered(), report(kind))
    late = verdict(attempt, report(kind, inserted_at_ms=501))
    if kind is ReportKind.NOTE:
        assert late.state is A
    else:
        assert late.state is R
        assert "after a deadline" in (late.reason or "")


def test_A5_a_clock_of_a_client_that_is_ahead_is_not_believed() -> None:
    assert verdict(offered(expires_at_ms=NOW_MS), report(inserted_at_ms=2**60)).state is A


@pytest.mark.parametrize("kind", [ReportKind.QUEUED, ReportKind.PREPARING, ReportKind.RUNNING, ReportKind.CANCEL])
def test_G13_a_retry_is_not_claimed_before_its_time(kind: ReportKind) -> None:
    attempt = offered(AttemptState.READY, available_at_ms=NOW_MS + 1)
    assert verdict(attempt, report(kind)).state is (A if kind is ReportKind.CANCEL else R)
    assert verdict(offered(AttemptState.READY, available_at_ms=NOW_MS), report(kind)).state is A


def deadline(state: AttemptState, options: ActivityOptions, **more: Any) -> ExternalDeadline | None:
    times: dict[str, Any] = {"scheduled_at_ms": 100, "available_at_ms": 200, "started_at_ms": None, "heard_at_ms": None}
    return external_deadline(options, state, **(times | more))


def options(**more: Any) -> ActivityOptions:
    return ActivityOptions(external=ExternalOptions(claim_timeout_ms=300), **more)


def test_A5_each_deadline_of_an_attempt_before_it_runs() -> None:
    ready = AttemptState.READY
    assert deadline(ready, options()) is None
    assert deadline(ready, options(heartbeat_ms=5, start_to_close_ms=6)) is None
    assert deadline(ready, options(schedule_to_start_ms=7)) == ExternalDeadline(207, AttemptEvent.EXPIRE)
    assert deadline(ready, options(schedule_to_close_ms=8)) == ExternalDeadline(108, AttemptEvent.EXPIRE)
    for claimed in (AttemptState.QUEUED, AttemptState.PREPARING):
        found = deadline(claimed, options(heartbeat_ms=1, start_to_close_ms=1), heard_at_ms=400)
        assert found == ExternalDeadline(700, AttemptEvent.RELEASE)
        found = deadline(claimed, options(schedule_to_close_ms=600), heard_at_ms=400)
        assert found == ExternalDeadline(700, AttemptEvent.EXPIRE), "of two at one time, the one that ends it"
        found = deadline(claimed, options(schedule_to_close_ms=601), heard_at_ms=400)
        assert found == ExternalDeadline(700, AttemptEvent.RELEASE)


def test_A5_each_deadline_of_an_attempt_that_runs() -> None:
    running = {"started_at_ms": 500, "heard_at_ms": 600}
    state = AttemptState.RUNNING
    assert deadline(state, options(heartbeat_ms=50), **running) == ExternalDeadline(650, AttemptEvent.EXPIRE)
    assert deadline(state, options(start_to_close_ms=50), **running) == ExternalDeadline(550, AttemptEvent.EXPIRE)
    assert deadline(state, options(schedule_to_close_ms=50), **running) == ExternalDeadline(150, AttemptEvent.EXPIRE)
    found = deadline(state, options(heartbeat_ms=50, schedule_to_start_ms=1), **running)
    assert found == ExternalDeadline(650, AttemptEvent.EXPIRE), "it has started"


def test_A6_silence_after_a_cancel_counts_as_stopped() -> None:
    state = AttemptState.CANCELLED_RUNNING
    running = {"started_at_ms": 500, "heard_at_ms": 600}
    found = deadline(state, options(heartbeat_ms=50), **running)
    assert found == ExternalDeadline(650, AttemptEvent.STOPPED)
    found = deadline(state, options(start_to_close_ms=10**6), **running)
    assert found == ExternalDeadline(600 + SILENCE_AFTER_CANCEL_MS, AttemptEvent.STOPPED)
    found = deadline(state, options(heartbeat_ms=50, start_to_close_ms=150), **running)
    assert found == ExternalDeadline(650, AttemptEvent.EXPIRE), "of two at one time, the time-out"
    found = deadline(state, options(heartbeat_ms=50), silent_until_ms=700, **running)
    assert found == ExternalDeadline(700, AttemptEvent.STOPPED), "silence is counted from the cancel"
    found = deadline(state, options(heartbeat_ms=50, start_to_close_ms=199), silent_until_ms=700, **running)
    assert found == ExternalDeadline(699, AttemptEvent.EXPIRE), "start-to-close still gives TIMED_OUT"
    found = deadline(state, options(heartbeat_ms=50, start_to_close_ms=200), silent_until_ms=700, **running)
    assert found == ExternalDeadline(700, AttemptEvent.EXPIRE)


durations = st.none() | st.integers(1, 10_000)
times = st.integers(0, 10_000)


@given(
    state=st.sampled_from(OPEN),
    limits=st.tuples(durations, durations, durations, durations),
    at=st.tuples(times, times, times, times),
    later=st.integers(0, 5_000),
)
def test_A5_a_report_never_brings_a_deadline_nearer(
    state: AttemptState, limits: tuple[int | None, ...], at: tuple[int, ...], later: int
) -> None:
    start, close, whole, beat = limits
    given_options = options(
        schedule_to_start_ms=start, start_to_close_ms=close, schedule_to_close_ms=whole, heartbeat_ms=beat
    )
    scheduled, available, started, heard = at
    moments = {"scheduled_at_ms": scheduled, "available_at_ms": available, "started_at_ms": started}
    first = deadline(state, given_options, heard_at_ms=heard, **moments)
    second = deadline(state, given_options, heard_at_ms=heard + later, **moments)
    if first is None or second is None:
        assert first == second
    else:
        assert first.at_ms <= second.at_ms <= first.at_ms + later
    if second is not None and second.event is not AttemptEvent.EXPIRE:
        assert second.event is (
            AttemptEvent.STOPPED if state is AttemptState.CANCELLED_RUNNING else AttemptEvent.RELEASE
        )


reports = st.builds(
    CheckedReport,
    row=st.just(1),
    kind=st.none() | st.sampled_from(ReportKind),
    claim=st.sampled_from([None, "", "a", "b"]),
    sequence=st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(0, 4),
    inserted_at_ms=st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2 * NOW_MS),
    fault=st.none() | st.just("a fault"),
)
attempts = st.builds(
    OfferedAttempt,
    state=st.sampled_from(OFFERED),
    is_withdrawn=st.booleans(),
    claim=st.sampled_from([None, "a", "b"]),
    expires_at_ms=st.none() | st.integers(0, 2 * NOW_MS),
    available_at_ms=st.integers(0, 2 * NOW_MS),
    takes_responses=st.booleans(),
    handled_sequence=st.integers(0, 3),
    holds_back=st.booleans(),
)


@given(attempts, reports)
def test_C2_every_row_gets_a_verdict_with_a_sentence(attempt: OfferedAttempt, one: CheckedReport) -> None:
    found = verdict(attempt, one)
    assert found.state is not ReportState.NEW
    assert (found.reason is None) == (found.state is A)
    is_over = attempt.is_withdrawn or attempt.state in ATTEMPT_FINAL
    if is_over and one.kind is not ReportKind.NOTE:
        assert found.state is R
    if found.state is A:
        assert one.fault is None
        assert one.kind is not None
        if one.kind in EVENT_OF and not is_over:
            assert EVENT_OF[one.kind] in ATTEMPT_TABLE[attempt.state]


@pytest.mark.parametrize(
    "ended", [offered(AttemptState.COMPLETED, handled_sequence=3), offered(is_withdrawn=True, handled_sequence=3)]
)
def test_A7_a_note_under_a_handled_sequence_is_a_duplicate_after_the_end(ended: OfferedAttempt) -> None:
    for sequence in (1, 3):
        assert verdict(ended, report(ReportKind.NOTE, sequence=sequence)).state is ReportState.DUPLICATE
    for other in (None, 4, 9):
        assert verdict(ended, report(ReportKind.NOTE, sequence=other)).state is A
