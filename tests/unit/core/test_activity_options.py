"""Retries are decided with the failure (G13); losses are counted apart (A10)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.activity_options import (
    LONGEST_DELAY_MS,
    NoRetry,
    RetryLater,
    RetryPolicy,
    after_failure,
    after_loss,
    delay_ms,
)
from holdfast.errors import RetryPolicyError

PLAIN = RetryPolicy(attempts=4, initial_ms=1_000, backoff=2.0, maximum_ms=3_000, jitter=False)


def failed(
    failures: int,
    policy: RetryPolicy = PLAIN,
    *,
    types: tuple[str, ...] = ("KeyError", "Exception"),
    left_ms: int | None = None,
    asked_delay_ms: int | None = None,
) -> RetryLater | NoRetry:
    return after_failure(
        policy,
        failures=failures,
        error_types=types,
        random_number=0.5,
        left_ms=left_ms,
        asked_delay_ms=asked_delay_ms,
    )


def test_G13_delays_grow_to_the_maximum_and_the_last_failure_gives_up() -> None:
    assert [failed(count) for count in (1, 2, 3)] == [RetryLater(1_000), RetryLater(2_000), RetryLater(3_000)]
    assert failed(4) == NoRetry("all 4 attempts failed")
    assert failed(1, RetryPolicy(attempts=1)) == NoRetry("it was the only attempt")
    assert failed(10**6, RetryPolicy(attempts=None, jitter=False)) == RetryLater(60_000)


def test_G13_types_that_are_not_retried_give_up_at_once_also_by_a_base_class() -> None:
    policy = RetryPolicy(non_retryable=frozenset({"LookupError"}))
    assert failed(1, policy, types=("KeyError", "LookupError")) == NoRetry(
        "LookupError is not retried", is_exhausted=False
    )
    assert isinstance(failed(1, policy, types=("OSError",)), RetryLater)


def test_G13_an_attempt_that_would_begin_after_schedule_to_close_is_not_made() -> None:
    assert failed(1, left_ms=1_001) == RetryLater(1_000)
    assert failed(1, left_ms=1_000) == NoRetry("the next attempt would begin after schedule-to-close")


def test_G13_a_delay_that_the_failure_asks_for_replaces_the_policys() -> None:
    assert failed(1, asked_delay_ms=77) == RetryLater(77)
    assert failed(1, asked_delay_ms=-5) == RetryLater(0)
    assert failed(1, asked_delay_ms=10**18) == RetryLater(LONGEST_DELAY_MS)


def test_G13_without_an_initial_delay_there_never_is_one() -> None:
    eager = RetryPolicy(attempts=None, initial_ms=0)
    assert {delay_ms(eager, failures, 0.5) for failures in (1, 2, 1_025, 10**6)} == {0}


def test_G13_jitter_spreads_delays_from_half_of_them_up() -> None:
    policy = RetryPolicy(initial_ms=1_001, jitter=True)
    assert [delay_ms(policy, 1, number) for number in (0.0, 0.5, 0.999)] == [500, 751, 1_000]
    assert RetryPolicy().attempts == 5


@pytest.mark.parametrize(("failures", "random_number"), [(0, 0.5), (-1, 0.5), (1, 1.0), (1, -0.1), (1, float("nan"))])
def test_G13_a_delay_is_asked_for_after_a_failure_and_with_a_fraction(failures: int, random_number: float) -> None:
    with pytest.raises(RetryPolicyError):
        delay_ms(PLAIN, failures, random_number)


def test_A10_losses_are_counted_apart_and_an_at_most_once_activity_is_not_rerun() -> None:
    assert after_loss(losses=5) == RetryLater(0)
    assert after_loss(losses=6) == NoRetry("its worker was lost 6 times")
    assert isinstance(after_loss(losses=1, rerun_after_loss=False), NoRetry)


@given(
    st.integers(1, 10**9),
    st.floats(0, 1, exclude_max=True),
    st.integers(0, 10_000),
    st.integers(0, 10**6),
    st.floats(1, 1e300),
    st.booleans(),
)
def test_G13_a_delay_is_whole_bounded_and_within_its_jitter(
    failures: int, random_number: float, initial: int, more: int, backoff: float, jitter: bool
) -> None:
    policy = RetryPolicy(None, initial, backoff, initial + more, jitter)
    delay = delay_ms(policy, failures, random_number)
    steady = delay_ms(RetryPolicy(None, initial, backoff, initial + more, jitter=False), failures, 0.0)
    assert steady // 2 - 1 <= delay <= steady <= policy.maximum_ms
    assert steady >= initial
    if not jitter:
        assert delay == steady


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"attempts": 0}, "attempts must be 1 or more"),
        ({"attempts": -1}, "attempts must be 1 or more"),
        ({"initial_ms": -1}, "initial delay"),
        ({"initial_ms": LONGEST_DELAY_MS + 1}, "initial delay"),
        ({"initial_ms": 10, "maximum_ms": 9}, "maximum delay"),
        ({"maximum_ms": 10**18}, "maximum delay"),
        ({"backoff": 0.5}, "backoff"),
        ({"backoff": float("nan")}, "backoff"),
        ({"backoff": float("inf")}, "backoff"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, int | float], reason: str) -> None:
    with pytest.raises(RetryPolicyError, match=reason):
        RetryPolicy(**wrong)  # type: ignore[arg-type]  # wrong on purpose
